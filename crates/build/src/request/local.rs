//! A Build for this machine: what its strategy means to the local engine, or why it means nothing
//! there.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use portolan_api::ResourceExt as _;
use portolan_api::build::{Build, Git, ParamValue, Parameter, SourceKind, Step, StrategySpec};
use portolan_api::k8s_openapi::api::core::v1::EnvVar;
use portolan_core::Reference;
use portolan_core::reference::ParseReferenceError;

use super::ways::{self, LocalWay};
use crate::engine::{Backend, NoBackend};
use crate::names::{OutputError, Outputs};
use crate::plan::{self, Objects, Refusal, Settings, Timestamp};

/// How a strategy says that the embedded assembler does its work.
const ASSEMBLER: [&str; 3] = ["portolan", "step", "assemble"];

/// The variable by which steps hear when files were made.
pub(super) const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// What stands for a directory where a Build is checked as if pods pushed it.
const STAND_IN: &str = "directory.invalid/image:1";

/// What the local engine is asked for by a Build.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalBuild {
    /// Where the source comes from.
    pub source: LocalSource,
    /// The directory in the source that is built.
    pub context_dir: Option<PathBuf>,
    /// Labels of every image.
    pub labels: BTreeMap<String, String>,
    /// Annotations of every image and of the index.
    pub annotations: BTreeMap<String, String>,
    /// When every image says it was made.
    pub timestamp: Timestamp,
    /// Who puts the images together.
    pub backend: Backend,
    /// For which platforms, and how each is built.
    pub ways: Vec<LocalWay>,
    /// What ImagePlatforms say that means nothing here.
    pub unused: Vec<String>,
    /// Where it goes.
    pub outputs: Outputs,
}

/// What parameters and variables mean on this machine. All others mean nothing here: [`unused`](super::unused).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    /// The Containerfile.
    pub file: Option<String>,
    /// The stage that becomes the image.
    pub target: Option<String>,
    /// Values for `ARG`s.
    pub args: BTreeMap<String, String>,
    /// When files in the image say they were made.
    pub epoch: Option<u32>,
}

/// The parameters that mean something here.
pub(super) const PARAMETERS: [&str; 3] = ["dockerfile", "target", "build-args"];

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
/// `objects` as all that the cluster has. With `given` somebody's own directory or artifact takes the place of its source.
pub fn local(
    build: &Build,
    objects: &Objects,
    settings: &Settings,
    given: bool,
) -> Result<LocalBuild, LocalError> {
    let mut objects = objects.clone();
    objects.builds = vec![for_pods(build, given)];
    let plan = plan::plan(&super::plain_run(build), &objects, settings);
    let plan = plan.map_err(LocalError::Refused)?;
    let spec = &build.spec;
    let strategy = strategy(build, &objects).expect("a plan has found its strategy");
    let ways = ways::ways(&plan, build, &objects, &strategy.parameters)?;
    if ways.is_empty() {
        return Err(LocalError::NoPlatforms);
    }
    let backend = backend(&spec.strategy.name, strategy)?;
    let context_dir = spec.source.as_ref().and_then(|source| source.context_dir.as_deref());
    Ok(LocalBuild {
        source: source(build)?,
        context_dir: context_dir.map(|dir| below("contextDir", dir)).transpose()?,
        labels: spec.output.settings.labels.clone(),
        annotations: spec.output.settings.annotations.clone(),
        timestamp: Timestamp::read(spec.output.settings.timestamp.as_deref(), settings.created)
            .unwrap_or_default(),
        backend,
        unused: ways::unused(&ways, &objects),
        ways,
        outputs: Outputs::parse(&spec.output.image)?,
    })
}

/// The Build without what only pods cannot do: they push to registries alone, and know no time of a source that is sent.
fn for_pods(build: &Build, given: bool) -> Build {
    let mut build = build.clone();
    let output = &mut build.spec.output;
    if let Ok(Reference::Layout(_)) = output.image.parse() {
        output.image = STAND_IN.to_owned();
    }
    if given && output.settings.timestamp.as_deref() == Some("SourceTimestamp") {
        output.settings.timestamp = None;
    }
    build
}

