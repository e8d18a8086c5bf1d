//! What is asked of a cluster, and in which order: the caches have heard of nothing here.

use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::context;
use crate::testing::{self, Answer, bodies, client};

const BEGUN: &str = "/apis/shipwright.io/v1beta1/namespaces/team/buildruns/app-1";
const TEKTON: &str = "/apis/tekton.dev/v1/namespaces/team";

/// A run whose Build was written down, so that its executor may have been made.
fn begun(state: Option<&str>) -> Value {
    json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
        "metadata": {"name": "app-1", "namespace": "team", "uid": "u", "resourceVersion": "7"},
        "spec": {"build": {"name": "app"}, "state": state},
        "status": {"buildSpec": {
            "strategy": {"name": "s"}, "output": {"image": "registry.example/a:1"},
        }},
    })
}

fn executor(uid: &str) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {
            "name": "app-1-abc", "namespace": "team",
            "labels": {"buildrun.shipwright.io/name": "app-1"},
            "ownerReferences": [{
                "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun", "name": "app-1", "uid": uid,
            }],
        },
        "spec": {"pipelineSpec": {"tasks": []}},
    })
}

fn list(kind: &str, items: Vec<Value>) -> Answer {
    Answer::Is(json!({
        "apiVersion": "tekton.dev/v1", "kind": kind, "metadata": {"resourceVersion": "9"},
        "items": items,
    }))
}

fn read(run: Value) -> Arc<BuildRun> {
    Arc::new(serde_json::from_value(run).unwrap())
}

#[tokio::test]
async fn a_run_whose_executor_was_not_heard_of_yet_does_not_end_without_it() {
    for (owner, ours) in [("u", true), ("somebody else", false)] {
        let run = begun(Some("BuildRunCanceled"));
        let stored = run.clone();
        let (client, sent) = client(move |asked| match asked.split_once(TEKTON) {
            Some(("GET ", "/pipelineruns")) => list("PipelineRunList", vec![executor(owner)]),
            Some(("GET ", "/taskruns")) => list("TaskRunList", vec![]),
            Some(("PATCH ", "/pipelineruns/app-1-abc")) => Answer::Is(executor(owner)),
            _ if asked.ends_with(BEGUN) || asked.ends_with("app-1/status") => {
                Answer::Is(stored.clone())
            }
            _ => Answer::NoObject,
        });
        reconcile(read(run), Arc::new(testing::context(client))).await.unwrap();
        let stopped = bodies(&sent, &format!("PATCH {TEKTON}/pipelineruns/app-1-abc"));
        let statuses = bodies(&sent, &format!("PATCH {BEGUN}/status"));
        let ended = |status: &Value| !status["status"]["completionTime"].is_null();
        match ours {
            true => {
                assert_eq!(stopped, [json!({"spec": {"status": "Cancelled"}})]);
                assert_eq!(statuses.len(), 1, "{statuses:?}");
                assert!(!statuses.iter().any(ended), "{statuses:?}");
                assert_eq!(statuses[0]["status"]["executor"]["name"], "app-1-abc");
            }
            false => {
                assert_eq!(stopped, Vec::<Value>::new(), "it is not ours");
                assert!(statuses.iter().all(ended) && statuses.len() == 1, "{statuses:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_run_is_not_ended_while_nobody_can_tell_whether_it_has_an_executor() {
    let run = begun(Some("BuildRunCanceled"));
    let stored = run.clone();
    let (client, sent) = client(move |asked| match asked {
        _ if asked.contains(TEKTON) => Answer::NoKind,
        _ if asked.contains(BEGUN) => Answer::Is(stored.clone()),
        _ => Answer::NoObject,
    });
    reconcile(read(run), Arc::new(testing::context(client))).await.unwrap_err();
    assert_eq!(bodies(&sent, "PATCH"), Vec::<Value>::new());
}

/// Runs are looked at for that long, as the controller does it.
async fn looked_at(run: Value, client: kube::Client, time: Duration) {
    let mut writer = Writer::<BuildRun>::new(());
    let run = read(run);
    for event in [Event::Init, Event::InitApply(run.as_ref().clone()), Event::InitDone] {
        writer.apply_watcher_event(&event);
    }
    let (queue, waiting) = unbounded_channel();
    queue.send(ObjectRef::from_obj(run.as_ref())).unwrap();
    let (context, ending) = (Arc::new(testing::context(client)), CancellationToken::new());
    let work = context::reconcile(context, writer.as_reader(), waiting, ending, reconcile);
    let _ = timeout(time, work).await;
}

/// A cluster in which the run can begin; what becomes of the executor is told.
fn answered(asked: &str, made: Answer) -> Answer {
    let named = |kind: &str, name: &str, spec: Value| {
        Answer::Is(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": kind,
            "metadata": {"name": name, "namespace": "team"}, "spec": spec,
        }))
    };
    let output = json!({"image": "registry.example/a:1"});
    match asked.rsplit_once("/namespaces/team").map_or("", |(_, path)| path) {
        "/builds/app" => {
            named("Build", "app", json!({"strategy": {"name": "s"}, "output": output}))
        }
        "/buildstrategies/s" => {
            named("BuildStrategy", "s", json!({"steps": [{"name": "build", "image": "a"}]}))
        }
        "/serviceaccounts/default" => Answer::Is(json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": "team"},
        })),
        "/taskruns" if asked.starts_with("POST") => made,
        "/taskruns" => list("TaskRunList", vec![]),
        "/pipelineruns" => list("PipelineRunList", vec![]),
        "/buildruns/app-1" | "/buildruns/app-1/status" => Answer::Is(begun(None)),
        _ => Answer::NoObject,
    }
}

