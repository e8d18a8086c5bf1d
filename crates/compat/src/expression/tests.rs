use proptest::prelude::*;

use super::Input::{Absent, Flag, Unknown, Value};
use super::*;

fn expression(op: &str, values: &[&str], kind: &str) -> Result<Expression, ExpressionError> {
    Expression::new(op, values.iter().map(ToString::to_string).collect(), kind)
}

/// A row: operator, values, what the host has, and the answer: some(yes or no), or undecided.
type Row<'a> = (&'a str, &'a [&'a str], Input<'a>, Option<bool>);

fn check(kind: &str, rows: &[Row<'_>]) {
    for (op, values, input, expected) in rows {
        let expression = expression(op, values, kind).unwrap();
        let found = expression.holds(*input).ok();
        assert_eq!(found, *expected, "{op} {values:?} {input:?}");
        let verdict = expected.map_or(Verdict::Unknown, Verdict::from);
        assert_eq!(expression.verdict(*input), verdict, "{op} {values:?} {input:?}");
    }
}

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

#[test]
fn presence() {
    check(
        "",
        &[
            ("", &[], Absent, YES),
            ("", &[], Flag, YES),
            ("", &[], Value("2"), YES),
            ("", &[], Unknown("no file"), YES),
            ("Exists", &[], Absent, NO),
            ("Exists", &[], Flag, YES),
            ("Exists", &[], Value(""), YES),
            ("Exists", &[], Unknown("no file"), None),
            ("DoesNotExist", &[], Absent, YES),
            ("DoesNotExist", &[], Flag, NO),
            ("DoesNotExist", &[], Value("1"), NO),
            ("DoesNotExist", &[], Unknown("no file"), None),
        ],
    );
}

#[test]
fn texts() {
    check(
        "",
        &[
            ("In", &["1"], Absent, NO),
            ("In", &["1"], Value("2"), NO),
            ("In", &["1", "2", "3"], Absent, NO),
            ("In", &["1", "2", "3"], Value("2"), YES),
            ("In", &["1"], Value("1 "), NO),
            ("In", &["1"], Unknown("no file"), None),
            // What is not there is not "something else" either.
            ("NotIn", &["2"], Absent, NO),
            ("NotIn", &["1"], Value("2"), YES),
            ("NotIn", &["1", "2", "3"], Value("2"), NO),
            ("NotIn", &["1"], Unknown("no file"), None),
            ("InRegexp", &["val-[0-9]$"], Absent, NO),
            ("InRegexp", &["val-[0-9]$"], Value("val-1"), YES),
            ("InRegexp", &["val-[0-9]$"], Value("val-12"), NO),
            ("InRegexp", &["val-[0-9]$", "al-[1-9]"], Value("val-12"), YES),
            ("InRegexp", &["1", "[0-8]"], Value("9"), NO),
            ("InRegexp", &["^a"], Unknown("no file"), None),
            ("IsTrue", &[], Absent, NO),
            ("IsTrue", &[], Value("true"), YES),
            ("IsTrue", &[], Value("1"), NO),
            ("IsTrue", &[], Value("True"), NO),
            ("IsFalse", &[], Value("false"), YES),
            ("IsFalse", &[], Value("true"), NO),
            ("IsFalse", &[], Absent, NO),
            ("IsFalse", &[], Unknown("no file"), None),
        ],
    );
}

#[test]
fn integers() {
    check(
        "",
        &[
            ("Gt", &["2"], Absent, NO),
            ("Gt", &["2"], Value("2"), NO),
            ("Gt", &["2"], Value("3"), YES),
            ("Gt", &["-10"], Value("-3"), YES),
            ("Gt", &["2"], Value("str"), None),
            ("Gt", &["2"], Value("3a"), None),
            ("Ge", &["2"], Value("2"), YES),
            ("Ge", &["2"], Value("3"), YES),
            ("Ge", &["2"], Value("1"), NO),
            ("Ge", &["2"], Value("str"), None),
            ("Lt", &["2"], Absent, NO),
            ("Lt", &["2"], Value("2"), NO),
            ("Lt", &["2"], Value("1"), YES),
            ("Lt", &["-10"], Value("-3"), NO),
            ("Lt", &["2"], Value("1.0"), None),
            ("Le", &["2"], Value("2"), YES),
            ("Le", &["2"], Value("1"), YES),
            ("Le", &["2"], Value("3"), NO),
            ("Le", &["2"], Value("1.0"), None),
            ("GtLt", &["1", "10"], Absent, NO),
            ("GtLt", &["1", "10"], Value("1"), NO),
            ("GtLt", &["1", "10"], Value("10"), NO),
            ("GtLt", &["1", "10"], Value("2"), YES),
            ("GtLt", &["-10", "10"], Value("-11"), NO),
            ("GtLt", &["-10", "10"], Value("5.0"), None),
            ("GeLe", &["-10", "10"], Value("10"), YES),
            ("GeLe", &["-10", "10"], Value("-10"), YES),
            ("GeLe", &["-10", "10"], Value("-11"), NO),
            ("GeLe", &["-10", "10"], Value("str"), None),
            ("GeLe", &["1", "2"], Unknown("no file"), None),
            ("Gt", &["9223372036854775806"], Value("9223372036854775807"), YES),
            ("Gt", &["1"], Value("9223372036854775808"), None),
        ],
    );
}

#[test]
fn versions() {
    check(
        "version",
        &[
            ("Gt", &["2"], Absent, NO),
            ("Gt", &["2"], Value("2"), NO),
            ("Gt", &["2"], Value("3"), YES),
            ("Gt", &["2.0"], Value("2.0"), NO),
            ("Gt", &["2.0"], Value("2.1"), YES),
            ("Gt", &["2.0.1"], Value("2.0.1"), NO),
            ("Gt", &["2.0.1"], Value("2.0.2"), YES),
            ("Gt", &["2.0.1"], Value("str"), None),
            ("Ge", &["2"], Value("2.0.0"), YES),
            ("Ge", &["2.0"], Value("1.9"), NO),
            ("Ge", &["5.15"], Value("5.15.0-rc1"), YES),
            ("Ge", &["5.15.0-rc1"], Value("5.15.0"), YES),
            ("Ge", &["5.9"], Value("5.10"), YES),
            ("Lt", &["2.0"], Value("1.9"), YES),
            ("Lt", &["2.0.1"], Value("2.0.0"), YES),
            ("Lt", &["2.0.1"], Value("2.0.1"), NO),
            ("Le", &["2.0"], Value("2.0"), YES),
            ("Le", &["2.0"], Value("2.1"), NO),
            ("GtLt", &["1.0", "10.0"], Value("10.1"), NO),
            ("GtLt", &["1.0", "10.0"], Value("1.0"), NO),
            ("GtLt", &["1.0", "10.0"], Value("1.1"), YES),
            ("GeLe", &["1", "10"], Value("10"), YES),
            ("GeLe", &["1", "10"], Value("-11"), NO),
            ("GeLe", &["1.0.1", "10.0.1"], Value("10.0.1"), YES),
            ("GeLe", &["1.0.1", "10.0.1"], Value("10.0.2"), NO),
            ("GeLe", &["1.0.1", "10.0.1"], Value("str"), None),
            // The type says how to compare; where nothing is compared it changes nothing.
            ("In", &["2.0"], Value("2"), NO),
        ],
    );
}

#[test]
fn a_flag_has_no_value_to_compare() {
    for op in Op::ALL {
        let values: &[&str] = match op.takes() {
            Takes::None => &[],
            Takes::Some | Takes::One => &["1"],
            Takes::Two => &["1", "2"],
        };
        let holds = expression(op.as_str(), values, "").unwrap().holds(Flag).unwrap();
        assert_eq!(holds, matches!(op, Op::Any | Op::Exists), "{op:?}");
    }
}

#[test]
fn what_means_nothing_is_found_without_a_host() {
    for (op, values, kind, says) in [
        ("", &["1"][..], "", "takes no value"),
        ("In", &[], "", "at least one"),
        ("NotIn", &[], "", "at least one"),
        ("InRegexp", &[], "", "at least one"),
        ("InRegexp", &["("], "", "no pattern"),
        ("InRegexp", &["((a{200}){200}){200}"], "", "too much memory"),
        // RE2 has none of these, because they cannot be matched in linear time.
        ("InRegexp", &[r"(a)\1"], "", "no pattern"),
        ("InRegexp", &["(?=a)"], "", "no pattern"),
        ("Exists", &["1"], "", "no value"),
        ("DoesNotExist", &["1"], "", "no value"),
        ("Gt", &[], "", "one value"),
        ("Gt", &["1", "2"], "", "one value"),
        ("Gt", &[""], "", "no integer"),
        ("Gt", &["2.0"], "", "no integer"),
        ("Ge", &["a"], "", "no integer"),
        ("Lt", &["1", "2", "3"], "", "one value"),
        ("Lt", &["a"], "", "no integer"),
        ("Le", &["9223372036854775808"], "", "no integer"),
        ("Le", &["NaN"], "", "no integer"),
        ("GtLt", &["1"], "", "two values"),
        ("GtLt", &["2", "1"], "", "nothing is between"),
        ("GtLt", &["1", "2", "3"], "", "two values"),
        ("GtLt", &["a", "2"], "", "no integer"),
        ("GeLe", &["1", "1"], "", "nothing is between"),
        ("GeLe", &["2.0", "1.0"], "version", "nothing is between"),
        ("Gt", &["str"], "version", "no version"),
        ("Gt", &["-11"], "version", "no version"),
        ("Gt", &["1.2.3.4"], "version", "no version"),
        ("IsTrue", &["1"], "", "no value"),
        ("IsFalse", &["1", "2"], "", "no value"),
        ("non-existent-op", &["1"], "", "no operator"),
        ("exists", &[], "", "no operator"),
        ("Gt", &["1"], "float", "no type"),
    ] {
        let error = expression(op, values, kind).unwrap_err().to_string();
        assert!(error.contains(says), "{op} {values:?} {kind}: {error}");
    }
    let ExpressionError::Operator { near, .. } = expression("exists", &[], "").unwrap_err() else {
        panic!("an operator")
    };
    assert_eq!(near, Some("Exists"));
}

#[test]
fn names_of_operators_are_all_different() {
    let names: std::collections::BTreeSet<_> = Op::ALL.iter().map(|op| op.as_str()).collect();
    assert_eq!(names.len(), Op::ALL.len());
}

proptest! {
    /// Any expression that is one, over any value: an answer, and a pair of them that is opposite
    /// is never both yes.
    #[test]
    fn opposites_are_never_both_true(a in "[-a-z0-9.]{0,6}", b in "[-a-z0-9.]{0,6}", version: bool) {
        let kind = if version { "version" } else { "" };
        for (one, other) in [("In", "NotIn"), ("Gt", "Le"), ("Ge", "Lt"), ("Exists", "DoesNotExist")] {
            let values = if one == "Exists" { vec![] } else { vec![b.as_str()] };
            let (Ok(one), Ok(other)) = (expression(one, &values, kind), expression(other, &values, kind))
            else { continue };
            for input in [Value(&a), Absent, Flag] {
                let both = one.verdict(input).and(other.verdict(input));
                prop_assert!(both != Verdict::Pass);
            }
            prop_assert_eq!(one.verdict(Unknown("why")), Verdict::Unknown);
        }
    }

    #[test]
    fn no_text_makes_it_panic(op in "\\PC{0,12}", value in "\\PC{0,24}", kind in "(version|)") {
        let _ = expression(&op, &[&value], &kind);
        for op in ["InRegexp", "Gt", "In"] {
            if let Ok(expression) = expression(op, &[&value], &kind) {
                let _ = expression.holds(Value(&value));
            }
        }
    }
}
