//! Who acts: one of all copies. Pure.
//!
//! Clocks of machines differ, so nobody's time is compared with ours: a holder is alive as long as its
//! lease changes, by our own clock.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// How long a lease counts that nobody renews.
pub const DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew for that long stops, well before others may begin.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often it is renewed, and looked at by those who wait.
pub const PAUSE: Duration = Duration::from_secs(2);

/// What one copy knows of the lease.
#[derive(Debug)]
pub struct Candidate {
    me: String,
    /// Holder and time as they were last seen to change, and when that was.
    seen: Option<(Mark, Instant)>,
}

type Mark = (Option<String>, Option<Timestamp>, Option<i32>);

/// What a copy does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Write this, and lead if it was written.
    Take(Box<LeaseSpec>),
    /// Somebody else leads.
    Stand,
}

impl Candidate {
    /// One that knows nothing yet.
    pub fn new(me: impl Into<String>) -> Self {
        Self { me: me.into(), seen: None }
    }

    /// What to do about the lease as it was found.
    pub fn step(&mut self, found: Option<&LeaseSpec>, clock: Instant, now: Timestamp) -> Step {
        let Some(lease) = found else { return self.take(None, now) };
        let holder = lease.holder_identity.as_deref().filter(|holder| !holder.is_empty());
        let Some(holder) = holder else { return self.take(Some(lease), now) };
        if holder == self.me {
            return self.take(Some(lease), now);
        }
        let mark = (
            lease.holder_identity.clone(),
            lease.renew_time.as_ref().map(|time| time.0),
            lease.lease_transitions,
        );
        match &self.seen {
            Some((known, since)) if *known == mark => {
                let seconds = lease.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
                let lasts = seconds.map_or(DURATION, Duration::from_secs);
                match clock.duration_since(*since) > lasts {
                    true => self.take(Some(lease), now),
                    false => Step::Stand,
                }
            }
            _ => {
                self.seen = Some((mark, clock));
                Step::Stand
            }
        }
    }

    fn take(&self, found: Option<&LeaseSpec>, now: Timestamp) -> Step {
        let before = found.and_then(|lease| lease.holder_identity.as_deref());
        let mine = before == Some(self.me.as_str());
        let transitions = found.and_then(|lease| lease.lease_transitions).unwrap_or_default();
        let acquired = found.and_then(|lease| lease.acquire_time.clone()).filter(|_| mine);
        Step::Take(Box::new(LeaseSpec {
            holder_identity: Some(self.me.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: acquired.or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(if mine || found.is_none() {
                transitions
            } else {
                transitions + 1
            }),
            ..LeaseSpec::default()
        }))
    }

    /// What is written so that the next need not wait; nothing where it is not ours.
    pub fn release(&self, found: &LeaseSpec, now: Timestamp) -> Option<LeaseSpec> {
        (found.holder_identity.as_deref() == Some(&self.me)).then(|| LeaseSpec {
            holder_identity: None,
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(now)),
            ..found.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn taken(step: Step) -> LeaseSpec {
        match step {
            Step::Take(spec) => *spec,
            Step::Stand => panic!("it stands by"),
        }
    }

    #[test]
    fn the_first_takes_it_and_the_second_waits_until_it_is_no_longer_renewed() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let (mut one, mut two) = (Candidate::new("one"), Candidate::new("two"));
        let held = taken(one.step(None, at(0), now()));
        assert_eq!(held.lease_transitions, Some(0));
        assert_eq!(two.step(Some(&held), at(0), now()), Step::Stand);
        assert_eq!(two.step(Some(&held), at(15), now()), Step::Stand, "it counts that long");
        let later = Timestamp::from_second(1_700_000_002).unwrap();
        let renewed = taken(one.step(Some(&held), at(15), later));
        assert_eq!(renewed.acquire_time, held.acquire_time);
        assert_eq!(two.step(Some(&renewed), at(16), now()), Step::Stand, "it was renewed");
        assert_eq!(two.step(Some(&renewed), at(31), now()), Step::Stand);
        let next = taken(two.step(Some(&renewed), at(32), now()));
        assert_eq!(
            (next.holder_identity.as_deref(), next.lease_transitions),
            (Some("two"), Some(1))
        );
        assert_eq!(one.step(Some(&next), at(32), now()), Step::Stand, "the first must stop");
    }

    #[test]
    fn a_lease_that_was_given_back_is_taken_at_once() {
        let (mut one, mut two) = (Candidate::new("one"), Candidate::new("two"));
        let held = taken(one.step(None, Instant::now(), now()));
        assert_eq!(two.release(&held, now()), None, "it is not theirs");
        let free = one.release(&held, now()).unwrap();
        assert_eq!(taken(two.step(Some(&free), Instant::now(), now())).lease_transitions, Some(1));
    }

    #[test]
    fn a_clock_that_is_wrong_takes_nobodys_lease() {
        let mut two = Candidate::new("two");
        let held = taken(Candidate::new("one").step(None, Instant::now(), Timestamp::UNIX_EPOCH));
        assert_eq!(two.step(Some(&held), Instant::now(), now()), Step::Stand);
    }

    proptest! {
        /// Two copies step in any order at any times, each leading from a write until its own
        /// deadline: never both.
        #[test]
        fn two_never_lead_at_once(steps in prop::collection::vec((any::<bool>(), 0..6_u64), 1..120)) {
            let begin = Instant::now();
            let mut stored: Option<LeaseSpec> = None;
            let mut copies = [Candidate::new("0"), Candidate::new("1")];
            let mut until = [begin, begin];
            let mut clock = begin;
            for (number, (which, pause)) in steps.into_iter().enumerate() {
                clock += Duration::from_secs(pause);
                let me = usize::from(which);
                let time = Timestamp::from_second(i64::try_from(number).unwrap()).unwrap();
                match copies[me].step(stored.as_ref(), clock, time) {
                    Step::Take(spec) => {
                        stored = Some(*spec);
                        until[me] = clock + RENEW_DEADLINE;
                    }
                    Step::Stand => until[me] = clock,
                }
                prop_assert!(until.iter().filter(|until| **until > clock).count() <= 1);
            }
        }
    }
}
