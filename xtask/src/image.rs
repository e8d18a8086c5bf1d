//! `cargo xtask image`: Portolan's one image with all its programs, for one or more platforms, built by Portolan itself.
//!
//! The machine's own platform is built with cargo and musl's C compiler, another one with `cargo-zigbuild`, whose zig has a
//! C compiler and libraries for all of them. Where qemu-user is installed, what was built for another platform is run.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use portolan_core::Platform;

use crate::program::{PORTOLAN, static_programs, static_programs_by};
use crate::step_image;
use crate::testbed::cache::Cache;

/// Both from PyPI, which has them ready-made for every machine.
const ZIGBUILD: &str = "cargo-zigbuild==0.24.0";
const ZIG: &str = "ziglang==0.16.0";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For these platforms [default: this machine's]
    #[arg(long, value_name = "PLATFORM")]
    platform: Vec<Platform>,
    /// Where to put it: a registry's reference, or oci:DIR:tag
    #[arg(long, value_name = "REF", default_value = concat!("oci:target/image:", env!("CARGO_PKG_VERSION")))]
    output: String,
    /// What it stands on: an image with git, ssh and git-lfs, for sources from git
    #[arg(long, value_name = "REF", default_value = "scratch")]
    base: String,
    /// How the programs are built: step is quick, release is what is shipped
    #[arg(long, default_value = "step")]
    profile: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let here = here();
    let platforms = match args.platform.is_empty() {
        true => vec![here.clone()],
        false => args.platform.iter().map(Platform::normalised).collect(),
    };
    let portolan = PORTOLAN.build(&[])?;
    let dir = tempfile::tempdir().context("make a temporary folder")?;
    for platform in &platforms {
        println!("== programs for {platform}");
        let programs = programs(platform, &args.profile)?;
        step_image::lay_out(&programs, &platform.architecture, dir.path())?;
        if platform.architecture != here.architecture {
            try_out(platform, &programs)?;
        }
    }
    println!("== image");
    let built = step_image::build(&portolan, dir.path(), &platforms, &args.base, &args.output)?;
    println!("{} {}", args.output, built);
    Ok(())
}

/// This machine's own platform.
pub(crate) fn here() -> Platform {
    Platform::new("linux", std::env::consts::ARCH).normalised()
}

/// Every program of ours for a platform.
pub(crate) fn programs(platform: &Platform, profile: &str) -> Result<Vec<PathBuf>> {
    let target = target(platform)?;
    match platform.architecture == here().architecture {
        true => static_programs(target, profile),
        false => {
            let zig = Zig::ensure()?;
            static_programs_by(|| zig.command(), target, profile)
        }
    }
}

/// Rust's name for it, without a C library of the machine.
fn target(platform: &Platform) -> Result<&'static str> {
    match (platform.os.as_str(), platform.architecture.as_str()) {
        ("linux", "amd64") => Ok("x86_64-unknown-linux-musl"),
        ("linux", "arm64") => Ok("aarch64-unknown-linux-musl"),
        _ => bail!("the image is for linux/amd64 and linux/arm64, not for {platform}"),
    }
}

/// cargo-zigbuild and its zig, under the user's cache directory.
struct Zig {
    dir: PathBuf,
}

impl Zig {
    /// Where it is, after installing it if need be.
    fn ensure() -> Result<Self> {
        let dir = Cache::of_user()?.tools().join(format!("{ZIGBUILD}-{ZIG}").replace("==", "-"));
        if !dir.is_dir() {
            println!("xtask: installing {ZIGBUILD} and {ZIG} (once, a minute)");
            let staging = dir.with_extension("staging");
            let _ = std::fs::remove_dir_all(&staging);
            let mut pip = Command::new("python3");
            pip.args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--target",
            ]);
            let status = pip.arg(&staging).args([ZIGBUILD, ZIG]).status().context("start pip")?;
            ensure!(status.success(), "pip install {ZIGBUILD} {ZIG} failed; see above");
            std::fs::rename(&staging, &dir)
                .with_context(|| format!("rename to {}", dir.display()))?;
        }
        Ok(Self { dir })
    }

    /// `cargo zigbuild`, to add to.
    fn command(&self) -> Command {
        let mut command = Command::new(self.dir.join("bin/cargo-zigbuild"));
        // It asks Python for its zig.
        command.arg("zigbuild").env("PYTHONPATH", &self.dir).env("CARGO", env!("CARGO"));
        command
    }
}

/// Runs what was built for another processor: that it starts, and that it does something real.
fn try_out(platform: &Platform, programs: &[PathBuf]) -> Result<()> {
    let architecture = match platform.architecture.as_str() {
        "arm64" => "aarch64",
        "amd64" => "x86_64",
        other => other,
    };
    let emulator = format!("qemu-{architecture}-static");
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|dir| dir.join(&emulator))
        .find(|path| path.is_file());
    let Some(emulator) = found else {
        println!("NOT TRIED: there is no {emulator} to run the programs for {platform}");
        return Ok(());
    };
    for program in programs.iter().filter(|program| !program.ends_with("portolan-init")) {
        call(Command::new(&emulator).arg(program).arg("--version"))?;
    }
    let portolan = programs.iter().find(|program| program.ends_with("portolan"));
    let portolan = portolan.context("portolan is among them")?;
    let image = format!("oci:{}:1", crate::root().join("fixtures/images/hello").display());
    call(
        Command::new(&emulator)
            .arg(portolan)
            .args(["image", "resolve", &image, "--platform"])
            .arg(platform.to_string()),
    )
}

fn call(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_image_is_for_what_it_can_be_built_for() {
        let of = |text: &str| target(&text.parse::<Platform>().unwrap().normalised());
        assert_eq!(of("linux/amd64").unwrap(), "x86_64-unknown-linux-musl");
        assert_eq!(of("linux/aarch64").unwrap(), "aarch64-unknown-linux-musl");
        assert!(of("linux/s390x").unwrap_err().to_string().contains("linux/s390x"));
        assert!(of("windows/amd64").is_err());
    }

    #[test]
    fn what_a_program_is_called_is_the_end_of_its_path() {
        assert!(Path::new("/t/step/portolan").ends_with("portolan"));
        assert!(!Path::new("/t/step/portolan-agent").ends_with("portolan"));
    }
}
