//! Documents that ask for more than anybody has.

use super::*;

#[test]
fn bombs_end_early() {
    // Each line ten times the one before: a billion values from a few hundred bytes.
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..9 {
        let items = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb += &format!("a{n}: &a{n} [{items}]\n");
    }
    assert!(read(bomb.as_bytes()).is_err());
    let deep_flow = "[".repeat(200_000);
    assert!(matches!(read(deep_flow.as_bytes()), Err(ReadNfdError::TooDeep)));
    // The bracket in the quotes closes nothing.
    let hidden = format!("a: {}", "{\"]\":".repeat(60_000));
    assert!(matches!(read(hidden.as_bytes()), Err(ReadNfdError::TooDeep)));
    let deep_block: String = (0..300).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    assert!(read(deep_block.as_bytes()).is_err());
    let large = vec![b' '; crate::json::MAX_BYTES + 1];
    assert!(matches!(read(&large), Err(ReadNfdError::TooLarge { .. })));
    let many = format!("version: v1alpha1\ncompatibilities:\n{}", "- {}\n".repeat(1_001));
    assert!(matches!(read(many.as_bytes()), Err(ReadNfdError::TooMany { .. })));
}

/// A long text that thousands of aliases name is as much as if it were written out.
#[test]
fn aliases_of_a_long_text_end_early() {
    let long = "x".repeat(1 << 20);
    let aliases = "*a, ".repeat(90_000);
    for text in [
        format!("a: &a {long}\nb: [{aliases}]\n"),
        format!("a: &a {long}\nb: [{}]\n", "{*a : 1}, ".repeat(40_000)),
    ] {
        let error = read(text.as_bytes()).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("bytes of text"), "{cause}");
    }
}

/// A path stands before everything below it: a key of a megabyte would be repeated for every value.
#[test]
fn a_long_key_is_not_repeated_for_every_value() {
    let key = "k".repeat(1 << 20);
    let values = vec!["1"; 50_000].join(",");
    let rules = |op: &str| {
        format!(
            r#"{{"version": "v1alpha1", "compatibilities": [{{"rules": [{{"matchFeatures": [
            {{"feature": "a.b", "matchExpressions": {{"{key}": {{"op": "{op}", "value": [{values}]}}}}}}]}}]}}]}}"#
        )
    };
    let read_rules = read(rules("In").as_bytes()).unwrap();
    assert_eq!(verdict_of(&read_rules, &fake()), Unknown);
    let wrong = read(rules("Inn").as_bytes()).unwrap_err().to_string();
    assert!(wrong.len() < 400, "{} bytes", wrong.len());
    // Warnings name paths, too, and are not without end.
    let odd: String = (0..2).map(|n| format!(r#","{key}{n}": 1"#)).collect();
    let many: String = (0..10_000).map(|n| format!(r#","odd{n}": 1"#)).collect();
    let text =
        format!(r#"{{"version": "v1alpha1", "compatibilities": [{{"rules": []}}]{odd}{many}}}"#);
    let warnings = read(text.as_bytes()).unwrap().warnings;
    assert_eq!(warnings.len(), 101);
    assert_eq!(warnings[100], "and 9902 more");
    assert!(warnings.iter().all(|one| one.len() < 200));
}

#[test]
fn patterns_are_few_and_short() {
    let rules = |patterns: &[String]| {
        let values = serde_json::to_string(patterns).unwrap();
        format!(
            r#"{{"version": "v1alpha1", "compatibilities": [{{"rules": [{{"matchFeatures": [
            {{"feature": "a.b", "matchName": {{"op": "InRegexp", "value": {values}}}}}]}}]}}]}}"#
        )
    };
    let few = vec!["^a".to_owned(); 100];
    assert!(read(rules(&few).as_bytes()).is_ok());
    let many = vec!["^a".to_owned(); 101];
    let error = read(rules(&many).as_bytes()).unwrap_err();
    assert!(matches!(error, ReadNfdError::TooMany { what: "patterns", .. }), "{error}");
    for bad in ["a".repeat(5_000), "(((a{50}){50}){50}){50}".to_owned(), r"\pL{900}".to_owned()] {
        let error = read(rules(&[bad]).as_bytes()).unwrap_err();
        assert!(matches!(error, ReadNfdError::Expression { .. }), "{error}");
    }
}

/// As many patterns as are read, each as large as it may be, over as many names as a kernel has.
#[test]
fn the_worst_patterns_over_all_names_of_a_kernel_are_answered() {
    let names: Vec<String> = (0..10_000).map(|n| format!("CONFIG_OPTION_{n}_{n}_{n}")).collect();
    let facts = names.iter().fold(Facts::builder(), |all, name| all.attribute("a.b", name, "y"));
    let patterns: Vec<String> = (1..=100).map(|n| format!("(.*_){{1,9}}[^x]{{1,{n}}}z")).collect();
    let text = format!(
        r#"{{"version": "v1alpha1", "compatibilities": [{{"rules": [{{"matchFeatures": [
        {{"feature": "a.b", "matchName": {{"op": "InRegexp", "value": {}}}}}]}}]}}]}}"#,
        serde_json::to_string(&patterns).unwrap()
    );
    assert_eq!(verdict_of(&read(text.as_bytes()).unwrap(), &facts.build()), Fail);
}

/// As many names asked for as are read, in one list and in many, over as many as a kernel has.
#[test]
fn many_names_are_looked_up_and_not_compared() {
    let facts = (0..10_000)
        .fold(Facts::builder(), |all, n| all.attribute("a.b", &format!("OPTION_{n}"), "y"))
        .build();
    let rules = |names: &[Vec<String>]| {
        let terms: Vec<_> = names
            .iter()
            .map(|one| serde_json::json!({"feature": "a.b", "matchName": {"op": "In", "value": one}}))
            .collect();
        let set = serde_json::json!({"rules": [{"matchFeatures": terms}]});
        serde_json::json!({"version": "v1alpha1", "compatibilities": [set]}).to_string()
    };
    let long: Vec<String> = (0..90_000).map(|n| format!("NONE_{n}")).collect();
    let one = read(rules(std::slice::from_ref(&long)).as_bytes()).unwrap();
    assert_eq!(verdict_of(&one, &facts), Fail);
    let many: Vec<Vec<String>> = (0..1_001).map(|n| vec![format!("OPTION_{n}")]).collect();
    let read_rules = read(rules(&many[..1_000]).as_bytes()).unwrap();
    assert_eq!(verdict_of(&read_rules, &facts), Pass);
    let error = read(rules(&many).as_bytes()).unwrap_err();
    assert!(error.to_string().contains("more than 1000 expressions over names"), "{error}");
}

/// Features may be called anything; what a report shows of them plays with no terminal.
#[test]
fn a_features_name_steers_no_terminal() {
    let name = r"a.\u001b[31m\u202e";
    let text = format!(
        r#"{{"version": "v1alpha1", "compatibilities": [{{"tag": "{name}", "rules": [{{"name": "{name}",
        "matchFeatures": [{{"feature": "{name}", "matchExpressions": {{"{name}": {{"op": "Exists"}}}}}}]}}]}}]}}"#
    );
    let found = evaluated(&read(text.as_bytes()).unwrap(), &fake());
    let report = crate::Report::new(&found.spec, found.evaluation);
    let json = serde_json::to_string(&report).unwrap();
    for text in [report.table(), report.dot(), report.svg(), json] {
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }
}
