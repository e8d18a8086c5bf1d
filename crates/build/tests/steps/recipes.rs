//! The embedded assembler as a strategy, and the index that comes of it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::k8s_openapi::jiff::Timestamp as Instant;
use portolan_build::assemble::Recipe;
use portolan_build::engine::{self, Origin, Request, Watch};
use portolan_build::names::Outputs;
use portolan_build::steps::image::{Push, Timestamp, push};
use portolan_build::steps::index::{Assembly, Said, assemble};
use portolan_build::steps::recipe;
use portolan_core::Platform;
use portolan_registry::progress::{Progress, Silent};

use crate::Yard;

struct Quiet;
impl Watch for Quiet {}

fn source(yard: &Yard) -> std::path::PathBuf {
    let dir = yard.folder("source");
    let text = "FROM scratch\nARG TARGETARCH\nARG GREETING=hello\nLABEL said=$GREETING\nCOPY app-$TARGETARCH /app\n";
    std::fs::write(dir.join("Containerfile"), text).unwrap();
    for arch in ["amd64", "arm64"] {
        std::fs::write(dir.join(format!("app-{arch}")), arch).unwrap();
    }
    dir
}

fn a_recipe(dir: &Path) -> Recipe {
    Recipe {
        dir: dir.to_owned(),
        file: None,
        target: None,
        args: BTreeMap::from([("GREETING".to_owned(), "hi".to_owned())]),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        epoch: 0,
    }
}

/// The promise that clusters and laptops agree: step by step, with labels and annotations put in
/// at the places where a cluster does it.
#[test]
fn the_steps_of_a_cluster_give_the_index_of_the_local_engine() {
    let yard = Yard::new();
    let (dir, temp, client) = (source(&yard), yard.folder("temp"), yard.client());
    let platforms: Vec<Platform> =
        ["linux/amd64", "linux/arm64"].iter().map(|p| p.parse().unwrap()).collect();
    let annotations = BTreeMap::from([("org.example".to_owned(), "x".to_owned())]);
    let labels = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    let outputs = Outputs::new(yard.reference("cluster")).unwrap();
    let mut said = Vec::new();
    for platform in &platforms {
        let out = yard.folder(&format!("out-{}", platform.architecture));
        yard.block(recipe::assemble(a_recipe(&dir), platform, &out, &temp, &client)).unwrap();
        let request = Push {
            image: outputs.platform(platform),
            dir: Some(out),
            platform: Some(platform.clone()),
            annotations: annotations.clone(),
            labels: labels.clone(),
            timestamp: Timestamp::Untouched,
        };
        let pushed = yard.block(push(&request, &client, &temp)).unwrap();
        said.push(Said { platform: platform.clone(), digest: pushed.digest });
    }
    let image = outputs.index().clone();
    let request =
        Assembly { image, platforms: said, sources: Vec::new(), annotations: annotations.clone() };
    let cluster = yard.block(assemble(&request, &client)).unwrap();

    let request = Request {
        recipe: Recipe { labels, annotations: annotations.clone(), ..a_recipe(&dir) },
        platforms,
        outputs: Outputs::new(yard.reference("laptop")).unwrap(),
        annotations,
        jobs: NonZeroUsize::MIN,
        origin: Origin::Directory,
        backend: engine::Backend::Assembler,
    };
    let progress: Arc<dyn Progress> = Arc::new(Silent);
    let now = || Time(Instant::UNIX_EPOCH);
    let run = engine::run(&request, &temp, &client, &progress, &Quiet, now);
    let laptop = yard.block(run).unwrap().status.output.unwrap().digest.unwrap();
    assert_eq!(cluster.digest.to_string(), laptop);
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
