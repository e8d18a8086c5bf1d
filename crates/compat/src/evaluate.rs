//! From the answers of plugins to one verdict over the graph.
//!
//! A namespace passes when its plugins do, all of `all` does, one of `oneOf` does and none of
//! `noneOf` does; the host fits when one root passes. Every namespace is answered once, after all
//! it refers to, and depth costs no stack.

use std::borrow::Cow;

use serde::Serialize;

use crate::document::{Namespace, NamespaceId, Plugin, Spec};
use crate::verdict::Verdict;

/// What a plugin found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Whether what it was asked for is there.
    pub verdict: Verdict,
    /// Who answered: `built-in`, or where the program came from.
    pub provider: String,
    /// Of the program, if one was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// How long it ran, in milliseconds, if one was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// What held it while it ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sandbox: Vec<String>,
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
    pub code: Cow<'static, str>,
    /// In words.
    pub message: String,
    /// What was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What is there.
    #[serde(rename = "actual", skip_serializing_if = "Option::is_none")]
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
    /// In the order of the namespace's plugins; fewer where the first ones decided already.
    pub answers: Vec<Answer>,
}

/// Whether the host fits, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// Pass is compatible, fail incompatible.
    pub verdict: Verdict,
    /// Where evaluation began, with what came of it; none of it where an earlier one sufficed.
    pub roots: Vec<(NamespaceId, Option<Verdict>)>,
    /// By [`NamespaceId`]; none where no root leads to it, or nobody needed to look.
    pub namespaces: Vec<Option<Judged>>,
    /// The namespaces that together make the host fit: a root that passes, all it needs, and of
    /// each choice those that pass. Empty unless the verdict is pass.
    pub solution: Vec<NamespaceId>,
}

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Depth {
    /// Everything the roots lead to, also what can no longer change the verdict: a report is to be
    /// complete.
    #[default]
    Everything,
    /// No more than decides. The verdict is the same.
    UntilDecided,
}

/// Asks a plugin of a namespace.
pub type Ask<'a> = &'a mut dyn FnMut(&Namespace, &Plugin) -> Answer;

/// Asks plugins and puts their answers together. `roots` replaces the roots of the spec.
pub fn evaluate(
    spec: &Spec,
    roots: Option<&[NamespaceId]>,
    depth: Depth,
    ask: Ask<'_>,
) -> Evaluation {
    let roots = roots.unwrap_or_else(|| spec.roots());
    let judged = match depth {
        Depth::Everything => everything(spec, roots, ask),
        Depth::UntilDecided => until_decided(spec, roots, ask),
    };
    let of = |id: &NamespaceId| judged[id.0].as_ref().map(|judged| judged.verdict);
    let roots: Vec<_> = roots.iter().map(|id| (*id, of(id))).collect();
    let verdict = Verdict::any(roots.iter().filter_map(|(_, verdict)| *verdict));
    let solution = solution(spec, &roots, &judged);
    Evaluation { verdict, roots, namespaces: judged, solution }
}

/// Which namespaces the roots lead to, by [`NamespaceId`].
pub fn reached(spec: &Spec, roots: &[NamespaceId]) -> Vec<bool> {
    let mut reached = vec![false; spec.namespaces().len()];
    let mut todo = roots.to_vec();
    while let Some(id) = todo.pop() {
        if !std::mem::replace(&mut reached[id.0], true) {
            todo.extend(spec.namespace(id).refs.iter());
        }
    }
    reached
}

fn everything(spec: &Spec, roots: &[NamespaceId], ask: Ask<'_>) -> Vec<Option<Judged>> {
    let reached = reached(spec, roots);
    let mut judged = vec![None; spec.namespaces().len()];
    // Plugins are asked in the order of names, so that two runs read alike.
    for (id, namespace) in spec.namespaces().filter(|(id, _)| reached[id.0]) {
        let answers = namespace.plugins.iter().map(|plugin| ask(namespace, plugin)).collect();
        judged[id.0] = Some(Judged { verdict: Verdict::Unknown, answers });
    }
    for id in spec.order() {
        let verdict = judged[id.0].as_ref().map(|own: &Judged| {
            let plugins = Verdict::all(own.answers.iter().map(|answer| answer.verdict));
            plugins.and(references(spec.namespace(*id), &judged))
        });
        if let (Some(own), Some(verdict)) = (&mut judged[id.0], verdict) {
            own.verdict = verdict;
        }
    }
    judged
}

