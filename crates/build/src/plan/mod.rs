//! From a Build, one run of it, a strategy, a class and its platforms to what is done. Pure: the
//! same resources give the same plan, and nothing but these is looked at.
//!
//! Where upstream's behaviour, the proposal and users' questions leave a choice, the answer is in
//! `docs/builds.md`.

mod check;
mod class;
mod compose;
mod effective;
mod given;
mod literal;
mod owned;
mod parts;
mod platforms;
mod refusal;
mod register;
mod rows;
mod strategy;
mod task;
mod values;

use std::collections::BTreeMap;

use portolan_api::build::{
    Build, BuildRun, BuildSpec, BuildStrategy, ClusterBuildStrategy, Parameter, StrategyRef,
    StrategySpec,
};
use portolan_api::names::is_label_value;
use portolan_api::platform::{ImagePlatform, ImagePlatformClass};
use portolan_api::reason::Reason;
use portolan_api::{Duration, ResourceExt, keys};
use portolan_core::RegistryReference;

pub use check::Timestamp;
pub use class::status as class_status;
pub(crate) use owned::{LOCK_FILE, SOURCE_ROOT};
pub(crate) use platforms::PLATFORM_PARAMS;
pub use refusal::Refusal;
pub use register::registration;
pub use rows::{Row, rows};
pub use task::{
    Owner, Param, Phases, Plan, PlatformTask, Pod, Step, Task, TaskResult, Value, Work,
};

use self::effective::Effective;
use self::refusal::Refusals;
use crate::names;

/// What a service account is called that is made for one run.
pub const GENERATED_ACCOUNT: &str = ".generate";

/// The resources that a run may refer to. Those of a namespace are all of the run's own.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// Builds.
    pub builds: Vec<Build>,
    /// Strategies of the namespace.
    pub strategies: Vec<BuildStrategy>,
    /// Strategies of the cluster.
    pub cluster_strategies: Vec<ClusterBuildStrategy>,
    /// Classes, each with its status.
    pub classes: Vec<ImagePlatformClass>,
    /// What classes name.
    pub image_platforms: Vec<ImagePlatform>,
}

/// What the operator decides.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The image that our own steps run.
    pub step_image: String,
    /// Who runs pods where a run names nobody.
    pub service_account: Option<String>,
    /// Where sources are stored; beside the image where nothing is said.
    pub source_repository: Option<RegistryReference>,
    /// When a run that was never stored counts as made: seconds since 1970.
    pub created: i64,
}

/// A strategy, of whichever kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strategy<'a> {
    kind: StrategyKind,
    name: &'a str,
    generation: Option<i64>,
    annotations: &'a BTreeMap<String, String>,
    spec: &'a StrategySpec,
}

