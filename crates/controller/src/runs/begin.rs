//! From a run to its executor. Whatever ends us in between, nothing is made twice: the executor's name
//! depends on the run alone, and one that is there and belongs to the run is taken as ours.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::runtime::controller::Action;
use portolan_api::build::{Build, BuildRun, BuildSpec, ExecutorKind};
use portolan_api::condition::Status;
use portolan_api::keys;
use portolan_api::reason::{Reason, outcome};
use portolan_build::plan::{self, Plan, Work};
use portolan_build::{names, tekton};
use serde_json::{Value, json};

use super::decide::{self, Decision, World};
use super::{account, find, follow, go_on, is_ours, mirror, world, write_status};
use crate::builds::owners;
use crate::caches::{is_pipeline_of, is_task_of};
use crate::context::{Context, ReconcileError, now};
use crate::objects::{Executor, PipelineRun, TEKTON, TaskRun};
use crate::write::{self, MANAGER};

/// Begins a run, or says why not.
pub(super) async fn begin(run: BuildRun, context: &Context) -> Result<Action, ReconcileError> {
    // It was begun before, and what came of that may not have been heard of yet: a run that was
    // refused must not get an executor after all, and one that has its executor must not end
    // without it.
    let run = match run.status.as_ref().is_some_and(|status| status.build_spec.is_some()) {
        false => run,
        true => {
            let Some(run) = again(&run, context).await? else { return Ok(Action::await_change()) };
            if let Some(executor) = made_before(&run, context).await? {
                return go_on(&run, context, &executor).await;
            }
            run
        }
    };
    let (world, decision) = decided(&run, context).await?;
    let build = decide::build(&run, &world);
    let spec = decide::spec(&run, &world);
    match decision {
        Decision::Wait(pause) => Ok(Action::requeue(pause)),
        Decision::Refuse { reason, message } => {
            let run = label(run.clone(), build, context).await?;
            refuse(run, context, spec, &reason, message).await
        }
        Decision::Begin(plan) => {
            let namespace = run.metadata.namespace.clone().unwrap_or_default();
            let mounted = decide::mounted(&plan);
            if let Some(missing) = world::missing(context, &namespace, &mounted).await? {
                let run = label(run.clone(), build, context).await?;
                return refuse(run, context, spec, outcome::VOLUME_NOT_FOUND, missing).await;
            }
            // Before anything runs: later the Build may be another.
            let mut status = run.status.clone().unwrap_or_default();
            status.build_spec = spec.cloned().map(Box::new);
            let run = write_status(run.clone(), context, status).await?;
            account::provide(&run, context, &plan, spec).await?;
            // Side by side: whoever waits for the executor need not wait for labels. What we are
            // ended before is made up for when the executor is found (`follow`).
            let (made, run) =
                tokio::join!(create(&run, context, &plan), label(run.clone(), build, context));
            let (made, run) = (made?, run?);
            match made {
                Ok(executor) => {
                    let made = run.metadata.creation_timestamp.as_ref();
                    let took = made.map(|made| jiff::Timestamp::now().duration_since(made.0));
                    took.iter().for_each(|took| context.metrics.rampup.observe(took.as_secs_f64()));
                    follow(&run, context, &executor).await
                }
                Err(message) => {
                    let reason = match plan.work {
                        Work::Single(_) => Reason::TaskRunGenerationFailed,
                        Work::Multi(_) => Reason::PipelineRunGenerationFailed,
                    };
                    refuse(run, context, None, reason.as_str(), message).await
                }
            }
        }
    }
}

/// The run as the server has it, if it still waits for its executor.
async fn again(run: &BuildRun, context: &Context) -> Result<Option<BuildRun>, ReconcileError> {
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let name = run.metadata.name.as_deref().ok_or(ReconcileError::Incomplete("name"))?;
    let api: Api<BuildRun> = write::beside(&context.client, namespace);
    let found = api.get_opt(name).await.map_err(ReconcileError::at("looking at the run again"))?;
    Ok(found.filter(|found| {
        let status = found.status.as_ref();
        found.metadata.uid == run.metadata.uid
            && found.metadata.deletion_timestamp.is_none()
            && status.is_none_or(|s| s.completion_time.is_none() && s.executor.is_none())
    }))
}

/// The executor of a run as the server has it, known as the caches know it. A kind that is not
/// served is an error: then nobody can tell.
async fn made_before(
    run: &BuildRun,
    context: &Context,
) -> Result<Option<Executor>, ReconcileError> {
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let name = run.metadata.name.as_deref().ok_or(ReconcileError::Incomplete("name"))?;
    // Nothing is labelled with such a name, and asking for it would be refused.
    if name.len() > names::MAX_LABEL {
        return Ok(None);
    }
    let labelled = ListParams::default().labels(&format!("{}={name}", keys::BUILD_RUN_NAME));
    let pipelines: Api<PipelineRun> = write::beside(&context.client, namespace);
    let tasks: Api<TaskRun> = write::beside(&context.client, namespace);
    let (pipelines, tasks) = tokio::try_join!(pipelines.list(&labelled), tasks.list(&labelled))
        .map_err(ReconcileError::at("looking for an executor that was made before"))?;
    let pipeline = pipelines.items.into_iter().find(|one| is_pipeline_of(one, run));
    let task = || tasks.items.into_iter().find(|one| is_task_of(one, run));
    Ok(pipeline.map(Executor::Pipeline).or_else(|| task().map(Executor::Task)))
}

