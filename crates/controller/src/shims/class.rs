//! The RuntimeClass of a Shim. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::node::v1::RuntimeClass;
use portolan_api::shim::{GROUP, SCHEDULE_ON, SELECTED, Shim, node_key, state};
use serde_json::{Value, json};

use crate::patch;

/// What is to be done with it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClassStep {
    /// It is as it should be.
    Ready,
    Create(Box<RuntimeClass>),
    /// A merge patch for this version.
    Patch(Value),
    /// Its handler cannot be changed, so it is made anew; also where a Shim has another class now.
    Delete(Box<RuntimeClass>),
    /// Somebody else's.
    Foreign(String),
}

/// Looks at the RuntimeClasses that there are.
pub(crate) fn step(shim: &Shim, all: &BTreeMap<String, RuntimeClass>) -> ClassStep {
    let uid = shim.metadata.uid.as_deref().unwrap_or_default();
    let deleting = shim.metadata.deletion_timestamp.is_some();
    let wanted = &shim.spec.runtime_class.name;
    let mut own = all.values().filter(|class| is_owned(class, uid));
    let old = own.find(|class| deleting || class.metadata.name.as_ref() != Some(wanted));
    if let Some(old) = old {
        return match old.metadata.deletion_timestamp {
            None => ClassStep::Delete(Box::new(old.clone())),
            Some(_) => ClassStep::Ready,
        };
    }
    if deleting {
        return ClassStep::Ready;
    }
    let Some(found) = all.get(wanted) else {
        return ClassStep::Create(Box::new(render(shim)));
    };
    if !is_owned(found, uid) {
        return ClassStep::Foreign(format!(
            "RuntimeClass {wanted} belongs to {}; delete it or name another",
            owner(found)
        ));
    }
    let new = render(shim);
    if found.handler != new.handler {
        return ClassStep::Delete(Box::new(found.clone()));
    }
    let part = |class: &RuntimeClass| {
        let selector = class.scheduling.as_ref().and_then(|one| one.node_selector.clone());
        json!({ "scheduling": { "nodeSelector": selector.unwrap_or_default() } })
    };
    match patch::difference(&part(found), &part(&new)) {
        None => ClassStep::Ready,
        Some(mut patch) => {
            patch["metadata"] = json!({"resourceVersion": found.metadata.resource_version});
            ClassStep::Patch(patch)
        }
    }
}

/// Whether any class still belongs to the Shim.
pub(crate) fn is_left(shim: &Shim, all: &BTreeMap<String, RuntimeClass>) -> bool {
    let uid = shim.metadata.uid.as_deref().unwrap_or_default();
    all.values().any(|class| is_owned(class, uid))
}

fn is_owned(class: &RuntimeClass, uid: &str) -> bool {
    class.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

fn owner(class: &RuntimeClass) -> String {
    let owner = class.metadata.owner_references.iter().flatten().next();
    owner.map_or_else(|| "nobody".to_owned(), |owner| format!("{} {}", owner.kind, owner.name))
}

/// Pods go where the Shim is installed and not only where it is meant to be, unless the Shim says otherwise.
fn render(shim: &Shim) -> RuntimeClass {
    let name = shim.metadata.name.clone().unwrap_or_default();
    let mut selector = shim.spec.node_selector.clone().unwrap_or_default();
    let annotations = shim.metadata.annotations.as_ref();
    let everywhere = annotations.and_then(|all| all.get(SCHEDULE_ON)).map(String::as_str);
    if everywhere != Some(SELECTED) {
        selector.insert(node_key(&name), state::PROVISIONED.to_owned());
    }
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {
            "name": shim.spec.runtime_class.name,
            "labels": {"app.kubernetes.io/managed-by": "portolan"},
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Shim", "name": name,
                "uid": shim.metadata.uid.clone().unwrap_or_default(), "controller": true,
            }],
        },
        "handler": shim.spec.runtime_class.handler,
        "scheduling": {"nodeSelector": selector},
    });
    serde_json::from_value(class).expect("as the type has it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shim(uid: &str, class: &str, handler: &str) -> Shim {
        serde_json::from_value(json!({
            "apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim",
            "metadata": {"name": "spin-v2", "uid": uid},
            "spec": {
                "nodeSelector": {"spin": "true"}, "fetchStrategy": {},
                "runtimeClass": {"name": class, "handler": handler},
                "rolloutStrategy": {"type": "recreate"},
            },
        }))
        .unwrap()
    }

    fn there(shim: &Shim) -> BTreeMap<String, RuntimeClass> {
        let class = render(shim);
        BTreeMap::from([(class.metadata.name.clone().unwrap(), class)])
    }

    #[test]
    fn c8_pods_go_only_where_it_is_installed_unless_the_shim_says_otherwise() {
        let mut one = shim("u", "c", "h");
        let selector = |shim: &Shim| render(shim).scheduling.unwrap().node_selector.unwrap();
        assert_eq!(
            selector(&one),
            BTreeMap::from([
                ("runtime.spinkube.dev/spin-v2".to_owned(), "provisioned".to_owned()),
                ("spin".to_owned(), "true".to_owned()),
            ])
        );
        one.metadata.annotations = Some(BTreeMap::from([(SCHEDULE_ON.into(), SELECTED.into())]));
        assert_eq!(selector(&one), BTreeMap::from([("spin".to_owned(), "true".to_owned())]));
    }

    #[test]
    fn a_class_is_made_kept_current_made_anew_and_taken_away_last() {
        let mut one = shim("u", "c", "h");
        assert!(matches!(step(&one, &BTreeMap::new()), ClassStep::Create(_)));
        let all = there(&one);
        assert_eq!(step(&one, &all), ClassStep::Ready);
        assert!(
            matches!(step(&shim("u", "c", "g"), &all), ClassStep::Delete(_)),
            "another handler"
        );
        assert!(matches!(step(&shim("u", "d", "h"), &all), ClassStep::Delete(_)), "another name");
        one.spec.node_selector = Some(BTreeMap::from([("wasm".into(), "yes".into())]));
        let ClassStep::Patch(patch) = step(&one, &all) else { panic!("another selector") };
        assert_eq!(patch["scheduling"], json!({"nodeSelector": {"spin": null, "wasm": "yes"}}));
        assert!(is_left(&one, &all) && !is_left(&shim("v", "c", "h"), &all));
    }

    #[test]
    fn a_class_of_somebody_else_is_told_and_left_alone() {
        let all = there(&shim("other", "c", "h"));
        let ClassStep::Foreign(message) = step(&shim("u", "c", "h"), &all) else { panic!() };
        assert!(message.contains("belongs to Shim spin-v2"), "{message}");
        let mut nobodys = all.clone();
        nobodys.get_mut("c").unwrap().metadata.owner_references = None;
        assert!(matches!(step(&shim("u", "c", "h"), &nobodys), ClassStep::Foreign(_)));
    }
}
