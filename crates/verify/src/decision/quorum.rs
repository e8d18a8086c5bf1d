//! Whether enough signers signed.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::Requirement;

/// That a signer of the policy accepted something made with a key or identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vote<'a> {
    /// In the policy.
    pub(super) signer: &'a str,
    /// The key or identity, and who vouches for it.
    pub(super) identity: (&'a str, Option<&'a str>),
}

/// A part of a requirement that does not hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unmet<'a> {
    of: &'a [String],
    needed: usize,
    found: usize,
    /// Enough of them would have signed if a key or identity counted more than once.
    shared: bool,
}

impl Unmet<'_> {
    /// For people: how many `what` there are.
    pub(super) fn shown(&self, what: &str) -> String {
        let Self { of, needed, found, shared } = self;
        let shared = if *shared { " (one key or identity is one signer)" } else { "" };
        format!("{found} of the {needed} {what} needed of {}{shared}", of.join(", "))
    }
}

/// The first part of `requirement` that does not hold; none where all hold.
///
/// Each key or identity counts for one signer, whichever part names them: two names for one key are
/// one signer. Who is named in both parts counts in both.
pub(super) fn unmet<'a>(requirement: &'a Requirement, votes: &[Vote<'_>]) -> Option<Unmet<'a>> {
    let mut seats = Seats::new(votes);
    let all = (requirement.all_of(), requirement.all_of().len());
    let any = requirement.any_of().map(|part| (part.of(), part.count()));
    // Those of whom all are needed first: they keep their seats when others are found one.
    [all].into_iter().chain(any).find_map(|(of, needed)| {
        let found = seats.seat(of);
        let alone = Seats::new(votes).seat(of);
        (found < needed).then_some(Unmet { of, needed, found, shared: alone >= needed })
    })
}

/// Keys and identities, and for whom each counts. (The largest matching between the two.)
struct Seats<'v, 'n> {
    votes: &'v [Vote<'v>],
    taken: BTreeMap<(&'v str, Option<&'v str>), &'n str>,
}

impl<'v, 'n> Seats<'v, 'n> {
    fn new(votes: &'v [Vote<'v>]) -> Self {
        Self { votes, taken: BTreeMap::new() }
    }

    /// How many of these signers have one of their own, beside all that were seated before.
    fn seat(&mut self, of: &'n [String]) -> usize {
        let mut seated = 0;
        for name in of {
            let is_seated = self.taken.values().any(|other| other == name);
            seated += usize::from(is_seated || self.place(name, &mut BTreeSet::new()));
        }
        seated
    }

    /// Finds one for `signer`, moving others where they have a second one.
    fn place(&mut self, signer: &'n str, seen: &mut BTreeSet<(&'v str, Option<&'v str>)>) -> bool {
        for vote in self.votes.iter().filter(|vote| vote.signer == signer) {
            if !seen.insert(vote.identity) {
                continue;
            }
            let free = match self.taken.get(&vote.identity).copied() {
                None => true,
                Some(other) => self.place(other, seen),
            };
            if free {
                self.taken.insert(vote.identity, signer);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Threshold;

    fn found(of: &[&str], votes: &[(&str, &str)]) -> usize {
        let of: Vec<_> = of.iter().map(|&name| name.to_owned()).collect();
        let votes: Vec<_> = votes
            .iter()
            .map(|&(signer, identity)| Vote { signer, identity: (identity, None) })
            .collect();
        Seats::new(&votes).seat(&of)
    }

    #[test]
    fn one_key_under_two_names_is_one_signer() {
        assert_eq!(found(&["a", "b"], &[("a", "x"), ("b", "x")]), 1);
        assert_eq!(found(&["a", "b"], &[("a", "x"), ("b", "y")]), 2);
        assert_eq!(found(&["a", "b"], &[("a", "x"), ("a", "y")]), 1);
        assert_eq!(found(&["a", "b"], &[("a", "x"), ("a", "y"), ("b", "x")]), 2);
        assert_eq!(found(&["a", "b", "c"], &[("a", "x"), ("a", "y"), ("b", "z"), ("c", "z")]), 2);
        assert_eq!(found(&["a"], &[("b", "x")]), 0);
        assert_eq!(found(&["a", "b"], &[]), 0);
    }

    #[test]
    fn the_same_words_of_two_issuers_are_two_identities() {
        let vote = |signer, issuer| Vote { signer, identity: ("dev@example", Some(issuer)) };
        let of = ["a".to_owned(), "b".to_owned()];
        assert_eq!(Seats::new(&[vote("a", "one"), vote("b", "two")]).seat(&of), 2);
        assert_eq!(Seats::new(&[vote("a", "one"), vote("b", "one")]).seat(&of), 1);
    }

    /// Release must sign, and so must one of the others: its own key does not count for them as well.
    #[test]
    fn one_key_does_not_count_for_all_of_and_for_any_of() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let holds = |all: &[&str], any: (&[&str], usize), votes: &[(&str, &str)]| {
            let any = Threshold::new(names(any.0), any.1);
            let requirement = Requirement::new(names(all), any).unwrap();
            let votes: Vec<_> = votes
                .iter()
                .map(|&(signer, identity)| Vote { signer, identity: (identity, None) })
                .collect();
            unmet(&requirement, &votes).is_none()
        };
        let shared = [("release", "x"), ("security", "x")];
        assert!(!holds(&["release"], (&["security", "ci"], 1), &shared));
        assert!(holds(&["release"], (&["security", "ci"], 1), &[shared[0], ("ci", "y")]));
        // Who has a second key makes room for who has not, in whatever order they come.
        let second = [("release", "x"), ("release", "y"), ("security", "x")];
        assert!(holds(&["release"], (&["security", "ci"], 1), &second));
        assert!(holds(&["release"], (&["security", "ci"], 1), &[second[2], second[1], second[0]]));
        // Who is named twice is there in both.
        assert!(holds(&["release"], (&["release", "ci"], 2), &[("release", "x"), ("ci", "y")]));
        assert!(!holds(&["release"], (&["release", "ci"], 2), &[("release", "x"), ("ci", "x")]));
    }

    proptest! {
        /// Held against every way of giving each key to one signer.
        #[test]
        fn no_way_of_counting_each_key_once_is_overlooked(
            all in prop::sample::subsequence(vec![0_usize, 1, 2, 3], 0..=2),
            any in prop::sample::subsequence(vec![0_usize, 1, 2, 3], 1..=4),
            count in 1..=4_usize,
            votes in prop::collection::vec((0..4_usize, 0..4_usize), 0..8),
        ) {
            const NAMES: [&str; 4] = ["a", "b", "c", "d"];
            let names = |of: &[usize]| of.iter().map(|n| NAMES[*n].to_owned()).collect::<Vec<_>>();
            let count = count.min(any.len());
            let any_of = Threshold::new(names(&any), count);
            let requirement = Requirement::new(names(&all), any_of).unwrap();
            let written: Vec<_> =
                votes.iter().map(|&(s, k)| Vote { signer: NAMES[s], identity: (NAMES[k], None) }).collect();
            // Key k counts for the signer in the k-th digit, or for nobody.
            let possible = (0..5_usize.pow(4)).any(|n| {
                let holder = |k: u32| n / 5_usize.pow(k) % 5;
                let has = |s: &usize| {
                    (0..4_u32).any(|k| holder(k) == *s && votes.contains(&(*s, k as usize)))
                };
                all.iter().all(has) && any.iter().filter(|s| has(s)).count() >= count
            });
            prop_assert_eq!(unmet(&requirement, &written).is_none(), possible);
        }
    }
}
