//! `cargo xtask schemas`: writes `docs/schemas`, through the tests that compare it.

use anyhow::{Context as _, Result, ensure};

/// Asks those tests to write first. They know the types; this program must not.
const UPDATE: &str = "PORTOLAN_UPDATE_SCHEMAS";

pub(crate) fn run() -> Result<()> {
    let status = std::process::Command::new(env!("CARGO"))
        .args(["test", "--package", "portolan-agent", "--lib", "checked_in"])
        .current_dir(crate::root())
        .env(UPDATE, "1")
        .status()
        .context("start cargo")?;
    ensure!(status.success(), "the schemas could not be written");
    Ok(())
}
