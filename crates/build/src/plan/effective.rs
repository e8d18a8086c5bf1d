//! What a Build and one run of it ask for together.

use std::collections::BTreeMap;

use portolan_api::build::{
    Build, BuildRun, BuildRunSpec, BuildSpec, Local, MultiArch, OutputOverride, OutputSettings,
    ParamValue, Source, SourceKind, StepResources, StrategyRef,
};
use portolan_api::k8s_openapi::api::core::v1::{EnvVar, Toleration, Volume};
use portolan_api::platform::Platform;
use portolan_api::reason::Reason;
use portolan_api::{Duration, ResourceExt as _};

use super::refusal::Refusals;

/// The two as one, every rule of which wins applied.
#[derive(Debug, Clone)]
pub(super) struct Effective {
    pub(super) source: Option<Source>,
    pub(super) strategy: StrategyRef,
    pub(super) image: String,
    /// Of the output, all but `multiArch` and `platforms`.
    pub(super) output: OutputSettings,
    pub(super) platforms: Platforms,
    pub(super) params: Vec<ParamValue>,
    pub(super) env: Vec<EnvVar>,
    pub(super) volumes: Vec<Volume>,
    pub(super) step_resources: Vec<StepResources>,
    pub(super) node_selector: BTreeMap<String, String>,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) scheduler_name: Option<String>,
    pub(super) runtime_class_name: Option<String>,
    pub(super) timeout: Option<Duration>,
}

/// For which platforms.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Platforms {
    /// Whatever the strategy makes.
    Unsaid,
    /// As a class says.
    Class(MultiArch),
    /// Each on nodes of its own.
    Native(Vec<Platform>),
}

/// The spec that is run: the named Build's, or the run's own.
pub(super) fn spec<'a>(
    run: &'a BuildRun,
    build: Option<&'a Build>,
    refusals: &mut Refusals,
) -> Option<&'a BuildSpec> {
    let reference = &run.spec.build;
    match (&reference.name, &reference.spec) {
        (None, None) => {
            refusals.add(
                Reason::BuildRunNoRefOrSpec,
                "the BuildRun has neither build.name nor build.spec; one of them says what is run",
            );
            None
        }
        (Some(_), Some(_)) => {
            refusals.add(
                Reason::BuildRunAmbiguousBuild,
                "the BuildRun has build.name and build.spec; leave one of them out",
            );
            None
        }
        (None, Some(spec)) => {
            forbid_overrides(&run.spec, spec, refusals);
            Some(spec)
        }
        (Some(name), None) => match build {
            Some(build) if build.name_any() == *name => Some(&build.spec),
            _ => {
                refusals
                    .add(Reason::BuildNotFound, format!("build.shipwright.io {name:?} not found"));
                None
            }
        },
    }
}

/// A run with a Build of its own has one place to say things.
fn forbid_overrides(run: &BuildRunSpec, spec: &BuildSpec, refusals: &mut Refusals) {
    let said = [
        ("output", run.output.is_some()),
        ("paramValues", !run.param_values.is_empty()),
        ("env", !run.env.is_empty()),
        ("timeout", run.timeout.is_some()),
        ("nodeSelector", !run.node_selector.is_empty()),
        ("tolerations", !run.tolerations.is_empty()),
        ("schedulerName", run.scheduler_name.is_some()),
        ("runtimeClassName", run.runtime_class_name.is_some()),
        ("stepResources", !run.step_resources.is_empty()),
    ];
    for (field, _) in said.into_iter().filter(|(_, said)| *said) {
        refusals.add(
            Reason::BuildRunBuildFieldOverrideForbidden,
            format!("cannot use '{field}' override and 'buildSpec' simultaneously"),
        );
    }
    if spec.trigger.is_some() {
        refusals.add(
            Reason::BuildRunBuildFieldOverrideForbidden,
            "cannot use 'triggers' override and 'buildSpec' simultaneously",
        );
    }
}

