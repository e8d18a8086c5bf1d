//! How full the pool of scratch disks is.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::config::Percent;
use crate::metrics::PoolUse;

/// Looks at the file system of `dir`, and adds up what is in it unless that is `known`.
pub(super) fn look(dir: &Path, high_water: Percent, known: Option<u64>) -> io::Result<PoolUse> {
    let system = rustix::fs::statvfs(dir)?;
    let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
    let (size_bytes, free_bytes) = (bytes(system.f_blocks), bytes(system.f_bavail));
    let used_bytes = match known {
        Some(known) => known,
        None => allocated(dir)?,
    };
    let pressure = has_pressure(size_bytes, free_bytes, high_water);
    Ok(PoolUse { used_bytes, free_bytes, size_bytes, pressure })
}

/// A file system without blocks of its own (a network or a memory one) is never full by itself.
fn has_pressure(size: u64, free: u64, high_water: Percent) -> bool {
    size > 0 && size.saturating_sub(free) > high_water.of(size)
}

/// What the files of all instances take: two levels, no links followed.
fn allocated(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for instance in std::fs::read_dir(dir)? {
        let Ok(files) = instance.and_then(|found| std::fs::read_dir(found.path())) else {
            // Deleted since, or no folder of an instance.
            continue;
        };
        for file in files.flatten() {
            if let Ok(found) = file.metadata() {
                sum += found.blocks() * 512;
            }
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_begins_above_the_high_water_mark() {
        let mark = Percent::new(90);
        for (free, pressure) in [(100, false), (11, false), (10, false), (9, true), (0, true)] {
            assert_eq!(has_pressure(100, free, mark), pressure, "{free}");
        }
        assert!(!has_pressure(0, 0, mark));
    }

    #[test]
    fn what_instances_take_is_what_is_allocated_and_not_their_size() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/data"), vec![1; 8192]).unwrap();
        let sparse = std::fs::File::create(dir.path().join("a/scratch")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        std::fs::write(dir.path().join("stray"), "x").unwrap();
        let now = look(dir.path(), Percent::new(100), None).unwrap();
        assert!((8192..1 << 30).contains(&now.used_bytes), "{now:?}");
        assert!(now.size_bytes > 0 && now.free_bytes <= now.size_bytes);
        assert_eq!(look(dir.path(), Percent::new(100), Some(7)).unwrap().used_bytes, 7);
    }
}
