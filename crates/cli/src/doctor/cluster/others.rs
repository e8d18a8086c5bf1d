//! What Portolan stands on, and who does the same work already.

use portolan_api::k8s_openapi::api::apps::v1::Deployment;
use portolan_api::upstream::{is_class_manager, is_shipwright, runs};

use super::super::finding::{Finding, missing, ok, wrong};
use super::{Asked, Facts, programs, text};

/// Who does the same work: how it is known, what it is called, what it serves, and what to read.
type Rival = (fn(&Deployment) -> bool, &'static str, &'static str, &'static str);

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let served = programs::served(facts);
    let serves = |word: &str| served.iter().any(|one| one == word);
    let mut findings = vec![tekton(facts, serves("builds")), gatekeeper(facts)];
    // Where they may not be listed, `programs` says so.
    let deployments = facts.deployments.items("others").unwrap_or_default().iter();
    let deployments: Vec<Deployment> =
        deployments.filter_map(|one| serde_json::from_value(one.clone()).ok()).collect();
    let rivals: [Rival; 2] = [
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
        let running = deployments.iter().find(|one| is_theirs(one) && runs(one));
        let Some(running) = running.map(|one| &one.metadata) else { continue };
        let [namespace, name] =
            [&running.namespace, &running.name].map(|one| one.as_deref().unwrap_or_default());
        let found = format!("{what} runs: {namespace}/{name}");
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
    match (&facts.tasks, facts.tasks.items(CHECK), needed) {
        (_, Err(finding), _) => finding,
        (Asked::NoKind, Ok(_), true) => wrong(
            CHECK,
            format!("{found}, and builds need them"),
            "install Tekton Pipelines, 1.15 or newer",
        ),
        (Asked::NoKind, Ok(_), false) => {
            missing(CHECK, found, "install them where builds are wanted")
        }
        (_, Ok(_), _) => ok(CHECK, "TaskRuns are known"),
    }
}

fn gatekeeper(facts: &Facts) -> Finding {
    const CHECK: &str = "gatekeeper";
    let is_ours = |one| text(one, "/metadata/name") == "portolan-verifier";
    let own = facts.webhooks.items(CHECK).map(|all| all.iter().any(is_ours));
    match (&facts.providers, facts.providers.items(CHECK), own, programs::has_verifier(facts)) {
        (_, Err(finding), ..) => finding,
        (Asked::NoKind, Ok(_), Ok(true), _) => {
            ok(CHECK, "it is not installed; the API server asks the verifier itself")
        }
        // Whether the API server asks cannot be told, so neither can whether nobody does.
        (Asked::NoKind, Ok(_), Err(finding), true) => finding,
        (Asked::NoKind, Ok(_), Ok(false), true) => wrong(
            CHECK,
            "it is not installed, so nobody asks the verifier",
            "install Gatekeeper (docs/gatekeeper.md), or portolan install --gate webhook",
        ),
        (Asked::NoKind, Ok(_), _, false) => {
            missing(CHECK, "it is not installed", "install it where images are to be verified")
        }
        (_, Ok(_), ..) => ok(CHECK, "Providers are known"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
    fn what_may_not_be_asked_is_not_told_to_be_there() {
        let denied = || Asked::Denied("no".to_owned());
        let states = |facts: &Facts| {
            check(facts).into_iter().map(|one| (one.check, one.state)).collect::<Vec<_>>()
        };
        let facts = Facts {
            tasks: denied(),
            providers: Asked::Failed("no answer".to_owned()),
            ..super::super::facts()
        };
        let unknown = [("tekton", State::Unknown), ("gatekeeper", State::Unknown)];
        assert_eq!(states(&facts), unknown);
        // Without Gatekeeper the API server may ask the verifier by a webhook that we may not see.
        let deployments = Asked::Is(vec![ours()]);
        let facts = Facts { webhooks: denied(), deployments, ..super::super::facts() };
        assert_eq!(states(&facts)[1], ("gatekeeper", State::Unknown));
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
