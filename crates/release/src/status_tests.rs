use portolan_core::{Digest, Platform};
use portolan_verify::decision;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn time(second: i64) -> Time {
    Time(jiff::Timestamp::from_second(1_800_000_000 + second).unwrap())
}

fn release(change: impl FnOnce(&mut Release)) -> Release {
    let mut release: Release = serde_json::from_value(json!({
        "apiVersion": "portolan.dev/v1alpha1", "kind": "Release",
        "metadata": {"name": "app", "namespace": "team", "generation": 1},
        "spec": {"image": "r.example/app:1"},
    }))
    .unwrap();
    change(&mut release);
    release
}

fn answered(verdict: Verdict) -> Verification {
    let mut answer = decision::no_policy(&"r.example/app:1".parse().unwrap());
    answer.verdict = verdict;
    Verification::Answered {
        policy: "makers".to_owned(),
        digest: Digest::sha256(b"policy"),
        answer: Box::new(answer),
    }
}

fn unknown(reason: &'static str) -> Verification {
    Verification::Unknown { reason, message: "why".to_owned() }
}

fn found(top: &str, verification: Verification) -> Result<Findings, Refusal> {
    let image = |platform: &str| ImageFinding {
        platform: platform.parse::<Platform>().unwrap(),
        digest: Digest::sha256(format!("{top} {platform}").as_bytes()),
        size: 7,
        compatibility: None,
    };
    Ok(Findings {
        repository: "r.example/app".to_owned(),
        top: Digest::sha256(top.as_bytes()),
        is_index: true,
        images: vec![image("linux/amd64"), image("linux/arm64")],
        verification,
    })
}

fn absent() -> Result<Findings, Refusal> {
    Err(LookError::Nothing { top: Digest::sha256(b"x") }.into())
}

fn away() -> Result<Findings, Refusal> {
    Err(Refusal::Late { seconds: 60 })
}

/// `Resolved/Verified/Ready: the reason of the last`.
fn shown(status: &ReleaseStatus) -> String {
    let of = |kind| condition::find(&status.conditions, kind).unwrap();
    let one = |kind| format!("{:?}", of(kind).status);
    format!("{}/{}/{}: {}", one(RESOLVED), one(VERIFIED), one(READY), of(READY).reason)
}

#[test]
fn the_table_of_conditions() {
    let yes = || found("a", answered(Verdict::Verified));
    let no = || found("a", answered(Verdict::Refused));
    for (found, required, expected) in [
        (yes(), true, "True/True/True: Ready"),
        (yes(), false, "True/True/True: Ready"),
        (no(), true, "True/False/False: NotVerified"),
        (no(), false, "True/False/True: VerificationNotRequired"),
        (found("a", Verification::NoPolicy), true, "True/Unknown/False: NoPolicy"),
        (found("a", Verification::NoPolicy), false, "True/Unknown/True: VerificationNotRequired"),
        (found("a", answered(Verdict::NoPolicy)), true, "True/Unknown/False: NoPolicy"),
        (found("a", unknown(reason::POLICY_NOT_FOUND)), true, "True/Unknown/False: PolicyNotFound"),
        // A policy that is named is waited for, also where a no would not matter.
        (
            found("a", unknown(reason::POLICY_NOT_FOUND)),
            false,
            "True/Unknown/False: PolicyNotFound",
        ),
        (found("a", unknown(reason::POLICY_INVALID)), false, "True/Unknown/False: PolicyInvalid"),
        (
            found("a", unknown(reason::REGISTRY_UNAVAILABLE)),
            false,
            "True/Unknown/Unknown: RegistryUnavailable",
        ),
        (
            found("a", unknown(reason::POLICY_UNDECIDED)),
            true,
            "True/Unknown/Unknown: PolicyUndecided",
        ),
        (absent(), true, "False/Unknown/False: ImageUnusable"),
        (absent(), false, "False/Unknown/False: ImageUnusable"),
        (away(), true, "Unknown/Unknown/Unknown: RegistryUnavailable"),
    ] {
        let release = release(|release| release.spec.require_verification = required);
        let status = after(&release, &found, &time(0));
        assert_eq!(shown(&status), expected, "{found:?} {required}");
        assert!(status.conditions.iter().all(|one| one.observed_generation == Some(1)));
    }
}

#[test]
fn what_is_recorded_is_what_was_found() {
    let status = after(&release(|_| ()), &found("a", answered(Verdict::Verified)), &time(5));
    let top = Digest::sha256(b"a").to_string();
    assert_eq!(status.digest.as_ref(), Some(&top));
    assert_eq!(status.index_digest.as_ref(), Some(&top));
    assert_eq!(status.repository.as_deref(), Some("r.example/app"));
    assert_eq!(status.resolved_at, Some(time(5)));
    assert_eq!(status.policy.unwrap().name, "makers");
    let platforms: Vec<_> = status.resolved.iter().map(|one| one.platform.as_str()).collect();
    assert_eq!(platforms, ["linux/amd64", "linux/arm64"]);
    assert_eq!(status.resolved[1].digest, Digest::sha256(b"a linux/arm64").to_string());
}

