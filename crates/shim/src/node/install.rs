//! A shim on a node: fetched, checked, put in its place, made known.
//!
//! What can be refused is refused before the node is touched: the location, the digest, the archive, the
//! program's architecture, the kind of node, the configuration. Every later step is written down before it
//! is made, so that a run that dies anywhere is finished by the next one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_core::Digest;

use super::archive::Program;
use super::config;
use super::disk::{Disk, Watch};
use super::elf;
use super::error::NodeError;
use super::exec::Context;
use super::lock;
pub use super::obtain::{Source, fetch_stage};
use super::obtain::{copy, obtain, platform};
use super::place;
use super::preset::{Overrides, Site, detect};
pub use super::progress::Outcome;
use super::progress::Progress;
use super::ready::Expect;
use super::request::{self, RequestError, Wanted};
use super::retire;
use super::root::HostRoot;
pub use super::settle::Restart;
use super::settle::{self, Work};
use super::state::{Shim, Store};
use crate::report::{Operation, Phase};

/// Where shims are installed unless said otherwise: where upstream's installer has them.
pub const INSTALL_DIR: &str = "/opt/rcm";

/// What holds for every operation on a node.
#[derive(Debug, Clone)]
pub struct Node {
    /// The host's root directory.
    pub root: PathBuf,
    /// Where shims are kept, as the host names it.
    pub install_dir: String,
    /// What a person says of the node.
    pub overrides: Overrides,
    /// How the runtime is started again.
    pub restart: Restart,
    /// How long to wait for another installer.
    pub lock: Duration,
}

/// Installs a shim.
pub async fn install(node: &Node, wanted: &Wanted, source: &Source, watch: &dyn Watch) -> Outcome {
    let mut progress = Progress::new(Operation::Install, Phase::Fetch);
    let result = run(node, wanted, source, watch, &mut progress).await;
    progress.end(result)
}

async fn run(
    node: &Node,
    wanted: &Wanted,
    source: &Source,
    watch: &dyn Watch,
    progress: &mut Progress,
) -> Result<(), NodeError> {
    let root = open_root(&node.root)?;
    let program = obtain(wanted, source, progress).await?;
    elf::check(wanted.binary.as_str(), &program.head, &platform(&node.root)?)?;
    progress.phase(Phase::Detect);
    let context = Context::of(&root);
    let _lock = lock::lock(&root, &context, node.lock)?;
    let site = detect(&root, &node.overrides)?;
    progress.report.distro = Some(site.preset.name.to_owned());
    let mut store = Store::open(&root, Disk { watch }, &node.install_dir)?;
    place::check_directory(&store)?;
    let sha256 = program.digest.hex();
    let path =
        place::path(&store.install_dir, wanted.name.as_str(), &sha256, wanted.binary.as_str());
    // Planned once before anything is made: a configuration that is refused leaves the node as it was.
    plan(&store, &site, &context, wanted, &path)?;
    refuse_built_in(&store, &site, &context, wanted)?;
    progress.phase(Phase::Place);
    store.create()?;
    store.sweep()?;
    settle::sweep(&store, &site)?;
    let fresh = !store.state.shims.contains_key(wanted.name.as_str());
    let former = note_wanted(&mut store, wanted, &sha256, progress)?;
    let mut work = Making { store: &mut store, site: &site, context: &context, node };
    match work.make(wanted, program, &path, progress).await {
        Ok(()) => {
            let unread = store.state.restart_due && site.may_run(&root, &context);
            finish(&mut store, wanted, unread)
        }
        Err(error) => {
            abandon(&mut store, wanted, &sha256, former.filter(|_| !fresh));
            Err(error)
        }
    }
}

/// A node that is being changed.
struct Making<'a, 'b> {
    store: &'b mut Store<'a>,
    site: &'b Site,
    context: &'b Context,
    node: &'b Node,
}

impl Making<'_, '_> {
    /// The program in its place, and the runtime told.
    async fn make(
        &mut self,
        wanted: &Wanted,
        program: Program,
        path: &str,
        progress: &mut Progress,
    ) -> Result<(), NodeError> {
        if !place::is_right(&self.store.here(path)?, &program.digest) {
            // On the file system that it goes to.
            let copied = copy(&program, &self.store.temp()?)?;
            place::put(self.store, copied, path)?;
            progress.report.changed = true;
        }
        progress.report.changed |= place::correct_mode(self.store, path)?;
        drop(program);
        progress.phase(Phase::Configure);
        let changes = plan(self.store, self.site, self.context, wanted, path)?;
        let mut phase = |phase| progress.phase(phase);
        let mut work = Work {
            store: self.store,
            site: self.site,
            context: self.context,
            restart: &self.node.restart,
            phase: &mut phase,
        };
        let expect = Expect::Known(wanted.handler.as_str());
        let settled = work.settle(&changes, wanted.name.as_str(), expect).await?;
        progress.settled(settled);
        Ok(())
    }
}

