//! What is shipped for clusters: every strategy and platform is read as a cluster would read it, and
//! planned for two platforms.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use portolan_api::ResourceExt as _;
use portolan_api::document::{self, Resource};
use portolan_build::plan::{self, Objects, Settings, Work};
use portolan_build::tekton;
use serde_json::{Value, json};

const STRATEGIES: [&str; 7] =
    ["buildah", "buildkit", "buildpacks", "kaniko", "ko", "portolan", "source-to-image"];

fn files(folder: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(folder);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{dir:?}: {error}"));
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// Everything in `deploy/strategies` and `deploy/platforms`, and a Build for each class.
fn shipped() -> Objects {
    let mut objects = Objects::default();
    for file in files("strategies").into_iter().chain(files("platforms")) {
        let bytes = std::fs::read(&file).unwrap();
        for resource in document::read(&bytes).unwrap_or_else(|e| panic!("{file:?}: {e}")) {
            match resource {
                Resource::ClusterBuildStrategy(strategy) => {
                    assert_eq!(file.file_stem().unwrap(), strategy.name_any().as_str());
                    objects.cluster_strategies.push(strategy);
                }
                Resource::ImagePlatform(platform) => objects.image_platforms.push(platform),
                Resource::ImagePlatformClass(class) => objects.classes.push(class),
                other => panic!("{file:?}: {other:?}"),
            }
        }
    }
    for class in &mut objects.classes {
        class.status = Some(plan::class_status(class, &objects.image_platforms));
    }
    objects
}

#[test]
fn every_strategy_is_planned_for_two_platforms_by_parameter_and_on_native_nodes() {
    let mut objects = shipped();
    let names: BTreeSet<String> =
        objects.cluster_strategies.iter().map(|strategy| strategy.name_any()).collect();
    assert_eq!(names, STRATEGIES.map(str::to_owned).into());
    for (name, class) in STRATEGIES.iter().flat_map(|n| [(n, "default"), (n, "native")]) {
        let platforms = json!([{"os": "linux", "arch": "amd64"}, {"os": "linux", "arch": "arm64"}]);
        let build = json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "Build", "metadata": {"name": "app"},
            "spec": {
                "source": {"type": "Git", "git": {"url": "https://git.example/app.git"}},
                "strategy": {"name": name, "kind": "ClusterBuildStrategy"},
                "output": {
                    "image": "r.example/app:1",
                    "multiArch": {"imagePlatformClass": class, "platforms": platforms},
                },
            },
        });
        let run = json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
            "metadata": {"name": "app-run"}, "spec": {"build": {"name": "app"}},
        });
        let read = |value: Value| document::read(value.to_string().as_bytes()).unwrap().remove(0);
        let (Resource::Build(build), Resource::BuildRun(run)) = (read(build), read(run)) else {
            panic!()
        };
        objects.builds = vec![build];
        let settings = Settings {
            step_image: "portolan.example/portolan:test".to_owned(),
            service_account: None,
            source_repository: None,
            created: 0,
        };
        let planned = plan::plan(&run, &objects, &settings)
            .unwrap_or_else(|refusals| panic!("{name} {class}: {refusals:#?}"));
        let Work::Multi(phases) = &planned.work else { panic!("{name}") };
        assert_eq!(phases.platforms.len(), 2);
        let rendered = tekton::render(&planned);
        for arch in ["amd64", "arm64"] {
            let platform = told(&rendered, arch);
            // By its parameter each platform is told which it is, or by its node, and never by both.
            let by_parameter = (class == "default").then(|| json!(format!("linux/{arch}")));
            let by_node = (class == "native").then(|| json!(arch));
            assert_eq!(platform, (by_parameter, by_node), "{name} {class} {arch}");
        }
    }
}

/// What the task of a platform is told of it: by the parameter, and by its node.
fn told(rendered: &Value, arch: &str) -> (Option<Value>, Option<Value>) {
    let named = |list: &Value, key: &str, name: &str| {
        list.as_array().unwrap().iter().find(|one| one[key] == name).cloned()
    };
    let (name, spec) = (format!("build-linux-{arch}"), &rendered["spec"]);
    let task = named(&spec["pipelineSpec"]["tasks"], "name", &name).unwrap();
    let parameter = named(&task["params"], "name", "SHP_IMAGE_PLATFORM");
    let pod = spec["taskRunSpecs"].is_array().then(|| &spec["taskRunSpecs"]);
    let pod = pod.and_then(|pods| named(pods, "pipelineTaskName", &name));
    let node = pod.map(|pod| pod["podTemplate"]["nodeSelector"]["kubernetes.io/arch"].clone());
    (parameter.map(|one| one["value"].clone()), node.filter(|node| !node.is_null()))
}

