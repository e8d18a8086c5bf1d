//! A model of the scheduler: for random pods and nodes, whatever node it could choose has its
//! platform in the set.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::{ARCH, OS};

/// A node as the scheduler sees it.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    name: String,
    labels: BTreeMap<String, String>,
    pub(crate) platform: Platform,
}

/// As Kubernetes documents it.
fn holds(expression: &Expression, value: Option<&str>) -> bool {
    let values = expression.values.as_deref().unwrap_or_default();
    let within = value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let bound = || number(values.first().map(String::as_str));
    match expression.operator.as_str() {
        "In" => within,
        "NotIn" => !within,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(bound()).is_some_and(|(value, bound)| value > bound),
        "Lt" => number(value).zip(bound()).is_some_and(|(value, bound)| value < bound),
        other => panic!("{other}"),
    }
}

pub(crate) fn could_run(pod: &PodSpec, machine: &Machine) -> bool {
    let label = |key: &str| machine.labels.get(key).map(String::as_str);
    if pod.os.as_ref().is_some_and(|os| os.name != machine.platform.os) {
        return false;
    }
    if pod.node_name.as_ref().is_some_and(|name| *name != machine.name) {
        return false;
    }
    if pod.node_selector.iter().flatten().any(|(key, value)| label(key) != Some(value)) {
        return false;
    }
    let required = pod.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()?.required.as_ref());
    let Some(required) = required else { return true };
    required.node_selector_terms.iter().flatten().any(|term| {
        let expressions: Vec<_> = term.match_expressions.iter().flatten().collect();
        let fields: Vec<_> = term.match_fields.iter().flatten().collect();
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|one| holds(one, label(&one.key)))
            && fields.iter().all(|one| holds(one, Some(&machine.name)))
    })
}

const POOL: &str = "example.com/pool";
const CPU: &str = "example.com/cpu";

pub(crate) fn machines() -> impl Strategy<Value = Vec<Machine>> {
    let one = (
        prop::sample::select(vec!["linux", "windows"]),
        prop::sample::select(vec!["amd64", "arm64", "s390x", "arm"]),
        any::<[bool; 4]>(),
    );
    prop::collection::vec(one, 1..6).prop_map(|all| {
        let machine = |(n, (os, arch, has)): (usize, (&str, &str, [bool; 4]))| {
            let mut labels = BTreeMap::from([(OS, os), (ARCH, arch)]);
            // What an operator told of holds; only some nodes have these labels.
            let more = [
                ("beta.kubernetes.io/arch", arch),
                ("beta.kubernetes.io/os", os),
                (POOL, if os == "linux" && arch == "arm64" { "arm-pool" } else { "mixed" }),
                (CPU, if arch == "amd64" { "x86_64" } else { arch }),
            ];
            labels.extend(more.into_iter().zip(has).filter(|(_, has)| *has).map(|(pair, _)| pair));
            let labels = labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
            Machine {
                name: format!("n{n}"),
                labels: labels.collect(),
                platform: Platform::new(os, arch),
            }
        };
        all.into_iter().enumerate().map(machine).collect()
    })
}

fn keys() -> impl Strategy<Value = String> {
    let all = [OS, ARCH, "beta.kubernetes.io/os", "beta.kubernetes.io/arch", POOL, CPU, "disk"];
    prop::sample::select(all.map(str::to_owned).to_vec())
}

fn values() -> impl Strategy<Value = String> {
    let all = [
        "linux", "windows", "amd64", "arm64", "s390x", "arm", "x86_64", "aarch64", "armhf",
        "arm-pool", "mixed", "",
    ];
    prop::sample::select(all.map(str::to_owned).to_vec())
}

fn expressions() -> impl Strategy<Value = Expression> {
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    let operators = prop::sample::select(operators.map(str::to_owned).to_vec());
    (keys(), operators, prop::collection::vec(values(), 0..4))
        .prop_map(|(key, operator, values)| Expression { key, operator, values: Some(values) })
}

fn terms() -> impl Strategy<Value = Term> {
    let names = prop::collection::vec((0..7_usize).prop_map(|n| format!("n{n}")), 1..3);
    let field = (prop::sample::select(vec!["In", "NotIn"]), names).prop_map(|(operator, names)| {
        Expression {
            key: "metadata.name".to_owned(),
            operator: operator.to_owned(),
            values: Some(names),
        }
    });
    let fields = prop::option::weighted(0.2, prop::collection::vec(field, 0..2));
    (prop::collection::vec(expressions(), 0..4), fields).prop_map(|(expressions, fields)| Term {
        match_expressions: Some(expressions),
        match_fields: fields,
    })
}

