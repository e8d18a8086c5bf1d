mod bounds;
mod validator;

use portolan_host::facts::{Facts, Kind};

use super::*;
use crate::evaluate::Reason;
use crate::verdict::Verdict::{self, Fail, Pass, Unknown};

/// The host of NFD's own tests.
fn fake() -> Facts {
    Facts::builder()
        .flags("fake.flag", ["flag_1", "flag_2", "flag_3"])
        .attribute("fake.attribute", "attr_1", "true")
        .attribute("fake.attribute", "attr_2", "false")
        .attribute("fake.attribute", "attr_3", "10")
        .instance(
            "fake.instance",
            [
                ("name", "instance_1"),
                ("attr_1", "true"),
                ("attr_2", "false"),
                ("attr_3", "10"),
                ("attr_4", "foobar"),
            ],
        )
        .instance(
            "fake.instance",
            [("name", "instance_2"), ("attr_1", "true"), ("attr_2", "true"), ("attr_3", "100")],
        )
        .instance("fake.instance", [("name", "instance_3")])
        .known("fake.empty", Kind::Instances)
        .build()
}

fn with(rules: &str) -> Rules {
    let mut text = "version: v1alpha1\ncompatibilities:\n- rules:\n".to_owned();
    for line in rules.lines() {
        text += &format!("  {line}\n");
    }
    read(text.as_bytes())
        .unwrap_or_else(|error| panic!("{error}: {:?}\n{text}", std::error::Error::source(&error)))
}

fn evaluated(rules: &Rules, facts: &Facts) -> Evaluated {
    evaluate(rules, &[], facts).unwrap()
}

fn verdict_of(rules: &Rules, facts: &Facts) -> Verdict {
    evaluated(rules, facts).evaluation.verdict
}

fn verdict(rules: &str, facts: &Facts) -> Verdict {
    verdict_of(&with(rules), facts)
}

/// Every mark, in the order of the report: what it is of, and whether it is met.
fn marks(rules: &str, facts: &Facts) -> Vec<(String, Verdict)> {
    let found = evaluated(&with(rules), facts);
    let mut marks = Vec::new();
    for (id, namespace) in found.spec.namespaces() {
        let judged = found.evaluation.namespaces[id.0].as_ref().unwrap();
        for (plugin, answer) in namespace.plugins.iter().zip(&judged.answers) {
            let mark = |reason: &Reason| {
                let expected = reason.expected.clone().unwrap_or_default();
                (format!("{}: {expected}", plugin.name), reason.verdict)
            };
            marks.extend(answer.reasons.iter().map(mark));
        }
    }
    marks
}

const TWO_SETS: &str = "version: v1alpha1
compatibilities:
- {tag: prefered, weight: 90, description: one, rules: [{name: a, matchFeatures: [{feature: fake.attribute, matchExpressions: {attr_1: {op: In, value: ['false']}}}]}]}
- {tag: fallback, weight: 40, description: two, rules: [{name: a, matchFeatures: [{feature: fake.attribute, matchExpressions: {attr_2: {op: In, value: ['false']}}}]}]}
- {description: three, rules: []}
";

#[test]
fn one_set_is_enough_and_tags_choose_among_them() {
    let rules = read(TWO_SETS.as_bytes()).unwrap();
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    for (wanted, expected, passed) in [
        (&["prefered"][..], Fail, &[][..]),
        (&["fallback"], Pass, &["two"]),
        (&["prefered", "fallback"], Pass, &["two"]),
        // A set without a tag counts only where no tag is asked for.
        (&[], Pass, &["two", "three"]),
    ] {
        let found = evaluate(&rules, &tags(wanted), &fake()).unwrap();
        assert_eq!(found.evaluation.verdict, expected, "{wanted:?}");
        let names: Vec<_> = found.passed.iter().map(|(_, _, text)| text.as_str()).collect();
        assert_eq!(names, passed, "{wanted:?}");
    }
    let error = evaluate(&rules, &tags(&["other"]), &fake()).unwrap_err();
    assert!(error.to_string().contains("prefered, fallback"), "{error}");
}

#[test]
fn the_solution_is_that_of_the_weightiest_set_that_passes() {
    let heavy = TWO_SETS
        .replace("weight: 40", "weight: 1")
        .replace("{description: three, rules: []}", "{tag: heavy, weight: 5, rules: [{name: b}]}");
    let found = evaluated(&read(heavy.as_bytes()).unwrap(), &fake());
    let names: Vec<_> = found
        .evaluation
        .solution
        .iter()
        .map(|id| found.spec.namespace(*id).name.as_str())
        .collect();
    assert_eq!(names, ["set3-heavy", "set3-heavy.rule1-b"]);
    assert_eq!(found.passed[0].1, 5);
}

