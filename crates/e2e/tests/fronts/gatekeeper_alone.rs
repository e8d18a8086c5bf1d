//! What Gatekeeper does beside admitting: it pins, it audits. And its engine agrees with ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{Namespace, Testbed, Verifier, portolan, run, wait_for};
use serde_json::{Value, json};

use super::{Copy, Front, admitted, architectures, child, image, pod, rendered};

/// Of the mutations, only for one namespace.
fn pinned_in(namespace: &Namespace) -> Result<()> {
    let mut all = rendered(&["--pin"]);
    let items = all["items"].as_array_mut().context("a list")?;
    items.retain(|one| one["kind"] == "Assign" || one["metadata"]["name"] == "portolan-mutator");
    for one in items.iter_mut().filter(|one| one["kind"] == "Assign") {
        one["spec"]["match"]["namespaces"] = json!([namespace.name()]);
    }
    ensure!(items.len() == 3, "a provider and two mutations: {items:?}");
    Testbed::get().apply(&all)
}

#[test]
fn gatekeeper_makes_the_digest_of_the_index_of_a_tag() -> Result<()> {
    let _turn = Verifier::get().turn.read().unwrap_or_else(PoisonError::into_inner);
    let namespace = Front::Gatekeeper.namespace()?;
    pinned_in(&namespace)?;
    let copy = Copy::new("pinned");
    copy.sign_all();
    let reference = copy.reference();
    let pinned = format!("{}@{}", reference.trim_end_matches(":1"), copy.digest());
    let init = json!({ "initContainers": [{ "name": "first", "image": reference }] });
    wait_for("Gatekeeper to take the mutations", Duration::from_secs(30), || {
        let pod = admitted(&namespace.try_create(pod(&reference, init.clone()))?);
        for list in ["containers", "initContainers"] {
            let image = &pod["spec"][list][0]["image"];
            ensure!(*image == json!(pinned), "{list} has {image} instead of {pinned}");
        }
        Ok(())
    })?;
    // A tag that is not there cannot become anything.
    let nowhere = reference.replace("pinned", "nowhere");
    let said = namespace.try_create(pod(&nowhere, json!({})))?;
    assert_ne!(said.code, Some(0), "{said}");
    assert!(said.stderr.contains("mutation.gatekeeper.sh"), "{said}");
    Ok(())
}

#[test]
fn gatekeepers_audit_finds_what_is_already_there() -> Result<()> {
    let _turn = Verifier::get().turn.read().unwrap_or_else(PoisonError::into_inner);
    // The template is taken; and this namespace has no label by which pods would be refused.
    drop(Front::Gatekeeper.namespace()?);
    let namespace = Namespace::new("audited")?;
    let [here, ..] = architectures();
    let (signed, unsigned) = (image(true, &[here]), image(true, &[]));
    for (name, image) in [("good", &signed), ("bad", &unsigned)] {
        let mut pod = pod(image, json!({}));
        pod["metadata"]["name"] = json!(name);
        namespace.apply(pod)?;
    }
    let all = rendered(&["--action", "dryrun"]);
    let items = all["items"].as_array().context("a list")?;
    let kind = "PortolanVerifiedImages";
    let mut constraint = items.iter().find(|one| one["kind"] == kind).context(kind)?.clone();
    constraint["metadata"]["name"] = json!(namespace.name());
    constraint["spec"]["match"]["namespaces"] = json!([namespace.name()]);
    Testbed::get().apply(&constraint)?;
    let found = wait_for("a round of the audit", Duration::from_secs(60), || {
        let constraint = Testbed::get().kubectl_json(&["get", kind, namespace.name()])?;
        let found = constraint["status"]["violations"].as_array().cloned();
        found.filter(|all| !all.is_empty()).with_context(|| constraint["status"].to_string())
    });
    Testbed::get().kubectl(&["delete", kind, namespace.name()])?;
    let found = found?;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (&found[0]["name"], &found[0]["enforcementAction"]),
        (&json!("bad"), &json!("dryrun"))
    );
    let why = found[0]["message"].as_str().unwrap_or_default();
    assert!(why.contains(&child(here)), "{why}");
    Ok(())
}

/// The template in OPA and in regorus, over the table of pods that the function over pods is held
/// to: every pod is refused for the same images and platforms, in the same words.
#[test]
fn gatekeeper_says_of_every_pod_what_template_test_says() -> Result<()> {
    let verifier = Verifier::get();
    let _turn = verifier.turn.read().unwrap_or_else(PoisonError::into_inner);
    let namespace = Front::Gatekeeper.namespace()?;
    let pods = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pods.json");
    let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(pods)?)?;
    // Nothing of it is signed, so everything that is asked is refused, and said.
    let unsigned = image(false, &[]);
    let mut items = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let mut pod = pod(&unsigned, row["spec"].clone());
        pod["metadata"] = json!({ "name": format!("pod-{n}"), "namespace": namespace.name() });
        items.push(pod);
    }
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("pods.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    std::fs::write(&file, list.to_string())?;
    let constraint = dir.path().join("rendered.json");
    std::fs::write(&constraint, rendered(&[]).to_string())?;
    let tried = run(portolan()
        .args(["verify", "template", "test", "--policy", &verifier.policy(), "-o", "json"])
        .args(["--registries", &verifier.registries()])
        .arg("-f")
        .arg(&file)
        .arg("--template")
        .arg(&constraint))?;
    let tried = portolan_e2e::json(&tried.stdout);
    let mut ours = BTreeMap::new();
    for found in tried["results"].as_array().context("results")? {
        let said = found["violations"].as_array().context("violations")?.iter();
        let said: BTreeSet<_> = said.filter_map(Value::as_str).map(str::to_owned).collect();
        ours.insert(found["object"].as_str().context("a name")?.to_owned(), said);
    }
    // All in one call; what is said comes in their order.
    let said = Testbed::get().try_create(&list)?;
    let said = one_by_one(&said.stderr);
    assert_eq!(said.len(), rows.len(), "{said:#?}");
    let mut compared = 0;
    for (n, why) in said.iter().enumerate() {
        // Some rows are no pods to an API server, which refuses them before it asks anybody.
        if why.contains("is invalid:") {
            continue;
        }
        let why = why.split("[verified-images] ").skip(1).map(|one| one.trim().to_owned());
        assert_eq!(why.collect::<BTreeSet<_>>(), ours[&format!("Pod/pod-{n}")], "{}", rows[n]);
        compared += 1;
    }
    assert!(compared * 10 > rows.len() * 8, "only {compared} of {} rows are pods", rows.len());
    Ok(())
}

/// Of a list, what kubectl says of each that is refused.
fn one_by_one(stderr: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in stderr.lines().filter(|line| !line.starts_with("Warning: ")) {
        match all.last_mut() {
            Some(last) if !line.starts_with("Error from server") => last.extend(["\n", line]),
            _ => all.push(line.to_owned()),
        }
    }
    all
}
