//! Which repositories there are, and where: each is an OCI layout of its own at
//! `<root>/<name>/_layout`.
//!
//! No component of a name begins with `_`, so the layout of `a` and the repository `a/blobs`
//! never share a path, and `oci:` references read what the server stored.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use portolan_core::{Digest, Repository};

use super::error::{ApiError, Code};
use crate::layout::{Layout, LayoutError};

/// The directory of a repository that holds its layout.
const LAYOUT_DIR: &str = "_layout";
/// A name has at most 255 characters, so at most 128 components; no path below the root is deeper.
const MAX_DEPTH: usize = 128;

/// Where the layout of a repository is below a registry's root. `oci:` references read it there,
/// whether the registry runs or not.
pub fn layout_dir(root: &Path, name: &Repository) -> PathBuf {
    root.join(name.as_str()).join(LAYOUT_DIR)
}

/// All repositories below one directory.
#[derive(Debug)]
pub(super) struct Store {
    root: PathBuf,
    open: RwLock<HashMap<Repository, Layout>>,
}

impl Store {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, open: RwLock::default() }
    }

    fn dir(&self, name: &Repository) -> PathBuf {
        layout_dir(&self.root, name)
    }

    /// The repository, if it exists. Waits for the disk the first time.
    pub(super) fn find(&self, name: &Repository) -> Result<Option<Layout>, LayoutError> {
        if let Some(layout) = self.open.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(Some(layout.clone()));
        }
        match Layout::open(&self.dir(name)) {
            Ok(layout) => Ok(Some(self.remember(name, layout))),
            Err(LayoutError::NotALayout { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The repository, which must exist.
    pub(super) fn existing(&self, name: &Repository) -> Result<Layout, ApiError> {
        self.find(name)?.ok_or_else(|| {
            ApiError::new(Code::NameUnknown, format!("repository {name} does not exist"))
        })
    }

    /// The repository, made when there is none yet.
    pub(super) fn create(&self, name: &Repository) -> Result<Layout, LayoutError> {
        match self.find(name)? {
            Some(layout) => Ok(layout),
            None => Ok(self.remember(name, Layout::create(&self.dir(name))?)),
        }
    }

    /// Of two that opened it at once, one wins, so that all share what was read.
    fn remember(&self, name: &Repository, layout: Layout) -> Layout {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.entry(name.clone()).or_insert(layout).clone()
    }

    /// Any repository that has this blob.
    pub(super) fn holder(&self, digest: &Digest) -> Result<Option<Layout>, LayoutError> {
        for name in self.repositories()? {
            let held = match self.find(&name)? {
                Some(layout) if layout.blob_size(digest)?.is_some() => Some(layout),
                _ => None,
            };
            if held.is_some() {
                return Ok(held);
            }
        }
        Ok(None)
    }

    /// Every repository, in order.
    pub(super) fn repositories(&self) -> Result<Vec<Repository>, LayoutError> {
        let mut found = Vec::new();
        walk(&self.root, "", 0, &mut found)?;
        found.sort_unstable();
        Ok(found)
    }
}

fn walk(
    dir: &Path,
    name: &str,
    depth: usize,
    found: &mut Vec<Repository>,
) -> Result<(), LayoutError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        // It vanished while we looked.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(LayoutError::io("list", dir, e)),
    };
    for entry in entries.flatten() {
        // Links are not followed: they could lead out, or round in a circle.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let component = entry.file_name();
        let Some(component) = component.to_str() else { continue };
        if component == LAYOUT_DIR {
            if entry.path().join("oci-layout").is_file() {
                found.extend(name.parse::<Repository>());
            }
            continue;
        }
        let below =
            if name.is_empty() { component.to_owned() } else { format!("{name}/{component}") };
        if depth < MAX_DEPTH && below.parse::<Repository>().is_ok() {
            walk(&entry.path(), &below, depth + 1, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_may_lie_within_each_other() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().to_path_buf());
        let names = ["a", "a/b", "a/blobs/sha256", "c/d/e"];
        for name in names {
            store.create(&name.parse().unwrap()).unwrap();
        }
        fs::create_dir_all(root.path().join("UPPER/_layout")).unwrap();
        let found = store.repositories().unwrap();
        assert_eq!(found.iter().map(Repository::as_str).collect::<Vec<_>>(), names);
        assert!(store.find(&"c/d".parse().unwrap()).unwrap().is_none());
    }

    #[test]
    fn a_blob_is_found_in_whichever_repository_has_it() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().to_path_buf());
        store.create(&"a".parse().unwrap()).unwrap();
        let digest = store.create(&"b".parse().unwrap()).unwrap().put_blob(b"x").unwrap();
        assert!(store.holder(&digest).unwrap().unwrap().dir().ends_with("b/_layout"));
        assert!(store.holder(&Digest::sha256(b"y")).unwrap().is_none());
    }
}
