//! A Build for this machine: what its strategy means to the local engine, or why it means nothing
//! there.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use portolan_api::ResourceExt as _;
use portolan_api::build::{Build, Git, ParamValue, SourceKind, Step, StrategySpec};
use portolan_api::k8s_openapi::api::core::v1::EnvVar;
use portolan_core::reference::ParseReferenceError;
use portolan_core::{Platform, Reference};

use crate::engine::{Backend, NoBackend};
use crate::names::{OutputError, Outputs};
use crate::plan::{self, Objects, Refusal, Settings, Timestamp};

/// How a strategy says that the embedded assembler does its work.
const ASSEMBLER: [&str; 3] = ["portolan", "step", "assemble"];

/// The variable by which steps hear when files were made.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// What is looked for where nothing else is named.
const USUAL_FILES: [&str; 2] = ["Containerfile", "Dockerfile"];

/// What the local engine is asked for by a Build.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalBuild {
    /// Where the source comes from.
    pub source: LocalSource,
    /// The directory in the source that is built.
    pub context_dir: Option<PathBuf>,
    /// The Containerfile, below that directory.
    pub file: Option<PathBuf>,
    /// The stage that becomes the image.
    pub target: Option<String>,
    /// Values for `ARG`s.
    pub args: BTreeMap<String, String>,
    /// Labels of every image.
    pub labels: BTreeMap<String, String>,
    /// Annotations of every image and of the index.
    pub annotations: BTreeMap<String, String>,
    /// When every image says it was made.
    pub timestamp: Timestamp,
    /// When files in the image say they were made, where a variable of the Build says it.
    pub epoch: Option<u32>,
    /// Who puts the images together.
    pub backend: Backend,
    /// For which platforms.
    pub platforms: Vec<Platform>,
    /// Where it goes.
    pub outputs: Outputs,
}

/// Where the source of a local build comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum LocalSource {
    /// From nowhere: it is built in an empty directory.
    Nothing,
    /// A directory of this machine.
    Directory,
    /// An artifact.
    Artifact(Box<Reference>),
    /// A repository.
    Git(Git),
}

/// Why a Build cannot be built here.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A cluster would refuse it, too.
    #[error("the Build is refused:{}", told(.0))]
    Refused(Vec<Refusal>),
    /// No platform is named.
    #[error("the Build names no platforms; give --platform")]
    NoPlatforms,
    /// It runs programs.
    #[error(
        "the strategy {strategy} runs {program} and not `portolan step assemble`, so nothing here stands for it; use a cluster"
    )]
    Strategy {
        /// Its name.
        strategy: String,
        /// What it runs.
        program: String,
    },
    /// Nothing here stands for it.
    #[error(transparent)]
    NoBackend(#[from] NoBackend),
    /// A value that only a cluster has.
    #[error("the parameter {0} is kept in a cluster; give --param-value {0}=VALUE")]
    Kept(String),
    /// A value that is none.
    #[error("the parameter build-args has {0:?}, which is not NAME=VALUE")]
    BuildArg(String),
    /// A path that leads out of the source.
    #[error("{what} {path:?} leads out of the source")]
    Outside {
        /// Which.
        what: &'static str,
        /// What it says.
        path: String,
    },
    /// A time that is none.
    #[error("the variable {EPOCH} of the Build is {0:?}, not seconds since 1970")]
    Epoch(String),
    /// An image that nothing can be pushed to.
    #[error(transparent)]
    Image(#[from] OutputError),
    /// A source that is no reference.
    #[error("the source artifact is not a reference")]
    Source(#[source] ParseReferenceError),
}

fn told(refusals: &[Refusal]) -> String {
    let line = |refusal: &Refusal| format!("\n  {}: {}", refusal.reason.as_str(), refusal.message);
    refusals.iter().map(line).collect()
}

/// What a Build asks of the local engine. It is checked as a cluster would check a run of it, with
/// `objects` as all that the cluster has.
pub fn local(
    build: &Build,
    objects: &Objects,
    settings: &Settings,
) -> Result<LocalBuild, LocalError> {
    let mut objects = objects.clone();
    objects.builds = vec![build.clone()];
    plan::plan(&super::plain_run(build), &objects, settings).map_err(LocalError::Refused)?;
    let spec = &build.spec;
    let platforms = match &spec.output.settings.multi_arch {
        Some(multi_arch) => &multi_arch.platforms,
        None => &spec.output.settings.platforms,
    };
    if platforms.is_empty() {
        return Err(LocalError::NoPlatforms);
    }
    let strategy = strategy(build, &objects).expect("a plan has found its strategy");
    let backend = backend(&spec.strategy.name, strategy)?;
    let values = Values { build: &spec.param_values, strategy };
    let context_dir = spec.source.as_ref().and_then(|source| source.context_dir.as_deref());
    // By their usual names Containerfiles are found in either spelling, unless the Build insists.
    let insists = spec.param_values.iter().any(|param| param.name == "dockerfile");
    let usual = |file: &String| file.is_empty() || USUAL_FILES.contains(&file.as_str());
    let file = values.text("dockerfile")?.filter(|file| insists || !usual(file));
    Ok(LocalBuild {
        source: source(build)?,
        context_dir: context_dir.map(|dir| below("contextDir", dir)).transpose()?,
        file: file.map(|file| below("the parameter dockerfile", &file)).transpose()?,
        target: values.text("target")?.filter(|target| !target.is_empty()),
        args: build_args(&values.list("build-args")?)?,
        labels: spec.output.settings.labels.clone(),
        annotations: spec.output.settings.annotations.clone(),
        timestamp: Timestamp::read(spec.output.settings.timestamp.as_deref(), settings.created)
            .unwrap_or_default(),
        epoch: epoch(&spec.env)?,
        backend,
        platforms: platforms.iter().map(portolan_api::platform::Platform::normalised).collect(),
        outputs: Outputs::parse(&spec.output.image)?,
    })
}

fn strategy<'a>(build: &Build, objects: &'a Objects) -> Option<&'a StrategySpec> {
    let name = &build.spec.strategy.name;
    match build.spec.strategy.kind.as_deref() {
        Some("ClusterBuildStrategy") => {
            let all = &objects.cluster_strategies;
            all.iter().find(|strategy| strategy.name_any() == *name).map(|found| &found.spec.0)
        }
        _ => {
            let all = &objects.strategies;
            all.iter().find(|strategy| strategy.name_any() == *name).map(|found| &found.spec.0)
        }
    }
}

