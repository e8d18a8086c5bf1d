//! Everywhere an object says a namespace.

use serde_json::{Value, json};

use super::{NAMESPACE, Options, SHIM_NAMESPACE};

/// Puts the installation's namespaces in the place of the shipped ones.
pub(super) fn place(object: &mut Value, options: &Options) {
    let moved = |value: &mut Value| {
        let to = match value.as_str() {
            Some(NAMESPACE) => &options.namespace.0,
            Some(SHIM_NAMESPACE) => &options.shim_namespace.0,
            _ => return,
        };
        *value = json!(to);
    };
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if let Some(namespace) = object.pointer_mut("/metadata/namespace") {
        moved(namespace);
    }
    match kind.as_str() {
        "Namespace" => moved(&mut object["metadata"]["name"]),
        "ClusterRoleBinding" | "RoleBinding" => {
            each(&mut object["subjects"]).for_each(|subject| moved(&mut subject["namespace"]));
        }
        "ValidatingWebhookConfiguration" => {
            for webhook in each(&mut object["webhooks"]) {
                moved(&mut webhook["clientConfig"]["service"]["namespace"]);
                let selector = &mut webhook["namespaceSelector"]["matchExpressions"];
                each(selector).flat_map(|one| each(&mut one["values"])).for_each(moved);
            }
        }
        "PortolanVerifiedImages" | "Assign" => {
            each(&mut object["spec"]["match"]["excludedNamespaces"]).for_each(moved);
        }
        "Provider" => {
            let url = &mut object["spec"]["url"];
            *url = json!(moved_url(url.as_str().unwrap_or_default(), &options.namespace.0));
        }
        _ => {}
    }
}

/// The items of a list; none where it is no list.
pub(super) fn each(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_array_mut().into_iter().flatten()
}

/// `https://SERVICE.NAMESPACE:PORT/…` with another namespace.
fn moved_url(url: &str, namespace: &str) -> String {
    let Some((service, rest)) = url.split_once(&format!(".{NAMESPACE}:")) else {
        return url.to_owned();
    };
    format!("{service}.{namespace}:{rest}")
}
