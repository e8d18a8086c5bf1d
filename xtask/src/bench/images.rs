//! The images that root disks are measured with, made once and kept in the user's cache.
//!
//! Real ones: six layers of a Debian grown step by step, gzip and zstd, and one small layer. The
//! packages are those of the day, so digests differ from machine to machine; the report says
//! what was measured. Ratios between tools in one run are what counts.

use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use portolan_core::manifest::{Descriptor, Index, Manifest};
use portolan_core::{Algorithm, Digest, Hasher, Platform};
use serde::{Deserialize, Serialize};

use super::synthetic;
use crate::layout::{Layer, LayoutWriter};
use crate::testbed::build::Toolbox;
use crate::testbed::cache::{Cache, Recipe, remove_dir};
use crate::testbed::up::require_root;

/// Files of the layers in the maker's folder, lowest first.
pub(crate) const LAYERS: [&str; 6] = ["0.tar", "1.tar", "2.tar", "3.tar", "4.tar", "5.tar"];
/// The image of one layer.
pub(crate) const SINGLE: &str = "single.tar";
/// To be changed with what `maker` and `nasty` make.
const FORMAT: &str = "rootdisk images 1";

/// What is to know about the image of six layers.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Stats {
    /// The Debian release.
    pub(crate) suite: String,
    /// Names in the merged tree.
    pub(crate) paths: u64,
    /// Bytes of the files in it.
    pub(crate) surviving_bytes: u64,
}

/// One image in an OCI layout, tagged `bench`.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) name: &'static str,
    pub(crate) layout: PathBuf,
    pub(crate) digest: Digest,
    pub(crate) layers: Vec<LayerFile>,
    /// Bytes of files that survive the merge.
    pub(crate) surviving_bytes: u64,
}

/// A layer on disk.
#[derive(Debug, Clone)]
pub(crate) struct LayerFile {
    pub(crate) path: PathBuf,
    pub(crate) descriptor: Descriptor,
    pub(crate) tar_bytes: u64,
}

impl Image {
    pub(crate) fn tar_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.tar_bytes).sum()
    }

    pub(crate) fn packed_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.descriptor.size).sum()
    }
}

/// All of them, made first if need be; of real packages, or with the statistics of those.
pub(crate) fn all(tools: &Toolbox, synthetic: bool) -> Result<(Vec<Image>, Stats)> {
    let recipe = Recipe::default().with("format", FORMAT.as_bytes());
    let name = if synthetic { "bench-rootdisk-synthetic" } else { "bench-rootdisk" };
    let dir = Cache::of_user()?.part(name, "1", &recipe, |to| {
        println!("bench: making the images once (some minutes)");
        let layers = to.join("layers");
        fs::create_dir_all(&layers)?;
        if synthetic {
            synthetic::make(&layers)?
        } else {
            grow(&layers, tools)?
        }
        pack_all(&layers, to)
    })?;
    let stats: Stats = serde_json::from_slice(&fs::read(dir.join("stats.json"))?)?;
    let images = ["img6-gzip", "img6-zstd", "img1-gzip"];
    let images = images.into_iter().map(|name| open(&dir, name)).collect::<Result<_>>()?;
    Ok((images, stats))
}

/// The real layers, in a mount namespace of their own.
fn grow(layers: &Path, tools: &Toolbox) -> Result<()> {
    require_root().context("real images are made of mounted file systems; or use --synthetic")?;
    let debootstrap = tools.get("debootstrap").context("no part debootstrap")?;
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe().context("where am I")?)
        .args(["bench", "make-layers"])
        .arg(layers)
        .arg(debootstrap)
        .status()
        .context("start unshare")?;
    if !status.success() {
        bail!("the layers could not be made; see above, or use --synthetic");
    }
    Ok(())
}

