//! Where the journey keeps what it makes: in the agent's root, beside the agent's own.
//!
//! ```text
//! registry/                    the embedded registry: `portolan registry serve --root` serves it
//! keys/development.key, .pub   the development key, made when it is first needed
//! ship/<hex>.json              what was built last for one reference, and of what
//! ship/machine/                a machine that --boot started
//! ship/lock                    held by the one that works here
//! ```

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use portolan_build::engine::Known;
use portolan_core::Digest;
use portolan_registry::durable;
use tokio_util::sync::CancellationToken;

use super::interrupted;
use crate::exit::{Exit, Failure};
use crate::format;

/// A record has a KiB or two for each platform.
const MAX_RECORD: u64 = 1024 * 1024;
/// How often a lock that somebody holds is tried again.
const LOOK: Duration = Duration::from_millis(50);

/// The directory.
#[derive(Debug)]
pub(super) struct Site {
    root: PathBuf,
}

impl Site {
    /// Makes what is not there; all of it is its owner's alone.
    pub(super) fn open(root: &Path) -> Result<Self, Failure> {
        let site = Self { root: root.to_owned() };
        for dir in [site.registry(), site.keys(), site.own()] {
            directory(&dir)?;
        }
        Ok(site)
    }

    pub(super) fn registry(&self) -> PathBuf {
        self.root.join("registry")
    }

    pub(super) fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    fn own(&self) -> PathBuf {
        self.root.join("ship")
    }

    /// Of a machine that this program starts itself.
    pub(super) fn machine(&self) -> Result<PathBuf, Failure> {
        let dir = self.own().join("machine");
        directory(&dir)?;
        Ok(dir)
    }

    fn record(&self, name: &str) -> PathBuf {
        let hex = Digest::sha256(name.as_bytes()).hex();
        self.own().join(format!("{}.json", &hex[..16]))
    }

    /// What was built last under a name. What cannot be read was not built.
    pub(super) fn known(&self, name: &str) -> Option<Known> {
        let bytes = durable::read_bounded(&self.record(name), MAX_RECORD).ok().flatten()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn remember(&self, name: &str, known: &Known) -> Result<(), Failure> {
        let bytes = serde_json::to_vec_pretty(known).map_err(Failure::usage)?;
        durable::replace(&self.own(), &self.record(name), &bytes).map_err(local)
    }

    /// Waits until nobody else works here. The lock goes with the process, however it ends.
    pub(super) async fn lock(&self, cancel: &CancellationToken) -> Result<File, Failure> {
        let path = self.own().join("lock");
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = open.with_context(|| format!("open {}", path.display())).map_err(local)?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(local(error)),
            }
            if !std::mem::replace(&mut told, true) {
                let root = self.root.display();
                format::tell(&format!("waiting: another portolan ship works in {root}"));
            }
            tokio::select! {
                () = cancel.cancelled() => return Err(interrupted()),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

fn directory(dir: &Path) -> Result<(), Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    let what = || {
        format!(
            "cannot make {}; choose a directory that you may write to: --root DIR",
            dir.display()
        )
    };
    made.with_context(what).map_err(local)
}

pub(super) fn local(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(Exit::Transport, error)
}
