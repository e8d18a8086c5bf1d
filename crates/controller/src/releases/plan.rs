//! Whether a Release is looked at, and when again. Pure: no clock, no network.

use std::time::Duration;

use portolan_api::condition;
use portolan_api::release::{READY, Release, ReleaseStatus};
use portolan_core::Digest;
use portolan_release::reason;
use portolan_release::status::is_ready;

/// After a registry did not answer.
const FIRST_TROUBLE: Duration = Duration::from_secs(1);
const LONGEST_TROUBLE: Duration = Duration::from_secs(60);
/// After a no: somebody may sign the image, or mend the policy.
const FIRST_REFUSAL: Duration = Duration::from_secs(5);
const LONGEST_REFUSAL: Duration = Duration::from_secs(600);

/// When a Release was looked at last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Looked {
    /// What its spec was then.
    pub(crate) generation: Option<i64>,
    /// When it is looked at again, in milliseconds.
    pub(crate) due: i64,
    /// How often in a row it was not Ready.
    pub(crate) failures: u32,
}

/// What is done with a Release now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, for good: it is Ready and stays as it is.
    Settled,
    /// Nothing yet.
    Wait(Duration),
    /// It is looked at: this digest, or what the image names where there is none yet.
    Look(Option<Digest>),
    /// It is Ready and follows its tag: it is looked at where that is no longer this digest.
    Follow(String),
}

/// What is done now, in milliseconds.
pub(crate) fn next(release: &Release, looked: Option<Looked>, now: i64) -> Next {
    let generation = release.metadata.generation;
    let status = release.status.as_ref();
    let observed = status.is_some_and(|status| status.observed_generation == generation);
    let ready = status.is_some_and(is_ready);
    if ready && observed && !release.spec.track {
        return Next::Settled;
    }
    if let Some(looked) = looked.filter(|looked| looked.generation == generation)
        && let Some(rest) = u64::try_from(looked.due - now).ok().filter(|rest| *rest > 0)
    {
        return Next::Wait(Duration::from_millis(rest));
    }
    let recorded = status.and_then(|status| status.digest.clone());
    match (release.spec.track, recorded) {
        (true, Some(digest)) if ready && observed => Next::Follow(digest),
        (true, _) => Next::Look(None),
        (false, _) => Next::Look(status.and_then(|status| pinned(release, status))),
    }
}

/// What the image named when it was first asked for: a tag that moved since is not followed.
fn pinned(release: &Release, status: &ReleaseStatus) -> Option<Digest> {
    let same = status.image.as_ref() == Some(&release.spec.image);
    status.digest.as_ref().filter(|_| same)?.parse().ok()
}

