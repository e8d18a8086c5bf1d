//! Steps of a strategy and steps of ours, put together to tasks.

use portolan_api::build::{OciArtifact, ParamValue, Prune, Source, SourceKind, StrategySpec};
use portolan_api::k8s_openapi::api::core::v1::Volume;
use portolan_api::reason::Reason;
use portolan_core::Reference;

use super::Settings;
use super::check::Timestamp;
use super::effective::Effective;
use super::given::{Given, OUTPUT_PARAM};
use super::literal::{self, literal};
use super::owned::{
    Access, OUTPUT_DIR, OUTPUT_VOLUME, Owned, Processing, SOURCE_ROOT, TimestampFrom,
};
use super::parts::{
    BUNDLE_DIGEST, IMAGE_DIGEST, SOURCE_DIGEST, SOURCE_TASK, SOURCE_TIMESTAMP, bundle_param,
    context_path, error_results, image_param, image_results, result, said, source_results,
};
use super::platforms::Way;
use super::refusal::Refusals;
use super::task::{Param, Phases, PlatformTask, Step, Task, Value};
use crate::names::{self, Outputs};

const INDEX_TASK: &str = "assemble-index";
const PRUNE_TASK: &str = "prune-source";

/// All that tasks are made of.
pub(super) struct Composing<'a> {
    pub(super) effective: &'a Effective,
    pub(super) strategy: &'a StrategySpec,
    pub(super) timestamp: Timestamp,
    pub(super) settings: &'a Settings,
    /// Whether the source artifact is deleted at the end, though nothing in the source says so.
    pub(super) prune: bool,
    /// What tells this run from all others.
    pub(super) run: &'a str,
}

