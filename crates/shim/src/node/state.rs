//! What was done on a node, and what is being done: one small file in the install directory.
//!
//! It is written before what it speaks of, so that whoever comes after a crash knows what may be there:
//! directories that we make, programs that we place, files of the configuration as they were before. The
//! directory comes into being and goes with one rename each, so there is no moment in which it is there and
//! nobody knows whose it is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use portolan_registry::durable::{self, DurableError};
use serde::{Deserialize, Serialize};

use super::disk::Disk;
use super::root::HostRoot;

/// Our corner of the install directory.
const CORNER: &str = ".portolan";
/// A directory that is being made, and one that is going; only one installer works at a time.
const COMING: &str = ".portolan-new";
const GOING: &str = ".portolan-gone";
/// More than a thousand shims would write.
const MAX_STATE: u64 = 4 << 20;
/// The form of the file.
const SCHEMA: u32 = 1;

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The disk.
    #[error("the state of this node's shims cannot be kept")]
    Disk(#[from] DurableError),
    /// A path of the host that leads nowhere.
    #[error("{path} cannot be followed on this host")]
    Path {
        /// The path.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Not our JSON.
    #[error("{path} is not what was written there; move it away to begin anew")]
    Damaged {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// From a later version.
    #[error("{path} is of form {schema}, written by a later portolan; use that one")]
    Newer {
        /// The file.
        path: String,
        /// Its form.
        schema: u32,
    },
}

/// What was done and is being done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The form of this file.
    pub schema: u32,
    /// Directories that we made or were about to make, as the host names them.
    #[serde(default)]
    pub created: Vec<String>,
    /// By the shim's name.
    #[serde(default)]
    pub shims: BTreeMap<String, Shim>,
    /// The runtime has to be started again before it knows what the configuration says.
    #[serde(default)]
    pub restart_due: bool,
    /// Files of the configuration as they were before a change that the runtime has not yet taken.
    #[serde(default)]
    pub before: Vec<Saved>,
}

/// One shim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shim {
    /// What the runtime calls it.
    pub handler: String,
    /// Its file's name.
    pub binary: String,
    /// SHA-256 of the program that the configuration names, hex.
    pub sha256: String,
    /// SHA-256 of the archive it came from, where it came from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_sha256: Option<String>,
    /// SHA-256 of every program of it that may be in the install directory.
    #[serde(default)]
    pub versions: Vec<String>,
    /// Files of the configuration that were changed for it.
    #[serde(default)]
    pub files: Vec<String>,
    /// SHA-256 of what was written of it into each of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wrote: BTreeMap<String, String>,
    /// All was done.
    #[serde(default)]
    pub installed: bool,
}

/// A file as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    /// As the host names it.
    pub path: String,
    /// What it said; none where it was not there.
    pub text: Option<String>,
    /// SHA-256 of what we then wrote there; none where it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrote: Option<String>,
}

impl Default for State {
    fn default() -> Self {
        let (created, shims, before) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { schema: SCHEMA, created, shims, restart_due: false, before }
    }
}

/// The state of a node, and the install directory it is kept in.
pub(crate) struct Store<'a> {
    pub(crate) root: &'a HostRoot,
    pub(crate) disk: Disk<'a>,
    /// As the host names it.
    pub(crate) install_dir: String,
    pub(crate) state: State,
}

impl<'a> Store<'a> {
    /// Reads what is there, and sweeps what a dead installer left half made. Nothing is made yet.
    pub(crate) fn open(
        root: &'a HostRoot,
        disk: Disk<'a>,
        install_dir: &str,
    ) -> Result<Self, StateError> {
        let install_dir = install_dir.trim_end_matches('/').to_owned();
        let mut store = Self { root, disk, install_dir, state: State::default() };
        if let Some(bytes) = durable::read_bounded(&store.file()?, MAX_STATE)? {
            store.state = store.parse(&bytes)?;
        }
        Ok(store)
    }

    /// Removes what a dead installer left half made.
    pub(crate) fn sweep(&self) -> Result<(), StateError> {
        let here = self.here(&self.install_dir)?;
        for dir in here.ancestors().take_while(|dir| dir.starts_with(self.root.dir())) {
            if dir.is_dir() {
                self.disk.remove_tree(&dir.join(COMING))?;
                self.disk.remove_tree(&dir.join(GOING))?;
            }
        }
        self.disk.remove_tree(&self.temp()?)?;
        Ok(())
    }

    fn parse(&self, bytes: &[u8]) -> Result<State, StateError> {
        let path = || format!("{}/{CORNER}/state.json", self.install_dir);
        let damaged = |source| StateError::Damaged { path: path(), source };
        let state: State = serde_json::from_slice(bytes).map_err(damaged)?;
        match state.schema {
            SCHEMA => Ok(state),
            schema => Err(StateError::Newer { path: path(), schema }),
        }
    }

    /// Where a path of the host is here.
    pub(crate) fn here(&self, path: &str) -> Result<PathBuf, StateError> {
        let failed = |source| StateError::Path { path: path.to_owned(), source };
        self.root.locate(path).map_err(failed)
    }

    fn corner(&self) -> Result<PathBuf, StateError> {
        Ok(self.here(&self.install_dir)?.join(CORNER))
    }

