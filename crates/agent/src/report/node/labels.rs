//! The labels that tell what a node is.
//!
//! They are applied by the server, under a name of our own: so it is the API server that knows which labels are ours,
//! takes away those that we no longer give, and refuses to let us have what is another's.

use std::collections::{BTreeMap, BTreeSet};

use portolan_host::facts::labels::{LEVEL, Labels, PREFIX};
use serde::Deserialize;
use serde_json::{Value, json};

/// What the API server knows us by.
pub(super) const MANAGER: &str = "portolan-agent-labels";
/// A node has a few dozen; Kubernetes bounds all labels and annotations of an object by their size alone.
const MAX_LABELS: usize = 256;

/// The labels that are published: those below NFD's prefix and our own. Files of the host may name any other
/// (`node-role.kubernetes.io/…`), which are not ours to give.
pub(super) fn ours(labels: Labels) -> BTreeMap<String, String> {
    let is_ours = |name: &str| name == LEVEL || name.starts_with(PREFIX);
    let all = labels.labels.into_iter().filter(|(name, _)| is_ours(name));
    let mut ours: BTreeMap<String, String> = all.collect();
    if ours.len() > MAX_LABELS {
        tracing::warn!(
            labels = ours.len(),
            limit = MAX_LABELS,
            "too many labels; the last are left out"
        );
        ours = ours.into_iter().take(MAX_LABELS).collect();
    }
    ours
}

/// What is applied, without those that are another's.
pub(super) fn patch(
    node: &str,
    labels: &BTreeMap<String, String>,
    taken: &BTreeSet<String>,
) -> Value {
    let labels: BTreeMap<_, _> = labels.iter().filter(|(name, _)| !taken.contains(*name)).collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": node, "labels": labels },
    })
}

/// The labels that a conflict is about: somebody else gives them another value.
pub(super) fn conflicts(refusal: &[u8]) -> BTreeSet<String> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        details: Details,
    }
    #[derive(Deserialize, Default)]
    struct Details {
        #[serde(default)]
        causes: Vec<Cause>,
    }
    #[derive(Deserialize)]
    struct Cause {
        #[serde(default)]
        field: String,
    }
    let status: Option<Status> = serde_json::from_slice(refusal).ok();
    let causes = status.into_iter().flat_map(|status| status.details.causes);
    causes.filter_map(|one| Some(one.field.strip_prefix(".metadata.labels.")?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> Labels {
        let labels = names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
        Labels { labels, refused: Vec::new() }
    }

    #[test]
    fn only_labels_of_facts_are_published_and_not_without_end() {
        let given = labels(&[
            "feature.node.kubernetes.io/cpu-cpuid.AVX2",
            "portolan.dev/cpu-level",
            "portolan.dev/image",
            "node-role.kubernetes.io/control-plane",
            "example.com/zone",
        ]);
        let names: Vec<_> = ours(given).into_keys().collect();
        assert_eq!(names, ["feature.node.kubernetes.io/cpu-cpuid.AVX2", "portolan.dev/cpu-level"]);
        let many: Vec<String> = (0..1000).map(|n| format!("{PREFIX}{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(ours(labels(&many)).len(), MAX_LABELS);
    }

    #[test]
    fn what_another_gives_is_left_to_them() {
        let refusal = json!({ "kind": "Status", "code": 409, "details": { "causes": [
            { "reason": "FieldManagerConflict", "message": "conflict with \"nfd-master\"",
              "field": ".metadata.labels.feature.node.kubernetes.io/cpu-model.family" },
            { "reason": "FieldManagerConflict", "field": ".spec.taints" },
        ]}});
        let taken = conflicts(refusal.to_string().as_bytes());
        let family = "feature.node.kubernetes.io/cpu-model.family".to_owned();
        assert_eq!(taken, BTreeSet::from([family.clone()]));
        let all = BTreeMap::from([(family, "6".to_owned()), (LEVEL.to_owned(), "v3".to_owned())]);
        let patch = patch("n", &all, &taken);
        assert_eq!(patch["metadata"], json!({ "name": "n", "labels": { LEVEL: "v3" } }));
        assert!(conflicts(b"no JSON").is_empty());
        assert!(conflicts(br#"{"details": null}"#).is_empty());
    }
}