impl Composing<'_> {
    fn owned(&self) -> Owned<'_> {
        Owned::new(&self.settings.step_image, self.strategy.security_context)
    }

    fn access(&self) -> Access<'_> {
        let output = &self.effective.output;
        Access { secret: output.push_secret.as_ref(), insecure: output.insecure == Some(true) }
    }

    /// How a stored source is pushed, pulled and deleted: as the image, but that what is said of its registry holds for no other.
    fn source_access(&self, outputs: &Outputs) -> Access<'_> {
        let registry = |reference: Reference| match reference {
            Reference::Registry(found) => Some(found.registry),
            Reference::Layout(_) => None,
        };
        let access = self.access();
        let same = registry(outputs.source()) == registry(outputs.index().clone());
        Access { insecure: access.insecure && same, ..access }
    }

    /// How an artifact is pulled and deleted. What is said of the output's registry holds for an
    /// artifact that is there, too, and for no other registry.
    fn artifact_access<'a>(&self, artifact: &'a OciArtifact) -> Access<'a> {
        let registry = |image: &str| match image.parse() {
            Ok(Reference::Registry(found)) => Some(found.registry),
            _ => None,
        };
        let there = registry(&artifact.image);
        let same = there.is_some() && there == registry(&self.effective.image);
        let insecure = same && self.effective.output.insecure == Some(true);
        Access { secret: artifact.pull_secret.as_ref(), insecure }
    }

    /// One image in one pod.
    pub(super) fn single(&self, refusals: &mut Refusals) -> Option<Task> {
        let mut owned = self.owned();
        let mut steps = Vec::new();
        let mut results = image_results();
        if let Some(source) = &self.effective.source {
            steps.push(self.source_step(source, &mut owned, true));
            results.extend(source_results(source.kind));
        }
        let kind = Reason::TaskRunGenerationFailed;
        let own: Vec<&ParamValue> = self.effective.params.iter().collect();
        let made = self.strategy_steps(&own, kind, refusals)?;
        let image = Outputs::parse(&self.effective.image).ok();
        let given = self.given(&made.steps, image.as_ref().map(Outputs::index));
        let processing = self.processing(&given, TimestampFrom::ThisTask, false);
        let needed = processing.is_needed();
        // What nobody looks at afterwards goes where the Build says.
        let told = match &given {
            Given::Under { name, .. } if needed => name.clone(),
            _ => literal(&self.effective.image),
        };
        let mut params = self.our_params(&told, given == Given::InDirectory);
        params.splice(4..4, made.bound.params);
        steps.extend(made.steps);
        if needed {
            steps.push(owned.process(&processing, self.access()));
        }
        let volumes = together(made.volumes, owned.volumes);
        let name = "build".to_owned();
        let task = Task { name, params, results, steps, volumes, workspace: true };
        literal::check(&task, kind, refusals);
        Some(literal::supplied(task))
    }

    /// An image for each platform, and an index.
    pub(super) fn multi(
        &self,
        ways: &[Way],
        outputs: &Outputs,
        refusals: &mut Refusals,
    ) -> Option<Phases> {
        let source = self.effective.source.as_ref().and_then(|source| match source.kind {
            SourceKind::Oci => None,
            SourceKind::Git | SourceKind::Local => Some(self.source_task(source, outputs)),
        });
        let mut platforms = Vec::new();
        for way in ways {
            platforms.push(self.platform_task(way, outputs, source.is_some(), refusals)?);
        }
        let prune = self.prune_task(source.is_some(), outputs);
        let index = self.index_task(&platforms, outputs);
        Some(Phases { source, platforms, index, prune })
    }

    fn source_task(&self, source: &Source, outputs: &Outputs) -> Task {
        let mut owned = self.owned();
        let got = self.source_step(source, &mut owned, true);
        let stored = owned.push_source(&outputs.source().to_string(), self.source_access(outputs));
        let mut results = source_results(source.kind);
        results.push(result(BUNDLE_DIGEST, "Digest of the source artifact"));
        results.extend(error_results());
        let steps = vec![got, stored];
        let name = SOURCE_TASK.to_owned();
        let (params, volumes) = (Vec::new(), owned.volumes);
        literal::supplied(Task { name, params, results, steps, volumes, workspace: true })
    }

    fn source_step(&self, source: &Source, owned: &mut Owned<'_>, alone: bool) -> Step {
        match (source.kind, &source.git, &source.oci_artifact) {
            (SourceKind::Git, Some(git), _) => owned.git(git),
            (SourceKind::Oci, _, Some(artifact)) => {
                // With many who pull it, the first would take it away from the others.
                let prune = alone && artifact.prune == Some(Prune::AfterPull);
                owned.artifact(artifact, prune, self.artifact_access(artifact))
            }
            // A source without its part was refused before anything is put together.
            _ => owned.upload(source.local.as_ref().and_then(|local| local.timeout)),
        }
    }

    fn platform_task(
        &self,
        way: &Way,
        outputs: &Outputs,
        stored: bool,
        refusals: &mut Refusals,
    ) -> Option<PlatformTask> {
        let mut owned = self.owned();
        let image = outputs.platform(&way.platform);
        let mut steps = Vec::new();
        let mut results = image_results();
        let mut more = vec![Param::ours(
            "shp-platform",
            "The platform that is built",
            Value::text(way.platform.to_string()),
        )];
        match &self.effective.source {
            Some(source) if !stored => {
                steps.push(self.source_step(source, &mut owned, false));
                results.extend(source_results(source.kind));
            }
            Some(_) => {
                steps.push(owned.pull_source(self.source_access(outputs)));
                more.push(bundle_param(outputs));
            }
            None => {}
        }
        let from = if stored { TimestampFrom::Param } else { TimestampFrom::ThisTask };
        if stored && self.timestamp == Timestamp::Source {
            let value = said(SOURCE_TASK, SOURCE_TIMESTAMP, "");
            let about = "When the source was last changed";
            more.push(Param::ours("shp-source-timestamp", about, value));
        }
        let kind = Reason::PipelineRunGenerationFailed;
        let values: Vec<&ParamValue> = self.effective.params.iter().chain(&way.params).collect();
        let made = self.strategy_steps(&values, kind, refusals)?;
        let given = self.given(&made.steps, Some(&image));
        let told = match &given {
            Given::Under { name, .. } => name.clone(),
            Given::InDirectory | Given::ByDigest | Given::Unknown => image.to_string(),
        };
        let mut params = self.our_params(&told, given == Given::InDirectory);
        params.splice(4..4, more.into_iter().chain(made.bound.params));
        steps.extend(made.steps);
        steps.push(owned.process(&self.processing(&given, from, true), self.access()));
        let volumes = together(made.volumes, owned.volumes);
        let name = names::build_task(&way.platform);
        let task = Task { name, params, results, steps, volumes, workspace: true };
        literal::check(&task, kind, refusals);
        Some(PlatformTask {
            platform: way.platform.clone(),
            image_platform: way.image_platform.as_ref().map(|(name, _)| name.clone()),
            image,
            pod: way.pod.clone(),
            task: literal::supplied(task),
        })
    }

    fn index_task(&self, platforms: &[PlatformTask], outputs: &Outputs) -> Task {
        let mut owned = self.owned();
        // Each platform pulled the artifact by itself, and its tag may have moved in between.
        let pulled_each =
            self.effective.source.as_ref().is_some_and(|source| source.kind == SourceKind::Oci);
        let step = owned.assemble(&self.effective.output.annotations, pulled_each, self.access());
        let every = |result: &str| {
            let said = platforms.iter().map(|platform| {
                let prefix = format!("{}=", platform.platform);
                (prefix, platform.task.name.clone(), result.to_owned())
            });
            Value::Results(said.collect())
        };
        let mut params = vec![
            image_param(&outputs.index().to_string()),
            self.insecure_param(),
            Param::ours(
                "shp-platform-digests",
                "The digest of each platform's image",
                every(IMAGE_DIGEST),
            ),
        ];
        if pulled_each {
            let about = "The digest of the source that each platform was built from";
            params.push(Param::ours("shp-source-digests", about, every(SOURCE_DIGEST)));
        }
        let mut results = vec![result(IMAGE_DIGEST, "Digest of the index")];
        results.extend(error_results());
        literal::supplied(Task {
            name: INDEX_TASK.to_owned(),
            params,
            results,
            steps: vec![step],
            volumes: owned.volumes,
            workspace: false,
        })
    }

    fn prune_task(&self, stored: bool, outputs: &Outputs) -> Option<Task> {
        let artifact = self
            .effective
            .source
            .as_ref()
            .and_then(|source| source.oci_artifact.as_ref())
            .filter(|artifact| artifact.prune == Some(Prune::AfterPull));
        let (bundle, access) = match artifact {
            Some(artifact) => {
                let about = "The source artifact";
                let value = Value::text(literal(&artifact.image));
                let param = Param::ours("shp-source-bundle-image", about, value);
                (param, self.artifact_access(artifact))
            }
            None if stored && self.prune => (bundle_param(outputs), self.source_access(outputs)),
            None => return None,
        };
        let mut owned = self.owned();
        let step = owned.prune_source(access);
        Some(literal::supplied(Task {
            name: PRUNE_TASK.to_owned(),
            params: vec![bundle],
            results: Vec::new(),
            steps: vec![step],
            volumes: owned.volumes,
            workspace: false,
        }))
    }

    fn given(&self, steps: &[Step], image: Option<&Reference>) -> Given {
        Given::of(&self.strategy.steps, steps, image, self.run)
    }

    fn processing<'a>(
        &'a self,
        given: &'a Given,
        from: TimestampFrom,
        check_platform: bool,
    ) -> Processing<'a> {
        Processing {
            given,
            annotations: &self.effective.output.annotations,
            labels: &self.effective.output.labels,
            timestamp: (self.timestamp, from),
            check_platform,
        }
    }

    fn insecure_param(&self) -> Param {
        let insecure = self.effective.output.insecure == Some(true);
        let about = "Whether plain HTTP and unknown certificates are fine";
        Param::ours("shp-output-insecure", about, Value::text(insecure.to_string()))
    }

    /// What every task of a strategy is told, in upstream's order.
    fn our_params(&self, image: &str, directory: bool) -> Vec<Param> {
        let context = self.effective.source.as_ref().and_then(|s| s.context_dir.as_deref());
        let mut params = vec![
            image_param(image),
            self.insecure_param(),
            Param::ours(
                "shp-source-context",
                "The directory that is built",
                Value::text(literal(&context_path(context))),
            ),
            Param::ours("shp-source-root", "The whole source", Value::text(SOURCE_ROOT)),
        ];
        if directory {
            let about = "Where the strategy leaves its image";
            params.push(Param::ours(OUTPUT_PARAM, about, Value::text(OUTPUT_DIR)));
        }
        params
    }
}

/// The strategy's volumes and ours; the one that both use is there once.
fn together(mut strategy: Vec<Volume>, ours: Vec<Volume>) -> Vec<Volume> {
    let shared = strategy.iter().any(|volume| volume.name == OUTPUT_VOLUME);
    strategy.extend(ours.into_iter().filter(|volume| !shared || volume.name != OUTPUT_VOLUME));
    strategy
}
