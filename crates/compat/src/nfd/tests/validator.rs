//! The cases of NFD's own validator, as data.

use super::*;

/// The cases of NFD's validator (fake_1 to fake_10) and some beside them, as data: the rule,
/// whether it holds, and the mark of each expression.
#[test]
fn the_cases_of_nfds_validator() {
    type Case<'a> = (&'a str, &'a str, Verdict, &'a [(&'a str, Verdict)]);
    let cases: &[Case<'_>] = &[
        (
            "fake_1: a flag by its name",
            "- name: fake_1
  matchFeatures:
  - {feature: fake.flag, matchName: {op: InRegexp, value: ['^flag']}}",
            Pass,
            &[("fake.flag: a name InRegexp ^flag", Pass)],
        ),
        (
            "fake_2: an unknown flag, and an attribute that fits",
            "- name: fake_2
  matchFeatures:
  - {feature: fake.flag, matchExpressions: {flag_unknown: {op: Exists}}}
  - {feature: fake.attribute, matchExpressions: {attr_1: {op: In, value: ['true']}}}",
            Fail,
            &[("fake.attribute: In true", Pass), ("fake.flag: Exists", Fail)],
        ),
        (
            "fake_3: two instances, of which the second does not fit",
            "- name: fake_3
  matchFeatures:
  - feature: fake.instance
    matchExpressions: {name: {op: In, value: [instance_1]}, attr_1: {op: In, value: ['true']}}
  - feature: fake.instance
    matchExpressions: {name: {op: In, value: [instance_2]}, attr_1: {op: In, value: ['false']}}",
            Fail,
            &[
                ("fake.instance: In true", Pass),
                ("fake.instance: In instance_1", Pass),
                ("fake.instance-2: In false", Fail),
                ("fake.instance-2: In instance_2", Pass),
            ],
        ),
        (
            "fake_4: one of two",
            "- name: fake_4
  matchAny:
  - matchFeatures: [{feature: fake.instance, matchExpressions: {name: {op: In, value: [instance_1]}}}]
  - matchFeatures: [{feature: fake.instance, matchExpressions: {name: {op: In, value: [instance_unknown]}}}]",
            Pass,
            &[
                ("fake.instance: In instance_1", Pass),
                ("fake.instance: In instance_unknown", Fail),
            ],
        ),
        (
            // NFD says no. Nothing is known of such a feature, and a newer NFD may know it.
            "fake_5: a feature nobody knows",
            "- name: fake_5
  matchFeatures:
  - {feature: unknown.unknown, matchExpressions: {name: {op: In, value: [instance_1]}}}",
            Unknown,
            &[("unknown.unknown: In instance_1", Unknown)],
        ),
        (
            "fake_6: one of two, and a feature beside them",
            "- name: fake_6
  matchAny:
  - matchFeatures: [{feature: fake.instance, matchExpressions: {name: {op: In, value: [instance_1]}}}]
  - matchFeatures:
    - {feature: fake.instance, matchExpressions: {name: {op: In, value: [instance_unknown]}}}
    - {feature: fake.instance, matchExpressions: {name: {op: In, value: [instance_1]}}}
  matchFeatures:
  - {feature: fake.attribute, matchExpressions: {attr_1: {op: In, value: ['true']}}}",
            Pass,
            &[
                ("fake.attribute: In true", Pass),
                ("fake.instance: In instance_1", Pass),
                ("fake.instance: In instance_unknown", Fail),
                ("fake.instance-2: In instance_1", Pass),
            ],
        ),
        (
            "fake_7: one of two fits, and of the features beside them one does not",
            "- name: fake_7
  matchAny:
  - matchFeatures: [{feature: fake.instance, matchExpressions: {name: {op: In, value: [instance_1]}}}]
  - matchFeatures:
    - {feature: fake.instance, matchExpressions: {name: {op: In, value: [instance_unknown]}}}
    - {feature: fake.instance, matchExpressions: {id: {op: In, value: [unknown]}}}
  matchFeatures:
  - {feature: fake.attribute, matchExpressions: {attr_unknown: {op: In, value: ['true']}}}
  - {feature: fake.attribute, matchExpressions: {attr_1: {op: In, value: ['true']}}}",
            Fail,
            &[
                ("fake.attribute: In true", Fail),
                ("fake.attribute-2: In true", Pass),
                ("fake.instance: In instance_1", Pass),
                ("fake.instance: In instance_unknown", Fail),
                ("fake.instance-2: In unknown", Fail),
            ],
        ),
        (
            "fake_8: flags, attributes and instances, of which some do not fit",
            "- name: fake_8
  matchFeatures:
  - {feature: fake.flag, matchExpressions: {flag_unknown: {op: Exists}}}
  - {feature: fake.attribute, matchExpressions: {attr_1: {op: In, value: ['true']}}}
  - feature: fake.instance
    matchExpressions: {name: {op: In, value: [instance_1]}, attr_1: {op: In, value: ['true']}}
  - feature: fake.instance
    matchExpressions: {name: {op: In, value: [instance_2]}, attr_1: {op: In, value: ['false']}}",
            Fail,
            &[
                ("fake.attribute: In true", Pass),
                ("fake.flag: Exists", Fail),
                ("fake.instance: In true", Pass),
                ("fake.instance: In instance_1", Pass),
                ("fake.instance-2: In false", Fail),
                ("fake.instance-2: In instance_2", Pass),
            ],
        ),
        (
            "fake_9: flags, attributes and instances that fit",
            "- name: fake_9
  matchFeatures:
  - {feature: fake.flag, matchName: {op: InRegexp, value: ['^flag']}}
  - {feature: fake.attribute, matchExpressions: {attr_1: {op: In, value: ['true']}}}
  - {feature: fake.instance, matchExpressions: {name: {op: In, value: [instance_1]}}}",
            Pass,
            &[
                ("fake.attribute: In true", Pass),
                ("fake.flag: a name InRegexp ^flag", Pass),
                ("fake.instance: In instance_1", Pass),
            ],
        ),
        (
            "fake_10: a rule that asks for nothing",
            "- {name: fake_10, matchFeatures: []}",
            Pass,
            &[],
        ),
        (
            "neither of two",
            "- name: neither
  matchAny:
  - matchFeatures: [{feature: fake.attribute, matchExpressions: {attr_3: {op: Gt, value: ['10']}}}]
  - matchFeatures: [{feature: fake.attribute, matchExpressions: {attr_3: {op: Lt, value: ['10']}}}]",
            Fail,
            &[("fake.attribute: Gt 10", Fail), ("fake.attribute: Lt 10", Fail)],
        ),
        (
            "one of two fits, and the feature beside them does not",
            "- name: beside
  matchAny:
  - matchFeatures: [{feature: fake.attribute, matchExpressions: {attr_3: {op: GeLe, value: ['10', '20']}}}]
  - matchFeatures: [{feature: fake.flag, matchExpressions: {flag_9: {op: Exists}}}]
  matchFeatures:
  - {feature: fake.attribute, matchExpressions: {attr_2: {op: IsTrue}}}",
            Fail,
            &[
                ("fake.attribute: IsTrue", Fail),
                ("fake.attribute: GeLe 10, 20", Pass),
                ("fake.flag: Exists", Fail),
            ],
        ),
        (
            "every expression of a term on one instance",
            "- name: one
  matchFeatures:
  - feature: fake.instance
    matchExpressions:
      attr_1: {op: IsTrue}
      attr_2: {op: IsTrue}
      attr_3: {op: Gt, value: ['10']}
      attr_4: {op: DoesNotExist}",
            Pass,
            &[
                ("fake.instance: IsTrue", Pass),
                ("fake.instance: IsTrue", Pass),
                ("fake.instance: Gt 10", Pass),
                ("fake.instance: DoesNotExist", Pass),
            ],
        ),
    ];
    for (what, rules, expected, expected_marks) in cases {
        assert_eq!(verdict(rules, &fake()), *expected, "{what}");
        let marks = marks(rules, &fake());
        let marks: Vec<_> = marks.iter().map(|(text, verdict)| (text.as_str(), *verdict)).collect();
        assert_eq!(marks, *expected_marks, "{what}");
    }
}
