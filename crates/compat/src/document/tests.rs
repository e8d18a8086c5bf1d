use super::*;
use crate::diagnostic::Severity;

fn built_in(name: &str) -> bool {
    matches!(name, "kernelVersion" | "hardware" | "kernelModules" | "x")
}

fn lenient(text: &str) -> Read {
    read_with(text.as_bytes(), Mode::Lenient, &built_in)
}

fn codes(read: &Read) -> Vec<&'static str> {
    read.diagnostics.iter().map(|one| one.code.as_str()).collect()
}

/// A document around these namespaces.
fn with(namespaces: &str) -> String {
    format!(r#"{{"schemaVersion": "0.1.0", "namespaces": {{{namespaces}}}}}"#)
}

const P: &str = r#""plugins": {"hardware": {"data": {}}}"#;

fn names(spec: &Spec, ids: &[NamespaceId]) -> Vec<String> {
    ids.iter().map(|id| spec.namespace(*id).name.clone()).collect()
}

#[test]
fn roots_are_what_nobody_refers_to_not_even_to_forbid_it() {
    let text = with(&format!(
        r#""b": {{"refs": {{"all": ["c"], "noneOf": ["d"]}}}}, "c": {{{P}}}, "d": {{{P}}}, "a": {{{P}}}"#
    ));
    let spec = lenient(&text).spec.unwrap();
    assert_eq!(names(&spec, spec.roots()), ["a", "b"]);
    let order = names(&spec, spec.order());
    let place = |name: &str| order.iter().position(|one| one == name).unwrap();
    assert!(place("c") < place("b") && place("d") < place("b"));
    assert_eq!(
        spec.namespaces().map(|(_, n)| n.name.as_str()).collect::<Vec<_>>(),
        ["a", "b", "c", "d"]
    );
}

#[test]
fn refs_among_the_plugins_are_hoisted_with_a_warning_and_refused_strictly() {
    let text = with(&format!(
        r#""a": {{"plugins": {{"hardware": {{}}, "refs": {{"all": ["b"]}}}}}}, "b": {{{P}}}"#
    ));
    let found = lenient(&text);
    assert_eq!(codes(&found), ["W_MISPLACED_REFS"]);
    let spec = found.spec.unwrap();
    assert_eq!(names(&spec, spec.roots()), ["a"]);
    assert_eq!(spec.namespace(spec.find("a").unwrap()).plugins.len(), 1);
    let strict = read_with(text.as_bytes(), Mode::Strict, &built_in);
    assert_eq!((strict.spec, strict.diagnostics[0].severity), (None, Severity::Error));
}

#[test]
fn refs_in_both_places_and_a_plugin_called_refs_are_errors() {
    let both = with(&format!(
        r#""a": {{"refs": {{"all": ["b"]}}, "plugins": {{"refs": {{"all": ["b"]}}}}}}, "b": {{{P}}}"#
    ));
    assert_eq!(codes(&lenient(&both)), ["E_REFS_TWICE"]);
    let plugin = with(r#""a": {"plugins": {"refs": {"data": {}}}}"#);
    assert_eq!(codes(&lenient(&plugin))[0], "E_NAME");
}

#[test]
fn schema_is_an_alias_and_versions_are_checked() {
    let version = |head: &str| lenient(&format!(r#"{{{head} "namespaces": {{"a": {{{P}}}}}}}"#));
    let alias = version(r#""schema": "0.1.7","#);
    assert_eq!(codes(&alias), ["W_SCHEMA_ALIAS"]);
    assert_eq!(alias.spec.unwrap().schema_version, "0.1.7");
    assert_eq!(
        codes(&version(r#""schema": "0.1.0", "schemaVersion": "0.1.1","#)),
        ["E_SCHEMA_VERSION"]
    );
    assert_eq!(
        codes(&version(r#""schema": "0.1.0", "schemaVersion": "0.1.0","#)),
        ["W_UNKNOWN_FIELD"]
    );
    assert_eq!(codes(&version("")), ["E_MISSING"]);
    for wrong in ["0.2.0", "1.0.0", "0.1", "0.1.x", "0.1.01", "", "0.1.-1", "0.1.9999999999"] {
        let found = version(&format!(r#""schemaVersion": "{wrong}","#));
        assert_eq!(codes(&found), ["E_SCHEMA_VERSION"], "{wrong}");
    }
    assert_eq!(codes(&version(r#""schemaVersion": 2,"#)), ["E_TYPE"]);
}

#[test]
fn cycles_are_shown_in_order_wherever_they_are() {
    let text = with(&format!(
        r#""root": {{{P}}}, "x": {{"refs": {{"all": ["y"]}}}}, "y": {{"refs": {{"oneOf": ["z"]}}}}, "z": {{"refs": {{"noneOf": ["x"]}}}}"#
    ));
    let found = lenient(&text);
    assert_eq!(codes(&found), ["E_CYCLE"]);
    assert!(found.diagnostics[0].message.ends_with("x -> y -> z -> x"), "{found:?}");
    let own = lenient(&with(r#""a": {"refs": {"all": ["a"]}}"#));
    assert!(own.diagnostics[0].message.ends_with("a -> a"), "{own:?}");
}

#[test]
fn names_that_lead_nowhere_come_with_the_nearest() {
    let text = with(&format!(r#""a": {{"refs": {{"all": ["vifo"]}}}}, "vfio": {{{P}}}"#));
    let found = lenient(&text);
    assert_eq!(codes(&found), ["E_DANGLING"]);
    assert_eq!(found.diagnostics[0].suggestion.as_deref(), Some("vfio"));
    assert_eq!(found.diagnostics[0].path, "/namespaces/a/refs/all/0");
    let message = &found.diagnostics[0].message;
    for part in ["\"a\"", "\"vifo\"", "`all`"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // Hoisted ones are told where they are written.
    let text = r#""a": {"plugins": {"x": {}, "refs": {"noneOf": ["b", "c"]}}}, "b": {"plugins": {"x": {}}}"#;
    let found = lenient(&with(text));
    assert_eq!(codes(&found), ["W_MISPLACED_REFS", "E_DANGLING"]);
    assert_eq!(found.diagnostics[1].path, "/namespaces/a/plugins/refs/noneOf/1");
}

#[test]
fn lists_that_say_nothing_twice_or_the_contrary() {
    let refs =
        |refs: &str| lenient(&with(&format!(r#""a": {{{P}, "refs": {{{refs}}}}}, "b": {{{P}}}"#)));
    assert_eq!(codes(&refs(r#""all": []"#)), ["W_EMPTY_LIST"]);
    assert_eq!(codes(&refs(r#""noneOf": []"#)), ["W_EMPTY_LIST"]);
    assert_eq!(codes(&refs(r#""oneOf": []"#)), ["E_EMPTY_ONE_OF"]);
    assert_eq!(codes(&refs(r#""all": ["b", "b"]"#)), ["W_DUPLICATE_REF"]);
    assert_eq!(codes(&refs(r#""all": ["b"], "noneOf": ["b"]"#)), ["E_CONTRADICTION"]);
    assert_eq!(codes(&refs(r#""oneOf": ["b"], "noneOf": ["b"]"#)), ["E_CONTRADICTION"]);
    assert_eq!(codes(&refs(r#""any": ["b"]"#)), ["W_UNKNOWN_FIELD"]);
}

#[test]
fn a_namespace_that_asks_for_nothing_may_not_be_a_root() {
    assert_eq!(codes(&lenient(&with(r#""a": {}"#))), ["E_EMPTY_ROOT"]);
    let inner = lenient(&with(r#""a": {"refs": {"all": ["b"]}}, "b": {}"#));
    assert_eq!((codes(&inner), inner.spec.is_some()), (vec!["W_EMPTY_NAMESPACE"], true));
    assert_eq!(codes(&lenient(&with(""))), ["E_NO_NAMESPACES"]);
    assert_eq!(codes(&lenient(r#"{"schemaVersion": "0.1.0"}"#)), ["E_MISSING"]);
}

#[test]
fn names_are_safe_as_file_names() {
    let long = "a".repeat(129);
    for bad in ["", "..", ".a", "a/b", "a b", "é", "-a", "a\\u0000", &long] {
        let found = lenient(&with(&format!(r#""{bad}": {{{P}}}"#)));
        assert_eq!(codes(&found), ["E_NAME"], "{bad}");
        let found = lenient(&with(&format!(r#""a": {{"plugins": {{"{bad}": {{}}}}}}"#)));
        assert_eq!(codes(&found), ["E_NAME"], "{bad}");
    }
}

#[test]
fn fields_and_kinds() {
    let found = lenient(&with(&format!(r#""a": {{{P}, "plugin": {{}}}}"#)));
    assert_eq!(codes(&found), ["W_UNKNOWN_FIELD"]);
    assert_eq!(found.diagnostics[0].suggestion.as_deref(), Some("plugins"));
    for wrong in [
        r#""a": 1"#,
        r#""a": {"plugins": []}"#,
        r#""a": {"plugins": {"hardware": 1}}"#,
        r#""a": {"plugins": {"x": {"source": 1}}}"#,
        r#""a": {"plugins": {"x": {"data": []}}}"#,
        r#""a": {"refs": []}"#,
        r#""a": {"refs": {"all": "b"}}"#,
        r#""a": {"refs": {"all": [1]}}"#,
    ] {
        assert!(codes(&lenient(&with(wrong))).contains(&"E_TYPE"), "{wrong}");
    }
    assert_eq!(codes(&lenient("[]")), ["E_TYPE"]);
    assert_eq!(codes(&lenient("{")), ["E_JSON"]);
    assert_eq!(codes(&lenient(r#"{"a":1,"a":2}"#)), ["E_DUPLICATE_KEY"]);
    let pin = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    for wrong in [
        "\"source\": \"https://x/y\"".to_owned(),
        format!("\"source\": \"http://x/y#{pin}\""),
        format!("\"source\": \"https://me:hush@x/y#{pin}\""),
        "\"source\": \"https://x/y#sha256:12\"".to_owned(),
        "\"source\": \"oci://x/y:1\"".to_owned(),
        format!("\"source\": \"https://x/{{os}}\", \"digest\": {{\"a b\": \"{pin}\"}}"),
        "\"digest\": 1".to_owned(),
    ] {
        let found = lenient(&with(&format!(r#""a": {{"plugins": {{"gpu": {{{wrong}}}}}}}"#)));
        assert!(codes(&found).contains(&"E_SOURCE"), "{wrong}: {:?}", codes(&found));
    }
    for right in [
        format!("\"source\": \"https://x/y#{pin}\""),
        format!("\"source\": \"https://x/y\", \"digest\": \"{pin}\""),
        format!(
            "\"source\": \"https://x/{{os}}-{{arch}}\", \"digest\": {{\"linux/arm64\": \"{pin}\"}}"
        ),
        format!("\"source\": \"oci://x.example/y@{pin}\""),
        format!("\"digest\": \"{pin}\""),
    ] {
        let found = lenient(&with(&format!(r#""a": {{"plugins": {{"gpu": {{{right}}}}}}}"#)));
        assert_eq!(codes(&found), ["W_EXTERNAL_PLUGIN"], "{right}");
    }
    let source = lenient(&with(r#""a": {"plugins": {"hardware": {"source": "https://x"}}}"#));
    assert_eq!(codes(&source), ["W_SOURCE_IGNORED"]);
}

#[test]
fn strictly_no_field_is_passed_over_and_no_key_is_written_twice_in_either_mode() {
    let strict = |text: &str| read_with(text.as_bytes(), Mode::Strict, &built_in);
    let document =
        format!(r#"{{"schemaVersion": "0.1.0", "namespaces": {{"a": {{{P}}}}}, "x": 1}}"#);
    for text in [
        document,
        with(&format!(r#""a": {{{P}, "x": 1}}"#)),
        with(r#""a": {"plugins": {"x": {"x": 1}}}"#),
        with(&format!(r#""a": {{"refs": {{"all": ["b"], "x": []}}}}, "b": {{{P}}}"#)),
    ] {
        assert_eq!(codes(&lenient(&text)), ["W_UNKNOWN_FIELD"], "{text}");
        assert!(lenient(&text).spec.is_some(), "{text}");
        let found = strict(&text);
        assert_eq!(codes(&found), ["W_UNKNOWN_FIELD"], "{text}");
        assert!(found.spec.is_none(), "{text}");
    }
    let twice = with(r#""a": {"plugins": {"x": {"data": {"k": 1, "k": 1}}}}"#);
    assert_eq!(codes(&lenient(&twice)), ["E_DUPLICATE_KEY"]);
    assert_eq!(codes(&strict(&twice)), ["E_DUPLICATE_KEY"]);
}

/// Every remark has its place in the document, and a place may have a long name.
#[test]
fn long_names_are_not_written_down_again_and_again() {
    let long = "n".repeat(100_000);
    let nowhere: Vec<String> = (0..2_000).map(|n| format!(r#""to{n}""#)).collect();
    let wrong: Vec<String> = (0..2_000).map(|n| format!(r#""p{n}": []"#)).collect();
    let (nowhere, wrong) = (nowhere.join(","), wrong.join(","));
    for text in [
        with(&format!(r#""{long}": {{"refs": {{"all": [{nowhere}]}}}}"#)),
        with(&format!(r#""a": {{"plugins": {{"{long}": {{{wrong}}}}}}}"#)),
        with(&format!(r#""a": {{"plugins": {{"x": {{}}, "refs": {{"{long}": [{nowhere}]}}}}}}"#)),
        with(&format!(
            r#""a": {{"plugins": {{"kernelModules": {{"data": {{"m": {{"{long}": {{{wrong}}}}}}}}}}}}}"#
        )),
        with(&format!(
            r#""a": {{"plugins": {{"kernelConfiguration": {{"data": {{"{long}": "y"}}}}}}}}"#
        )),
        with(&format!(
            r#""a": {{"plugins": {{"system": {{"data": {{"osRelease": {{"{long}": {{{wrong}}}}}}}}}}}}}"#
        )),
    ] {
        let found = read(text.as_bytes(), Mode::Lenient);
        let size = |one: &Diagnostic| one.path.len() + one.message.len();
        let all: usize = found.diagnostics.iter().map(size).sum();
        assert!(found.spec.is_none() && all < 2_000_000, "{all}");
    }
}

#[test]
fn bounds_hold() {
    let many: Vec<String> = (0..=MAX_NAMESPACES).map(|n| format!(r#""n{n}": {{{P}}}"#)).collect();
    assert_eq!(codes(&lenient(&with(&many.join(",")))), ["E_LIMIT"]);
    let names: Vec<String> = (0..500).map(|n| format!(r#""n{n}""#)).collect();
    let list = names.join(",");
    let mut text: Vec<String> =
        (0..21).map(|n| format!(r#""m{n}": {{"refs": {{"all": [{list}]}}}}"#)).collect();
    text.extend(names.iter().map(|name| format!(r"{name}: {{{P}}}")));
    assert_eq!(codes(&lenient(&with(&text.join(",")))), ["E_LIMIT"]);
}

#[test]
fn a_chain_of_a_thousand_is_walked_without_recursion() {
    let chain: Vec<String> = (0..999)
        .map(|n| format!(r#""n{n}": {{"refs": {{"all": ["n{}"]}}}}"#, n + 1))
        .chain([format!(r#""n999": {{{P}}}"#)])
        .collect();
    let spec = lenient(&with(&chain.join(","))).spec.unwrap();
    assert_eq!(names(&spec, spec.roots()), ["n0"]);
    assert_eq!(spec.namespace(spec.order()[0]).name, "n999");
}

#[test]
fn a_plugin_that_is_not_built_in_is_a_warning_with_the_nearest_that_is() {
    let found = read(
        with(r#""a": {"plugins": {"kernelVersions": {"data": {}}}}"#).as_bytes(),
        Mode::Lenient,
    );
    assert_eq!(codes(&found), ["W_EXTERNAL_PLUGIN"]);
    assert_eq!(found.diagnostics[0].suggestion.as_deref(), Some("kernelVersion"));
}
