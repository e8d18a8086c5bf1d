use std::sync::LazyLock;

use portolan_core::Platform;
use portolan_core::platform::PartialPlatform;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::answers::Answers;
use super::evaluate::{Evaluator, Outcome};
use super::parameters::Parameters;
use super::read::{ReadTemplateError, Template, documents};
use crate::contract;
use crate::pod::tests::scheduler::{self, Machine, could_run, machines, pods};
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

/// The reader of YAML would take a minute for it.
#[test]
fn a_template_that_nests_too_deep_is_refused_at_once() {
    let deep = "{\"a\":".repeat(60_000);
    assert!(matches!(documents(deep.as_bytes()), Err(ReadTemplateError::TooDeep)));
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
        assert_eq!(
            by_rego(&row.spec, &unseen(settings("host"))),
            row.host_unseen(),
            "{what}, host"
        );
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

    /// With `platforms: nodes` in the policy, every node that the scheduler could choose is looked at.
    #[test]
    fn template_and_policy_together_miss_no_node(machines in machines(), pod in pods()) {
        let spec = serde_json::to_value(&pod).unwrap();
        let settings = scheduler::settings(Default::Nodes, &machines);
        let parameters = json!(Parameters::new("p", &settings));
        let of_machine = |one: &Machine| PartialPlatform::from(&one.platform);
        let nodes = Wanted::of(machines.iter().map(of_machine)).unwrap();
        let asked = meant(&asked(&pod_of(&spec), &parameters), &nodes);
        for machine in machines.iter().filter(|machine| could_run(&pod, machine)) {
            let own = of_machine(machine);
            prop_assert!(asked.platforms().any(|other| other.covers(&own)), "{own}: {asked}");
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
    for (value, platform) in [
        ("amd64", "*/amd64"),
        ("linux", "linux/arm"),
        ("arm", "*"),
        ("windows", "windows/arm64/v9"),
    ] {
        disk.insert(value.to_owned(), platform.parse().unwrap());
    }
    settings.values.insert("mixed".to_owned(), "X86_64".to_owned());
    settings
}

fn parameters_for(default: &str) -> Value {
    json!(Parameters::new("portolan-verifier", &unseen(settings(default))))
}

#[test]
fn every_image_of_a_pod_is_asked_for_wherever_the_pod_is() {
    let container = |name: &str| json!([{"name": name, "image": format!("r.example/{name}:1")}]);
    let spec = json!({
        "nodeSelector": {"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"},
        "containers": container("app"),
        "initContainers": container("init"),
        "ephemeralContainers": container("debug"),
        "volumes": [
            {"name": "model", "image": {"reference": "r.example/model:1"}},
            {"name": "empty", "emptyDir": {}},
        ],
    });
    let key = |name| format!(r#"{{"arch":"arm64","os":"linux","reference":"r.example/{name}:1"}}"#);
    let expected = ["app", "debug", "init", "model"].map(key);
    for object in [
        json!({"kind": "Pod", "spec": spec}),
        json!({"kind": "Deployment", "spec": {"replicas": 2, "template": {"spec": spec}}}),
        json!({"kind": "Job", "spec": {"template": {"spec": spec}}}),
        json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}),
        json!({"kind": "PodTemplate", "template": {"spec": spec}}),
    ] {
        assert_eq!(asked(&object, &json!({})), expected, "{object}");
    }
}

/// The words of the contract, byte for byte: Gatekeeper keeps answers by them.
#[test]
fn keys_are_canonical() {
    for (spec, default, expected) in [
        (json!({}), "nodes", r#"{"reference":"r.example/app:1"}"#),
        (json!({}), "all", r#"{"platforms":[{}],"reference":"r.example/app:1"}"#),
        (
            json!({}),
            "linux/arm/v7",
            r#"{"arch":"arm","os":"linux","reference":"r.example/app:1","variant":"v7"}"#,
        ),
        (
            json!({}),
            "windows(10.0.20348)/amd64",
            r#"{"arch":"amd64","os":"windows","osVersion":"10.0.20348","reference":"r.example/app:1"}"#,
        ),
        (
            json!({"os": {"name": "windows"}}),
            "nodes",
            r#"{"os":"windows","reference":"r.example/app:1"}"#,
        ),
        (
            json!({"nodeSelector": {"kubernetes.io/arch": "x86_64"}}),
            "nodes",
            r#"{"arch":"amd64","reference":"r.example/app:1"}"#,
        ),
    ] {
        assert_eq!(asked(&pod_of(&spec), &parameters_for(default)), [expected], "{default}");
    }
}

/// Only where the constraint says so: it makes answers that Gatekeeper keeps many more.
#[test]
fn the_namespace_is_told_where_the_constraint_says_so() {
    let mut pod = pod_of(&json!({"os": {"name": "windows"}}));
    pod["metadata"]["namespace"] = json!("team");
    let plain = r#"{"os":"windows","reference":"r.example/app:1"}"#;
    let named = r#"{"namespace":"team","os":"windows","reference":"r.example/app:1"}"#;
    assert_eq!(asked(&pod, &json!({})), [plain]);
    assert_eq!(asked(&pod, &json!({"sendNamespace": false})), [plain]);
    assert_eq!(asked(&pod, &json!({"sendNamespace": true})), [named]);
    assert_eq!(contract::parse(named).unwrap().namespace(), Some("team"));
    // What has no namespace has none to tell.
    let clusterwide = pod_of(&json!({"os": {"name": "windows"}}));
    assert_eq!(asked(&clusterwide, &json!({"sendNamespace": true})), [plain]);
}

#[test]
fn many_platforms_become_a_wildcard_in_rego_too() {
    let arches: Vec<_> = (0..20).map(|n| format!("cpu{n}")).collect();
    let on = |key: &str| json!({"key": key, "operator": "In", "values": arches});
    let spec = |expressions: Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}})
    };
    let many = spec(json!([on("kubernetes.io/arch")]));
    assert_eq!(by_rego(&many, &unseen(settings("all"))), "*");
    let mut of_linux = many.clone();
    of_linux["os"] = json!({"name": "linux"});
    assert_eq!(by_rego(&of_linux, &unseen(settings("all"))), "linux/*");
    let both = spec(json!([on("kubernetes.io/arch"), on("kubernetes.io/os")]));
    assert_eq!(by_rego(&both, &unseen(settings("all"))), "*");
}

