//! `portolan install` and `uninstall`, as people and scripts call them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::path::Path;

use serde_json::Value;
use support::{Said, portolan, run};

fn items(said: Said) -> Vec<Value> {
    said.json()["items"].as_array().unwrap().clone()
}

fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    all.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name)
}

fn key(home: &Path) -> String {
    let prefix = home.join("release").to_str().unwrap().to_owned();
    let mut command = portolan(home);
    command.args(["key", "generate", "--output", &prefix]).env("COSIGN_PASSWORD", "x");
    assert!(command.output().unwrap().status.success());
    format!("{prefix}.pub")
}

#[test]
fn install_prints_documents_that_kubectl_takes_and_the_same_every_time() {
    let home = tempfile::tempdir().unwrap();
    let yaml = run(home.path(), &["install", "--image", "registry.example/portolan:1"]);
    assert_eq!(yaml.code, 0, "{}", yaml.err);
    assert!(yaml.err.contains("trusts nobody yet"), "{}", yaml.err);
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
    let dir = dir.to_str().unwrap();
    let all = items(run(home.path(), &["install", "--policy", dir, "-o", "json"]));
    let policy = &find(&all, "ConfigMap", "portolan-policy").unwrap()["data"];
    assert_eq!(policy["policy.yaml"], own);
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
        (vec!["--replicas", "0"], 2, "--replicas"),
        (vec!["--gate", "webhook", "--pin"], 2, "--pin"),
        (vec!["--gatekeeper-ca", &key], 2, "no certificate"),
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
    let gone = kinds(&["uninstall", "--crds", "--keep-namespaces"]);
    assert!(gone.contains(&definition) && !gone.contains(&"Namespace".to_owned()));
    let said = run(home.path(), &["uninstall"]);
    assert!(said.err.contains("delete Shims first"), "{}", said.err);
}
