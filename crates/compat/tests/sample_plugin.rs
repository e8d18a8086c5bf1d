//! The sample plugin of `examples/vfio-ready`, built and asked: it composes two built-in plugins.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod external;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use portolan_compat::check::{Options, check};
use portolan_compat::document::{Mode, read};
use portolan_compat::external::{self as plugins, Https, Origin, Settings, policy};
use portolan_compat::plugins::Manner;
use portolan_compat::{Report, Verdict};
use portolan_host::facts::{Builder, Facts};
use portolan_registry::client::{Client, CredentialStore};
use serde_json::{Value, json};

use crate::external::{runner, skip};

/// Builds the sample beside this very test, and says where cargo put it.
fn sample() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--package", "portolan-vfio-ready", "--message-format=json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut made = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let made = made.find_map(|line| line["executable"].as_str().map(PathBuf::from));
    made.expect("cargo names the program")
}

fn install(program: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let plugins = dir.path().join("plugins");
    fs::create_dir(&plugins).unwrap();
    fs::copy(program, plugins.join("vfio-ready")).unwrap();
    for path in [dir.path(), &plugins, &plugins.join("vfio-ready")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

fn ask(directory: &Path, facts: &Facts) -> Report {
    let text =
        br#"{"schemaVersion": "0.1.0", "namespaces": {"gpu": {"plugins": {"vfio-ready": {}}}}}"#;
    let spec = read(text, Mode::Strict).spec.unwrap();
    // A program built by cargo for this machine needs its libraries; a shipped one is static.
    let rules = br#"{"version": 1, "rules": [
        {"providers": ["directory"], "plugins": ["vfio-ready"], "libraries": true}]}"#;
    let settings = Settings {
        policy: Some(policy::parse(rules).unwrap()),
        policy_path: policy::DEFAULT_POLICY.into(),
        directory: directory.to_owned(),
        offline: true,
        platform: portolan_host::Host::here().unwrap().platform().unwrap().platform,
        runner: runner(),
    };
    let fetch = Https::new(settings.policy.as_ref().unwrap());
    let client = Client::new(Default::default(), CredentialStore::anonymous()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found =
        runtime.block_on(plugins::find(&spec, &Origin::default(), &settings, &fetch, &client));
    let mut externals = found.describe(Manner::default());
    // What it declares is what is collected: its own facts and those of the plugins it asks.
    let wanted: Vec<String> = externals.wanted().features().map(str::to_owned).collect();
    if !wanted.is_empty() {
        for feature in ["cpu.model", "kernel.loadedmodule", "kernel.cmdline"] {
            assert!(wanted.iter().any(|one| one == feature), "{feature} in {wanted:?}");
        }
    }
    check(&spec, facts, &Options::default(), &mut externals).unwrap()
}

fn host(vendor: &str, modules: &[&str], cmdline: &str) -> Facts {
    let start: Builder = Facts::builder()
        .attribute("cpu.model", "vendor_id", vendor)
        .flag("kernel.loadedmodule", "ext4")
        .flag("kernel.builtinmodule", "ext4")
        .flag("kernel.availablemodule", "ext4")
        .cmdline(cmdline);
    modules.iter().fold(start, |all, one| all.flag("kernel.loadedmodule", one)).build()
}

#[test]
fn the_sample_composes_two_built_in_plugins() {
    let program = sample();
    let dir = install(&program);
    let all = ["vfio", "vfio_pci", "vfio_iommu_type1"];
    for (facts, expected) in [
        (host("Intel", &all, "quiet intel_iommu=on"), Verdict::Pass),
        (host("Intel", &all, "quiet intel_iommu=on,sm_on"), Verdict::Pass),
        (host("Intel", &all, "quiet"), Verdict::Fail),
        (host("Intel", &["vfio"], "intel_iommu=on"), Verdict::Fail),
        (host("AMD", &all, "quiet"), Verdict::Pass),
        (host("Other", &all, "intel_iommu=on"), Verdict::Unknown),
        // Nothing is known of this one but its maker.
        (Facts::builder().attribute("cpu.model", "vendor_id", "Intel").build(), Verdict::Unknown),
    ] {
        let report = ask(dir.path(), &facts);
        let text = serde_json::to_value(&report).unwrap();
        let answer = &text["namespaces"]["gpu"]["plugins"]["vfio-ready"];
        let first = &answer["reasons"][0];
        if first["code"] == "E_SANDBOX" {
            return skip::skip(first["message"].as_str().unwrap());
        }
        assert_eq!(answer["verdict"], json!(expected), "{facts:?}: {answer:#}");
        assert_eq!(first["code"], "VFIO_MODULES", "{answer:#}");
        assert_eq!(answer["provider"], "directory");
    }
}
