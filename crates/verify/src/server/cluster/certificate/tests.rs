//! Every state that the Secret can be in, at every time, with copies that act at once.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::make::make;
use super::material::{CA_KEYS, CERTIFICATE, KEY, Kept, certificates};
use super::plan::{Change, Clock, Decision, Found, Wanted, decide, is_good};

const DAY: u64 = 24 * 3600;

fn wanted(names: &[&str]) -> Wanted {
    Wanted {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        lifetime: Duration::from_secs(30 * DAY),
        ca_lifetime: Duration::from_secs(365 * DAY),
    }
}

fn day(days: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + days * 86_400).unwrap()
}

fn right(now: Timestamp) -> Clock {
    Clock { here: now, there: now }
}

fn fresh(now: Timestamp, wanted: &Wanted) -> Kept {
    make(&Change::Everything, None, now, wanted).unwrap()
}

fn trust(kept: &Kept) -> BTreeSet<Vec<u8>> {
    certificates(kept.bundle().as_bytes()).unwrap().into_iter().collect()
}

/// The kind of decision, in a word.
fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Keep => "keep",
        Decision::HandsOff(_) => "hands off",
        Decision::Write(Change::Everything, _) => "everything",
        Decision::Write(Change::Authority, _) => "authority",
        Decision::Write(Change::Certificate { .. }, _) => "certificate",
        Decision::Write(Change::Prune, _) => "prune",
    }
}

#[test]
fn what_is_made_is_read_back_as_it_was() {
    let wanted = wanted(&["v.ns", "v.ns.svc", "10.0.0.1", "fd00::1"]);
    let kept = fresh(day(0), &wanted);
    let again = Kept::from_data(&kept.to_data()).unwrap();
    assert_eq!(format!("{kept:?}"), format!("{again:?}"));
    assert_eq!(again.leaf.names, wanted.names);
    assert_eq!(again.leaf.issuer, Some(0));
    assert_eq!(again.to_data(), kept.to_data());
    assert!(!format!("{kept:?}").contains("PRIVATE"), "keys are not for logs");
}

#[test]
fn each_state_of_the_secret_has_its_answer() {
    let names = wanted(&["v.ns"]);
    let kept = fresh(day(0), &names);
    let trusted = [trust(&kept)];
    let at = |days, found: &Found| word(&decide(right(day(days)), found, &trusted, &names));
    assert_eq!(at(0, &Found::Nothing), "everything");
    assert_eq!(at(0, &Found::Broken("no key".to_owned())), "everything");
    assert_eq!(at(0, &Found::Foreign), "hands off");
    let found = Found::Kept(kept.clone());
    for (days, expected) in [
        (0, "keep"),
        (19, "keep"),
        (20, "certificate"),
        (31, "certificate"),
        (364, "certificate"),
        (366, "everything"),
        // Made by a clock that ran ahead.
        (-1, "everything"),
    ] {
        assert_eq!(at(days, &found), expected, "day {days}");
    }
    let more = wanted(&["v.ns", "w.ns"]);
    match decide(right(day(0)), &found, &trusted, &more) {
        Decision::Write(Change::Certificate { names, .. }, _) => assert_eq!(names, more.names),
        other => panic!("{other:?}"),
    }
    // Copies that want other names, while a new version is rolled out, agree on all of them.
    match decide(right(day(0)), &found, &trusted, &wanted(&["w.ns"])) {
        Decision::Write(Change::Certificate { names, .. }, _) => assert_eq!(names, more.names),
        other => panic!("{other:?}"),
    }
    assert_eq!(word(&decide(right(day(0)), &found, &[], &names)), "keep", "nobody has to trust");
}

#[test]
fn by_a_clock_that_is_wrong_nothing_is_made() {
    let wanted = wanted(&["v.ns"]);
    let kept = Found::Kept(fresh(day(0), &wanted));
    for (here, there) in [(-9000, 0), (9000, 0), (0, 9000), (1, 0)] {
        let clock = Clock { here: day(here), there: day(there) };
        for found in [&kept, &Found::Nothing, &Found::Broken(String::new())] {
            assert_eq!(word(&decide(clock, found, &[], &wanted)), "hands off", "{here} {there}");
        }
    }
    let near = Clock { here: day(0) + Duration::from_secs(299), there: day(0) };
    assert_eq!(word(&decide(near, &kept, &[], &wanted)), "keep");
}

