//! Empty disks of many sizes.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod ext4_support;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ext4_support::{FileSink, MemorySink, Mount, fsck};
use portolan_rootdisk::ext4::{self, Geometry, MAX_BYTES, MIN_SCRATCH_BYTES, ScratchError};

const ID: [u8; 16] = *b"scratch's own id";

fn make(size: u64, path: &Path) -> Geometry {
    let file = fs::File::options().write(true).create_new(true).open(path).unwrap();
    let mut sink = FileSink(file);
    let geometry = ext4::scratch(size, ID, &mut sink).unwrap();
    sink.0.set_len(geometry.size_bytes).unwrap();
    geometry
}

#[test]
fn scratch_disks_of_many_sizes_are_clean() {
    let group = 128 << 20;
    for size in [
        MIN_SCRATCH_BYTES,
        MIN_SCRATCH_BYTES + 5000,
        100 << 20,
        group,
        group + 4096,
        group + MIN_SCRATCH_BYTES,
        (512 << 20) - 4096,
        1 << 30,
        16 * group + MIN_SCRATCH_BYTES,
        17 * group,
        10 << 30,
        200 << 30,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("scratch");
        let geometry = make(size, &disk);
        assert!(geometry.size_bytes <= size && geometry.size_bytes > size - MIN_SCRATCH_BYTES);
        fsck(&disk);
    }
}

#[test]
fn the_largest_scratch_disk_costs_little() {
    let mut sink = MemorySink::default();
    let geometry = ext4::scratch(MAX_BYTES, ID, &mut sink).unwrap();
    assert_eq!(geometry.size_bytes, MAX_BYTES);
    assert!(sink.0.len() < 10_000, "{} blocks", sink.0.len());
}

#[test]
fn scratch_disks_are_sparse_and_always_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    make(1 << 30, &one);
    make(1 << 30, &two);
    let allocated = fs::metadata(&one).unwrap().blocks() * 512;
    assert!(allocated < 1 << 20, "{allocated}");
    let mut sinks = [MemorySink::default(), MemorySink::default(), MemorySink::default()];
    for (sink, id) in sinks.iter_mut().zip([ID, ID, [7; 16]]) {
        ext4::scratch(1 << 30, id, sink).unwrap();
    }
    assert!(sinks[0] == sinks[1] && sinks[0] != sinks[2]);
}

#[test]
fn sizes_out_of_range_are_refused_with_the_range() {
    for size in [0, MIN_SCRATCH_BYTES - 1, MAX_BYTES + 1, u64::MAX] {
        let error = ext4::scratch(size, ID, &mut MemorySink::default()).unwrap_err();
        assert!(matches!(error, ScratchError::Size { .. }), "{error}");
        assert!(error.to_string().contains("8388608 to 17575006175232"), "{error}");
    }
}

#[test]
fn a_scratch_disk_that_was_filled_is_clean() {
    for size in [MIN_SCRATCH_BYTES, 300 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("scratch");
        make(size, &disk);
        {
            let Some(mount) = Mount::writable(&disk) else { return };
            let upper = mount.path().join("upper");
            assert_eq!(fs::metadata(&upper).unwrap().mode(), 0o040_755);
            assert_eq!(fs::metadata(mount.path().join("work")).unwrap().mode(), 0o040_755);
            for name in 0..400 {
                fs::create_dir(upper.join(format!("{name}"))).unwrap();
                fs::write(upper.join(format!("{name}/file")), vec![3; name * 7]).unwrap();
            }
            let mut large = fs::File::create(upper.join("large")).unwrap();
            let piece = vec![9; 1 << 20];
            let full = (0..400).find_map(|_| large.write_all(&piece).err()).unwrap();
            assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        }
        fsck(&disk);
    }
}
