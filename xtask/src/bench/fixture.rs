//! The image that is measured: six gzip layers, about 1 GB unpacked and half of it packed,
//! the same bytes on every machine.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use portolan_core::manifest::{Descriptor, Index, Manifest};

use crate::layout::{Layer, LayoutWriter};
use crate::testbed::cache::{Cache, Recipe};
use crate::testbed::image::{Contents, layer};

const MIB: usize = 1024 * 1024;
/// Unpacked sizes, uneven as those of real images are.
const LAYERS_MIB: [usize; 6] = [120, 340, 60, 260, 200, 20];
const FORMAT: &str = "bench image 1";

/// The layout's folder; its only image is tagged `bench`.
pub(crate) fn image() -> Result<PathBuf> {
    let recipe = Recipe::default().with("format", FORMAT.as_bytes());
    let dir = Cache::of_user()?.part("bench-image", "1", &recipe, |to| {
        println!(
            "bench: making the image once ({} MiB of layers)",
            LAYERS_MIB.iter().sum::<usize>()
        );
        write(to)
    })?;
    Ok(dir)
}

/// The descriptors of what a pull fetches beside the manifest.
pub(crate) fn blobs(layout: &Path) -> Result<Vec<Descriptor>> {
    let index: Index = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let digest = index.manifests.first().context("the bench image is empty")?.digest;
    let path = layout.join("blobs/sha256").join(digest.hex());
    let manifest: Manifest = serde_json::from_slice(&fs::read(path)?)?;
    Ok(std::iter::once(manifest.config).chain(manifest.layers).collect())
}

fn write(to: &Path) -> Result<()> {
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let writer = LayoutWriter::new(to)?;
    let mut layers = Vec::new();
    let mut diff_ids = Vec::new();
    for (number, mib) in LAYERS_MIB.iter().enumerate() {
        let files = (0..*mib).map(|n| (format!("/layer{number}/{n}"), file(&mut seed))).collect();
        let tar = layer(&Contents { files, ..Default::default() })?;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::new(6));
        gzip.write_all(&tar)?;
        let bytes = gzip.finish()?;
        let diff_id = portolan_core::Digest::sha256(&tar);
        layers.push(writer.layer(&Layer { media_type: Layer::GZIP, bytes: &bytes, diff_id })?);
        diff_ids.push(diff_id);
    }
    let platform = "linux/amd64".parse()?;
    let image = writer.image(&platform, serde_json::json!({}), &layers, &diff_ids)?;
    writer.finish(image, Some("bench"))
}

/// One MiB that packs to about half: runs of noise between runs of words.
pub(crate) fn file(seed: &mut u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MIB);
    while bytes.len() < MIB {
        for _ in 0..24 {
            // xorshift64: noise enough for a compressor, the same on every machine.
            *seed ^= *seed << 13;
            *seed ^= *seed >> 7;
            *seed ^= *seed << 17;
            bytes.extend_from_slice(&seed.to_le_bytes());
        }
        let words =
            ["usr/lib/x86_64-linux-gnu/", "share/doc/", "copyright\n", "libexec/", "locale/"];
        for word in words.iter().cycle().take(16) {
            bytes.extend_from_slice(word.as_bytes());
        }
    }
    bytes.truncate(MIB);
    bytes
}
