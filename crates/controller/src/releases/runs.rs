//! BuildRuns that become a Release: one that is labelled with its name, when it has succeeded.
//!
//! The digest of the run's output pins it. Whoever runs the build, this is only told by the run's own status, so it works
//! beside any controller of Shipwright's resources. What came of it is noted on the run: every list brings all runs again,
//! and a Release that somebody deleted since is not made anew, nor is a refusal told twice.

use std::sync::Arc;

use kube::Api;
use kube::api::{ObjectMeta, Patch, PostParams};
use kube::runtime::controller::Action;
use portolan_api::build::{BuildRun, SUCCEEDED};
use portolan_api::condition::{self, Status};
use portolan_api::release::{
    BUILD_RUN, BUILD_RUN_COMPLETED, NOT_RELEASED, PolicySource, RELEASE, RELEASE_POLICY,
    RELEASE_REQUIRE_VERIFICATION, RELEASED, Release, ReleaseSpec, SecretName,
};
use portolan_core::{Digest, RegistryReference};
use portolan_release::status::News;
use serde_json::json;

use super::apply::{Context, tell};
use crate::context::ReconcileError;
use crate::objects::label;
use crate::write;

/// Why an Event says that a run became none.
const NOT: &str = "NotReleased";

/// Looks at one run that is to become a Release.
pub(crate) async fn reconcile(
    run: Arc<BuildRun>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    if run.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let wanted = match wanted(&run) {
        None => return Ok(Action::await_change()),
        Some(Err(why)) => return refused(&run, &context, why.clone(), why).await,
        Some(Ok(wanted)) => wanted,
    };
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let name = wanted.metadata.name.clone().unwrap_or_default();
    let api: Api<Release> = write::beside(&context.client, namespace);
    let there = api.get_opt(&name).await.map_err(ReconcileError::at("looking for the Release"))?;
    match step(&wanted, there.as_ref()) {
        Step::Nothing => released(&run, &context, &wanted).await,
        // As it should be, so no warning.
        Step::Older(why) => {
            let noted = against(&wanted, &why);
            let news = News { warning: false, reason: NOT.to_owned(), note: why };
            became_none(&run, &context, noted, news).await
        }
        Step::Create => {
            let params = PostParams {
                field_manager: Some(write::MANAGER.to_owned()),
                ..PostParams::default()
            };
            match api.create(&params, &wanted).await {
                Ok(_) => done(&run, &context, &wanted, "was made").await,
                Err(error) => failed(&run, &context, &wanted, ("making the Release", error)).await,
            }
        }
        Step::Move(version) => {
            let patch = json!({
                "metadata": {
                    "resourceVersion": version,
                    "annotations": wanted.metadata.annotations,
                },
                "spec": { "image": wanted.spec.image },
            });
            match api.patch(&name, &write::params(), &Patch::Merge(patch)).await {
                Ok(_) => done(&run, &context, &wanted, "follows").await,
                Err(error) => failed(&run, &context, &wanted, ("moving the Release", error)).await,
            }
        }
        Step::Refuse(why) => refused(&run, &context, against(&wanted, &why), why).await,
    }
}

/// The Release that a run is yet to become; none where it has not succeeded or is done with, and an error where it cannot be.
fn wanted(run: &BuildRun) -> Option<Result<Release, String>> {
    let name = label(&run.metadata, RELEASE)?;
    let status = run.status.as_ref()?;
    let succeeded = condition::find(&status.conditions, SUCCEEDED)?;
    if succeeded.status != Status::True {
        return None;
    }
    let noted = |key| run.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let (became, not) = (noted(RELEASED), noted(NOT_RELEASED));
    match release(run, name) {
        Ok(wanted) => {
            let refused = against(&wanted, "");
            let is_over = became.is_some_and(|became| *became == id(&wanted))
                || not.is_some_and(|not| not.starts_with(&refused));
            (!is_over).then_some(Ok(wanted))
        }
        Err(why) => (not != Some(&bounded(&why))).then_some(Err(why)),
    }
}

/// A Release as it is noted on its run: another name, or another digest, is another one.
fn id(wanted: &Release) -> String {
    let digest = wanted.spec.image.rsplit_once('@').map_or("", |(_, digest)| digest);
    format!("{}@{digest}", wanted.metadata.name.as_deref().unwrap_or_default())
}

