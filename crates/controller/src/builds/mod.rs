//! Builds: whether each can be used, which of its runs are kept, and whether they go with it.
//!
//! | file | what it holds |
//! |---|---|
//! | `register` | whether a Build can be used; pure |
//! | `owners` | whether a run belongs to its Build; pure |

pub mod owners;
pub mod register;

use std::sync::Arc;

use kube::Api;
use kube::runtime::controller::Action;
use portolan_api::build::{Build, BuildRun};

use crate::context::{Context, RESYNC, ReconcileError};
use crate::runs::world;
use crate::{patch, retain, write};

/// Looks at one Build.
pub(crate) async fn reconcile(
    build: Arc<Build>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    if build.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    register(&build, &context).await?;
    let namespace = build.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<BuildRun> = write::beside(&context.client, namespace);
    let runs = context.caches.runs_of(&build);
    for run in &runs {
        let new = owners::owned(&run.metadata, &build);
        let patch = owners::patch(&run.metadata, new.as_deref());
        match write::object(&api, run.as_ref().clone(), patch).await {
            // One run that is gone is not its Build, nor the others.
            Ok(_) | Err(ReconcileError::Gone) => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(retention) = &build.spec.retention {
        let gone = retain::surplus(retention, runs.iter().map(AsRef::as_ref));
        for run in gone.into_iter().filter(|run| run.metadata.deletion_timestamp.is_none()) {
            tracing::info!(namespace, name = run.metadata.name, "a run over the limit is deleted");
            write::delete(&api, run).await?;
        }
    }
    Ok(Action::requeue(RESYNC))
}

async fn register(build: &Arc<Build>, context: &Context) -> Result<(), ReconcileError> {
    let cached = world::of_build(context, build, world::From::Cache).await?;
    let mut status = register::status(build, &cached);
    // What is not in a cache may be on its way there.
    if status.registered.as_deref() == Some("False") {
        let asked = world::of_build(context, build, world::From::Server).await?;
        status = register::status(build, &asked);
    }
    let fresh =
        build.status.as_ref().and_then(|status| status.registered.as_deref()) != Some("True");
    let registers = fresh && status.registered.as_deref() == Some("True");
    let patch = patch::of_part(&build.metadata, "status", &build.status, &Some(status));
    let namespace = build.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Build> = write::beside(&context.client, namespace);
    write::status(&api, build.as_ref().clone(), patch).await?;
    if registers {
        context.metrics.builds_registered.inc();
    }
    Ok(())
}
