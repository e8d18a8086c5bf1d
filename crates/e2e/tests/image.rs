//! Portolan's one image, which Portolan built and pushed for this run and whose programs the Deployments and Jobs of
//! other tests run: on every platform that it is for, all of them start and do their work.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use portolan_e2e::{
    Testbed, architecture, hello_reference, json, ok, ours, portolan, step_image, step_platforms,
    tool,
};

const PROGRAMS: [&str; 4] =
    ["portolan", "portolan-agent", "portolan-controller", "portolan-verifier"];

/// A program of the image, run by this machine or under qemu-user.
fn program(tree: &Path, platform: &str, name: &str) -> Command {
    let file = tree.join("usr/local/bin").join(name);
    match platform.strip_prefix("linux/") {
        Some(own) if own == architecture() => Command::new(file),
        Some("arm64") => {
            let mut command = Command::new(tool("qemu-aarch64-static"));
            command.arg(file);
            command
        }
        _ => panic!("no emulator for {platform}"),
    }
}

/// The image's files for a platform.
fn unpack(image: &str, platform: &str, dir: &Path) -> PathBuf {
    let name = platform.replace('/', "-");
    let (disk, tree) = (dir.join(format!("{name}.ext4")), dir.join(name));
    let build = ["rootdisk", "build", image, "--platform", platform, "--output"];
    ok(portolan().args(build).arg(&disk));
    ok(portolan().args(["rootdisk", "extract"]).arg(&disk).arg(&tree));
    tree
}

#[test]
fn every_program_of_the_image_runs_on_every_platform_that_it_is_for() -> Result<()> {
    let registry = &Testbed::get().registry;
    let image = step_image().replacen(&registry.cluster, &registry.loopback, 1);
    let platforms = step_platforms();
    ensure!(platforms.contains(&format!("linux/{}", architecture())), "{platforms:?}");
    let dir = tempfile::tempdir()?;
    let disk = |name: &str| dir.path().join(format!("hello-{}", name.replace('/', "-")));
    let build = ["rootdisk", "build", &hello_reference(), "--platform", "linux/arm64", "--output"];
    let here = disk("here");
    ok(portolan().args(build).arg(&here));
    let version = ours(&["version"]);
    for platform in &platforms {
        let tree = unpack(&image, platform, dir.path());
        for name in PROGRAMS {
            let said = ok(program(&tree, platform, name).arg("--version"));
            ensure!(said.starts_with(name), "{platform}: {said}");
        }
        let own = |args: &[&str]| ok(program(&tree, platform, "portolan").args(args));
        // It says what it is for, too.
        let expected = version.replace(&format!("linux/{}", architecture()), platform);
        let said = own(&["version"]);
        ensure!(said == expected, "{platform}: {said}");
        // The host is what its kernel says, also to a program that is emulated there.
        let resolve = ["image", "resolve", &hello_reference(), "-o", "json"];
        let (own_said, theirs) = (json(&ours(&resolve)), json(&own(&resolve)));
        ensure!(own_said["chosen"] == theirs["chosen"], "{platform}: {theirs}");
        // The same disk, to the byte, whatever it was built on.
        let there = disk(platform);
        ok(program(&tree, platform, "portolan").args(build).arg(&there));
        ensure!(std::fs::read(&here)? == std::fs::read(&there)?, "{platform}: another disk");
    }
    Ok(())
}
