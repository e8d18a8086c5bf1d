//! Agents on nodes: all there, heard of lately, with room, and allowed what they need and no more?

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use portolan_agent::report::{DEGRADED, PRESSURE};
use portolan_api::install::PART_OF;
use serde_json::Value;

use super::super::finding::{Finding, ok, unknown, wrong};
use super::{Facts, each, programs, text};

const CHECK: &str = "agents";
/// A condition is told once a minute, if nothing else is configured.
const SILENT: SignedDuration = SignedDuration::from_mins(10);
/// Who told nothing for so many times what is configured is silent.
const MISSED: i32 = 3;
/// What holds agents to their own nodes, as `deploy/agent/policy.yaml` calls it.
const POLICY: &str = "portolan-agent";
/// Names that are told of many.
const SHOWN: usize = 3;

/// Something that an agent's account must be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Need {
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) subresource: &'static str,
}

/// What was installed with other flags than these would lose what they gave it.
const AGAIN: &str = "apply it again: portolan install --upgrade with the components and flags of the first time | kubectl apply --server-side -f -";

/// As `deploy/agent/rbac.yaml` gives them; that of a taint or labels is another, and not everybody's.
pub(super) const NEEDS: [Need; 4] = [
    Need { verb: "get", group: "", resource: "nodes", subresource: "" },
    Need { verb: "patch", group: "", resource: "nodes", subresource: "status" },
    Need { verb: "list", group: "portolan.dev", resource: "releases", subresource: "" },
    Need { verb: "watch", group: "portolan.dev", resource: "releases", subresource: "" },
];

/// The DaemonSet of an installation, if it has one.
pub(super) fn ours(facts: &Facts) -> Option<&Value> {
    let all = facts.daemon_sets.items(CHECK).unwrap_or_default();
    let is_ours = |one: &&Value| {
        one["metadata"]["labels"][PART_OF.0] == PART_OF.1
            && text(one, "/metadata/name") == "portolan-agent"
    };
    all.iter().find(is_ours)
}

/// Nothing where there are none: who wants them knows.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if let Err(finding) = facts.daemon_sets.items(CHECK) {
        return vec![finding];
    }
    let Some(set) = ours(facts) else { return Vec::new() };
    let mut findings = vec![pods(set)];
    match facts.nodes.items(CHECK) {
        Ok(nodes) => {
            findings.extend(conditions(nodes, facts.now, silent_after(facts.agent_interval)))
        }
        Err(finding) => findings.push(finding),
    }
    findings.extend(rights(facts));
    findings.extend(held(facts));
    findings
}

fn pods(set: &Value) -> Finding {
    let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let (wanted, ready) = (number("/status/desiredNumberScheduled"), number("/status/numberReady"));
    let namespace = text(set, "/metadata/namespace");
    let (version, other) = programs::version(set);
    let found = format!("{namespace}/portolan-agent {version}: {ready} of {wanted} nodes ready");
    let behind = number("/status/observedGeneration") < number("/metadata/generation");
    if ready < wanted || behind {
        let advice = format!(
            "kubectl -n {namespace} get pods -l app.kubernetes.io/name=portolan-agent -o wide; kubectl -n {namespace} logs -l app.kubernetes.io/name=portolan-agent"
        );
        return wrong(CHECK, found, advice);
    }
    if wanted == 0 {
        let advice = "look at nodeSelector and affinity of the DaemonSet, and at taints of nodes";
        return wrong(CHECK, format!("{found}; no node fits"), advice);
    }
    other.unwrap_or_else(|| ok(CHECK, found))
}

/// How long an agent that tells its node so often may say nothing.
fn silent_after(interval: Option<Duration>) -> SignedDuration {
    let interval = interval.and_then(|interval| SignedDuration::try_from(interval).ok());
    let missed = interval.and_then(|interval| interval.checked_mul(MISSED));
    missed.map_or(SILENT, |missed| missed.max(SILENT))
}

/// What agents say of their nodes.
fn conditions(nodes: &[Value], now: Timestamp, silent_after: SignedDuration) -> Vec<Finding> {
    let of = |node: &Value, kind: &str| {
        each(node, "/status/conditions").find(|one| one["type"] == kind).cloned()
    };
    let (mut degraded, mut full, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    for node in nodes {
        let name = text(node, "/metadata/name").to_owned();
        let Some(told) = of(node, DEGRADED) else { continue };
        let heard: Option<Timestamp> = text(&told, "/lastHeartbeatTime").parse().ok();
        if heard.is_none_or(|heard| now.duration_since(heard) > silent_after) {
            silent.push(name);
            continue;
        }
        if of(node, PRESSURE).is_some_and(|one| one["status"] == "True") {
            full.push(name);
        } else if told["status"] == "True" {
            degraded.push(format!("{name} ({})", text(&told, "/message")));
        }
    }
    let mut findings = Vec::new();
    let mut tell = |names: &[String], what: &str, advice: &str| {
        if let Some(found) = some(names) {
            findings.push(wrong(CHECK, format!("{found} {what}"), advice));
        }
    };
    tell(
        &full,
        "have no room for images",
        "free some where the agents keep them, lower [cache] target_percent, or give them a disk of their own",
    );
    tell(&degraded, "cannot start anything new", "docs/agent.md, \"When it is degraded\"");
    tell(
        &silent,
        "were told of by an agent that is silent by now",
        "look at its pod, or at the host's service; of a node without one, kubectl delete node, or leave it",
    );
    findings
}

/// `a, b, c and 5 more`
fn some(names: &[String]) -> Option<String> {
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        n if n > SHOWN => Some(format!("{shown} and {} more", n - SHOWN)),
        _ => Some(shown),
    }
}

