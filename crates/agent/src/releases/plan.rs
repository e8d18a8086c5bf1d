//! What is fetched next, what is no longer wanted, and how it stands with each Release. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use portolan_core::Digest;

use super::NotFetched;
use super::judge::{Entry, Key};
use crate::api::PrefetchState;
use crate::backoff::backoff;
use crate::image::ResolvedImage;
use crate::reason::Reason;

/// What was here and was evicted is not fetched again at once: the room is needed for something else.
const EVICTED: Duration = Duration::from_secs(3600);
/// The first wait after trouble; it doubles.
const TROUBLE: Duration = Duration::from_secs(30);
/// The first wait after a refusal, which somebody has to do something about.
const REFUSAL: Duration = Duration::from_secs(300);
/// The longest of both.
const LONGEST: Duration = Duration::from_secs(3600);

/// What came of an image the last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attempt {
    image: ResolvedImage,
    failures: u32,
    /// Not before.
    due: Instant,
    /// Why it is not here.
    problem: Option<String>,
    /// That was want of room that there can be.
    no_room: bool,
}

impl Attempt {
    /// It is here.
    pub(super) fn here(image: ResolvedImage, now: Instant) -> Self {
        Self { image, failures: 0, due: now + EVICTED, problem: None, no_room: false }
    }

    /// It is not. `jitter` is 0 to 1: hosts that failed together do not come back together.
    pub(super) fn failed(
        image: ResolvedImage,
        before: Option<&Self>,
        why: &NotFetched,
        (now, jitter): (Instant, f64),
    ) -> Self {
        let before = before.filter(|before| before.image == image);
        let failures = before.map_or(0, |before| before.failures).saturating_add(1);
        let wait = backoff(first_wait(why.reason), LONGEST, failures).mul_f64(0.5 + jitter / 2.0);
        let problem = Some(format!("{}: {}", why.reason, why.message));
        Self { image, failures, due: now + wait, problem, no_room: why.no_room }
    }
}

/// The first wait, by what somebody can do about it.
fn first_wait(reason: Reason) -> Duration {
    match reason {
        Reason::VerificationFailed
        | Reason::HostIncompatible
        | Reason::PlatformMismatch
        | Reason::ResolvedDigestMissing
        | Reason::InvalidSpec => REFUSAL,
        Reason::ImagePullFailed
        | Reason::VerificationUndecided
        | Reason::RootfsBuildFailed
        | Reason::DiskFull
        | Reason::StartFailed => TROUBLE,
    }
}

/// All that is known.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) known: &'a BTreeMap<Key, Entry>,
    pub(super) attempts: &'a BTreeMap<Key, Attempt>,
    pub(super) flying: &'a BTreeMap<Key, ResolvedImage>,
    /// Manifests whose disks are in the cache.
    pub(super) cached: &'a BTreeSet<Digest>,
    /// The cache has no room.
    pub(super) pressure: bool,
    /// So many Releases, and so many at a time.
    pub(super) limit: usize,
    pub(super) concurrency: usize,
    pub(super) now: Instant,
}

/// What is done about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) begin: Vec<(Key, ResolvedImage)>,
    /// Nobody wants these any more.
    pub(super) cancel: Vec<Key>,
    /// In the cache.
    pub(super) here: Vec<(Key, ResolvedImage)>,
    /// How it stands with each, the newest first, and why it is not here.
    pub(super) states: Vec<(Key, PrefetchState, String)>,
    /// When something comes due.
    pub(super) next: Option<Instant>,
}

/// One image for each Release, the newest Releases first, never more than the limits; nothing while there is no room, and
/// nothing that is older than what found none: it would take the room that the newer one waits for.
pub(super) fn plan(view: &View<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut order: Vec<(&Key, &Entry)> = view.known.iter().collect();
    order.sort_by_key(|(key, entry)| (Reverse(entry.created), *key));
    let mut round = Round::default();
    let mut kept: BTreeSet<&Key> = BTreeSet::new();
    for (key, image) in view.flying {
        let entry = view.known.get(key);
        if entry.is_some_and(|entry| entry.verdict.as_ref() == Ok(image)) {
            round.on_its_way.insert(image.resolved_digest);
        }
    }
    for (key, entry) in order {
        let (state, message) = match &entry.verdict {
            Err(why) => (PrefetchState::Skipped, why.clone()),
            Ok(_) if round.counted >= view.limit => (
                PrefetchState::Skipped,
                format!("there are more than {} newer ones (prefetch.limit)", view.limit),
            ),
            Ok(image) => {
                let (state, message) = stand(view, &round, key, image);
                round.count(view, (key, image), state);
                match state {
                    PrefetchState::Fetching => {
                        kept.insert(key);
                        round.on_its_way.insert(image.resolved_digest);
                        if view.flying.get(key) != Some(image) {
                            round.begun += 1;
                            plan.begin.push((key.clone(), image.clone()));
                        }
                    }
                    PrefetchState::Here => plan.here.push((key.clone(), image.clone())),
                    _ => {
                        let due = view.attempts.get(key).map(|one| one.due);
                        let due = due.filter(|due| *due > view.now);
                        plan.next = plan.next.into_iter().chain(due).min();
                    }
                }
                (state, message)
            }
        };
        plan.states.push((key.clone(), state, message));
    }
    plan.cancel = view.flying.keys().filter(|key| !kept.contains(key)).cloned().collect();
    plan
}

