//! Whether a run begins, and with what: the order of upstream, with the proposal's checks. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Volume;
use portolan_api::build::{Build, BuildRun, BuildSpec};
use portolan_api::condition::{self, Condition, Status};
use portolan_api::platform::{AVAILABLE, ImagePlatform, ImagePlatformClass};
use portolan_api::reason::{Reason, outcome};
use portolan_build::plan::{self, GENERATED_ACCOUNT, Objects, Plan, Refusal, Work};

use super::mirror::is_canceled;
use crate::builds::register;

/// A class whose status does not speak of what is there yet is waited for that long after the run was
/// made, so that platforms, class and run can be applied together, in this order. A class or platform that
/// is not there is not waited for, no more than a Build or a strategy: who mistyped a name is told at once.
const CLASS_PATIENCE: Duration = Duration::from_secs(10);
/// How long until it is looked at again.
const CLASS_PAUSE: Duration = Duration::from_millis(200);
/// Accounts of runs that name none, the first that is there.
pub const USUAL_ACCOUNTS: [&str; 2] = ["pipeline", "default"];

/// What is wrong with the run itself comes before anything else is looked at.
const EARLY: [Reason; 6] = [
    Reason::BuildRunNameInvalid,
    Reason::BuildRunNoRefOrSpec,
    Reason::BuildRunAmbiguousBuild,
    Reason::BuildRunBuildFieldOverrideForbidden,
    Reason::BuildNotFound,
    Reason::BuildNameInvalid,
];

/// What a run is decided by.
#[derive(Debug, Default)]
pub struct World {
    /// The Build, strategy, class and platforms that it names, as far as they are there.
    pub objects: Objects,
    /// Secrets of its namespace that it names and that are there.
    pub secrets: BTreeSet<String>,
    /// Accounts of its namespace that it may use and that are there.
    pub accounts: BTreeSet<String>,
}

/// What is done with a run that has no executor.
#[derive(Debug)]
pub enum Decision {
    /// The executor is made.
    Begin(Box<Plan>),
    /// Nothing is made.
    Refuse {
        /// In one word.
        reason: String,
        /// In a sentence.
        message: String,
    },
    /// It is looked at again after this time.
    Wait(Duration),
}

impl Decision {
    fn refuse(reason: &str, message: impl Into<String>) -> Self {
        Self::Refuse { reason: reason.to_owned(), message: message.into() }
    }
}

/// Decides on a run. `settings.service_account` is whom the operator wants to run pods.
pub fn decide(
    run: &BuildRun,
    world: &World,
    settings: &plan::Settings,
    now: Timestamp,
) -> Decision {
    let account = account(run, world, settings.service_account.as_deref());
    let settings = plan::Settings {
        service_account: account.as_ref().ok().map(|name| (*name).to_owned()),
        ..settings.clone()
    };
    let planned = plan::plan(run, &world.objects, &settings);
    if let Err(refusals) = &planned
        && refusals.first().is_some_and(|first| EARLY.contains(&first.reason))
    {
        return all(refusals);
    }
    if let Some(build) = build(run, world)
        && let Err((reason, _)) = register::check(build, world)
    {
        let name = build.metadata.name.as_deref().unwrap_or_default();
        let message = format!(
            "the Build is not registered correctly, build: {name}, registered status: False, reason: {reason}"
        );
        return Decision::refuse(outcome::BUILD_REGISTRATION_FAILED, message);
    }
    if is_canceled(run) {
        return Decision::refuse(outcome::CANCELED, "the BuildRun is marked canceled.");
    }
    if is_fresh(run, world, now) {
        return Decision::Wait(CLASS_PAUSE);
    }
    match (planned, account) {
        (_, Err(missing)) => {
            let message = format!("service account {missing} not found");
            Decision::refuse(outcome::ACCOUNT_NOT_FOUND, message)
        }
        (Err(refusals), Ok(_)) => all(&refusals),
        (Ok(plan), Ok(_)) => Decision::Begin(Box::new(plan)),
    }
}

/// The first reason, and every message: whoever mends one must not find the next only then.
fn all(refusals: &[Refusal]) -> Decision {
    let Some((first, rest)) = refusals.split_first() else {
        return Decision::refuse(outcome::FAILED, "refused without a reason");
    };
    let mut message = first.message.clone();
    for refusal in rest {
        message.push_str("; ");
        match refusal.reason == first.reason {
            true => message.push_str(&refusal.message),
            false => message.push_str(&refusal.to_string()),
        }
    }
    Decision::refuse(first.reason.as_str(), message)
}

