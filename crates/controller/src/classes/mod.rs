//! ImagePlatformClasses: whether each can be used, kept current.
//!
//! | file | what it holds |
//! |---|---|
//! | `status` | what its status says; the decision itself is `portolan_build::plan::class_status` |

pub mod status;

use std::sync::Arc;

use kube::Api;
use kube::runtime::controller::Action;
use portolan_api::platform::ImagePlatformClass;

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
    let named = |name: &str| class.spec.image_platforms.iter().any(|one| one.name == name);
    let platforms: Vec<_> = context
        .caches
        .platforms
        .state_filter(|one| one.metadata.name.as_deref().is_some_and(named))
        .into_iter()
        .map(Arc::unwrap_or_clone)
        .collect();
    let new = status::status(&class, &platforms, &now());
    let patch = patch::of_part(&class.metadata, "status", &class.status, &Some(new));
    let api: Api<ImagePlatformClass> = Api::all(context.client.clone());
    write::status(&api, Arc::unwrap_or_clone(class), patch).await?;
    Ok(Action::requeue(RESYNC))
}
