//! What is known of a root disk, kept beside it as `<name>.meta.json`.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use portolan_core::Digest;
use portolan_registry::durable::{self, DurableError};
use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::tree::BLOCK;

/// The version of everything that decides a disk's bytes: where data goes, how layers are merged,
/// what the metadata looks like. A change of any of these changes this text, and with it every
/// [`rootdisk_key`].
pub const ROOTDISK_FORMAT_VERSION: &str = "1";

/// The largest metadata file that is read; a real one has about a thousand bytes.
pub const MAX_BYTES: u64 = 64 * 1024;

/// What a disk is cached under: the SHA-256, in hex, of the digest's text followed by the
/// version's.
pub fn rootdisk_key(resolved_digest: &Digest, format_version: &str) -> String {
    Digest::sha256(format!("{resolved_digest}{format_version}").as_bytes()).hex()
}

/// The kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilesystemType {
    /// The only one there is.
    Ext4,
}

/// What is known of a root disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// The manifest that the disk was built from.
    pub resolved_digest: Digest,
    /// What it is cached under.
    pub rootdisk_key: String,
    /// By which rules it was built.
    pub rootdisk_format_version: String,
    /// When. The disk itself knows nothing of it.
    pub build_timestamp: Timestamp,
    /// What a guest mounts.
    pub filesystem_type: FilesystemType,
    /// How long the file is. Most of it may be holes.
    pub size_bytes: u64,
    /// How much of a disk the file took when it was built; what caches count.
    pub allocated_bytes: u64,
    /// Of the whole file, holes and all.
    pub checksum: Checksum,
    /// How many layers went in.
    pub layers: u32,
    /// Regular files that a name leads to.
    pub files: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// The hash tree after the file system, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verity: Option<Verity>,
}

/// What it takes to open the disk with dm-verity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verity {
    /// The hash of the tree's top block, in hex.
    pub root_hash: String,
    /// In hex.
    pub salt: String,
    /// `sha256`.
    pub hash_algorithm: String,
    /// Bytes of a block of data.
    pub data_block_size: u32,
    /// Bytes of a block of hashes.
    pub hash_block_size: u32,
    /// How many blocks of data the tree covers.
    pub data_blocks: u64,
    /// Where in the file the hash area, its superblock first, begins.
    pub hash_offset: u64,
}

/// Why metadata could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] DurableError),
    /// There is none.
    #[error("there is no {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Not JSON of this kind.
    #[error("{} is not metadata of a root disk; build the disk again", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// It reads, but cannot be true.
    #[error("{} contradicts itself: {problem}; build the disk again", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        problem: &'static str,
    },
}

impl Metadata {
    /// Reads a metadata file, which is bounded and held to what it says of itself.
    pub fn read(path: &Path) -> Result<Self, MetadataError> {
        let bytes = durable::read_bounded(path, MAX_BYTES)?
            .ok_or_else(|| MetadataError::Missing { path: path.to_owned() })?;
        let read: Self = serde_json::from_slice(&bytes)
            .map_err(|source| MetadataError::Json { path: path.to_owned(), source })?;
        match read.contradiction() {
            Some(problem) => Err(MetadataError::Contradiction { path: path.to_owned(), problem }),
            None => Ok(read),
        }
    }

    /// Writes it, all or nothing, by way of a temp file in `temp`.
    pub fn write(&self, temp: &Path, path: &Path) -> Result<(), MetadataError> {
        Ok(durable::replace(temp, path, &self.to_json())?)
    }

    /// As it is stored: pretty JSON and a line break.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self)
            .expect("metadata has only string keys and finite numbers");
        json.push(b'\n');
        json
    }

    fn contradiction(&self) -> Option<&'static str> {
        let block = BLOCK as u64;
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        if self.rootdisk_key != rootdisk_key(&self.resolved_digest, &self.rootdisk_format_version) {
            return Some("rootdisk_key is not that of its digest and format version");
        }
        if self.size_bytes == 0 || !self.size_bytes.is_multiple_of(block) {
            return Some("size_bytes is no number of blocks");
        }
        let verity = self.verity.as_ref()?;
        if !is_hex(&verity.root_hash, 64) {
            return Some("the root hash is no SHA-256");
        }
        if verity.salt.len() > 512 || !is_hex(&verity.salt, verity.salt.len()) {
            return Some("the salt is not hex or too long");
        }
        let end = verity.data_blocks.checked_mul(block);
        if end.is_none_or(|end| end > verity.hash_offset) || verity.hash_offset >= self.size_bytes {
            return Some("the hash tree lies outside the file or over its data");
        }
        None
    }
}