/// Defect 3: a host without PCI, USB or block devices is validated as far as it goes.
#[test]
fn a_source_that_is_missing_leaves_only_its_own_answers_open() {
    let facts = Facts::builder()
        .attribute("kernel.version", "major", "6")
        .unknown("pci.device", "no /sys/bus/pci/devices")
        .build();
    let rules = "- matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Ge, value: ['5']}}}]
- matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ['10de']}}}]";
    assert_eq!(verdict(rules, &facts), Unknown);
    let either = "- matchAny:
  - matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ['10de']}}}]
  - matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Ge, value: ['5']}}}]";
    assert_eq!(verdict(either, &facts), Pass);
}

/// Defect 4: a term that only asks for a name is evaluated after one that failed.
#[test]
fn a_failed_term_does_not_mark_the_next() {
    let rules = "- matchFeatures:
  - {feature: fake.attribute, matchExpressions: {attr_1: {op: IsFalse}}}
  - {feature: fake.flag, matchName: {op: In, value: [flag_1]}}";
    let marks = marks(rules, &fake());
    assert_eq!(marks[1], ("fake.flag: a name In flag_1".to_owned(), Pass));
}

/// Defect 5.
#[test]
fn the_case_of_a_features_name_does_not_matter() {
    let rules = "- matchFeatures: [{feature: Fake.FLAG, matchExpressions: {flag_1: {op: Exists}}}]";
    assert_eq!(verdict(rules, &fake()), Pass);
    assert_eq!(marks(rules, &fake()), [("fake.flag: Exists".to_owned(), Pass)]);
}

/// Defect 6: instance 1 has the one, instance 2 the other, and none has both.
#[test]
fn marks_of_several_instances_do_not_add_up() {
    let rules = "- matchFeatures:
  - feature: fake.instance
    matchExpressions: {attr_4: {op: In, value: [foobar]}, attr_3: {op: In, value: ['100']}}";
    assert_eq!(verdict(rules, &fake()), Fail);
    let passed = marks(rules, &fake()).iter().filter(|(_, verdict)| *verdict == Pass).count();
    assert_eq!(passed, 1);
}

/// A device that could not be read may be the one that is asked for.
#[test]
fn an_instance_that_could_not_be_read_leaves_a_no_open() {
    let facts = Facts::builder()
        .instance("pci.device", [("class", "0302")])
        .unknown_element("pci.device", "0000:00:02.0/class", "permission denied")
        .build();
    let class = |class: &str| {
        let term = format!(
            "{{feature: pci.device, matchExpressions: {{class: {{op: In, value: ['{class}']}}}}}}"
        );
        verdict(&format!("- matchFeatures: [{term}]"), &facts)
    };
    assert_eq!((class("0302"), class("0200")), (Pass, Unknown));
}

/// Only the attribute that could not be read is unknown, and only of the device whose it is.
#[test]
fn what_a_device_does_not_tell_is_unknown_of_it_alone() {
    let facts = Facts::builder()
        .instance("network.device", [("name", "eth0"), ("operstate", "down")])
        .instance("network.device", [("name", "eth1"), ("operstate", "up"), ("speed", "1000")])
        .unknown_element("network.device", "eth0/speed", "the device is down")
        .build();
    let with = |expressions: &str| {
        let rule = format!(
            "- matchFeatures: [{{feature: network.device, matchExpressions: {{{expressions}}}}}]"
        );
        verdict(&rule, &facts)
    };
    assert_eq!(with("speed: {op: Gt, value: ['5000']}"), Unknown);
    assert_eq!(with("speed: {op: Gt, value: ['500']}"), Pass);
    assert_eq!(with("name: {op: In, value: [eth1]}, speed: {op: Gt, value: ['5000']}"), Fail);
    assert_eq!(with("name: {op: In, value: [eth7]}"), Fail);
}

/// Neither the command line that a kernel was booted with nor the one that is built in.
#[test]
fn no_mark_shows_a_command_line() {
    let facts = Facts::builder()
        .cmdline("quiet token=hush")
        .attribute("kernel.config", "CMDLINE", "key=hush")
        .build();
    for (feature, key) in
        [("kernel.cmdline", "token"), ("kernel.cmdline", "value"), ("kernel.config", "CMDLINE")]
    {
        for expression in ["{op: In, value: [x]}", "{op: Gt, value: ['1']}", "{op: Exists}"] {
            let rules = format!(
                "- matchFeatures: [{{feature: {feature}, matchExpressions: {{{key}: {expression}}}}}]"
            );
            let found = evaluated(&with(&rules), &facts);
            let told = format!("{:?}", found.evaluation);
            assert!(!told.contains("hush"), "{told}");
        }
    }
}