/// What the newer ones have taken already.
#[derive(Debug, Default)]
struct Round<'a> {
    on_its_way: BTreeSet<Digest>,
    begun: usize,
    /// Of the limit.
    counted: usize,
    /// Of the places besides, which are as many, for what failed the last time.
    failed: usize,
    /// The newest that found no room.
    stuck: Option<&'a Key>,
}

impl<'a> Round<'a> {
    /// What failed the last time has no place of the limit until it is here: whoever labels what nobody can fetch would
    /// else keep the others away, and each new try would push out an older one that is under way. It has one of as many
    /// others, and of the limit once those are taken: else all that there are would be tried where all of them fail.
    fn count(
        &mut self,
        view: &View<'_>,
        (key, image): (&'a Key, &ResolvedImage),
        state: PrefetchState,
    ) {
        let failed = view.failed(key, image).filter(|_| state != PrefetchState::Here);
        if failed.is_some_and(|attempt| attempt.no_room) {
            self.stuck = self.stuck.or(Some(key));
        }
        if failed.is_some() && self.failed < view.limit {
            self.failed += 1;
        } else {
            self.counted += 1;
        }
    }
}

impl View<'_> {
    /// What came of this image the last time, if it failed.
    fn failed(&self, key: &Key, image: &ResolvedImage) -> Option<&Attempt> {
        self.attempts.get(key).filter(|one| one.image == *image && one.failures > 0)
    }
}