#[test]
fn the_same_again_is_no_change_and_times_change_with_the_status_alone() {
    for outcome in [
        found("a", answered(Verdict::Verified)),
        found("a", answered(Verdict::Refused)),
        found("a", Verification::NoPolicy),
        absent(),
        away(),
    ] {
        let mut release = release(|_| ());
        let first = after(&release, &outcome, &time(0));
        release.status = Some(first.clone());
        assert_eq!(after(&release, &outcome, &time(60)), first, "{outcome:?}");
        assert!(news(Some(&first), &first).is_empty());
    }
    // A registry that fails in other words is not written again; one that answers is.
    let mut release = release(|_| ());
    release.status =
        Some(after(&release, &found("a", unknown(reason::REGISTRY_UNAVAILABLE)), &time(0)));
    let other = Verification::Unknown {
        reason: reason::REGISTRY_UNAVAILABLE,
        message: "other words".to_owned(),
    };
    assert_eq!(Some(after(&release, &found("a", other), &time(9))), release.status);
    let now = after(&release, &found("a", answered(Verdict::Verified)), &time(9));
    assert_eq!(
        condition::find(&now.conditions, RESOLVED).unwrap().last_transition_time,
        Some(time(0))
    );
    assert_eq!(
        condition::find(&now.conditions, VERIFIED).unwrap().last_transition_time,
        Some(time(9))
    );
}

#[test]
fn a_tracked_release_stays_ready_until_what_comes_is_ready_too() {
    let mut tracked = release(|release| release.spec.track = true);
    let first = after(&tracked, &found("a", answered(Verdict::Verified)), &time(0));
    tracked.status = Some(first.clone());
    // Nobody answers: nothing changes.
    assert_eq!(after(&tracked, &away(), &time(1)), first);
    // The tag is on what is not signed: it is told, and not followed.
    let no = found("b", answered(Verdict::Refused));
    let held = after(&tracked, &no, &time(2));
    assert_eq!(held.digest, first.digest);
    assert_eq!(shown(&held), "True/True/True: Ready");
    let candidate = held.candidate.clone().unwrap();
    assert_eq!(candidate.digest, Some(Digest::sha256(b"b").to_string()));
    assert_eq!((candidate.reason.as_str(), candidate.since), ("NotVerified", Some(time(2))));
    let told = news(Some(&first), &held);
    assert!(matches!(&told[..], [one] if one.warning && one.reason == "NotFollowed"), "{told:?}");
    tracked.status = Some(held.clone());
    assert_eq!(after(&tracked, &no, &time(3)), held, "and told once");
    // The tag is gone, for good.
    let gone = after(&tracked, &absent(), &time(4));
    assert_eq!((gone.digest.clone(), gone.candidate.unwrap().digest), (first.digest.clone(), None));
    // It is back where it was.
    let back = after(&tracked, &found("a", answered(Verdict::Verified)), &time(5));
    assert_eq!(back, first);
    // It is on what is signed.
    let moved = after(&tracked, &found("c", answered(Verdict::Verified)), &time(6));
    assert_eq!(moved.digest, Some(Digest::sha256(b"c").to_string()));
    assert_eq!(moved.candidate, None);
    let [past] = &moved.history[..] else { panic!("{:?}", moved.history) };
    assert_eq!(Some(&past.digest), first.digest.as_ref());
    assert_eq!((&past.resolved_at, &past.replaced_at), (&Some(time(0)), &Some(time(6))));
    assert_eq!(past.resolved.len(), 2);
    assert!(news(Some(&held), &moved).iter().any(|one| one.reason == "Moved"));
}

#[test]
fn a_changed_spec_is_looked_at_anew_and_another_image_forgets_the_one_before() {
    let mut tracked = release(|release| release.spec.track = true);
    tracked.status = Some(after(&tracked, &found("a", answered(Verdict::Verified)), &time(0)));
    tracked.metadata.generation = Some(2);
    let stricter = after(&tracked, &found("a", answered(Verdict::Refused)), &time(1));
    assert_eq!(shown(&stricter), "True/False/False: NotVerified");
    tracked.spec.image = "r.example/other:1".to_owned();
    let gone = after(&tracked, &absent(), &time(2));
    assert_eq!((gone.digest, gone.resolved.len(), gone.history.len()), (None, 0, 1));
}

