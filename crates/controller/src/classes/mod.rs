//! ImagePlatformClasses: whether each can be used, kept current.
//!
//! | file | what it holds |
//! |---|---|
//! | `status` | what its status says; the decision itself is `portolan_build::plan::class_status` |

pub mod status;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Api;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use portolan_api::platform::{ImagePlatform, ImagePlatformClass};

use crate::ask::named;
use crate::context::{Context, RESYNC, ReconcileError, now};
use crate::{patch, write};

/// Looks at one class.
pub(crate) async fn reconcile(
    class: Arc<ImagePlatformClass>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    if class.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let platforms = platforms(&class, &context).await?;
    let new = status::status(&class, &platforms, &now());
    let patch = patch::of_part(&class.metadata, "status", &class.status, &Some(new));
    let api: Api<ImagePlatformClass> = Api::all(context.client.clone());
    write::status(&api, Arc::unwrap_or_clone(class), patch).await?;
    Ok(Action::requeue(RESYNC))
}

/// Those of a class that are there. Their watch runs apart from that of classes, so one that was not
/// heard of is asked for before the class is said to lack it.
async fn platforms(
    class: &ImagePlatformClass,
    context: &Context,
) -> Result<Vec<ImagePlatform>, ReconcileError> {
    let names: BTreeSet<&str> =
        class.spec.image_platforms.iter().map(|one| one.name.as_str()).collect();
    let api: Api<ImagePlatform> = Api::all(context.client.clone());
    let mut found = Vec::new();
    for name in names {
        match context.caches.platforms.get(&ObjectRef::new(name)) {
            Some(heard) => found.push(Arc::unwrap_or_clone(heard)),
            None => {
                let asked = named(name, api.get_opt(name)).await;
                found.extend(asked.map_err(ReconcileError::at("looking for a platform"))?);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{self, Answer, bodies, client};

    const ALL: &str = "/apis/shipwright.io/v1alpha1/imageplatformclasses/all";
    const PLATFORMS: &str = "GET /apis/shipwright.io/v1alpha1/imageplatforms/";

    #[tokio::test]
    async fn a_platform_that_was_not_heard_of_yet_is_not_missing() {
        for (there, status, reason) in [
            (true, "True", "AllImagePlatformsAvailable"),
            (false, "False", "ImagePlatformNotFound"),
        ] {
            let class: Value = json!({
                "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
                "metadata": {"name": "all", "generation": 1, "resourceVersion": "7"},
                "spec": {"imagePlatforms": [{"name": "arm64"}]},
            });
            let stored = class.clone();
            let (client, sent) = client(move |asked| match asked.strip_prefix(PLATFORMS) {
                Some("arm64") if there => Answer::Is(json!({
                    "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform",
                    "metadata": {"name": "arm64"},
                    "spec": {"platform": {"os": "linux", "arch": "arm64"}, "nodeSelector": {"a": "b"}},
                })),
                None if asked.ends_with("all/status") => Answer::Is(stored.clone()),
                _ => Answer::NoObject,
            });
            let class = Arc::new(serde_json::from_value(class).unwrap());
            reconcile(class, Arc::new(testing::context(client))).await.unwrap();
            let written = bodies(&sent, &format!("PATCH {ALL}/status"));
            assert_eq!(written.len(), 1, "{written:?}");
            let condition = &written[0]["status"]["conditions"][0];
            assert_eq!(
                (&condition["status"], &condition["reason"]),
                (&json!(status), &json!(reason))
            );
        }
    }

    #[tokio::test]
    async fn a_name_that_no_object_can_have_is_missing_and_not_asked_for() {
        let class: Value = json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
            "metadata": {"name": "all", "generation": 1, "resourceVersion": "7"},
            "spec": {"imagePlatforms": [{"name": "a b"}, {"name": "../classes"}]},
        });
        let stored = class.clone();
        let (client, sent) = client(move |asked| match asked.ends_with("all/status") {
            true => Answer::Is(stored.clone()),
            false => Answer::NoObject,
        });
        let class = Arc::new(serde_json::from_value(class).unwrap());
        reconcile(class, Arc::new(testing::context(client))).await.unwrap();
        assert_eq!(bodies(&sent, "GET"), [json!(null); 0], "nothing is asked");
        let written = bodies(&sent, &format!("PATCH {ALL}/status"));
        let message = written[0]["status"]["conditions"][0]["message"].as_str();
        assert_eq!(message, Some("There is no ImagePlatform a b, ../classes."));
    }
}