/// Defect 9: that something must not be there cannot be said of what nobody could look at, and
/// holds where the source shows that there is nothing.
#[test]
fn does_not_exist_on_a_missing_feature_is_unknown_and_on_an_empty_one_holds() {
    let rules = "- matchFeatures: [{feature: kernel.loadedmodule, matchExpressions: {nouveau: {op: DoesNotExist}}}]";
    let none = Facts::builder().known("kernel.loadedmodule", Kind::Flags).build();
    let unread = Facts::builder().unknown("kernel.loadedmodule", "permission denied").build();
    let loaded = Facts::builder().flags("kernel.loadedmodule", ["nouveau"]).build();
    assert_eq!(
        (verdict(rules, &none), verdict(rules, &unread), verdict(rules, &loaded)),
        (Pass, Unknown, Fail)
    );
}

#[test]
fn a_hosts_value_that_is_no_number_is_unknown_and_ends_nothing() {
    let facts = Facts::builder().attribute("a.b", "c", "many").attribute("a.b", "d", "1").build();
    let rules = "- matchFeatures: [{feature: a.b, matchExpressions: {c: {op: Gt, value: ['1']}, d: {op: In, value: ['1']}}}]";
    assert_eq!(verdict(rules, &facts), Unknown);
    assert_eq!(marks(rules, &facts)[1].1, Pass);
}

#[test]
fn flags_and_attributes_are_one_set_of_elements() {
    let facts = Facts::builder()
        .flags("cpu.cpuid", ["AVX2", "AVX10"])
        .attribute("cpu.cpuid", "AVX10_VERSION", "2")
        .unknown_element("cpu.cpuid", "ODD", "not readable")
        .build();
    for (expression, expected) in [
        ("AVX2: {op: Exists}", Pass),
        ("AVX2: {op: DoesNotExist}", Fail),
        ("AVX2: {op: In, value: ['true']}", Fail),
        ("AVX10_VERSION: {op: Ge, value: ['2']}", Pass),
        ("AVX10_VERSION: {op: Exists}", Pass),
        ("AVX10_VERSION: {op: DoesNotExist}", Fail),
        ("MISSING: {op: DoesNotExist}", Pass),
        ("MISSING: {op: NotIn, value: ['x']}", Fail),
        ("MISSING: {}", Pass),
        ("ODD: {op: Exists}", Unknown),
        ("ODD: {op: DoesNotExist}", Unknown),
    ] {
        let rules = format!(
            "- matchFeatures: [{{feature: cpu.cpuid, matchExpressions: {{{expression}}}}}]"
        );
        assert_eq!(verdict(&rules, &facts), expected, "{expression}");
    }
    for (expression, expected) in [
        ("{op: InRegexp, value: ['^AVX10']}", Pass),
        ("{op: In, value: [AVX10_VERSION]}", Pass),
        ("{op: In, value: [NONE]}", Fail),
        ("{op: In, value: [ODD]}", Unknown),
        ("{op: Exists}", Pass),
        ("{op: DoesNotExist}", Fail),
    ] {
        let rules = format!("- matchFeatures: [{{feature: cpu.cpuid, matchName: {expression}}}]");
        assert_eq!(verdict(&rules, &facts), expected, "{expression}");
    }
}

#[test]
fn a_feature_without_expressions_is_asked_for_itself() {
    for (feature, expected) in
        [("fake.flag", Pass), ("fake.instance", Pass), ("fake.empty", Fail), ("no.such", Unknown)]
    {
        let rules = format!("- matchFeatures: [{{feature: {feature}, matchExpressions: {{}}}}]");
        assert_eq!(verdict(&rules, &fake()), expected, "{feature}");
    }
}