/// A refusal as it is noted on its run.
fn against(wanted: &Release, why: &str) -> String {
    format!("{}: {why}", id(wanted))
}

/// Annotations of an object share a quarter of a MiB.
const MAX_NOTE: usize = 1024;

fn bounded(note: &str) -> String {
    note.chars().take(MAX_NOTE).collect()
}

fn release(run: &BuildRun, name: &str) -> Result<Release, String> {
    let status = run.status.clone().unwrap_or_default();
    let digest = status.output.as_ref().and_then(|output| output.digest.clone());
    let digest = digest.ok_or("the run tells no digest of what it made")?;
    let digest =
        digest.parse::<Digest>().map_err(|_| format!("the run tells {digest:?} for a digest"))?;
    let build = status.build_spec.as_deref().map(|build| &build.output);
    let own = run.spec.output.as_ref();
    let image =
        own.and_then(|output| output.image.as_ref()).or_else(|| build.map(|output| &output.image));
    let image = image.ok_or("the run does not tell where its image is")?;
    let reference = image
        .parse::<RegistryReference>()
        .map_err(|error| format!("{image:?} is no image: {error}"))?;
    let pinned = RegistryReference { digest: Some(digest), ..reference };
    // Who may push there may pull from there.
    let secret = own
        .and_then(|output| output.settings.push_secret.clone())
        .or_else(|| build.and_then(|output| output.settings.push_secret.clone()));
    let said = |key: &str| run.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
    let policy = said(RELEASE_POLICY).map(|config_map| PolicySource { config_map });
    let required = match said(RELEASE_REQUIRE_VERIFICATION).as_deref() {
        None | Some("true") => true,
        Some("false") => false,
        Some(other) => {
            return Err(format!(
                "{RELEASE_REQUIRE_VERIFICATION} is {other:?}, and not true or false"
            ));
        }
    };
    let mut release = Release::new(
        name,
        ReleaseSpec {
            policy,
            pull_secrets: secret.into_iter().map(|name| SecretName { name }).collect(),
            require_verification: required,
            ..ReleaseSpec::new(pinned.to_string())
        },
    );
    let made_of = run.metadata.name.clone().unwrap_or_default();
    let completed = status.completion_time.map(|time| time.0.to_string()).unwrap_or_default();
    release.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: run.metadata.namespace.clone(),
        annotations: Some(
            [(BUILD_RUN.to_owned(), made_of), (BUILD_RUN_COMPLETED.to_owned(), completed)].into(),
        ),
        ..ObjectMeta::default()
    };
    Ok(release)
}

/// What is done for a Release that should be there.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// One that follows has the image of a newer run, and keeps it.
    Older(String),
    Create,
    /// One that follows gets the new image; its history has the one before.
    Move(Option<String>),
    Refuse(String),
}

fn step(wanted: &Release, there: Option<&Release>) -> Step {
    let Some(there) = there else { return Step::Create };
    // Times are whole seconds. Of two runs that ended in the same one the name decides, so that it is the same one whichever
    // is heard of first.
    let age = |release: &Release| {
        let said =
            |key| release.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        (said(BUILD_RUN_COMPLETED), said(BUILD_RUN))
    };
    let same_image = there.spec.image == wanted.spec.image;
    match (same_image, there.spec.track) {
        (true, _) => Step::Nothing,
        // It was this run's, and somebody has changed it since.
        (false, true) if age(there) == age(wanted) => Step::Nothing,
        // An older run that is heard of again takes nothing back.
        (false, true) if age(there) > age(wanted) => Step::Older(format!(
            "the Release {} has the image of a newer run already: {}",
            there.metadata.name.as_deref().unwrap_or_default(),
            age(there).1.unwrap_or_default(),
        )),
        (false, true) => Step::Move(there.metadata.resource_version.clone()),
        (false, false) => Step::Refuse(format!(
            "there is a Release {} of {} already; a Release does not change: name another one, or make that one with track: true",
            there.metadata.name.as_deref().unwrap_or_default(),
            there.spec.image,
        )),
    }
}

/// Notes something on a run.
async fn note(
    run: &BuildRun,
    context: &Context,
    key: &str,
    text: String,
) -> Result<Action, ReconcileError> {
    let api = write::beside(&context.client, run.metadata.namespace.as_deref().unwrap_or_default());
    let patch = json!({ "metadata": { "annotations": { key: bounded(&text) } } });
    write::object(&api, run.clone(), Some(patch)).await?;
    Ok(Action::await_change())
}

