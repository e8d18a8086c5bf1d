//! Volumes and resources that a strategy must have for somebody to change them.

use portolan_api::build::{StepResources, StrategySpec};
use portolan_api::k8s_openapi::api::core::v1::Volume;
use portolan_api::reason::Reason;

use super::super::refusal::Refusals;

/// Only volumes that the strategy has, and lends.
pub(crate) fn check(volumes: &[Volume], strategy: &StrategySpec, refusals: &mut Refusals) {
    for volume in volumes {
        let name = &volume.name;
        match strategy.volumes.iter().find(|own| own.volume.name == *name) {
            None => refusals.add(
                Reason::UndefinedVolume,
                format!("Volume {name:?} is not defined in the Strategy"),
            ),
            Some(own) if own.overridable != Some(true) => refusals.add(
                Reason::VolumeNotOverridable,
                format!("Volume {name:?} is not overridable in the Strategy"),
            ),
            Some(_) => {}
        }
    }
}

/// Only steps that the strategy has.
pub(crate) fn step_resources(
    resources: &[StepResources],
    strategy: &StrategySpec,
    refusals: &mut Refusals,
) {
    for step in resources {
        if strategy.steps.iter().all(|own| own.name != step.name) {
            refusals.add(
                Reason::UndefinedStepResource,
                format!(
                    "stepResources references step {:?} which does not exist in the build strategy",
                    step.name
                ),
            );
        }
    }
}