#[test]
fn a_secret_that_somebody_broke_is_seen_to_be_broken() {
    let wanted = wanted(&["v.ns"]);
    let (kept, other) = (fresh(day(0), &wanted), fresh(day(0), &wanted));
    for member in ["ca.crt", CA_KEYS, CERTIFICATE, KEY] {
        let mut data = kept.to_data();
        data.remove(member);
        assert!(Kept::from_data(&data).is_err(), "without {member}");
        for bytes in [&b""[..], b"\xff", b"nonsense", b"-----BEGIN CERTIFICATE-----\nx"] {
            data.insert(member.to_owned(), bytes.to_vec());
            assert!(Kept::from_data(&data).is_err(), "{member} {bytes:?}");
        }
        let mut mixed = kept.to_data();
        mixed.insert(member.to_owned(), other.to_data()[member].clone());
        assert!(Kept::from_data(&mixed).is_err(), "{member} of another");
    }
    // The whole pair of another: good by itself, but nobody here vouches for it.
    let mut mixed = kept.to_data();
    for member in [CERTIFICATE, KEY] {
        mixed.insert(member.to_owned(), other.to_data()[member].clone());
    }
    let mixed = Kept::from_data(&mixed).unwrap();
    assert_eq!(mixed.leaf.issuer, None);
    assert_eq!(word(&decide(right(day(0)), &Found::Kept(mixed), &[], &wanted)), "certificate");
}

/// From the first day to the end of the second authority, a look each day.
#[test]
fn an_authority_is_known_before_it_signs_and_until_what_it_signed_is_gone() {
    let wanted = wanted(&["v.ns"]);
    let mut kept = fresh(day(0), &wanted);
    let mut published = kept.clone();
    let first = kept.authorities[0].name.clone();
    let mut signed_by = Vec::new();
    for now in 0..800 {
        let trusted = [trust(&published)];
        while let Decision::Write(change, why) =
            decide(right(day(now)), &Found::Kept(kept.clone()), &trusted, &wanted)
        {
            assert_ne!(change, Change::Everything, "day {now}: {why}");
            kept = make(&change, Some(&kept), day(now), &wanted).unwrap();
        }
        published = kept.clone();
        let issuer = &kept.authorities[kept.leaf.issuer.unwrap()];
        assert!(is_good(kept.leaf.validity, day(now)) && is_good(issuer.validity, day(now)));
        assert!(kept.authorities.len() <= 3, "day {now}: {kept:?}");
        if signed_by.last().map(|(_, name)| name) != Some(&issuer.name) {
            signed_by.push((now, issuer.name.clone()));
        }
    }
    let days: Vec<_> = signed_by.iter().map(|(now, _)| *now).collect();
    // Made known after two thirds of a year, in use a twentieth of a year later.
    assert_eq!(days, [0, 263, 507, 751]);
    assert!(kept.authorities.iter().all(|one| one.name != first), "the first has gone");
}

#[test]
fn an_authority_that_not_everybody_trusts_does_not_sign() {
    let wanted = wanted(&["v.ns"]);
    let old = fresh(day(0), &wanted);
    let both = make(&Change::Authority, Some(&old), day(250), &wanted).unwrap();
    let both = make(
        &Change::Certificate { issuer: 1, names: wanted.names.clone() },
        Some(&both),
        day(250),
        &wanted,
    )
    .unwrap();
    let found = Found::Kept(both.clone());
    let (all, some) = (trust(&both), trust(&old));
    let issuer = |days, trusted: &[BTreeSet<Vec<u8>>]| match decide(
        right(day(days)),
        &found,
        trusted,
        &wanted,
    ) {
        Decision::Write(Change::Certificate { issuer, .. }, _) => Some(issuer),
        _ => None,
    };
    assert_eq!(issuer(255, &[all.clone(), all.clone()]), None, "it is too new");
    assert_eq!(issuer(269, &[all.clone(), all.clone()]), Some(0));
    assert_eq!(issuer(269, &[all.clone(), some.clone()]), None, "one does not trust it");
    assert_eq!(issuer(275, &[all, some]), Some(1), "renewed by the one whom all trust");
    assert_eq!(issuer(280, &[BTreeSet::new()]), Some(0), "nobody trusts anybody: by the newest");
}

/// One Secret and one object, as an API server holds them: who writes must have read the latest.
struct Server {
    secret: (u64, Option<Kept>),
    object: (u64, BTreeSet<Vec<u8>>, String),
}