/// A pod's author cannot make a webhook late, and so unasked, nor move the look to the host: with too
/// much said the pod might run anywhere, here and in the function alike, and it is over soon.
#[test]
fn what_is_too_much_may_be_any_platform() {
    let texts = |n: usize| (0..n).map(|n| format!("v{n}")).collect::<Vec<_>>();
    let on = |key: &str, n| json!({"key": key, "operator": "In", "values": texts(n)});
    let (arch, os) = ("kubernetes.io/arch", "kubernetes.io/os");
    let terms = |terms: Vec<Value>| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": terms}}}})
    };
    let term = |expressions: Vec<Value>| json!({"matchExpressions": expressions});
    let with_system = |mut spec: Value| {
        spec["os"] = json!({"name": "linux"});
        spec
    };
    let pools =
        json!({"key": "example.com/pool", "operator": "In", "values": ["arm-pool", "win-pool"]});
    let toleration = json!({"key": arch, "value": "arm64"});
    let selector: serde_json::Map<_, _> = texts(20_000)
        .into_iter()
        .chain([arch.to_owned()])
        .map(|key| (key, json!("s390x")))
        .collect();
    for (spec, expected) in [
        (terms(vec![term(vec![on(arch, 64), on(os, 64)])]), "*"),
        (terms(vec![term(vec![on(arch, 16), on(os, 1)])]), "v0/v0"),
        (terms(vec![term(vec![on(arch, 5), on(os, 4)])]), "v0/*"),
        (terms(vec![term(vec![on(arch, 65)])]), "*"),
        (terms(vec![term(vec![on(arch, 50_000), on(os, 50_000)])]), "*"),
        (terms(vec![term(vec![on(arch, 1)]); 17]), "*"),
        (with_system(terms(vec![term(vec![on(arch, 1)]); 17])), "linux/*"),
        (terms(vec![term(vec![pools.clone(); 16]); 16]), "linux/arm64, windows/host"),
        (terms(vec![term(vec![on(arch, 1); 17])]), "*"),
        (terms(vec![term(vec![on(arch, 16), on(os, 16)]); 16]), "v0/*"),
        (json!({"tolerations": vec![toleration; 65]}), "*"),
        (json!({"nodeSelector": selector}), "host/s390x"),
    ] {
        let host = Platform::new("host", "host");
        let settings = Settings { host, partial: PartialMeaning::Host, ..unseen(settings("host")) };
        let pod = crate::pod::PodSpec::from_object(&pod_of(&spec)).unwrap();
        let found = platforms(&pod, &settings).to_string();
        assert!(found.starts_with(expected), "{expected}: {found}");
        let start = std::time::Instant::now();
        assert_eq!(by_rego(&spec, &settings), found);
        assert!(
            start.elapsed() < std::time::Duration::from_secs(5),
            "{expected}: {:?}",
            start.elapsed()
        );
    }
}