/// What parameters, by default those that the strategy declares, and variables mean here.
pub fn said(
    params: &[ParamValue],
    env: &[EnvVar],
    declared: &[Parameter],
) -> Result<Said, LocalError> {
    let values = Values { params, declared };
    let [file, target, args] = PARAMETERS;
    Ok(Said {
        file: values.text(file)?,
        target: values.text(target)?.filter(|target| !target.is_empty()),
        args: build_args(&values.list(args)?)?,
        epoch: epoch(env)?,
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
    params: &'a [ParamValue],
    declared: &'a [Parameter],
}

impl Values<'_> {
    fn text(&self, name: &str) -> Result<Option<String>, LocalError> {
        match self.params.iter().find(|param| param.name == name) {
            Some(param) => match &param.single.value {
                Some(value) => Ok(Some(value.clone())),
                None => Err(LocalError::Kept(name.to_owned())),
            },
            None => {
                let declared = self.declared.iter().find(|p| p.name == name);
                Ok(declared.and_then(|declared| declared.default.clone()))
            }
        }
    }

    fn list(&self, name: &str) -> Result<Vec<String>, LocalError> {
        match self.params.iter().find(|param| param.name == name) {
            Some(param) => param
                .values
                .iter()
                .flatten()
                .map(|item| item.value.clone().ok_or_else(|| LocalError::Kept(name.to_owned())))
                .collect(),
            None => {
                let declared = self.declared.iter().find(|p| p.name == name);
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

pub(super) fn below(what: &'static str, path: &str) -> Result<PathBuf, LocalError> {
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
        with_source(strategy, build, false)
    }

    fn with_source(strategy: &str, build: &str, given: bool) -> Result<LocalBuild, LocalError> {
        let mut objects = Objects::default();
        for resource in document::read(strategy.as_bytes()).unwrap() {
            match resource {
                Resource::ClusterBuildStrategy(found) => objects.cluster_strategies.push(found),
                Resource::ImagePlatform(found) => objects.image_platforms.push(found),
                Resource::ImagePlatformClass(found) => objects.classes.push(found),
                other => panic!("{other:?}"),
            }
        }
        for class in &mut objects.classes {
            class.status = Some(plan::class_status(class, &objects.image_platforms));
        }
        let Resource::Build(build) = document::read(build.as_bytes()).unwrap().remove(0) else {
            panic!("a Build")
        };
        let settings = Settings {
            step_image: "portolan".to_owned(),
            service_account: None,
            source_repository: None,
            created: 0,
        };
        local(&build, &objects, &settings, given)
    }

    #[test]
    fn a_build_says_all_that_the_engine_needs() {
        let found = of(STRATEGY, BUILD).unwrap();
        assert_eq!(found.context_dir.as_deref(), Some(Path::new("sub")));
        assert_eq!(found.ways[0].file, None, "a default that is found anyway");
        let said = BUILD
            .replace("paramValues:", "paramValues:\n    - {name: dockerfile, value: Dockerfile}");
        let said = of(STRATEGY, &said).unwrap();
        assert_eq!(said.ways[1].file.as_deref(), Some(Path::new("Dockerfile")));
        let said = &found.ways[0].said;
        assert_eq!(said.target, None);
        assert_eq!((said.args["A"].as_str(), said.args["B"].as_str()), ("1", "x=y"));
        assert_eq!(found.labels["l"], "1");
        assert_eq!((found.timestamp, said.epoch), (Timestamp::At(7), None));
        let timed = BUILD
            .replace("timestamp: '7'", "timestamp: SourceTimestamp")
            .replace("  output:", "  env: [{name: SOURCE_DATE_EPOCH, value: '9'}]\n  output:");
        let timed = of(STRATEGY, &timed).unwrap();
        assert_eq!((timed.timestamp, timed.ways[0].said.epoch), (Timestamp::Source, Some(9)));
        let platforms: Vec<String> =
            found.ways.iter().map(|way| way.platform.to_string()).collect();
        assert_eq!(platforms, ["linux/amd64", "linux/arm64"]);
        assert!(matches!(found.source, LocalSource::Git(_)));
    }

    const PLATFORMS: &str = "
apiVersion: shipwright.io/v1alpha1
kind: ImagePlatform
metadata: {name: amd}
spec:
  platform: {os: linux, arch: amd64}
  nodeSelector: {disk: fast}
  paramValues: [{name: target, value: big}, {name: dockerfile, value: of/Amd}]
---
apiVersion: shipwright.io/v1alpha1
kind: ImagePlatform
metadata: {name: arm}
spec:
  platform: {os: linux, arch: arm64}
  nodeSelector: {disk: slow}
  runtimeClass: {name: kata}
  paramValues:
    - {name: SHP_IMAGE_PLATFORM, value: linux/aarch64}
    - {name: SHP_BUILD_PLATFORM, value: linux/amd64}
---
apiVersion: shipwright.io/v1alpha1
kind: ImagePlatformClass
metadata: {name: both}
spec: {imagePlatforms: [{name: amd}, {name: arm}]}
";

    /// What a cluster builds by its parameters must not come out another way on a laptop.
    #[test]
    fn the_parameters_of_an_image_platform_count_for_its_platform() {
        let build = BUILD.replace(
            "platforms: [{os: linux, arch: amd64}, {os: linux, arch: arm64}]",
            "multiArch: {imagePlatformClass: both, platforms: [{os: linux, arch: amd64}, {os: linux, arch: arm64}]}",
        );
        let strategy = STRATEGY.replace(
            "  steps:",
            "    - {name: SHP_IMAGE_PLATFORM, description: it, default: ''}
    - {name: SHP_BUILD_PLATFORM, description: it, default: ''}
  steps:",
        );
        let found = of(&format!("{strategy}---{PLATFORMS}"), &build).unwrap();
        let [amd, arm] = &found.ways[..] else { panic!("{found:?}") };
        assert_eq!(amd.image_platform.as_deref(), Some("amd"));
        assert_eq!(amd.said.target.as_deref(), Some("big"));
        assert_eq!(amd.file.as_deref(), Some(Path::new("of/Amd")));
        assert_eq!(amd.said.args["A"], "1");
        assert_eq!(
            (arm.image_platform.as_deref(), arm.said.target.as_deref()),
            (Some("arm"), None)
        );
        assert_eq!((arm.file.as_deref(), arm.said.args["A"].as_str()), (None, "1"));
        let told = [
            "nodeSelector of ImagePlatform amd, arm",
            "runtimeClass of ImagePlatform arm",
            "the parameter SHP_BUILD_PLATFORM of ImagePlatform arm",
        ];
        assert_eq!(found.unused, told);
        let outside = PLATFORMS.replace("of/Amd", "../Amd");
        let error = of(&format!("{strategy}---{outside}"), &build).unwrap_err().to_string();
        assert!(error.contains("leads out"), "{error}");
    }

    #[test]
    fn what_only_pods_cannot_do_is_done_here() {
        let build = BUILD.replace("h.example/app:1", "oci:out:1");
        assert_eq!(of(STRATEGY, &build).unwrap().outputs.index().to_string(), "oci:out:1");
        let source = "type: Git, contextDir: sub, git: {url: https://git.example/app.git}";
        let sent = BUILD
            .replace(source, "type: Local, local: {}")
            .replace("timestamp: '7'", "timestamp: SourceTimestamp");
        let found = with_source(STRATEGY, &sent, true).unwrap();
        assert_eq!(found.timestamp, Timestamp::Source, "the newest file of what is sent");
        let error = with_source(STRATEGY, &sent, false).unwrap_err().to_string();
        assert!(error.contains("OutputTimestampNotSupported"), "{error}");
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