#[test]
fn every_strategy_has_both_names_of_the_platform_and_uses_them() {
    for strategy in shipped().cluster_strategies {
        let name = strategy.name_any();
        let text = serde_json::to_string(&strategy.spec.0.steps).unwrap();
        for wanted in ["SHP_IMAGE_PLATFORM", "SHP_BUILD_PLATFORM"] {
            let found = strategy.spec.0.parameters.iter().find(|param| param.name == wanted);
            assert!(found.is_some_and(|param| param.default.as_deref() == Some("")), "{name}");
            assert!(text.contains(&format!("$(params.{wanted})")), "{name}: {wanted}");
        }
    }
}

/// A shell reads what it is given before anything runs: a slip is found here and not in a pod.
#[test]
fn scripts_of_strategies_are_read_by_a_shell() {
    let mut scripts = 0;
    for strategy in shipped().cluster_strategies {
        for step in &strategy.spec.0.steps {
            let args = serde_json::to_value(step).unwrap()["args"].clone();
            let args: Vec<String> = serde_json::from_value(args).unwrap_or_default();
            if args.first().is_none_or(|first| first != "-c") {
                continue;
            }
            scripts += 1;
            let script = args[1].replace("$(results.", "/results/").replace(".path)", "");
            let out =
                std::process::Command::new("sh").args(["-n", "-c", &script]).output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{}: {said}", strategy.name_any());
            // What people say reaches a script as variables and arguments, never as its text.
            assert!(!args[1].contains("$(params."), "{}", strategy.name_any());
        }
    }
    assert!(scripts >= 6, "{scripts}");
}

/// With stand-ins for `go`, which would fetch ko, and for ko. A tag would make ko refuse the name; a directory of
/// another user makes git refuse, and with it the compiler.
#[test]
fn ko_is_told_a_repository_without_a_tag_and_git_trusts_the_source() {
    let all = shipped().cluster_strategies;
    let ko = all.iter().find(|strategy| strategy.name_any() == "ko").unwrap();
    let step = serde_json::to_value(&ko.spec.0.steps[0]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let program = |name: &str, text: String| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(bin.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    };
    program("go", format!("test \"$1\" != env || echo {}", dir.path().display()));
    program("ko", "echo \"$KO_DOCKER_REPO $(git config --get-all safe.directory) $*\"".to_owned());
    let script = step["args"][1].as_str().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for (image, repository) in [
        ("r.example:5000/team/app:1-linux-arm64", "r.example:5000/team/app"),
        ("r.example:5000/team/app", "r.example:5000/team/app"),
        ("app:1", "app"),
    ] {
        let mut shell = std::process::Command::new("sh");
        for variable in step["env"].as_array().unwrap() {
            let (name, value) = (variable["name"].as_str(), variable["value"].as_str());
            shell.env(name.unwrap(), value.filter(|value| !value.contains('$')).unwrap_or("."));
        }
        let made = [("IMAGE", image), ("IMAGE_PLATFORM", "linux/arm64"), ("PATH", &path)];
        let out = shell.args(["-c", script, "ko"]).envs(made).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        let expected = format!("{repository} * build --push=false ");
        assert!(said.starts_with(&expected), "{image}: {said} {out:?}");
        assert!(said.contains("--platform=linux/arm64"), "{said}");
    }
}

#[test]
fn classes_are_available_and_hold_what_the_proposals_example_asks_for() {
    for class in shipped().classes {
        let status = class.status.clone().unwrap();
        let condition = &status.conditions[0];
        assert_eq!(condition.status, portolan_api::condition::Status::True, "{condition:?}");
        let arches: Vec<&str> =
            status.image_platforms.iter().map(|p| p.platform.arch.as_str()).collect();
        assert_eq!(arches, ["amd64", "arm64", "s390x", "ppc64le"]);
    }
}
