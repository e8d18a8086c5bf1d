//! `portolan verify template`, as people try their policies before a cluster does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::{generate, run, stocked, with_password};

fn write(home: &Path, name: &str, text: &str) -> String {
    std::fs::write(home.join(name), text).unwrap();
    home.join(name).display().to_string()
}

fn pod(image: &str, arch: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  nodeSelector:\n    \
         kubernetes.io/os: linux\n    kubernetes.io/arch: {arch}\n  containers:\n  - name: app\n    image: {image}\n"
    )
}

#[test]
fn what_is_rendered_can_be_tried_with_recorded_answers() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| write(home.path(), name, text);
    let render =
        |more: &[&str]| run(home.path(), &[&["verify", "template", "render"], more].concat());
    let authority = at("ca.crt", "-----BEGIN CERTIFICATE-----\n");
    let text =
        render(&["--provider", "mine", "--default", "linux/amd64,linux/arm64", "--ca", &authority]);
    assert_eq!(text.err, "");
    let template = at("gatekeeper.yaml", &text.ok());
    let object = at(
        "pod.yaml",
        "kind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: app, image: \"r.example/app:1\"}\n",
    );
    let key = |arch| format!(r#"{{"arch":"{arch}","os":"linux","reference":"r.example/app:1"}}"#);
    let answers = |amd: Value, arm: Value| {
        let items =
            json!([{"key": key("amd64"), "value": amd}, {"key": key("arm64"), "value": arm}]);
        at("answers.json", &json!({"response": {"items": items}}).to_string())
    };
    let test = |answers: &str, more: &[&str]| {
        let args = [
            "verify",
            "template",
            "test",
            "--template",
            &template,
            "-f",
            &object,
            "--answers",
            answers,
        ];
        run(home.path(), &[&args, more].concat())
    };
    let yes = json!({"isSuccess": true});
    let said = test(&answers(yes.clone(), yes.clone()), &["-o", "json"]);
    assert_eq!(said.code, 0, "{} {}", said.out, said.err);
    let told = said.answer();
    assert_eq!(told["admitted"], true);
    assert_eq!(told["results"][0]["constraint"], "verified-images");
    assert_eq!(told["results"][0]["keys"], json!([key("amd64"), key("arm64")]));

    let no = json!({"isSuccess": false, "reasons": [{"message": "isn't\u{1b}[31m signed"}]});
    let said = test(&answers(yes, no), &[]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert_eq!(
        said.out,
        "Pod/web: denied by verified-images\n  image r.example/app:1 for linux/arm64: isn't\\u{1b}[31m signed\n"
    );
    let broken = at("broken.json", r#"{"response": {"systemError": "it is down"}}"#);
    let said = test(&broken, &[]);
    assert_eq!(said.code, 1);
    assert!(said.out.contains("the provider mine cannot answer: it is down"), "{}", said.out);
    assert_eq!(test(&at("empty.json", "{}"), &[]).code, 2);
    assert_eq!(test(&home.path().join("gone").display().to_string(), &[]).code, 4);
}

#[test]
fn render_says_what_rego_cannot_know() {
    let home = tempfile::tempdir().unwrap();
    let render =
        |more: &[&str]| run(home.path(), &[&["verify", "template", "render"], more].concat());
    let all = render(&[
        "-o",
        "json",
        "--arch-label",
        "example.com/cpu",
        "--value",
        "graviton=arm64",
        "--pool",
        "example.com/pool=arm=linux/arm64",
    ]);
    assert!(all.err.contains("caBundle"), "{}", all.err);
    let all = all.json();
    let kinds: Vec<_> = all["items"].as_array().unwrap().iter().map(|one| &one["kind"]).collect();
    assert_eq!(kinds, ["ConstraintTemplate", "PortolanVerifiedImages", "Provider"]);
    assert_eq!(
        all["items"][1]["spec"]["parameters"],
        json!({
            "provider": "portolan-verifier", "default": "policy",
            "archLabels": ["example.com/cpu"], "values": {"graviton": "arm64"},
            "labels": {"example.com/pool": {"arm": {"os": "linux", "arch": "arm64"}}},
        })
    );
    let host = render(&["-o", "json", "--default", "host", "--host", "linux/x86_64"]).json();
    let parameters = &host["items"][1]["spec"]["parameters"];
    assert_eq!(parameters["host"], json!({"os": "linux", "arch": "amd64"}));
    for (args, part) in [
        (&["--default", "nodes"][..], "platforms: nodes"),
        (&["--default", "host"], "--host"),
        (&["--partial", "host"], "--host"),
        (&["--default", "nonsense"], "policy, host, all"),
    ] {
        let said = render(args);
        assert_eq!(said.code, 2, "{args:?}");
        assert!(said.err.contains(part), "{args:?}: {}", said.err);
    }
}

/// In the manner of the default templates of Ratify's two generations: plain references, and a flag that
/// must not be false.
fn by_flag(flag: &str) -> String {
    format!(
        r#"apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {{name: flags}}
spec:
  crd: {{spec: {{names: {{kind: Flags}}}}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package flags
      answers = found {{
        keys := [image | image := input.review.object.spec.containers[_].image]
        found := external_data({{"provider": "p", "keys": keys}})
      }}
      violation[{{"msg": "no"}}] {{ answers.responses[_][1].{flag} == false }}
"#
    )
}

/// The whole way without a cluster: the shipped Rego, the policy, the signatures in a registry.
#[test]
fn a_template_is_tried_against_the_real_registry() {
    let (home, _server, image) = stocked();
    generate(home.path(), "release").ok();
    let key = home.path().join("release.key").display().to_string();
    let secret = |args: &[&str]| with_password(home.path(), args, "secret").ok();
    let policy = write(
        home.path(),
        "policy.yaml",
        "version: 1\nsigners:\n  release: {keys: {files: [release.pub]}}\ndefault: {require: {allOf: [release]}}\n",
    );
    let test = |object: &str, more: &[&str]| {
        let object = write(home.path(), "object.yaml", object);
        let args = ["verify", "template", "test", "-f", &object, "--policy", &policy, "-o", "json"];
        run(home.path(), &[&args, more].concat())
    };
    let said = test(&pod(&image, "arm64"), &[]);
    assert_eq!(said.code, 1, "{}", said.err);
    let violation = said.answer()["results"][0]["violations"][0].clone();
    let starts = format!("image {image} for linux/arm64: ");
    assert!(violation.as_str().unwrap().starts_with(&starts), "{violation}");

    // A template for Ratify 2 asks for another name of the same yes or no.
    let flag = |flag: &str| write(home.path(), &format!("{flag}.yaml"), &by_flag(flag));
    let (first, second) = (flag("isSuccess"), flag("succeeded"));
    for theirs in [&first, &second] {
        let said = test(&pod(&image, "arm64"), &["--template", theirs]);
        assert_eq!(said.code, 1, "{theirs}: {} {}", said.out, said.err);
    }

    secret(&["sign", &image, "--key", &key]);
    assert_eq!(test(&pod(&image, "arm64"), &[]).code, 1, "the index alone is not what runs");
    secret(&["sign", &image, "--key", &key, "--recursive"]);
    assert_eq!(test(&pod(&image, "arm64"), &[]).code, 0);
    for theirs in [&first, &second] {
        let said = test(&pod(&image, "arm64"), &["--template", theirs]);
        assert_eq!(said.code, 0, "{theirs}: {} {}", said.out, said.err);
    }
    let absent = test(&pod(&image, "s390x"), &[]);
    assert_eq!(absent.code, 1, "{}", absent.out);
    assert!(absent.out.contains("linux/riscv64"), "what there is: {}", absent.out);

    // Two objects, one of which names no image that is there.
    let gone = format!("{}---\n{}", pod(&image, "amd64"), pod(&format!("{image}9"), "amd64"));
    let said = test(&gone, &[]);
    assert_eq!(said.code, 1, "{} {}", said.out, said.err);
    let told = said.answer();
    assert_eq!(told["results"][0]["violations"], json!([]));
    assert_eq!(told["results"][1]["violations"].as_array().unwrap().len(), 1);
    assert_eq!(test(&pod("not a reference", "amd64"), &[]).code, 1, "a bad key is a violation");

    assert_eq!(test(&pod("127.0.0.1:1/app:1", "amd64"), &[]).code, 5);
    assert_eq!(test("a: [", &[]).code, 2);
    assert_eq!(test("", &[]).code, 2);
    let other = write(home.path(), "other.yaml", "kind: ConfigMap\n");
    assert_eq!(test(&pod(&image, "amd64"), &["--template", &other]).code, 2);
    assert_eq!(test(&pod(&image, "amd64"), &["--constraint", &other]).code, 2);
}

/// What is left to the policy is decided by it, with the nodes that it knows.
#[test]
fn a_pod_that_says_nothing_is_for_the_policy_to_decide() {
    let (home, _server, image) = stocked();
    generate(home.path(), "release").ok();
    let key = home.path().join("release.key").display().to_string();
    let sign = ["sign", &image, "--key", &key, "--recursive"];
    with_password(home.path(), &sign, "secret").ok();
    let rule = |platforms: &str| {
        let text = format!(
            "version: 1\nsigners:\n  release: {{keys: {{files: [release.pub]}}}}\ndefault: {{require: {{allOf: [release]}}, platforms: {platforms}}}\n"
        );
        write(home.path(), "policy.yaml", &text)
    };
    let object = write(
        home.path(),
        "pod.yaml",
        &format!("kind: Pod\nspec:\n  containers: [{{name: a, image: \"{image}\"}}]\n"),
    );
    let nodes = |arch: &str| {
        let text = format!(
            "metadata: {{name: a}}\nstatus: {{nodeInfo: {{operatingSystem: linux, architecture: {arch}}}}}\n"
        );
        write(home.path(), "nodes.yaml", &text)
    };
    let test = |policy: &str, more: &[&str]| {
        let args = ["verify", "template", "test", "-f", &object, "--policy", policy, "-o", "json"];
        run(home.path(), &[&args, more].concat())
    };
    let said = test(&rule("all"), &[]);
    assert_eq!(said.code, 0, "{} {}", said.out, said.err);
    assert_eq!(
        said.answer()["results"][0]["keys"],
        json!([format!(r#"{{"reference":"{image}"}}"#)])
    );
    let policy = rule("nodes");
    assert_eq!(test(&policy, &["--nodes", &nodes("arm64")]).code, 0);
    assert_eq!(test(&policy, &["--nodes", &nodes("s390x")]).code, 1, "nothing runs there");
}
