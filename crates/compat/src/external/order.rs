//! Plugins that build on plugins: who comes after whom.
//!
//! A plugin that wants the facts of another comes after all questions to that other. Names that
//! wait for each other in a circle, or for one that does, are never asked.

use std::collections::{BTreeMap, BTreeSet};

/// The prefix of the facts that plugins return.
pub(super) const PLUGIN_FACTS: &str = "plugin/";

/// In which order plugins are asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Plan {
    /// Names, each after all it waits for; names that could come at the same time, by alphabet.
    pub(super) order: Vec<String>,
    /// Names that cannot be asked, with the circle that each is in or waits for.
    pub(super) circles: BTreeMap<String, Vec<String>>,
}

/// From what each name waits for to an order. Names that are not in the map are waited for by
/// nobody: they bring no facts.
pub(super) fn plan(waits: &BTreeMap<String, BTreeSet<String>>) -> Plan {
    let mut left: BTreeMap<&str, BTreeSet<&str>> = waits
        .iter()
        .map(|(name, after)| {
            let known = after.iter().filter(|other| waits.contains_key(*other));
            (name.as_str(), known.map(String::as_str).collect())
        })
        .collect();
    let mut order = Vec::with_capacity(left.len());
    loop {
        let free: Vec<&str> =
            left.iter().filter(|(_, after)| after.is_empty()).map(|(name, _)| *name).collect();
        if free.is_empty() {
            break;
        }
        for name in free {
            left.remove(name);
            left.values_mut().for_each(|after| {
                after.remove(name);
            });
            order.push(name.to_owned());
        }
    }
    let circles = left.keys().map(|name| ((*name).to_owned(), circle(&left, name))).collect();
    Plan { order, circles }
}

/// Everything left waits for something left, so following the first always comes back.
fn circle(left: &BTreeMap<&str, BTreeSet<&str>>, from: &str) -> Vec<String> {
    let mut path: Vec<&str> = vec![from];
    while let Some(next) = path.last().and_then(|here| left[here].first()) {
        if let Some(start) = path.iter().position(|name| name == next) {
            let around = path[start..].iter().chain([next]);
            return around.map(|name| (*name).to_owned()).collect();
        }
        path.push(next);
    }
    Vec::new()
}

/// What must have answered before `name`, itself not included.
pub(super) fn before<'a>(
    waits: &'a BTreeMap<String, BTreeSet<String>>,
    name: &'a str,
) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut todo = vec![name];
    while let Some(name) = todo.pop() {
        for other in waits.get(name).into_iter().flatten() {
            if waits.contains_key(other) && found.insert(other.as_str()) {
                todo.push(other);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn waits(pairs: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        pairs.iter().map(|(name, after)| ((*name).to_owned(), set(after))).collect()
    }

    #[test]
    fn who_waits_comes_after_and_circles_are_shown() {
        let plan = plan(&waits(&[
            ("a", &["c"]),
            ("b", &[]),
            ("c", &["b", "nobody"]),
            ("x", &["y"]),
            ("y", &["z"]),
            ("z", &["y"]),
            ("self", &["self"]),
        ]));
        assert_eq!(plan.order, ["b", "c", "a"]);
        let circles: Vec<_> =
            plan.circles.iter().map(|(name, around)| (name.as_str(), around.join(" "))).collect();
        assert_eq!(
            circles,
            [
                ("self", "self self".to_owned()),
                ("x", "y z y".to_owned()),
                ("y", "y z y".to_owned()),
                ("z", "z y z".to_owned()),
            ]
        );
        let all = waits(&[("a", &["c"]), ("b", &[]), ("c", &["b"])]);
        assert_eq!(before(&all, "a"), ["b", "c"].into());
        assert!(before(&all, "b").is_empty());
    }

    proptest! {
        #[test]
        fn everybody_is_placed_once_and_after_all_it_waits_for(
            edges in proptest::collection::btree_map("[a-h]", proptest::collection::btree_set("[a-h]", 0..3), 0..8)
        ) {
            let plan = plan(&edges);
            let placed: BTreeSet<&String> = plan.order.iter().chain(plan.circles.keys()).collect();
            prop_assert_eq!(placed.len(), plan.order.len() + plan.circles.len());
            prop_assert_eq!(placed, edges.keys().collect());
            for (n, name) in plan.order.iter().enumerate() {
                for other in edges[name].iter().filter(|other| edges.contains_key(*other)) {
                    prop_assert!(plan.order[..n].contains(other), "{} before {}", name, other);
                }
            }
            for around in plan.circles.values() {
                prop_assert!(around.len() > 1 && around.first() == around.last());
            }
        }
    }
}
