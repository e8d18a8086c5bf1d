//! What is kept of an instance on disk: what was asked for (`spec.json`), what came of it
//! (`state.json`), and that it is to go (`deleted`).

use std::io;
use std::path::Path;

use jiff::Timestamp;
use portolan_registry::durable::{self, DurableError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::api::{Exit, Phase};
use crate::reason::Reason;
use crate::spec::{DesiredState, ImageSpec, WorkloadSpec};
use crate::vmm::files::{EndReport, WorkloadEnd};
use crate::vmm::remove;

const SPEC: &str = "spec.json";
const STATE: &str = "state.json";
const DELETED: &str = "deleted";

/// A spec has at most 256 KiB of words, JSON may write six characters for one.
const MAX_BYTES: u64 = 4 << 20;

/// What came of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) created_at: Timestamp,
    pub(super) phase: Phase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<Reason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rootdisk_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cached: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit: Option<Exit>,
    /// The fingerprint of the spec that the last machine was started for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) started: Option<String>,
    /// The fingerprint of the spec that has run its course.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) settled: Option<String>,
    /// Which boot of the host the last machine was started in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) boot: Option<String>,
}

impl State {
    /// Of an instance that nothing was done for yet.
    pub(super) fn new(created_at: Timestamp) -> Self {
        Self {
            created_at,
            phase: Phase::Pending,
            reason: None,
            message: None,
            rootdisk_key: None,
            cached: None,
            started_at: None,
            ended_at: None,
            exit: None,
            started: None,
            settled: None,
            boot: None,
        }
    }

    /// On its way somewhere, or there: without a reason.
    pub(super) fn to(&mut self, phase: Phase) {
        self.phase = phase;
        self.reason = None;
        self.message = None;
    }

    /// It did not work, and is not tried again by itself.
    pub(super) fn fail(&mut self, reason: Reason, message: String) {
        self.phase = Phase::Failed;
        self.reason = Some(reason);
        self.message = Some(message);
    }

    /// A new start is wanted: what came of the last one is over.
    pub(super) fn wait(&mut self) {
        self.to(Phase::Pending);
        (self.exit, self.ended_at, self.started_at) = (None, None, None);
        (self.cached, self.settled) = (None, None);
    }

    /// A new start begins.
    pub(super) fn begin(&mut self, fingerprint: &str) {
        self.wait();
        self.phase = Phase::Fetching;
        self.started = Some(fingerprint.to_owned());
    }

    /// The machine ended by itself.
    pub(super) fn end(&mut self, report: Option<&EndReport>, now: Timestamp) {
        self.settled.clone_from(&self.started);
        self.ended_at = Some(report.map_or(now, |report| report.at));
        self.exit = report.and_then(|report| exit(report.workload.as_ref()?));
        match (self.exit, report) {
            (Some(Exit { code: Some(0), .. }), _) => self.to(Phase::Stopped),
            (Some(Exit { code: Some(code), .. }), _) => {
                self.fail(Reason::StartFailed, format!("the workload exited with status {code}"));
            }
            (Some(Exit { signal: Some(signal), .. }), _) => {
                self.fail(Reason::StartFailed, format!("the workload was killed by signal {signal}"));
            }
            (_, Some(EndReport { workload: Some(WorkloadEnd::Failed(why)), .. })) => {
                self.fail(Reason::StartFailed, format!("the guest gave up: {why}"));
            }
            (_, Some(report)) => self.fail(
                Reason::StartFailed,
                format!(
                    "the machine ended before its workload did: the VMM {}; its console may say more",
                    report.vmm
                ),
            ),
            (_, None) => self.fail(
                Reason::StartFailed,
                "the machine and its shim ended and nobody saw how; was it killed, for want of \
                 memory perhaps?"
                    .to_owned(),
            ),
        }
    }
}

fn exit(end: &WorkloadEnd) -> Option<Exit> {
    match end {
        WorkloadEnd::Exited(code) => Some(Exit { code: Some(*code), signal: None }),
        WorkloadEnd::Killed(signal) => Some(Exit { code: None, signal: Some(*signal) }),
        WorkloadEnd::Failed(_) => None,
    }
}

/// What tells a machine of one spec from that of another: everything but whether it should run and
/// which release it is of.
pub(super) fn fingerprint(spec: &WorkloadSpec) -> String {
    let mut spec = spec.clone();
    spec.desired_state = DesiredState::Running;
    spec.release = None;
    let json = serde_json::to_vec(&spec).expect("a spec is JSON");
    portolan_core::hex(&Sha256::digest(&json))
}

