//! Roots that hold what a test puts there.
#![allow(dead_code, reason = "every file uses a part of it")]

use std::fs;
use std::path::Path;

use portolan_host::facts::{Facts, Instance, Wanted};
use tempfile::TempDir;

/// What every kernel has in `/sys`, so that a copy of it counts as whole.
pub(crate) const WHOLE: (&str, &str) =
    ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0");

pub(crate) const AMD64: (&str, &str) = ("proc/sys/kernel/arch", "x86_64");

pub(crate) const RELEASE: (&str, &str) = ("proc/sys/kernel/osrelease", "6.1.0");

/// A root that holds these files.
pub(crate) fn root(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (path, text) in files {
        write(dir.path(), path, text.as_bytes());
    }
    dir
}

pub(crate) fn write(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
    fs::write(path, bytes).expect("a file");
}

/// A pipe that nobody writes to.
pub(crate) fn fifo(root: &Path, path: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, rustix::fs::Mode::RUSR, 0).expect("a pipe");
}

pub(crate) fn of(dir: &TempDir, feature: &str) -> Facts {
    Facts::at(dir.path(), &Wanted::default().feature(feature)).expect("the root is there")
}

pub(crate) fn instances(facts: &Facts, feature: &str) -> Vec<Instance> {
    let feature = facts.feature(feature).expect("it is known");
    feature.instances.clone().expect("it has instances")
}
