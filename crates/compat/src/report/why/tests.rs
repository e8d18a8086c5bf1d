use std::borrow::Cow;

use serde_json::json;

use super::*;
use crate::document::{Mode, read_with};
use crate::evaluate::{Answer, Depth, Reason, evaluate};

/// A report on these namespaces. A plugin's name says what it answers: `no…`, `open…`, or else yes.
fn report(namespaces: &serde_json::Value, depth: Depth) -> Report {
    let document = json!({"schemaVersion": "0.1.0", "namespaces": namespaces});
    let found = read_with(document.to_string().as_bytes(), Mode::Lenient, &|_: &str| true);
    let spec = found.spec.unwrap_or_else(|| panic!("{:?}", found.diagnostics));
    let evaluation = evaluate(&spec, None, depth, &mut |namespace, plugin| {
        let verdict = match plugin.name.as_str() {
            name if name.starts_with("no") => Verdict::Fail,
            name if name.starts_with("open") => Verdict::Unknown,
            _ => Verdict::Pass,
        };
        let reason = |verdict| Reason {
            verdict,
            code: Cow::Borrowed("X"),
            message: format!("{}.{} is {verdict}", namespace.name, plugin.name),
            expected: None,
            found: None,
            source: None,
            remedy: None,
        };
        let silent = plugin.name.ends_with("Silent");
        Answer {
            verdict,
            provider: "test".to_owned(),
            digest: None,
            duration_ms: None,
            sandbox: Vec::new(),
            reasons: match verdict {
                _ if silent => Vec::new(),
                Verdict::Pass => vec![reason(verdict)],
                // Something else is as asked for, and is no reason.
                verdict => vec![reason(Verdict::Pass), reason(verdict)],
            },
        }
    });
    Report::new(&spec, evaluation)
}

fn why(namespaces: &serde_json::Value) -> Vec<String> {
    report(namespaces, Depth::Everything).why().collect()
}

fn plugins(names: &[&str]) -> serde_json::Value {
    json!({"plugins": names.iter().map(|name| ((*name).to_owned(), json!({}))).collect::<serde_json::Map<_, _>>()})
}

#[test]
fn own_plugins_come_before_what_is_referred_to() {
    let told = why(&json!({
        "root": {"plugins": {"no1": {}, "no2": {}, "yes": {}, "open": {}},
                 "refs": {"all": ["z", "b", "fine"]}},
        "z": plugins(&["no"]), "b": plugins(&["noSilent"]), "fine": plugins(&["yes"]),
    }));
    assert_eq!(
        told,
        ["root.no1 is fail", "root.no2 is fail", "z.no is fail", "noSilent does not pass"]
    );
}

#[test]
fn a_branch_that_lost_a_choice_that_was_won_is_no_reason() {
    let told = why(&json!({
        "root": {"refs": {"all": ["must"], "oneOf": ["amd", "intel"], "noneOf": ["bad"]}},
        "amd": plugins(&["no"]), "intel": plugins(&["yes"]), "bad": plugins(&["no"]),
        "must": plugins(&["no"]),
    }));
    assert_eq!(told, ["must.no is fail"]);
}

#[test]
fn of_a_choice_that_nobody_won_the_first_is_told() {
    let told = why(&json!({
        "root": {"refs": {"oneOf": ["b", "a"]}},
        "a": plugins(&["no"]), "b": plugins(&["no1", "no2"]),
    }));
    assert_eq!(told, ["none of b, a passes: b.no1 is fail"]);
    let alone = why(&json!({"root": {"refs": {"oneOf": ["a"]}}, "a": plugins(&["no"])}));
    assert_eq!(alone, ["a.no is fail"]);
    let names: Vec<String> = (0..9).map(|n| format!("n{n}")).collect();
    let mut many: serde_json::Map<_, _> =
        names.iter().map(|name| (name.clone(), plugins(&["no"]))).collect();
    many.insert("root".to_owned(), json!({"refs": {"oneOf": names}}));
    let told = why(&many.into());
    assert_eq!(told, ["none of n0, n1, n2, n3 and 5 more passes: n0.no is fail"]);
}