/// The Build that a run names.
pub fn build<'a>(run: &BuildRun, world: &'a World) -> Option<&'a Build> {
    let name = run.spec.build.name.as_deref()?;
    world.objects.builds.iter().find(|build| build.metadata.name.as_deref() == Some(name))
}

/// What is run: the named Build's, or the run's own.
pub fn spec<'a>(run: &'a BuildRun, world: &'a World) -> Option<&'a BuildSpec> {
    match &run.spec.build.spec {
        Some(own) => Some(own),
        None => build(run, world).map(|build| &build.spec),
    }
}

/// The class that a run names, or its Build.
pub fn class_name<'a>(run: &'a BuildRun, spec: Option<&'a BuildSpec>) -> Option<&'a str> {
    let own = run.spec.output.as_ref().map(|output| &output.settings);
    let both = own.into_iter().chain(spec.map(|spec| &spec.output.settings));
    // Platforms of a run take the place of its Build's class.
    let said = both.into_iter().find(|s| s.multi_arch.is_some() || !s.platforms.is_empty())?;
    said.multi_arch.as_ref().map(|multi_arch| multi_arch.image_platform_class.as_str())
}

/// Whether the run's class has not been looked at since it or its platforms were made or changed, and
/// there is still time for that.
fn is_fresh(run: &BuildRun, world: &World, now: Timestamp) -> bool {
    let Some(name) = class_name(run, spec(run, world)) else { return false };
    let mut classes = world.objects.classes.iter();
    let Some(class) = classes.find(|class| class.metadata.name.as_deref() == Some(name)) else {
        return false;
    };
    let created = run.metadata.creation_timestamp.as_ref();
    let young = created.is_some_and(|created| {
        let age = Duration::try_from(now.duration_since(created.0)).unwrap_or_default();
        age < CLASS_PATIENCE
    });
    young && !is_current(class, &world.objects.image_platforms)
}

/// Whether a class's status says what would be said of it now. Its generation alone does not tell:
/// it stays the same when a platform comes or changes.
fn is_current(class: &ImagePlatformClass, platforms: &[ImagePlatform]) -> bool {
    let would_say = plan::class_status(class, platforms);
    let said = class.status.as_ref().and_then(|status| available(&status.conditions));
    said.is_some() && said == available(&would_say.conditions)
}

/// What a class's condition says, in which words, and of which generation: a refusal repeats the words.
fn available(conditions: &[Condition]) -> Option<(Status, &str, &str, Option<i64>)> {
    let found = condition::find(conditions, AVAILABLE)?;
    Some((found.status, &found.reason, &found.message, found.observed_generation))
}

/// Who runs the pods.
///
/// # Errors
/// The account that is missing.
fn account<'a>(
    run: &'a BuildRun,
    world: &World,
    wanted: Option<&'a str>,
) -> Result<&'a str, &'a str> {
    let there = |name: &str| world.accounts.contains(name);
    match (run.spec.service_account.as_deref().filter(|name| !name.is_empty()), wanted) {
        (Some(GENERATED_ACCOUNT), _) => Ok(GENERATED_ACCOUNT),
        (Some(name), _) | (None, Some(name)) => {
            if there(name) {
                Ok(name)
            } else {
                Err(name)
            }
        }
        (None, None) => {
            let usual = USUAL_ACCOUNTS.into_iter().find(|name| there(name));
            usual.ok_or(USUAL_ACCOUNTS[1])
        }
    }
}

/// The secret that opens the registry: the run's, else the Build's.
pub fn push_secret<'a>(run: &'a BuildRun, spec: Option<&'a BuildSpec>) -> Option<&'a str> {
    let own = run.spec.output.as_ref().and_then(|output| output.settings.push_secret.as_deref());
    own.or_else(|| spec.and_then(|spec| spec.output.settings.push_secret.as_deref()))
        .filter(|name| !name.is_empty())
}

/// What a plan mounts and what must therefore be there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mounted {
    /// Secrets.
    pub secrets: BTreeSet<String>,
    /// Config maps.
    pub config_maps: BTreeSet<String>,
}