pub(crate) fn pods() -> impl Strategy<Value = PodSpec> {
    let selector = prop::option::of(prop::collection::btree_map(keys(), values(), 0..3));
    let terms = prop::option::of(prop::collection::vec(terms(), 0..4));
    let os = prop::option::weighted(0.3, prop::sample::select(vec!["linux", "windows"]));
    let name = prop::option::weighted(0.1, (0..7_usize).prop_map(|n| format!("n{n}")));
    let toleration =
        (prop::option::of(keys()), any::<bool>(), values()).prop_map(|(key, exists, value)| {
            Toleration { key, operator: exists.then(|| "Exists".to_owned()), value: Some(value) }
        });
    let tolerations = prop::collection::vec(toleration, 0..3);
    (selector, terms, os, name, tolerations).prop_map(|(selector, terms, os, name, tolerations)| {
        let required = terms.map(|terms| NodeSelector { node_selector_terms: Some(terms) });
        PodSpec {
            node_selector: selector,
            affinity: Some(Affinity { node_affinity: Some(NodeAffinity { required }) }),
            tolerations: Some(tolerations),
            os: os.map(|name| Os { name: name.to_owned() }),
            node_name: name,
        }
    })
}

pub(crate) fn settings(default: Default, machines: &[Machine]) -> Settings {
    let mut settings = Settings::new(default, Platform::new("linux", "amd64"));
    let node = |one: &Machine| Node { name: one.name.clone(), platform: one.platform.clone() };
    settings.nodes = machines.iter().map(node).collect();
    settings.arch_labels.push(CPU.to_owned());
    let pool = ("arm-pool".to_owned(), "linux/arm64".parse().unwrap());
    settings.labels.insert(POOL.to_owned(), BTreeMap::from([pool]));
    settings
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_node_that_the_scheduler_could_choose_is_in_the_set(
        machines in machines(),
        pod in pods(),
        look_up in any::<bool>(),
    ) {
        for default in [Default::Nodes, Default::All] {
            let mut settings = settings(default.clone(), &machines);
            if default == Default::All && !look_up {
                settings.nodes.clear();
            }
            let found = platforms(&pod, &settings);
            for machine in machines.iter().filter(|machine| could_run(&pod, machine)) {
                let own = PartialPlatform::new(
                    Some(&machine.platform.os), Some(&machine.platform.architecture),
                );
                prop_assert!(
                    found.platforms().any(|one| one.covers(&own)),
                    "{own} is not in {found} of {pod:?}"
                );
            }
        }
    }

    /// Whoever speaks of the platform is not taken for somebody who says nothing: not even where pods
    /// that say nothing are for the host alone does a node that it steers to go unseen.
    #[test]
    fn a_pod_that_speaks_of_its_platform_is_never_left_to_the_host(
        machines in machines(),
        pod in pods(),
    ) {
        let required = pod.affinity.as_ref().and_then(|one| one.node_affinity.as_ref()?.required.as_ref());
        let told = |key: &str| key != "disk";
        let speaks = |term: &Term| {
            let says = |one: &Expression| {
                told(&one.key) && !(one.operator == "Exists" && [OS, ARCH].contains(&one.key.as_str()))
            };
            term.match_expressions.iter().flatten().any(says)
        };
        let by_selector = pod.node_selector.iter().flatten().any(|(key, _)| told(key));
        let by_terms = required.is_some_and(|one| one.node_selector_terms.iter().flatten().all(speaks));
        if !(by_selector || by_terms || pod.os.is_some()) {
            return Ok(());
        }
        let found = platforms(&pod, &settings(Default::Host, &[]));
        for machine in machines.iter().filter(|machine| could_run(&pod, machine)) {
            let own = PartialPlatform::from(&machine.platform);
            prop_assert!(found.platforms().any(|one| one.covers(&own)), "{own}: {found} of {pod:?}");
        }
    }

    #[test]
    fn tolerations_never_take_away(machines in machines(), pod in pods()) {
        let bare = PodSpec { tolerations: None, ..pod.clone() };
        for default in [Default::Host, Default::Nodes, Default::All] {
            let settings = settings(default, &machines);
            let (with, without) = (platforms(&pod, &settings), platforms(&bare, &settings));
            for one in without.platforms() {
                prop_assert!(with.platforms().any(|other| other.covers(one)), "{one}: {with}");
            }
        }
    }
}
