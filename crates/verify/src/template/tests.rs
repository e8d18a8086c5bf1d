use std::sync::LazyLock;

use portolan_core::Platform;
use portolan_core::platform::PartialPlatform;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::answers::Answers;
use super::evaluate::{Evaluator, Outcome};
use super::parameters::Parameters;
use super::read::{Template, documents};
use crate::contract;
use crate::pod::tests::scheduler::{self, machines, pods};
use crate::pod::tests::{rows, settings};
use crate::pod::{Default, Settings, platforms};
use crate::policy::PartialMeaning;
use crate::subjects::Wanted;

static SHIPPED: LazyLock<Evaluator> = LazyLock::new(|| {
    let template = Template::among(&documents(super::TEMPLATE.as_bytes()).unwrap()).unwrap();
    Evaluator::new(&template).unwrap()
});

fn unseen(settings: Settings) -> Settings {
    Settings { nodes: Vec::new(), ..settings }
}

/// The keys that the template asks about one image in `object`.
fn asked(object: &Value, parameters: &Value) -> Vec<String> {
    match SHIPPED.run(object, parameters, &Answers::none_yet()).unwrap() {
        Outcome::Asks(keys) => keys.into_iter().collect(),
        Outcome::Violations(violations) => panic!("{violations:?}"),
    }
}

fn pod_of(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["containers"] = json!([{"name": "app", "image": "r.example/app:1"}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
}

/// What the keys mean to the verifier; `default` for a key that names no platform.
fn meant(keys: &[String], default: &Wanted) -> Wanted {
    let of_key = |key: &String| -> Vec<PartialPlatform> {
        let key = contract::parse(key).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(key.reference().to_string(), "r.example/app:1");
        match key.platforms() {
            [] => default.platforms().cloned().collect(),
            named => named.to_vec(),
        }
    };
    Wanted::of(keys.iter().flat_map(of_key)).unwrap()
}

/// What Rego says of a pod, where the keys say all there is to say.
fn by_rego(spec: &Value, settings: &Settings) -> String {
    let parameters = json!(Parameters::new("portolan-verifier", settings));
    let nobody = Wanted::of(["none/none".parse().unwrap()]).unwrap();
    meant(&asked(&pod_of(spec), &parameters), &nobody).to_string()
}

/// Case 30 of the acceptance list, through the text of the template.
#[test]
fn the_template_asks_what_the_table_of_pods_says() {
    for row in rows() {
        let what = &row.pod;
        assert_eq!(by_rego(&row.spec, &unseen(settings("host"))), row.host_unseen(), "{what}, host");
        assert_eq!(by_rego(&row.spec, &unseen(settings("all"))), row.all_unseen(), "{what}, all");
    }
}

/// A host that nobody has, in place of what only the policy knows.
fn nobody() -> Platform {
    Platform::new("unsaid", "unsaid")
}

/// Each half that only the policy knows may be any, unless it is both.
fn without_halves(set: &Wanted) -> String {
    let half = |half: Option<&str>| half.filter(|text| *text != "unsaid").map(str::to_owned);
    let one = |one: &PartialPlatform| match (one.os(), one.architecture()) {
        (Some("unsaid"), Some("unsaid")) => one.clone(),
        (os, arch) if os == Some("unsaid") || arch == Some("unsaid") => {
            PartialPlatform::new(half(os).as_deref(), half(arch).as_deref())
        }
        _ => one.clone(),
    };
    let all: Vec<_> = set.platforms().map(one).collect();
    let widest = |one: &PartialPlatform| !all.iter().any(|other| other != one && other.covers(one));
    Wanted::of(all.iter().filter(|one| widest(one)).cloned()).unwrap().to_string()
}

fn variations(base: Settings) -> Vec<Settings> {
    let list = |text: &str| {
        Default::List(Wanted::of(text.split(',').map(|p| p.parse().unwrap())).unwrap())
    };
    let partial = PartialMeaning::Host;
    let with = |default: Default| Settings { default, ..base.clone() };
    vec![
        with(Default::Host),
        with(Default::All),
        with(list("linux/amd64,linux/arm64")),
        with(list("linux/amd64,linux/arm64/v9,windows/*,*/s390x")),
        Settings { partial, ..with(Default::Host) },
        Settings { partial, ..with(Default::All) },
        Settings { partial, ..with(list("linux/amd64,windows/amd64")) },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The Rego and the function are one: every default that Rego can know, both meanings of half a
    /// platform.
    #[test]
    fn rego_and_the_function_say_the_same_of_every_pod(pod in pods()) {
        let spec = serde_json::to_value(&pod).unwrap();
        for settings in variations(more_pools(scheduler::settings(Default::All, &[]))) {
            let expected = platforms(&pod, &settings).to_string();
            prop_assert_eq!(by_rego(&spec, &settings), expected, "{:?}", settings);
        }
    }

    /// What only the policy knows is left to it, exactly: nothing else is.
    #[test]
    fn what_is_left_to_the_policy_is_what_the_function_takes_from_the_default(pod in pods()) {
        let spec = serde_json::to_value(&pod).unwrap();
        let base = more_pools(scheduler::settings(Default::Nodes, &[]));
        let parameters = json!(Parameters::new("p", &base));
        let found = Settings { default: Default::Host, host: nobody(), ..base };
        let expected = without_halves(&platforms(&pod, &found));
        let default = Wanted::of([PartialPlatform::from(&nobody())]).unwrap();
        let found = meant(&asked(&pod_of(&spec), &parameters), &default);
        prop_assert_eq!(found.to_string(), expected);
    }

    /// With `platforms: nodes` in the policy, what the verifier looks at is never less than what the
    /// function says that has seen the nodes.
    #[test]
    fn template_and_policy_together_miss_no_node(machines in machines(), pod in pods()) {
        let spec = serde_json::to_value(&pod).unwrap();
        let settings = more_pools(scheduler::settings(Default::Nodes, &machines));
        let parameters = json!(Parameters::new("p", &settings));
        let of_node = |node: &crate::pod::Node| PartialPlatform::from(&node.platform);
        let nodes = Wanted::of(settings.nodes.iter().map(of_node)).unwrap();
        let asked = meant(&asked(&pod_of(&spec), &parameters), &nodes);
        for one in platforms(&pod, &settings).platforms() {
            prop_assert!(asked.platforms().any(|other| other.covers(one)), "{one}: {asked}");
        }
    }
}

/// Pools that agree with each other only in part, and names of the cluster's own.
fn more_pools(mut settings: Settings) -> Settings {
    let pool = settings.labels.entry("example.com/pool".to_owned()).or_default();
    for (value, platform) in [("mixed", "windows/*"), ("arm64", "*/arm64"), ("linux", "linux/*")] {
        pool.insert(value.to_owned(), platform.parse().unwrap());
    }
    let disk = settings.labels.entry("disk".to_owned()).or_default();
    for (value, platform) in
        [("amd64", "*/amd64"), ("linux", "linux/arm"), ("arm", "*"), ("windows", "windows/arm64/v9")]
    {
        disk.insert(value.to_owned(), platform.parse().unwrap());
    }
    settings.values.insert("mixed".to_owned(), "X86_64".to_owned());
    settings
}
