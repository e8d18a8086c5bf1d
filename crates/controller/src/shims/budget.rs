//! Who may begin: one budget for all Shims. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use portolan_api::shim::{RolloutKind, RolloutStrategy};

use super::identity::Operation;

/// A number of nodes, or a share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "IntOrString")]
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

impl TryFrom<IntOrString> for Amount {
    type Error = String;

    fn try_from(value: IntOrString) -> Result<Self, String> {
        match value {
            IntOrString::Int(number) => number.to_string().parse(),
            IntOrString::String(text) => text.parse(),
        }
    }
}

/// How many nodes of a Shim at once; no bound of its own for `recreate`.
pub(crate) fn max_update(strategy: &RolloutStrategy) -> Option<Amount> {
    match (strategy.kind, &strategy.rolling) {
        (RolloutKind::Recreate, _) => None,
        (RolloutKind::Rolling, None) => Some(Amount::Count(1)),
        (RolloutKind::Rolling, Some(rolling)) => {
            // What reads as nothing is the least that can be meant.
            Some(Amount::try_from(rolling.max_update.clone()).unwrap_or(Amount::Count(1)))
        }
    }
}

/// What is alike for a Shim's allowance: whoever of it may not begin, the others may not either.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) shim: String,
    pub(crate) operation: Operation,
    pub(crate) hash: String,
    /// Whether it failed there before, or was there before: others wait behind it, it does not wait behind others.
    pub(crate) again: bool,
}

/// Something that would begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) node: String,
    pub(crate) group: Group,
    pub(crate) control_plane: bool,
}

/// All that would begin, on nodes where nothing goes on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    /// Control planes last.
    groups: BTreeMap<Group, BTreeSet<(bool, String)>>,
    of: BTreeMap<String, Vec<(Group, bool)>>,
}

impl Queue {
    /// Puts what a node would begin in the place of what it would have before.
    pub(crate) fn set(&mut self, node: &str, wants: Vec<(Group, bool)>) {
        for (group, control_plane) in self.of.remove(node).unwrap_or_default() {
            if let Some(all) = self.groups.get_mut(&group) {
                all.remove(&(control_plane, node.to_owned()));
                if all.is_empty() {
                    self.groups.remove(&group);
                }
            }
        }
        for (group, control_plane) in &wants {
            let all = self.groups.entry(group.clone()).or_default();
            all.insert((*control_plane, node.to_owned()));
        }
        if !wants.is_empty() {
            self.of.insert(node.to_owned(), wants);
        }
    }

    /// Who is next. What is taken away first, and control planes last; then by name, so that the same comes out again.
    fn first(&self, closed: &BTreeSet<Group>) -> Option<Candidate> {
        let open = self.groups.iter().filter(|(group, _)| !closed.contains(*group));
        let firsts = open.filter_map(|(group, all)| Some((group, all.first()?)));
        let (group, (control_plane, node)) =
            firsts.min_by_key(|(group, (control_plane, node))| {
                (*control_plane, group.operation != Operation::Uninstall, node, &group.shim)
            })?;
        let (node, control_plane) = (node.clone(), *control_plane);
        Some(Candidate { node, group: group.clone(), control_plane })
    }
}

/// Something that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Going {
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

/// Who begins now, one after the other: each that is told has to be entered in the books before the next is asked for.
#[derive(Debug)]
pub(crate) struct Turn {
    allowances: BTreeMap<String, Allowance>,
    /// Nodes that are worked on at once, whatever for.
    cap: usize,
    /// Whether what was never tried waits: more of it is about to come.
    hold: bool,
    /// Those of whom nobody can begin any more.
    closed: BTreeSet<Group>,
}

impl Turn {
    pub(crate) fn new(allowances: BTreeMap<String, Allowance>, cap: usize, hold: bool) -> Self {
        Self { allowances, cap, hold, closed: BTreeSet::new() }
    }