/// What does a strategy's work here: by what its steps are, or else by its name. What only has the
/// name of the assembler and runs something else is not believed.
fn backend(name: &str, strategy: &StrategySpec) -> Result<Backend, LocalError> {
    let assembles = |step: &&Step| {
        let words = step.command.iter().chain(&step.args).map(String::as_str).take(3);
        words.eq(ASSEMBLER)
    };
    let Some(other) = strategy.steps.iter().find(|step| !assembles(step)) else {
        return Ok(Backend::Assembler);
    };
    match Backend::of_strategy(name)? {
        Backend::Assembler => {
            let image = other.image.clone().unwrap_or_default();
            let program = other.command.first().cloned().unwrap_or(image);
            Err(LocalError::Strategy { strategy: name.to_owned(), program })
        }
        backend => Ok(backend),
    }
}

fn source(build: &Build) -> Result<LocalSource, LocalError> {
    let Some(source) = &build.spec.source else { return Ok(LocalSource::Nothing) };
    Ok(match (source.kind, &source.git, &source.oci_artifact) {
        (SourceKind::Git, Some(git), _) => LocalSource::Git(git.clone()),
        (SourceKind::Oci, _, Some(artifact)) => {
            let reference = artifact.image.parse().map_err(LocalError::Source)?;
            LocalSource::Artifact(Box::new(reference))
        }
        _ => LocalSource::Directory,
    })
}

/// What parameters are, by the Build or by default.
struct Values<'a> {
    build: &'a [ParamValue],
    strategy: &'a StrategySpec,
}

impl Values<'_> {
    fn text(&self, name: &str) -> Result<Option<String>, LocalError> {
        match self.build.iter().find(|param| param.name == name) {
            Some(param) => match &param.single.value {
                Some(value) => Ok(Some(value.clone())),
                None => Err(LocalError::Kept(name.to_owned())),
            },
            None => {
                let declared = self.strategy.parameters.iter().find(|p| p.name == name);
                Ok(declared.and_then(|declared| declared.default.clone()))
            }
        }
    }

    fn list(&self, name: &str) -> Result<Vec<String>, LocalError> {
        match self.build.iter().find(|param| param.name == name) {
            Some(param) => param
                .values
                .iter()
                .flatten()
                .map(|item| item.value.clone().ok_or_else(|| LocalError::Kept(name.to_owned())))
                .collect(),
            None => {
                let declared = self.strategy.parameters.iter().find(|p| p.name == name);
                Ok(declared.and_then(|declared| declared.defaults.clone()).unwrap_or_default())
            }
        }
    }
}