    fn file(&self) -> Result<PathBuf, StateError> {
        Ok(self.corner()?.join("state.json"))
    }

    /// Where files are made before they have their place; on the file system of the programs.
    pub(crate) fn temp(&self) -> Result<PathBuf, StateError> {
        Ok(self.corner()?.join("temp"))
    }

    /// Makes the install directory with its state, by one rename; true where it was not there.
    pub(crate) fn create(&mut self) -> Result<bool, StateError> {
        if self.file()?.exists() {
            return Ok(false);
        }
        let here = self.here(&self.install_dir)?;
        let missing: Vec<_> = here.ancestors().take_while(|dir| !dir.exists()).collect();
        self.remember(&missing);
        // The highest that is missing is made aside, with all below it.
        let top = missing.last().map_or_else(|| here.join(CORNER), |dir| (*dir).to_path_buf());
        let aside = top.parent().unwrap_or(&top).join(COMING);
        let below = here.join(CORNER);
        let below = below.strip_prefix(&top).unwrap_or_else(|_| Path::new(""));
        self.disk.remove_tree(&aside)?;
        let mut inner = aside.clone();
        // The rename makes durable what it is called then.
        self.disk.make_dir(&inner)?;
        for part in below {
            inner.push(part);
            self.disk.create_dir(&inner)?;
        }
        let _ = fs::set_permissions(&inner, std::os::unix::fs::PermissionsExt::from_mode(0o700));
        self.disk.replace(&inner.join("state.json"), self.text().as_bytes(), 0o600)?;
        self.disk.rename(&aside, &top)?;
        Ok(true)
    }

    /// Paths here as the host names them.
    fn host_names(&self, paths: &[&Path]) -> Vec<String> {
        let name = |path: &&Path| {
            let below = path.strip_prefix(self.root.dir()).unwrap_or(path);
            format!("/{}", below.display())
        };
        paths.iter().map(name).collect()
    }

    fn text(&self) -> String {
        serde_json::to_string_pretty(&self.state).expect("strings, flags and lists only") + "\n"
    }

    /// Writes the state.
    pub(crate) fn save(&self) -> Result<(), StateError> {
        Ok(self.disk.replace(&self.file()?, self.text().as_bytes(), 0o600)?)
    }

    /// Remembers directories that are about to be made; true where that has to be written.
    fn remember(&mut self, missing: &[&Path]) -> bool {
        let new = self.host_names(missing).into_iter();
        let unknown: Vec<_> = new.filter(|dir| !self.state.created.contains(dir)).collect();
        self.state.created.extend_from_slice(&unknown);
        !unknown.is_empty()
    }

    /// Remembers what is missing of a directory of the host; true where that has to be written. Who then writes the state anyway
    /// spares `ensure_dir` another time.
    pub(crate) fn expect_dir(&mut self, dir: &str) -> Result<bool, StateError> {
        let here = self.here(dir)?;
        let missing: Vec<_> = here.ancestors().take_while(|dir| !dir.exists()).collect();
        Ok(self.remember(&missing))
    }

    /// Makes a directory of the host and those above it, and remembers them first.
    pub(crate) fn ensure_dir(&mut self, dir: &str) -> Result<PathBuf, StateError> {
        let here = self.here(dir)?;
        let missing: Vec<_> = here.ancestors().take_while(|dir| !dir.exists()).collect();
        if self.remember(&missing) {
            self.save()?;
        }
        for dir in missing.iter().rev() {
            self.disk.create_dir(dir)?;
        }
        Ok(here)
    }

    /// Removes the directories that we made and nobody uses, but for those above our own corner.
    pub(crate) fn remove_unused_dirs(&mut self) -> Result<(), StateError> {
        let corner = self.corner()?;
        let mut created = std::mem::take(&mut self.state.created);
        // The deepest first.
        created.sort_unstable_by_key(|dir| std::cmp::Reverse(dir.matches('/').count()));
        let mut left = Vec::new();
        for dir in created {
            let here = self.here(&dir)?;
            if corner.starts_with(&here) || !self.disk.remove_empty_dir(&here)? {
                left.push(dir);
            }
        }
        self.state.created = left;
        Ok(())
    }

    /// The last shim is gone: our corner goes, and with it the directories that we made for it.
    pub(crate) fn finish(&mut self) -> Result<(), StateError> {
        if !self.state.shims.is_empty() || !self.state.before.is_empty() {
            return self.save();
        }
        let corner = self.corner()?;
        if !corner.exists() {
            return Ok(());
        }
        let mut top = corner.clone();
        let ours =
            |dir: &Path| self.host_names(&[dir]).iter().all(|d| self.state.created.contains(d));
        while let Some(dir) = top.parent() {
            let alone = fs::read_dir(dir).is_ok_and(|entries| entries.count() == 1);
            if !(ours(dir) && alone) {
                break;
            }
            top = dir.to_path_buf();
        }
        let aside = top.parent().unwrap_or(&top).join(GOING);
        self.disk.rename(&top, &aside)?;
        self.disk.remove_tree(&aside)?;
        self.state = State::default();
        Ok(())
    }
}