    pub(crate) fn next(&mut self, queue: &Queue, books: &Books) -> Option<Candidate> {
        while books.nodes() < self.cap {
            let one = queue.first(&self.closed)?;
            let held = self.hold && one.group.operation == Operation::Install && !one.group.again;
            if !held && books.admits(&one) && self.allows(&one.group, books) {
                return Some(one);
            }
            // Whoever comes after it in its group is no better off: what goes on only grows, and control planes are last.
            self.closed.insert(one.group);
        }
        None
    }

    /// Whether a Shim has room for one more, wherever that is. It may go along with another on the same node.
    pub(crate) fn allows(&self, group: &Group, books: &Books) -> bool {
        let allowance = self.allowances.get(&group.shim);
        allowance.is_none_or(|allowance| books.leaves_room(group, allowance))
    }
}

/// What is under way, by node, and sums over it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    nodes: BTreeMap<String, Vec<Going>>,
    shims: BTreeMap<String, usize>,
    artifacts: BTreeMap<(String, String), usize>,
    control_planes: usize,
}

impl Books {
    /// Nodes that are worked on.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How much of a Shim is under way.
    pub(crate) fn of_shim(&self, shim: &str) -> usize {
        self.shims.get(shim).copied().unwrap_or_default()
    }

    /// Enters what goes on on a node in the place of what went on there before.
    pub(crate) fn set(&mut self, node: &str, going: Vec<Going>) {
        for one in self.nodes.remove(node).unwrap_or_default() {
            less(&mut self.shims, &one.shim);
            self.control_planes -= usize::from(one.control_plane);
            less(&mut self.artifacts, &(one.shim, one.hash));
        }
        for one in &going {
            *self.shims.entry(one.shim.clone()).or_default() += 1;
            *self.artifacts.entry((one.shim.clone(), one.hash.clone())).or_default() += 1;
            self.control_planes += usize::from(one.control_plane);
        }
        if !going.is_empty() {
            self.nodes.insert(node.to_owned(), going);
        }
    }

    /// Whether anything may begin on a node.
    fn admits(&self, one: &Candidate) -> bool {
        let second = one.control_plane && self.control_planes > 0;
        !(second || self.nodes.contains_key(&one.node))
    }

    fn leaves_room(&self, group: &Group, allowance: &Allowance) -> bool {
        let Group { shim, operation, hash, again } = group;
        let Some(most) = allowance.max_update else { return true };
        if self.of_shim(shim) >= most {
            return false;
        }
        if *operation != Operation::Install {
            return true;
        }
        let alone = !self.artifacts.contains_key(&(shim.clone(), hash.clone()));
        let proven = allowance.proven.contains(hash);
        let suspect = allowance.suspect.contains(hash);
        match again {
            true => proven || alone,
            false => !allowance.paused && (proven || (alone && !suspect)),
        }
    }
}

