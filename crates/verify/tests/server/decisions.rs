//! Yes and no, in both shapes.

use portolan_core::Digest;
use portolan_verify::sign::Form;
use portolan_verify::template::answers::Answers;
use portolan_verify::template::evaluate::{Evaluator, Outcome};
use portolan_verify::template::read::Template;
use serde_json::{Value, json};

use crate::harness::{Bench, LONG, SHORT, V1, V2, policy, until};
use crate::support::fault::Fault;
use crate::support::image::Image;

fn kinds(value: &Value) -> Vec<(String, bool)> {
    let subjects = value["subjects"].as_array().unwrap().iter();
    subjects
        .map(|one| {
            let platform = one["platform"].as_str().unwrap_or("index").to_owned();
            (platform, one["isSuccess"].as_bool().unwrap())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn case_1_index_and_platform_image_signed_is_a_yes_with_two_subjects() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
    assert_eq!(said.status, 200);
    assert_eq!(said.body["apiVersion"], "externaldata.gatekeeper.sh/v1alpha1");
    assert_eq!(said.body["kind"], "ProviderResponse");
    assert!(said.body["response"].get("idempotent").is_none());
    let value = said.value();
    assert_eq!((&value["isSuccess"], &value["version"]), (&json!(true), &json!("0.2.0")));
    assert_eq!(kinds(value), [("index".to_owned(), true), ("linux/amd64".to_owned(), true)]);
    let (top, child) = (bench.image.top.digest, bench.child("amd64").digest);
    assert_eq!(value["resolvedDigest"], top.to_string());
    assert_eq!(value["mediaType"], bench.image.top.media_type);
    assert_eq!(value["platforms"], json!(["linux/amd64"]));
    assert!(value["traceID"].as_str().unwrap().len() == 32, "{value}");
    assert!(value["timestamp"].as_str().unwrap().ends_with('Z'), "{value}");
    let reports = value["verifierReports"].as_array().unwrap();
    let of: Vec<_> = reports.iter().map(|one| one["subject"].as_str().unwrap()).collect();
    let name = |digest: Digest| format!("{}@{digest}", bench.image(""));
    assert_eq!(of, [name(top), name(child)]);
    assert!(reports.iter().all(|one| one["isSuccess"] == true && one["verifierName"] == "release"));
    assert!(value["warnings"][0].as_str().unwrap().contains("tag"), "{value}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_shape_says_the_same() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let said = verifier.ask(V2, &[&bench.key_for("amd64"), &bench.key_for("arm64")]).await;
    assert_eq!(said.body["apiVersion"], "externaldata.gatekeeper.sh/v1beta1");
    let [yes, no] = said.items() else { panic!("{}", said.body) };
    let (yes, no) = (&yes["value"], &no["value"]);
    assert_eq!((&yes["succeeded"], &no["succeeded"]), (&json!(true), &json!(false)));
    let report = &yes["artifactReports"][0];
    assert_eq!(report["subject"], format!("{}@{}", bench.image(""), bench.image.top.digest));
    assert_eq!(report["results"][0]["verifierName"], "release");
    let detail: Value =
        serde_json::from_str(report["results"][0]["detail"].as_str().unwrap()).unwrap();
    let fingerprint = format!("sha256:{}", bench.key.public().fingerprint());
    assert_eq!(detail["identity"], fingerprint);
    assert_eq!(report["artifactReports"], json!([]));
    let lacks = no["artifactReports"].as_array().unwrap().last().unwrap();
    assert!(lacks["subject"].as_str().unwrap().contains(&bench.child("arm64").digest.to_string()));
    let why = lacks["results"][0]["errorReason"].as_str().unwrap();
    assert!(why.starts_with("NOT_SIGNED: "), "{why}");
}

/// In the manner of the default templates of Ratify's two generations.
fn by_flag(flag: &str) -> Evaluator {
    let rego = format!(
        r#"package flags
answers = found {{
  keys := [image | image := input.review.object.spec.containers[_].image]
  found := external_data({{"provider": "p", "keys": keys}})
}}
violation[{{"msg": answers.system_error}}] {{ answers.system_error != "" }}
violation[{{"msg": "error"}}] {{ count(answers.errors) > 0 }}
violation[{{"msg": "no"}}] {{ answers.responses[_][1].{flag} == false }}
"#
    );
    let spec = json!({"crd": {"spec": {"names": {"kind": "Flags"}}},
        "targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": rego}]});
    let template = json!({"apiVersion": "templates.gatekeeper.sh/v1",
        "kind": "ConstraintTemplate", "spec": spec});
    Evaluator::new(&Template::among(&[template]).unwrap()).unwrap()
}

/// Who moves to a verifier of another generation must not get one that admits everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_of_one_generation_refuses_at_the_route_of_the_other() {
    let bench = Bench::new();
    // Trouble is told as it is, not as a want of time, however slow the machine.
    let registries =
        "[defaults]\nstall_timeout = \"10s\"\nrequest_timeout = \"20s\"\nretries = 2\n";
    bench.write("registries.toml", registries);
    let patient = format!("{SHORT}\n[timeouts]\nverify = \"60s\"\n");
    let verifier = bench.start_with("", &patient).await;
    let key = bench.image(":v1");
    let pod = json!({"kind": "Pod", "spec": {"containers": [{"name": "a", "image": &key}]}});
    let says = async |route: &str, flag: &str| {
        let said = verifier.ask(route, &[&key]).await.body.to_string();
        let answers = Answers::from_json(said.as_bytes()).unwrap();
        match by_flag(flag).run(&pod, &json!({}), &answers).unwrap() {
            Outcome::Violations(violations) => violations,
            Outcome::Asks(keys) => panic!("{keys:?}"),
        }
    };
    let all = [V1, V2].into_iter().flat_map(|route| [(route, "isSuccess"), (route, "succeeded")]);
    for (route, flag) in all.clone() {
        assert_eq!(says(route, flag).await, ["no"], "{route} {flag}: nothing is signed");
    }
    bench.sign_amd64().await;
    for (route, flag) in all.clone() {
        until(async || says(route, flag).await.is_empty()).await;
    }
    let tag = "/manifests/v1";
    for method in ["GET", "HEAD"] {
        bench.registry.always(method, tag, Fault::status(500));
    }
    for (route, flag) in all {
        until(async || says(route, flag).await.iter().any(|why| why.contains("REGISTRY"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn case_2_an_index_signed_alone_passes_only_where_that_is_enough() {
    let bench = Bench::new();
    bench.sign(&bench.image.top, Form::Simple).await;
    for (index_policy, success) in
        [("both", false), ("any", true), ("index", true), ("platform", false)]
    {
        bench.write("policy.yaml", &policy(&format!("  indexPolicy: {index_policy}\n")));
        let verifier = bench.start().await;
        let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
        assert_eq!(said.value()["isSuccess"], success, "{index_policy}: {}", said.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn case_3_a_platform_image_signed_alone_passes_only_where_that_is_enough() {
    let bench = Bench::new();
    bench.sign(&bench.child("amd64"), Form::Simple).await;
    for (index_policy, success) in
        [("both", false), ("any", true), ("index", false), ("platform", true)]
    {
        bench.write("policy.yaml", &policy(&format!("  indexPolicy: {index_policy}\n")));
        let verifier = bench.start().await;
        let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
        assert_eq!(said.value()["isSuccess"], success, "{index_policy}: {}", said.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn case_4_another_platform_signed_is_a_no_that_names_the_image_asked_for() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let said = verifier.ask(V1, &[&bench.key_for("arm64")]).await;
    let value = said.value();
    assert_eq!(value["isSuccess"], false);
    let child = bench.child("arm64").digest.to_string();
    let report = value["verifierReports"].as_array().unwrap().last().unwrap();
    assert!(report["subject"].as_str().unwrap().ends_with(&child), "{report}");
    assert_eq!(report["errorReason"], "NOT_SIGNED");
    assert!(value["reasons"][0]["message"].as_str().unwrap().contains(&child), "{value}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_5_a_platform_that_is_not_there_is_a_no_that_lists_what_is() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let said = verifier.ask(V1, &[&bench.key_for("riscv64")]).await;
    let value = said.value();
    assert_eq!(value["isSuccess"], false);
    let report = &value["verifierReports"][0];
    assert_eq!(report["errorReason"], "PLATFORM_NOT_FOUND");
    let message = report["message"].as_str().unwrap();
    assert!(message.contains("linux/amd64, linux/arm64"), "{message}");
    let said = verifier.ask(V2, &[&bench.key_for("riscv64")]).await;
    let why = &said.value()["artifactReports"][0]["results"][0]["errorReason"];
    assert!(why.as_str().unwrap().starts_with("PLATFORM_NOT_FOUND: "), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_6_a_plain_key_is_for_the_hosts_platform() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let said = verifier.ask(V1, &[&bench.image(":v1")]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    assert_eq!(said.value()["platforms"], json!(["linux/amd64"]));
    let warnings = said.value()["warnings"].to_string();
    assert!(warnings.contains("linux/arm64"), "what was not looked at is said: {warnings}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_7_one_image_without_an_index_is_its_own_only_subject() {
    let bench = Bench::holding(Image::single("linux/arm64", &[10], 3));
    bench.sign(&bench.image.top, Form::Bundle).await;
    let verifier = bench.start().await;
    let said = verifier.ask(V1, &[&bench.image(":v1")]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    assert_eq!(kinds(said.value()), [("linux/arm64".to_owned(), true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_no_policy_speaks_of_is_a_no() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let text = policy("").replace(
        "default:\n  require",
        "scopes:\n  - name: other\n    match: [other.example]\n    rule:\n      require",
    );
    bench.write("policy.yaml", &text);
    let verifier = bench.start().await;
    let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
    assert_eq!(said.value()["isSuccess"], false);
    assert_eq!(said.value()["verifierReports"][0]["errorReason"], "NO_POLICY");
    assert_eq!(bench.registry.count("GET", "/manifests/v1"), 0, "nobody needs to look");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_mode_lets_everything_in_and_says_what_it_would_have_said() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start_with("mode = \"audit\"", LONG).await;
    let gone = bench.image(":gone");
    let keys = [&bench.key_for("amd64"), &bench.key_for("arm64"), gone.as_str(), "{"];
    for (path, flag) in [(V1, "isSuccess"), (V2, "succeeded")] {
        let said = verifier.ask(path, &keys).await;
        let items = said.items();
        assert!(items.iter().all(|item| item["value"][flag] == true), "{}", said.body);
        assert!(items[0]["value"].get("audit").is_none(), "{}", said.body);
        for item in &items[1..] {
            assert_eq!(item["value"]["audit"]["isSuccess"], false, "{item}");
        }
        assert_eq!(items[1]["value"]["reasons"][0]["code"], "PLATFORM_REFUSED");
        assert!(items[2]["value"]["audit"]["error"].as_str().unwrap().starts_with("NOT_FOUND"));
        assert!(items[3]["value"]["audit"]["error"].as_str().unwrap().starts_with("BAD_KEY"));
    }
    // What is no request is not let in by it.
    assert!(verifier.post(V1, "{").await.system_error().contains("ProviderRequest"));
}

#[tokio::test(flavor = "multi_thread")]
async fn exempt_namespaces_and_images_are_let_in_without_a_look_and_others_are_not() {
    let bench = Bench::new();
    let exempt = format!(
        "{LONG}\n[exempt]\nnamespaces = [\"kube-system\"]\nnamespaces_in_keys = true\nimages = [\"{}/*\"]\n",
        bench.image("").replace("app", "base")
    );
    let verifier = bench.start_with("", &exempt).await;
    let base = bench.image(":v1").replace("app", "base/os");
    let keys = [format!("[kube-system]{}", bench.key_for("amd64")), base];
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let said = verifier.ask(V1, &keys).await;
    for (item, why) in said.items().iter().zip(["kube-system", "base/*"]) {
        assert_eq!(item["value"]["isSuccess"], true, "{item}");
        assert!(item["value"]["exempt"].as_str().unwrap().contains(why), "{item}");
    }
    assert!(bench.registry.seen().is_empty(), "nobody looked");
    let other = format!("[kube-systems]{}", bench.image(":v1"));
    let said = verifier.ask(V1, &[&other]).await;
    assert_eq!(said.value()["isSuccess"], false, "{}", said.body);
}

/// Whoever asks may write any namespace into a key, and so may whoever names an image.
#[tokio::test(flavor = "multi_thread")]
async fn the_namespace_of_a_key_exempts_only_where_that_is_configured() {
    let bench = Bench::new();
    let exempt = format!("{LONG}\n[exempt]\nnamespaces = [\"kube-system\"]\n");
    let verifier = bench.start_with("", &exempt).await;
    let image = bench.image(":v1");
    let inside = serde_json::json!({"namespace": "kube-system", "reference": image}).to_string();
    for key in [format!("[kube-system]{image}"), inside] {
        let said = verifier.ask(V1, &[&key]).await;
        assert_eq!(said.value()["isSuccess"], false, "{}", said.body);
    }
}

/// A policy in Rego is told the namespace of a key, also where no namespace is exempt by its name.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_rego_is_told_the_namespace_of_a_key() {
    let bench = Bench::new();
    let rego = "package portolan\ndecision := {\"allow\": input.namespace == \"team\"}\n";
    bench.write("decision.rego", rego);
    let signers = "signers:\n  release: {keys: {files: [release.pub]}}\n";
    bench.write("policy.yaml", &format!("version: 1\n{signers}default: {{rego: decision.rego}}\n"));
    let verifier = bench.start().await;
    let image = bench.image(":v1");
    let inside = serde_json::json!({"namespace": "team", "reference": image}).to_string();
    for (key, expected) in [
        (inside, true),
        (format!("[team]{image}"), true),
        (format!("[other]{image}"), false),
        (image.clone(), false),
    ] {
        let said = verifier.ask(V1, &[&key]).await;
        assert_eq!(said.value()["isSuccess"], expected, "{key}: {}", said.body);
    }
}
