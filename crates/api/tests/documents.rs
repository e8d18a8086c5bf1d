//! Files as people write them: those of the proposal, those with everything in them, and those
//! that a cluster would refuse.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use kube_core::cel;
use portolan_api::build::{Build, ParamValue};
use portolan_api::document::{self, ReadError, Resource};
use portolan_api::platform::{ImagePlatform, Platform};
use serde_json::{Value, json};

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../../fixtures/build/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn read(text: &str) -> Result<Vec<Resource>, ReadError> {
    document::read(text.as_bytes())
}

/// The one problem with a document.
#[track_caller]
fn problems(text: &str) -> String {
    match read(text) {
        Err(error @ ReadError::Schema { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_proposals_examples_are_read_as_they_stand() {
    let resources = document::read(&fixture("proposal-platforms.yaml")).unwrap();
    let [first, second, third, class] = &resources[..] else { panic!("{resources:?}") };
    let Resource::ImagePlatform(native) = first else { panic!("{first:?}") };
    assert_eq!(native.spec.node_selector["kubernetes.io/arch"], "amd64");
    let key = native.spec.tolerations[0].key.as_deref();
    assert_eq!(key, Some("konflux-ci.dev/pipeline-node"));
    let Resource::ImagePlatform(kata) = second else { panic!("{second:?}") };
    assert_eq!(kata.spec.runtime_class.as_ref().unwrap().name, "kata-remote");
    let Resource::ImagePlatform(emulated) = third else { panic!("{third:?}") };
    assert_eq!(emulated.spec.param_values[0].single.value.as_deref(), Some("linux/ppcle64"));
    assert_eq!(emulated.spec.platform.normalised().architecture, "ppc64le");
    // Its status is an example of what a controller reports, with a placeholder for the time.
    let Resource::ImagePlatformClass(class) = class else { panic!("{class:?}") };
    assert_eq!(class.spec.image_platforms.len(), 4);
    assert_eq!(class.status, None);
}

#[test]
fn every_field_survives_being_read_and_written() {
    for name in ["build.yaml", "strategy.yaml", "platforms.yaml"] {
        let bytes = fixture(name);
        let written: Vec<Value> = document::read(&bytes)
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .iter()
            .map(|resource| match resource {
                Resource::Build(build) => json!(build),
                Resource::BuildRun(run) => json!(run),
                Resource::ClusterBuildStrategy(strategy) => json!(strategy),
                Resource::ImagePlatform(platform) => json!(platform),
                Resource::ImagePlatformClass(class) => json!(class),
                other => panic!("{other:?}"),
            })
            .collect();
        let text = String::from_utf8(bytes).unwrap();
        let expected: Vec<Value> = serde_yaml_ng::Deserializer::from_str(&text)
            .map(|document| serde::Deserialize::deserialize(document).unwrap())
            .collect();
        // A parameter's type that is the default need not be written, and durations have many
        // spellings.
        let plain = |value: &Value| {
            let mut text = value.to_string().replace(r#","type":"string""#, "");
            for (long, short) in [
                ("1h30m", "5400s"),
                ("45m", "2700s"),
                ("48h", "172800s"),
                ("1h", "3600s"),
                ("30m", "1800s"),
            ] {
                text = text.replace(&format!("{long:?}"), &format!("{short:?}"));
            }
            text
        };
        for (expected, written) in expected.iter().zip(&written) {
            assert_eq!(plain(written), plain(expected), "{name}");
        }
    }
}

const BUILD: &str = "
apiVersion: shipwright.io/v1beta1
kind: Build
metadata: {name: app}
spec:
  strategy: {name: s}
  output: {image: registry.example/app}
";

#[test]
fn what_a_cluster_would_drop_or_refuse_is_told_with_its_path() {
    assert!(read(BUILD).is_ok());
    for (from, to, path, what) in [
        ("image:", "immage:", "spec.output.immage", "did you mean image?"),
        ("{image: registry.example/app}", "{}", "spec.output.image", "is required"),
        ("{name: s}", "{name: 5}", "spec.strategy.name", "must be a text, not a number"),
        ("output:", "timeout: soon\n  output:", "spec.timeout", "is no duration such as"),
        (
            "output:",
            "source: {type: git, git: {url: u}}\n  output:",
            "spec.source.type",
            "must be one of Git, OCI, Local",
        ),
        (
            "/app}",
            "/app, multiArch: {imagePlatformClass: c, platforms: [{os: linux}]}}",
            "spec.output.multiArch.platforms[0].arch",
            "is required",
        ),
        (
            "/app}",
            "/app, multiArch: {imagePlatformClass: c, platforms: [{os: linux, arch: AMD}]}}",
            "spec.output.multiArch.platforms[0].arch",
            "does not match",
        ),
        (
            "/app}",
            "/app, multiArch: {imagePlatformClass: c, platforms: []}}",
            "spec.output.multiArch.platforms",
            "at least 1",
        ),
        (
            "output:",
            "retention: {failedLimit: 0}\n  output:",
            "spec.retention.failedLimit",
            "must be from 1",
        ),
        (
            "output:",
            "paramValues: [{name: a, value: b}, {name: a, value: c}]\n  output:",
            "spec.paramValues[1]",
            "a is there twice",
        ),
    ] {
        let text = BUILD.replacen(from, to, 1);
        let error = read(&text).expect_err(&text);
        let said = portolan_core::causes::chain(&error);
        assert!(said.contains(path) && said.contains(what), "{text}\n{said}");
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let text = BUILD.replace("image:", "image: {}, size:").replace("{name: s}", "{kind: X}");
    let said = problems(&text);
    for path in ["spec.output.image: must be a text", "spec.output.size", "spec.strategy.name"] {
        assert!(said.contains(path), "{said}");
    }
}

#[test]
fn other_versions_are_not_guessed_and_others_resources_pass() {
    let error = read(&BUILD.replace("v1beta1", "v1alpha1")).unwrap_err();
    assert!(error.to_string().contains("only shipwright.io/v1beta1 is served"), "{error}");
    let other =
        "apiVersion: v1\nkind: Secret\n---\n---\nkind: Build\napiVersion: other.example/v1\n";
    assert_eq!(read(other).unwrap().len(), 2);
    assert!(matches!(read("kind: Build").unwrap_err(), ReadError::Nameless { number: 1, .. }));
    assert!(matches!(read("a: [").unwrap_err(), ReadError::Yaml { number: 1, .. }));
}

#[test]
fn files_are_bounded() {
    let large = vec![b'#'; document::MAX_BYTES + 1];
    assert!(matches!(document::read(&large), Err(ReadError::TooLarge { .. })));
    // The reader of YAML would take a minute for it.
    let deep = "{\"a\":".repeat(60_000);
    assert!(matches!(read(&deep), Err(ReadError::TooDeep)));
    let many = "---\na: 1\n".replace("a: 1", "apiVersion: v1\nkind: X").repeat(1001);
    assert!(matches!(read(&many), Err(ReadError::TooMany)));
    let items = vec![json!({"apiVersion": "v1", "kind": "X"}); 1001];
    let many = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    assert!(matches!(read(&many), Err(ReadError::TooMany)));
    // Aliases of aliases of aliases: a few lines that would fill any memory.
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let items = vec![format!("*a{}", n - 1); 9].join(", ");
        bomb.push_str(&format!("a{n}: &a{n} [{items}]\n"));
    }
    assert!(matches!(read(&bomb), Err(ReadError::Yaml { .. })));
}

#[test]
fn what_kubectl_prints_of_many_is_read() {
    let one = json!({
        "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform",
        "metadata": {
            "name": "p", "uid": "1", "resourceVersion": "2", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {"platform": {"os": "linux", "arch": "amd64"}, "nodeSelector": {"a": "b"}},
    });
    let list =
        |items: Value| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let found = read(&list(json!([one, one]))).unwrap();
    assert!(
        matches!(found[..], [Resource::ImagePlatform(_), Resource::ImagePlatform(_)]),
        "{found:?}"
    );
    assert_eq!(read(&list(json!([]))).unwrap(), []);
    // A list of something else is somebody else's, and no list at all is told as what it says it is.
    assert!(matches!(read(&list(json!("x"))).unwrap()[..], [Resource::Other { .. }]));
}

fn platform(change: impl Fn(&mut Value)) -> ImagePlatform {
    let mut value = json!({
        "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform",
        "metadata": {"name": "p"},
        "spec": {"platform": {"os": "linux", "arch": "amd64"}},
    });
    change(&mut value["spec"]);
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_rules_of_image_platforms_hold() {
    type Change = fn(&mut Value);
    let good: [Change; 4] = [
        |spec| spec["nodeSelector"] = json!({"a": "b"}),
        |spec| spec["runtimeClass"] = json!({"name": "kata"}),
        |spec| spec["tolerations"] = json!([{"key": "a", "operator": "Exists"}]),
        |spec| spec["paramValues"] = json!([{"name": "a", "values": [{"value": "b"}]}]),
    ];
    for change in good {
        let platform = platform(change);
        cel::validate_cel(&platform).unwrap_or_else(|error| panic!("{platform:?}: {error}"));
    }
    let bad: [(Change, &str); 7] = [
        (|_| {}, "at least one of"),
        (|spec| spec["nodeSelector"] = json!({}), "at least one of"),
        (|spec| spec["paramValues"] = json!([]), "at least one of"),
        (
            |spec| {
                spec["paramValues"] =
                    json!([{"name": "a", "secretValue": {"name": "s", "key": "k"}}])
            },
            "belongs to no namespace",
        ),
        (
            |spec| {
                let value = json!({"configMapValue": {"name": "s", "key": "k"}});
                spec["paramValues"] = json!([{"name": "a", "values": [value]}]);
            },
            "belongs to no namespace",
        ),
        (|spec| spec["paramValues"] = json!([{"name": "shp-x", "value": "b"}]), "must not set"),
        (
            |spec| {
                spec["tolerations"] =
                    json!([{"key": "a", "operator": "Exists", "effect": "NoExecute"}])
            },
            "a toleration needs",
        ),
    ];
    for (change, message) in bad {
        let platform = platform(change);
        let error = cel::validate_cel(&platform).expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn multi_arch_and_platforms_exclude_each_other() {
    let Resource::Build(mut build) = read(BUILD).unwrap().remove(0) else { panic!() };
    cel::validate_cel(&build).unwrap();
    let settings = &mut build.spec.output.settings;
    settings.platforms = vec![Platform { os: "linux".into(), arch: "arm64".into(), variant: None }];
    cel::validate_cel(&build).unwrap();
    settings_multi(&mut build);
    assert!(cel::validate_cel(&build).is_err());
}

fn settings_multi(build: &mut Build) {
    let class = json!({"imagePlatformClass": "c", "platforms": [{"os": "linux", "arch": "arm64"}]});
    build.spec.output.settings.multi_arch = Some(serde_json::from_value(class).unwrap());
}

#[test]
fn a_value_is_one_or_a_list() {
    let list: ParamValue = serde_json::from_value(json!({"name": "a", "values": []})).unwrap();
    assert_eq!((list.values, list.single.value), (Some(vec![]), None));
}

/// Shims of a file, each as it is read and as it is written.
fn shims_as_they_stand(file: &str, count: usize) {
    let path = format!("{}/../../fixtures/shim/{file}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let shims = document::read(&bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let written: Vec<Value> = serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| serde::Deserialize::deserialize(document).unwrap())
        .collect();
    assert_eq!((shims.len(), written.len()), (count, count));
    for (shim, written) in shims.iter().zip(written) {
        let Resource::Shim(shim) = shim else { panic!("{shim:?}") };
        assert_eq!(json!(shim)["spec"], written["spec"], "every field survives");
    }
}

#[test]
fn the_proposals_shims_are_read_as_they_stand() {
    shims_as_they_stand("proposal.yaml", 3);
}

#[test]
fn shims_as_projects_publish_them_are_read_as_they_stand() {
    shims_as_they_stand("published.yaml", 2);
}

/// A Shim with one thing in another place.
fn shim(path: &str, value: Value) -> String {
    let mut shim = json!({
        "apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "metadata": {"name": "s"},
        "spec": {
            "fetchStrategy": {"platforms": [{"os": "linux", "arch": "amd64", "location": "x", "sha256": ""}]},
            "runtimeClass": {"name": "", "handler": ""}, "rolloutStrategy": {"type": "rolling"},
        },
    });
    match shim.pointer_mut(path) {
        Some(old) => *old = value,
        None => {
            let (parent, key) = path.rsplit_once('/').unwrap();
            shim.pointer_mut(parent).unwrap()[key] = value;
        }
    }
    shim.to_string()
}

#[test]
fn a_shim_is_refused_only_for_what_cannot_be_meant() {
    let platform = "/spec/fetchStrategy/platforms/0";
    for (path, value) in [
        ("/spec/fetchStrategy", json!({})),
        ("/spec/fetchStrategy", json!({"type": "anything", "anonHttp": {"location": "any text"}})),
        ("/spec/rolloutStrategy", json!({"type": "recreate", "rolling": {"maxUpdate": 0}})),
        ("/spec/rolloutStrategy", json!({"type": "rolling", "rolling": {"maxUpdate": "10%"}})),
        ("/spec/nodeSelector", json!({})),
        ("/spec/containerdRuntimeOptions", json!({"SystemdCgroup": "true"})),
        (&format!("{platform}/sha256"), json!("AB".repeat(32))),
        (&format!("{platform}/sha256"), json!("a1b2c3d4e5f6...")),
        (&format!("{platform}/arch"), json!("armv7l")),
        (&format!("{platform}/arch"), json!("s390x")),
    ] {
        let text = shim(path, value);
        read(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    for (path, value, word) in [
        (format!("{platform}/sha256"), json!("abc"), "does not match"),
        (format!("{platform}/arch"), json!("sparc"), "must be one of"),
        (format!("{platform}/os"), json!("windows"), "must be one of"),
        (platform.to_owned(), json!({"os": "linux", "arch": "amd64"}), "location: is required"),
        (
            "/spec/rolloutStrategy".to_owned(),
            json!({"type": "rolling", "rolling": {"maxUpdate": "101%"}}),
            "does not match",
        ),
        (
            "/spec/rolloutStrategy".to_owned(),
            json!({"type": "rolling", "rolling": {"maxUpdate": true}}),
            "whole number or a text",
        ),
        ("/spec/rolloutStrategy".to_owned(), json!({}), "type: is required"),
    ] {
        let told = problems(&shim(&path, value));
        assert!(told.contains(word), "{told}");
    }
    assert!(matches!(
        read(&shim("/apiVersion", json!("runtime.spinkube.dev/v1"))),
        Err(ReadError::Version { .. })
    ));
}
