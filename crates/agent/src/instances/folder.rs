//! An instance's folder: made whole, and removed so that nobody finds half of it.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use portolan_registry::durable::{self, DurableError};

use super::load::GONE;
use super::state::{State, write_spec, write_state};
use crate::spec::WorkloadSpec;
use crate::vmm::MachineLock;

/// An instance's folder with everything in it. `spec.json` comes last: with it the instance exists.
pub(super) fn make(folder: &Path, state: &State, spec: &WorkloadSpec) -> Result<(), DurableError> {
    // What is there without being known is rubbish: an unusable name in place of a folder.
    if std::fs::symlink_metadata(folder).is_ok_and(|file| !file.is_dir()) {
        std::fs::remove_file(folder).map_err(|error| DurableError::io("remove", folder, error))?;
    }
    durable::create_dir(folder)?;
    // A workload's environment may be secret.
    let own = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder, own)
        .map_err(|error| DurableError::io("protect", folder, error))?;
    write_state(folder, state)?;
    write_spec(folder, spec)
}

/// Removes an instance's folder; false where a machine holds its lock.
///
/// It gets another name first, in the same directory: `instances/` may be a file system of its own.
pub(super) fn remove(dir: &Path) -> io::Result<bool> {
    // With the lock no machine lives and none begins; a late shim finds another folder.
    let _lock = match MachineLock::take(dir) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Ok(false),
        // Somebody was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let parent = dir.parent().unwrap_or(dir);
    let gone = parent.join(format!("{}{}", GONE, durable::random_hex()?));
    std::fs::rename(dir, &gone)?;
    durable::sync_dir(parent).map_err(io::Error::other)?;
    // What stays behind here is swept by the next agent.
    let _ = std::fs::remove_dir_all(&gone);
    Ok(true)
}