/// One less of it; nothing is kept of what there is none of.
pub(crate) fn less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(shim: &str) -> Group {
        let operation = Operation::Install;
        Group { shim: shim.into(), operation, hash: "h".into(), again: false }
    }

    fn queue(nodes: &[&str], groups: &[Group]) -> Queue {
        let mut queue = Queue::default();
        for node in nodes {
            let wants = groups.iter().map(|group| (group.clone(), node.starts_with("cp")));
            queue.set(node, wants.collect());
        }
        queue
    }

    /// Lets all begin who may.
    fn admit(
        mut queue: Queue,
        going: &[(&str, Going)],
        allowances: BTreeMap<String, Allowance>,
        cap: usize,
    ) -> Vec<String> {
        let mut books = Books::default();
        going.iter().for_each(|(node, one)| books.set(node, vec![one.clone()]));
        let mut turn = Turn::new(allowances, cap, false);
        let mut begun = Vec::new();
        while let Some(Candidate { node, group, control_plane }) = turn.next(&queue, &books) {
            queue.set(&node, Vec::new());
            begun.push(format!("{node}/{}", group.shim));
            books.set(&node, vec![Going { shim: group.shim, hash: group.hash, control_plane }]);
        }
        begun
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
        let all = || queue(&["a", "b", "c", "cp1", "cp2"], &[group("s"), group("t")]);
        let none = BTreeMap::new;
        assert_eq!(admit(all(), &[], none(), 2), ["a/s", "b/s"]);
        assert_eq!(admit(all(), &[], none(), 9), ["a/s", "b/s", "c/s", "cp1/s"]);
        let going = Going { shim: "t".into(), hash: "h".into(), control_plane: false };
        let others = queue(&["b", "c", "cp1"], &[group("s"), group("t")]);
        assert_eq!(admit(others, &[("a", going)], none(), 2), ["b/s"]);
        let away = Group { operation: Operation::Uninstall, ..group("z") };
        let mut both = queue(&["b"], &[group("s")]);
        both.set("c", vec![(away, false)]);
        assert_eq!(admit(both, &[], none(), 1), ["c/z"], "what is taken away first");
    }

    #[test]
    fn while_more_is_about_to_come_only_what_was_never_tried_waits() {
        let begins = |hold| {
            let mut queue = queue(&["a"], &[group("s")]);
            queue.set("b", vec![(Group { again: true, ..group("s") }, false)]);
            let away = Group { operation: Operation::Uninstall, ..group("s") };
            queue.set("c", vec![(away, false)]);
            let mut turn = Turn::new(BTreeMap::new(), 9, hold);
            let mut begun = Vec::new();
            while let Some(one) = turn.next(&queue, &Books::default()) {
                queue.set(&one.node, Vec::new());
                begun.push(one.node);
            }
            begun
        };
        assert_eq!(
            (begins(true), begins(false)),
            (["c", "b"].map(String::from).into(), ["c", "a", "b"].map(String::from).into())
        );
    }

    #[test]
    fn who_goes_along_has_room_by_its_own_budget_alone() {
        let mut books = Books::default();
        let going = |shim: &str| Going { shim: shim.into(), hash: "h".into(), control_plane: true };
        books.set("a", vec![going("one")]);
        let one = Allowance { max_update: Some(1), ..Allowance::default() };
        let allowances = BTreeMap::from([("one".to_owned(), one.clone()), ("two".to_owned(), one)]);
        let turn = Turn::new(allowances, 1, false);
        let allowed = ["one", "two", "all"].map(|shim| turn.allows(&group(shim), &books));
        assert_eq!(allowed, [false, true, true]);
    }

    #[test]
    fn books_and_queues_are_as_if_they_were_written_anew() {
        let going = |shim: &str| Going { shim: shim.into(), hash: "h".into(), control_plane: true };
        let (mut books, mut queue) = (Books::default(), Queue::default());
        books.set("a", vec![going("s"), going("t")]);
        books.set("a", vec![going("t")]);
        books.set("b", vec![going("t")]);
        let mut anew = Books::default();
        anew.set("b", vec![going("t")]);
        anew.set("a", vec![going("t")]);
        assert_eq!(books, anew);
        assert_eq!((books.nodes(), books.of_shim("s"), books.of_shim("t")), (2, 0, 2));
        queue.set("a", vec![(group("s"), false), (group("t"), false)]);
        queue.set("a", Vec::new());
        books.set("a", Vec::new());
        books.set("b", Vec::new());
        assert_eq!((books, queue), Default::default());
    }

    #[test]
    fn rolling_begins_with_one_and_goes_on_when_that_one_works() {
        let all = || queue(&["a", "b", "c"], &[group("s")]);
        let allow = |edit: &dyn Fn(&mut Allowance)| {
            let mut one = Allowance { max_update: Some(2), ..Allowance::default() };
            edit(&mut one);
            BTreeMap::from([("s".to_owned(), one)])
        };
        let started = |allowances| admit(all(), &[], allowances, 9);
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
        let retry = Group { again: true, ..group("s") };
        assert_eq!(admit(queue(&["z"], &[retry]), &[], paused, 9), ["z/s"]);
    }
}
