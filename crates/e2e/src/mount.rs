//! Mounts of a test, undone when dropped.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{Testbed, run};

/// Something mounted on an empty folder.
#[derive(Debug)]
pub struct Mount {
    dir: tempfile::TempDir,
}

impl Mount {
    /// A disk's file system through a loop device, as the kernel reads it and read-only.
    pub fn read_only(disk: &Path) -> Result<Self> {
        Self::new(&["-o", "ro,noload,loop"], disk)
    }

    /// A disk's file system through a loop device, to be written to.
    pub fn writable(disk: &Path) -> Result<Self> {
        Self::new(&["-o", "loop"], disk)
    }

    /// A file system of its own with so much room, in memory.
    pub fn small(mebibytes: u32) -> Result<Self> {
        let options = format!("size={mebibytes}m,mode=0755");
        Self::new(&["-t", "tmpfs", "-o", &options], Path::new("tmpfs"))
    }

    /// A writable overlay over `lower`; `above` holds what is written.
    pub fn overlay(lower: &Path, above: &Path) -> Result<Self> {
        for folder in ["upper", "work"] {
            std::fs::create_dir_all(above.join(folder))?;
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            above.join("upper").display(),
            above.join("work").display()
        );
        Self::new(&["-t", "overlay", "-o", &options], Path::new("overlay"))
    }

    fn new(args: &[&str], what: &Path) -> Result<Self> {
        // In the testbed's own folder: what a killed test leaves mounted there is unmounted with
        // the cluster.
        let folder = Testbed::get().logs.parent().context("the logs are in the run folder")?;
        let dir = tempfile::Builder::new().prefix("mount-").tempdir_in(folder)?;
        let output = run(Command::new("mount").args(args).arg(what).arg(dir.path()))?;
        anyhow::ensure!(output.code == Some(0), "{output}");
        Ok(Self { dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A name below it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg(self.dir.path()));
    }
}
