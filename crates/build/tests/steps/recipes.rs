//! The embedded assembler as a strategy, and the index that comes of it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use portolan_api::build::SourceStatus;
use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::k8s_openapi::jiff::Timestamp as Instant;
use portolan_build::assemble::Recipe;
use portolan_build::engine::{self, Origin, Request, Watch};
use portolan_build::names::Outputs;
use portolan_build::plan;
use portolan_build::steps;
use portolan_build::steps::image::{Made, Push, Timestamp, push};
use portolan_build::steps::index::{Assembly, Said, assemble};
use portolan_build::steps::recipe;
use portolan_core::Platform;
use portolan_registry::layout::Layout;
use portolan_registry::progress::{Progress, Silent};

use crate::{Yard, for_platform, image, index};

struct Quiet;
impl Watch for Quiet {}

/// A source whose directory `app` is built, on a base with a history of its own.
fn source(yard: &Yard) -> std::path::PathBuf {
    let (root, dir) = (yard.folder("source"), yard.folder("source/app"));
    let base = yard.reference("base");
    let text = format!(
        "FROM {base}\nARG TARGETARCH\nARG GREETING=hello\nLABEL said=$GREETING\nCOPY app-$TARGETARCH /app\n"
    );
    std::fs::write(dir.join("Containerfile"), text).unwrap();
    std::fs::write(root.join("README"), "not built").unwrap();
    for arch in ["amd64", "arm64"] {
        std::fs::write(dir.join(format!("app-{arch}")), arch).unwrap();
    }
    root
}

/// An index of two images, as others made them.
fn push_base(yard: &Yard) {
    let layout = Layout::create(&yard.folder("base")).unwrap();
    let entry = |platform: &str| for_platform(platform, image(&layout, platform, platform));
    let top = index(&layout, vec![entry("linux/amd64"), entry("linux/arm64")]);
    yard.push_from(&layout, &top, "base");
}

fn a_recipe(dir: &Path) -> Recipe {
    Recipe {
        dir: dir.to_owned(),
        file: None,
        target: None,
        args: BTreeMap::from([("GREETING".to_owned(), "hi".to_owned())]),
        epoch: 0,
    }
}

/// What both are asked for.
struct Wanted {
    platforms: Vec<Platform>,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
}

impl Wanted {
    fn new() -> Self {
        Self {
            platforms: ["linux/amd64", "linux/arm64"].iter().map(|p| p.parse().unwrap()).collect(),
            annotations: BTreeMap::from([("org.example".to_owned(), "x".to_owned())]),
            labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        }
    }

    /// Step by step, with labels, annotations and the time put in where a cluster does it.
    fn by_steps(&self, yard: &Yard, root: &Path, timestamp: &Timestamp) -> [String; 2] {
        let (temp, client) = (yard.folder("temp"), yard.client());
        let outputs = Outputs::new(yard.reference("cluster")).unwrap();
        let source = outputs.source();
        let stored = yard.block(steps::source::push(root, &source, &client, &temp)).unwrap();
        let mut said = Vec::new();
        for platform in &self.platforms {
            let out = tempfile::tempdir_in(yard.folder("outs")).unwrap();
            let recipe = a_recipe(&root.join("app"));
            yard.block(recipe::assemble(recipe, platform, out.path(), &temp, &client)).unwrap();
            let request = Push {
                image: outputs.platform(platform),
                made: Made::InDirectory(out.path().to_owned()),
                platform: Some(platform.clone()),
                annotations: self.annotations.clone(),
                labels: self.labels.clone(),
                timestamp: timestamp.clone(),
            };
            let pushed = yard.block(push(&request, &client, &temp)).unwrap();
            said.push(Said { platform: platform.clone(), digest: pushed.digest });
        }
        let image = outputs.index().clone();
        let annotations = self.annotations.clone();
        let request = Assembly { image, platforms: said, sources: Vec::new(), annotations };
        let index = yard.block(assemble(&request, &client)).unwrap();
        [index.digest.to_string(), stored.digest.to_string()]
    }

    fn by_engine(&self, yard: &Yard, root: &Path, timestamp: plan::Timestamp) -> [String; 2] {
        let (temp, client) = (yard.folder("temp"), yard.client());
        let request = Request {
            recipe: a_recipe(&root.join("app")),
            platforms: self.platforms.clone(),
            own: Vec::new(),
            outputs: Outputs::new(yard.reference("laptop")).unwrap(),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            timestamp,
            jobs: NonZeroUsize::MIN,
            origin: Origin::StoredDirectory(root.to_owned()),
            known: SourceStatus::default(),
            backend: engine::Backend::Assembler,
        };
        let progress: Arc<dyn Progress> = Arc::new(Silent);
        let now = || Time(Instant::UNIX_EPOCH);
        let run = engine::run(&request, &temp, &client, &progress, &Quiet, now);
        let status = yard.block(run).unwrap().status;
        let index = status.output.unwrap().digest.unwrap();
        [index, status.source.unwrap().oci_artifact.unwrap().digest]
    }
}

/// The promise that clusters and laptops agree, also on what `output.timestamp` and
/// `source.contextDir` change.
#[test]
fn the_steps_of_a_cluster_give_the_index_of_the_local_engine() {
    let yard = Yard::new();
    push_base(&yard);
    let (root, wanted) = (source(&yard), Wanted::new());
    let newest = std::fs::File::open(root.join("README")).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(4_000_000_000);
    newest.set_modified(time).unwrap();
    let mut indexes = std::collections::BTreeSet::new();
    for (steps, engine) in [
        (Timestamp::Untouched, plan::Timestamp::Untouched),
        (Timestamp::At(0), plan::Timestamp::At(0)),
        (Timestamp::At(1_700_000_000), plan::Timestamp::At(1_700_000_000)),
        (Timestamp::At(4_000_000_000), plan::Timestamp::Source),
    ] {
        let by_steps = wanted.by_steps(&yard, &root, &steps);
        let by_engine = wanted.by_engine(&yard, &root, engine);
        assert_eq!(by_engine, by_steps, "index and source with {steps:?}");
        indexes.insert(by_engine[0].clone());
    }
    assert_eq!(indexes.len(), 4, "each time shows");
}

#[test]
fn a_recipe_that_is_not_there_is_told_in_the_words_of_strategies() {
    let yard = Yard::new();
    let (temp, client) = (yard.folder("temp"), yard.client());
    let platform: Platform = "linux/amd64".parse().unwrap();
    let fails = |recipe: Recipe| {
        let out = yard.path("out");
        yard.block(recipe::assemble(recipe, &platform, &out, &temp, &client)).unwrap_err().reason
    };
    assert_eq!(fails(a_recipe(&yard.path("none"))), "ContextDirNotFound");
    assert_eq!(fails(a_recipe(&yard.folder("empty"))), "DockerfileNotFound");
    let file = Some(yard.path("empty/Other"));
    assert_eq!(fails(Recipe { file, ..a_recipe(&yard.folder("empty")) }), "DockerfileNotFound");
    std::fs::write(yard.path("empty/Containerfile"), "FROM scratch\nRUN true\n").unwrap();
    assert_eq!(fails(a_recipe(&yard.folder("empty"))), "AssemblyFailed");
    assert!(!yard.path("out").exists(), "nothing is left half done");
}