/// What was heard is enough to begin; before a refusal the server is asked. To wait, what was heard is enough too: it is
/// looked at again in a moment, and when the time for that is over it begins or is refused.
async fn decided(run: &BuildRun, context: &Context) -> Result<(World, Decision), ReconcileError> {
    let settings = plan::Settings {
        step_image: context.settings.step_image.clone(),
        service_account: context.settings.service_account.clone(),
        source_repository: context.settings.source_repository.clone(),
        created: 0,
    };
    let decide = |world: &World| decide::decide(run, world, &settings, jiff::Timestamp::now());
    let heard = world::of_run(context, run, world::From::Cache).await?;
    let decision = decide(&heard);
    if !matches!(decision, Decision::Refuse { .. }) {
        return Ok((heard, decision));
    }
    let asked = world::of_run(context, run, world::From::Server).await?;
    let decision = decide(&asked);
    Ok((asked, decision))
}

/// Labels a run with its Build, and makes it belong to it where the Build says so.
async fn label(
    run: BuildRun,
    build: Option<&Build>,
    context: &Context,
) -> Result<BuildRun, ReconcileError> {
    // A name that is no label's value is refused, and must not be written as one either.
    let fits = |build: &&Build| {
        build.metadata.name.as_ref().is_some_and(|name| name.len() <= names::MAX_LABEL)
    };
    let Some(build) = build.filter(fits) else { return Ok(run) };
    let mut metadata = json!({});
    let mut labels = run.metadata.labels.clone().unwrap_or_default();
    labels.insert(keys::BUILD_NAME.to_owned(), build.metadata.name.clone().unwrap_or_default());
    let generation = build.metadata.generation.unwrap_or_default().to_string();
    labels.insert(keys::BUILD_GENERATION.to_owned(), generation);
    if Some(&labels) != run.metadata.labels.as_ref() {
        metadata["labels"] = json!(labels);
    }
    let owners = owners::owned(&run.metadata, build);
    if let Some(patch) = owners::patch(&run.metadata, owners.as_deref()) {
        metadata["ownerReferences"] = patch["metadata"]["ownerReferences"].clone();
    }
    let patch = (metadata != json!({})).then(|| {
        metadata["resourceVersion"] = json!(run.metadata.resource_version);
        json!({ "metadata": metadata })
    });
    let namespace = run.metadata.namespace.clone().unwrap_or_default();
    let api: Api<BuildRun> = write::beside(&context.client, &namespace);
    write::object(&api, run, patch).await
}

async fn refuse(
    run: BuildRun,
    context: &Context,
    spec: Option<&BuildSpec>,
    reason: &str,
    message: String,
) -> Result<Action, ReconcileError> {
    let (namespace, name) = (run.metadata.namespace.clone(), run.metadata.name.clone());
    tracing::info!(namespace, name, reason, message, "a run is refused");
    let mut status = run.status.clone().unwrap_or_default();
    let now = now();
    if let Some(spec) = spec {
        status.build_spec = Some(Box::new(spec.clone()));
    }
    mirror::set_condition(&mut status, Status::False, reason, message, &now);
    status.completion_time = Some(now);
    write_status(run, context, status).await?;
    Ok(Action::await_change())
}

/// Makes the executor, or finds the one that was made before. What the cluster will never take is
/// told; what may pass is tried again.
async fn create(
    run: &BuildRun,
    context: &Context,
    plan: &Plan,
) -> Result<Result<Executor, String>, ReconcileError> {
    let rendered = tekton::render(plan);
    let (kind, plural) = match &plan.work {
        Work::Single(_) => (ExecutorKind::TaskRun, "taskruns"),
        Work::Multi(_) => (ExecutorKind::PipelineRun, "pipelineruns"),
    };
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let resource = ApiResource {
        group: TEKTON.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{TEKTON}/v1"),
        kind: rendered["kind"].as_str().unwrap_or_default().to_owned(),
        plural: plural.to_owned(),
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, &resource);
    let object: DynamicObject = match serde_json::from_value(rendered) {
        Ok(object) => object,
        Err(error) => return Ok(Err(format!("the {plural} cannot be written: {error}"))),
    };
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&params, &object).await {
        Ok(made) => {
            tracing::info!(namespace, run = run.metadata.name, name = plan.name, plural, "made");
            Ok(slim(kind, serde_json::to_value(made)))
        }
        Err(kube::Error::Api(told)) if told.code == 409 && told.reason == "AlreadyExists" => {
            match find(context, namespace, kind, &plan.name).await? {
                Some(found) if is_ours(found.metadata(), run) => Ok(Ok(found)),
                Some(_) => Ok(Err(format!(
                    "{plural} {:?} is there already and belongs to somebody else",
                    plan.name
                ))),
                None => Err(ReconcileError::at("making the executor")(kube::Error::Api(told))),
            }
        }
        Err(kube::Error::Api(told)) if write::is_final(told.code, &told.message) => {
            Ok(Err(told.message.clone()))
        }
        Err(error) => Err(ReconcileError::at("making the executor")(error)),
    }
}

fn slim(kind: ExecutorKind, value: Result<Value, serde_json::Error>) -> Result<Executor, String> {
    let read = value.and_then(|value| match kind {
        ExecutorKind::PipelineRun => serde_json::from_value(value).map(Executor::Pipeline),
        ExecutorKind::TaskRun | ExecutorKind::Local => {
            serde_json::from_value(value).map(Executor::Task)
        }
    });
    read.map_err(|error| format!("the answer of the cluster cannot be read: {error}"))
}