/// When it is looked at again, after a look that came to `status`; `trouble` where nobody answered at all.
pub(crate) fn looked(
    release: &Release,
    status: &ReleaseStatus,
    trouble: bool,
    before: Option<Looked>,
    (now, poll): (i64, Duration),
) -> Looked {
    let generation = release.metadata.generation;
    let why = |status: &ReleaseStatus| {
        condition::find(&status.conditions, READY).map(|ready| ready.reason.clone())
    };
    // Another reason is another matter: somebody is at work on it.
    let same = release.status.as_ref().map(why) == Some(why(status));
    let before = before.filter(|one| one.generation == generation && same);
    let failures = before.map_or(0, |one| one.failures);
    let waits = why(status).as_deref().is_some_and(reason::will_pass);
    let twice = |first: Duration, longest: Duration| {
        first.saturating_mul(1 << failures.min(10)).min(longest)
    };
    let (pause, failures) = match is_ready(status) {
        true if trouble => (twice(FIRST_TROUBLE, LONGEST_TROUBLE).max(poll), failures + 1),
        true => (poll, 0),
        false if trouble || waits => (twice(FIRST_TROUBLE, LONGEST_TROUBLE), failures + 1),
        false => {
            let pause = twice(FIRST_REFUSAL, LONGEST_REFUSAL);
            // Who follows a tag hears of another image no later than that.
            let pause = if release.spec.track { pause.min(poll) } else { pause };
            (pause, failures + 1)
        }
    };
    let pause = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
    Looked { generation, due: now.saturating_add(pause), failures }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const POLL: Duration = Duration::from_secs(60);

    fn release(track: bool, status: Value) -> Release {
        serde_json::from_value(json!({
            "apiVersion": "portolan.dev/v1alpha1", "kind": "Release",
            "metadata": {"name": "app", "generation": 3},
            "spec": {"image": "r.example/app:1", "track": track},
            "status": status,
        }))
        .unwrap()
    }

    fn status(ready: &str, reason: &str, generation: i64) -> Value {
        json!({
            "observedGeneration": generation, "image": "r.example/app:1", "digest": DIGEST,
            "conditions": [{"type": "Ready", "status": ready, "reason": reason, "message": ""}],
        })
    }

    #[test]
    fn a_tag_is_asked_for_once_unless_it_is_followed() {
        let digest: Digest = DIGEST.parse().unwrap();
        let ready = || status("True", "Ready", 3);
        let refused = || status("False", "NotVerified", 3);
        let mut other = refused();
        other["image"] = json!("r.example/app:0");
        for (track, status, expected) in [
            (false, json!({}), Next::Look(None)),
            (false, ready(), Next::Settled),
            (false, refused(), Next::Look(Some(digest))),
            // The spec says something else by now.
            (false, status("True", "Ready", 2), Next::Look(Some(digest))),
            (false, other, Next::Look(None)),
            (true, ready(), Next::Follow(DIGEST.to_owned())),
            (true, refused(), Next::Look(None)),
            (true, status("True", "Ready", 2), Next::Look(None)),
        ] {
            assert_eq!(
                next(&release(track, status.clone()), None, 0),
                expected,
                "{track} {status}"
            );
        }
    }

    #[test]
    fn what_was_looked_at_is_looked_at_when_it_is_due_or_its_spec_changed() {
        let waiting = release(false, status("False", "NotVerified", 3));
        let looked =
            |generation| Some(Looked { generation: Some(generation), due: 1000, failures: 1 });
        assert_eq!(next(&waiting, looked(3), 400), Next::Wait(Duration::from_millis(600)));
        assert!(matches!(next(&waiting, looked(3), 1000), Next::Look(_)));
        assert!(matches!(next(&waiting, looked(2), 400), Next::Look(_)));
    }

    #[test]
    fn a_no_is_looked_at_ever_less_often_and_trouble_more_often_than_a_no() {
        let pauses = |track, ready: &str, reason: &str, trouble| -> Vec<i64> {
            let release = release(track, status(ready, reason, 3));
            let mut before = None;
            let pause = |_| {
                let status = release.status.as_ref().unwrap();
                let looked = looked(&release, status, trouble, before, (0, POLL));
                before = Some(looked);
                looked.due / 1000
            };
            (0..9).map(pause).collect()
        };
        let refused = [5, 10, 20, 40, 80, 160, 320, 600, 600];
        assert_eq!(pauses(false, "False", "NotVerified", false), refused);
        let troubled = [1, 2, 4, 8, 16, 32, 60, 60, 60];
        assert_eq!(pauses(false, "Unknown", "RegistryUnavailable", true), troubled);
        assert_eq!(pauses(false, "Unknown", "RegistryUnavailable", false), troubled);
        assert_eq!(pauses(false, "Unknown", "PolicyUndecided", false), troubled);
        assert_eq!(pauses(true, "True", "Ready", false), [60; 9]);
        assert_eq!(pauses(true, "False", "NotVerified", false)[4..], [60; 5]);
        // Who mends one thing does not wait for the next as long as for the first.
        let mended = release(false, status("False", "PolicyInvalid", 3));
        let release = release(false, status("False", "PolicyNotFound", 3));
        let before = Some(Looked { generation: Some(3), due: 0, failures: 9 });
        let looked = looked(&release, mended.status.as_ref().unwrap(), false, before, (0, POLL));
        assert_eq!((looked.due, looked.failures), (5000, 1));
    }
}
