//! What Portolan stands on, and who does the same work already.

use serde_json::Value;

use super::super::finding::{Finding, missing, ok, wrong};
use super::{Facts, each, programs, text};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let served = programs::served(facts);
    let serves = |word: &str| served.iter().any(|one| one == word);
    let mut findings = vec![tekton(facts, serves("builds")), gatekeeper(facts)];
    let deployments = facts.deployments.items("others").unwrap_or_default();
    let rivals: [(fn(&Value) -> bool, &str, &str, &str); 2] = [
        (
            is_shipwright,
            "Shipwright's own build controller",
            "builds",
            "docs/controller.md, \"From upstream's controller\"",
        ),
        (
            is_class_manager,
            "runtime-class-manager",
            "shims",
            "docs/migrating-from-runtime-class-manager.md",
        ),
    ];
    for (is_theirs, what, word, guide) in rivals {
        let running = deployments.iter().find(|one| one["spec"]["replicas"] != 0 && is_theirs(one));
        let Some(running) = running else { continue };
        let place =
            format!("{}/{}", text(running, "/metadata/namespace"), text(running, "/metadata/name"));
        let found = format!("{what} runs: {place}");
        findings.push(match serves(word) {
            true => wrong("others", format!("{found}, and ours waits for it to end"), guide),
            false => missing("others", found, format!("leave {word} to it, or see {guide}")),
        });
    }
    findings
}

fn tekton(facts: &Facts, needed: bool) -> Finding {
    const CHECK: &str = "tekton";
    let found = "Tekton Pipelines are not installed";
    match (facts.tasks.is_known(), needed) {
        (true, _) => ok(CHECK, "TaskRuns are known"),
        (false, true) => wrong(
            CHECK,
            format!("{found}, and builds need them"),
            "install Tekton Pipelines, 1.15 or newer",
        ),
        (false, false) => missing(CHECK, found, "install them where builds are wanted"),
    }
}

fn gatekeeper(facts: &Facts) -> Finding {
    const CHECK: &str = "gatekeeper";
    let webhooks = facts.webhooks.items(CHECK).unwrap_or_default();
    let own = webhooks.iter().any(|one| text(one, "/metadata/name") == "portolan-verifier");
    match (facts.providers.is_known(), own, programs::has_verifier(facts)) {
        (true, ..) => ok(CHECK, "Providers are known"),
        (false, true, _) => {
            ok(CHECK, "it is not installed; the API server asks the verifier itself")
        }
        (false, false, true) => wrong(
            CHECK,
            "it is not installed, so nobody asks the verifier",
            "install Gatekeeper (docs/gatekeeper.md), or portolan install --gate webhook",
        ),
        (false, false, false) => {
            missing(CHECK, "it is not installed", "install it where images are to be verified")
        }
    }
}

fn is_shipwright(deployment: &Value) -> bool {
    text(deployment, "/metadata/name") == "shipwright-build-controller"
}

/// Its Deployment is called as its release is, so by its label or its image.
fn is_class_manager(deployment: &Value) -> bool {
    const NAME: &str = "runtime-class-manager";
    deployment["metadata"]["labels"]["app.kubernetes.io/name"] == NAME
        || each(deployment, "/spec/template/spec/containers")
            .any(|one| text(one, "/image").contains(NAME))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Asked;
    use super::*;
    use crate::doctor::finding::State;

    fn ours() -> Value {
        json!({
            "metadata": {"name": "portolan-verifier", "labels": {"app.kubernetes.io/part-of": "portolan"}},
            "spec": {"template": {"spec": {"containers": [
                {"env": [{"name": "PORTOLAN_SERVE", "value": "builds,shims"}]},
            ]}}},
        })
    }

    #[test]
    fn parts_are_wrong_to_be_without_only_where_something_needs_them() {
        let bare = check(&super::super::facts());
        assert!(bare.iter().all(|one| one.state == State::Missing), "{bare:?}");
        let facts = Facts { deployments: Asked::Is(vec![ours()]), ..super::super::facts() };
        let needed = check(&facts);
        assert!(needed.iter().all(|one| one.state == State::Wrong), "{needed:?}");
        let there = Facts { tasks: Asked::Is(vec![]), providers: Asked::Is(vec![]), ..facts };
        assert!(check(&there).iter().all(|one| one.state == State::Ok));
    }

    #[test]
    fn who_does_the_same_work_is_found_by_name_label_or_image_while_it_runs() {
        let upstream = |replicas: u32| {
            json!({
                "metadata": {"name": "shipwright-build-controller", "namespace": "shipwright-build"},
                "spec": {"replicas": replicas},
            })
        };
        let manager = json!({
            "metadata": {"name": "rcm", "namespace": "x"},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": "ghcr.io/x/runtime-class-manager:1"}]}}},
        });
        let found = |all: Vec<Value>| {
            let facts = Facts { deployments: Asked::Is(all), ..super::super::facts() };
            check(&facts)
                .into_iter()
                .filter(|one| one.check == "others")
                .map(|one| one.state)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(vec![upstream(0)]), []);
        assert_eq!(found(vec![upstream(1)]), [State::Missing]);
        assert_eq!(found(vec![upstream(1), manager, ours()]), [State::Wrong, State::Wrong]);
    }
}
