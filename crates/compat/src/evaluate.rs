//! From the answers of plugins to one verdict over the graph.
//!
//! A namespace passes when its plugins do, all of `all` does, one of `oneOf` does and none of
//! `noneOf` does; the host fits when one root passes. Every namespace is answered once, in an order
//! in which all it refers to come first, so depth costs no stack.

use serde::Serialize;

use crate::document::{Namespace, NamespaceId, Plugin, Spec};
use crate::verdict::Verdict;

/// What a plugin found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Whether what it was asked for is there.
    pub verdict: Verdict,
    /// Who answered: `built-in`, or a program and its digest.
    pub provider: String,
    /// Why.
    pub reasons: Vec<Reason>,
}

/// One thing that a plugin looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// Whether this one is as asked for.
    pub verdict: Verdict,
    /// What kind of finding it is, for programs.
    pub code: &'static str,
    /// In words.
    pub message: String,
    /// What was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Where that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What could be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// A namespace and the plugins' answers in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Plugins and references together.
    pub verdict: Verdict,
    /// In the order of the namespace's plugins.
    pub answers: Vec<Answer>,
}

/// Whether the host fits, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// Pass is compatible, fail incompatible.
    pub verdict: Verdict,
    /// Where evaluation began, with what came of it.
    pub roots: Vec<(NamespaceId, Verdict)>,
    /// By [`NamespaceId`].
    pub namespaces: Vec<Judged>,
    /// The namespaces that together make the host fit: a root that passes, all it needs, and of
    /// each choice those that pass. Empty unless the verdict is pass.
    pub solution: Vec<NamespaceId>,
}

/// Asks every plugin of every namespace and puts the answers together.
///
/// `roots` replaces the roots of the spec. Everything is asked, also what can no longer change the
/// verdict: a report is to be complete.
pub fn evaluate(
    spec: &Spec,
    roots: Option<&[NamespaceId]>,
    ask: &mut dyn FnMut(&Namespace, &Plugin) -> Answer,
) -> Evaluation {
    let roots = roots.unwrap_or_else(|| spec.roots());
    let nothing = Judged { verdict: Verdict::Unknown, answers: Vec::new() };
    let mut judged = vec![nothing; spec.namespaces().len()];
    // Plugins are asked in the order of names, so that two runs read alike.
    for (id, namespace) in spec.namespaces() {
        judged[id.0].answers =
            namespace.plugins.iter().map(|plugin| ask(namespace, plugin)).collect();
    }
    for id in spec.order() {
        judged[id.0].verdict = judge(spec.namespace(*id), &judged[id.0].answers, &judged);
    }
    let roots: Vec<_> = roots.iter().map(|id| (*id, judged[id.0].verdict)).collect();
    let verdict = Verdict::any(roots.iter().map(|(_, verdict)| *verdict));
    let solution = solution(spec, &roots, &judged);
    Evaluation { verdict, roots, namespaces: judged, solution }
}

fn judge(namespace: &Namespace, answers: &[Answer], judged: &[Judged]) -> Verdict {
    let of = |id: &NamespaceId| judged[id.0].verdict;
    let plugins = Verdict::all(answers.iter().map(|answer| answer.verdict));
    let all = Verdict::all(namespace.refs.all.iter().map(of));
    let one_of = match &namespace.refs.one_of {
        Some(choice) => Verdict::any(choice.iter().map(of)),
        None => Verdict::Pass,
    };
    let none_of = Verdict::all(namespace.refs.none_of.iter().map(|id| of(id).not()));
    plugins.and(all).and(one_of).and(none_of)
}

