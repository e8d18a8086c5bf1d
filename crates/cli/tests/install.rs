//! `portolan install` and `uninstall`, as people and scripts call them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::path::Path;

use serde_json::Value;
use support::{Said, generate, run};

fn items(said: Said) -> Vec<Value> {
    said.json()["items"].as_array().unwrap().clone()
}

fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    all.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name)
}

fn key(home: &Path) -> String {
    generate(home, "release").ok();
    home.join("release.pub").display().to_string()
}

#[test]
fn install_prints_documents_that_kubectl_takes_and_the_same_every_time() {
    let home = tempfile::tempdir().unwrap();
    let yaml = run(home.path(), &["install", "--image", "registry.example/portolan:1"]);
    assert_eq!(yaml.code, 0, "{}", yaml.err);
    assert!(yaml.err.contains("trusts nobody yet"), "{}", yaml.err);
    assert!(!yaml.err.contains("published"), "{}", yaml.err);
    let unnamed = run(home.path(), &["install"]);
    assert!(unnamed.err.contains("must have been published"), "{}", unnamed.err);
    let json = items(run(
        home.path(),
        &["install", "--image", "registry.example/portolan:1", "-o", "json"],
    ));
    let documents: Vec<Value> = serde_yaml_ng::Deserializer::from_str(&yaml.out)
        .map(|one| serde::Deserialize::deserialize(one).unwrap())
        .collect();
    assert_eq!(documents, json);
    let again = run(home.path(), &["install", "--image", "registry.example/portolan:1"]);
    assert_eq!(again.out, yaml.out);
    let table = run(home.path(), &["install", "-o", "table"]).ok();
    assert!(table.starts_with("KIND") && table.contains("portolan-verifier"), "{table}");
    assert_eq!(table.lines().count(), json.len() + 1);
}

#[test]
fn install_takes_keys_and_policies_that_a_verifier_takes_and_no_others() {
    let home = tempfile::tempdir().unwrap();
    let key = key(home.path());
    let all =
        items(run(home.path(), &["install", "--key", &key, "--action", "deny", "-o", "json"]));
    let policy = &find(&all, "ConfigMap", "portolan-policy").unwrap()["data"];
    assert!(policy["key-1.pub"].as_str().unwrap().contains("PUBLIC KEY"), "{policy}");
    let text = policy["policy.yaml"].as_str().unwrap();
    assert!(text.contains("platforms: nodes") && text.contains("key-1"), "{text}");
    let constraint = find(&all, "PortolanVerifiedImages", "verified-images").unwrap();
    assert_eq!(constraint["spec"]["enforcementAction"], "deny");
    // A folder of one's own.
    let dir = home.path().join("policy");
    std::fs::create_dir(&dir).unwrap();
    std::fs::copy(&key, dir.join("ours.pub")).unwrap();
    let own = "version: 1\nsigners: {us: {keys: {files: [ours.pub]}}}\ndefault: {require: {anyOf: [us]}}\n";
    std::fs::write(dir.join("policy.yaml"), own).unwrap();
    // What the policy does not name stays where it is.
    std::fs::write(dir.join("ours.key"), "the private half").unwrap();
    let dir = dir.to_str().unwrap();
    let all = items(run(home.path(), &["install", "--policy", dir, "-o", "json"]));
    let policy = &find(&all, "ConfigMap", "portolan-policy").unwrap()["data"];
    assert_eq!(policy["policy.yaml"], own);
    let files: Vec<_> = policy.as_object().unwrap().keys().collect();
    assert_eq!(files, ["ours.pub", "policy.yaml"]);
    for (args, code, word) in [
        (vec!["--policy", "nowhere"], 4, "nowhere"),
        (vec!["--key", "nowhere"], 4, "nowhere"),
        (vec!["--key", &key, "--policy", dir], 2, "cannot be used with"),
        (vec!["--policy", &key], 2, "policy is wrong"),
        (vec!["--components", "everything"], 2, "build, shims, verify"),
        (vec!["--namespace", "kube-system"], 2, "belongs to others"),
        (vec!["--namespace", "a", "--shim-namespace", "a"], 2, "owns every node"),
        (vec!["--image", "a b"], 2, "--image"),
        (vec!["--image", "oci:dir:1"], 2, "in a registry"),
        (vec!["--agent-root", "images"], 2, "--agent-root"),
        (vec!["--agent-root", "/a/../etc"], 2, "--agent-root"),
        (vec!["--agent-root", "/"], 2, "--agent-root"),
        (vec!["--agent-root", "//"], 2, "--agent-root"),
        (vec!["--agent-root", "/etc/"], 2, "--agent-root"),
        (vec!["--agent-root", "/var/run/images"], 2, "--agent-root"),
        (vec!["--agent-root", "/opt"], 2, "--agent-root"),
        (vec!["--components", "build", "--agent-taint"], 2, "--agent-taint is about agents"),
        (vec!["--components", "build", "--agent-labels"], 2, "--agent-labels is about agents"),
        (vec!["--components", "build", "--agent-root", "/a"], 2, "--agent-root is about agents"),
        (vec!["--agent-namespace", "portolan-system"], 2, "owns every node"),
        (vec!["--replicas", "0"], 2, "--replicas"),
        (vec!["--gate", "webhook", "--pin"], 2, "--pin"),
        (vec!["--gatekeeper-ca", &key], 2, "no certificate"),
        (vec!["--components", "build", "--key", &key], 2, "--key is about the verifier"),
        (vec!["--components", "build", "--pin"], 2, "--pin is about the verifier"),
        (vec!["--gate", "webhook", "--action", "warn"], 2, "is refused"),
        (vec!["--gate", "webhook", "--gatekeeper-ca", &key], 2, "every pod would be refused"),
    ] {
        let said = run(home.path(), &[vec!["install"], args.clone()].concat());
        assert_eq!(said.code, code, "{args:?}: {}", said.err);
        assert!(said.err.contains(word), "{args:?}: {}", said.err);
        assert_eq!(said.out, "", "{args:?}");
    }
}

