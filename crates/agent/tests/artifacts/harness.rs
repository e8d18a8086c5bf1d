//! An agent's cache in a temporary root, small true images, and a checker of everything on disk.
#![allow(unreachable_pub, reason = "shared by the modules of this test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_agent::artifacts::{
    AcquireError, Artifact, Artifacts, CompatibilityGate, Gate, OpenError,
};
use portolan_agent::config::{CompatibilityMode, Config, Percent, Size, Span};
use portolan_agent::id::InstanceId;
use portolan_agent::image::ResolvedImage;
use portolan_agent::metrics::Metrics;
use portolan_agent::reason::Reason;
pub use portolan_core::causes::chain;
use portolan_core::{Descriptor, Digest, HostPlatform, Manifest, Platform, media_type};
use portolan_registry::client::{Client, CredentialStore, Settings};
use portolan_rootdisk::meta::Metadata;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::fault::{FaultServer, REPOSITORY, within};
use crate::support::image::{self, Image, LAYER};

/// A file for a tar: its name and content.
pub type File<'a> = (&'a str, &'a [u8]);

/// A plain tar of regular files.
pub fn tar(files: &[File<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, content) in files {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        let mut field = |at: usize, text: String| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        field(100, "0000644\0".to_owned());
        field(108, "0000000\0".to_owned());
        field(116, "0000000\0".to_owned());
        field(124, format!("{:011o}\0", content.len()));
        field(136, "00000000000\0".to_owned());
        field(148, "        ".to_owned());
        field(156, "0".to_owned());
        field(257, "ustar\0".to_owned());
        field(263, "00".to_owned());
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

/// How an image differs from a true one.
#[derive(Default)]
pub struct Twist {
    pub platform: Option<&'static str>,
    /// The diff_id that the config names for the first layer.
    pub diff_id: Option<Digest>,
    /// The layers' media type.
    pub layer_type: Option<&'static str>,
}

/// A true image: gzip layers of these tars, a config with their diff_ids.
pub fn image_of(tars: &[Vec<u8>], twist: &Twist) -> Image {
    let layers = tars.iter().map(|tar| image::gzip(tar)).collect();
    image_with(tars, layers, twist)
}

/// The same with layers that may be anything.
pub fn image_with(tars: &[Vec<u8>], layers: Vec<Vec<u8>>, twist: &Twist) -> Image {
    let platform = image::platform(twist.platform.unwrap_or("linux/amd64"));
    let mut diff_ids: Vec<String> = tars.iter().map(|t| Digest::sha256(t).to_string()).collect();
    if let Some(other) = twist.diff_id {
        diff_ids[0] = other.to_string();
    }
    let config = serde_json::to_vec(&serde_json::json!({
        "os": platform.os, "architecture": platform.architecture, "variant": platform.variant,
        "config": {"Entrypoint": ["/hello"], "Env": ["A=1"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }))
    .unwrap();
    let layer_type = twist.layer_type.unwrap_or(LAYER);
    let manifest = Manifest::new(
        Descriptor::of(media_type::OCI_CONFIG, &config),
        layers.iter().map(|layer| Descriptor::of(layer_type, layer)).collect(),
    );
    let mut image = Image::of_manifest(media_type::OCI_MANIFEST, &manifest.to_vec());
    for blob in layers.into_iter().chain([config]) {
        image.blobs.insert(Digest::sha256(&blob), blob);
    }
    image
}

/// A small image of two layers, different for every seed.
pub fn small(seed: u64) -> Image {
    sized(seed, 20_000)
}

/// An image of two layers, the first with a file of this many bytes.
pub fn sized(seed: u64, bytes: usize) -> Image {
    let content = image::bytes(bytes, seed);
    let name = format!("data-{seed}");
    let base = tar(&[("hello", b"#!/bin/true\n"), (&name, &content)]);
    let top = tar(&[("etc/seed", format!("{seed}\n").as_bytes())]);
    image_of(&[base, top], &Twist::default())
}

/// The layer that a test breaks: the largest.
pub fn layer_of(image: &Image) -> Digest {
    image.largest_blob().0
}

/// What a spec says of an image at this server.
pub fn resolved(server: &FaultServer, image: &Image) -> ResolvedImage {
    resolved_at(&server.host(), image.top.digest)
}

pub fn resolved_at(host: &str, resolved_digest: Digest) -> ResolvedImage {
    ResolvedImage {
        registry: host.parse().unwrap(),
        repository: REPOSITORY.parse().unwrap(),
        resolved_digest,
        index_digest: None,
        platform: Platform::new("linux", "amd64"),
    }
}

/// What images of these tests are for.
fn host() -> HostPlatform {
    HostPlatform::named(&Platform::new("linux", "amd64").with_variant("v3"))
}

pub fn id(name: &str) -> InstanceId {
    name.parse().unwrap()
}

/// Registries that answer within a second or are given up.
const SETTINGS: &str = "[defaults]\nconnect_timeout = \"2s\"\nstall_timeout = \"700ms\"\n\
     request_timeout = \"1500ms\"\nretry_deadline = \"4s\"\nretries = 1\n";

/// A root with everything that a configuration needs beside it.
pub struct Yard {
    /// Shared with those who work in it, so that it goes after them.
    dir: Arc<TempDir>,
    pub config: Config,
}

impl Yard {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        Self::with_root(dir, root)
    }

    /// The root elsewhere, such as on a small file system.
    pub fn at(root: PathBuf) -> Self {
        Self::with_root(tempfile::tempdir().unwrap(), root)
    }

    fn with_root(dir: TempDir, root: PathBuf) -> Self {
        let registries = dir.path().join("registries.toml");
        std::fs::write(&registries, SETTINGS).unwrap();
        let credentials = dir.path().join("auth.json");
        std::fs::write(&credentials, "{}").unwrap();
        let mut config = Config { root, ..Config::default() };
        config.cache.target_percent = Percent::new(100);
        config.cache.high_water_percent = Percent::new(100);
        config.registries = Some(registries);
        config.credentials = Some(credentials);
        config.pull.retries = 1;
        config.pull.backoff = Span(Duration::from_millis(20));
        config.pull.timeout = Span::seconds(30);
        config.rootdisk.min_size = Size(1 << 20);
        Self { dir: Arc::new(dir), config }
    }

    pub fn root(&self) -> &Path {
        &self.config.root
    }

    pub fn try_open(&self) -> Result<Berth, OpenError> {
        let metrics = Arc::new(Metrics::new());
        let artifacts = Artifacts::open(&self.config, Arc::clone(&metrics), host())?;
        Ok(self.berth(artifacts, metrics))
    }

    fn berth(&self, artifacts: Artifacts, metrics: Arc<Metrics>) -> Berth {
        let (root, dir) = (self.config.root.clone(), Arc::clone(&self.dir));
        Berth { artifacts, metrics, root, _dir: dir }
    }

    /// Opened with nothing but the gate of compatibility, changed in some way.
    pub fn open_with_gate(
        &self,
        change: impl FnOnce(CompatibilityGate) -> CompatibilityGate,
    ) -> Berth {
        let metrics = Arc::new(Metrics::new());
        let settings = Settings::from_file(self.config.registries.as_ref().unwrap()).unwrap();
        let client = Client::new(settings.clone(), CredentialStore::anonymous()).unwrap();
        let gate = CompatibilityGate::new(&self.config, &host().platform, &client, &settings);
        let gate: Arc<dyn Gate> = Arc::new(change(gate.unwrap().unwrap()));
        let mut config = self.config.clone();
        config.compatibility.mode = CompatibilityMode::Off;
        let opened = Artifacts::open_with(&config, Arc::clone(&metrics), host(), vec![gate]);
        let berth = self.berth(opened.unwrap(), metrics);
        berth.artifacts.reconcile_pins(&[]);
        berth
    }

    /// Opened, and with no instance known.
    pub fn open(&self) -> Berth {
        let berth = self.try_open().unwrap_or_else(|error| panic!("{}", chain(&error)));
        berth.artifacts.reconcile_pins(&[]);
        berth
    }
}

/// An open cache.
pub struct Berth {
    pub artifacts: Artifacts,
    pub metrics: Arc<Metrics>,
    root: PathBuf,
    _dir: Arc<TempDir>,
}

impl Berth {
    pub async fn try_acquire(
        &self,
        instance: &str,
        image: &ResolvedImage,
    ) -> Result<Artifact, AcquireError> {
        let cancel = CancellationToken::new();
        let instance = id(instance);
        let acquired = self.artifacts.acquire(&instance, image, &cancel);
        within(60, acquired).await
    }

    pub async fn acquire(&self, instance: &str, image: &ResolvedImage) -> Artifact {
        let acquired = self.try_acquire(instance, image).await;
        acquired.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    /// The start must fail for this reason, name all of these, and leave nothing behind: no pin,
    /// no disk, no temp file, no blob that is not what its name says.
    pub async fn refused(&self, image: &ResolvedImage, reason: Reason, parts: &[&str]) -> Duration {
        let start = Instant::now();
        let error = self.try_acquire("refused", image).await.unwrap_err();
        let took = start.elapsed();
        let text = chain(&error);
        eprintln!("refused after {took:?} as {}: {text}", error.reason());
        assert_eq!(error.reason(), reason, "{text}");
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
        assert_eq!(self.artifacts.pin_of(&id("refused")), None);
        assert!(!self.disk_exists(&image.resolved_digest), "{text}");
        self.settled().await;
        check(&self.root);
        took
    }

    pub fn disk_exists(&self, digest: &Digest) -> bool {
        self.root.join(format!("rootdisks/sha256/{}.meta.json", digest.hex())).exists()
    }

    pub fn blob_exists(&self, digest: &Digest) -> bool {
        self.root.join("oci/blobs/sha256").join(digest.hex()).exists()
    }

    /// Waits until nobody works in `tmp/` any more: what was cancelled cleans up by itself.
    pub async fn settled(&self) {
        let empty = || std::fs::read_dir(self.root.join("tmp")).unwrap().next().is_none();
        let start = Instant::now();
        while !empty() {
            assert!(start.elapsed() < Duration::from_secs(30), "something stays in tmp/");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        line.unwrap_or_else(|| panic!("{series} is not in\n{text}"))
    }
}

/// Looks at every file of a root that nobody works in: each disk with metadata is what its
/// checksum says, each blob and manifest is what its name says. Gives back the disks by manifest.
pub fn check(root: &Path) -> BTreeMap<Digest, Metadata> {
    let mut disks = BTreeMap::new();
    for entry in list(&root.join("rootdisks/sha256")) {
        let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(hex) = name.strip_suffix(".meta.json") else { continue };
        let metadata = Metadata::read(&entry).unwrap();
        assert_eq!(metadata.resolved_digest.hex(), hex);
        let disk = entry.with_file_name(format!("{hex}.ext4"));
        let actual = portolan_rootdisk::checksum::of_file(&disk).unwrap();
        assert_eq!(actual, metadata.checksum, "{} is not what was built", disk.display());
        disks.insert(metadata.resolved_digest, metadata);
    }
    for dir in ["oci/blobs/sha256", "oci/manifests/sha256"] {
        for path in list(&root.join(dir)) {
            let name = path.file_name().unwrap().to_str().unwrap();
            let actual = Digest::sha256(&std::fs::read(&path).unwrap());
            assert_eq!(actual.hex(), name, "{} is not what its name says", path.display());
        }
    }
    disks
}

/// Makes what is below a directory read-only. A whole file system cannot be made so while its lock
/// and its database are open.
pub fn make_read_only(dir: &Path) {
    for args in [["--bind"].as_slice(), &["-o", "remount,bind,ro"]] {
        let status = Command::new("mount").args(args).arg(dir).arg(dir).status().unwrap();
        assert!(status.success(), "mount {args:?} {}", dir.display());
    }
}

/// Everything in a directory.
pub fn list(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}
