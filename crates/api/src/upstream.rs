//! Controllers of others that do the work of ours. Two would undo each other's, so ours waits for theirs to end, and
//! `portolan doctor` names them.

use k8s_openapi::api::apps::v1::Deployment;

/// What Shipwright calls the Deployment of its controller.
pub const SHIPWRIGHT: &str = "shipwright-build-controller";
/// What the chart and the manifests of runtime-class-manager label theirs with: it is called as its release is.
pub const CLASS_MANAGER: (&str, &str) = ("app.kubernetes.io/name", "runtime-class-manager");

/// Whether it is Shipwright's controller of builds.
pub fn is_shipwright(deployment: &Deployment) -> bool {
    deployment.metadata.name.as_deref() == Some(SHIPWRIGHT)
}

/// Whether it is runtime-class-manager: by its label, or by its image, wherever that was copied to.
pub fn is_class_manager(deployment: &Deployment) -> bool {
    let labels = deployment.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(CLASS_MANAGER.0));
    let template = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let mut images =
        template.into_iter().flat_map(|pod| &pod.containers).filter_map(|one| one.image.as_deref());
    label.is_some_and(|name| name == CLASS_MANAGER.1)
        || images.any(|image| image.contains(CLASS_MANAGER.1))
}

/// Whether copies of it are to run. Nothing said means one.
pub fn runs(deployment: &Deployment) -> bool {
    deployment.spec.as_ref().and_then(|spec| spec.replicas) != Some(0)
}