fn build_args(items: &[String]) -> Result<BTreeMap<String, String>, LocalError> {
    let pair = |item: &String| {
        let (name, value) = item.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    items.iter().map(|item| pair(item).ok_or_else(|| LocalError::BuildArg(item.clone()))).collect()
}

fn below(what: &'static str, path: &str) -> Result<PathBuf, LocalError> {
    let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    match Path::new(path).components().all(inside) {
        true => Ok(PathBuf::from(path)),
        false => Err(LocalError::Outside { what, path: path.to_owned() }),
    }
}

/// What the step of the assembler would hear in a pod.
fn epoch(env: &[EnvVar]) -> Result<Option<u32>, LocalError> {
    let said = env.iter().rev().find(|variable| variable.name == EPOCH);
    let Some(variable) = said else { return Ok(None) };
    let text = variable.value.as_deref().unwrap_or("kept in a cluster");
    text.parse().map(Some).map_err(|_| LocalError::Epoch(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use portolan_api::document::{self, Resource};

    use super::*;

    const STRATEGY: &str = "
apiVersion: shipwright.io/v1beta1
kind: ClusterBuildStrategy
metadata: {name: portolan}
spec:
  parameters:
    - {name: dockerfile, description: the file, type: string, default: Containerfile}
    - {name: target, description: the stage, type: string, default: ''}
    - {name: build-args, description: values, type: array, defaults: []}
  steps:
    - name: assemble
      image: portolan
      command: [portolan, step, assemble]
      args: [--output, $(params.shp-output-directory)]
";
    const BUILD: &str = "
apiVersion: shipwright.io/v1beta1
kind: Build
metadata: {name: app}
spec:
  source: {type: Git, contextDir: sub, git: {url: https://git.example/app.git}}
  strategy: {name: portolan, kind: ClusterBuildStrategy}
  paramValues:
    - {name: build-args, values: [{value: A=1}, {value: B=x=y}]}
  output:
    image: h.example/app:1
    timestamp: '7'
    labels: {l: '1'}
    platforms: [{os: linux, arch: amd64}, {os: linux, arch: arm64}]
";

    fn of(strategy: &str, build: &str) -> Result<LocalBuild, LocalError> {
        let mut objects = Objects::default();
        let read = |text: &str| document::read(text.as_bytes()).unwrap().remove(0);
        let Resource::ClusterBuildStrategy(strategy) = read(strategy) else { panic!("a strategy") };
        objects.cluster_strategies.push(strategy);
        let Resource::Build(build) = read(build) else { panic!("a Build") };
        let settings =
            Settings { step_image: "portolan".to_owned(), service_account: None, created: 0 };
        local(&build, &objects, &settings)
    }

    #[test]
    fn a_build_says_all_that_the_engine_needs() {
        let found = of(STRATEGY, BUILD).unwrap();
        assert_eq!(found.context_dir.as_deref(), Some(Path::new("sub")));
        assert_eq!(found.file, None, "a default that is found anyway");
        let said = BUILD
            .replace("paramValues:", "paramValues:\n    - {name: dockerfile, value: Dockerfile}");
        let said = of(STRATEGY, &said).unwrap().file;
        assert_eq!(said.as_deref(), Some(Path::new("Dockerfile")));
        assert_eq!(found.target, None);
        assert_eq!(found.args["A"], "1");
        assert_eq!(found.args["B"], "x=y");
        assert_eq!(found.labels["l"], "1");
        assert_eq!((found.timestamp, found.epoch), (Timestamp::At(7), None));
        let timed = BUILD
            .replace("timestamp: '7'", "timestamp: SourceTimestamp")
            .replace("  output:", "  env: [{name: SOURCE_DATE_EPOCH, value: '9'}]\n  output:");
        let timed = of(STRATEGY, &timed).unwrap();
        assert_eq!((timed.timestamp, timed.epoch), (Timestamp::Source, Some(9)));
        let platforms: Vec<String> = found.platforms.iter().map(ToString::to_string).collect();
        assert_eq!(platforms, ["linux/amd64", "linux/arm64"]);
        assert!(matches!(found.source, LocalSource::Git(_)));
    }

    #[test]
    fn what_this_machine_cannot_do_is_refused_with_the_reason() {
        for (strategy, build, told) in [
            (
                STRATEGY.replace("[portolan, step, assemble]", "[buildah]"),
                BUILD.to_owned(),
                "runs buildah",
            ),
            (
                STRATEGY.to_owned(),
                BUILD.replace("name: portolan", "name: other"),
                "ClusterBuildStrategyNotFound",
            ),
            (
                STRATEGY.to_owned(),
                BUILD.replace(
                    "  output:",
                    "  env: [{name: SOURCE_DATE_EPOCH, value: x}]\n  output:",
                ),
                "not seconds since 1970",
            ),
            (
                STRATEGY.to_owned(),
                BUILD.replace("contextDir: sub", "contextDir: a/../.."),
                "leads out",
            ),
            (STRATEGY.to_owned(), BUILD.replace("value: A=1", "value: A"), "NAME=VALUE"),
            (
                STRATEGY.to_owned(),
                BUILD.replace(
                    "    platforms: [{os: linux, arch: amd64}, {os: linux, arch: arm64}]\n",
                    "",
                ),
                "--platform",
            ),
        ] {
            let error = of(&strategy, &build).unwrap_err().to_string();
            assert!(error.contains(told), "{told}: {error}");
        }
    }
}
