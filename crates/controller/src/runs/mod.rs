//! BuildRuns: begun once, followed to their end, kept as long as they should be.
//!
//! | file | what it holds |
//! |---|---|
//! | `decide` | whether a run begins, and with what; pure |
//! | `mirror` | its status, from how its executor goes; pure |
//! | `world` | what a run is decided by, gathered |
//! | `begin` | its executor, made under a name that is always the same |
//! | `account` | the service account of its pods |

mod account;
mod begin;
pub mod decide;
pub mod mirror;
#[cfg(test)]
mod tests;
pub(crate) mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::Patch;
use kube::runtime::controller::Action;
use portolan_api::build::{BuildRun, BuildRunStatus, ExecutorKind};
use portolan_api::condition::Status;
use portolan_api::keys;
use portolan_api::reason::outcome;
use serde_json::json;

use self::mirror::Seen;
use crate::context::{Context, RESYNC, ReconcileError, now};
use crate::objects::{Executor, PipelineRun, TaskRun, is_owned};
use crate::retain::{self, Keep};
use crate::{patch, write};

/// Looks at one run.
pub(crate) async fn reconcile(
    run: Arc<BuildRun>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    if run.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    if run.status.as_ref().is_some_and(|status| status.completion_time.is_some()) {
        return over(&run, &context).await;
    }
    let named = run.status.as_ref().and_then(|status| status.executor.clone());
    let executor = match (context.caches.executor(&run), named) {
        (Some(executor), _) => executor,
        (None, None) => return begin::begin(Arc::unwrap_or_clone(run), &context).await,
        // It was made, and perhaps only not heard of yet.
        (None, Some(named)) => {
            let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
            match find(&context, namespace, named.kind, &named.name).await? {
                Some(executor) => executor,
                None => return missing(&run, &context, named.kind, &named.name).await,
            }
        }
    };
    go_on(&run, &context, &executor).await
}

/// A run with its executor: told to stop where somebody wants that, and followed.
async fn go_on(
    run: &BuildRun,
    context: &Context,
    executor: &Executor,
) -> Result<Action, ReconcileError> {
    cancel(run, context, executor).await?;
    follow(run, context, executor).await
}

/// The executor of that name, as the server has it.
async fn find(
    context: &Context,
    namespace: &str,
    kind: ExecutorKind,
    name: &str,
) -> Result<Option<Executor>, ReconcileError> {
    let at = ReconcileError::at("looking for the executor");
    match kind {
        ExecutorKind::PipelineRun => {
            let api: Api<PipelineRun> = write::beside(&context.client, namespace);
            Ok(api.get_opt(name).await.map_err(at)?.map(Executor::Pipeline))
        }
        ExecutorKind::TaskRun | ExecutorKind::Local => {
            let api: Api<TaskRun> = write::beside(&context.client, namespace);
            Ok(api.get_opt(name).await.map_err(at)?.map(Executor::Task))
        }
    }
}

/// Somebody deleted the executor: nothing will come of the run any more.
async fn missing(
    run: &BuildRun,
    context: &Context,
    kind: ExecutorKind,
    name: &str,
) -> Result<Action, ReconcileError> {
    let what = match kind {
        ExecutorKind::PipelineRun => "pipelineRun",
        ExecutorKind::TaskRun | ExecutorKind::Local => "taskRun",
    };
    let mut status = run.status.clone().unwrap_or_default();
    let now = now();
    let message = format!("{what} {name} doesn't exist");
    mirror::set_condition(&mut status, Status::False, outcome::EXECUTOR_MISSING, message, &now);
    status.completion_time = Some(now);
    write_status(run.clone(), context, status).await?;
    Ok(Action::await_change())
}

/// Writes how the executor goes.
async fn follow(
    run: &BuildRun,
    context: &Context,
    executor: &Executor,
) -> Result<Action, ReconcileError> {
    let tasks = match (executor, &executor.metadata().name) {
        (Executor::Pipeline(_), Some(name)) => context.caches.tasks_of(run, name),
        _ => Vec::new(),
    };
    let run = &relabeled(run, context, executor).await?;
    let pods = context.caches.pods_of(run);
    let seen = Seen { executor, tasks: &tasks, pods: &pods };
    let status = mirror::mirror(run, &seen, &now());
    let begins = run.status.as_ref().is_none_or(|status| status.start_time.is_none());
    if let Some(start) = status.start_time.as_ref().filter(|_| begins) {
        context.metrics.establish.observe(seconds(run, start));
    }
    write_status(run.clone(), context, status).await?;
    Ok(Action::requeue(RESYNC))
}

