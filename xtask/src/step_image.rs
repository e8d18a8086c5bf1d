//! The image of Portolan's programs, which steps of builds and Deployments run, built by Portolan itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use portolan_core::Platform;
use serde_json::Value;

use crate::image;
use crate::testbed::state::State;

/// Where machines keep the certificates that they trust.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// What the image stands on, among the testbed's parts.
const BASE: &str = "git-tools-image";

/// Lays out what `deploy/image/Containerfile` asks for in the folder `to`, with the programs of one architecture.
pub(crate) fn lay_out(programs: &[PathBuf], architecture: &str, to: &Path) -> Result<()> {
    let from = crate::root().join("deploy/image");
    copy_folder(&from, to)?;
    let bin = to.join("bin").join(architecture);
    fs::create_dir_all(&bin).with_context(|| format!("create {}", bin.display()))?;
    for program in programs {
        let name = program.file_name().context("a program has a name")?;
        fs::copy(program, bin.join(name)).with_context(|| format!("copy {}", program.display()))?;
    }
    if Path::new(CERTIFICATES).is_file() {
        let certs = to.join("etc/ssl/certs");
        fs::create_dir_all(&certs)?;
        fs::copy(CERTIFICATES, certs.join("ca-certificates.crt"))?;
    }
    Ok(())
}

/// Has `portolan` build what is laid out in `dir`; returns the digest.
pub(crate) fn build(
    portolan: &Path,
    dir: &Path,
    platforms: &[Platform],
    base: &str,
    output: &str,
) -> Result<String> {
    let mut command = Command::new(portolan);
    command.args(["build", "run", "--engine", "local", "--no-source", "-o", "json", "--dir"]);
    command.arg(dir).args(["--build-arg", &format!("BASE={base}"), "--output", output]);
    for platform in platforms {
        command.args(["--platform", &platform.to_string()]);
    }
    let out = command
        .current_dir(crate::root())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start {}", portolan.display()))?;
    if !out.status.success() {
        bail!("the image cannot be built: {}", String::from_utf8_lossy(&out.stdout));
    }
    let status: Value = serde_json::from_slice(&out.stdout).context("the status of the build")?;
    let digest = status["output"]["digest"].as_str().context("the build names no digest")?;
    Ok(digest.to_owned())
}

/// The programs of one platform.
#[derive(Debug)]
pub(crate) struct Half {
    platform: Platform,
    programs: Vec<PathBuf>,
}

impl Half {
    /// Builds them, as quickly as can be.
    pub(crate) fn build(platform: &Platform) -> Result<Self> {
        let programs = image::programs(platform, "step")?;
        Ok(Self { platform: platform.clone(), programs })
    }
}

/// Builds the image with `portolan`, for one platform or more, and pushes it; returns what pods pull, by digest.
pub(crate) fn push(portolan: &Path, halves: &[Half], state: &State) -> Result<String> {
    let base = state.images.get(BASE).with_context(|| format!("the testbed has no {BASE}"))?;
    let base = base.replacen(&state.registry.cluster, &state.registry.loopback, 1);
    let repository = "portolan/portolan";
    let here = image::here();
    let (mut parts, mut digest) = (Vec::new(), String::new());
    for Half { platform, programs } in halves {
        let dir = tempfile::tempdir().context("make a temporary folder")?;
        lay_out(programs, &platform.architecture, dir.path())?;
        // What the testbed stands on is of this machine; no other platform's pods run here.
        let base = if *platform == here { base.as_str() } else { "scratch" };
        let part =
            format!("{}/{repository}:e2e-{}", state.registry.loopback, platform.architecture);
        digest = build(portolan, dir.path(), std::slice::from_ref(platform), base, &part)?;
        parts.push(part);
    }
    if parts.len() > 1 {
        let all = format!("{}/{repository}:e2e", state.registry.loopback);
        digest = index(portolan, &all, &parts)?;
    }
    Ok(format!("{}/{repository}@{digest}", state.registry.cluster))
}

/// Has `portolan` make one index of images; returns its digest.
fn index(portolan: &Path, to: &str, parts: &[String]) -> Result<String> {
    let mut command = Command::new(portolan);
    command.args(["image", "index", "create", "-o", "json", to]).args(parts);
    let out = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start {}", portolan.display()))?;
    if !out.status.success() {
        bail!("the index of the image cannot be made; see above");
    }
    let made: Value = serde_json::from_slice(&out.stdout).context("what was made")?;
    let digest = made["digest"].as_str().context("the index has no digest")?;
    Ok(digest.to_owned())
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_the_containerfile_copies_is_laid_out() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("portolan");
        fs::write(&program, "program").unwrap();
        let to = dir.path().join("context");
        lay_out(std::slice::from_ref(&program), "amd64", &to).unwrap();
        lay_out(&[program], "arm64", &to).unwrap();
        for architecture in ["amd64", "arm64"] {
            assert!(to.join("bin").join(architecture).join("portolan").is_file());
        }
        let text = fs::read_to_string(to.join("Containerfile")).unwrap();
        for line in text.lines().filter(|line| line.starts_with("COPY ")) {
            let from = line.split(' ').nth(1).unwrap().split('/').next().unwrap();
            assert!(to.join(from).is_dir(), "{line}");
        }
        let users = fs::read_to_string(to.join("etc/passwd")).unwrap();
        assert!(users.contains(":1000:1000:"), "ssh wants a name for who runs it: {users}");
    }
}
