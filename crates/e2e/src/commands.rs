//! Commands that must succeed, ours and the peers', and the checked-in image they work on.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Output, portolan, run, tool};

/// The checked-in layout with five platforms under the tag `1`.
pub fn hello() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/images/hello")
}

/// The same as a reference of ours.
pub fn hello_reference() -> String {
    format!("oci:{}:1", hello().display())
}

/// A file of `deploy/`: what is shipped for clusters.
pub fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

/// What the command prints, which must succeed.
///
/// # Panics
/// With everything it said, when it did not.
#[track_caller]
pub fn ok(command: &mut Command) -> String {
    let output = run(command).expect("the command starts");
    assert_eq!(output.code, Some(0), "{output:?}");
    output.stdout
}

/// `portolan ARGS`, which must succeed.
#[track_caller]
pub fn ours(args: &[&str]) -> String {
    ok(portolan().args(args))
}

/// `portolan ARGS`, however it ends.
pub fn ours_output(args: &[&str]) -> Output {
    run(portolan().args(args)).expect("portolan starts")
}

/// A peer with a home of its own, so that no settings or credentials of this machine count.
pub fn peer(name: &str, home: &Path) -> Command {
    let mut command = Command::new(tool(name));
    command.env("HOME", home).env("DOCKER_CONFIG", home.join(".docker")).current_dir(home);
    command
}

/// Text that must be JSON.
///
/// # Panics
/// When it is not.
#[track_caller]
pub fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// The digest a reference has for us.
#[track_caller]
pub fn digest(reference: &str) -> String {
    let inspected = json(&ours(&["image", "inspect", reference, "-o", "json"]));
    inspected["digest"].as_str().expect("a digest").to_owned()
}

/// The digest that a host of this platform runs.
#[track_caller]
pub fn resolved(reference: &str, platform: &str) -> String {
    let said = ours(&["image", "resolve", reference, "--platform", platform, "-o", "json"]);
    let said = json(&said);
    said["chosen"]["digest"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
}