#[test]
fn definitions_can_be_printed_alone_and_only_go_when_asked() {
    let home = tempfile::tempdir().unwrap();
    let kinds = |args: &[&str]| -> Vec<String> {
        let all = items(run(home.path(), &[args, &["-o", "json"]].concat()));
        all.iter().map(|one| one["kind"].as_str().unwrap().to_owned()).collect()
    };
    let definition = "CustomResourceDefinition".to_owned();
    assert!(kinds(&["install", "--crds-only"]).iter().all(|kind| *kind == definition));
    let kept = kinds(&["uninstall"]);
    assert!(!kept.contains(&definition) && kept.contains(&"Namespace".to_owned()));
    assert_eq!(kept.last().unwrap(), "Namespace", "with all that is in them, last");
    let left = items(run(home.path(), &["uninstall", "--keep-namespaces", "-o", "json"]));
    let authority = find(&left, "ConfigMap", "gatekeeper-ca");
    assert!(authority.is_some(), "nobody says at the end what was given at the beginning");
    let gone = kinds(&["uninstall", "--crds", "--keep-namespaces"]);
    assert!(gone.contains(&definition) && !gone.contains(&"Namespace".to_owned()));
    let said = run(home.path(), &["uninstall"]);
    assert!(said.err.contains("delete Shims first"), "{}", said.err);
}

#[test]
fn who_names_some_components_is_told_of_those_that_share_something_with_them() {
    let home = tempfile::tempdir().unwrap();
    let told = |command: &str, components: &str| {
        let args = [command, "--components", components, "-o", "table"];
        let said = run(home.path(), if components.is_empty() { &args[..1] } else { &args });
        assert_eq!(said.code, 0, "{}", said.err);
        said.err.contains("old and new") || said.err.contains("may share")
    };
    assert!(told("install", "releases") && told("install", "agent,verify"));
    assert!(!told("install", "") && !told("install", "verify"));
    assert!(told("uninstall", "releases") && !told("uninstall", ""));
}

/// As it is told: with the flags of the first time.
#[test]
fn an_upgrade_leaves_settings_to_their_owner_and_says_what_flags_do_not_reach() {
    let home = tempfile::tempdir().unwrap();
    let ca = home.path().join("ca.crt");
    let pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
    std::fs::write(&ca, pem).unwrap();
    let flags = ["--agent-taint", "--agent-labels", "--gatekeeper-ca", ca.to_str().unwrap()];
    let upgrade = |flags: &[&str]| {
        let said = run(home.path(), &[&["install", "--upgrade", "-o", "json"], flags].concat());
        assert_eq!(said.code, 0, "{}", said.err);
        (said.err.clone(), items(said))
    };
    let (told, all) = upgrade(&flags);
    for name in ["portolan-agent", "portolan-controller", "portolan-verifier"] {
        assert!(find(&all, "ConfigMap", name).is_none(), "{name}");
    }
    assert_eq!(find(&all, "ConfigMap", "gatekeeper-ca").unwrap()["data"]["ca.crt"], pem);
    let lines = [
        ("agent.toml", "`taint = true` below `[report.node]`"),
        ("agent.toml", "`labels = true` below `[report.node]`"),
        ("verifier.toml", "`client_ca = \"/etc/portolan/gatekeeper/ca.crt\"` below `[tls]`"),
    ];
    for (file, line) in lines {
        let about = told.lines().filter(|one| one.contains(file) && one.contains(line)).count();
        assert_eq!(about, 1, "{line}: {told}");
    }
    // Of a component that is new there would be programs without settings.
    let (told, _) = upgrade(&[]);
    assert!(
        told.contains(
            "a program that is new (controller, verifier, agent) comes without --upgrade"
        ),
        "{told}"
    );
    assert!(!told.contains("stays as it is"), "{told}");
    for args in [&["install"][..], &["install", "--upgrade", "--crds-only", "--agent-taint"]] {
        let said = run(home.path(), args);
        assert!(!said.err.contains("that is new") && !said.err.contains("stays"), "{}", said.err);
    }
}
