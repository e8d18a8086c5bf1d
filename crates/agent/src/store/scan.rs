//! What is there when the agent starts: everything that is whole is taken in, everything that a
//! crash left half done goes, and whatever else lies about neither stops the start nor is touched.

use std::fs::{self, DirEntry, Metadata as FileMetadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_core::{Digest, Document};
use portolan_registry::durable::{self, DurableError};
use portolan_rootdisk::meta::{Metadata, MetadataError, ROOTDISK_FORMAT_VERSION, path_beside};

use super::state::{Disk, ManifestEntry, State};
use crate::paths::{Paths, disk_name, is_version, metadata_name};
use crate::pins::DiskId;

/// Bytes that a file takes of its file system.
pub(super) fn allocated(metadata: &FileMetadata) -> u64 {
    metadata.blocks().saturating_mul(512)
}

/// Milliseconds since 1970 of a file's last change, and never after `now`.
fn changed(metadata: &FileMetadata, now: u64) -> u64 {
    let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
    seconds.saturating_mul(1000).min(now)
}

/// Makes the directories of a root.
pub(super) fn create_directories(paths: &Paths) -> Result<(), DurableError> {
    for dir in
        [paths.blobs(), paths.manifests(), paths.current_disks(), paths.instances(), paths.tmp()]
    {
        if fs::symlink_metadata(&dir).is_ok_and(|m| !m.is_dir() && !m.is_symlink()) {
            remove(&dir);
        }
        durable::create_dir(&dir)?;
    }
    super::protect::below(paths);
    Ok(())
}

/// Empties `tmp/`: the lock on the root says that nobody else works there.
pub(super) fn sweep_tmp(paths: &Paths) {
    for entry in entries(&paths.tmp()) {
        remove(&entry.path());
    }
}

/// Takes in all that is valid.
pub(super) fn scan(paths: &Paths, state: &mut State, now: u64) {
    move_versions(paths);
    scan_disks(&paths.current_disks(), ROOTDISK_FORMAT_VERSION, state, now);
    for version in other_versions(paths) {
        scan_disks(&paths.other_disks(&version), &version, state, now);
    }
    for (digest, path, metadata) in content(&paths.blobs()) {
        if metadata.is_file() {
            state.insert_blob(digest, allocated(&metadata));
            state.remember(&digest.to_string(), changed(&metadata, now));
        } else {
            remove(&path);
        }
    }
    for (digest, path, metadata) in content(&paths.manifests()) {
        match read_manifest(&digest, &path, &metadata) {
            Some(entry) => {
                state.insert_manifest(digest, entry);
                state.remember(&digest.to_string(), changed(&metadata, now));
            }
            // Fetched again when it is asked for.
            None => remove(&path),
        }
    }
    state.forget_what_is_gone();
}

/// Disks of another version than that of this agent go to that version's directory, and those of
/// its own version come back: an upgrade or a downgrade leaves every disk valid.
///
/// The disk moves before its metadata. Where a crash comes between, the metadata is found without
/// its disk, the disk is found where it should go, and the rest is done then.
fn move_versions(paths: &Paths) {
    let current = paths.current_disks();
    let mut homes = vec![current.clone()];
    homes.extend(other_versions(paths).iter().map(|version| paths.other_disks(version)));
    for dir in homes {
        for (digest, path) in metadata_files(&dir) {
            let Ok(metadata) = Metadata::read(&path) else { continue };
            let version = &metadata.rootdisk_format_version;
            if !is_version(version) || metadata.resolved_digest != digest {
                continue;
            }
            let to = match version == ROOTDISK_FORMAT_VERSION {
                true => current.clone(),
                false => paths.other_disks(version),
            };
            if to == dir {
                continue;
            }
            match move_disk(&digest, &dir, &to) {
                Ok(()) => tracing::info!(
                    resolved_digest = %digest, version, "a root disk of another format version has its own directory"
                ),
                Err(error) => tracing::warn!(
                    resolved_digest = %digest, version, %error, "a root disk of another format version cannot be moved"
                ),
            }
        }
    }
}

fn move_disk(digest: &Digest, from: &Path, to: &Path) -> io::Result<()> {
    durable::create_dir(to).map_err(io::Error::other)?;
    let (disk, metadata) = (disk_name(digest), metadata_name(digest));
    match fs::rename(from.join(&disk), to.join(&disk)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => other?,
    }
    fs::rename(from.join(&metadata), to.join(&metadata))?;
    durable::sync_dir(to).map_err(io::Error::other)
}

/// The versions that have a directory, the current one apart.
fn other_versions(paths: &Paths) -> Vec<String> {
    let names = entries(&paths.rootdisks()).filter_map(|entry| {
        let version = entry.file_name().to_str()?.strip_prefix('v')?.to_owned();
        let dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        (dir && is_version(&version) && version != ROOTDISK_FORMAT_VERSION).then_some(version)
    });
    let mut versions: Vec<String> = names.collect();
    // Where this agent's own version has such a directory, its disks come back from there.
    if paths.other_disks(ROOTDISK_FORMAT_VERSION).is_dir() {
        versions.push(ROOTDISK_FORMAT_VERSION.to_owned());
    }
    versions.sort_unstable();
    versions
}

/// Every metadata file of a directory, with the digest in its name.
fn metadata_files(dir: &Path) -> Vec<(Digest, PathBuf)> {
    let named = entries(dir).filter_map(|entry| {
        let digest = digest_of(entry.file_name().to_str()?.strip_suffix(".meta.json")?)?;
        Some((digest, entry.path()))
    });
    named.collect()
}

/// Takes in the disks of a directory. A disk without readable metadata was never finished, or was
/// being evicted; metadata without its disk says nothing. Both go.
fn scan_disks(dir: &Path, version: &str, state: &mut State, now: u64) {
    for entry in entries(dir) {
        let path = entry.path();
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let Some(digest) = name.strip_suffix(".ext4").and_then(digest_of) else {
            continue;
        };
        match read_disk(&digest, version, &path) {
            Ok((disk, time)) => {
                state.remember(&disk.metadata.rootdisk_key, time.min(now));
                state.insert_disk(DiskId::new(digest, version), disk);
            }
            Err(Invalid { why, proven: true }) => {
                tracing::warn!(resolved_digest = %digest, path = %path.display(), why, "a root disk that is not valid is removed");
                remove(&path_beside(&path));
                remove(&path);
            }
            // A machine may be running from it, and tomorrow the disk may answer again.
            Err(Invalid { why, proven: false }) => {
                tracing::warn!(resolved_digest = %digest, path = %path.display(), why, "a root disk cannot be used");
            }
        }
    }
    for (digest, path) in metadata_files(dir) {
        if fs::symlink_metadata(dir.join(disk_name(&digest))).is_err() {
            remove(&path);
        }
    }
}

/// Why a disk is not taken in.
#[derive(Debug)]
pub(super) struct Invalid {
    pub(super) why: &'static str,
    /// It was seen to be wrong, and not only unreadable just now.
    pub(super) proven: bool,
}

impl Invalid {
    fn proven(why: &'static str) -> Self {
        Self { why, proven: true }
    }
}

/// A disk is valid when its metadata is there, speaks of it, and agrees with its length. Its
/// content is compared with its checksum on request: reading all of it would take minutes.
pub(super) fn read_disk(
    digest: &Digest,
    version: &str,
    path: &Path,
) -> Result<(Disk, u64), Invalid> {
    let file = fs::symlink_metadata(path).map_err(|error| Invalid {
        why: "its file cannot be looked at",
        proven: error.kind() == io::ErrorKind::NotFound,
    })?;
    let metadata = Metadata::read(&path_beside(path)).map_err(|error| Invalid {
        why: "its metadata is missing or cannot be read",
        proven: is_proof(&error),
    })?;
    if metadata.resolved_digest != *digest || metadata.rootdisk_format_version != version {
        return Err(Invalid::proven("its metadata speaks of another disk"));
    }
    if !file.is_file() || file.len() != metadata.size_bytes {
        return Err(Invalid::proven("its file has not the length that its metadata says"));
    }
    let disk = Disk {
        path: path.to_owned(),
        metadata: Arc::new(metadata),
        allocated_bytes: allocated(&file),
    };
    Ok((disk, changed(&file, u64::MAX)))
}

/// Whether an error says that the metadata is wrong, and not that the system failed to read it.
fn is_proof(error: &MetadataError) -> bool {
    match error {
        MetadataError::File(DurableError::Unreadable { source, .. }) => {
            source.kind() == io::ErrorKind::InvalidInput
        }
        MetadataError::File(DurableError::TooLarge { .. }) => true,
        MetadataError::File(_) => false,
        _ => true,
    }
}

fn read_manifest(digest: &Digest, path: &Path, metadata: &FileMetadata) -> Option<ManifestEntry> {
    let bytes = durable::read_bounded(path, MAX_MANIFEST_BYTES as u64).ok().flatten()?;
    manifest_entry(digest, &bytes, allocated(metadata))
}

/// What a manifest refers to; none when the bytes are not what the digest says.
pub(super) fn manifest_entry(
    digest: &Digest,
    bytes: &[u8],
    allocated_bytes: u64,
) -> Option<ManifestEntry> {
    if Digest::of(digest.algorithm(), bytes) != *digest {
        return None;
    }
    let Ok(Document::Manifest(manifest)) = Document::parse(bytes, None) else { return None };
    Some(ManifestEntry {
        allocated_bytes,
        config: manifest.config.digest,
        layers: manifest.layers.iter().map(|layer| layer.digest).collect(),
    })
}

/// What is called like content, with the digest in its name.
fn content(dir: &Path) -> Vec<(Digest, PathBuf, FileMetadata)> {
    let named = entries(dir).filter_map(|entry| {
        let digest = digest_of(entry.file_name().to_str()?)?;
        Some((digest, entry.path(), fs::symlink_metadata(entry.path()).ok()?))
    });
    named.collect()
}

fn digest_of(hex: &str) -> Option<Digest> {
    format!("sha256:{hex}").parse().ok()
}

/// The entries that can be read; a directory that cannot be listed has none, and what is in it
/// stays where it is.
fn entries(dir: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    let listed = fs::read_dir(dir);
    if let Err(error) = &listed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %dir.display(), %error, "a directory of the cache cannot be listed");
    }
    listed.into_iter().flatten().flatten()
}

/// Removes a file, or a directory with all in it. Links are not followed.
pub(super) fn remove(path: &Path) {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "what is not valid cannot be removed");
        }
        _ => {}
    }
}
