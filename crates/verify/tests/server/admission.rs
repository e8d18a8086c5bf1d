//! The webhook of Kubernetes itself.

use portolan_verify::sign::Form;
use serde_json::{Value, json};

use crate::harness::{ADMISSION, Bench, LONG, Said, V1, Verifier, policy};

fn review(operation: &str, object: &Value, old: &Value) -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "namespace": "team",
            "operation": operation, "object": object, "oldObject": old,
        },
    })
    .to_string()
}

fn pod(image: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "main", "image": image}]});
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

async fn create(verifier: &Verifier, object: &Value) -> Said {
    let said = verifier.post(ADMISSION, review("CREATE", object, &Value::Null)).await;
    assert_eq!(said.status, 200);
    assert_eq!(said.body["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(said.body["kind"], "AdmissionReview");
    assert_eq!(said.body["response"]["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
    said
}

#[track_caller]
fn allowed(said: &Said) -> bool {
    said.body["response"]["allowed"].as_bool().unwrap()
}

#[track_caller]
fn denied(said: &Said) -> &str {
    assert!(!allowed(said), "{}", said.body);
    assert_eq!(said.body["response"]["status"]["code"], 403);
    said.body["response"]["status"]["message"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_let_in_where_it_might_run_signed_images_only() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.write("policy.yaml", &policy("  platforms: all\n"));
    let verifier = bench.start().await;
    let image = bench.image(":v1");
    let arch = |values: &[&str]| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": values},
            ]}],
        }}}})
    };
    let selected = |arch: &str| json!({"nodeSelector": {"kubernetes.io/arch": arch, "kubernetes.io/os": "linux"}});
    for (more, expected) in [
        (selected("amd64"), true),
        (selected("arm64"), false),
        (arch(&["amd64"]), true),
        (arch(&["amd64", "arm64"]), false),
        (json!({}), false),
        (
            json!({"tolerations": [{"key": "kubernetes.io/arch", "operator": "Equal", "value": "amd64"}]}),
            false,
        ),
    ] {
        let said = create(&verifier, &pod(&image, more.clone())).await;
        assert_eq!(allowed(&said), expected, "{more}: {}", said.body);
    }
    let said = create(&verifier, &pod(&image, selected("arm64"))).await;
    let message = denied(&said);
    for part in [&image, &bench.child("arm64").digest.to_string(), "linux/arm64", "NOT_SIGNED"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_image_of_every_shape_is_looked_at() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let other = crate::support::image::Image::single("linux/amd64", &[20], 9);
    bench.registry.registry().repositories.get_mut("team/app").unwrap().hold(&other, "unsigned");
    let verifier = bench.start().await;
    let (good, bad) = (bench.image(":v1"), bench.image(":unsigned"));
    let container = |image: &str| json!([{"name": "x", "image": image}]);
    let volume = |image: &str| json!([{"name": "v", "image": {"reference": image}}, {"name": "e", "emptyDir": {}}]);
    for (name, with) in [
        ("initContainers", &container as &dyn Fn(&str) -> Value),
        ("ephemeralContainers", &container),
        ("volumes", &volume),
    ] {
        let said = create(&verifier, &pod(&good, json!({name: with(&good)}))).await;
        assert!(allowed(&said), "{name}: {}", said.body);
        let said = create(&verifier, &pod(&good, json!({name: with(&bad)}))).await;
        let message = denied(&said);
        assert!(message.contains(&bad) && !message.contains(&good), "{name}: {message}");
    }
    for (image, expected) in [(&good, true), (&bad, false)] {
        let spec = pod(image, json!({}))["spec"].clone();
        let deployment = json!({"kind": "Deployment", "spec": {"template": {"spec": spec}}});
        let cron = json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}});
        for object in [deployment, cron] {
            let said = create(&verifier, &object).await;
            assert_eq!(allowed(&said), expected, "{object}: {}", said.body);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_decided_is_denied() {
    let bench = Bench::new();
    let verifier = bench.start().await;
    for (object, why) in [
        (json!({"kind": "ConfigMap", "data": {}}), "no pod in it"),
        (Value::Null, "no pod in it"),
        (json!({"spec": {"containers": []}}), "without an image"),
        (json!({"spec": {"containers": [{"name": "x"}]}}), "without an image"),
        (json!({"spec": {"containers": [{"image": ""}]}}), "without an image"),
        (json!({"spec": {"containers": [{"image": 7}]}}), "without an image"),
        (json!({"spec": {"containers": [{"image": "UPPER CASE"}]}}), "BAD_KEY"),
        (
            json!({"spec": {"containers": [{"image": "a.example/a"}], "initContainers": {"x": {"image": "b"}}}}),
            "initContainers is no list",
        ),
        (
            json!({"spec": {"containers": [{"image": "a.example/a"}], "volumes": "x"}}),
            "volumes is no list",
        ),
        (json!({"spec": {"containers": [{"image": "oci:/etc:1"}]}}), "BAD_KEY"),
        (
            json!({"spec": {"nodeSelector": 7, "containers": [{"image": "a.example/a"}]}}),
            "not that of a pod",
        ),
    ] {
        let said = create(&verifier, &object).await;
        let message = denied(&said);
        assert!(message.contains(why), "{object}: {message}");
    }
    let many: Vec<_> = (0..300).map(|n| json!({"image": format!("a.example/a{n}")})).collect();
    let said = create(&verifier, &json!({"spec": {"containers": many}})).await;
    assert!(denied(&said).contains("more than 256"));
    assert!(bench.registry.seen().is_empty());
    for body in ["", "{", "{}", "{\"request\":null}", "{\"request\":{\"uid\":1}}"] {
        let said = verifier.post(ADMISSION, body).await;
        assert_eq!(said.status, 400, "{body}");
        assert_eq!(said.body["response"]["allowed"], false, "{body}: {}", said.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_is_looked_at_where_something_else_might_run() {
    let bench = Bench::new();
    bench.sign(&bench.image.top, Form::Bundle).await;
    let verifier = bench.start().await;
    let unsigned = bench.image(":v1");
    let old = pod(&unsigned, json!({}));
    let update = async |object: &Value, old: &Value| {
        allowed(&verifier.post(ADMISSION, review("UPDATE", object, old)).await)
    };
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert!(update(&labelled, &old).await, "what runs already may be labelled");
    // kubectl debug
    let other = bench.image(":gone");
    let debugged = pod(&unsigned, json!({"ephemeralContainers": [{"name": "d", "image": other}]}));
    assert!(!update(&debugged, &old).await, "a new container is looked at");
    let same = pod(&unsigned, json!({"ephemeralContainers": [{"name": "d", "image": unsigned}]}));
    assert!(!update(&same, &old).await, "whatever its image is that of");
    assert!(update(&same, &same).await, "and then it is known");
    let moved = pod(&unsigned, json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}));
    assert!(!update(&moved, &old).await, "the same image elsewhere is another question");
    assert!(!update(&old, &Value::Null).await, "nothing known of before is no excuse");
    let said = verifier.post(ADMISSION, review("DELETE", &Value::Null, &old)).await;
    assert!(allowed(&said), "{}", said.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_mode_admits_with_warnings() {
    let bench = Bench::new();
    let verifier = bench.start_with("mode = \"audit\"", LONG).await;
    let image = bench.image(":v1");
    let said = create(&verifier, &pod(&image, json!({}))).await;
    assert!(allowed(&said), "{}", said.body);
    let warning = said.body["response"]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("would be denied") && warning.contains(&image), "{warning}");
    assert!(warning.len() <= 256, "API servers cut what is longer");
    let said = create(&verifier, &pod("127.0.0.1:1/a/b:1", json!({}))).await;
    assert!(allowed(&said), "a breakdown too: {}", said.body);
    let audited = "portolan_verifier_admissions_total{outcome=\"audited\"}";
    assert_eq!(verifier.metric(audited).await, 2.0);
}

/// A tag may move between the answer and the pull.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_warned_of_refused_or_allowed_as_configured() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let digest = bench.image.top.digest;
    let (tag, pinned) = (bench.image(":v1"), bench.image(&format!("@{digest}")));
    for (tags, allows, warns) in
        [("", true, true), ("warn", true, true), ("refuse", false, false), ("allow", true, false)]
    {
        let line = if tags.is_empty() { String::new() } else { format!("tags = \"{tags}\"") };
        let verifier = bench.start_with("", &format!("{LONG}\n[admission]\n{line}\n")).await;
        let said = create(&verifier, &pod(&tag, json!({}))).await;
        assert_eq!(allowed(&said), allows, "{tags}: {}", said.body);
        let warnings = said.body["response"]["warnings"].to_string();
        assert_eq!(warnings.contains("which may move"), warns, "{tags}: {warnings}");
        // What else a yes does not cover is told in any case.
        assert_eq!(warnings.contains("linux/arm64"), allows, "{tags}: {warnings}");
        let outcome = if allows { "allowed" } else { "denied" };
        let metric = format!("portolan_verifier_admissions_total{{outcome=\"{outcome}\"}}");
        assert_eq!(verifier.metric(&metric).await, 1.0, "a warning is not an audit");
        let by_digest = create(&verifier, &pod(&pinned, json!({}))).await;
        assert!(allowed(&by_digest), "{tags}: {}", by_digest.body);
        assert!(!by_digest.body.to_string().contains("which may move"), "{}", by_digest.body);
    }
    let config = format!("{LONG}\n[admission]\ntags = \"refuse\"\n");
    let verifier = bench.start_with("", &config).await;
    let said = create(&verifier, &pod(&tag, json!({}))).await;
    let message = denied(&said);
    assert!(message.contains("TAG") && message.contains(&digest.to_string()), "{message}");
    let auditing = bench.start_with("mode = \"audit\"", &config).await;
    let said = create(&auditing, &pod(&tag, json!({}))).await;
    assert!(said.body["response"]["warnings"].to_string().contains("would be denied"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exempt_namespace_is_let_in() {
    let bench = Bench::new();
    let exempt = format!("{LONG}\n[exempt]\nnamespaces = [\"team\"]\n");
    let verifier = bench.start_with("", &exempt).await;
    assert!(allowed(&create(&verifier, &pod(&bench.image(":v1"), json!({}))).await));
    assert!(bench.registry.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_the_cluster_mean_what_is_configured() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.write("policy.yaml", &policy("  platforms: all\n"));
    let pods = format!(
        "{LONG}\n[pods]\narch_labels = [\"example.com/cpu\"]\n[pods.values]\nintel = \"amd64\"\n\
         [pods.labels.\"example.com/pool\"]\nbig = \"linux/amd64\"\n"
    );
    let verifier = bench.start_with("", &pods).await;
    for (label, value) in [("example.com/cpu", "intel"), ("example.com/pool", "big")] {
        let object = pod(&bench.image(":v1"), json!({"nodeSelector": {label: value}}));
        let said = create(&verifier, &object).await;
        assert!(allowed(&said), "{label}: {}", said.body);
    }
    let object = pod(&bench.image(":v1"), json!({"nodeSelector": {"example.com/pool": "small"}}));
    assert!(!allowed(&create(&verifier, &object).await));
}

/// Otherwise one pod of many images would make everybody else be turned away.
#[tokio::test(flavor = "multi_thread")]
async fn one_pod_does_not_take_all_places_to_wait_in() {
    let bench = Bench::new();
    let tags: Vec<_> = (0..60).map(|n| format!("t{n}")).collect();
    for (n, tag) in tags.iter().enumerate() {
        let image = crate::support::image::Image::single("linux/amd64", &[20], n as u64 + 100);
        bench.registry.registry().repositories.get_mut("team/app").unwrap().hold(&image, tag);
    }
    let few = format!("{LONG}\n[limits]\nwaiting = 10\n");
    let verifier = bench.start_with("", &few).await;
    let images: Vec<_> = tags.iter().map(|tag| bench.image(&format!(":{tag}"))).collect();
    let containers: Vec<_> = images.iter().map(|image| json!({"image": image})).collect();
    let said = create(&verifier, &pod(&images[0], json!({"containers": containers}))).await;
    let message = denied(&said);
    assert!(message.contains("NOT_SIGNED") && !message.contains("limits.waiting"), "{message}");

    let verifier = bench.start_with("", &few).await;
    let keys: Vec<_> = images.iter().map(String::as_str).collect();
    let said = verifier.ask(V1, &keys).await;
    assert!(said.items().iter().all(|item| item["value"]["isSuccess"] == false), "{}", said.body);
}