#[tokio::test]
async fn a_kind_that_is_not_served_for_a_moment_is_asked_for_again() {
    let (client, sent) = client(|asked| answered(asked, Answer::NoKind));
    looked_at(begun(None), client, Duration::from_secs(2)).await;
    let tries = bodies(&sent, &format!("POST {TEKTON}/taskruns")).len();
    assert!(tries > 1, "{tries}");
}

#[tokio::test]
async fn a_run_that_is_gone_is_left_alone() {
    let (client, sent) = client(|asked| match asked.ends_with("app-1/status") {
        true => Answer::NoObject,
        false => answered(asked, Answer::NoKind),
    });
    let mut run = begun(None);
    run["status"] = Value::Null;
    looked_at(run, client, Duration::from_secs(2)).await;
    assert_eq!(bodies(&sent, &format!("PATCH {BEGUN}/status")).len(), 1);
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_waited_for_and_a_role_is_not() {
    let quota = "taskruns.tekton.dev \"app-1-abc\" is forbidden: exceeded quota: few, \
                 requested: count/taskruns.tekton.dev=1, used: count/taskruns.tekton.dev=2, \
                 limited: count/taskruns.tekton.dev=2";
    let role = "taskruns.tekton.dev is forbidden: User \"one\" cannot create resource";
    for (words, waits) in [(quota, true), (role, false)] {
        let (client, sent) = client(move |asked| answered(asked, Answer::Forbidden(words)));
        looked_at(begun(None), client, Duration::from_secs(1)).await;
        let tries = bodies(&sent, &format!("POST {TEKTON}/taskruns")).len();
        let ends = bodies(&sent, &format!("PATCH {BEGUN}/status"));
        assert_eq!((tries > 1, ends.is_empty()), (waits, waits), "{tries} {ends:?}");
    }
}

/// Names that no object can have, in each place where people write them: the run is refused, and nobody is asked for
/// what the name would be in a path.
#[tokio::test]
async fn a_name_that_no_object_can_have_is_refused_and_not_asked_for() {
    let mount = json!([{"name": "v", "mountPath": "/v", "readOnly": true}]);
    for name in ["a b", "a?b", "a/b", ""] {
        let secret = json!({"output": {"image": "registry.example/a:1", "pushSecret": name}});
        let class = json!({"output": {"image": "registry.example/a:1", "multiArch": {
            "imagePlatformClass": name, "platforms": [{"os": "linux", "arch": "amd64"}],
        }}});
        let strategy = json!({"strategy": {"name": name}});
        let map = json!({"name": "v", "configMap": {"name": name}});
        let kept = json!({"name": "v", "secret": {"secretName": name}});
        for (path, spec, volume, reason) in [
            ("/secrets", secret, None, "BuildRegistrationFailed"),
            ("/imageplatformclasses", class, None, "ImagePlatformClassNotFound"),
            ("/buildstrategies", strategy, None, "BuildRegistrationFailed"),
            ("/configmaps", json!({}), Some(map), outcome::VOLUME_NOT_FOUND),
            ("/secrets", json!({}), Some(kept), outcome::VOLUME_NOT_FOUND),
        ] {
            // An empty name of a Secret that opens a registry is none.
            if name.is_empty() && path == "/secrets" && volume.is_none() {
                continue;
            }
            let mut build = json!({
                "strategy": {"name": "s"}, "output": {"image": "registry.example/a:1"},
            });
            build.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let mut steps = json!({"steps": [{"name": "build", "image": "a"}]});
            if let Some(volume) = volume {
                steps["volumes"] = json!([volume]);
                steps["steps"][0]["volumeMounts"] = mount.clone();
            }
            let object = |kind: &str, name: &str, spec: &Value| {
                Answer::Is(json!({
                    "apiVersion": "shipwright.io/v1beta1", "kind": kind,
                    "metadata": {"name": name, "namespace": "team"}, "spec": spec,
                }))
            };
            let (client, sent) = client(move |asked| match asked.rsplit_once("/team") {
                Some((_, "/builds/app")) => object("Build", "app", &build),
                Some((_, "/buildstrategies/s")) => object("BuildStrategy", "s", &steps),
                _ => answered(asked, Answer::NoKind),
            });
            let mut run = begun(None);
            run["status"] = Value::Null;
            reconcile(read(run), Arc::new(testing::context(client))).await.unwrap();
            let statuses = bodies(&sent, &format!("PATCH {BEGUN}/status"));
            let told: Vec<&Value> =
                statuses.iter().map(|s| &s["status"]["conditions"][0]["reason"]).collect();
            assert_eq!(told, [reason], "{path} {name:?}");
            let lines = sent.lock().unwrap();
            // The strategy that is there is asked for in the other cases.
            let asked = lines.iter().find(|(line, _)| line.contains(path) && !line.ends_with("/s"));
            assert!(asked.is_none(), "{path} {name:?}: {asked:?}");
        }
    }
}
