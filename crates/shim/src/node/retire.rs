//! Upstream's installation of a shim, taken away once nothing names it.

use std::path::PathBuf;

use portolan_registry::durable;

use super::error::NodeError;
use super::place;
use super::state::{StateError, Store};
use super::upstream::{STATE, State};

/// More than upstream writes for a thousand shims.
const MAX_STATE: u64 = 1 << 20;

fn read(store: &Store<'_>) -> Result<Option<(PathBuf, State)>, NodeError> {
    let file = store.here(&format!("{}/{STATE}", store.install_dir))?;
    let Some(bytes) = durable::read_bounded(&file, MAX_STATE)? else { return Ok(None) };
    Ok(State::parse(&bytes).ok().map(|state| (file, state)))
}

/// Whether upstream says that it installed this shim.
pub(crate) fn is_known(store: &Store<'_>, name: &str) -> Result<bool, NodeError> {
    Ok(read(store)?.is_some_and(|(_, state)| state.shims.contains_key(name)))
}

/// Upstream's program of a shim, here. Only what upstream puts there: a state file may say anything, and a link
/// there is the program, wherever it leads.
fn program(store: &Store<'_>, path: &str) -> Result<Option<PathBuf>, StateError> {
    let bin = format!("{}/bin", store.install_dir);
    let name = path.strip_prefix(&bin).and_then(|rest| rest.strip_prefix('/'));
    let Some(name) = name.filter(|name| !name.contains('/') && !matches!(*name, "" | "." | ".."))
    else {
        return Ok(None);
    };
    Ok(Some(store.here(&bin)?.join(name)))
}

/// Whether a process runs upstream's program of a shim.
pub(crate) fn runs(
    store: &Store<'_>,
    running: &place::Running,
    name: &str,
) -> Result<bool, NodeError> {
    let Some((_, state)) = read(store)? else { return Ok(false) };
    let Some(shim) = state.shims.get(name) else { return Ok(false) };
    Ok(program(store, &shim.path)?.is_some_and(|here| running.has(&here)))
}

/// Removes upstream's program and its line in upstream's state. True where there were any. With `keep_running`,
/// one that runs stays, with its line: the runtime calls it again, and a later run takes it away.
pub(crate) fn retire(store: &Store<'_>, name: &str, keep_running: bool) -> Result<bool, NodeError> {
    let Some((file, mut state)) = read(store)? else { return Ok(false) };
    let Some(shim) = state.shims.remove(name) else { return Ok(false) };
    if keep_running && runs(store, &place::running(store.root.dir()), name)? {
        return Ok(false);
    }
    if let Some(here) = program(store, &shim.path)? {
        store.disk.remove_file(&here)?;
        if let Some(dir) = here.parent() {
            store.disk.remove_empty_dir(dir)?;
        }
    }
    if state.shims.is_empty() {
        store.disk.remove_file(&file)?;
    } else {
        store.disk.replace(&file, state.to_text().as_bytes(), 0o644)?;
    }
    Ok(true)
}