fn solution(spec: &Spec, roots: &[(NamespaceId, Verdict)], judged: &[Judged]) -> Vec<NamespaceId> {
    let passes = |id: &NamespaceId| judged[id.0].verdict == Verdict::Pass;
    let Some((root, _)) = roots.iter().find(|(id, _)| passes(id)) else { return Vec::new() };
    let mut taken = vec![false; judged.len()];
    let mut todo = vec![*root];
    while let Some(id) = todo.pop() {
        if std::mem::replace(&mut taken[id.0], true) {
            continue;
        }
        let refs = &spec.namespace(id).refs;
        todo.extend(&refs.all);
        todo.extend(refs.one_of.iter().flatten().filter(|id| passes(id)));
    }
    spec.namespaces().map(|(id, _)| id).filter(|id| taken[id.0]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::document::{Mode, read};

    fn spec(namespaces: &serde_json::Value) -> Spec {
        let document = serde_json::json!({"schemaVersion": "0.1.0", "namespaces": namespaces});
        let found = read(document.to_string().as_bytes(), Mode::Lenient, &|_| true);
        found.spec.unwrap_or_else(|| panic!("{:?}", found.diagnostics))
    }

    /// Every namespace has one plugin, whose answer is given by the namespace's name.
    fn run(spec: &Spec, answers: &BTreeMap<String, Verdict>) -> Evaluation {
        evaluate(spec, None, &mut |namespace, _| Answer {
            verdict: answers[&namespace.name],
            provider: "test".to_owned(),
            reasons: Vec::new(),
        })
    }

    fn example() -> Spec {
        let plugins = serde_json::json!({"x": {}});
        spec(&serde_json::json!({
            "root": {"plugins": plugins, "refs": {"all": ["must"], "oneOf": ["a", "b"], "noneOf": ["bad"]}},
            "must": {"plugins": plugins}, "a": {"plugins": plugins}, "b": {"plugins": plugins},
            "bad": {"plugins": plugins},
        }))
    }

    fn answers(spec: &Spec, fail: &[&str], unknown: &[&str]) -> BTreeMap<String, Verdict> {
        let verdict = |name: &str| match name {
            name if unknown.contains(&name) => Verdict::Unknown,
            name if fail.contains(&name) => Verdict::Fail,
            _ => Verdict::Pass,
        };
        spec.namespaces().map(|(_, n)| (n.name.clone(), verdict(&n.name))).collect()
    }

    #[test]
    fn all_one_of_and_none_of() {
        let spec = example();
        for (fail, unknown, expected) in [
            (&["bad"][..], &[][..], Verdict::Pass),
            (&["bad", "a"], &[], Verdict::Pass),
            (&["bad", "a", "b"], &[], Verdict::Fail),
            (&["bad", "must"], &[], Verdict::Fail),
            (&["bad", "root"], &[], Verdict::Fail),
            (&[], &[], Verdict::Fail),
            (&["bad", "a"], &["b"], Verdict::Unknown),
            (&["bad"], &["b"], Verdict::Pass),
            (&["bad"], &["must"], Verdict::Unknown),
            (&["must", "bad"], &["a"], Verdict::Fail),
            // What is forbidden and could not be looked for is never taken for absent.
            (&[], &["bad"], Verdict::Unknown),
        ] {
            let got = run(&spec, &answers(&spec, fail, unknown)).verdict;
            assert_eq!(got, expected, "fail {fail:?}, unknown {unknown:?}");
        }
    }

    #[test]
    fn the_solution_names_what_makes_the_host_fit() {
        let spec = example();
        let found = run(&spec, &answers(&spec, &["bad", "b"], &[]));
        let names: Vec<_> =
            found.solution.iter().map(|id| spec.namespace(*id).name.as_str()).collect();
        assert_eq!(names, ["a", "must", "root"]);
        assert!(run(&spec, &answers(&spec, &["must"], &[])).solution.is_empty());
    }

    #[test]
    fn one_root_that_passes_is_enough() {
        let plugins = serde_json::json!({"x": {}});
        let spec = spec(&serde_json::json!({"a": {"plugins": plugins}, "b": {"plugins": plugins}}));
        assert_eq!(run(&spec, &answers(&spec, &["a"], &[])).verdict, Verdict::Pass);
        assert_eq!(run(&spec, &answers(&spec, &["a"], &["b"])).verdict, Verdict::Unknown);
        assert_eq!(run(&spec, &answers(&spec, &["a", "b"], &[])).verdict, Verdict::Fail);
    }

    /// Graphs without circles: a namespace refers only to later ones.
    fn graphs() -> impl Strategy<Value = (serde_json::Value, Vec<Verdict>)> {
        let verdicts =
            prop_oneof![Just(Verdict::Pass), Just(Verdict::Fail), Just(Verdict::Unknown)];
        let edges = prop::collection::vec((0usize..8, 0usize..8, 0usize..3), 0..16);
        (edges, prop::collection::vec(verdicts, 8)).prop_map(|(edges, verdicts)| {
            let mut lists: BTreeMap<(usize, usize), std::collections::BTreeSet<String>> =
                BTreeMap::new();
            let mut used = std::collections::BTreeSet::new();
            for (from, to, kind) in edges {
                // Each pair once: needing and forbidding the same is refused.
                if from < to && used.insert((from, to)) {
                    lists.entry((from, kind)).or_default().insert(format!("n{to}"));
                }
            }
            let namespaces = (0..8).map(|n| {
                let list = |kind| lists.get(&(n, kind));
                let mut refs = serde_json::Map::new();
                for (kind, name) in [(0, "all"), (1, "oneOf"), (2, "noneOf")] {
                    if let Some(names) = list(kind) {
                        refs.insert(name.to_owned(), serde_json::json!(names));
                    }
                }
                (format!("n{n}"), serde_json::json!({"plugins": {"x": {}}, "refs": refs}))
            });
            (serde_json::Value::Object(namespaces.collect()), verdicts)
        })
    }

    /// Written the other way round, by recursion from the definition.
    fn model(document: &serde_json::Value, verdicts: &[Verdict], n: usize) -> Verdict {
        let refs = &document[format!("n{n}")]["refs"];
        let below = |key: &str| -> Option<Vec<Verdict>> {
            let names = refs.get(key)?.as_array()?;
            let index = |name: &serde_json::Value| name.as_str().unwrap()[1..].parse().unwrap();
            Some(names.iter().map(|name| model(document, verdicts, index(name))).collect())
        };
        let mut verdict = verdicts[n];
        for one in below("all").unwrap_or_default() {
            verdict = verdict.and(one);
        }
        if let Some(choice) = below("oneOf") {
            verdict = verdict.and(choice.into_iter().fold(Verdict::Fail, Verdict::or));
        }
        for one in below("noneOf").unwrap_or_default() {
            verdict = verdict.and(one.not());
        }
        verdict
    }

    proptest! {
        #[test]
        fn it_says_what_the_definition_says((document, verdicts) in graphs()) {
            let spec = spec(&document);
            let by_name: BTreeMap<String, Verdict> =
                verdicts.iter().enumerate().map(|(n, v)| (format!("n{n}"), *v)).collect();
            let found = run(&spec, &by_name);
            for (id, namespace) in spec.namespaces() {
                let n = namespace.name[1..].parse().unwrap();
                prop_assert_eq!(found.namespaces[id.0].verdict, model(&document, &verdicts, n));
            }
        }

        /// Finding out more never turns yes into no or no into yes.
        #[test]
        fn what_is_unknown_never_decides((document, verdicts) in graphs(), seed in any::<u16>()) {
            let spec = spec(&document);
            let resolved: Vec<Verdict> = verdicts
                .iter()
                .enumerate()
                .map(|(n, verdict)| match verdict {
                    Verdict::Unknown => Verdict::from(seed >> n & 1 == 1),
                    known => *known,
                })
                .collect();
            let all = |verdicts: &[Verdict]| -> BTreeMap<String, Verdict> {
                verdicts.iter().enumerate().map(|(n, v)| (format!("n{n}"), *v)).collect()
            };
            let (before, after) = (run(&spec, &all(&verdicts)), run(&spec, &all(&resolved)));
            prop_assert_ne!(after.verdict, Verdict::Unknown);
            if before.verdict != Verdict::Unknown {
                prop_assert_eq!(before.verdict, after.verdict);
            }
        }
    }
}