#[test]
fn what_passes_and_must_not_is_told_with_what_passed_in_it() {
    let told = why(&json!({
        "root": {"refs": {"noneOf": ["bad", "worse", "other"]}},
        "bad": plugins(&["a", "b"]), "worse": {"refs": {"oneOf": ["not", "deep"]}},
        "not": plugins(&["no"]), "deep": plugins(&["c"]), "other": plugins(&["no"]),
    }));
    assert_eq!(
        told,
        [
            "bad passes, and must not: bad.a is pass, bad.b is pass",
            "worse passes, and must not: deep.c is pass"
        ]
    );
    // Not to have what is forbidden is why the forbidden one passes.
    let told = why(&json!({
        "root": {"refs": {"noneOf": ["bad"]}},
        "bad": {"refs": {"noneOf": ["good"]}}, "good": plugins(&["no"]),
    }));
    assert_eq!(told, ["bad passes, and must not: good does not pass: good.no is fail"]);
}

#[test]
fn what_is_unknown_is_told_where_that_decides() {
    let told = why(&json!({
        "root": {"plugins": {"open": {}, "yes": {}},
                 "refs": {"all": ["a", "b"], "oneOf": ["c", "d"], "noneOf": ["e", "f"]}},
        "a": plugins(&["openSilent"]), "b": plugins(&["yes"]), "c": plugins(&["no"]),
        "d": plugins(&["open"]), "e": plugins(&["no", "open"]), "f": plugins(&["open"]),
    }));
    assert_eq!(
        told,
        [
            "root.open is unknown",
            "it is not known whether openSilent passes",
            "it is not known whether one of c, d passes: d.open is unknown",
            "f may pass, and must not: f.open is unknown"
        ]
    );
    // What failed decided; what is unknown beside it did not.
    let told = why(&json!({
        "root": {"refs": {"all": ["a", "b"]}}, "a": plugins(&["open"]), "b": plugins(&["no"]),
    }));
    assert_eq!(told, ["b.no is fail"]);
}

#[test]
fn several_roots_are_a_choice() {
    let told = why(&json!({"a": plugins(&["no"]), "b": plugins(&["open"])}));
    assert_eq!(told, ["it is not known whether one of a, b passes: b.open is unknown"]);
    let told = why(&json!({"a": plugins(&["no"]), "b": plugins(&["no"])}));
    assert_eq!(told, ["none of a, b passes: a.no is fail"]);
    let told = why(&json!({"a": plugins(&["no"]), "b": plugins(&["yes"])}));
    assert_eq!(told, ["b.yes is pass"]);
}

#[test]
fn what_nobody_looked_at_did_not_decide() {
    let namespaces = json!({
        "root": {"refs": {"all": ["a", "b"], "oneOf": ["c", "d"]}},
        "a": plugins(&["no"]), "b": plugins(&["no"]), "c": plugins(&["no"]), "d": plugins(&["no"]),
    });
    let told: Vec<_> = report(&namespaces, Depth::UntilDecided).why().collect();
    assert_eq!(told, ["a.no is fail"]);
}

/// A thousand deep, with two ways at every step: the ways are more than there are atoms.
#[test]
fn depth_and_width_cost_little_and_the_text_has_an_end() {
    for list in ["all", "oneOf", "noneOf"] {
        let mut namespaces = serde_json::Map::new();
        for n in 0..499 {
            let below = [format!("l{}", n + 1), format!("r{}", n + 1)];
            for side in ["l", "r"] {
                namespaces.insert(format!("{side}{n}"), json!({"refs": {list: below}}));
            }
        }
        namespaces.insert("l499".to_owned(), plugins(&["no"]));
        namespaces.insert("r499".to_owned(), plugins(&["no"]));
        let report = report(&namespaces.into(), Depth::Everything);
        let told: Vec<_> = report.why().collect();
        assert!(!told.is_empty() && told.len() <= MAX_REASONS, "{list}: {told:?}");
        let longest = told.iter().map(String::len).max().unwrap();
        assert!(longest < MAX_BEFORE + 200, "{list}: {longest}");
    }
    let many = json!({"root": {"plugins": (0..100).map(|n| (format!("no{n}"), json!({}))).collect::<serde_json::Map<_, _>>()}});
    assert_eq!(why(&many).len(), MAX_REASONS);
}
