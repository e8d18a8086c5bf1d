//! Directories built on this machine: the images, whole, as they are stored.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod containerfiles;
mod copies;
mod faults;
mod runs;
mod sources;
mod support;
mod uploads;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::k8s_openapi::jiff::Timestamp;
use portolan_build::assemble::Recipe;
use portolan_build::engine::{self, EngineError, Origin, Outcome, Request, Watch};
use portolan_build::names::Outputs;
use portolan_core::manifest::Document;
use portolan_core::{Digest, Platform, Target};
use portolan_registry::client::{Client, CredentialStore, Settings};
use portolan_registry::layout::Layout;
use portolan_registry::progress::Silent;
use serde_json::Value;

/// An image with five platforms.
const HELLO: &str = concat!("oci:", env!("CARGO_MANIFEST_DIR"), "/../../fixtures/images/hello:1");

struct Quiet;
impl Watch for Quiet {}

/// A directory to build, and a layout that the image goes to.
struct Bench {
    dir: tempfile::TempDir,
}

/// One name of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    path: String,
    mode: u32,
    owner: (u64, u64),
    mtime: u64,
    /// A file's text, or where a link leads.
    content: String,
}

impl Bench {
    fn new(containerfile: &str) -> Self {
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(bench.source()).unwrap();
        bench.write("Containerfile", containerfile)
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn write(self, name: &str, content: &str) -> Self {
        let path = self.source().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    fn request(&self, platforms: &[&str]) -> Request {
        let output = format!("oci:{}:1", self.dir.path().join("out").display());
        Request {
            recipe: Recipe {
                dir: self.source(),
                file: None,
                target: None,
                args: BTreeMap::new(),
                epoch: 0,
            },
            platforms: platforms
                .iter()
                .map(|p| p.parse::<Platform>().unwrap().normalised())
                .collect(),
            own: Vec::new(),
            outputs: Outputs::parse(&output).unwrap(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            timestamp: Default::default(),
            jobs: NonZeroUsize::new(4).unwrap(),
            origin: Origin::Directory(self.source()),
            known: Default::default(),
            backend: engine::Backend::Assembler,
        }
    }

    fn run(&self, request: &Request) -> Result<Outcome, EngineError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let client = Client::new(Settings::default(), CredentialStore::anonymous()).unwrap();
        let progress: Arc<dyn portolan_registry::progress::Progress> = Arc::new(Silent);
        let now = || Time(Timestamp::UNIX_EPOCH);
        runtime.block_on(engine::run(request, self.dir.path(), &client, &progress, &Quiet, now))
    }

    /// Waits for a step, with a client of its own.
    fn step<T, F: Future<Output = T>>(&self, step: impl FnOnce(Client) -> F) -> T {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            step(Client::new(Settings::default(), CredentialStore::anonymous()).unwrap()).await
        })
    }

    /// Builds for one platform, which must go well.
    #[track_caller]
    fn build(&self) -> Image {
        let outcome =
            self.run(&self.request(&["linux/amd64"])).unwrap_or_else(|e| panic!("{e:#?}"));
        assert!(outcome.succeeded, "{:#?}", outcome.status);
        self.image("1-linux-amd64")
    }

    /// Why it cannot be built, in full.
    #[track_caller]
    fn refused(&self) -> String {
        match self.run(&self.request(&["linux/amd64"])) {
            Err(error) => portolan_core::causes::chain(&error),
            Ok(outcome) if !outcome.succeeded => outcome.status.conditions[0].message.clone(),
            Ok(outcome) => panic!("{:#?}", outcome.status),
        }
    }

    fn layout(&self) -> Layout {
        Layout::open(&self.dir.path().join("out")).unwrap()
    }

    fn image(&self, tag: &str) -> Image {
        let layout = self.layout();
        let (_, bytes) = layout.manifest(&Target::Tag(tag.parse().unwrap())).unwrap();
        let Ok(Document::Manifest(manifest)) = Document::parse(&bytes, None) else {
            panic!("{tag}")
        };
        let config = serde_json::from_slice(&blob(&layout, &manifest.config.digest)).unwrap();
        let digests: Vec<Digest> = manifest.layers.iter().map(|layer| layer.digest).collect();
        let layers = digests.iter().map(|digest| names(&blob(&layout, digest))).collect();
        Image { config, layers, digests }
    }
}

/// An image as it is stored.
#[derive(Debug)]
struct Image {
    config: Value,
    /// Of layers in gzip, which ours are.
    layers: Vec<Vec<Name>>,
    digests: Vec<Digest>,
}

impl Image {
    /// All names of all layers, lowest first.
    fn paths(&self) -> Vec<&str> {
        self.layers.iter().flatten().map(|name| name.path.as_str()).collect()
    }

    #[track_caller]
    fn name(&self, path: &str) -> &Name {
        let found = self.layers.iter().flatten().rev().find(|name| name.path == path);
        found.unwrap_or_else(|| panic!("no {path}: {:?}", self.paths()))
    }
}

fn blob(layout: &Layout, digest: &Digest) -> Vec<u8> {
    let (mut file, _) = layout.open_blob(digest).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn names(layer: &[u8]) -> Vec<Name> {
    if !layer.starts_with(b"\x1f\x8b") {
        return Vec::new();
    }
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(layer));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = String::new();
        match entry.link_name().unwrap() {
            Some(target) => content = target.display().to_string(),
            None => drop(entry.read_to_string(&mut content).unwrap()),
        }
        let header = entry.header();
        Name {
            path: entry.path().unwrap().display().to_string(),
            mode: header.mode().unwrap(),
            owner: (header.uid().unwrap(), header.gid().unwrap()),
            mtime: header.mtime().unwrap(),
            content,
        }
    });
    entries.collect()
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
