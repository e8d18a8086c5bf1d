//! A shim taken off a node, as if it had never been there. What is gone already is no trouble.

use super::config;
use super::disk::{Disk, Watch};
use super::effect;
use super::error::NodeError;
use super::exec::Context;
use super::install::{Node, open_root};
use super::lock;
use super::place;
use super::preset::{DetectError, Site, detect};
use super::progress::{Outcome, Progress};
use super::ready::Expect;
use super::request::Name;
use super::retire;
use super::root::HostRoot;
use super::settle::{self, Plan, Work};
use super::state::Store;
use super::survey::known_files;
use crate::report::{Operation, Phase};

/// Takes a shim off.
pub async fn uninstall(node: &Node, name: &Name, watch: &dyn Watch) -> Outcome {
    let mut progress = Progress::new(Operation::Uninstall, Phase::Detect);
    let result = run(node, name.as_str(), watch, &mut progress).await;
    progress.end(result)
}

async fn run(
    node: &Node,
    name: &str,
    watch: &dyn Watch,
    progress: &mut Progress,
) -> Result<(), NodeError> {
    let root = open_root(&node.root)?;
    let context = Context::of(&root);
    let _lock = lock::lock(&root, &context, node.lock)?;
    let mut store = Store::open(&root, Disk { watch }, &node.install_dir)?;
    store.sweep()?;
    let shim = store.state.shims.get(name).cloned();
    let handler = shim.as_ref().map_or(name, |shim| &shim.handler).to_owned();
    match detect(&root, &node.overrides) {
        Ok(site) => {
            progress.report.distro = Some(site.preset.name.to_owned());
            settle::sweep(&store, &site)?;
            // What a run that was killed wrote for others goes with it, or it would answer for them.
            let mut ahead = root.clone();
            let mut plans = settle::strays(&store, &mut ahead, &[name])?;
            let changes = plan(&store, &ahead, &site, &context, (name, &handler))?;
            let found = !changes.is_empty();
            plans.push(Plan { owner: name.to_owned(), changes });
            let changes = plans.iter().any(|plan| !plan.changes.is_empty());
            let known = shim.is_some() || retire::is_known(&store, name)?;
            let unfinished = !store.state.before.is_empty() || (known && store.state.restart_due);
            // A node on which nothing of it is, is left alone: not even asked how it is.
            if changes || unfinished {
                // A handler of that name that was never ours may well be there.
                let expect = if known || found { Expect::Gone(&handler) } else { Expect::Well };
                let restart = &node.restart;
                let method = effect::foresee(&root, &site, &context, restart, &plans).await?;
                let settled = {
                    let mut phase = |phase| progress.phase(phase);
                    let (site, context) = (&site, &context);
                    let mut work =
                        Work { store: &mut store, site, context, restart, phase: &mut phase };
                    work.begin()?;
                    work.settle(&plans, expect, method).await?
                };
                progress.settled(settled);
            }
        }
        // No runtime any more, or none that is found: what was written for it goes all the same.
        Err(DetectError::NotFound | DetectError::Immutable { .. }) => {
            progress.report.changed |= forget(&mut store, name, &handler)?;
        }
        Err(error) => return Err(error.into()),
    }
    progress.phase(Phase::Place);
    progress.report.changed |= remove(&mut store, name, progress)?;
    Ok(())
}

/// What is to change on a host as it is going to be.
fn plan(
    store: &Store<'_>,
    ahead: &HostRoot,
    site: &Site,
    context: &Context,
    (name, handler): (&str, &str),
) -> Result<Vec<config::Change>, NodeError> {
    let loaded = config::load(ahead, &site.config)?;
    let known = known_files(store, name);
    let look = settle::look(ahead, site, settle::major(context, site), &loaded, &known);
    Ok(config::uninstall(&look, name, handler)?)
}

/// What is ours goes out of the files that are known to have it. There is no runtime that could take it ill.
fn forget(store: &mut Store<'_>, name: &str, handler: &str) -> Result<bool, NodeError> {
    let known = known_files(store, name);
    let (root, main, layout) = (store.root, "/", config::Layout::File);
    let look = config::Look { root, main, layout, major: None, loaded: &[], known: &known };
    let changes = config::uninstall(&look, name, handler)?;
    for change in &changes {
        settle::write(store, &change.path, change.after.as_deref())?;
    }
    Ok(!changes.is_empty())
}

/// The programs, upstream's too, and what was written down of them.
fn remove(store: &mut Store<'_>, name: &str, progress: &mut Progress) -> Result<bool, NodeError> {
    let shim = store.state.shims.get(name).cloned();
    let running = place::running(store.root.dir());
    let mut runs = retire::runs(store, &running, name)?;
    for sha256 in shim.iter().flat_map(|shim| &shim.versions) {
        runs |= place::runs(store, &running, name, sha256)?;
    }
    if runs {
        progress.report.warnings.push(format!(
            "processes still run the shim {name}: they go on, and containerd cannot call it to clean up after them"
        ));
    }
    let mut changed = retire::retire(store, name, false)?;
    if let Some(shim) = shim {
        changed = true;
        for sha256 in &shim.versions {
            place::remove(store, name, sha256)?;
        }
        for path in &shim.files {
            let here = store.here(path)?;
            store.disk.sweep(&here)?;
        }
        store.state.shims.remove(name);
        if store.state.shims.is_empty() {
            store.state.before.clear();
        }
        // The shim's directories go while they are still written down.
        store.remove_unused_dirs()?;
    }
    store.finish()?;
    Ok(changed)
}