#[test]
fn what_was_ready_is_not_forgotten_when_spec_and_tag_change_while_the_registry_is_away() {
    let mut tracked = release(|release| release.spec.track = true);
    let first = after(&tracked, &found("a", answered(Verdict::Verified)), &time(0));
    tracked.status = Some(first.clone());
    tracked.metadata.generation = Some(2);
    let waiting = after(&tracked, &away(), &time(1));
    assert_eq!(shown(&waiting), "Unknown/Unknown/Unknown: RegistryUnavailable");
    tracked.status = Some(waiting);
    let past = |tag| {
        let status = after(&tracked, &found(tag, answered(Verdict::Verified)), &time(2));
        status.history.into_iter().map(|past| past.digest).collect::<Vec<_>>()
    };
    assert_eq!(past("b"), [first.digest.clone().unwrap()]);
    assert_eq!(past("a"), [""; 0], "it is what it was");
}

#[test]
fn what_was_resolved_stays_recorded_when_it_can_no_longer_be_read() {
    let mut waiting = release(|_| ());
    let first = after(&waiting, &found("a", answered(Verdict::Refused)), &time(0));
    waiting.status = Some(first.clone());
    let then = after(&waiting, &away(), &time(1));
    assert_eq!((then.digest.as_ref(), &then.resolved), (first.digest.as_ref(), &first.resolved));
    assert_eq!(shown(&then), "Unknown/Unknown/Unknown: RegistryUnavailable");
}

#[test]
fn people_are_told_what_happened_and_not_what_did_not() {
    let words = |found: Result<Findings, Refusal>| -> Vec<String> {
        let status = after(&release(|_| ()), &found, &time(0));
        news(None, &status)
            .into_iter()
            .map(|one| format!("{}{}", if one.warning { "!" } else { "" }, one.reason))
            .collect()
    };
    assert_eq!(words(found("a", answered(Verdict::Verified))), ["Resolved", "Verified", "Ready"]);
    assert_eq!(words(found("a", answered(Verdict::Refused))), ["Resolved", "!NotVerified"]);
    assert_eq!(words(found("a", Verification::NoPolicy)), ["Resolved", "!NoPolicy"]);
    assert_eq!(words(absent()), ["!ImageUnusable"]);
    assert_eq!(words(away()), [""; 0]);
}

#[test]
fn what_is_ready_once_more_took_no_place_in_a_full_history() {
    let mut tracked = release(|release| release.spec.track = true);
    let mut second = 0;
    let mut look = |outcome: Result<Findings, Refusal>, changed: bool| {
        tracked.metadata.generation =
            tracked.metadata.generation.map(|was| was + i64::from(changed));
        let status = after(&tracked, &outcome, &time(second));
        second += 1;
        tracked.status = Some(status.clone());
        status
    };
    for name in 0..=MAX_HISTORY {
        look(found(&name.to_string(), answered(Verdict::Verified)), false);
    }
    let full = look(found("last", answered(Verdict::Verified)), false);
    assert_eq!(full.history.len(), MAX_HISTORY);
    // Another spec, and nobody can tell: it is Ready no more.
    let waiting = look(away(), true);
    assert_eq!((is_ready(&waiting), waiting.history.len()), (false, MAX_HISTORY + 1));
    let again = look(found("last", answered(Verdict::Verified)), false);
    assert_eq!(again.history, full.history);
}

proptest! {
    /// However a tag moves, a registry fails and a spec changes, the record stays small, names what is Ready, and forgets nothing that
    /// was Ready but the oldest.
    #[test]
    fn a_record_is_bounded_and_never_names_what_was_not_ready(moves in prop::collection::vec((0u8..4, 0u8..4, prop::bool::weighted(0.2)), 0..40)) {
        let mut tracked = release(|release| release.spec.track = true);
        let mut good: Vec<String> = Vec::new();
        for (second, (top, how, changed)) in moves.into_iter().enumerate() {
            let top = top.to_string();
            tracked.metadata.generation = tracked.metadata.generation.map(|was| was + i64::from(changed));
            let outcome = match how {
                0 => found(&top, answered(Verdict::Verified)),
                1 => found(&top, answered(Verdict::Refused)),
                2 => absent(),
                _ => away(),
            };
            let status = after(&tracked, &outcome, &time(i64::try_from(second).unwrap()));
            let digest = Digest::sha256(top.as_bytes()).to_string();
            if how == 0 && good.last() != Some(&digest) {
                good.push(digest);
            }
            prop_assert!(status.history.len() <= MAX_HISTORY + usize::from(!is_ready(&status)));
            if is_ready(&status) {
                prop_assert_eq!(status.digest.as_ref(), good.last());
                let past: Vec<_> = status.history.iter().map(|one| one.digest.clone()).collect();
                let expected: Vec<_> = good.iter().rev().skip(1).take(MAX_HISTORY).cloned().collect();
                prop_assert_eq!(past, expected);
            }
            tracked.status = Some(status);
        }
    }
}
