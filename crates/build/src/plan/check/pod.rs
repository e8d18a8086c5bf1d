//! Where pods may run.

use std::collections::BTreeMap;

use portolan_api::k8s_openapi::api::core::v1::Toleration;
use portolan_api::names::{is_label_value, is_qualified_name, is_subdomain};
use portolan_api::reason::Reason;

use super::super::refusal::Refusals;
use super::super::task::Pod;

/// All that is said of pods. `whose` is put before messages.
pub(crate) fn check(pod: &Pod, whose: &str, refusals: &mut Refusals) {
    node_selector(&pod.node_selector, whose, refusals);
    for toleration in &pod.tolerations {
        tolerate(toleration, whose, refusals);
    }
    if let Some(name) = pod.scheduler_name.as_deref().filter(|name| !is_qualified_name(name)) {
        refusals.add(
            Reason::SchedulerNameNotValid,
            format!("{whose}scheduler name not valid: {name:?}"),
        );
    }
    if let Some(name) = pod.runtime_class_name.as_deref().filter(|name| !is_subdomain(name)) {
        refusals.add(
            Reason::RuntimeClassNameNotValid,
            format!("{whose}runtime class name not valid: {name:?}"),
        );
    }
}

fn node_selector(selector: &BTreeMap<String, String>, whose: &str, refusals: &mut Refusals) {
    for (key, value) in selector {
        if !is_qualified_name(key) {
            refusals.add(
                Reason::NodeSelectorNotValid,
                format!("{whose}Node selector key not valid: {key:?}"),
            );
        }
        if !is_label_value(value) {
            refusals.add(
                Reason::NodeSelectorNotValid,
                format!("{whose}Node selector value not valid: {value:?} of {key:?}"),
            );
        }
    }
}

/// Builds end by themselves, so only what keeps pods off a node can be tolerated.
fn tolerate(toleration: &Toleration, whose: &str, refusals: &mut Refusals) {
    let mut wrong = |what: String| {
        refusals.add(Reason::TolerationNotValid, format!("{whose}Toleration not valid: {what}"));
    };
    let key = toleration.key.as_deref().unwrap_or_default();
    if !is_qualified_name(key) {
        wrong(format!("key {key:?} is no qualified name"));
    }
    match toleration.operator.as_deref() {
        Some("Exists" | "Equal") => {}
        other => wrong(format!(
            "operator {:?} of {key:?} must be Exists or Equal",
            other.unwrap_or_default()
        )),
    }
    if let Some(value) = toleration.value.as_deref().filter(|value| !is_label_value(value)) {
        wrong(format!("value {value:?} of {key:?} is no label value"));
    }
    if let Some(effect) = toleration.effect.as_deref().filter(|e| !["", "NoSchedule"].contains(e)) {
        wrong(format!("effect {effect:?} of {key:?} must be NoSchedule"));
    }
    if toleration.toleration_seconds.is_some() {
        wrong(format!("{key:?} has tolerationSeconds, which builds cannot use"));
    }
}
