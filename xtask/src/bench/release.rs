//! A Release of an image for four platforms: resolved, each image read, index and images verified, compatibility artifacts
//! looked for. The whole command, against a registry on loopback.

use std::process::Command;

use anyhow::Result;

use super::commands::{commands, installed, said};
use super::report::{Promise, Report, millis};
use super::server::Server;
use crate::program::{PORTOLAN, released};

/// In milliseconds, with the start of the program.
const MOST: f64 = 300.0;

const PLATFORMS: [&str; 4] = ["linux/amd64", "linux/arm64", "linux/arm/v7", "linux/riscv64"];
const POLICY: &str = "version: 1\nsigners:\n  release: { keys: { files: [release.pub] } }\ndefault:\n  require: { allOf: [release] }\n";
const NEEDS: &str = r#"{"schemaVersion": "0.1.0", "namespaces": {"kernel": {"plugins": {"kernelVersion": {"data": {"range": "[4.0,)"}}}}}}"#;

pub(crate) fn run(runs: usize) -> Result<Report> {
    let scratch = tempfile::tempdir()?;
    let file = |name: &str| scratch.path().join(name);
    let portolan = installed(&released(PORTOLAN)?, scratch.path(), "portolan")?;
    let ours = || {
        let mut command = Command::new(&portolan);
        command.env("COSIGN_PASSWORD", "bench");
        command
    };
    let server = Server::embedded(&portolan, &file("registry"))?;
    let hello = format!("oci:{}:1", crate::root().join("fixtures/images/hello").display());
    let image = format!("{}/bench/app:1", server.address);
    let mut parts = Vec::new();
    for (number, platform) in PLATFORMS.iter().enumerate() {
        let part = format!("{}/bench/app:part-{number}", server.address);
        let digest = said(ours().args(["image", "resolve", &hello, "--platform", platform]))?;
        let all = format!("{}/bench/app:all", server.address);
        if number == 0 {
            said(ours().args(["image", "copy", &hello, &all]))?;
        }
        let one = format!("{}/bench/app@{}", server.address, digest.trim());
        said(ours().args(["image", "copy", &one, &part]))?;
        parts.push(part);
    }
    said(ours().args(["image", "index", "create", &image]).args(&parts))?;
    std::fs::write(file("policy.yaml"), POLICY)?;
    std::fs::write(file("needs.json"), NEEDS)?;
    said(ours().args(["key", "generate", "--output"]).arg(file("release")))?;
    said(ours().args(["sign", &image, "--recursive", "--key"]).arg(file("release.key")))?;
    said(ours().args(["compat", "attach", &image, "--file"]).arg(file("needs.json")))?;
    let mut report = Report::default();
    let whole =
        commands(&mut report, "portolan release create --local, 4 platforms", runs, &|| {
            let mut command = ours();
            command.args(["release", "create", &image, "--local", "-o", "json", "--policy"]);
            command.arg(file("policy.yaml"));
            command
        })?;
    let what = "resolve and verify an index of 4 platforms, whole command, ms".to_owned();
    report.promises.push(Promise { what, measured: millis(whole.wall), at_most: MOST });
    Ok(report)
}