async fn released(
    run: &BuildRun,
    context: &Context,
    wanted: &Release,
) -> Result<Action, ReconcileError> {
    note(run, context, RELEASED, id(wanted)).await
}

async fn done(
    run: &BuildRun,
    context: &Context,
    wanted: &Release,
    what: &str,
) -> Result<Action, ReconcileError> {
    let (namespace, name) = (run.metadata.namespace.as_deref(), run.metadata.name.as_deref());
    let note =
        format!("the Release {} {what}", wanted.metadata.name.as_deref().unwrap_or_default());
    tracing::info!(namespace, name, note, "a run became a Release");
    tell(&context.recorder, run, &News { warning: false, reason: "Released".to_owned(), note })
        .await;
    released(run, context, wanted).await
}

async fn refused(
    run: &BuildRun,
    context: &Context,
    noted: String,
    why: String,
) -> Result<Action, ReconcileError> {
    let news = News { warning: true, reason: NOT.to_owned(), note: why };
    became_none(run, context, noted, news).await
}

/// Noted before it is told: what cannot be noted is tried again, and would be told each time.
async fn became_none(
    run: &BuildRun,
    context: &Context,
    noted: String,
    news: News,
) -> Result<Action, ReconcileError> {
    let (namespace, name) = (run.metadata.namespace.as_deref(), run.metadata.name.as_deref());
    let action = note(run, context, NOT_RELEASED, noted).await?;
    match news.warning {
        true => tracing::warn!(namespace, name, note = news.note, "a run became no Release"),
        false => tracing::info!(namespace, name, note = news.note, "a run became no Release"),
    }
    tell(&context.recorder, run, &news).await;
    Ok(action)
}

