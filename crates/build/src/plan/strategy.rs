//! The part of a task that is the strategy's: its steps and volumes, with what Build and run put into them.

use portolan_api::build::{ParamValue, Step as StrategyStep};
use portolan_api::k8s_openapi::api::core::v1::{EnvVar, Volume};
use portolan_api::reason::Reason;

use super::compose::Composing;
use super::given::OUTPUT_PARAM;
use super::literal;
use super::owned::{OUTPUT_DIR, OUTPUT_VOLUME, mount};
use super::parts::is_read_only;
use super::refusal::Refusals;
use super::task::Step;
use super::{check, values};

/// What steps of ours are called; a strategy's step of the same name would take its results.
const OWN_STEPS: [&str; 6] = [
    "source-default",
    "source-local",
    "source-bundle-push",
    "source-bundle-pull",
    "image-processing",
    "assemble-index",
];

/// What becomes of a strategy in a task.
pub(super) struct StrategySteps {
    pub(super) bound: values::Bound,
    pub(super) steps: Vec<Step>,
    pub(super) volumes: Vec<Volume>,
}

impl Composing<'_> {
    /// The steps of the strategy, with values, variables, resources and mounts in place.
    pub(super) fn strategy_steps(
        &self,
        values: &[&ParamValue],
        kind: Reason,
        refusals: &mut Refusals,
    ) -> Option<StrategySteps> {
        let before = refusals.0.len();
        let bound = values::bind(&self.strategy.parameters, values);
        let mut steps: Vec<Step> =
            self.strategy.steps.iter().map(|step| self.step(step, kind, refusals)).collect();
        bound.inject(&mut steps);
        for step in &mut steps {
            if values::uses(step, OUTPUT_PARAM) {
                step.volume_mounts.push(mount(OUTPUT_VOLUME, OUTPUT_DIR, None, false));
            }
        }
        let volumes = self.volumes(&steps, kind, refusals);
        if steps.is_empty() {
            refusals.add(kind, "the strategy has no steps, so nothing would be built");
        }
        if let Some(clash) = steps.iter().find(|step| OWN_STEPS.contains(&step.name.as_str())) {
            refusals.add(
                kind,
                format!(
                    "the strategy calls a step {:?}, which is the name of one of ours",
                    clash.name
                ),
            );
        }
        (refusals.0.len() == before).then_some(StrategySteps { bound, steps, volumes })
    }

    fn step(&self, step: &StrategyStep, kind: Reason, refusals: &mut Refusals) -> Step {
        let mut env = step.env.clone();
        for variable in env.iter().filter(|variable| check::forbidden(&variable.name)) {
            refusals.add(
                kind,
                format!(
                    "environment variable {:?} of step {:?} is forbidden for security reasons",
                    variable.name, step.name
                ),
            );
        }
        for variable in &self.effective.env {
            if env.iter().any(|own| own.name == variable.name) {
                let name = &variable.name;
                refusals.add(kind, format!("environment variable {name:?} already exists"));
            }
            let value = variable.value.as_deref().map(literal::variable);
            env.push(EnvVar { value, ..variable.clone() });
        }
        let asked = self.effective.step_resources.iter().find(|asked| asked.name == step.name);
        let mut security_context = step.security_context.clone();
        if let Some(identity) = self.strategy.security_context {
            let context = security_context.get_or_insert_default();
            context.run_as_user.get_or_insert(identity.run_as_user);
            context.run_as_group.get_or_insert(identity.run_as_group);
        }
        Step {
            name: step.name.clone(),
            image: step.image.clone(),
            command: step.command.clone(),
            args: step.args.clone(),
            working_dir: step.working_dir.clone(),
            env,
            resources: asked
                .map(|asked| asked.resources.clone())
                .or_else(|| step.resources.clone()),
            volume_mounts: step.volume_mounts.clone(),
            image_pull_policy: step.image_pull_policy.clone(),
            security_context,
        }
    }

    /// The strategy's volumes, with what Build and run put in their place, as far as steps
    /// mount them.
    fn volumes(&self, steps: &[Step], kind: Reason, refusals: &mut Refusals) -> Vec<Volume> {
        let mut volumes: Vec<Volume> = Vec::new();
        for mount in steps.iter().flat_map(|step| &step.volume_mounts) {
            let name = &mount.name;
            if name == OUTPUT_VOLUME {
                if volumes.iter().all(|known| known.name != *name) {
                    volumes.push(Volume {
                        name: name.clone(),
                        empty_dir: Some(Default::default()),
                        ..Volume::default()
                    });
                }
                continue;
            }
            let own = self.strategy.volumes.iter().find(|own| own.volume.name == *name);
            let Some(own) = own else {
                refusals.add(kind, format!("volume for the Volume Mount {name:?} is not found"));
                continue;
            };
            let other = self.effective.volumes.iter().find(|other| other.name == *name);
            let volume = other.unwrap_or(&own.volume);
            if other.is_some_and(literal::refers) {
                refusals
                    .add(kind, format!("volume {name:?} has a `$(`, which Tekton would replace"));
            }
            if is_read_only(volume) && mount.read_only != Some(true) {
                refusals.add(kind, format!("volume mount {name:?} must be read only"));
            }
            if volumes.iter().all(|known| known.name != *name) {
                volumes.push(volume.clone());
            }
        }
        volumes
    }
}