fn rights(facts: &Facts) -> Option<Finding> {
    let name = |need: &Need| match need.subresource {
        "" => format!("{} {}", need.verb, need.resource),
        sub => format!("{} {}/{sub}", need.verb, need.resource),
    };
    let may_not: Vec<_> =
        facts.agent_rights.iter().filter(|(_, may)| *may == Some(false)).collect();
    if !may_not.is_empty() {
        let names: Vec<_> = may_not.iter().map(|(need, _)| name(need)).collect();
        let found = format!("agents may not {}", names.join(", "));
        return Some(wrong(CHECK, found, AGAIN));
    }
    facts.agent_rights.iter().any(|(_, may)| may.is_none()).then(|| {
        let advice = "ask with the right to create subjectaccessreviews";
        unknown(CHECK, "the cluster does not say what agents may do", advice)
    })
}

/// Whether agents are held to their own nodes: a policy that refuses, also when it cannot be asked, and is in force.
fn held(facts: &Facts) -> Option<Finding> {
    let (policies, bindings) = match (facts.policies.items(CHECK), facts.bindings.items(CHECK)) {
        (Ok(policies), Ok(bindings)) => (policies, bindings),
        (Err(finding), _) | (_, Err(finding)) => return Some(finding),
    };
    let policy = policies.iter().find(|one| text(one, "/metadata/name") == POLICY);
    let mut bound =
        bindings.iter().filter(|one| text(one, "/spec/policyName") == POLICY).peekable();
    let denies =
        |binding: &Value| each(binding, "/spec/validationActions").any(|one| one == "Deny");
    let why = match policy {
        None => "no admission policy",
        Some(_) if bound.peek().is_none() => "no binding of the admission policy",
        Some(policy) if text(policy, "/spec/failurePolicy") != "Fail" => {
            "failurePolicy is not Fail in the admission policy"
        }
        Some(_) if !bound.any(denies) => "no Deny in a binding of the admission policy",
        Some(_) => return None,
    };
    Some(wrong(CHECK, format!("nothing holds agents to their own nodes: {why} {POLICY}"), AGAIN))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Asked;
    use super::*;
    use crate::doctor::finding::State;

    fn set(wanted: u64, ready: u64) -> Value {
        json!({
            "metadata": {"name": "portolan-agent", "namespace": "portolan-nodes", "generation": 1, "labels": {
                "app.kubernetes.io/part-of": "portolan",
                "app.kubernetes.io/version": env!("CARGO_PKG_VERSION"),
            }},
            "status": {"desiredNumberScheduled": wanted, "numberReady": ready, "observedGeneration": 1},
        })
    }

    fn node(name: &str, degraded: &str, pressure: &str, heard: &str) -> Value {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "message": "no room", "lastHeartbeatTime": heard});
        json!({"metadata": {"name": name}, "status": {"conditions": [
            {"type": "Ready", "status": "True"}, condition(DEGRADED, degraded), condition(PRESSURE, pressure),
        ]}})
    }

    fn facts(set: Value) -> Facts {
        Facts {
            daemon_sets: Asked::Is(vec![set, json!({"metadata": {"name": "other"}})]),
            policies: Asked::Is(vec![shipped("ValidatingAdmissionPolicy")]),
            bindings: Asked::Is(vec![shipped("ValidatingAdmissionPolicyBinding")]),
            agent_rights: NEEDS.iter().map(|need| (*need, Some(true))).collect(),
            ..super::super::facts()
        }
    }

    /// As it is installed.
    fn shipped(kind: &str) -> Value {
        let text = include_str!("../../../../../deploy/agent/policy.yaml");
        let mut all = serde_yaml_ng::Deserializer::from_str(text)
            .map(|one| -> Value { serde::Deserialize::deserialize(one).unwrap() });
        all.find(|one| one["kind"] == kind).unwrap()
    }

    fn states(facts: &Facts) -> Vec<State> {
        check(facts).iter().map(|one| one.state).collect()
    }

    #[test]
    fn a_cluster_without_agents_is_told_nothing_of_them() {
        assert_eq!(check(&super::super::facts()), []);
    }

    #[test]
    fn agents_that_are_not_ready_or_for_no_node_are_wrong() {
        assert_eq!(states(&facts(set(3, 3))), [State::Ok]);
        assert_eq!(states(&facts(set(3, 2))), [State::Wrong]);
        assert_eq!(states(&facts(set(0, 0))), [State::Wrong]);
    }

    #[test]
    fn nodes_without_room_and_agents_that_are_silent_are_told_by_name() {
        let now = "1970-01-01T00:00:00Z";
        let nodes = vec![
            node("well", "False", "False", now),
            node("full", "True", "True", now),
            node("stuck", "True", "False", now),
            node("silent", "False", "False", "1969-12-31T00:00:00Z"),
            json!({"metadata": {"name": "never"}, "status": {"conditions": []}}),
        ];
        let found = check(&Facts { nodes: Asked::Is(nodes), ..facts(set(5, 5)) });
        let told: Vec<_> = found.iter().skip(1).map(|one| one.found.as_str()).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].starts_with("full ") && told[1].starts_with("stuck (no room)"), "{told:?}");
        assert!(told[2].starts_with("silent "), "{told:?}");
        assert_eq!(some(&["a", "b", "c", "d"].map(str::to_owned)).unwrap(), "a, b, c and 1 more");
    }

    #[test]
    fn rights_that_are_missing_are_wrong_and_unknown_ones_are_unknown() {
        let mut without = facts(set(1, 1));
        without.agent_rights[1].1 = Some(false);
        let found = check(&without);
        assert!(found[1].found.contains("patch nodes/status"), "{found:?}");
        let again = |finding: &Finding| {
            let advice = finding.advice.as_deref().unwrap();
            // One component alone, or without --upgrade, would put settings back.
            advice.contains("--upgrade") && !advice.contains("--components agent")
        };
        assert!(again(&found[1]), "{found:?}");
        without.agent_rights[1].1 = None;
        assert_eq!(states(&without), [State::Ok, State::Unknown]);
    }

    #[test]
    fn a_policy_that_is_not_there_not_bound_or_lets_everything_pass_is_wrong() {
        let (policy, binding) = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding");
        let asked = |kind: &str, change: fn(&mut Value)| {
            let mut object = shipped(kind);
            change(&mut object);
            Asked::Is(vec![object])
        };
        let fine = || facts(set(1, 1));
        assert_eq!(states(&fine()), [State::Ok]);
        let ignored = asked(policy, |one| one["spec"]["failurePolicy"] = json!("Ignore"));
        let warned =
            asked(binding, |one| one["spec"]["validationActions"] = json!(["Warn", "Audit"]));
        let other = asked(binding, |one| one["spec"]["policyName"] = json!("other"));
        for (loose, word) in [
            (Facts { policies: Asked::Is(vec![]), ..fine() }, "no admission policy"),
            (Facts { bindings: Asked::Is(vec![]), ..fine() }, "no binding"),
            (Facts { bindings: other, ..fine() }, "no binding"),
            (Facts { policies: ignored, ..fine() }, "failurePolicy"),
            (Facts { bindings: warned, ..fine() }, "Deny"),
        ] {
            let found = check(&loose);
            assert_eq!(states(&loose), [State::Ok, State::Wrong], "{word}");
            assert!(found[1].found.contains(word), "{found:?}");
            assert!(found[1].advice.as_deref().is_some_and(|advice| advice == AGAIN));
        }
    }

    #[test]
    fn an_agent_is_silent_by_what_it_is_configured_to_tell() {
        assert_eq!(silent_after(None), SILENT);
        assert_eq!(silent_after(Some(Duration::from_secs(60))), SILENT);
        let week = Duration::from_secs(7 * 24 * 3600);
        assert_eq!(silent_after(Some(week)), SignedDuration::from_hours(3 * 7 * 24));
        assert_eq!(silent_after(Some(Duration::MAX)), SILENT, "it cannot be configured");
        let nodes = vec![node("slow", "False", "False", "1969-12-30T00:00:00Z")];
        let told = |agent_interval| {
            let nodes = Asked::Is(nodes.clone());
            states(&Facts { nodes, agent_interval, ..facts(set(1, 1)) })
        };
        assert_eq!(told(None), [State::Ok, State::Wrong]);
        assert_eq!(told(Some(week)), [State::Ok]);
    }

    #[test]
    fn agents_are_asked_about_every_right_that_they_are_given() {
        let given = include_str!("../../../../../deploy/agent/rbac.yaml");
        let mut roles = serde_yaml_ng::Deserializer::from_str(given)
            .map(|one| -> Value { serde::Deserialize::deserialize(one).unwrap() });
        let role = roles.find(|one| one["kind"] == "ClusterRole").unwrap();
        let mut rights: Vec<[String; 3]> = Vec::new();
        for rule in each(&role, "/rules") {
            for (group, resource) in each(rule, "/apiGroups")
                .flat_map(|group| each(rule, "/resources").map(move |one| (group, one)))
            {
                let of = |verb| [group, resource, verb].map(|one| text(one, "").to_owned());
                rights.extend(each(rule, "/verbs").map(of));
            }
        }
        let asked = NEEDS.map(|need| {
            let resource = format!("{}/{}", need.resource, need.subresource);
            [need.group, resource.trim_end_matches('/'), need.verb].map(str::to_owned)
        });
        assert_eq!(rights, asked);
    }
}