impl<'a> Strategy<'a> {
    fn of(kind: StrategyKind, object: &'a impl ResourceExt, spec: &'a StrategySpec) -> Self {
        let meta = object.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        Self { kind, name, generation: meta.generation, annotations: object.annotations(), spec }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StrategyKind {
    Namespaced,
    Cluster,
}

/// Plans a run.
///
/// # Errors
/// Everything that speaks against it, in the order in which it is looked at; nothing must be made
/// for such a run.
pub fn plan(run: &BuildRun, objects: &Objects, settings: &Settings) -> Result<Plan, Vec<Refusal>> {
    let mut refusals = Refusals::default();
    let name = run_name(run);
    check_run_name(&name, &mut refusals);
    let named = run.spec.build.name.as_ref();
    let build = named.and_then(|name| objects.builds.iter().find(|b| b.name_any() == *name));
    let Some(spec) = effective::spec(run, build, &mut refusals) else { return Err(refusals.0) };
    if let Some(build) = build.filter(|build| !is_label_value(&build.name_any())) {
        refusals.add(
            Reason::BuildNameInvalid,
            format!("the Build's name {:?} is not a label value", build.name_any()),
        );
    }
    let effective = merged(run, spec, &mut refusals);
    let created = run.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    let created = created.unwrap_or(settings.created);
    let timestamp = check::timestamp(&effective, created, &mut refusals);
    let namespace = run.metadata.namespace.as_deref();
    // Of a Build that is in the cluster its own status says the same word.
    let unknown = match named {
        Some(_) => Reason::UnknownBuildStrategyKind,
        None => Reason::UnknownStrategyKind,
    };
    let found = find_strategy(&effective.strategy, objects, (namespace, unknown), &mut refusals);
    let Some(strategy) = found else { return Err(refusals.0) };
    let declared = &strategy.spec.parameters;
    check::params(&effective.params, declared, "", &mut refusals);
    check::volumes(&effective.volumes, strategy.spec, &mut refusals);
    check::step_resources(&effective.step_resources, strategy.spec, &mut refusals);
    let pod = base_pod(&effective);
    check::pod(&pod, "", &mut refusals);
    let ways = platforms::ways(&effective, &pod, declared, objects, &mut refusals);
    missing_params(&effective, ways.as_deref(), declared, &mut refusals);
    let outputs = outputs(&effective, ways.is_some(), &mut refusals)
        .map(|outputs| outputs.with_sources(settings.source_repository.as_ref()));
    let uid = run.metadata.uid.clone();
    let unique = uid.clone().unwrap_or_else(|| format!("{}/{name}", namespace.unwrap_or_default()));
    let composing = compose::Composing {
        effective: &effective,
        strategy: strategy.spec,
        timestamp,
        settings,
        prune: prune_asked(run),
        run: &unique,
    };
    let Some(work) = work(&composing, ways.as_deref(), outputs, &mut refusals) else {
        return Err(refusals.0);
    };
    refusals.or(Plan {
        name: names::unique_name(&name, &unique),
        namespace: run.metadata.namespace.clone(),
        labels: labels(run, &name, build, strategy),
        annotations: annotations(strategy, ways.as_deref()),
        owner: uid.map(|uid| Owner { name: name.clone(), uid }),
        service_account: service_account(run, name, settings),
        timeout: effective.timeout,
        pod,
        work,
    })
}

/// What Build and run say together, judged as far as that needs no other resource.
fn merged(run: &BuildRun, spec: &BuildSpec, refusals: &mut Refusals) -> Effective {
    spec.trigger.iter().for_each(|trigger| check::trigger(trigger, refusals));
    let effective = effective::merge(spec, &run.spec);
    effective.source.iter().for_each(|source| check::source(source, refusals));
    check::env(&effective.env, refusals);
    check::scan(&effective, refusals);
    effective
}

/// One image, or one for each platform; nothing of many where anything speaks against them.
fn work(
    composing: &compose::Composing<'_>,
    ways: Option<&[platforms::Way]>,
    outputs: Option<names::Outputs>,
    refusals: &mut Refusals,
) -> Option<Work> {
    match (ways, outputs) {
        (Some(ways), Some(outputs)) if refusals.0.is_empty() => {
            composing.multi(ways, &outputs, refusals).map(Work::Multi)
        }
        (None, _) => composing.single(refusals).map(Work::Single),
        _ => None,
    }
}

fn service_account(run: &BuildRun, name: String, settings: &Settings) -> Option<String> {
    match run.spec.service_account.as_deref() {
        Some(GENERATED_ACCOUNT) => Some(name),
        Some(account) => Some(account.to_owned()),
        None => settings.service_account.clone(),
    }
}

/// The name of a run; one that a cluster would complete is completed here too, always the same
/// way.
fn run_name(run: &BuildRun) -> String {
    let metadata = &run.metadata;
    match (&metadata.name, &metadata.generate_name) {
        (Some(name), _) => name.clone(),
        (None, Some(prefix)) => format!("{prefix}run"),
        (None, None) => String::new(),
    }
}

/// Everything that is made for a run is found by a label with its name.
fn check_run_name(name: &str, refusals: &mut Refusals) {
    if !is_label_value(name) || name.is_empty() {
        refusals.add(
            Reason::BuildRunNameInvalid,
            format!("the BuildRun's name {name:?} is not a label value of 1 to 63 characters"),
        );
    }
}

fn find_strategy<'a>(
    reference: &StrategyRef,
    objects: &'a Objects,
    (namespace, unknown): (Option<&str>, Reason),
    refusals: &mut Refusals,
) -> Option<Strategy<'a>> {
    let name = &reference.name;
    match reference.kind.as_deref() {
        None | Some("" | "BuildStrategy") => {
            let found = objects.strategies.iter().find(|strategy| strategy.name_any() == *name);
            if found.is_none() {
                let namespace = namespace.unwrap_or("default");
                refusals.add(
                    Reason::BuildStrategyNotFound,
                    format!("buildStrategy {name} does not exist in namespace {namespace}"),
                );
            }
            found.map(|found| Strategy::of(StrategyKind::Namespaced, found, &found.spec.0))
        }
        Some("ClusterBuildStrategy") => {
            let found = objects.cluster_strategies.iter().find(|s| s.name_any() == *name);
            if found.is_none() {
                refusals.add(
                    Reason::ClusterBuildStrategyNotFound,
                    format!("clusterBuildStrategy {name} does not exist"),
                );
            }
            found.map(|found| Strategy::of(StrategyKind::Cluster, found, &found.spec.0))
        }
        Some(other) => {
            refusals.add(
                unknown,
                format!(
                    "unknown strategy kind {other} used, must be one of BuildStrategy, or ClusterBuildStrategy"
                ),
            );
            None
        }
    }
}

