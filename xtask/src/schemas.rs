//! `cargo xtask schemas`: writes `docs/schemas`, through the tests that compare it.

use anyhow::{Context as _, Result, ensure};

/// Asks those tests to write first. They know the types; this program must not.
const UPDATE: &str = "PORTOLAN_UPDATE_SCHEMAS";

pub(crate) fn run() -> Result<()> {
    ["portolan-agent", "portolan-compat", "portolan-verify"].into_iter().try_for_each(write)
}

/// Has a package write what is checked in of its types.
pub(crate) fn write(package: &str) -> Result<()> {
    let status = std::process::Command::new(env!("CARGO"))
        .args(["test", "--package", package, "--lib", "checked_in"])
        .current_dir(crate::root())
        .env(UPDATE, "1")
        .status()
        .context("start cargo")?;
    ensure!(status.success(), "the schemas of {package} could not be written");
    Ok(())
}
