//! What was decided, done: a thin loop over requests.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, ListParams, Patch, PostParams, Preconditions, PropagationPolicy};
use kube::core::Request;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource as _};
use portolan_api::shim::{GROUP, Shim};
use portolan_core::causes::chain;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::class::ClassStep;
use super::facts::{Failure, Job, Node};
use super::outcome;
use super::plan::{About, Done, Effect, Gone, Heard, Notice};
use super::record::NodePatch;
use super::settings::Settings;
use crate::patch;
use crate::write::{MANAGER, params};

/// A request without an answer may have been done: it is said again under the same name.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// What writes.
pub(crate) struct Hands {
    settings: Settings,
    recorder: Recorder,
    nodes: Api<Node>,
    shims: Api<Shim>,
    classes: Api<RuntimeClass>,
    client: Client,
    jobs: Api<Job>,
    /// Where Jobs are posted to: they are written as they were put together, and read with what is looked at.
    new_jobs: Request,
    pods: Api<Pod>,
}

impl Hands {
    pub(crate) fn new(client: Client, settings: Settings) -> Self {
        let namespace = settings.namespace();
        let reporter = Reporter { controller: MANAGER.to_owned(), instance: None };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            nodes: Api::all(client.clone()),
            shims: Api::all(client.clone()),
            classes: Api::all(client.clone()),
            jobs: Api::namespaced(client.clone(), namespace),
            new_jobs: Request::new(Job::url_path(&(), Some(namespace))),
            pods: Api::namespaced(client.clone(), namespace),
            client,
            settings,
        }
    }

    /// Does it, and says what came of it.
    pub(crate) async fn act(&self, effect: Effect) -> Done {
        match effect {
            Effect::Patch { node, uid, patch } => self.patch_node(&node, &uid, &patch).await,
            Effect::Start { node, uid, patch, order } => {
                let mut heard = Vec::new();
                if !patch.is_empty() {
                    match self.patch_node(&node, &uid, &patch).await {
                        Done::Wrote(written) => heard = written,
                        other => return other,
                    }
                }
                // It went meanwhile.
                if heard.iter().any(|heard| matches!(heard, Heard::NodeGone(_))) {
                    return Done::Wrote(heard);
                }
                let name = order.identity.job_name();
                self.create_job(&name, &order.render(&self.settings), heard).await
            }
            Effect::Collect { job, uid, failure } => self.collect(&job, uid, &failure).await,
            Effect::Kill { job, uid } => self.kill(job, uid).await,
            Effect::Finalizers { shim, finalizers } => {
                let meta = &shim.metadata;
                let change = json!({"metadata": {
                    "resourceVersion": meta.resource_version, "finalizers": finalizers,
                }});
                let name = meta.name.clone().unwrap_or_default();
                let written = self.shims.patch(&name, &params(), &Patch::Merge(change)).await;
                shim_written(&shim, written)
            }
            Effect::Status { shim, status } => {
                let change = patch::of_part(&shim.metadata, "status", &shim.status, &Some(*status));
                let Some(change) = change else { return Done::Wrote(Vec::new()) };
                let name = shim.metadata.name.clone().unwrap_or_default();
                let written =
                    self.shims.patch_status(&name, &params(), &Patch::Merge(change)).await;
                shim_written(&shim, written)
            }
            Effect::Class { name, step, .. } => self.class(name, *step).await,
            Effect::Tell(notice) => {
                self.tell(notice).await;
                Done::Wrote(Vec::new())
            }
        }
    }

    /// For the very machine that was looked at: the server refuses another UID.
    async fn patch_node(&self, name: &str, uid: &str, patch: &NodePatch) -> Done {
        let change = json!({"metadata": {
            "uid": uid, "labels": patch.labels, "annotations": patch.annotations,
        }});
        match self.nodes.patch(name, &params(), &Patch::Merge(change)).await {
            Ok(node) => Done::Wrote(vec![Heard::Node(Box::new(node))]),
            Err(error) if is(&error, 404) => {
                let (name, uid) = (name.to_owned(), uid.to_owned());
                Done::Wrote(vec![Heard::NodeGone(Gone { name, uid })])
            }
            Err(error) => unwritten("writing a node", name, &error, Vec::new()),
        }
    }

    async fn create_job(&self, name: &str, job: &Value, mut heard: Vec<Heard>) -> Done {
        // Whether it may be there: a quota that it takes itself is asked before it is seen that it is.
        let mut lost = false;
        for _ in 0..TRIES {
            let made = match self.post_job(job).await {
                // Its name says that it is this very Job.
                Err(error) if is(&error, 409) => {
                    lost = true;
                    self.jobs.get(name).await
                }
                made => made,
            };
            match made {
                Ok(made) => {
                    heard.push(Heard::Job(Box::new(made)));
                    return Done::Wrote(heard);
                }
                Err(error @ kube::Error::Api(_)) => {
                    return match unwritten("making a Job", name, &error, heard) {
                        Done::Refused { heard, .. } if lost => Done::Failed(heard),
                        done => done,
                    };
                }
                Err(error) => {
                    lost = true;
                    drop(failed("making a Job", name, &error));
                    sleep(PAUSE).await;
                }
            }
        }
        Done::Failed(heard)
    }

    async fn post_job(&self, job: &Value) -> Result<Job, kube::Error> {
        let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let request = self.new_jobs.create(&post, job.to_string().into_bytes());
        self.client.request(request.map_err(kube::Error::BuildRequest)?).await
    }

    async fn collect(&self, job: &str, uid: String, failure: &Failure) -> Done {
        let of = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        match self.pods.list(&of).await {
            Ok(mut pods) => {
                pods.items.sort_by_key(|pod| {
                    let made = pod.metadata.creation_timestamp.as_ref();
                    std::cmp::Reverse(made.map(|time| time.0))
                });
                let statuses: Vec<_> =
                    pods.items.into_iter().filter_map(|pod| pod.status).collect();
                Done::Collected(uid, outcome::of_failed(&statuses, failure))
            }
            Err(error) => failed("reading the pods of a Job", job, &error),
        }
    }

    /// With its pods, and not before them: whatever comes next must find the node for itself.
    async fn kill(&self, name: String, uid: String) -> Done {
        let delete = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        let precondition = Preconditions { uid: Some(uid.clone()), resource_version: None };
        let delete = delete.preconditions(precondition);
        match self.jobs.delete(&name, &delete).await {
            Ok(gone) => {
                let left = gone.left().map(|job| Heard::Job(Box::new(job)));
                Done::Wrote(left.into_iter().collect())
            }
            Err(error) if is(&error, 404) || is(&error, 409) => {
                Done::Wrote(vec![Heard::JobGone(Gone { name, uid })])
            }
            Err(error) => failed("deleting a Job", &name, &error),
        }
    }

    async fn class(&self, name: String, step: ClassStep) -> Done {
        let written = match step {
            ClassStep::Create(class) => {
                let post =
                    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
                self.classes.create(&post, &class).await
            }
            ClassStep::Patch(change) => {
                self.classes.patch(&name, &params(), &Patch::Merge(change)).await
            }
            ClassStep::Delete(class) => {
                return match crate::write::delete(&self.classes, class.as_ref()).await {
                    Ok(()) => Done::Wrote(vec![Heard::ClassGone(Gone::new(&class.metadata))]),
                    Err(error) => failed("deleting a RuntimeClass", &name, &error),
                };
            }
            ClassStep::Ready | ClassStep::Foreign(_) => return Done::Wrote(Vec::new()),
        };
        match written {
            Ok(class) => Done::Wrote(vec![Heard::Class(Box::new(class))]),
            Err(kube::Error::Api(told)) if matches!(told.code, 400 | 403 | 422) => {
                tracing::warn!(name, error = told.message, "a RuntimeClass is refused");
                Done::Refused { message: told.message.clone(), heard: Vec::new() }
            }
            Err(error) => failed("writing a RuntimeClass", &name, &error),
        }
    }

    async fn tell(&self, notice: Notice) {
        let (api_version, kind, name, uid) = match notice.about {
            About::Shim { name, uid } => (format!("{GROUP}/v1alpha1"), "Shim", name, uid),
            About::Node { name, uid } => ("v1".to_owned(), "Node", name, uid),
        };
        let reference = ObjectReference {
            api_version: Some(api_version),
            kind: Some(kind.to_owned()),
            name: Some(name.clone()),
            uid: Some(uid),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: if notice.warning { EventType::Warning } else { EventType::Normal },
            reason: notice.reason,
            note: Some(notice.note.chars().take(1000).collect()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &reference).await {
            tracing::warn!(kind, name, error = chain(&error), "an Event could not be written");
        }
    }
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(told) if told.code == code)
}