pub(crate) fn open_root(root: &Path) -> Result<HostRoot, NodeError> {
    HostRoot::open(root).map_err(|source| NodeError::Root { path: root.to_owned(), source })
}

fn plan(
    store: &Store<'_>,
    site: &Site,
    context: &Context,
    wanted: &Wanted,
    program: &str,
) -> Result<Vec<config::Change>, NodeError> {
    let loaded = config::load(store.root, &site.config)?;
    let known = known_files(store, wanted.name.as_str());
    let look = settle::look(store, site, context, &loaded, &known);
    Ok(config::install(&look, wanted, program)?)
}

fn refuse_built_in(
    store: &Store<'_>,
    site: &Site,
    context: &Context,
    wanted: &Wanted,
) -> Result<(), NodeError> {
    let loaded = config::load(store.root, &site.config)?;
    let look = settle::look(store, site, context, &loaded, &[]);
    Ok(settle::refuse_built_in(&look, site, context, wanted)?)
}

/// Files that earlier runs changed for a shim.
pub(crate) fn known_files(store: &Store<'_>, name: &str) -> Vec<String> {
    store.state.shims.get(name).map(|shim| shim.files.clone()).unwrap_or_default()
}

/// Writes down what is about to be there; gives back what was.
fn note_wanted(
    store: &mut Store<'_>,
    wanted: &Wanted,
    sha256: &str,
    progress: &Progress,
) -> Result<Option<Shim>, NodeError> {
    let shim = store.state.shims.entry(wanted.name.to_string()).or_default();
    let former = shim.clone();
    wanted.handler.as_str().clone_into(&mut shim.handler);
    wanted.binary.as_str().clone_into(&mut shim.binary);
    sha256.clone_into(&mut shim.sha256);
    shim.archive_sha256.clone_from(&progress.report.archive_sha256);
    if !shim.versions.iter().any(|version| version == sha256) {
        shim.versions.push(sha256.to_owned());
    }
    if *shim != former || !shim.installed {
        shim.installed = false;
        store.save()?;
    }
    Ok(Some(former))
}

/// The configuration is as before: so is the rest, as far as it can be.
fn abandon(store: &mut Store<'_>, wanted: &Wanted, sha256: &str, former: Option<Shim>) {
    // Another try is due; the changes are back only if nothing is left to go back to.
    if !store.state.before.is_empty() {
        return;
    }
    let name = wanted.name.as_str();
    let tidy = (|| {
        match former {
            Some(former) => {
                // One that was there before may run, or be what the runtime goes by.
                if !former.versions.iter().any(|version| version == sha256) {
                    place::remove(store, name, sha256)?;
                }
                store.state.shims.insert(name.to_owned(), former);
            }
            None => {
                place::remove(store, name, sha256)?;
                store.state.shims.remove(name);
            }
        }
        store.remove_unused_dirs()?;
        store.finish()?;
        Ok::<(), NodeError>(())
    })();
    if let Err(error) = tidy {
        tracing::warn!(%error, "what was put in place for nothing could not be removed");
    }
}

/// All holds: what is no longer needed goes. `unread`: the runtime still goes by the configuration from
/// before, and calls the programs that it names.
fn finish(store: &mut Store<'_>, wanted: &Wanted, unread: bool) -> Result<(), NodeError> {
    let name = wanted.name.as_str();
    if !unread {
        retire::retire(store, name, true)?;
        place::collect(store, name)?;
        let others = store.state.shims.iter().filter(|(_, shim)| shim.installed);
        for other in others.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            place::collect(store, &other)?;
        }
    }
    store.remove_unused_dirs()?;
    if let Some(shim) = store.state.shims.get_mut(name) {
        shim.installed = true;
    }
    let temp = store.temp()?;
    store.disk.remove_tree(&temp)?;
    Ok(store.save()?)
}

/// A digest that a person gave, or none where the text is empty.
///
/// # Errors
/// It is no digest.
pub fn digest(text: Option<&str>) -> Result<Option<Digest>, RequestError> {
    text.filter(|text| !text.is_empty()).map(request::sha256).transpose()
}