fn references(namespace: &Namespace, judged: &[Option<Judged>]) -> Verdict {
    let of = |id: &NamespaceId| judged[id.0].as_ref().map_or(Verdict::Unknown, |one| one.verdict);
    let all = Verdict::all(namespace.refs.all.iter().map(of));
    let one_of = match &namespace.refs.one_of {
        Some(choice) => Verdict::any(choice.iter().map(of)),
        None => Verdict::Pass,
    };
    let none_of = Verdict::all(namespace.refs.none_of.iter().map(|id| of(id).not()));
    all.and(one_of).and(none_of)
}

/// A namespace whose references are being looked at.
struct Open {
    id: NamespaceId,
    answers: Vec<Answer>,
    /// Plugins and the references so far, without the choice.
    verdict: Verdict,
    /// The best of the choice so far.
    choice: Verdict,
    /// The next reference, counted over all three lists.
    next: usize,
}

fn until_decided(spec: &Spec, roots: &[NamespaceId], ask: Ask<'_>) -> Vec<Option<Judged>> {
    let mut judged: Vec<Option<Judged>> = vec![None; spec.namespaces().len()];
    for root in roots {
        let mut open = Vec::new();
        if judged[root.0].is_none() {
            open.push(begin(spec, *root, ask));
        }
        while let Some(top) = open.last_mut() {
            match step(spec, top, &judged) {
                Step::Next => {}
                Step::Into(id) => {
                    let below = begin(spec, id, ask);
                    open.push(below);
                }
                Step::Done(verdict) => {
                    let Some(done) = open.pop() else { break };
                    judged[done.id.0] = Some(Judged { verdict, answers: done.answers });
                }
            }
        }
        if judged[root.0].as_ref().is_some_and(|root| root.verdict == Verdict::Pass) {
            break;
        }
    }
    judged
}

/// Asks the plugins until one fails.
fn begin(spec: &Spec, id: NamespaceId, ask: Ask<'_>) -> Open {
    let namespace = spec.namespace(id);
    let (mut answers, mut verdict) = (Vec::new(), Verdict::Pass);
    for plugin in &namespace.plugins {
        if verdict == Verdict::Fail {
            break;
        }
        let answer = ask(namespace, plugin);
        verdict = verdict.and(answer.verdict);
        answers.push(answer);
    }
    Open { id, answers, verdict, choice: Verdict::Fail, next: 0 }
}

enum Step {
    Next,
    Into(NamespaceId),
    Done(Verdict),
}

/// Takes one reference into account.
fn step(spec: &Spec, open: &mut Open, judged: &[Option<Judged>]) -> Step {
    let refs = &spec.namespace(open.id).refs;
    let choice = refs.one_of.as_deref().unwrap_or_default();
    let choice_end = refs.all.len() + choice.len();
    if open.next >= refs.all.len() && open.next < choice_end && open.choice == Verdict::Pass {
        open.next = choice_end;
    }
    if open.next >= choice_end && refs.one_of.is_some() {
        open.verdict = open.verdict.and(open.choice);
    }
    let id = refs.iter().nth(open.next);
    let (Some(id), true) = (id, open.verdict != Verdict::Fail) else {
        return Step::Done(open.verdict);
    };
    let Some(Judged { verdict, .. }) = judged[id.0] else { return Step::Into(id) };
    if open.next < refs.all.len() {
        open.verdict = open.verdict.and(verdict);
    } else if open.next < choice_end {
        open.choice = open.choice.or(verdict);
    } else {
        open.verdict = open.verdict.and(verdict.not());
    }
    open.next += 1;
    Step::Next
}

