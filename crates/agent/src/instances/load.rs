//! Instances as an earlier agent left them.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use portolan_registry::durable;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::error::OpenError;
use super::state::{self, State};
use super::{Entry, Record};
use crate::api::Phase;
use crate::id::InstanceId;
use crate::paths::Paths;
use crate::reason::Reason;
use crate::spec::{DesiredState, WorkloadSpec};
use crate::vmm::files;

/// What the names of folders begin with that are on their way out: no instance is called so.
pub(super) const GONE: &str = ".deleted-";

/// Every folder with the name of an instance. Other things are left alone.
pub(super) fn all(paths: &Paths, now: Timestamp) -> Result<Vec<Entry>, OpenError> {
    let dir = paths.instances();
    durable::create_dir(&dir).map_err(OpenError::Create)?;
    let folder = |source| OpenError::Folder { path: dir.clone(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir).map_err(folder)? {
        let entry = entry.map_err(folder)?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(GONE)) {
            // An earlier agent was killed while it removed this.
            let _ = fs::remove_dir_all(entry.path());
            continue;
        }
        let id = name.to_str().and_then(|name| name.parse::<InstanceId>().ok());
        match id {
            // Not the entry's own type: an operator may have moved a folder and left a link.
            Some(id) if entry.path().is_dir() => found.push(one(id, &entry.path(), now)),
            _ => {
                tracing::warn!(path = %entry.path().display(), "this is no instance and is left alone")
            }
        }
    }
    Ok(found)
}

fn one(id: InstanceId, dir: &Path, now: Timestamp) -> Entry {
    let (spec, broken) = match state::read_spec(dir) {
        Ok(spec) => (spec, None),
        Err(why) => (state::no_spec(), Some(why)),
    };
    let mut state = state::read_state(dir).unwrap_or_else(|| unknown(dir, &spec, now));
    settle(&mut state, dir, &spec);
    if let Some(why) = &broken {
        tracing::warn!(instance_id = %id, error = %why, "an instance's spec cannot be read");
        let message = format!("its spec cannot be read ({why}); put it again, or delete it");
        if !matches!(state.phase, Phase::Running | Phase::Starting) {
            state.phase = Phase::Failed;
        }
        (state.reason, state.message) = (Some(Reason::InvalidSpec), Some(message));
    }
    let record = Record {
        spec: Arc::new(spec),
        broken,
        deleting: state::is_marked_deleted(dir),
        state,
        changed: CancellationToken::new(),
        working: false,
    };
    let record = Mutex::new(record);
    Entry { id, dir: dir.to_owned(), record, gone: watch::Sender::new(false) }
}

/// A phase on the way to somewhere, where there is no machine, is what a killed agent left, or a hand
/// that changed the file.
fn settle(state: &mut State, dir: &Path, spec: &WorkloadSpec) {
    let over = matches!(state.phase, Phase::Stopped | Phase::Failed);
    if over || may_have_machine(dir) {
        return;
    }
    let has_run = state.settled.as_deref() == Some(state::fingerprint(spec).as_str());
    match (spec.desired_state, has_run, state.reason) {
        (DesiredState::Stopped, ..) | (_, true, None) => state.to(Phase::Stopped),
        (_, true, Some(_)) => state.phase = Phase::Failed,
        (DesiredState::Running, false, _) => state.phase = Phase::Pending,
    }
}

/// What can be told without `state.json`: if the last machine left word of its end, the workload has
/// run, and must not be run again because a file was lost.
fn unknown(dir: &Path, spec: &WorkloadSpec, now: Timestamp) -> State {
    let mut state = State::new(now);
    state.started = Some(state::fingerprint(spec));
    if let Some(end) = files::read(dir, files::ENDED) {
        state.end(Some(&end), now);
    }
    state
}

/// Whether there may be a machine: these files are there from before it begins until after its end
/// was noted.
pub(super) fn may_have_machine(dir: &Path) -> bool {
    dir.join(files::ORDERS).exists() || dir.join(files::RUNNING).exists()
}
