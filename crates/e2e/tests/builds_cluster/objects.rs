//! The objects that these tests are about.

use std::time::Duration;

use anyhow::{Context as _, Result};
use portolan_e2e::{Controller, Testbed, run_with_input};
use serde_json::{Value, json};

pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Steps of ours run nothing here: what they do is tested with the image that has it.
pub(crate) fn busybox() -> Result<&'static str> {
    Testbed::get().image("busybox")
}

/// A strategy that tells a digest, waits for `hold` seconds and ends with `code`.
pub(crate) fn strategy(name: &str, hold: u32, code: u32) -> Result<Value> {
    let script = format!(
        "printf sha256:%064d 7 > $(results.shp-image-digest.path); sleep {hold}; exit {code}"
    );
    Ok(json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildStrategy", "metadata": {"name": name},
        "spec": {
            "parameters": [
                {"name": "SHP_BUILD_PLATFORM", "description": "the platform", "default": ""},
                {"name": "list", "description": "a list", "type": "array", "defaults": []},
            ],
            "steps": [{
                "name": "build", "image": busybox()?, "command": ["sh", "-c", script],
                "args": ["$(params.SHP_BUILD_PLATFORM)", "$(params.list[*])"],
            }],
        },
    }))
}

pub(crate) fn build(name: &str, strategy: &str, more: &Value) -> Value {
    let mut build = json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "Build", "metadata": {"name": name},
        "spec": {"strategy": {"name": strategy}, "output": {"image": "registry.example/team/app:1"}},
    });
    merge(&mut build["spec"], more);
    build
}

pub(crate) fn run(name: &str, build: &str, more: &Value) -> Value {
    let mut run = json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun", "metadata": {"name": name},
        "spec": {"build": {"name": build}},
    });
    merge(&mut run["spec"], more);
    run
}

pub(crate) fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// An object of the cluster that goes with the test.
pub(crate) struct OfCluster(pub(crate) &'static str, pub(crate) String);

impl OfCluster {
    pub(crate) fn apply(object: &Value) -> Result<Self> {
        let kind = match object["kind"].as_str() {
            Some("ImagePlatform") => "imageplatform",
            _ => "imageplatformclass",
        };
        let name = object["metadata"]["name"].as_str().context("a name")?.to_owned();
        Testbed::get().apply(object)?;
        Ok(Self(kind, name))
    }

    pub(crate) fn platform(name: &str, arch: &str, more: &Value) -> Result<Self> {
        let mut platform = json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform", "metadata": {"name": name},
            "spec": {"platform": {"os": "linux", "arch": arch}},
        });
        merge(&mut platform["spec"], more);
        Self::apply(&platform)
    }

    pub(crate) fn class(name: &str, platforms: &[&str]) -> Result<Self> {
        let named: Vec<Value> = platforms.iter().map(|name| json!({"name": name})).collect();
        Self::apply(&json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
            "metadata": {"name": name}, "spec": {"imagePlatforms": named},
        }))
    }
}

impl Drop for OfCluster {
    fn drop(&mut self) {
        let _ = Testbed::get().kubectl(&["delete", self.0, &self.1, "--ignore-not-found"]);
    }
}

/// Two platforms that any node builds, and a class of them.
pub(crate) fn two_platforms(name: &str) -> Result<[OfCluster; 3]> {
    let value = |platform: &str| json!({"paramValues": [{"name": "SHP_BUILD_PLATFORM", "value": platform}]});
    let (amd, arm) = (format!("{name}-amd64"), format!("{name}-arm64"));
    Ok([
        OfCluster::platform(&amd, "amd64", &value("linux/amd64"))?,
        OfCluster::platform(&arm, "arm64", &value("linux/arm64"))?,
        OfCluster::class(name, &[&amd, &arm])?,
    ])
}

pub(crate) fn many(class: &str) -> Value {
    json!({"output": {"multiArch": {"imagePlatformClass": class, "platforms": [
        {"os": "linux", "arch": "amd64"}, {"os": "linux", "arch": "arm64"},
    ]}}})
}

pub(crate) fn kubectl_apply(manifest: &str) -> Result<portolan_e2e::Output> {
    let mut command = Testbed::get().kubectl_command()?;
    run_with_input(command.args(["apply", "-f", "-"]), manifest.as_bytes())
}

pub(crate) fn fixture(name: &str) -> Result<String> {
    let path = format!("{}/../../fixtures/build/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).with_context(|| path)
}

/// The shipped roles are enough.
pub(crate) fn nothing_forbidden(controller: &Controller) {
    let log = controller.log();
    assert!(!log.contains("orbidden"), "{log}");
}
