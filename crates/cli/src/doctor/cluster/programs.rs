//! Portolan's own programs in the cluster: all copies ready, and of this version?

use portolan_api::install::{PART_OF, VERSION_LABEL};
use serde_json::Value;

use super::super::finding::{Finding, missing, ok, wrong};
use super::{Facts, agents, each, text};

const CHECK: &str = "programs";
const OURS: &str = env!("CARGO_PKG_VERSION");

/// Deployments that an installation brought.
pub(super) fn ours(facts: &Facts) -> Vec<&Value> {
    let all = facts.deployments.items(CHECK).unwrap_or_default();
    let is_ours = |one: &&Value| one["metadata"]["labels"][PART_OF.0] == PART_OF.1;
    all.iter().filter(is_ours).collect()
}

/// What the controller that is there was told to serve: `builds`, `shims`, …
pub(super) fn served(facts: &Facts) -> Vec<String> {
    let ours = ours(facts);
    let env = ours.iter().flat_map(|one| each(one, "/spec/template/spec/containers"));
    let env = env.flat_map(|container| each(container, "/env"));
    let said = env.filter(|one| one["name"] == "PORTOLAN_SERVE");
    let words = said.flat_map(|one| text(one, "/value").split(','));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Whether the verifier is installed.
pub(super) fn has_verifier(facts: &Facts) -> bool {
    ours(facts).iter().any(|one| text(one, "/metadata/name") == "portolan-verifier")
}

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if let Err(finding) = facts.deployments.items(CHECK) {
        return vec![finding];
    }
    let ours = ours(facts);
    if ours.is_empty() && agents::ours(facts).is_some() {
        return Vec::new();
    }
    if ours.is_empty() {
        let advice = "portolan install | kubectl apply --server-side -f - (docs/install.md)";
        return vec![missing(CHECK, "Portolan is not installed in this cluster", advice)];
    }
    ours.into_iter().map(judge).collect()
}

fn judge(deployment: &Value) -> Finding {
    let (name, namespace) =
        (text(deployment, "/metadata/name"), text(deployment, "/metadata/namespace"));
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let (wanted, ready) = (number("/spec/replicas"), number("/status/readyReplicas"));
    let (version, other) = version(deployment);
    let found = format!("{namespace}/{name} {version}: {ready} of {wanted} ready");
    if wanted == 0 {
        return missing(
            CHECK,
            format!("{found}; it is scaled to 0"),
            "kubectl scale, when it is to work again",
        );
    }
    if ready == 0 || number("/status/observedGeneration") < number("/metadata/generation") {
        let because = each(deployment, "/status/conditions").find(|one| one["status"] == "False");
        let because =
            because.map(|one| format!(" ({})", text(one, "/message"))).unwrap_or_default();
        let advice = format!(
            "kubectl -n {namespace} describe pods -l app.kubernetes.io/name={name}; kubectl -n {namespace} logs deployment/{name}"
        );
        return wrong(CHECK, format!("{found}{because}"), advice);
    }
    if ready < wanted {
        let advice = format!("kubectl -n {namespace} get pods -l app.kubernetes.io/name={name}");
        return wrong(CHECK, found, advice);
    }
    other.unwrap_or_else(|| ok(CHECK, found))
}

/// Which Portolan installed a program; and what is to be said where it is another than this one.
pub(super) fn version(workload: &Value) -> (&str, Option<Finding>) {
    let version = text(workload, &format!("/metadata/labels/{}", VERSION_LABEL.replace('/', "~1")));
    let other = (!version.is_empty() && version != OURS).then(|| {
        let advice = "portolan install --upgrade with the newer of the two, or use that portolan";
        let name = text(workload, "/metadata/name");
        missing(CHECK, format!("{name} is {version}; this portolan is {OURS}"), advice)
    });
    (version, other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Asked;
    use super::*;
    use crate::doctor::finding::State;

    fn deployment(name: &str, ready: u64, version: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "portolan-system", "generation": 1, "labels": {
                "app.kubernetes.io/part-of": "portolan", "app.kubernetes.io/version": version,
            }},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"env": [{"name": "PORTOLAN_SERVE", "value": "builds,shims"}]},
            ]}}},
            "status": {"readyReplicas": ready, "observedGeneration": 1, "conditions": [
                {"type": "Available", "status": if ready == 0 { "False" } else { "True" }, "message": "no pod"},
            ]},
        })
    }

    fn of(deployment: Value) -> Finding {
        let deployments = Asked::Is(vec![deployment, json!({"metadata": {"name": "other"}})]);
        let facts = Facts { deployments, ..super::super::facts() };
        let mut found = check(&facts);
        assert_eq!(found.len(), 1, "only ours: {found:?}");
        found.remove(0)
    }

    #[test]
    fn copies_that_are_not_ready_are_told_with_the_clusters_words() {
        assert_eq!(of(deployment("portolan-controller", 2, OURS)).state, State::Ok);
        assert_eq!(of(deployment("portolan-controller", 1, OURS)).state, State::Wrong);
        let none = of(deployment("portolan-controller", 0, OURS));
        assert!(none.state == State::Wrong && none.found.contains("no pod"), "{none:?}");
        assert_eq!(of(deployment("portolan-controller", 2, "0.0.1")).state, State::Missing);
        let mut asleep = deployment("portolan-controller", 0, OURS);
        asleep["spec"]["replicas"] = json!(0);
        assert_eq!(of(asleep).state, State::Missing);
    }

    #[test]
    fn a_cluster_without_ours_is_told_how_to_get_it() {
        let found = check(&super::super::facts());
        assert_eq!(found[0].state, State::Missing);
        assert!(found[0].advice.as_deref().unwrap().contains("portolan install"));
    }

    #[test]
    fn what_is_served_is_what_the_controller_was_told() {
        let deployments = Asked::Is(vec![deployment("portolan-controller", 2, OURS)]);
        let facts = Facts { deployments, ..super::super::facts() };
        assert_eq!(served(&facts), ["builds", "shims"]);
        assert!(!has_verifier(&facts));
    }
}