/// Puts a spec and a run together.
pub(super) fn merge(spec: &BuildSpec, run: &BuildRunSpec) -> Effective {
    let none = OutputOverride::default();
    let over = run.output.as_ref().unwrap_or(&none);
    let output = &spec.output.settings;
    Effective {
        source: source(spec, run),
        strategy: spec.strategy.clone(),
        image: over
            .image
            .clone()
            .filter(|image| !image.is_empty())
            .unwrap_or_else(|| spec.output.image.clone()),
        platforms: platforms(output, &over.settings),
        output: settings(output, &over.settings),
        params: by_name(&spec.param_values, &run.param_values, |param| &param.name),
        env: by_name(&spec.env, &run.env, |variable| &variable.name),
        volumes: by_name(&spec.volumes, &run.volumes, |volume| &volume.name),
        step_resources: by_name(&spec.strategy.step_resources, &run.step_resources, |s| &s.name),
        node_selector: union(&spec.node_selector, &run.node_selector),
        tolerations: tolerations(&spec.tolerations, &run.tolerations),
        scheduler_name: run.scheduler_name.clone().or_else(|| spec.scheduler_name.clone()),
        runtime_class_name: run
            .runtime_class_name
            .clone()
            .or_else(|| spec.runtime_class_name.clone()),
        timeout: run.timeout.or(spec.timeout),
    }
}

fn source(spec: &BuildSpec, run: &BuildRunSpec) -> Option<Source> {
    let Some(over) = &run.source else { return spec.source.clone() };
    let context_dir = spec.source.as_ref().and_then(|source| source.context_dir.clone());
    let local = over.local.clone().unwrap_or(Local { name: None, timeout: None });
    let kind = SourceKind::Local;
    Some(Source { kind, context_dir, git: None, oci_artifact: None, local: Some(local) })
}

fn platforms(build: &OutputSettings, run: &OutputSettings) -> Platforms {
    let said = |output: &OutputSettings| match &output.multi_arch {
        Some(multi_arch) => Some(Platforms::Class(multi_arch.clone())),
        None if output.platforms.is_empty() => None,
        None => Some(Platforms::Native(output.platforms.clone())),
    };
    said(run).or_else(|| said(build)).unwrap_or(Platforms::Unsaid)
}

fn settings(build: &OutputSettings, run: &OutputSettings) -> OutputSettings {
    OutputSettings {
        insecure: run.insecure.or(build.insecure),
        // An empty name names nothing.
        push_secret: [&run.push_secret, &build.push_secret]
            .into_iter()
            .flatten()
            .find(|secret| !secret.is_empty())
            .cloned(),
        annotations: union(&build.annotations, &run.annotations),
        labels: union(&build.labels, &run.labels),
        timestamp: run.timestamp.clone().or_else(|| build.timestamp.clone()),
        vulnerability_scan: run
            .vulnerability_scan
            .clone()
            .or_else(|| build.vulnerability_scan.clone()),
        multi_arch: None,
        platforms: Vec::new(),
    }
}

fn union(
    build: &BTreeMap<String, String>,
    run: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = build.clone();
    all.extend(run.iter().map(|(key, value)| (key.clone(), value.clone())));
    all
}

/// The Build's in their order, each in the run's form where it has one, then the run's own.
fn by_name<T: Clone>(build: &[T], run: &[T], name: impl Fn(&T) -> &String) -> Vec<T> {
    let mut all = build.to_vec();
    for item in run {
        match all.iter_mut().find(|other| name(other) == name(item)) {
            Some(other) => *other = item.clone(),
            None => all.push(item.clone()),
        }
    }
    all
}

/// The run's first, then those of the Build whose key is not there yet.
fn tolerations(build: &[Toleration], run: &[Toleration]) -> Vec<Toleration> {
    let mut all = run.to_vec();
    all.extend(build.iter().filter(|item| run.iter().all(|r| r.key != item.key)).cloned());
    all.into_iter().map(with_effect).collect()
}

/// A toleration that says no effect means the only one that builds may tolerate.
pub(super) fn with_effect(mut toleration: Toleration) -> Toleration {
    if toleration.effect.as_deref().is_none_or(str::is_empty) {
        toleration.effect = Some("NoSchedule".to_owned());
    }
    toleration
}