/// A run that was left between its executor and its labels gets those that the executor has.
async fn relabeled(
    run: &BuildRun,
    context: &Context,
    executor: &Executor,
) -> Result<BuildRun, ReconcileError> {
    let own = run.metadata.labels.clone().unwrap_or_default();
    let theirs = executor.metadata().labels.clone().unwrap_or_default();
    let missing: BTreeMap<_, _> = [keys::BUILD_NAME, keys::BUILD_GENERATION]
        .into_iter()
        .filter(|key| !own.contains_key(*key))
        .filter_map(|key| Some((key, theirs.get(key)?)))
        .collect();
    let version = &run.metadata.resource_version;
    let patch = (!missing.is_empty())
        .then(|| json!({ "metadata": { "resourceVersion": version, "labels": missing } }));
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<BuildRun> = write::beside(&context.client, namespace);
    write::object(&api, run.clone(), patch).await
}

/// Writes a status, if it differs, and counts a run that ends with it.
async fn write_status(
    run: BuildRun,
    context: &Context,
    status: BuildRunStatus,
) -> Result<BuildRun, ReconcileError> {
    let ends = status.completion_time.clone();
    let namespace = run.metadata.namespace.clone().unwrap_or_default();
    let patch = patch::of_part(&run.metadata, "status", &run.status, &Some(status));
    let api: Api<BuildRun> = write::beside(&context.client, &namespace);
    let run = write::status(&api, run, patch).await?;
    if let Some(end) = ends {
        context.metrics.runs_completed.inc();
        context.metrics.completion.observe(seconds(&run, &end));
        account::discard(&run, context).await?;
    }
    Ok(run)
}

/// From when a run was made to `then`.
fn seconds(run: &BuildRun, then: &Time) -> f64 {
    let made = run.metadata.creation_timestamp.as_ref();
    made.map_or(0.0, |made| then.0.duration_since(made.0).as_secs_f64().max(0.0))
}

/// Tells Tekton to stop, once.
async fn cancel(
    run: &BuildRun,
    context: &Context,
    executor: &Executor,
) -> Result<(), ReconcileError> {
    let Some(word) = cancel_word(run, executor) else { return Ok(()) };
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let name = executor.metadata().name.as_deref().ok_or(ReconcileError::Incomplete("name"))?;
    tracing::info!(namespace, name, "the run is canceled");
    let patch = Patch::Merge(json!({ "spec": { "status": word } }));
    let params = write::params();
    let done = match executor {
        Executor::Task(_) => {
            let api: Api<TaskRun> = write::beside(&context.client, namespace);
            api.patch(name, &params, &patch).await.map(drop)
        }
        Executor::Pipeline(_) => {
            let api: Api<PipelineRun> = write::beside(&context.client, namespace);
            api.patch(name, &params, &patch).await.map(drop)
        }
    };
    match done {
        Ok(()) => Ok(()),
        // It ended before it could be stopped, which its status will say.
        Err(kube::Error::Api(told)) if matches!(told.code, 400 | 404 | 422) => Ok(()),
        Err(error) => Err(ReconcileError::at("canceling the executor")(error)),
    }
}

/// What ends an executor that goes on; nothing where nobody wants that, or it was told already.
/// With something to tidy up at the end, that is still done.
pub fn cancel_word(run: &BuildRun, executor: &Executor) -> Option<&'static str> {
    if !mirror::is_canceled(run) || executor.progress().is_over() {
        return None;
    }
    match executor {
        Executor::Task(task) if task.spec.status.is_none() => Some("TaskRunCancelled"),
        Executor::Pipeline(pipeline) if pipeline.spec.status.is_none() => {
            match pipeline.spec.pipeline_spec.finally.is_empty() {
                true => Some("Cancelled"),
                false => Some("CancelledRunFinally"),
            }
        }
        _ => None,
    }
}

/// A run that has ended is only ever deleted.
async fn over(run: &BuildRun, context: &Context) -> Result<Action, ReconcileError> {
    account::discard(run, context).await?;
    match retain::by_age(run, jiff::Timestamp::now()) {
        Keep::Always => Ok(Action::await_change()),
        Keep::For(rest) => Ok(Action::requeue(rest)),
        Keep::No => {
            let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
            tracing::info!(
                namespace,
                name = run.metadata.name,
                "a run whose time is over is deleted"
            );
            let api: Api<BuildRun> = write::beside(&context.client, namespace);
            write::delete(&api, run).await?;
            Ok(Action::await_change())
        }
    }
}

/// Whether an object was made for this very run.
pub(crate) fn is_ours(metadata: &kube::api::ObjectMeta, run: &BuildRun) -> bool {
    run.metadata.uid.as_deref().is_some_and(|uid| is_owned(metadata, uid))
}