fn base_pod(effective: &Effective) -> Pod {
    Pod {
        node_selector: effective.node_selector.clone(),
        tolerations: effective.tolerations.clone(),
        scheduler_name: effective.scheduler_name.clone(),
        runtime_class_name: effective.runtime_class_name.clone(),
    }
}

/// What is missing for one platform may be said for another, so each is looked at.
fn missing_params(
    effective: &Effective,
    ways: Option<&[platforms::Way]>,
    declared: &[Parameter],
    refusals: &mut Refusals,
) {
    let own: Vec<&str> = effective.params.iter().map(|param| param.name.as_str()).collect();
    let Some(ways) = ways.filter(|ways| !ways.is_empty()) else {
        return check::missing(&own, declared, refusals);
    };
    let before = refusals.0.len();
    for way in ways {
        let given: Vec<&str> =
            own.iter().copied().chain(way.params.iter().map(|param| param.name.as_str())).collect();
        check::missing(&given, declared, refusals);
        if refusals.0.len() > before {
            return;
        }
    }
}

/// Where everything goes; of one image nothing is asked, as before.
fn outputs(effective: &Effective, multi: bool, refusals: &mut Refusals) -> Option<names::Outputs> {
    if !multi {
        return None;
    }
    match names::Outputs::parse(&effective.image) {
        Ok(outputs) if matches!(outputs.index(), portolan_core::Reference::Registry(_)) => {
            Some(outputs)
        }
        Ok(_) => {
            refusals.add(
                Reason::OutputImageNotValid,
                format!(
                    "output.image {:?} is a directory; pods push to registries",
                    effective.image
                ),
            );
            None
        }
        Err(error) => {
            let error = portolan_core::causes::chain(&error);
            refusals.add(Reason::OutputImageNotValid, format!("output.image: {error}"));
            None
        }
    }
}

fn prune_asked(run: &BuildRun) -> bool {
    run.annotations().get(keys::PRUNE_SOURCE).is_some_and(|value| value == "true")
}

fn labels(
    run: &BuildRun,
    name: &str,
    build: Option<&Build>,
    strategy: Strategy<'_>,
) -> BTreeMap<String, String> {
    let kind = match strategy.kind {
        StrategyKind::Namespaced => "buildstrategy",
        StrategyKind::Cluster => "clusterbuildstrategy",
    };
    let mut labels = BTreeMap::from([
        (keys::BUILD_RUN_NAME.to_owned(), name.to_owned()),
        (format!("{kind}.shipwright.io/name"), strategy.name.to_owned()),
    ]);
    let mut generation = |key: String, generation: Option<i64>| {
        labels.extend(generation.map(|generation| (key, generation.to_string())));
    };
    generation(keys::BUILD_RUN_GENERATION.to_owned(), run.metadata.generation);
    generation(format!("{kind}.shipwright.io/generation"), strategy.generation);
    if let Some(build) = build {
        generation(keys::BUILD_GENERATION.to_owned(), build.metadata.generation);
        labels.insert(keys::BUILD_NAME.to_owned(), build.name_any());
    }
    // A strategy's name may be longer than a label's value; such a label would stop everything.
    labels.retain(|_, value| is_label_value(value));
    labels
}

fn annotations(
    strategy: Strategy<'_>,
    ways: Option<&[platforms::Way]>,
) -> BTreeMap<String, String> {
    let own = |key: &str| {
        key == keys::LAST_APPLIED || keys::OWN_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
    };
    let copied = strategy.annotations.iter().filter(|(key, _)| !own(key));
    let mut all: BTreeMap<String, String> =
        copied.map(|(key, value)| (key.clone(), value.clone())).collect();
    if let Some(identity) = strategy.spec.security_context {
        let lines = owned::identity_annotations(identity);
        all.extend(lines.map(|(key, value)| (key.to_owned(), value)));
    }
    let used: serde_json::Map<String, serde_json::Value> = ways
        .into_iter()
        .flatten()
        .filter_map(|way| {
            let (name, generation) = way.image_platform.as_ref()?;
            let value = serde_json::json!({ "name": name, "generation": generation });
            Some((way.platform.to_string(), value))
        })
        .collect();
    if !used.is_empty() {
        let text = serde_json::Value::Object(used).to_string();
        all.insert(keys::IMAGE_PLATFORMS.to_owned(), text);
    }
    all
}

/// A duration as Go writes it.
pub fn duration(duration: Duration) -> String {
    serde_json::to_value(duration)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .expect("a duration is a text")
}
