//! Every write of ours to objects that others made: a merge patch of what differs, and none where
//! nothing does.

use std::fmt::Debug;

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::ReconcileError;

/// Who we are in `managedFields`.
pub(crate) const MANAGER: &str = "portolan-controller";

pub(crate) fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// The API of an object's own namespace.
pub(crate) fn beside<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), namespace)
}

/// Patches a status, if there is anything to patch.
pub(crate) async fn status<K: Written>(
    api: &Api<K>,
    object: K,
    patch: Option<Value>,
) -> Result<K, ReconcileError> {
    let send = async |name: &str, patch| api.patch_status(name, &params(), &patch).await;
    sent(object, patch, "writing the status", send).await
}

/// Patches the rest of an object, if there is anything to patch.
pub(crate) async fn object<K: Written>(
    api: &Api<K>,
    object: K,
    patch: Option<Value>,
) -> Result<K, ReconcileError> {
    let send = async |name: &str, patch| api.patch(name, &params(), &patch).await;
    sent(object, patch, "writing labels, annotations and owners", send).await
}

/// What API servers are given patches of.
pub(crate) trait Written:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug
{
}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug> Written for K {}

async fn sent<K: Written>(
    object: K,
    patch: Option<Value>,
    step: &'static str,
    send: impl AsyncFnOnce(&str, Patch<Value>) -> kube::Result<K>,
) -> Result<K, ReconcileError> {
    let Some(patch) = patch else { return Ok(object) };
    let name = object.meta().name.clone().ok_or(ReconcileError::Incomplete("name"))?;
    send(&name, Patch::Merge(patch)).await.map_err(failed(step))
}

/// Whether the same again would be refused again, as by a webhook, a schema or a role. A quota has
/// room when others are done; that it was one is told by the message alone.
pub(crate) fn is_final(code: u16, message: &str) -> bool {
    match code {
        400 | 422 => true,
        403 => !["exceeded quota: ", "status unknown for quota: "]
            .iter()
            .any(|words| message.contains(words)),
        _ => false,
    }
}

/// A server that knows the kind and not the object says so; one that does not know the kind says
/// something else, and may know it later.
fn failed(step: &'static str) -> impl FnOnce(kube::Error) -> ReconcileError {
    move |error| match error {
        kube::Error::Api(told) if told.is_not_found() => ReconcileError::Gone,
        error => ReconcileError::at(step)(error),
    }
}

/// Deletes the very object that was looked at; one that is gone, or is another by now, is fine.
pub(crate) async fn delete<K: Written>(api: &Api<K>, object: &K) -> Result<(), ReconcileError> {
    let meta = object.meta();
    let name = meta.name.as_deref().ok_or(ReconcileError::Incomplete("name"))?;
    let params = DeleteParams::background()
        .preconditions(Preconditions { uid: meta.uid.clone(), resource_version: None });
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(told)) if matches!(told.code, 404 | 409) => Ok(()),
        Err(error) => Err(ReconcileError::at("deleting")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_full_is_no_answer_for_good() {
        let quota = "releases.portolan.dev \"app\" is forbidden: exceeded quota: objects, requested: count/releases.portolan.dev=1";
        let unknown =
            "releases.portolan.dev \"app\" is forbidden: status unknown for quota: objects";
        for (code, message, is_final_then) in [
            (403, quota, false),
            (403, unknown, false),
            (403, "User \"x\" cannot create resource \"releases\"", true),
            (403, "admission webhook \"quota.example\" denied the request", true),
            (400, "no", true),
            (422, "no", true),
            (409, "no", false),
            (429, "no", false),
            (500, "no", false),
        ] {
            assert_eq!(is_final(code, message), is_final_then, "{code} {message}");
        }
    }
}
