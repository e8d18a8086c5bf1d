//! Who may begin: one budget for all Shims. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use portolan_api::shim::{RolloutKind, RolloutStrategy};

use super::identity::Operation;

/// A number of nodes, or a share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Count(u32),
    /// Of a hundred.
    Percent(u32),
}

impl Amount {
    /// How many that is of `total`; never none, or nothing would ever be done.
    pub fn of(self, total: usize) -> usize {
        let count = match self {
            Self::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Self::Percent(share) => total.saturating_mul(share as usize) / 100,
        };
        count.max(1)
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no number of nodes such as 50, and no share such as 10%");
        let (number, share) = match text.strip_suffix('%') {
            Some(number) => (number, true),
            None => (text, false),
        };
        let number: u32 = number.parse().map_err(|_| wrong())?;
        match share {
            true if number > 100 => Err(wrong()),
            true => Ok(Self::Percent(number)),
            false => Ok(Self::Count(number)),
        }
    }
}

/// How many nodes of a Shim at once; no bound of its own for `recreate`.
pub(crate) fn max_update(strategy: &RolloutStrategy) -> Option<Amount> {
    match (strategy.kind, &strategy.rolling) {
        (RolloutKind::Recreate, _) => None,
        (RolloutKind::Rolling, None) => Some(Amount::Count(1)),
        (RolloutKind::Rolling, Some(rolling)) => Some(match &rolling.max_update {
            IntOrString::Int(number) => Amount::Count(u32::try_from(*number).unwrap_or(1)),
            // What reads as nothing is the least that can be meant.
            IntOrString::String(text) => text.parse().unwrap_or(Amount::Count(1)),
        }),
    }
}

/// Something that would begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) node: String,
    pub(crate) shim: String,
    pub(crate) operation: Operation,
    pub(crate) hash: String,
    /// Whether it failed there before, or was there before: others wait behind it, it does not wait behind others.
    pub(crate) again: bool,
    pub(crate) control_plane: bool,
}

/// Something that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Going {
    pub(crate) node: String,
    pub(crate) shim: String,
    pub(crate) hash: String,
    pub(crate) control_plane: bool,
}

/// What a Shim allows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Allowance {
    /// At once; no bound where there is none.
    pub(crate) max_update: Option<usize>,
    /// Too many have failed: only those are tried again.
    pub(crate) paused: bool,
    /// Artifacts that at least one node has, and those that failed somewhere.
    pub(crate) proven: BTreeSet<String>,
    pub(crate) suspect: BTreeSet<String>,
}

/// Who of the candidates begins now. `cap` bounds the nodes that are worked on at once, whatever for.
pub(crate) fn admit(
    candidates: Vec<Candidate>,
    going: &[Going],
    allowances: &BTreeMap<String, Allowance>,
    cap: usize,
) -> Vec<Candidate> {
    let mut books = Books::new(going);
    let mut sorted = candidates;
    // What is taken away first, and control planes last; then by name, so that the same comes out again.
    sorted.sort_by(|a, b| order(a).cmp(&order(b)));
    let none = Allowance::default();
    sorted.retain(|one| {
        let allowance = allowances.get(&one.shim).unwrap_or(&none);
        let fits = books.nodes.len() < cap && books.admits(one, allowance);
        if fits {
            books.enter(&one.node, &one.shim, &one.hash, one.control_plane);
        }
        fits
    });
    sorted
}

fn order(one: &Candidate) -> (bool, bool, &str, &str) {
    (one.control_plane, one.operation != Operation::Uninstall, &one.node, &one.shim)
}

/// What is under way.
#[derive(Default)]
struct Books {
    nodes: BTreeSet<String>,
    shims: BTreeMap<String, usize>,
    artifacts: BTreeMap<(String, String), usize>,
    control_plane: bool,
}

impl Books {
    fn new(going: &[Going]) -> Self {
        let mut books = Self::default();
        for one in going {
            books.enter(&one.node, &one.shim, &one.hash, one.control_plane);
        }
        books
    }

    fn enter(&mut self, node: &str, shim: &str, hash: &str, control_plane: bool) {
        self.nodes.insert(node.to_owned());
        *self.shims.entry(shim.to_owned()).or_default() += 1;
        *self.artifacts.entry((shim.to_owned(), hash.to_owned())).or_default() += 1;
        self.control_plane |= control_plane;
    }

