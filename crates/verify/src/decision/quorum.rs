//! Whether enough signers signed.

use std::collections::BTreeSet;

use crate::policy::{Requirement, Threshold};

/// That a signer of the policy accepted something made with a key or identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vote<'a> {
    /// In the policy.
    pub(super) signer: &'a str,
    /// The key or identity, and who vouches for it.
    pub(super) identity: (&'a str, Option<&'a str>),
}

/// The first part of `requirement` that does not hold, and how many of it do; none where all hold.
pub(super) fn unmet<'a>(
    requirement: &'a Requirement,
    votes: &[Vote<'_>],
) -> Option<(&'a Threshold, usize)> {
    requirement.parts().iter().find_map(|part| {
        let found = distinct(part.of(), votes);
        (found < part.count()).then_some((part, found))
    })
}

/// How many of the signers `of` have signed, each with a key or identity that counts for no other
/// of them: two names for one key are one signer. (The largest matching between the two.)
fn distinct(of: &[String], votes: &[Vote<'_>]) -> usize {
    let identities: Vec<_> =
        votes.iter().map(|vote| vote.identity).collect::<BTreeSet<_>>().into_iter().collect();
    let used: Vec<Vec<usize>> = of
        .iter()
        .map(|name| {
            let own = |n: &usize| {
                votes.iter().any(|vote| vote.signer == name && vote.identity == identities[*n])
            };
            (0..identities.len()).filter(own).collect()
        })
        .collect();
    let mut taken_by: Vec<Option<usize>> = vec![None; identities.len()];
    let found = |signer| place(signer, &used, &mut taken_by, &mut BTreeSet::new());
    (0..of.len()).map(found).filter(|placed| *placed).count()
}

/// Finds an identity for `signer`, moving others where they have a second one.
fn place(
    signer: usize,
    used: &[Vec<usize>],
    taken_by: &mut [Option<usize>],
    seen: &mut BTreeSet<usize>,
) -> bool {
    for &identity in &used[signer] {
        if !seen.insert(identity) {
            continue;
        }
        let free = match taken_by[identity] {
            None => true,
            Some(other) => place(other, used, taken_by, seen),
        };
        if free {
            taken_by[identity] = Some(signer);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(of: &[&str], votes: &[(&str, &str)]) -> usize {
        let of: Vec<_> = of.iter().map(|&name| name.to_owned()).collect();
        let votes: Vec<_> = votes
            .iter()
            .map(|&(signer, identity)| Vote { signer, identity: (identity, None) })
            .collect();
        distinct(&of, &votes)
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
        assert_eq!(distinct(&of, &[vote("a", "one"), vote("b", "two")]), 2);
        assert_eq!(distinct(&of, &[vote("a", "one"), vote("b", "one")]), 1);
    }
}
