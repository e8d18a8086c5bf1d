//! Where everything lies below the agent's root, and nowhere else in the code.
//!
//! ```text
//! oci/blobs/sha256/<hex>                    layers and configs, as they came
//! oci/manifests/sha256/<hex>                manifests, as they came
//! rootdisks/sha256/<hex>.ext4, .meta.json   disks of the current format version, by manifest
//! rootdisks/v<N>/sha256/<hex>.…             disks of another version, for those who still pin them
//! instances/<id>/                           one instance's own
//! instances/.deleted-…/                     one that is on its way out
//! tmp/                                      work in progress; emptied at every start
//! guest/                                    a machine as an image in it finds it; made anew at every start
//! agent.redb                                pins and times of last use
//! lock                                      held by the one agent of this root
//! ```

use std::path::{Path, PathBuf};

use portolan_core::Digest;

use crate::id::InstanceId;

/// The paths below one root.
#[derive(Debug, Clone)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    /// Below `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The root itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Layers and configs.
    pub fn blobs(&self) -> PathBuf {
        self.root.join("oci/blobs/sha256")
    }

    /// One of them; none for a digest of another kind than sha256, which is not kept.
    pub fn blob(&self, digest: &Digest) -> Option<PathBuf> {
        sha256(digest).map(|hex| self.blobs().join(hex))
    }

    /// Manifests.
    pub fn manifests(&self) -> PathBuf {
        self.root.join("oci/manifests/sha256")
    }

    /// One of them; none for a digest of another kind than sha256.
    pub fn manifest(&self, digest: &Digest) -> Option<PathBuf> {
        sha256(digest).map(|hex| self.manifests().join(hex))
    }

    /// Root disks, of all versions.
    pub fn rootdisks(&self) -> PathBuf {
        self.root.join("rootdisks")
    }

    /// Root disks of the current version.
    pub fn current_disks(&self) -> PathBuf {
        self.rootdisks().join("sha256")
    }

    /// Root disks of another version.
    pub fn other_disks(&self, version: &str) -> PathBuf {
        self.rootdisks().join(format!("v{version}")).join("sha256")
    }

    /// All instances.
    pub fn instances(&self) -> PathBuf {
        self.root.join("instances")
    }

    /// One of them.
    pub fn instance(&self, id: &InstanceId) -> PathBuf {
        self.instances().join(id.as_str())
    }

    /// Work in progress.
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// A machine as an image in it finds it.
    pub fn guest(&self) -> PathBuf {
        self.root.join("guest")
    }

    /// Pins and times of last use.
    pub fn database(&self) -> PathBuf {
        self.root.join("agent.redb")
    }

    /// Held by the one agent of this root.
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
}

fn sha256(digest: &Digest) -> Option<String> {
    (digest.algorithm() == portolan_core::Algorithm::Sha256).then(|| digest.hex())
}

/// The name of a disk's file in its directory.
pub fn disk_name(resolved_digest: &Digest) -> String {
    format!("{}.ext4", resolved_digest.hex())
}

/// The name of its metadata beside it.
pub fn metadata_name(resolved_digest: &Digest) -> String {
    format!("{}.meta.json", resolved_digest.hex())
}

/// Whether a text may be a format version, and so a part of a path: 1 to 32 letters, digits,
/// dots and dashes, no dot first.
pub fn is_version(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    (1..=32).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_one_that_is_written_down() {
        let paths = Paths::new(Path::new("/r"));
        let digest = Digest::sha256(b"");
        let hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        assert_eq!(text(paths.blob(&digest).unwrap()), format!("/r/oci/blobs/sha256/{hex}"));
        assert_eq!(
            text(paths.manifest(&digest).unwrap()),
            format!("/r/oci/manifests/sha256/{hex}")
        );
        assert_eq!(
            text(paths.current_disks().join(disk_name(&digest))),
            format!("/r/rootdisks/sha256/{hex}.ext4")
        );
        assert_eq!(
            text(paths.other_disks("7").join(metadata_name(&digest))),
            format!("/r/rootdisks/v7/sha256/{hex}.meta.json")
        );
        assert_eq!(text(paths.instance(&"web-1".parse().unwrap())), "/r/instances/web-1");
        assert_eq!(text(paths.tmp()), "/r/tmp");
        let long = Digest::of(portolan_core::Algorithm::Sha512, b"");
        assert!(paths.blob(&long).is_none() && paths.manifest(&long).is_none());
    }

    #[test]
    fn a_version_cannot_leave_its_directory() {
        for good in ["1", "2.0", "1-rc1"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", ".", "..", "../x", "a/b", "1 2", "é", &"1".repeat(33)] {
            assert!(!is_version(bad), "{bad:?}");
        }
    }
}