    fn admits(&self, one: &Candidate, allowance: &Allowance) -> bool {
        let second = one.control_plane && self.control_plane;
        let once = !(second || self.nodes.contains(&one.node));
        let Some(most) = allowance.max_update else { return once };
        let going = self.shims.get(&one.shim).copied().unwrap_or_default();
        if !once || going >= most {
            return false;
        }
        if one.operation != Operation::Install {
            return true;
        }
        let same = (one.shim.clone(), one.hash.clone());
        let alone = self.artifacts.get(&same).copied().unwrap_or_default() == 0;
        let proven = allowance.proven.contains(&one.hash);
        let suspect = allowance.suspect.contains(&one.hash);
        match one.again {
            true => proven || alone,
            false => !allowance.paused && (proven || (alone && !suspect)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(node: &str, shim: &str) -> Candidate {
        Candidate {
            node: node.into(),
            shim: shim.into(),
            operation: Operation::Install,
            hash: "h".into(),
            again: false,
            control_plane: node.starts_with("cp"),
        }
    }

    fn names(found: &[Candidate]) -> Vec<String> {
        found.iter().map(|one| format!("{}/{}", one.node, one.shim)).collect()
    }

    #[test]
    fn amounts_are_numbers_or_shares_and_never_nothing() {
        for (text, total, count) in [
            ("3", 10, 3),
            ("0", 10, 1),
            ("25%", 10, 2),
            ("1%", 10, 1),
            ("100%", 7, 7),
            ("0%", 5, 1),
        ] {
            assert_eq!(text.parse::<Amount>().unwrap().of(total), count, "{text}");
        }
        for text in ["", "%", "-1", "101%", "many"] {
            text.parse::<Amount>().expect_err(text);
        }
        let rolling = |max: serde_json::Value| {
            let strategy = serde_json::json!({"type": "rolling", "rolling": {"maxUpdate": max}});
            max_update(&serde_json::from_value(strategy).unwrap())
        };
        assert_eq!(rolling(2.into()), Some(Amount::Count(2)));
        assert_eq!(rolling("20%".into()), Some(Amount::Percent(20)));
        assert_eq!(rolling((-1).into()), Some(Amount::Count(1)));
    }

    #[test]
    fn one_budget_for_all_shims_one_job_for_each_node_one_control_plane_at_once() {
        let all =
            ["a", "b", "c", "cp1", "cp2"].map(|node| [candidate(node, "s"), candidate(node, "t")]);
        let all: Vec<_> = all.into_iter().flatten().collect();
        let none = BTreeMap::new();
        assert_eq!(names(&admit(all.clone(), &[], &none, 2)), ["a/s", "b/s"]);
        assert_eq!(names(&admit(all.clone(), &[], &none, 9)), ["a/s", "b/s", "c/s", "cp1/s"]);
        let going =
            Going { node: "a".into(), shim: "t".into(), hash: "h".into(), control_plane: false };
        assert_eq!(names(&admit(all, &[going], &none, 2)), ["b/s"]);
    }

    #[test]
    fn rolling_begins_with_one_and_goes_on_when_that_one_works() {
        let all: Vec<_> = ["a", "b", "c"].map(|node| candidate(node, "s")).into();
        let allow = |edit: &dyn Fn(&mut Allowance)| {
            let mut one = Allowance { max_update: Some(2), ..Allowance::default() };
            edit(&mut one);
            BTreeMap::from([("s".to_owned(), one)])
        };
        let started = |allowances| names(&admit(all.clone(), &[], &allowances, 9));
        assert_eq!(started(allow(&|_| {})), ["a/s"], "the first");
        let proven: BTreeSet<String> = ["h".to_owned()].into();
        assert_eq!(started(allow(&|one| one.proven = proven.clone())), ["a/s", "b/s"]);
        assert_eq!(
            started(allow(&|one| one.suspect = proven.clone())),
            [""; 0],
            "the first failed"
        );
        let paused = allow(&|one| {
            one.proven = proven.clone();
            one.paused = true;
        });
        assert_eq!(started(paused.clone()), [""; 0]);
        let mut retry = candidate("z", "s");
        retry.again = true;
        assert_eq!(names(&admit(vec![retry], &[], &paused, 9)), ["z/s"]);
    }
}
