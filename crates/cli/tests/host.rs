//! `portolan host facts`: the facts of the hosts under `fixtures/hosts`, word for word, and what
//! is never printed.
//!
//! `PORTOLAN_UPDATE_FACTS=1 cargo test -p portolan-cli --test host` writes the words anew; read
//! the difference before it is committed.

mod support;

use std::path::{Path, PathBuf};

use portolan_host::facts::{Facts, Found};
use support::run;

/// A level each, a container's view, and a host of which almost nothing can be read.
const HOSTS: [&str; 6] = ["x86-v2", "x86-v3", "x86-v4", "graviton3", "container", "unreadable"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn root(host: &str) -> String {
    fixtures().join("hosts").join(host).display().to_string()
}

fn facts(host: &str, more: &[&str]) -> support::Said {
    let home = tempfile::tempdir().expect("a temporary directory");
    let root = root(host);
    let mut args = vec!["host", "facts", "--host", root.as_str()];
    args.extend(more);
    run(home.path(), &args)
}

#[test]
fn the_facts_of_six_hosts() {
    for host in HOSTS {
        let found = facts(host, &["-o", "json"]).ok();
        let path = fixtures().join("facts").join(format!("{host}.json"));
        if std::env::var_os("PORTOLAN_UPDATE_FACTS").is_some() {
            std::fs::write(&path, &found).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        assert!(found == golden, "{host} differs from {}:\n{found}", path.display());
        // What is printed reads back and says the same.
        let again: Facts = serde_json::from_str(&found).unwrap();
        assert_eq!(serde_json::to_string_pretty(&again).unwrap() + "\n", found, "{host}");
    }
}

#[test]
fn levels_choose_the_platform() {
    for (host, platform) in [
        ("x86-v2", "linux/amd64/v2"),
        ("x86-v3", "linux/amd64/v3"),
        ("x86-v4", "linux/amd64/v4"),
        ("graviton3", "linux/arm64/v8.4"),
        ("container", "linux/amd64/v3"),
        ("unreadable", "linux/amd64"),
    ] {
        let json = facts(host, &["-o", "json"]).json();
        assert_eq!(json["platform"], platform, "{host}");
    }
}

#[test]
fn an_images_files_are_not_the_hosts() {
    let said = facts("container", &[]);
    assert!(said.err.contains("--host"), "{}", said.err);
    let table = said.ok();
    assert!(!table.contains("alpine") && !table.contains("OF_THE_IMAGE"), "{table}");
    let json = facts("container", &["-o", "json"]).ok();
    let facts: Facts = serde_json::from_str(&json).unwrap();
    for unknown in ["system.osrelease", "kernel.config", "network.device", "local.label"] {
        assert!(facts.feature(unknown).is_err(), "{unknown}");
    }
    // What the kernel itself tells is the host's.
    assert!(matches!(facts.flag("kernel.loadedmodule", "veth"), Found::Present { .. }));
    assert!(facts.feature("pci.device").is_ok());
}

#[test]
fn nothing_that_names_a_person_or_holds_a_secret_is_printed() {
    for host in HOSTS {
        for format in ["table", "json", "yaml"] {
            let out = facts(host, &["-o", format]).ok();
            for private in
                ["hush", "SERIAL", "ABC123", "7e57c0de", "02:00:5e", "0200005e0053", "i-0123"]
            {
                assert!(!out.contains(private), "{host} -o {format} holds {private}");
            }
        }
    }
    let asked = facts("x86-v3", &["--include-cmdline", "-o", "json"]).json();
    assert_eq!(asked["attributes"]["kernel.cmdline"]["elements"]["rd.luks.key"], "hush");
    let table = facts("x86-v3", &["--include-cmdline"]).ok();
    assert!(table.contains("kernel.cmdline.amd_iommu"), "{table}");
    let config = facts("x86-v4", &["--include-cmdline", "-o", "json"]).json();
    let built_in = &config["attributes"]["kernel.config"]["elements"]["CMDLINE"];
    assert_eq!(built_in, "intel_iommu=on secret=hush");
}

#[test]
fn node_labels_are_lines_for_kubectl() {
    let labels = facts("x86-v4", &["--node-labels"]).ok();
    let lines: Vec<_> = labels.lines().collect();
    let nfd = "feature.node.kubernetes.io/";
    for label in [
        "cpu-cpuid.X86_64_V4=true",
        "cpu-cpuid.AVX512F=true",
        "cpu-model.vendor_id=Intel",
        "cpu-hardware_multithreading=false",
        "cpu-cstate.enabled=true",
        "cpu-pstate.turbo=true",
        "kernel-version.full=6.12.9",
        "kernel-config.PREEMPT=true",
        "memory-numa=true",
        "memory-nv.present=true",
        "memory-nv.dax=true",
        "network-sriov.capable=true",
        "pci-0300_1a03.present=true",
        "pci-0b40_8086.present=true",
        "pci-0b40_8086.sriov.capable=true",
        "storage-nonrotationaldisk=true",
        "system-os_release.ID=fedora",
    ] {
        assert!(lines.contains(&format!("{nfd}{label}").as_str()), "{label}: {labels}");
    }
    assert!(lines.contains(&"portolan.dev/cpu-level=v4"), "{labels}");
    assert!(!labels.contains("cpu-cpuid.SSE2="), "{labels}");
    let arm = facts("graviton3", &["--node-labels", "-o", "json"]).json();
    assert_eq!(arm["portolan.dev/cpu-level"], "v8.4");
    assert_eq!(arm["feature.node.kubernetes.io/cpu-cpuid.ATOMICS"], "true");
    let local = facts("x86-v3", &["--node-labels"]).ok();
    assert!(local.contains(&format!("{nfd}rack=r7\n")), "{local}");
    assert!(local.contains(&format!("{nfd}usb-0e_046d_085c.present=true\n")), "{local}");
}

#[test]
fn a_root_that_is_none_is_said_so() {
    let home = tempfile::tempdir().unwrap();
    let missing = run(home.path(), &["host", "facts", "--host", "/nonexistent/portolan"]);
    assert_eq!(missing.code, 4, "{}", missing.err);
    let file = fixtures().join("README.md").display().to_string();
    let file = run(home.path(), &["host", "facts", "--host", &file]);
    assert_eq!(file.code, 2, "{}", file.err);
    let both = facts("x86-v3", &["--node-labels", "--include-cmdline"]);
    assert_eq!(both.code, 2, "{}", both.err);
}

#[test]
fn this_machine_has_facts() {
    let home = tempfile::tempdir().unwrap();
    let json = run(home.path(), &["host", "facts", "-o", "json"]).json();
    assert!(json["platform"].as_str().unwrap().starts_with("linux/"), "{json}");
    let full = &json["attributes"]["kernel.version"]["elements"]["full"];
    assert!(full.as_str().is_some_and(|full| !full.is_empty()), "{full}");
    assert!(json["attributes"]["kernel.cmdline"].is_null());
    let yaml = run(home.path(), &["host", "facts", "-o", "yaml"]).ok();
    assert!(yaml.starts_with("apiVersion: portolan.dev/host-facts/v1\n"), "{yaml}");
}
