//! What in a Shim cannot work, or deserves a look. A cluster takes most of it, as upstream does.

pub mod pin;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use portolan_api::k8s_openapi;
use portolan_api::names::{is_dns_label, is_subdomain};
use portolan_api::shim::{MAX_NAME, RolloutKind, Shim, ShimSpec};
use serde::Serialize;

use crate::resolve::{self, Artifact, Policy, Requirement};

/// How much something matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It works, and is not what somebody means, or not safe.
    Warning,
    /// It cannot work.
    Error,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// Where.
    pub path: String,
    /// What.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}: {}", self.path, self.message)
    }
}

/// All that is found, what matters most first.
pub fn lint(shim: &Shim) -> Vec<Finding> {
    let mut found = Found(Vec::new());
    let name = shim.metadata.name.as_deref().unwrap_or_default();
    names(name, &shim.spec, &mut found);
    sources(&shim.spec, &mut found);
    rollout(&shim.spec, &mut found);
    for (key, error) in resolve::unsound_options(&shim.spec) {
        found.error(format!("spec.containerdRuntimeOptions.{key}"), error.to_string());
    }
    if let Some(error) = resolve::unsound_handler(&shim.spec) {
        found.error("spec.runtimeClass.handler", error.to_string());
    }
    found.0.sort_by_key(|one| std::cmp::Reverse(one.severity));
    found.0
}

struct Found(Vec<Finding>);

impl Found {
    fn add(&mut self, severity: Severity, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding { severity, path: path.into(), message: message.into() });
    }

    fn error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(Severity::Error, path, message);
    }

    fn warning(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(Severity::Warning, path, message);
    }
}

fn names(name: &str, spec: &ShimSpec, found: &mut Found) {
    if name.len() > MAX_NAME {
        let length = name.len();
        found.error(
            "metadata.name",
            format!(
                "has {length} characters; it becomes a label, so at most {MAX_NAME} are possible"
            ),
        );
    }
    let class = &spec.runtime_class;
    if !is_subdomain(&class.name) {
        found.error("spec.runtimeClass.name", format!("{:?} is no name of an object", class.name));
    }
    if !is_dns_label(&class.handler) {
        found.error(
            "spec.runtimeClass.handler",
            format!(
                "{:?} is no handler: lower-case letters, digits and hyphens, at most 63",
                class.handler
            ),
        );
    }
    let selector = spec.node_selector.as_ref();
    if selector.is_some_and(|selector| selector.contains_key(name)) {
        let message = format!(
            "the label {name:?} selects the nodes, so it cannot also say how they are; only runtime.spinkube.dev/{name} will"
        );
        found.warning("spec.nodeSelector", message);
    }
    if selector.is_none_or(BTreeMap::is_empty) {
        found
            .warning("spec.nodeSelector", "without it every node is meant, control plane included");
    }
}

fn sources(spec: &ShimSpec, found: &mut Found) {
    let strategy = &spec.fetch_strategy;
    if strategy.kind.is_some() {
        found.warning("spec.fetchStrategy.type", "is deprecated and ignored; leave it out");
    }
    match (&strategy.anon_http, strategy.platforms.is_empty()) {
        (None, true) => {
            found.error(
                "spec.fetchStrategy",
                "has neither platforms nor anonHttp: nothing to install",
            );
        }
        (Some(one), true) => {
            let path = "spec.fetchStrategy.anonHttp.location";
            artifact(path, &Artifact { location: one.location.clone(), sha256: None }, found);
            found.warning(
                path,
                "is the same for every processor and cannot have a digest; use platforms",
            );
        }
        (Some(_), false) => {
            found.warning("spec.fetchStrategy.anonHttp", "is not used where there are platforms");
        }
        (None, false) => {}
    }
    for (at, entry) in strategy.platforms.iter().enumerate() {
        let sha256 = entry.sha256.clone().filter(|text| !text.is_empty());
        let path = format!("spec.fetchStrategy.platforms[{at}]");
        artifact(&path, &Artifact { location: entry.location.clone(), sha256 }, found);
    }
    for (at, first) in resolve::duplicates(&strategy.platforms) {
        let platform = resolve::platform(&strategy.platforms[at]);
        let message = format!("is for {platform}, as platforms[{first}] is; no node ever gets it");
        found.error(format!("spec.fetchStrategy.platforms[{at}]"), message);
    }
}

fn artifact(path: &str, artifact: &Artifact, found: &mut Found) {
    let https = Policy { require_digest: Requirement::Warn, require_https: Requirement::Warn };
    match resolve::admit(artifact, &https) {
        Err(refusal) => found.error(path, refusal.to_string()),
        Ok(admitted) => {
            for complaint in admitted.warnings {
                found.warning(path, complaint.to_string());
            }
        }
    }
}