/// A copy of the verifier between two of its steps.
#[derive(Default)]
struct Copy {
    object: Option<(u64, BTreeSet<Vec<u8>>, String)>,
    secret: Option<(u64, Option<Kept>)>,
    shown: Option<Kept>,
}

impl Copy {
    /// Reads the object, reads the Secret, writes one of both: one step at a time.
    fn step(&mut self, server: &mut Server, clock: Clock, wanted: &Wanted) {
        let Some(object) = self.object.clone() else {
            self.object = Some(server.object.clone());
            return;
        };
        let Some((version, kept)) = self.secret.clone() else {
            self.secret = Some(server.secret.clone());
            return;
        };
        let found = kept.clone().map_or(Found::Nothing, Found::Kept);
        match decide(clock, &found, std::slice::from_ref(&object.1), wanted) {
            Decision::Write(change, _) => {
                if server.secret.0 == version {
                    let next = make(&change, kept.as_ref(), clock.here, wanted).unwrap();
                    server.secret = (version + 1, Some(next));
                }
            }
            Decision::Keep | Decision::HandsOff(_) => {
                if let Some(kept) = kept {
                    let bundle = kept.bundle();
                    if bundle != object.2 && server.object.0 == object.0 {
                        server.object = (object.0 + 1, trust(&kept), bundle);
                    }
                    self.shown = Some(kept);
                }
            }
        }
        (self.object, self.secret) = (None, None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Copies take their steps in any order, days pass or jump, clocks are wrong: whoever looks
    /// long enough has a good certificate, and the last bundle that was published covers it.
    #[test]
    fn copies_that_act_at_once_agree_and_are_trusted(
        steps in prop::collection::vec((0..3_usize, 0..40_i64, prop::bool::weighted(0.1)), 1..60),
    ) {
        let wanted = wanted(&["v.ns"]);
        let mut server = Server { secret: (0, None), object: (0, BTreeSet::new(), String::new()) };
        let mut copies: [Copy; 3] = std::array::from_fn(|_| Copy::default());
        let mut now = 0;
        for (who, pass, wrong) in steps {
            now += pass;
            let here = if wrong { day(now + 4000) } else { day(now) };
            copies[who].step(&mut server, Clock { here, there: day(now) }, &wanted);
        }
        // Days do not pass any more, and everybody looks.
        for _ in 0..40 {
            for copy in &mut copies {
                copy.step(&mut server, right(day(now)), &wanted);
            }
        }
        let kept = server.secret.1.clone().unwrap();
        for copy in &copies {
            let shown = copy.shown.as_ref().unwrap();
            prop_assert_eq!(&shown.leaf.certificate, &kept.leaf.certificate);
            let issuer = &shown.authorities[shown.leaf.issuer.unwrap()];
            prop_assert!(is_good(shown.leaf.validity, day(now)));
            prop_assert!(server.object.1.contains(&issuer.der));
        }
        prop_assert_eq!(&server.object.2, &kept.bundle());
        let found = Found::Kept(kept);
        let last = decide(right(day(now)), &found, &[server.object.1], &wanted);
        prop_assert_eq!(last, Decision::Keep);
    }

    /// As long as somebody looks every few days, what any copy shows is covered by what is
    /// published at that moment.
    #[test]
    fn what_is_shown_is_always_trusted(steps in prop::collection::vec((0..2_usize, 0..3_i64), 100..500)) {
        let wanted = wanted(&["v.ns"]);
        let mut server = Server { secret: (0, None), object: (0, BTreeSet::new(), String::new()) };
        let mut copies: [Copy; 2] = std::array::from_fn(|_| Copy::default());
        for _ in 0..10 {
            for copy in &mut copies {
                copy.step(&mut server, right(day(0)), &wanted);
            }
        }
        let mut now = 0;
        for (who, pass) in steps {
            now += pass;
            copies[who].step(&mut server, right(day(now)), &wanted);
            for shown in copies.iter().filter_map(|copy| copy.shown.as_ref()) {
                let issuer = &shown.authorities[shown.leaf.issuer.unwrap()];
                // A copy that was not given its turn for a month shows what has expired.
                if is_good(shown.leaf.validity, day(now)) {
                    prop_assert!(server.object.1.contains(&issuer.der), "day {}", now);
                }
            }
        }
    }
}
