//! The agent of this machine, if there is one.

use portolan_agent::api::Status;

use super::super::finding::{Finding, missing, ok, unknown, wrong};

#[derive(Debug)]
pub(in super::super) enum Facts {
    Absent,
    Fails(String),
    Answers(Box<Status>),
}

pub(in super::super) fn check(facts: &Facts) -> Finding {
    const CHECK: &str = "agent";
    match facts {
        Facts::Absent => missing(
            CHECK,
            "no agent runs here",
            "portolan-agent --config FILE, on hosts of microVMs (docs/agent.md)",
        ),
        Facts::Fails(why) => wrong(CHECK, why, "look at the agent's log and at its socket"),
        Facts::Answers(status) => match (status.degraded.first(), status.ready) {
            (Some(why), _) => wrong(
                CHECK,
                format!("{}: {}", why.reason, why.message),
                "no new instance starts until this is put right",
            ),
            (None, false) => unknown(CHECK, "it is starting", "ask again in a moment"),
            (None, true) => ok(CHECK, format!("version {}, {}", status.version, status.platform)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;
    use serde_json::json;

    fn status(ready: bool, degraded: serde_json::Value) -> Facts {
        let status = serde_json::from_value(json!({
            "version": "1", "node": "n", "platform": "linux/amd64", "rootdisk_format_version": "1",
            "started_at": "2026-01-01T00:00:00Z", "time": "2026-01-01T00:00:00Z",
            "ready": ready, "degraded": degraded, "pools": {}, "instances": {},
        }));
        Facts::Answers(Box::new(status.unwrap()))
    }

    #[test]
    fn an_agent_that_cannot_start_anything_is_wrong() {
        let full = json!([{"reason": "disk_full", "message": "there is no room"}]);
        for (facts, state) in [
            (Facts::Absent, State::Missing),
            (Facts::Fails("x".to_owned()), State::Wrong),
            (status(true, full), State::Wrong),
            (status(false, json!([])), State::Unknown),
            (status(true, json!([])), State::Ok),
        ] {
            assert_eq!(check(&facts).state, state, "{facts:?}");
        }
    }
}
