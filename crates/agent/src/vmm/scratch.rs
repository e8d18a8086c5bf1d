//! The scratch disk: sparse, fresh at every start, gone with its instance.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use portolan_registry::durable;
use portolan_rootdisk::ext4::{self, BlockSink};
use portolan_rootdisk::tree::BLOCK;

/// Why there is no scratch disk.
#[derive(Debug, thiserror::Error)]
pub enum ScratchDiskError {
    /// Its file system.
    #[error("the scratch disk's file system cannot be made")]
    Format(#[source] ext4::ScratchError),
    /// Its file.
    #[error("the scratch disk's file cannot be made")]
    File(#[source] io::Error),
}

impl ScratchDiskError {
    /// Whether there is no room for it.
    pub(super) fn is_full(&self) -> bool {
        let mut cause = Some(self as &(dyn std::error::Error + 'static));
        // The file system's writer passes on what its file said, some levels down.
        while let Some(error) = cause {
            if error.downcast_ref().is_some_and(durable::is_full) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

struct Sink<'a>(&'a File);

impl BlockSink for Sink<'_> {
    fn write(&mut self, block: u32, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, u64::from(block) * BLOCK as u64)
    }
}

/// A new file with an empty file system. It is not made durable: it does not outlive a boot.
pub(super) fn create(path: &Path, size: u64, uuid: [u8; 16]) -> Result<(), ScratchDiskError> {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(ScratchDiskError::File)?;
    let geometry = ext4::scratch(size, uuid, &mut Sink(&file)).map_err(ScratchDiskError::Format)?;
    file.set_len(geometry.size_bytes).map_err(ScratchDiskError::File)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_disk_without_room_is_told_from_a_size_that_cannot_be() {
        struct Full;
        impl BlockSink for Full {
            fn write(&mut self, _: u32, _: &[u8]) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        let full = ext4::scratch(64 << 20, [1; 16], &mut Full).unwrap_err();
        assert!(ScratchDiskError::Format(full).is_full());
        let small = ext4::scratch(1, [1; 16], &mut Full).unwrap_err();
        assert!(!ScratchDiskError::Format(small).is_full());
        assert!(ScratchDiskError::File(io::ErrorKind::QuotaExceeded.into()).is_full());
    }

    #[test]
    fn it_is_sparse_and_has_the_uuid_that_init_looks_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        create(&path, 1 << 30, [0xab; 16]).unwrap();
        let file = std::fs::metadata(&path).unwrap();
        assert!(file.len() > (1 << 30) - (8 << 20) && file.len() <= 1 << 30);
        assert!(file.blocks() * 512 < 1 << 20, "{} blocks", file.blocks());
        let uuid = crate::guest::disk_uuid(&path).unwrap();
        assert_eq!(uuid, Some("ab".repeat(16)));
        assert!(matches!(create(&path, 1 << 30, [0; 16]), Err(ScratchDiskError::File(_))));
    }
}
