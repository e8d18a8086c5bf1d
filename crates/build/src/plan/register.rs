//! What is wrong with a Build by itself, before anybody runs it.

use portolan_api::ResourceExt as _;
use portolan_api::build::{Build, BuildRunSpec};
use portolan_api::names::is_label_value;
use portolan_api::reason::Reason;

use super::effective::Platforms;
use super::refusal::{Refusal, Refusals};
use super::{Objects, base_pod, check, effective, find_strategy, outputs, platforms};

/// Everything that speaks against a Build, in upstream's order; a status has room for the first.
/// Whether secrets are there is for whoever can look. What only a run can say, such as values that
/// are still missing and what its class has, is looked at when there is one.
pub fn registration(build: &Build, objects: &Objects) -> Vec<Refusal> {
    let mut refusals = Refusals::default();
    let effective = effective::merge(&build.spec, &BuildRunSpec::default());
    let namespace = build.metadata.namespace.as_deref();
    let place = (namespace, Reason::UnknownBuildStrategyKind);
    if let Some(strategy) = find_strategy(&effective.strategy, objects, place, &mut refusals) {
        check::params(&effective.params, &strategy.spec.parameters, "", &mut refusals);
        check::volumes(&effective.volumes, strategy.spec, &mut refusals);
        check::step_resources(&effective.step_resources, strategy.spec, &mut refusals);
    }
    effective.source.iter().for_each(|source| check::source(source, &mut refusals));
    check::timestamp(&effective, 0, &mut refusals);
    check::scan(&effective, &mut refusals);
    outputs(&effective, effective.platforms != Platforms::Unsaid, &mut refusals);
    let name = build.name_any();
    if !is_label_value(&name) {
        refusals.add(
            Reason::BuildNameInvalid,
            format!("the Build's name {name:?} is not a label value"),
        );
    }
    check::env(&effective.env, &mut refusals);
    build.spec.trigger.iter().for_each(|trigger| check::trigger(trigger, &mut refusals));
    let pod = base_pod(&effective);
    check::pod(&pod, "", &mut refusals);
    platforms::syntax(&effective, &pod, &mut refusals);
    refusals.0
}