/// What stands in for a spec that cannot be read.
pub(super) fn no_spec() -> WorkloadSpec {
    let image = ImageSpec {
        repository: String::new(),
        index_digest: None,
        resolved_digest: None,
        os: String::new(),
        arch: String::new(),
        variant: None,
    };
    let json = serde_json::json!({"image": image, "desired_state": "stopped"});
    // The field that has no default in JSON.
    let mut json = json;
    json["image"]["resolved_digest"] = serde_json::Value::Null;
    serde_json::from_value(json).expect("all other fields have defaults")
}

/// Reads the spec; the error is for people.
pub(super) fn read_spec(dir: &Path) -> Result<WorkloadSpec, String> {
    let path = dir.join(SPEC);
    let bytes = durable::read_bounded(&path, MAX_BYTES)
        .map_err(|error| portolan_core::causes::chain(&error))?
        .ok_or_else(|| format!("{} is missing", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads the state; none where it says nothing.
pub(super) fn read_state(dir: &Path) -> Option<State> {
    let bytes = durable::read_bounded(&dir.join(STATE), MAX_BYTES).ok().flatten()?;
    serde_json::from_slice(&bytes).ok()
}

pub(super) fn write_spec(dir: &Path, spec: &WorkloadSpec) -> Result<(), DurableError> {
    write(dir, SPEC, spec)
}

pub(super) fn write_state(dir: &Path, state: &State) -> Result<(), DurableError> {
    write(dir, STATE, state)
}

/// From here on the instance is to go, whatever happens to this process.
///
/// A disk that is too full for another file still renames one, and deleting is how it gets room:
/// what is to go needs its spec no longer.
pub(super) fn mark_deleted(dir: &Path) -> Result<(), DurableError> {
    let full = match write(dir, DELETED, &true) {
        Err(error) if error.is_full() => error,
        outcome => return outcome,
    };
    let renamed =
        [SPEC, STATE].iter().any(|name| std::fs::rename(dir.join(name), dir.join(DELETED)).is_ok());
    if renamed { durable::sync_dir(dir) } else { Err(full) }
}

pub(super) fn is_marked_deleted(dir: &Path) -> bool {
    dir.join(DELETED).exists()
}

fn write(dir: &Path, name: &str, value: &impl Serialize) -> Result<(), DurableError> {
    let path = dir.join(name);
    let mut bytes = serde_json::to_vec_pretty(value).expect("plain values are JSON");
    bytes.push(b'\n');
    match durable::replace(dir, &path, &bytes) {
        // Somebody made a directory of it, which a rename does not replace.
        Err(DurableError::Io { source, .. }) if source.kind() == io::ErrorKind::IsADirectory => {
            remove(&path).map_err(|error| DurableError::io("remove", &path, error))?;
            durable::replace(dir, &path, &bytes)
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let report = |workload| EndReport {
            run: "r".into(),
            at: Timestamp::UNIX_EPOCH,
            vmm: "exited with status 0".into(),
            workload,
        };
        for (workload, phase, says) in [
            (Some(WorkloadEnd::Exited(0)), Phase::Stopped, ""),
            (Some(WorkloadEnd::Exited(7)), Phase::Failed, "status 7"),
            (Some(WorkloadEnd::Killed(9)), Phase::Failed, "signal 9"),
            (Some(WorkloadEnd::Failed("could not mount /x".into())), Phase::Failed, "mount /x"),
            (None, Phase::Failed, "before its workload"),
        ] {
            let mut state = State::new(Timestamp::UNIX_EPOCH);
            state.begin("f");
            state.end(Some(&report(workload)), Timestamp::UNIX_EPOCH);
            assert_eq!((state.phase, state.settled.as_deref()), (phase, Some("f")));
            assert!(state.message.unwrap_or_default().contains(says));
        }
        let mut state = State::new(Timestamp::UNIX_EPOCH);
        state.end(None, Timestamp::UNIX_EPOCH);
        assert!(state.message.unwrap().contains("nobody saw"));
    }

    #[test]
    fn a_directory_in_place_of_a_file_is_replaced_and_rubbish_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("state.json/x")).unwrap();
        assert!(read_state(dir.path()).is_none());
        write_state(dir.path(), &State::new(Timestamp::UNIX_EPOCH)).unwrap();
        assert!(read_state(dir.path()).is_some());
        assert!(read_spec(dir.path()).unwrap_err().contains("missing"));
        std::fs::write(dir.path().join("spec.json"), "{\"image\": 1}").unwrap();
        assert!(read_spec(dir.path()).unwrap_err().contains("spec.json"));
    }

    #[test]
    fn only_what_a_machine_depends_on_is_in_the_fingerprint() {
        let spec = no_spec();
        let mut same = spec.clone();
        same.desired_state = DesiredState::Running;
        same.release = Some("r2".into());
        assert_eq!(fingerprint(&spec), fingerprint(&same));
        let mut other = spec.clone();
        other.memory_mib += 1;
        assert_ne!(fingerprint(&spec), fingerprint(&other));
    }
}