const KEY: &str = r#"{"arch":"arm64","os":"linux","reference":"r.example/app:1"}"#;

fn arm_pod() -> Value {
    pod_of(&json!({"nodeSelector": {"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}}))
}

/// What the template says of a pod for linux/arm64, with these answers.
fn said(response: Value) -> Vec<String> {
    let answers = json!({"kind": "ProviderResponse", "response": response}).to_string();
    let answers = Answers::from_json(answers.as_bytes()).unwrap();
    match SHIPPED.run(&arm_pod(), &json!({}), &answers).unwrap() {
        Outcome::Violations(violations) => violations,
        Outcome::Asks(keys) => panic!("{keys:?}"),
    }
}

/// Only a plain yes to the very key admits; everything else is a violation that says why.
#[test]
fn only_a_yes_admits() {
    let item = |value: Value| json!({"items": [{"key": KEY, "value": value}]});
    assert_eq!(said(item(json!({"isSuccess": true}))), Vec::<String>::new());
    let of_image = "image r.example/app:1 for linux/arm64: ";
    for (response, part) in [
        (
            json!({"systemError": "registry is down"}),
            "portolan-verifier cannot answer: registry is down",
        ),
        (
            json!({"systemError": "down", "items": [{"key": KEY, "value": {"isSuccess": true}}]}),
            "cannot answer: down",
        ),
        (json!({"items": [{"key": KEY, "error": "BAD_KEY: no"}]}), "linux/arm64: BAD_KEY: no"),
        (
            json!({"items": [{"key": KEY, "error": "x", "value": {"isSuccess": true}}]}),
            "linux/arm64: x",
        ),
        (item(json!({"isSuccess": false})), "no reason is given"),
        (item(json!({"succeeded": true})), "no reason is given"),
        (item(json!({"isSuccess": "true"})), "no reason is given"),
        (item(json!({"isSuccess": 1})), "no reason is given"),
        (item(json!("yes")), "no reason is given"),
        (item(json!(null)), "no reason is given"),
        (
            item(
                json!({"isSuccess": false, "reasons": [{"code": "NOT_SIGNED", "message": "not signed"}]}),
            ),
            "linux/arm64: not signed",
        ),
        (
            item(json!({"isSuccess": false, "verifierReports": [
                {"isSuccess": true, "message": "fine"}, {"isSuccess": false, "message": "wrong key"},
            ]})),
            "linux/arm64: wrong key",
        ),
        (json!({}), "said nothing of it"),
        (
            json!({"items": [{"key": format!(" {KEY}"), "value": {"isSuccess": true}}]}),
            "said nothing of it",
        ),
    ] {
        let said = said(response.clone());
        assert_eq!(said.len(), 1, "{response}: {said:?}");
        assert!(said[0].contains(part), "{response}: {said:?}");
        assert!(said[0].starts_with(of_image) || part.contains("cannot answer"), "{said:?}");
    }
}

#[test]
fn what_cannot_be_meant_or_has_no_pod_is_a_violation() {
    let violations = |object: &Value, parameters: Value| match SHIPPED
        .run(object, &parameters, &Answers::none_yet())
        .unwrap()
    {
        Outcome::Violations(violations) => violations.join("; "),
        Outcome::Asks(keys) => panic!("{keys:?}"),
    };
    for (parameters, part) in [
        (json!({"default": "list"}), "default: list needs platforms"),
        (json!({"default": "list", "platforms": []}), "default: list needs platforms"),
        (json!({"default": "host"}), "default: host needs host with os and arch"),
        (json!({"default": "host", "host": {"os": "linux"}}), "needs host with os and arch"),
        (json!({"partial": "host"}), "partial: host needs host"),
        (json!({"default": "nodes"}), "default: nodes is not policy, host, all or list"),
        (json!({"partial": "x"}), "partial: x is not wildcard or host"),
    ] {
        let said = violations(&arm_pod(), parameters);
        assert!(
            said.contains("the parameters of this constraint are wrong") && said.contains(part),
            "{said}"
        );
    }
    let service = json!({"kind": "Service", "metadata": {}});
    assert!(violations(&service, json!({})).contains("no pod in this object"));
    for (list, value) in [("initContainers", json!({"a": {"name": "a"}})), ("volumes", json!("x"))]
    {
        let mut pod = arm_pod();
        pod["spec"]["containers"] = json!([]);
        pod["spec"][list] = value;
        let said = violations(&pod, json!({}));
        assert!(said.contains(&format!("{list} is no list")), "{said}");
    }
    let imageless = json!({"kind": "Pod", "spec": {"containers": [{"name": "app"}]}});
    assert_eq!(violations(&imageless, json!({})), "containers app has no image");
    for image in
        [json!({}), json!({"reference": 7}), json!({"reference": ""}), json!("x"), json!(null)]
    {
        let mut pod = arm_pod();
        pod["spec"]["containers"] = json!([]);
        pod["spec"]["volumes"] = json!([{"name": "model", "image": image}]);
        let said = violations(&pod, json!({}));
        assert!(said.contains("volumes model has no image"), "{image}: {said}");
    }
    let mut pod = arm_pod();
    pod["spec"]["containers"][0]["image"] = json!("");
    assert!(violations(&pod, json!({})).contains("has no image"));
}

/// `not f(x)` with an x that is not there is undefined to OPA, and a silent pass; the engine that
/// these tests run on says yes. So nothing is negated but rules and functions of our own.
#[test]
fn the_shipped_rego_negates_no_builtin() {
    let lines: Vec<_> = super::TEMPLATE.lines().map(str::trim_start).collect();
    let negated = lines.iter().flat_map(|line| line.split("; ")).filter_map(|part| {
        let name = part.trim_start().strip_prefix("not ")?;
        Some(name.split_once('(')?.0.trim_start_matches("portolan_pod."))
    });
    let negated: Vec<_> = negated.collect();
    assert!(negated.len() > 5, "{negated:?}");
    for name in negated {
        let head = format!("{name}(");
        assert!(lines.iter().any(|line| line.starts_with(&head)), "{name} is a builtin");
    }
}

/// In the manner of the default templates of Ratify's two generations: each asks whether its own flag
/// is false. The names are `isSuccess` and `succeeded`.
fn by_flag(flag: &str) -> Evaluator {
    let rego = format!(
        r#"package flags
answers = found {{
  keys := [image | image := input.review.object.spec.containers[_].image]
  found := external_data({{"provider": "p", "keys": keys}})
}}
violation[{{"msg": "broken"}}] {{ answers.system_error != "" }}
violation[{{"msg": "error"}}] {{ count(answers.errors) > 0 }}
violation[{{"msg": "no"}}] {{
  answer := answers.responses[_]
  answer[1].{flag} == false
}}
"#
    );
    Evaluator::new(&Template::among(&[template(&rego)]).unwrap()).unwrap()
}

#[test]
fn templates_of_both_generations_of_ratify_refuse_what_is_refused() {
    use crate::decision::{Answer, Verdict, no_policy};
    let key = "r.example/app:1";
    let reference = key.parse().unwrap();
    let looked = |verdict| {
        let mut answers = Answers::none_yet();
        answers.looked(key, &reference, &Answer { verdict, ..no_policy(&reference) }).unwrap();
        answers
    };
    let mut error = Answers::none_yet();
    error.refused(key, "BAD_KEY: no");
    let broken = br#"{"response": {"systemError": "down"}}"#;
    for flag in ["isSuccess", "succeeded"] {
        for (answers, expected) in [
            (looked(Verdict::Verified), &[][..]),
            (looked(Verdict::Refused), &["no"]),
            (error.clone(), &["error"]),
            (Answers::from_json(broken).unwrap(), &["broken"]),
        ] {
            let outcome = by_flag(flag).run(&arm_pod(), &json!({}), &answers).unwrap();
            let expected = expected.iter().map(|&text| text.to_owned()).collect();
            assert_eq!(outcome, Outcome::Violations(expected), "{flag}: {answers:?}");
        }
    }
}

/// In the manner of Ratify's published templates: every report is a success, and one of them is of the
/// notation verifier with this issuer.
const BY_ISSUER: &str = r#"package issuers
reports[report] {
  response := external_data({"provider": "p", "keys": ["r.example/app:1"]}).responses[_]
  report := response[1].verifierReports[_]
}
violation[{"msg": "not by the issuer"}] {
  count({report | report := reports[_]; report.type == "notation"; report.extensions.Issuer == "CN=root"}) == 0
}
violation[{"msg": "a report is no success"}] { reports[_].isSuccess == false }
"#;

/// What is tried here is answered as the verifier answers, in the words that other templates read.
#[test]
fn templates_that_read_reports_of_the_notation_verifier_find_them() {
    use crate::decision::{SignatureAnswer, SubjectAnswer, Verdict, no_policy};
    use crate::evidence::SignatureKind;
    let reference = "r.example/app:1".parse().unwrap();
    let digest = portolan_core::Digest::sha256(b"image");
    let signature = SignatureAnswer {
        artifact: digest,
        tag: None,
        kind: SignatureKind::Notation,
        signer: "acme".to_owned(),
        accepted: true,
        identity: Some("CN=build".to_owned()),
        issuer: Some("CN=root".to_owned()),
        signed_at: None,
        predicate_type: None,
        checks: Vec::new(),
        warnings: Vec::new(),
        code: None,
        message: None,
    };
    let answer = |signature: SignatureAnswer| crate::decision::Answer {
        verdict: Verdict::Verified,
        digest: Some(digest),
        reasons: Vec::new(),
        subjects: vec![SubjectAnswer {
            digest,
            media_type: "m".to_owned(),
            kind: crate::subject::Kind::Manifest,
            platform: None,
            verified: true,
            signatures: vec![signature],
            passed_over: Vec::new(),
            reasons: Vec::new(),
            facts: None,
        }],
        ..no_policy(&reference)
    };
    let theirs = Evaluator::new(&Template::among(&[template(BY_ISSUER)]).unwrap()).unwrap();
    for (kind, issuer, expected) in [
        (SignatureKind::Notation, "CN=root", vec![]),
        (SignatureKind::Notation, "CN=other", vec!["not by the issuer".to_owned()]),
        (SignatureKind::Bundle, "CN=root", vec!["not by the issuer".to_owned()]),
    ] {
        let mut answers = Answers::none_yet();
        let signature =
            SignatureAnswer { kind, issuer: Some(issuer.to_owned()), ..signature.clone() };
        answers.looked("r.example/app:1", &reference, &answer(signature)).unwrap();
        let outcome = theirs.run(&arm_pod(), &json!({}), &answers).unwrap();
        assert_eq!(outcome, Outcome::Violations(expected), "{kind:?} {issuer}");
    }
}

fn template(rego: &str) -> Value {
    json!({"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "spec": {
        "crd": {"spec": {"names": {"kind": "Other"}}},
        "targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": rego}],
    }})
}

/// Templates may be a stranger's.
#[test]
fn other_templates_are_read_bounded_and_named_when_wrong() {
    let run = |object: Value| {
        let template = Template::among(&[object]).map_err(|error| error.to_string())?;
        let evaluator = Evaluator::new(&template).map_err(|error| error.to_string())?;
        evaluator.run(&arm_pod(), &json!({}), &Answers::none_yet()).map_err(|e| e.to_string())
    };
    let none = Outcome::Violations(Vec::new());
    assert_eq!(run(template("package a\nviolation[{\"msg\": \"x\"}] { false }")), Ok(none));
    let mut v1 = template("");
    v1["spec"]["targets"][0] = json!({"target": "admission.k8s.gatekeeper.sh", "code": [
        {"engine": "K8sNativeValidation", "source": {}},
        {"engine": "Rego", "source": {"version": "v1",
            "rego": "package a\nviolation contains {\"msg\": \"x\"} if { input.review.kind.kind == \"Pod\" }"}},
    ]});
    assert_eq!(run(v1), Ok(Outcome::Violations(vec!["x".to_owned()])));
    let endless = "package a\nviolation[{\"msg\": \"x\"}] { n := [1, 2, 3, 4, 5, 6, 7, 8, 9]; x := [p | a := n[_]; b := n[_]; c := n[_]; p := (a * b) * c]; x[_] * x[_] * x[_] < 0 }";
    let error = run(template(endless)).unwrap_err();
    assert!(error.contains("broke down") && error.contains("time"), "{error}");
    let set = run(template("package a\nviolation = 7 { true }")).unwrap_err();
    assert!(set.contains("not a set"), "{set}");
    for (object, part) in [
        (json!({}), "has 0 ConstraintTemplates"),
        (
            json!({"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate"}),
            "no spec.crd",
        ),
        (template("no rego"), "is not Rego"),
        (
            template("package a\nviolation[x] { x := numbers.range(1, 1000000000)[_] }"),
            "numbers.range, which has no bound",
        ),
        (template("package a\nviolation[x] { x := sprintf(\"%½d\", [1]) }"), "\"%½\""),
        (
            template("package a\nviolation[x] { x := sprintf(\"%4000000000d\", [1]) }"),
            "\"%4000000000\"",
        ),
        (
            template(
                "package a\nviolation[x] { x := sprintf(concat(\"\", [\"%\", \"½d\"]), [1]) }",
            ),
            "broke down: the engine panicked",
        ),
        (template("package a\nf(x) = f(x) { true }\nviolation[x] { x := f(1) }"), "f calls itself"),
        (template("package a\nviolation[x] { x := r }\nr { violation[_] }"), "broke down"),
        (template(&format!("package a\nx = {}{}", "[".repeat(900), "]".repeat(900))), "12 deep"),
    ] {
        let error = run(object).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    assert!(documents(b"a: [").unwrap_err().to_string().contains("document 1"));
    assert!(documents(&vec![b' '; 2_000_000]).unwrap_err().to_string().contains("at most"));
}

#[test]
fn what_is_rendered_is_what_is_tried() {
    let parameters = Parameters::new("mine", &unseen(settings("linux/amd64,linux/arm64")));
    let options = super::render::Options {
        parameters,
        url: Some("https://verifier.example:1/v".to_owned()),
        authority: Some(b"PEM".to_vec()),
        action: "warn".to_owned(),
        pin: false,
    };
    let text = super::render::yaml(&options).unwrap();
    let all = documents(text.as_bytes()).unwrap();
    assert_eq!(all, super::render::objects(&options).unwrap());
    let template = Template::among(&all).unwrap();
    let constraint = template.constraints(&all).remove(0);
    assert_eq!(constraint.name, "verified-images");
    assert_eq!(constraint.parameters["provider"], "mine");
    assert_eq!(asked(&pod_of(&json!({})), &constraint.parameters).len(), 2);
    let provider = all.iter().find(|one| one["kind"] == "Provider").unwrap();
    assert_eq!(provider["metadata"]["name"], "mine");
    assert_eq!(
        provider["spec"],
        json!({"url": "https://verifier.example:1/v", "timeout": 5, "caBundle": "UEVN"})
    );
    assert_eq!(all[1]["spec"]["enforcementAction"], "warn");
}

#[test]
fn pinning_is_rendered_beside_verifying() {
    let options = super::render::Options {
        parameters: Parameters::new("mine", &unseen(settings("linux/amd64"))),
        url: Some("https://verifier.example:1/ratify/gatekeeper/v1/verify".to_owned()),
        authority: Some(b"PEM".to_vec()),
        action: "deny".to_owned(),
        pin: true,
    };
    let all = super::render::objects(&options).unwrap();
    let provider = all.iter().find(|one| one["metadata"]["name"] == "portolan-mutator").unwrap();
    let url = "https://verifier.example:1/ratify/gatekeeper/v1/mutate";
    assert_eq!(provider["spec"], json!({"url": url, "timeout": 2, "caBundle": "UEVN"}));
    let assigns: Vec<_> = all.iter().filter(|one| one["kind"] == "Assign").collect();
    let places: Vec<_> = assigns.iter().map(|one| one["spec"]["location"].clone()).collect();
    let place = |list: &str| json!(format!("spec.{list}[name:*].image"));
    assert_eq!(places, [place("containers"), place("initContainers")]);
    for assign in assigns {
        let operations = &assign["spec"]["applyTo"][0]["operations"];
        assert_eq!(*operations, json!(["CREATE"]), "what runs is not restarted: {assign}");
        let data = &assign["spec"]["parameters"]["assign"]["externalData"];
        assert_eq!(data["provider"], provider["metadata"]["name"], "{assign}");
        assert_eq!(data["failurePolicy"], "Fail", "what cannot be resolved is refused: {assign}");
    }
}

/// Every parameter that can be written is one that the template's schema knows, of its type.
#[test]
fn the_schema_knows_every_parameter() {
    let all = documents(super::TEMPLATE.as_bytes()).unwrap();
    let schema = &all[0]["spec"]["crd"]["spec"]["validation"]["openAPIV3Schema"];
    let mut settings = unseen(settings("linux/arm64/v9"));
    settings.partial = PartialMeaning::Host;
    settings.os_labels.push("example.com/os".to_owned());
    let parameters = json!(Parameters::new("p", &settings).sending_namespace(true));
    let written = parameters.as_object().unwrap();
    assert_eq!(written.len(), 10, "all of them: {parameters}");
    for (name, value) in written {
        check(value, &schema["properties"][name]);
    }
}

/// As much of structural schemas as ours has.
fn check(value: &Value, schema: &Value) {
    match schema["type"].as_str().unwrap_or_else(|| panic!("{value} is not in the schema")) {
        "string" => assert!(value.is_string(), "{value}"),
        "boolean" => assert!(value.is_boolean(), "{value}"),
        "array" => value.as_array().unwrap().iter().for_each(|one| check(one, &schema["items"])),
        "object" => value.as_object().unwrap().iter().for_each(|(name, one)| {
            let named = schema["properties"].get(name);
            check(one, named.unwrap_or_else(|| &schema["additionalProperties"]));
        }),
        other => panic!("{other}"),
    }
    let allowed = schema["enum"].as_array();
    assert!(allowed.is_none_or(|all| all.contains(value)), "{value}: {schema}");
}
