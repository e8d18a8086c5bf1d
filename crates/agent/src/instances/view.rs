//! Instances as the API shows them.

use super::{Entry, Inner};
use crate::api::{InstanceStatus, InstanceSummary, Phase, Progress};
use crate::spec::WorkloadSpec;

/// One instance with everything.
pub(super) fn status(inner: &Inner, entry: &Entry) -> InstanceStatus {
    let record = entry.record();
    let state = &record.state;
    let resolved_digest = record.spec.image.resolved_digest.clone();
    let progress = match state.phase {
        Phase::Fetching => progress(inner, resolved_digest.as_deref()),
        _ => None,
    };
    InstanceStatus {
        id: entry.id.clone(),
        spec: WorkloadSpec::clone(&record.spec),
        phase: state.phase,
        reason: state.reason,
        message: state.message.clone(),
        resolved_digest,
        rootdisk_key: state.rootdisk_key.clone(),
        cached: state.cached,
        progress,
        created_at: state.created_at,
        started_at: state.started_at,
        ended_at: state.ended_at,
        exit: state.exit,
    }
}

/// How far the disk is that it waits for, if somebody is at it.
fn progress(inner: &Inner, resolved_digest: Option<&str>) -> Option<Progress> {
    inner.disks.progress(&resolved_digest?.parse().ok()?)
}

/// One instance in a list.
pub(super) fn summary(entry: &Entry) -> InstanceSummary {
    let record = entry.record();
    InstanceSummary {
        id: entry.id.clone(),
        phase: record.state.phase,
        reason: record.state.reason,
        resolved_digest: record.spec.image.resolved_digest.clone(),
        release: record.spec.release.clone(),
        started_at: record.state.started_at,
    }
}
