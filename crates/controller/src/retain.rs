//! Which runs are deleted, and when. Pure.

use std::time::Duration;

use jiff::Timestamp;
use portolan_api::build::{BuildRun, Retention, SUCCEEDED};
use portolan_api::condition::{self, Status};

/// What becomes of one run by its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing says when it goes.
    Always,
    /// It goes now.
    No,
    /// It goes then.
    For(Duration),
}

/// How a run ended; none while it goes on.
pub fn ended(run: &BuildRun) -> Option<(bool, Timestamp)> {
    let status = run.status.as_ref()?;
    let end = status.completion_time.as_ref()?.0;
    match condition::find(&status.conditions, SUCCEEDED)?.status {
        Status::True => Some((true, end)),
        Status::False => Some((false, end)),
        Status::Unknown => None,
    }
}

/// How long a run is kept: as the run says itself, else as its Build said when it began. So a Build
/// that changes does not take away what was promised to runs before.
pub fn by_age(run: &BuildRun, now: Timestamp) -> Keep {
    let Some((succeeded, end)) = ended(run) else { return Keep::Always };
    let own = run.spec.retention.as_ref();
    let built = run.status.as_ref().and_then(|status| status.build_spec.as_ref());
    let built = built.and_then(|spec| spec.retention.as_ref());
    let limit = match succeeded {
        true => own
            .and_then(|own| own.ttl_after_succeeded)
            .or_else(|| built.and_then(|built| built.ttl_after_succeeded)),
        false => own
            .and_then(|own| own.ttl_after_failed)
            .or_else(|| built.and_then(|built| built.ttl_after_failed)),
    };
    let Some(limit) = limit.map(Duration::from) else { return Keep::Always };
    let age = Duration::try_from(now.duration_since(end)).unwrap_or_default();
    match limit.checked_sub(age) {
        None | Some(Duration::ZERO) => Keep::No,
        Some(rest) => Keep::For(rest),
    }
}

/// The runs of a Build that are too many: of those that succeeded and of those that failed the
/// oldest beyond each limit. Runs that go on are never among them.
pub fn surplus<'a>(
    retention: &Retention,
    runs: impl IntoIterator<Item = &'a BuildRun>,
) -> Vec<&'a BuildRun> {
    let (mut succeeded, mut failed) = (Vec::new(), Vec::new());
    for run in runs {
        match ended(run) {
            Some((true, _)) => succeeded.push(run),
            Some((false, _)) => failed.push(run),
            None => {}
        }
    }
    let mut gone = Vec::new();
    for (mut runs, limit) in
        [(succeeded, retention.succeeded_limit), (failed, retention.failed_limit)]
    {
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
        runs.sort_by_key(|run| {
            let meta = &run.metadata;
            (meta.creation_timestamp.as_ref().map(|time| time.0), meta.name.clone())
        });
        let many = runs.len().saturating_sub(limit);
        gone.extend(runs.into_iter().take(many));
    }
    gone
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// A run made at a second, ended well or badly a second later; or one that goes on.
    fn run(name: &str, made: i64, ended: Option<bool>) -> BuildRun {
        let time = |second: i64| Timestamp::from_second(second).unwrap().to_string();
        let status = match ended {
            Some(well) => json!({
                "completionTime": time(made + 1),
                "conditions": [{"type": "Succeeded", "reason": "", "message": "",
                                "status": if well { "True" } else { "False" }}],
            }),
            None => json!({}),
        };
        serde_json::from_value(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
            "metadata": {"name": name, "creationTimestamp": time(made)},
            "spec": {"build": {"name": "app"}}, "status": status,
        }))
        .unwrap()
    }

    fn retention(value: Value) -> Retention {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_runs_own_time_counts_before_its_builds() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (own, built, well, keep) in [
            (json!({}), json!({}), true, Keep::Always),
            (
                json!({"ttlAfterSucceeded": "10s"}),
                json!({}),
                true,
                Keep::For(Duration::from_secs(5)),
            ),
            (
                json!({"ttlAfterSucceeded": "10s"}),
                json!({"ttlAfterSucceeded": "1s"}),
                true,
                Keep::For(Duration::from_secs(5)),
            ),
            (json!({}), json!({"ttlAfterSucceeded": "1s"}), true, Keep::No),
            (json!({"ttlAfterFailed": "1s"}), json!({}), true, Keep::Always),
            (json!({"ttlAfterFailed": "5s"}), json!({}), false, Keep::No),
            (
                json!({}),
                json!({"ttlAfterFailed": "1h"}),
                false,
                Keep::For(Duration::from_secs(3595)),
            ),
        ] {
            let mut run = run("a", 100, Some(well));
            run.spec.retention = serde_json::from_value(own).unwrap();
            let spec =
                json!({"strategy": {"name": "s"}, "output": {"image": "a"}, "retention": built});
            run.status.as_mut().unwrap().build_spec = serde_json::from_value(spec).unwrap();
            assert_eq!(by_age(&run, at(106)), keep);
        }
        assert_eq!(by_age(&run("a", 100, None), at(1_000_000)), Keep::Always, "it goes on");
    }

    proptest! {
        /// Whatever runs there are: what is left is within the limits, nothing that goes on is deleted,
        /// nothing is deleted without need, and what is deleted is older than what stays.
        #[test]
        fn only_the_oldest_beyond_a_limit_go(
            made in prop::collection::vec((0..50_i64, prop::option::of(any::<bool>())), 0..30),
            succeeded in prop::option::of(1..6_i32), failed in prop::option::of(1..6_i32),
        ) {
            let runs: Vec<BuildRun> = made
                .iter()
                .enumerate()
                .map(|(number, (at, ended))| run(&format!("r{number:02}"), *at, *ended))
                .collect();
            let retention = retention(json!({"succeededLimit": succeeded, "failedLimit": failed}));
            let gone = surplus(&retention, &runs);
            prop_assert!(gone.iter().all(|run| ended(run).is_some()));
            let is_gone = |run: &BuildRun| gone.iter().any(|one| one.metadata.name == run.metadata.name);
            for (well, limit) in [(true, succeeded), (false, failed)] {
                let of_kind: Vec<&BuildRun> = runs
                    .iter()
                    .filter(|run| ended(run).is_some_and(|(kind, _)| kind == well))
                    .collect();
                let (out, kept): (Vec<&BuildRun>, Vec<&BuildRun>) =
                    of_kind.iter().partition(|run| is_gone(run));
                let limit = limit.map_or(of_kind.len(), |limit| usize::try_from(limit).unwrap());
                prop_assert_eq!(kept.len(), of_kind.len().min(limit));
                let age = |run: &&BuildRun| run.metadata.creation_timestamp.as_ref().map(|t| t.0);
                if let (Some(youngest), Some(oldest)) =
                    (out.iter().map(age).max(), kept.iter().map(age).min())
                {
                    prop_assert!(youngest <= oldest);
                }
            }
        }
    }
}