/// What the server refuses for good is noted; the rest is tried again, a quota that is full included.
async fn failed(
    run: &BuildRun,
    context: &Context,
    wanted: &Release,
    (step, error): (&'static str, kube::Error),
) -> Result<Action, ReconcileError> {
    match error {
        kube::Error::Api(told) if write::is_final(told.code, &told.message) => {
            let why = format!("{step}: {}", told.message);
            refused(run, context, against(wanted, &why), why).await
        }
        error => Err(ReconcileError::at(step)(error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn run(change: impl FnOnce(&mut Value)) -> BuildRun {
        let digest = Digest::sha256(b"index").to_string();
        let mut run = json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
            "metadata": {"name": "run-7", "namespace": "team", "labels": {RELEASE: "app-7"}},
            "spec": {"build": {"name": "app"}},
            "status": {
                "conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": ""}],
                "buildSpec": {
                    "strategy": {"name": "s"},
                    "output": {"image": "r.example/app:7", "pushSecret": "login"},
                },
                "output": {"digest": digest}, "completionTime": "2026-01-02T00:00:00Z",
            },
        });
        change(&mut run);
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn a_run_that_succeeded_becomes_a_release_of_the_digest_it_made() {
        let digest = Digest::sha256(b"index");
        let release = wanted(&run(|_| ())).unwrap().unwrap();
        assert_eq!(release.spec.image, format!("r.example/app:7@{digest}"));
        assert_eq!(release.spec.pull_secrets[0].name, "login");
        assert!(release.spec.require_verification && !release.spec.track);
        assert_eq!(release.metadata.annotations.unwrap()[BUILD_RUN], "run-7");
        let told = wanted(&run(|run| {
            run["metadata"]["annotations"] =
                json!({RELEASE_POLICY: "makers", RELEASE_REQUIRE_VERIFICATION: "false"});
            run["spec"]["output"] = json!({"image": "r.example/other:1"});
        }));
        let spec = told.unwrap().unwrap().spec;
        assert_eq!(spec.policy.unwrap().config_map, "makers");
        assert_eq!(spec.image, format!("r.example/other:1@{digest}"));
        assert!(!spec.require_verification);
    }

    #[test]
    fn a_run_that_did_not_succeed_or_tells_too_little_becomes_none() {
        let changes: [fn(&mut Value); 4] = [
            |run| run["metadata"]["labels"] = json!({}),
            |run| run["status"]["conditions"][0]["status"] = json!("False"),
            |run| run["status"]["conditions"][0]["status"] = json!("Unknown"),
            |run| run["status"] = Value::Null,
        ];
        for change in changes {
            assert!(wanted(&run(change)).is_none());
        }
        let changes: [fn(&mut Value); 4] = [
            |run| run["status"]["output"] = json!({}),
            |run| run["status"]["output"]["digest"] = json!("sha256:1"),
            |run| run["status"]["buildSpec"] = Value::Null,
            |run| run["metadata"]["annotations"] = json!({RELEASE_REQUIRE_VERIFICATION: "no"}),
        ];
        for change in changes {
            wanted(&run(change)).unwrap().expect_err("it cannot be released");
        }
    }

    #[test]
    fn a_run_becomes_a_release_once_and_is_refused_once() {
        let noted = |key: &'static str, text: String| {
            move |run: &mut Value| run["metadata"]["annotations"] = json!({ key: text })
        };
        let new = wanted(&run(|_| ())).unwrap().unwrap();
        let digest = Digest::sha256(b"index");
        assert_eq!(id(&new), format!("app-7@{digest}"));
        // Whether its Release is still there is not even asked.
        assert!(wanted(&run(noted(RELEASED, id(&new)))).is_none());
        let why = against(&new, "there is one already");
        assert!(wanted(&run(noted(NOT_RELEASED, why.clone()))).is_none());
        // Somebody who names another Release gets it.
        for (key, text) in [(RELEASED, id(&new)), (NOT_RELEASED, why)] {
            let other = run(|run| {
                noted(key, text)(run);
                run["metadata"]["labels"] = json!({RELEASE: "app-8"});
            });
            let name = wanted(&other).unwrap().unwrap().metadata.name;
            assert_eq!(name.as_deref(), Some("app-8"), "{key}");
        }
        // What cannot be a Release is told once, and becomes one as soon as it can.
        let odd = |run: &mut Value| run["status"]["output"] = json!({});
        let why = wanted(&run(odd)).unwrap().unwrap_err();
        let told = noted(NOT_RELEASED, bounded(&why));
        assert!(wanted(&run(|run| (odd(run), told.clone()(run)).1)).is_none());
        assert!(wanted(&run(told)).unwrap().is_ok());
    }

    #[test]
    fn a_release_that_is_there_is_only_moved_where_it_follows() {
        let new = wanted(&run(|_| ())).unwrap().unwrap();
        assert_eq!(step(&new, None), Step::Create);
        assert_eq!(step(&new, Some(&new)), Step::Nothing);
        let mut other = new.clone();
        other.spec.image = "r.example/app:6".to_owned();
        let ended = |at: &str| Some([(BUILD_RUN_COMPLETED.to_owned(), at.to_owned())].into());
        other.metadata.annotations = ended("2026-01-01T00:00:00Z");
        assert!(matches!(step(&new, Some(&other)), Step::Refuse(why) if why.contains("track")));
        other.spec.track = true;
        assert_eq!(step(&new, Some(&other)), Step::Move(None));
        other.metadata.annotations = ended("2026-01-03T00:00:00Z");
        let older = step(&new, Some(&other));
        assert!(matches!(older, Step::Older(_)), "an older run takes nothing back: {older:?}");
    }
    #[test]
    fn of_two_runs_that_end_in_the_same_second_one_wins_whichever_is_heard_of_first() {
        let of = |name: &str, digest: &str| {
            let ran = run(|run| {
                run["metadata"]["name"] = json!(name);
                run["status"]["output"]["digest"] = json!(Digest::sha256(digest.as_bytes()));
            });
            let mut release = wanted(&ran).unwrap().unwrap();
            release.spec.track = true;
            release
        };
        let (first, second) = (of("run-7", "a"), of("run-8", "b"));
        assert_eq!(step(&second, Some(&first)), Step::Move(None));
        let older = step(&first, Some(&second));
        assert!(matches!(&older, Step::Older(why) if why.contains("run-8")), "{older:?}");
        // It is done with, and is not said to have become one.
        let Step::Older(why) = older else { return };
        let noted = run(|run| {
            run["status"]["output"]["digest"] = json!(Digest::sha256(b"a"));
            run["metadata"]["annotations"] = json!({NOT_RELEASED: against(&first, &why)});
        });
        assert!(wanted(&noted).is_none());
    }
}