/// How it stands with one that is wanted.
fn stand(
    view: &View<'_>,
    round: &Round<'_>,
    key: &Key,
    image: &ResolvedImage,
) -> (PrefetchState, String) {
    let waiting = |why: &str| (PrefetchState::Waiting, why.to_owned());
    if view.flying.get(key) == Some(image) {
        return (PrefetchState::Fetching, String::new());
    }
    if view.cached.contains(&image.resolved_digest) {
        return (PrefetchState::Here, String::new());
    }
    let attempt = view.attempts.get(key).filter(|one| one.image == *image && one.due > view.now);
    match attempt.map(|one| &one.problem) {
        Some(Some(problem)) => return (PrefetchState::Failed, problem.clone()),
        Some(None) => return waiting("it was evicted; it is fetched again within an hour"),
        None => {}
    }
    if view.pressure {
        return waiting("the cache has no room");
    }
    if let Some(newer) = round.stuck {
        return waiting(&format!("{newer}, which is newer, waits for room"));
    }
    // Whoever is cancelled has its place until it is gone.
    let busy = view.flying.len() + round.begun >= view.concurrency;
    if busy || round.on_its_way.contains(&image.resolved_digest) || view.flying.contains_key(key) {
        return waiting("others come first");
    }
    (PrefetchState::Fetching, String::new())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::judge::tests::host;
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    fn image(of: &str) -> ResolvedImage {
        ResolvedImage {
            registry: "r.example".parse().unwrap(),
            repository: "app".parse().unwrap(),
            resolved_digest: Digest::sha256(of.as_bytes()),
            index_digest: None,
            platform: host("linux/amd64").platform,
        }
    }

    /// Releases that name the image of their own name, the first the newest.
    #[derive(Default)]
    struct World {
        known: BTreeMap<Key, Entry>,
        attempts: BTreeMap<Key, Attempt>,
        flying: BTreeMap<Key, ResolvedImage>,
        cached: BTreeSet<Digest>,
        pressure: bool,
    }

    impl World {
        fn of(names: &[&str]) -> Self {
            let known = names.iter().rev().enumerate().map(|(age, name)| {
                let created = i64::try_from(age).unwrap();
                (key(name), Entry { created, verdict: Ok(image(name)) })
            });
            Self { known: known.collect(), ..Self::default() }
        }

        fn plan(&self, limit: usize, concurrency: usize, now: Instant) -> Plan {
            plan(&View {
                known: &self.known,
                attempts: &self.attempts,
                flying: &self.flying,
                cached: &self.cached,
                pressure: self.pressure,
                limit,
                concurrency,
                now,
            })
        }
    }

    fn why(reason: Reason, no_room: bool) -> NotFetched {
        NotFetched { reason, message: "no route".to_owned(), no_room }
    }

    fn begun(plan: &Plan) -> Vec<&str> {
        plan.begin.iter().map(|(key, _)| key.name.as_str()).collect()
    }

    fn states(plan: &Plan) -> Vec<&'static str> {
        plan.states.iter().map(|(_, state, _)| state.as_str()).collect()
    }

    #[test]
    fn the_newest_come_first_and_never_more_than_the_limits() {
        let now = Instant::now();
        let mut world = World::of(&["c", "b", "a"]);
        world.known.get_mut(&key("b")).unwrap().verdict = Err("not Ready".to_owned());
        let plan = world.plan(1, 8, now);
        assert_eq!(begun(&plan), ["c"]);
        assert_eq!(states(&plan), ["fetching", "skipped", "skipped"]);
        assert!(plan.states[2].2.contains("prefetch.limit"));
        let plan = world.plan(8, 1, now);
        assert_eq!(
            (begun(&plan), states(&plan)),
            (vec!["c"], vec!["fetching", "skipped", "waiting"])
        );
        world.flying.insert(key("c"), image("c"));
        let plan = world.plan(8, 2, now);
        assert_eq!(begun(&plan), ["a"]);
        assert_eq!(plan.cancel, []);
    }

    #[test]
    fn what_is_cached_is_here_and_two_releases_of_one_image_fetch_it_once() {
        let now = Instant::now();
        let mut world = World::of(&["a", "b", "c"]);
        world.known.get_mut(&key("b")).unwrap().verdict = Ok(image("a"));
        world.cached.insert(image("c").resolved_digest);
        let plan = world.plan(8, 8, now);
        assert_eq!((begun(&plan), states(&plan)), (vec!["a"], vec!["fetching", "waiting", "here"]));
        assert_eq!(plan.here, [(key("c"), image("c"))]);
    }

    #[test]
    fn without_room_nothing_is_begun() {
        let mut world = World::of(&["a"]);
        world.pressure = true;
        let plan = world.plan(8, 8, Instant::now());
        assert_eq!((begun(&plan), states(&plan)), (vec![], vec!["waiting"]));
        assert!(plan.states[0].2.contains("no room"));
    }

    #[test]
    fn what_failed_takes_no_place_of_the_limit_and_pushes_out_nobody() {
        let now = Instant::now();
        let mut world = World::of(&["c", "b", "a"]);
        for name in ["c", "b"] {
            let refused = why(Reason::VerificationFailed, false);
            let attempt = Attempt::failed(image(name), None, &refused, (now, 1.0));
            world.attempts.insert(key(name), attempt);
        }
        let plan = world.plan(2, 8, now);
        assert_eq!(
            (begun(&plan), states(&plan)),
            (vec!["a"], vec!["failed", "failed", "fetching"])
        );
        // Their turn comes again while the older one is under way.
        world.flying.insert(key("a"), image("a"));
        let plan = world.plan(2, 8, now + REFUSAL);
        assert_eq!((begun(&plan), plan.cancel.len()), (vec!["c", "b"], 0));
        // Once one of them is here, it is the one of the limit.
        world.cached.insert(image("c").resolved_digest);
        let plan = world.plan(1, 8, now + REFUSAL);
        assert_eq!(states(&plan), ["here", "skipped", "skipped"]);
    }

    #[test]
    fn where_all_fail_no_more_are_tried_than_twice_the_limit() {
        let mut now = Instant::now();
        let mut world = World::of(&["j", "i", "h", "g", "f", "e", "d", "c", "b", "a"]);
        let mut tried = BTreeSet::new();
        for _ in 0..30 {
            for (key, image) in world.plan(2, 8, now).begin {
                let late = why(Reason::ImagePullFailed, false);
                let before = world.attempts.get(&key);
                let attempt = Attempt::failed(image, before, &late, (now, 1.0));
                tried.insert(key.name.clone());
                world.attempts.insert(key, attempt);
            }
            now += TROUBLE;
        }
        assert_eq!(tried, ["g", "h", "i", "j"].map(str::to_owned).into());
        let skipped = states(&world.plan(2, 8, now)).iter().filter(|s| **s == "skipped").count();
        assert_eq!(skipped, 6);
    }

    #[test]
    fn what_is_older_than_one_that_found_no_room_waits() {
        let now = Instant::now();
        let mut world = World::of(&["d", "c", "b", "a"]);
        world.cached.insert(image("b").resolved_digest);
        let fail = |world: &mut World, no_room| {
            let full = why(Reason::DiskFull, no_room);
            world.attempts.insert(key("c"), Attempt::failed(image("c"), None, &full, (now, 1.0)));
        };
        fail(&mut world, true);
        let plan = world.plan(8, 8, now);
        assert_eq!(
            (begun(&plan), states(&plan)),
            (vec!["d"], vec!["fetching", "failed", "here", "waiting"])
        );
        assert!(plan.states[3].2.contains("shop/c"), "{:?}", plan.states);
        // It has its turn first, and before it is here nothing older begins.
        assert_eq!(begun(&world.plan(8, 8, now + TROUBLE)), ["d", "c"]);
        // What fits nowhere keeps nobody away.
        fail(&mut world, false);
        assert_eq!(begun(&world.plan(8, 8, now)), ["d", "a"]);
    }

    #[test]
    fn what_nobody_wants_any_more_is_cancelled() {
        let mut world = World::of(&["a"]);
        for name in ["a", "gone"] {
            world.flying.insert(key(name), image(name));
        }
        assert_eq!(world.plan(8, 8, Instant::now()).cancel, [key("gone")]);
        // It follows its tag, and names another image by now.
        world.known.get_mut(&key("a")).unwrap().verdict = Ok(image("newer"));
        let plan = world.plan(8, 8, Instant::now());
        assert_eq!((plan.cancel.len(), begun(&plan)), (2, vec![]), "one after the other");
    }

    #[test]
    fn what_failed_is_tried_again_later_and_what_was_evicted_much_later() {
        let now = Instant::now();
        let mut world = World::of(&["a"]);
        let fail = |before: Option<&Attempt>, reason| {
            Attempt::failed(image("a"), before, &why(reason, false), (now, 1.0))
        };
        let first = fail(None, Reason::ImagePullFailed);
        world.attempts.insert(key("a"), first.clone());
        let plan = world.plan(8, 8, now);
        assert_eq!((states(&plan), plan.next), (vec!["failed"], Some(now + TROUBLE)));
        assert!(plan.states[0].2.contains("no route"));
        assert_eq!(begun(&world.plan(8, 8, now + TROUBLE)), ["a"]);
        let second = fail(Some(&first), Reason::ImagePullFailed);
        assert_eq!(second.due, now + 2 * TROUBLE);
        assert_eq!(fail(None, Reason::VerificationFailed).due, now + REFUSAL);
        let long = (0..20).fold(first.clone(), |before, _| fail(Some(&before), Reason::DiskFull));
        assert_eq!(long.due, now + LONGEST);
        // Another image of the same Release is new.
        world.known.get_mut(&key("a")).unwrap().verdict = Ok(image("b"));
        assert_eq!(begun(&world.plan(8, 8, now)), ["a"]);
        world.attempts.insert(key("a"), Attempt::here(image("b"), now));
        let plan = world.plan(8, 8, now);
        assert_eq!(states(&plan), ["waiting"]);
        assert!(plan.states[0].2.contains("evicted"));
        assert_eq!(begun(&world.plan(8, 8, now + EVICTED)), ["a"]);
    }

    proptest! {
        #[test]
        fn no_more_is_on_its_way_than_may_be_and_nothing_is_fetched_twice(
            wanted in prop::collection::vec((0_u8..12, 0_u8..6, any::<bool>()), 0..24),
            flying in prop::collection::vec((0_u8..16, 0_u8..6), 0..4),
            cached in prop::collection::vec(0_u8..6, 0..4),
            pressure in any::<bool>(),
            limit in 1_usize..8,
            concurrency in 1_usize..5,
        ) {
            let image = |n: &u8| image(&n.to_string());
            let mut world = World { pressure, ..World::default() };
            for (name, of, ok) in &wanted {
                let verdict = if *ok { Ok(image(of)) } else { Err("no".to_owned()) };
                world.known.insert(key(&name.to_string()), Entry { created: i64::from(*of), verdict });
            }
            world.flying.extend(flying.iter().map(|(name, of)| (key(&name.to_string()), image(of))));
            world.cached.extend(cached.iter().map(|of| image(of).resolved_digest));
            let plan = world.plan(limit, concurrency, Instant::now());
            prop_assert!(plan.begin.is_empty() || world.flying.len() + plan.begin.len() <= concurrency);
            prop_assert!(!pressure || plan.begin.is_empty());
            prop_assert_eq!(plan.states.len(), world.known.len());
            let mut digests = BTreeSet::new();
            for (key, image) in &plan.begin {
                prop_assert_eq!(world.known[key].verdict.as_ref(), Ok(image));
                prop_assert!(!world.cached.contains(&image.resolved_digest));
                prop_assert!(digests.insert(image.resolved_digest));
                prop_assert!(!world.flying.contains_key(key));
            }
            for (key, image) in &world.flying {
                let still = world.known.get(key).is_some_and(|one| one.verdict.as_ref() == Ok(image));
                prop_assert!(still || plan.cancel.contains(key));
            }
        }
    }
}