fn failed(step: &'static str, name: &str, error: &(impl std::error::Error + 'static)) -> Done {
    tracing::warn!(step, name, error = chain(error), "tried again later");
    Done::Failed(Vec::new())
}

/// What is answered with no is told apart from what passes: conflicts, too many requests, a token that is renewed.
fn unwritten(step: &'static str, name: &str, error: &kube::Error, heard: Vec<Heard>) -> Done {
    drop(failed(step, name, error));
    match error {
        kube::Error::Api(told) if is_refusal(told.code) => {
            Done::Refused { message: format!("{step} {name}: {}", told.message), heard }
        }
        _ => Done::Failed(heard),
    }
}

fn is_refusal(code: u16) -> bool {
    (400..500).contains(&code) && ![401, 408, 409, 429].contains(&code)
}

fn shim_written(shim: &Shim, written: Result<Shim, kube::Error>) -> Done {
    let gone = Gone::new(&shim.metadata);
    match written {
        Ok(shim) => Done::Wrote(vec![Heard::Shim(Box::new(shim))]),
        Err(error) if is(&error, 404) => Done::Wrote(vec![Heard::ShimGone(gone)]),
        Err(error) => failed("writing a Shim", &gone.name, &error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::shims::world::settings;
    use crate::testing::{Answer, client};

    /// Who has no room for a second Job is asked before it is seen that it would be the same one.
    #[tokio::test]
    async fn who_is_refused_after_a_lost_answer_may_have_made_its_job() {
        for lost in [true, false] {
            let cut = Arc::new(AtomicBool::new(lost));
            let (client, sent) = client(move |_| match cut.swap(false, Ordering::Relaxed) {
                true => Answer::Is(json!("cut")),
                false => Answer::Forbidden("exceeded quota"),
            });
            let hands = Hands::new(client, settings());
            let done = hands.create_job("a", &json!({}), Vec::new()).await;
            match done {
                Done::Failed(_) if lost => {}
                Done::Refused { message, .. } if !lost => {
                    assert!(message.contains("exceeded quota"), "{message}");
                }
                other => panic!("{lost}: {other:?}"),
            }
            assert_eq!(sent.lock().unwrap().len(), 1 + usize::from(lost));
        }
    }
}