#[test]
fn later_rules_see_what_earlier_ones_found() {
    let rules = |first: &str, more: &str| {
        format!(
            "- name: first
  vars: {{level: '3'}}
{more}
  matchFeatures: [{{feature: fake.attribute, matchExpressions: {{{first}}}}}]
- name: second
  matchFeatures: [{{feature: rule.matched, matchExpressions: {{level: {{op: Ge, value: ['2']}}}}}}]"
        )
    };
    assert_eq!(verdict(&rules("attr_1: {op: IsTrue}", ""), &fake()), Pass);
    // The first fails, and what it would have said is known not to be there.
    let failed = evaluated(&with(&rules("attr_1: {op: IsFalse}", "")), &fake());
    let second = failed.spec.find("set1.rule2-second").unwrap();
    assert_eq!(failed.evaluation.namespaces[second.0].as_ref().unwrap().verdict, Fail);
    // Whether the first holds is not known, so neither is what it said.
    let facts = Facts::builder().unknown("fake.attribute", "not readable").build();
    let open = evaluated(&with(&rules("attr_1: {op: IsTrue}", "")), &facts);
    assert_eq!(open.evaluation.namespaces[second.0].as_ref().unwrap().verdict, Unknown);
    // A template may have made any name.
    let template = "- name: first
  varsTemplate: 'x={{ .fake }}'
- name: second
  matchFeatures: [{feature: rule.matched, matchExpressions: {x: {op: DoesNotExist}}}]";
    assert_eq!(verdict(template, &fake()), Unknown);
    assert_eq!(with(template).warnings.len(), 1);
}

#[test]
fn only_what_is_looked_at_is_needed() {
    let rules = with(
        "- matchFeatures:
  - {feature: Kernel.Config, matchExpressions: {VFIO: {op: Exists}}}
  - {feature: pci.device, matchExpressions: {vendor: {op: Exists}}}
  - {feature: cpu.cpuid, matchName: {op: Exists}}
  - {feature: rule.matched, matchName: {op: Exists}}",
    );
    let wanted = needs(&rules, &[]);
    let features: Vec<_> = wanted.features().collect();
    assert_eq!(features, ["cpu.cpuid", "kernel.config", "pci.device"]);
}

#[test]
fn what_is_wrong_is_said_without_a_host_and_with_its_place() {
    let term = |expression: &str| {
        format!(
            "version: v1alpha1\ncompatibilities: [{{rules: [{{matchFeatures: [{{feature: a.b, matchExpressions: {{c: {expression}}}}}]}}]}}]"
        )
    };
    for (text, word) in [
        (
            term("{op: Inn, value: [x]}"),
            "/compatibilities/0/rules/0/matchFeatures/0/matchExpressions/c",
        ),
        (term("{op: In}"), "means nothing"),
        (term("{op: Gt, value: [x]}"), "means nothing"),
        (term("{op: InRegexp, value: ['(']}"), "means nothing"),
        (term("{op: Gt, value: ['1'], type: semver}"), "means nothing"),
        (term("{op: In, value: [[x]]}"), "expected a text or a number"),
        (term("7"), "expected an object"),
        ("version: v1\ncompatibilities: []".to_owned(), "v1alpha1 is known"),
        ("version: v1alpha1\ncompatibilities: 7".to_owned(), "/compatibilities: expected a list"),
        ("version: v1alpha1\ncompatibilities: [{weight: x}]".to_owned(), "expected an integer"),
        (
            "version: v1alpha1\ncompatibilities: [{rules: [{matchFeatures: [{}]}]}]".to_owned(),
            "the name of a feature",
        ),
        ("version: v1alpha1\nversion: v1alpha1".to_owned(), "not valid YAML"),
        ("{\"version\": \"v1alpha1\", \"version\": \"v1alpha1\"}".to_owned(), "not valid JSON"),
        ("- a".to_owned(), "the document: expected an object"),
        ("a: [".to_owned(), "not valid YAML"),
        (String::new(), "not valid YAML"),
    ] {
        let error = read(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
    assert!(matches!(read(b"a: \xff"), Err(ReadNfdError::NotText)));
    // Misspelt fields are read over, as NFD does, and said.
    let odd = read(b"version: v1alpha1\ncompatibilities: [{rule: []}]").unwrap();
    assert_eq!(odd.warnings, ["/compatibilities/0/rule: the field means nothing here"]);
}

#[test]
fn json_and_yaml_mean_the_same_and_numbers_are_texts() {
    let yaml = with(
        "- matchFeatures: [{feature: fake.attribute, matchExpressions: {attr_3: {op: In, value: [10]}, attr_1: {op: In, value: [true]}}}]",
    );
    let json = br#"{"version": "v1alpha1", "compatibilities": [{"rules": [{"matchFeatures":
        [{"feature": "fake.attribute", "matchExpressions": {"attr_3": {"op": "In", "value": [10]}, "attr_1": {"op": "In", "value": ["true"]}}}]}]}]}"#;
    let json = read(json).unwrap();
    for rules in [yaml, json] {
        assert_eq!(evaluated(&rules, &fake()).evaluation.verdict, Pass);
    }
}
