//! Looking at a layout from outside: what is on disk, byte for byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use portolan_core::Digest;

use super::image::Image;

/// Every file below a directory with its content.
pub fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else { continue };
        for entry in entries.map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else {
                let relative = entry.path().strip_prefix(dir).unwrap().to_owned();
                files.insert(relative, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

/// Fails unless every file under `blobs/` is named by the digest of its content and nothing but
/// blobs, `oci-layout`, `index.json` and lock files is there: no temp file, no partial blob.
pub fn assert_nothing_half_written(dir: &Path) {
    for (path, content) in snapshot(dir) {
        let parts: Vec<_> = path.iter().map(|p| p.to_str().unwrap()).collect();
        match parts.as_slice() {
            ["blobs", algorithm, hex] => {
                let named: Digest = format!("{algorithm}:{hex}")
                    .parse()
                    .unwrap_or_else(|e| panic!("{} is not a blob: {e}", path.display()));
                let found = Digest::of(named.algorithm(), &content);
                assert_eq!(found, named, "{} holds other bytes", path.display());
            }
            ["oci-layout" | "index.json"] => {}
            [name] if name.ends_with(".lock") && content.is_empty() => {}
            _ => panic!("{} is left behind", path.display()),
        }
    }
}

/// Whether the layout has this content on disk.
pub fn has(dir: &Path, digest: &Digest) -> bool {
    dir.join("blobs").join(digest.algorithm().as_str()).join(digest.hex()).exists()
}

/// Fails unless the layout holds all of the image.
pub fn assert_holds(dir: &Path, image: &Image) {
    for digest in image.digests() {
        assert!(has(dir, &digest), "{digest} is missing");
    }
    assert_nothing_half_written(dir);
}

/// The bytes of `index.json`, none when there is no such file.
pub fn index_json(dir: &Path) -> Option<Vec<u8>> {
    std::fs::read(dir.join("index.json")).ok()
}
