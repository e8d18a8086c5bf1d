//! Whether a run belongs to its Build, so that it is deleted with it. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use portolan_api::build::Build;
use serde_json::{Value, json};

/// The owners that a run should have.
pub fn owned(run: &ObjectMeta, build: &Build) -> Option<Vec<OwnerReference>> {
    let wanted = build.spec.retention.as_ref().and_then(|retention| retention.at_build_deletion);
    let uid = build.metadata.uid.clone()?;
    let mut owners: Vec<OwnerReference> = run.owner_references.clone().unwrap_or_default();
    let is_there = owners.iter().any(|owner| owner.uid == uid);
    match (wanted == Some(true), is_there) {
        (true, false) => {
            // An object has one controller; where somebody else is that already, we only own it.
            let controlled = owners.iter().any(|owner| owner.controller == Some(true));
            owners.push(OwnerReference {
                api_version: "shipwright.io/v1beta1".to_owned(),
                kind: "Build".to_owned(),
                name: build.metadata.name.clone().unwrap_or_default(),
                uid,
                controller: Some(!controlled),
                block_owner_deletion: Some(true),
            });
        }
        (false, true) => owners.retain(|owner| owner.uid != uid),
        (true, true) | (false, false) => {}
    }
    Some(owners)
}

/// What is written so that a run has these owners; nothing where it has them.
pub fn patch(run: &ObjectMeta, owners: Option<&[OwnerReference]>) -> Option<Value> {
    let owners = owners?;
    let same = run.owner_references.as_deref().unwrap_or_default() == owners;
    (!same).then(|| {
        json!({ "metadata": { "resourceVersion": run.resource_version, "ownerReferences": owners } })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(at_build_deletion: Option<bool>) -> Build {
        serde_json::from_value(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "Build",
            "metadata": {"name": "app", "uid": "u1"},
            "spec": {
                "strategy": {"name": "s"}, "output": {"image": "a"},
                "retention": {"atBuildDeletion": at_build_deletion},
            },
        }))
        .unwrap()
    }

    #[test]
    fn runs_go_with_their_build_only_where_it_says_so() {
        let bare = ObjectMeta::default();
        let owners = owned(&bare, &build(Some(true))).unwrap();
        assert_eq!((owners[0].kind.as_str(), owners[0].controller), ("Build", Some(true)));
        let kept = ObjectMeta { owner_references: Some(owners.clone()), ..bare.clone() };
        assert_eq!(patch(&kept, owned(&kept, &build(Some(true))).as_deref()), None);
        for off in [Some(false), None] {
            assert_eq!(owned(&kept, &build(off)), Some(vec![]));
            assert_eq!(patch(&bare, owned(&bare, &build(off)).as_deref()), None);
        }
        let mut other = owners[0].clone();
        other.uid = "somebody".to_owned();
        let shared = ObjectMeta { owner_references: Some(vec![other]), ..bare };
        let owners = owned(&shared, &build(Some(true))).unwrap();
        assert_eq!(owners.len(), 2);
        assert_eq!(owners[1].controller, Some(false), "an object has one controller");
    }
}
