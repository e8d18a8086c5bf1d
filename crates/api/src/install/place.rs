//! Everywhere an object says a namespace.

use serde_json::{Value, json};

use super::{AGENT_NAMESPACE, NAMESPACE, Options, SHIM_NAMESPACE};

/// Puts the installation's namespaces in the place of the shipped ones.
pub(super) fn place(object: &mut Value, options: &Options) {
    let moved = |value: &mut Value| {
        let to = match value.as_str() {
            Some(NAMESPACE) => &options.namespace.0,
            Some(SHIM_NAMESPACE) => &options.shim_namespace.0,
            Some(AGENT_NAMESPACE) => &options.agent.namespace.0,
            _ => return,
        };
        *value = json!(to);
    };
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    object.pointer_mut("/metadata/namespace").into_iter().for_each(moved);
    match kind.as_str() {
        "Namespace" => object.pointer_mut("/metadata/name").into_iter().for_each(moved),
        "ClusterRoleBinding" | "RoleBinding" => {
            let subjects = each(object, "/subjects");
            subjects.filter_map(|one| one.pointer_mut("/namespace")).for_each(moved);
        }
        "ValidatingWebhookConfiguration" => {
            for webhook in each(object, "/webhooks") {
                let service = webhook.pointer_mut("/clientConfig/service/namespace");
                service.into_iter().for_each(moved);
                let terms = each(webhook, "/namespaceSelector/matchExpressions");
                terms.flat_map(|one| each(one, "/values")).for_each(moved);
            }
        }
        "ValidatingAdmissionPolicy" => {
            for condition in each(object, "/spec/matchConditions") {
                // The account that it is about, within a text.
                let expression = &mut condition["expression"];
                let text = expression.as_str().unwrap_or_default();
                let account = |namespace: &str| format!("system:serviceaccount:{namespace}:");
                let moved =
                    text.replace(&account(AGENT_NAMESPACE), &account(&options.agent.namespace.0));
                *expression = json!(moved);
            }
        }
        "PortolanVerifiedImages" | "Assign" => {
            each(object, "/spec/match/excludedNamespaces").for_each(moved);
        }
        "Provider" => {
            let url = &mut object["spec"]["url"];
            *url = json!(moved_url(url.as_str().unwrap_or_default(), &options.namespace.0));
        }
        _ => {}
    }
}

/// The items of a list in an object; none where there is no such list. Nothing is made by looking.
pub(super) fn each<'a>(
    object: &'a mut Value,
    pointer: &'static str,
) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

/// `https://SERVICE.NAMESPACE:PORT/…` with another namespace.
fn moved_url(url: &str, namespace: &str) -> String {
    let Some((service, rest)) = url.split_once(&format!(".{NAMESPACE}:")) else {
        return url.to_owned();
    };
    format!("{service}.{namespace}:{rest}")
}
