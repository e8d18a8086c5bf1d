//! What is applied before what: whatever is named has to be there first.

use serde_json::Value;

/// Lower is earlier; what is equal stays in the order of the files.
pub(super) fn rank(object: &Value) -> u8 {
    let group = object["apiVersion"].as_str().unwrap_or_default();
    let group = group.split_once('/').map_or("", |(group, _)| group);
    match (group, object["kind"].as_str().unwrap_or_default()) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", _) => 1,
        // What holds an account to its own comes before what the account may.
        ("", "ServiceAccount")
        | (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding",
        ) => 2,
        ("rbac.authorization.k8s.io", "ClusterRole" | "Role") => 3,
        ("rbac.authorization.k8s.io", _) => 4,
        ("", "Secret" | "ConfigMap") => 5,
        // Before who asks, and who answers is told where the network lets it.
        ("networking.k8s.io" | "policy", _) | ("", _) => 7,
        ("apps", _) => 8,
        // What refuses comes when who answers may be there: until then it would refuse everything.
        ("constraints.gatekeeper.sh" | "mutations.gatekeeper.sh", _) => 10,
        ("admissionregistration.k8s.io", _) => 11,
        ("templates.gatekeeper.sh" | "externaldata.gatekeeper.sh", _) => 9,
        // Our own resources: strategies and platforms.
        _ => 6,
    }
}
