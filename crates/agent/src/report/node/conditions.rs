//! The two conditions of a node, as one patch. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::Status;
use crate::metrics::Pool;

/// The type of a condition: `True` while no new instance can start.
pub const DEGRADED: &str = "PortolanDegraded";
/// The type of a condition: `True` while the image cache has no room, and nothing that could be evicted.
pub const PRESSURE: &str = "PortolanImageCachePressure";

/// Conditions are read by people in a terminal.
const MAX_MESSAGE: usize = 1024;

/// What the node says already of each condition: its status and the time of its last change.
pub(super) type Known = BTreeMap<&'static str, (String, Timestamp)>;

/// One condition.
struct Said {
    kind: &'static str,
    holds: bool,
    reason: String,
    message: String,
}

/// The conditions that a status makes, and what to remember of them.
pub(super) fn patch(status: &Status, known: &Known, now: Timestamp) -> (Value, Known) {
    let mut conditions = Vec::new();
    let mut next = Known::new();
    for said in [degraded(status), pressure(status)] {
        let word = if said.holds { "True" } else { "False" };
        let before = known.get(said.kind).filter(|(status, _)| status == word);
        let since = before.map_or(now, |(_, since)| *since);
        let message: String = said.message.chars().take(MAX_MESSAGE).collect();
        conditions.push(json!({
            "type": said.kind,
            "status": word,
            "reason": said.reason,
            "message": message,
            "lastHeartbeatTime": seconds(now),
            "lastTransitionTime": seconds(since),
        }));
        next.insert(said.kind, (word.to_owned(), since));
    }
    (json!({ "status": { "conditions": conditions } }), next)
}

/// The API server keeps whole seconds and refuses others.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn degraded(status: &Status) -> Said {
    let all = &status.degraded;
    let (reason, message) = match all.first() {
        None => ("AgentHealthy".to_owned(), "new instances can start".to_owned()),
        Some(first) => {
            let texts: Vec<_> = all.iter().map(|d| d.message.as_str()).collect();
            (camel(first.reason.as_str()), texts.join("; "))
        }
    };
    Said { kind: DEGRADED, holds: !all.is_empty(), reason, message }
}

fn pressure(status: &Status) -> Said {
    let pool = status.pools.get(Pool::Cache.as_str()).copied().unwrap_or_default();
    let room = format!("{} of {} bytes are free", pool.free_bytes, pool.size_bytes);
    let (reason, message) = match (status.cache_pressure, pool.pressure) {
        (false, _) => ("ImageCacheHasRoom", room),
        (true, true) => (
            "ImageCacheFull",
            format!("no image can be added, and nothing may be evicted; {room} where the cache is"),
        ),
        (true, false) => {
            ("ImageCacheSettles", format!("there is room again since a moment; {room}"))
        }
    };
    Said { kind: PRESSURE, holds: status.cache_pressure, reason: reason.to_owned(), message }
}

/// `disk_full` -> `DiskFull`, as reasons of conditions are written.
fn camel(word: &str) -> String {
    word.split('_')
        .flat_map(|part| {
            let mut letters = part.chars();
            letters.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(letters)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_time_of_a_transition_changes_with_the_status_alone() {
        let well = report(None).status;
        let (first, known) = patch(&well, &Known::new(), at("2026-01-01T00:00:00.5Z"));
        let first = first["status"]["conditions"].as_array().unwrap();
        assert_eq!(first.len(), 2);
        for (condition, reason) in first.iter().zip(["AgentHealthy", "ImageCacheHasRoom"]) {
            assert_eq!(condition["status"], "False");
            assert_eq!(condition["reason"], reason);
            assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
        }
        let (second, known) = patch(&well, &known, at("2026-01-01T01:00:00Z"));
        let second = &second["status"]["conditions"][1];
        assert_eq!(second["lastHeartbeatTime"], "2026-01-01T01:00:00Z");
        assert_eq!(second["lastTransitionTime"], "2026-01-01T00:00:00Z");
        // Each by itself.
        let mut full = report(Some("no room")).status;
        let (third, known) = patch(&full, &known, at("2026-01-01T02:00:00Z"));
        let third = &third["status"]["conditions"];
        assert_eq!(
            (&third[0]["status"], &third[0]["reason"]),
            (&json!("True"), &json!("DiskFull"))
        );
        assert_eq!(third[0]["message"], "no room");
        assert_eq!(third[1]["status"], "False");
        full.cache_pressure = true;
        let (fourth, known) = patch(&full, &known, at("2026-01-01T03:00:00Z"));
        let fourth = &fourth["status"]["conditions"];
        assert_eq!(fourth[0]["lastTransitionTime"], "2026-01-01T02:00:00Z");
        assert_eq!((&fourth[1]["type"], &fourth[1]["status"]), (&json!(PRESSURE), &json!("True")));
        assert_eq!(known[PRESSURE].1, at("2026-01-01T03:00:00Z"));
    }

    #[test]
    fn a_message_is_bounded_and_words_are_written_as_reasons_are() {
        let long = report(Some("x".repeat(5000).leak())).status;
        let (patched, _) = patch(&long, &Known::new(), Timestamp::UNIX_EPOCH);
        let message = patched["status"]["conditions"][0]["message"].as_str().unwrap();
        assert_eq!(message.len(), MAX_MESSAGE);
        assert_eq!(camel("rootfs_build_failed"), "RootfsBuildFailed");
    }
}