/// Where the metadata of the disk in `disk` is: `x.meta.json` beside `x.ext4`, and the whole name
/// with `.meta.json` behind it for a disk of any other name, since `app-1.2` and `app-1.3` are two.
pub fn path_beside(disk: &Path) -> PathBuf {
    if disk.extension().is_some_and(|extension| extension == "ext4") {
        return disk.with_extension("meta.json");
    }
    let mut name = disk.file_name().unwrap_or_default().to_owned();
    name.push(".meta.json");
    disk.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Metadata {
        let resolved_digest = Digest::sha256(b"manifest");
        Metadata {
            resolved_digest,
            rootdisk_key: rootdisk_key(&resolved_digest, "1"),
            rootdisk_format_version: "1".to_owned(),
            build_timestamp: "2025-12-16T10:00:00Z".parse().unwrap(),
            filesystem_type: FilesystemType::Ext4,
            size_bytes: 1 << 29,
            allocated_bytes: 1 << 20,
            checksum: Checksum::from_bytes([7; 32]),
            layers: 2,
            files: 10,
            inodes: 21,
            verity: None,
        }
    }

    #[test]
    fn the_key_is_the_hash_of_digest_and_version_one_after_the_other() {
        let digest = Digest::sha256(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8551";
        assert_eq!(rootdisk_key(&digest, "1"), Digest::sha256(text.as_bytes()).hex());
        assert_ne!(rootdisk_key(&digest, "1"), rootdisk_key(&digest, "2"));
    }

    #[test]
    fn metadata_comes_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_beside(&dir.path().join("abc.ext4"));
        assert!(path.ends_with("abc.meta.json"));
        for (disk, beside) in [
            ("dir/app-1.2", "dir/app-1.2.meta.json"),
            ("app.img", "app.img.meta.json"),
            (".ext4", ".ext4.meta.json"),
        ] {
            assert_eq!(path_beside(Path::new(disk)), Path::new(beside));
        }
        let written = example();
        written.write(dir.path(), &path).unwrap();
        assert_eq!(Metadata::read(&path).unwrap(), written);
        let names: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["abc.meta.json"], "no temp file stays");
        let json = String::from_utf8(written.to_json()).unwrap();
        for field in [
            "\"build_timestamp\": \"2025-12-16T10:00:00Z\"",
            "\"filesystem_type\": \"ext4\"",
            "\"checksum\": \"blake3-chunks:0707",
            "\"rootdisk_format_version\": \"1\"",
        ] {
            assert!(json.contains(field), "{field} in {json}");
        }
        assert!(!json.contains("verity"));
    }

    #[test]
    fn what_cannot_be_true_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.meta.json");
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Metadata::read(&path).unwrap_err()
        };
        let json = String::from_utf8(example().to_json()).unwrap();
        let other_key = json.replace(&example().rootdisk_key, &"0".repeat(64));
        let error = refused(other_key.as_bytes());
        assert!(error.to_string().contains("rootdisk_key"), "{error}");
        let odd_size = json.replace("536870912", "536870913");
        assert!(matches!(refused(odd_size.as_bytes()), MetadataError::Contradiction { .. }));
        let unknown = json.replacen('{', "{\"more\": 1,", 1);
        assert!(matches!(refused(unknown.as_bytes()), MetadataError::Json { .. }));
        let checksum = json.replace("blake3-chunks:", "md5:");
        assert!(matches!(refused(checksum.as_bytes()), MetadataError::Json { .. }));
        let endless = refused(&[b' '; 70_000]);
        assert!(matches!(endless, MetadataError::File(DurableError::TooLarge { .. })));
        std::fs::remove_file(&path).unwrap();
        let missing = Metadata::read(&path).unwrap_err();
        assert!(matches!(missing, MetadataError::Missing { .. }));

        let mut with_tree = example();
        with_tree.verity = Some(Verity {
            root_hash: "ab".repeat(32),
            salt: "00".repeat(32),
            hash_algorithm: "sha256".to_owned(),
            data_block_size: 4096,
            hash_block_size: 4096,
            data_blocks: 1 << 18,
            hash_offset: 1 << 20,
        });
        let error = refused(&with_tree.to_json());
        assert!(error.to_string().contains("hash tree"), "{error}");
    }
}
