//! `cargo xtask fixtures`: writes the images under `fixtures/images`, the same bytes every time.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use portolan_core::Platform;
use portolan_core::assemble::assemble;

use crate::layout::{Layer, LayoutWriter};
use crate::testbed::cache::remove_dir;
use crate::testbed::image::{Contents, layer};

/// More than one level of one architecture, so that choosing means something.
const PLATFORMS: [&str; 5] =
    ["linux/amd64", "linux/amd64/v3", "linux/arm64", "linux/arm/v7", "linux/riscv64"];

pub(crate) fn run() -> Result<()> {
    let dir = crate::root().join("fixtures/images/hello");
    remove_dir(&dir)?;
    hello(&dir)
}

/// An index with one image per platform, each of one small file that says what it is for.
fn hello(dir: &Path) -> Result<()> {
    let writer = LayoutWriter::new(dir)?;
    let mut images = Vec::new();
    for name in PLATFORMS {
        let platform: Platform = name.parse()?;
        let files = vec![("/hello.txt".to_owned(), format!("hello from {name}\n").into_bytes())];
        let tar = layer(&Contents { files, ..Default::default() })?;
        let tar = Layer::tar(&tar);
        let layer = writer.layer(&tar)?;
        let image = writer.image(&platform, serde_json::json!({}), &[layer], &[tar.diff_id])?;
        images.push((image, platform));
    }
    let title = ("org.opencontainers.image.title".to_owned(), "hello".to_owned());
    let index = writer.index(&assemble(images, BTreeMap::from([title]))?)?;
    writer.finish(index, Some("1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut out = BTreeMap::new();
        for sub in ["", "blobs/sha256"] {
            for entry in std::fs::read_dir(dir.join(sub)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    let name = path.strip_prefix(dir).unwrap().display().to_string();
                    out.insert(name, std::fs::read(&path).unwrap());
                }
            }
        }
        out
    }

    #[test]
    fn the_checked_in_images_are_what_this_code_writes() {
        let fresh = tempfile::tempdir().unwrap();
        hello(fresh.path()).unwrap();
        let checked_in = files(&crate::root().join("fixtures/images/hello"));
        assert_eq!(checked_in, files(fresh.path()), "run cargo xtask fixtures");
    }
}
