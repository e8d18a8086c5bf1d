//! The steps that pods run, against a real registry and real repositories.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod git;
mod images;
mod indexes;
mod recipes;
#[path = "../../../registry/tests/common/skip.rs"]
mod skip;
mod sources;

use std::path::{Path, PathBuf};

use portolan_build::steps::{self, Access};
use portolan_core::manifest::Document;
use portolan_core::{Descriptor, Digest, Index, Manifest, Platform, Reference, Target, media_type};
use portolan_registry::client::{Client, Settings};
use portolan_registry::images::{Place, target};
use portolan_registry::layout::Layout;
use portolan_registry::server::{Config, Server};
use serde_json::{Value, json};

/// A registry, and a directory to work in.
struct Yard {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    address: String,
}

impl Yard {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let config = Config::new(dir.path().join("registry"), "127.0.0.1:0".parse().unwrap());
        let server = runtime.block_on(Server::bind(config)).unwrap();
        let address = server.local_addr().to_string();
        runtime.spawn(server.serve(std::future::pending()));
        Self { dir, runtime, address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A directory that is there.
    fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn reference(&self, tag: &str) -> Reference {
        format!("{}/team/app:{tag}", self.address).parse().unwrap()
    }

    fn client(&self) -> Client {
        let image = self.reference("1");
        let access = Access::default();
        self.block(steps::client(&image, &access, Settings::default())).unwrap()
    }

    fn block<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// What a tag is now.
    fn digest(&self, tag: &str) -> Option<Digest> {
        let (place, target) = self.place(tag);
        self.block(place.resolve(Some(&target))).ok().map(|there| there.digest)
    }

    fn place(&self, tag: &str) -> (Place, Target) {
        let image = self.reference(tag);
        (Place::open(&image, &self.client()).unwrap(), target(&image).unwrap())
    }

    fn document(&self, tag: &str) -> Document {
        let (place, target) = self.place(tag);
        self.block(place.manifest(&target)).unwrap().document
    }

    fn config(&self, tag: &str) -> Value {
        let Document::Manifest(manifest) = self.document(tag) else { panic!("{tag} is an index") };
        let (place, _) = self.place(tag);
        let bytes = self.block(place.read_blob(&manifest.config, 1 << 20)).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Pushes an image for a platform, as a strategy would.
    fn push(&self, tag: &str, platform: &str) -> Digest {
        let layout = self.folder(&format!("pushed-{tag}"));
        let layout = Layout::create(&layout).unwrap();
        let image = image(&layout, platform, "content");
        self.push_from(&layout, &image, tag)
    }

    fn push_from(&self, layout: &Layout, top: &Descriptor, tag: &str) -> Digest {
        let from: Reference =
            format!("oci:{}@{}", layout.dir().display(), top.digest).parse().unwrap();
        let progress = std::sync::Arc::new(portolan_registry::progress::Silent);
        let options = portolan_registry::copy::CopyOptions::default();
        let to = self.reference(tag);
        let client = self.client();
        let copying = portolan_registry::copy::copy(&from, &to, &client, &options, progress);
        self.block(copying).unwrap().copied.digest
    }
}

/// An image of one layer in a layout, which lists it.
fn image(layout: &Layout, platform: &str, content: &str) -> Descriptor {
    let platform: Platform = platform.parse().unwrap();
    let layer = gzip(&tar(&[("file", content)]));
    let diff_id = Digest::sha256(&tar(&[("file", content)]));
    layout.put_blob(&layer).unwrap();
    let config = json!({
        "os": platform.os, "architecture": platform.architecture, "variant": platform.variant,
        "config": { "Labels": { "old": "kept" } },
        "created": "2020-01-01T00:00:00Z",
        "history": [{ "created": "2020-01-01T00:00:00Z", "created_by": "COPY" }],
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
    });
    let config = serde_json::to_vec(&config).unwrap();
    layout.put_blob(&config).unwrap();
    let layer = Descriptor::of("application/vnd.oci.image.layer.v1.tar+gzip", &layer);
    let manifest = Manifest::new(Descriptor::of(media_type::OCI_CONFIG, &config), vec![layer]);
    layout.put_manifest(media_type::OCI_MANIFEST, &manifest.to_vec(), None).unwrap()
}

/// An index of these, which the layout lists.
fn index(layout: &Layout, entries: Vec<Descriptor>) -> Descriptor {
    layout.put_manifest(media_type::OCI_INDEX, &Index::new(entries).to_vec(), None).unwrap()
}

fn for_platform(platform: &str, entry: Descriptor) -> Descriptor {
    Descriptor { platform: Some(platform.parse().unwrap()), ..entry }
}

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000);
        // As they are: also names that the library would refuse to write.
        let raw = &mut header.as_old_mut().name;
        raw[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Every name below a directory.
fn names(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            all.push(path.strip_prefix(dir).unwrap().display().to_string());
            if path.symlink_metadata().unwrap().is_dir() {
                open.push(path);
            }
        }
    }
    all.sort();
    all
}
