//! Room for root disks and for builds.

use std::path::{Path, PathBuf};

use super::super::finding::{Finding, missing, ok, unknown, wrong};
use crate::format::size;

/// An image of a language's runtime, unpacked. With less, the first build or fetch may be the last.
const LITTLE: u64 = 2 << 30;
/// From here on the agent refuses new builds (`cache.high_water_percent`).
const FULL_PERCENT: u128 = 90;

/// One file system, by what it is for.
#[derive(Debug)]
pub(in super::super) struct Disk {
    pub(super) purpose: &'static str,
    pub(super) path: PathBuf,
    /// Free and all bytes, or why that is not known.
    pub(super) room: Result<(u64, u64), String>,
}

pub(in super::super) fn gather(places: &[(&'static str, &PathBuf)]) -> Vec<Disk> {
    let of = |&(purpose, path): &(&'static str, &PathBuf)| Disk {
        purpose,
        path: path.clone(),
        room: room(path),
    };
    places.iter().map(of).collect()
}

/// What is not there yet will be on the file system of the folder that is.
fn room(path: &Path) -> Result<(u64, u64), String> {
    let there = path.ancestors().find(|path| path.exists());
    let there = there.ok_or("no folder of its path is there")?;
    let stat = rustix::fs::statvfs(there).map_err(|error| error.to_string())?;
    // A file system of somebody's own may say any number.
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok((bytes(stat.f_bavail), bytes(stat.f_blocks)))
}

pub(in super::super) fn check(disk: &Disk) -> Finding {
    const CHECK: &str = "disk";
    let place = format!("{} ({})", disk.purpose, disk.path.display());
    match &disk.room {
        Err(why) => unknown(CHECK, format!("{place}: {why}"), "look at the file system"),
        Ok((free, all)) => {
            let found = format!("{place}: {} of {} free", size(*free), size(*all));
            let used = u128::from(all.saturating_sub(*free)) * 100;
            let is_full = used >= u128::from(*all) * FULL_PERCENT;
            match (*free < LITTLE, is_full) {
                (true, _) => wrong(CHECK, found, "make room: an unpacked image takes this much"),
                (false, true) => missing(
                    CHECK,
                    found,
                    "at 90 % the agent refuses new root disks: make room, or raise cache.high_water_percent",
                ),
                (false, false) => ok(CHECK, found),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn little_room_is_wrong_and_much_of_a_full_disk_is_told() {
        const GIB: u64 = 1 << 30;
        for (room, state) in [
            (Ok((GIB, 100 * GIB)), State::Wrong),
            (Ok((5 * GIB, 100 * GIB)), State::Missing),
            (Ok((50 * GIB, 100 * GIB)), State::Ok),
            (Ok((0, 0)), State::Wrong),
            (Err("no".to_owned()), State::Unknown),
        ] {
            let disk = Disk { purpose: "tests", path: "/x".into(), room };
            assert_eq!(check(&disk).state, state, "{disk:?}");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_yet_is_on_the_disk_of_the_one_that_is() {
        let dir = tempfile::tempdir().unwrap();
        let (free, all) = room(&dir.path().join("a/b/c")).unwrap();
        assert!(free <= all && all > 0);
    }
}