fn rollout(spec: &ShimSpec, found: &mut Found) {
    let strategy = &spec.rollout_strategy;
    let path = "spec.rolloutStrategy.rolling.maxUpdate";
    match (strategy.kind, strategy.rolling.as_ref().map(|rolling| &rolling.max_update)) {
        // Upstream's controller writes this into every Shim.
        (RolloutKind::Recreate, None | Some(IntOrString::Int(0))) => {}
        (RolloutKind::Recreate, Some(_)) => found.warning(path, "means nothing with type recreate"),
        (RolloutKind::Rolling, Some(IntOrString::Int(number))) if *number < 1 => {
            found.warning(path, format!("is {number}; one node at a time is meant then"));
        }
        (RolloutKind::Rolling, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shim(name: &str, spec: Value) -> Shim {
        let mut whole = json!({
            "fetchStrategy": {"platforms": [{
                "os": "linux", "arch": "amd64", "location": "https://x.example/a",
                "sha256": "1".repeat(64),
            }]},
            "nodeSelector": {"spin": "true"},
            "runtimeClass": {"name": "wasmtime-spin-v2", "handler": "spin-v2"},
            "rolloutStrategy": {"type": "recreate", "rolling": {"maxUpdate": 0}},
        });
        for (key, value) in spec.as_object().cloned().into_iter().flatten() {
            whole[key] = value;
        }
        serde_json::from_value(json!({
            "apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim",
            "metadata": {"name": name}, "spec": whole,
        }))
        .unwrap()
    }

    fn lines(name: &str, spec: Value) -> String {
        lint(&shim(name, spec)).iter().map(|found| format!("{found}\n")).collect()
    }

    #[test]
    fn a_shim_as_it_should_be_is_not_complained_about() {
        assert_eq!(lines("spin-v2", json!({})), "");
    }

    #[test]
    fn everything_that_cannot_work_or_deserves_a_look_is_found() {
        let platform = |arch: &str, location: &str, sha256: Value| json!({"os": "linux", "arch": arch, "location": location, "sha256": sha256});
        let good = "https://x.example/a";
        let two = [
            platform("amd64", good, json!("1".repeat(64))),
            platform("x86_64", good, json!("1".repeat(64))),
        ];
        for (name, spec, word) in [
            (&*"a".repeat(64), json!({}), "error: metadata.name: has 64"),
            (
                "s",
                json!({"runtimeClass": {"name": "", "handler": "a"}}),
                "error: spec.runtimeClass.name",
            ),
            (
                "s",
                json!({"runtimeClass": {"name": "a", "handler": "A.b"}}),
                "error: spec.runtimeClass.handler",
            ),
            ("s", json!({"fetchStrategy": {}}), "nothing to install"),
            (
                "s",
                json!({"fetchStrategy": {"type": "anonymousHttp", "anonHttp": {"location": good}}}),
                "warning: spec.fetchStrategy.type: is deprecated",
            ),
            (
                "s",
                json!({"fetchStrategy": {"anonHttp": {"location": "file:///a"}}}),
                "error: spec.fetchStrategy.anonHttp.location",
            ),
            (
                "s",
                json!({"fetchStrategy": {"platforms": two}}),
                "platforms[1]: is for linux/amd64, as platforms[0] is",
            ),
            (
                "s",
                json!({"fetchStrategy": {"platforms": [platform("amd64", good, json!(null))]}}),
                "has no sha256",
            ),
            (
                "s",
                json!({"fetchStrategy": {"platforms": [platform("amd64", "http://x.example/a", json!(null))]}}),
                "is plain http",
            ),
            (
                "s",
                json!({"fetchStrategy": {"platforms": [platform("amd64", good, json!("a1b2..."))]}}),
                "error: spec.fetchStrategy.platforms[0]: the sha256 \"a1b2...\"",
            ),
            (
                "spin",
                json!({"nodeSelector": {"spin": "true"}}),
                "only runtime.spinkube.dev/spin will",
            ),
            ("s", json!({"nodeSelector": {}}), "every node is meant"),
            (
                "s",
                json!({"rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 0}}}),
                "one node at a time",
            ),
            (
                "s",
                json!({"rolloutStrategy": {"type": "recreate", "rolling": {"maxUpdate": 3}}}),
                "means nothing",
            ),
            (
                "s",
                json!({"containerdRuntimeOptions": {"a": "1\nb = 2"}}),
                "error: spec.containerdRuntimeOptions.a",
            ),
            (
                "s",
                json!({"containerdRuntimeOptions": {"TypeUrl": "runtimeoptions.v1.Options"}}),
                "write text in quotes: TypeUrl=\"text\"",
            ),
            (
                "s",
                json!({"containerdRuntimeOptions": {"a.b": "true"}}),
                "error: spec.containerdRuntimeOptions.a.b",
            ),
            (
                "s",
                json!({"runtimeClass": {"name": "a", "handler": "runc"}}),
                "error: spec.runtimeClass.handler: handler \"runc\" is containerd's own",
            ),
            (
                "s",
                json!({"fetchStrategy": {"platforms": [platform("amd64", "https://me:secret@x.example/a", json!(null))]}}),
                "error: spec.fetchStrategy.platforms[0]: https://x.example/a carries",
            ),
        ] {
            let found = lines(name, spec);
            assert!(found.contains(word), "{word:?} is not in {found}");
        }
    }
}