fn solution(
    spec: &Spec,
    roots: &[(NamespaceId, Option<Verdict>)],
    judged: &[Option<Judged>],
) -> Vec<NamespaceId> {
    let passes =
        |id: &NamespaceId| judged[id.0].as_ref().is_some_and(|one| one.verdict == Verdict::Pass);
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
    use crate::document::{Mode, read_with};

    fn spec(namespaces: &serde_json::Value) -> Spec {
        let document = serde_json::json!({"schemaVersion": "0.1.0", "namespaces": namespaces});
        let found = read_with(document.to_string().as_bytes(), Mode::Lenient, &|_: &str| true);
        found.spec.unwrap_or_else(|| panic!("{:?}", found.diagnostics))
    }

    fn answer(verdict: Verdict) -> Answer {
        let provider = "test".to_owned();
        Answer {
            verdict,
            provider,
            digest: None,
            duration_ms: None,
            sandbox: Vec::new(),
            reasons: Vec::new(),
        }
    }

    /// Every namespace has one plugin, whose answer is given by the namespace's name.
    fn run(spec: &Spec, answers: &BTreeMap<String, Verdict>) -> Evaluation {
        evaluate(spec, None, Depth::Everything, &mut |namespace, _| {
            answer(answers[&namespace.name])
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

    #[test]
    fn what_no_root_leads_to_is_not_asked() {
        let spec = example();
        let must = spec.find("must").unwrap();
        let mut asked = Vec::new();
        let found = evaluate(&spec, Some(&[must]), Depth::Everything, &mut |namespace, _| {
            asked.push(namespace.name.clone());
            answer(Verdict::Pass)
        });
        assert_eq!((asked, found.verdict), (vec!["must".to_owned()], Verdict::Pass));
        assert_eq!(found.namespaces.iter().flatten().count(), 1);
    }

    #[test]
    fn haste_stops_at_what_decides() {
        let spec = example();
        for (fail, expected) in [
            (&["bad"][..], &["root", "must", "a", "bad"][..]),
            (&["root"], &["root"]),
            (&["must"], &["root", "must"]),
            (&["a", "b"], &["root", "must", "a", "b"]),
            (&["a", "bad"], &["root", "must", "a", "b", "bad"]),
        ] {
            let mut asked = Vec::new();
            evaluate(&spec, None, Depth::UntilDecided, &mut |namespace, _| {
                asked.push(namespace.name.clone());
                answer(Verdict::from(!fail.contains(&namespace.name.as_str())))
            });
            assert_eq!(asked, expected, "fail {fail:?}");
        }
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
                let judged = found.namespaces[id.0].as_ref().unwrap();
                prop_assert_eq!(judged.verdict, model(&document, &verdicts, n));
            }
        }

        /// Looking at no more than decides changes no verdict, and nothing is asked twice.
        #[test]
        fn haste_changes_nothing((document, verdicts) in graphs()) {
            let spec = spec(&document);
            let by_name: BTreeMap<String, Verdict> =
                verdicts.iter().enumerate().map(|(n, v)| (format!("n{n}"), *v)).collect();
            let all = run(&spec, &by_name);
            let mut asked = std::collections::BTreeSet::new();
            let few = evaluate(&spec, None, Depth::UntilDecided, &mut |namespace, _| {
                assert!(asked.insert(namespace.name.clone()), "{} asked twice", namespace.name);
                answer(by_name[&namespace.name])
            });
            prop_assert_eq!(few.verdict, all.verdict);
            for (n, judged) in few.namespaces.iter().enumerate() {
                if let Some(judged) = judged {
                    prop_assert_eq!(judged.verdict, all.namespaces[n].as_ref().unwrap().verdict);
                }
            }
            if all.verdict == Verdict::Pass {
                prop_assert!(!few.solution.is_empty());
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