/// Secrets and config maps in the volumes of a plan, unless they may be missing.
pub fn mounted(plan: &Plan) -> Mounted {
    let volumes: Vec<&Volume> = match &plan.work {
        Work::Single(task) => task.volumes.iter().collect(),
        Work::Multi(phases) => {
            let tasks = phases.source.iter().chain(phases.platforms.iter().map(|p| &p.task));
            let rest = std::iter::once(&phases.index).chain(&phases.prune);
            tasks.chain(rest).flat_map(|task| &task.volumes).collect()
        }
    };
    let mut mounted = Mounted::default();
    for volume in volumes {
        if let Some(secret) = &volume.secret
            && secret.optional != Some(true)
        {
            mounted.secrets.extend(secret.secret_name.clone());
        }
        if let Some(map) = &volume.config_map
            && map.optional != Some(true)
        {
            mounted.config_maps.insert(map.name.clone());
        }
        let projected = volume.projected.iter().filter_map(|p| p.sources.as_ref()).flatten();
        for source in projected {
            if let Some(secret) = source.secret.as_ref().filter(|s| s.optional != Some(true)) {
                mounted.secrets.insert(secret.name.clone());
            }
            if let Some(map) = source.config_map.as_ref().filter(|m| m.optional != Some(true)) {
                mounted.config_maps.insert(map.name.clone());
            }
        }
    }
    mounted
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn run(spec: &Value) -> BuildRun {
        read(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
            "metadata": {"name": "app-1", "namespace": "team", "uid": "u", "creationTimestamp": at(100)},
            "spec": spec,
        }))
    }

    fn world(output: &Value) -> World {
        let mut world = World::default();
        world.objects.builds.push(read(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "Build",
            "metadata": {"name": "app", "namespace": "team"},
            "spec": {"strategy": {"name": "s"}, "output": output},
        })));
        world.objects.strategies.push(read(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildStrategy",
            "metadata": {"name": "s", "namespace": "team"},
            "spec": {"steps": [{"name": "build", "image": "a"}]},
        })));
        world.accounts.insert("default".to_owned());
        world
    }

    fn settings() -> plan::Settings {
        plan::Settings {
            step_image: "p".to_owned(),
            service_account: None,
            source_repository: None,
            created: 0,
        }
    }

    fn decided(run: &BuildRun, world: &World, now: i64) -> Decision {
        decide(run, world, &settings(), at(now))
    }

    fn refused(decision: Decision) -> (String, String) {
        match decision {
            Decision::Refuse { reason, message } => (reason, message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_upstreams_order() {
        let image = json!({"image": "registry.example/a:1"});
        let plain = run(&json!({"build": {"name": "app"}}));
        let named =
            |name: &str| run(&json!({"build": {"name": name}, "state": "BuildRunCanceled"}));
        let (reason, message) = refused(decided(&named("nobody"), &world(&image), 101));
        assert_eq!((reason.as_str(), message.contains("nobody")), ("BuildNotFound", true));
        let mut without = world(&image);
        without.objects.strategies.clear();
        let (reason, message) = refused(decided(&named("app"), &without, 101));
        assert_eq!(reason, "BuildRegistrationFailed", "before it is canceled");
        assert!(
            message
                .ends_with("build: app, registered status: False, reason: BuildStrategyNotFound"),
            "{message}"
        );
        let (reason, message) = refused(decided(&named("app"), &world(&image), 101));
        assert_eq!(
            (reason.as_str(), message.as_str()),
            ("BuildRunCanceled", "the BuildRun is marked canceled.")
        );
        let mut nobody = world(&image);
        nobody.accounts.clear();
        assert_eq!(refused(decided(&plain, &nobody, 101)).0, "ServiceAccountNotFound");
        let embedded =
            run(&json!({"build": {"spec": {"strategy": {"name": "nobody"}, "output": image}}}));
        assert_eq!(refused(decided(&embedded, &world(&image), 101)).0, "BuildStrategyNotFound");
        let secret = world(&json!({"image": "registry.example/a:1", "pushSecret": "login"}));
        let (_, message) = refused(decided(&plain, &secret, 101));
        assert!(message.ends_with("reason: SpecOutputSecretRefNotFound"), "{message}");
    }

    #[test]
    fn who_runs_pods_is_the_runs_word_then_the_operators_then_the_usual() {
        let image = json!({"image": "registry.example/a:1"});
        let mut world = world(&image);
        world.accounts.extend(["pipeline".to_owned(), "builder".to_owned()]);
        for (own, operator, account) in [
            (json!(null), None, "pipeline"),
            (json!(null), Some("builder"), "builder"),
            (json!("default"), Some("builder"), "default"),
            (json!(".generate"), Some("builder"), "app-1"),
        ] {
            let run = run(&json!({"build": {"name": "app"}, "serviceAccount": own}));
            let settings =
                plan::Settings { service_account: operator.map(str::to_owned), ..settings() };
            match decide(&run, &world, &settings, at(101)) {
                Decision::Begin(plan) => assert_eq!(plan.service_account.as_deref(), Some(account)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_class_that_nobody_has_looked_at_is_waited_for_and_not_for_ever() {
        let output = json!({"image": "registry.example/a:1", "multiArch": {
            "imagePlatformClass": "all", "platforms": [{"os": "linux", "arch": "amd64"}],
        }});
        let mut world = world(&output);
        let run = run(&json!({"build": {"name": "app"}}));
        assert_eq!(refused(decided(&run, &world, 101)).0, "ImagePlatformClassNotFound");
        world.objects.classes.push(read(json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
            "metadata": {"name": "all", "generation": 2},
            "spec": {"imagePlatforms": [{"name": "amd64"}]},
        })));
        world.objects.image_platforms.push(read(json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform",
            "metadata": {"name": "amd64"},
            "spec": {"platform": {"os": "linux", "arch": "amd64"}, "nodeSelector": {"a": "b"}},
        })));
        assert!(matches!(decided(&run, &world, 109), Decision::Wait(_)));
        assert_eq!(refused(decided(&run, &world, 110)).0, "ImagePlatformClassNotAvailable");
        let class = &mut world.objects.classes[0];
        class.status = Some(plan::class_status(class, &world.objects.image_platforms));
        assert!(matches!(decided(&run, &world, 101), Decision::Begin(_)));
        // One that changed since it was looked at is not known either.
        world.objects.classes[0].metadata.generation = Some(3);
        assert!(matches!(decided(&run, &world, 101), Decision::Wait(_)));
        assert!(matches!(decided(&run, &world, 200), Decision::Begin(_)));
        // Nor one that was looked at before its platforms came, which changes no generation.
        let class = &mut world.objects.classes[0];
        class.status = Some(plan::class_status(class, &[]));
        assert!(matches!(decided(&run, &world, 101), Decision::Wait(_)));
        assert_eq!(refused(decided(&run, &world, 110)).0, "ImagePlatformClassNotAvailable");
        // What it says of them must be what holds now, since a refusal repeats it.
        let class = &mut world.objects.classes[0];
        class.spec.image_platforms.push(read(json!({"name": "arm64"})));
        class.status = Some(plan::class_status(class, &[]));
        assert!(matches!(decided(&run, &world, 101), Decision::Wait(_)));
        let class = &mut world.objects.classes[0];
        class.spec.image_platforms.pop();
        class.status = Some(plan::class_status(class, &[]));
        // Whose platforms are not there is refused at once.
        world.objects.image_platforms.clear();
        assert_eq!(refused(decided(&run, &world, 101)).0, "ImagePlatformClassNotAvailable");
    }

    #[test]
    fn everything_that_is_mounted_must_be_there_unless_it_may_be_missing() {
        let mut world = world(
            &json!({"image": "registry.example/a:1", "annotations": {"a": "b"}, "pushSecret": "login"}),
        );
        world.secrets.insert("login".to_owned());
        world.objects.strategies[0] = read(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildStrategy",
            "metadata": {"name": "s", "namespace": "team"},
            "spec": {
                "steps": [{"name": "build", "image": "a", "volumeMounts": [
                    {"name": "one", "mountPath": "/1", "readOnly": true},
                    {"name": "two", "mountPath": "/2", "readOnly": true},
                    {"name": "maybe", "mountPath": "/3", "readOnly": true},
                ]}],
                "volumes": [
                    {"name": "one", "configMap": {"name": "map"}},
                    {"name": "two", "projected": {"sources": [
                        {"secret": {"name": "inner"}}, {"configMap": {"name": "inner-map"}},
                        {"secret": {"name": "whatever", "optional": true}},
                    ]}},
                    {"name": "maybe", "secret": {"secretName": "whatever", "optional": true}},
                ],
            },
        }));
        let Decision::Begin(plan) = decided(&run(&json!({"build": {"name": "app"}})), &world, 101)
        else {
            panic!("it begins");
        };
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        let wanted = Mounted {
            secrets: names(&["inner", "login"]),
            config_maps: names(&["inner-map", "map"]),
        };
        assert_eq!(mounted(&plan), wanted);
    }
}