fn pack_all(layers: &Path, to: &Path) -> Result<()> {
    println!("bench: packing");
    let six: Vec<_> = LAYERS.iter().map(|name| layers.join(name)).collect();
    let single = vec![layers.join(SINGLE)];
    std::thread::scope(|scope| {
        let zstd = scope.spawn(|| write(&to.join("img6-zstd"), &six, Packing::Zstd));
        let one = scope.spawn(|| write(&to.join("img1-gzip"), &single, Packing::Gzip));
        write(&to.join("img6-gzip"), &six, Packing::Gzip)?;
        zstd.join().expect("packing does not panic")?;
        one.join().expect("packing does not panic")
    })?;
    fs::copy(layers.join("stats.json"), to.join("stats.json"))?;
    remove_dir(layers)
}

#[derive(Debug, Clone, Copy)]
enum Packing {
    Gzip,
    Zstd,
}

fn write(to: &Path, tars: &[PathBuf], packing: Packing) -> Result<()> {
    let writer = LayoutWriter::new(to)?;
    let mut layers = Vec::new();
    let mut diff_ids = Vec::new();
    for tar in tars {
        let (bytes, diff_id, size) = pack(tar, packing)?;
        let media_type = match packing {
            Packing::Gzip => Layer::GZIP,
            Packing::Zstd => Layer::ZSTD,
        };
        let mut layer = writer.layer(&Layer { media_type, bytes: &bytes, diff_id })?;
        // How much there is inside, for the report; no tool minds.
        layer.annotations.insert(TAR_BYTES.to_owned(), size.to_string());
        layers.push(layer);
        diff_ids.push(diff_id);
    }
    let here = Platform::new("linux", std::env::consts::ARCH).normalised();
    let image = writer.image(&here, serde_json::json!({}), &layers, &diff_ids)?;
    writer.finish(image, Some("bench"))
}

const TAR_BYTES: &str = "dev.portolan.bench.tar-bytes";

fn pack(tar: &Path, packing: Packing) -> Result<(Vec<u8>, Digest, u64)> {
    let file = File::open(tar).with_context(|| format!("open {}", tar.display()))?;
    let mut from = BufReader::with_capacity(1 << 20, file);
    let mut out = Vec::new();
    let (diff_id, size) = match packing {
        Packing::Gzip => {
            let mut encoder = GzEncoder::new(&mut out, Compression::new(6));
            let done = hash_into(&mut from, &mut encoder)?;
            encoder.finish()?;
            done
        }
        Packing::Zstd => {
            let mut encoder = zstd::Encoder::new(&mut out, 3)?;
            let done = hash_into(&mut from, &mut encoder)?;
            encoder.finish()?;
            done
        }
    };
    Ok((out, diff_id, size))
}

fn hash_into(from: &mut impl Read, to: &mut impl Write) -> Result<(Digest, u64)> {
    let mut hasher = Hasher::new(Algorithm::Sha256);
    let mut buffer = vec![0; 1 << 20];
    let mut size = 0;
    loop {
        let got = from.read(&mut buffer)?;
        if got == 0 {
            return Ok((hasher.finish(), size));
        }
        hasher.update(&buffer[..got]);
        to.write_all(&buffer[..got])?;
        size += got as u64;
    }
}

fn open(dir: &Path, name: &'static str) -> Result<Image> {
    let layout = dir.join(name);
    let blob = |digest: &Digest| layout.join("blobs/sha256").join(digest.hex());
    let index: Index = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let digest = index.manifests.first().context("an empty image")?.digest;
    let manifest: Manifest = serde_json::from_slice(&fs::read(blob(&digest))?)?;
    let layers: Vec<LayerFile> = manifest
        .layers
        .into_iter()
        .map(|descriptor| {
            let tar_bytes = descriptor.annotations.get(TAR_BYTES).and_then(|n| n.parse().ok());
            Ok(LayerFile {
                path: blob(&descriptor.digest),
                tar_bytes: tar_bytes.context("a layer without its size")?,
                descriptor,
            })
        })
        .collect::<Result<_>>()?;
    let stats: Stats = serde_json::from_slice(&fs::read(dir.join("stats.json"))?)?;
    // Of one layer everything survives.
    let all = layers.iter().map(|layer| layer.tar_bytes).sum();
    let surviving_bytes = if layers.len() == 1 { all } else { stats.surviving_bytes };
    Ok(Image { name, layout, digest, layers, surviving_bytes })
}
