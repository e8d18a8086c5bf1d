//! The objects, whole and in their parts.

use portolan_build::plan::{self, Work};
use serde_json::{Value, json};

use crate::World;

fn yaml(value: &Value) -> String {
    serde_yaml_ng::to_string(value).unwrap()
}

#[test]
fn an_ordinary_build_is_a_task_run() {
    insta::assert_snapshot!(yaml(&World::new().rendered()));
}

#[test]
fn many_platforms_are_a_pipeline_run_in_three_phases() {
    insta::assert_snapshot!(yaml(&World::multi().rendered()));
}

#[test]
fn platforms_without_a_class_are_built_on_nodes_of_their_own() {
    let rendered = World::new()
        .with(|world| {
            world.build["spec"]["output"]["platforms"] = json!([
                {"os": "linux", "arch": "amd64"}, {"os": "linux", "arch": "arm64"},
                {"os": "linux", "arch": "arm", "variant": "v6"},
                {"os": "linux", "arch": "arm", "variant": "v7"},
            ]);
        })
        .rendered();
    assert_eq!(rendered["kind"], "PipelineRun");
    let pods = &rendered["spec"]["taskRunSpecs"];
    assert_eq!(pods[1]["pipelineTaskName"], "build-linux-arm64");
    assert_eq!(pods[3]["pipelineTaskName"], "build-linux-arm-v7");
    let expected =
        json!({"disk": "fast", "kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"});
    assert_eq!(pods[1]["podTemplate"]["nodeSelector"], expected);
}

fn task<'a>(rendered: &'a Value, name: &str) -> &'a Value {
    let spec = &rendered["spec"]["pipelineSpec"];
    let all = [&spec["tasks"], &spec["finally"]];
    let mut tasks = all.into_iter().filter_map(Value::as_array).flatten();
    tasks.find(|task| task["name"] == name).unwrap_or_else(|| panic!("no {name}: {rendered:#}"))
}

fn steps(task: &Value) -> Vec<&str> {
    let steps = task["taskSpec"]["steps"].as_array().unwrap();
    steps.iter().map(|step| step["name"].as_str().unwrap()).collect()
}

fn param<'a>(task: &'a Value, name: &str) -> &'a Value {
    let params = task["params"].as_array().unwrap();
    let found = params.iter().find(|param| param["name"] == name);
    &found.unwrap_or_else(|| panic!("no {name}: {task:#}"))["value"]
}

#[test]
fn each_phase_waits_for_the_one_before_and_uses_its_digests() {
    let rendered = World::multi().rendered();
    let build = task(&rendered, "build-linux-ppc64le");
    assert_eq!(build["runAfter"], json!(["source"]));
    assert_eq!(
        param(build, "shp-source-bundle-image"),
        "registry.example/team/app@$(tasks.source.results.shp-source-bundle-digest)"
    );
    assert_eq!(param(build, "shp-output-image"), "registry.example/team/app:1.0-linux-ppc64le");
    // As the proposal misspells it, and as tools know it.
    assert_eq!(param(build, "SHP_BUILD_PLATFORM"), "linux/ppc64le");
    assert_eq!(steps(build), ["source-bundle-pull", "build", "tidy", "image-processing"]);
    let index = task(&rendered, "assemble-index");
    let builds = ["build-linux-amd64", "build-linux-s390x", "build-linux-ppc64le"];
    assert_eq!(index["runAfter"], json!(builds));
    assert_eq!(
        param(index, "shp-platform-digests")[2],
        "linux/ppc64le=$(tasks.build-linux-ppc64le.results.shp-image-digest)"
    );
    assert_eq!(param(index, "shp-output-image"), "registry.example/team/app:1.0");
}

#[test]
fn a_pod_is_told_all_of_its_place_and_not_only_what_differs() {
    let rendered = World::multi().rendered();
    let pods = rendered["spec"]["taskRunSpecs"].as_array().unwrap();
    let pod = |name: &str| {
        let found = pods.iter().find(|pod| pod["pipelineTaskName"] == name);
        &found.unwrap_or_else(|| panic!("no {name}"))["podTemplate"]
    };
    let amd64 = pod("build-linux-amd64");
    assert_eq!(amd64["nodeSelector"]["disk"], "fast");
    assert_eq!(amd64["nodeSelector"]["kubernetes.io/arch"], "amd64");
    let keys: Vec<_> = amd64["tolerations"].as_array().unwrap().iter().map(|t| &t["key"]).collect();
    assert_eq!(keys, ["shared", "builds", "pipeline-node"]);
    assert_eq!(amd64["schedulerName"], "batch");
    assert_eq!(pod("build-linux-s390x")["runtimeClassName"], "kata-remote");
}

#[test]
fn an_artifact_is_pulled_by_each_platform_and_deleted_by_none_of_them() {
    let rendered = World::multi()
        .with(|world| {
            world.build["spec"]["source"] = json!({
                "type": "OCI",
                "ociArtifact": {"image": "r.example/src:1", "prune": "AfterPull", "pullSecret": "pull"},
            });
            world.build["spec"]["output"]["insecure"] = json!(true);
        })
        .rendered();
    let names: Vec<_> =
        rendered["spec"]["pipelineSpec"]["tasks"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 4, "three platforms and the index");
    let build = task(&rendered, "build-linux-amd64");
    assert_eq!(build["runAfter"], Value::Null);
    let pull = &build["taskSpec"]["steps"][0];
    assert_eq!(pull["name"], "source-default");
    assert!(!pull["args"].as_array().unwrap().iter().any(|arg| arg == "--prune"), "{pull:#}");
    // Its tag may move between two pulls, so the index is told what each was built from.
    let digests = param(task(&rendered, "assemble-index"), "shp-source-digests");
    assert_eq!(digests.as_array().unwrap().len(), 3);
    assert_eq!(
        param(task(&rendered, "prune-source"), "shp-source-bundle-image"),
        "r.example/src:1"
    );
    // Neither is told that an unknown registry may speak plain HTTP.
    let prune = &task(&rendered, "prune-source")["taskSpec"]["steps"][0];
    assert!(!pull.to_string().contains("--insecure"), "{pull:#}");
    assert!(!prune.to_string().contains("--insecure"), "{prune:#}");
    // Somebody has to have time for that.
    let timeouts = &rendered["spec"]["timeouts"];
    assert_eq!(timeouts, &json!({"pipeline": "2700s", "tasks": "2640s"}));
}

/// What the Build says of the output's registry holds for everything there.
#[test]
fn an_artifact_beside_the_image_is_reached_as_the_image_is() {
    let world = |insecure: bool| {
        World::multi().with(|world| {
            world.build["spec"]["source"] = json!({
                "type": "OCI",
                "ociArtifact": {"image": "registry.example/src:1", "prune": "AfterPull"},
            });
            world.build["spec"]["output"]["insecure"] = json!(insecure);
        })
    };
    for insecure in [true, false] {
        let rendered = world(insecure).rendered();
        for name in ["build-linux-amd64", "prune-source"] {
            let step = task(&rendered, name)["taskSpec"]["steps"][0].to_string();
            assert_eq!(step.contains("\"--insecure\""), insecure, "{step}");
        }
    }
}

#[test]
fn a_build_without_a_source_has_an_empty_directory() {
    let rendered = World::multi()
        .with(|world| {
            world.build["spec"].as_object_mut().unwrap().remove("source");
            world.build["spec"]["output"].as_object_mut().unwrap().remove("timestamp");
        })
        .rendered();
    assert_eq!(steps(task(&rendered, "build-linux-amd64")), ["build", "tidy", "image-processing"]);
}

#[test]
fn a_run_may_bring_its_own_source() {
    let world = World::multi().with(|world| {
        world.run["spec"]["source"] = json!({"type": "Local", "local": {"timeout": "3m"}});
        world.build["spec"]["output"].as_object_mut().unwrap().remove("timestamp");
        world.run["metadata"]["annotations"] =
            json!({"buildrun.shipwright.io/prune-source-bundle": "true"});
    });
    let rendered = world.rendered();
    let source = task(&rendered, "source");
    assert_eq!(steps(source), ["source-local", "source-bundle-push"]);
    // Who waits in vain has somewhere to say so.
    let wait = &source["taskSpec"]["steps"][0]["args"];
    let told = [json!("--result-file-error-reason"), json!("$(results.shp-error-reason.path)")];
    assert!(wait.as_array().unwrap().windows(2).any(|pair| pair == told), "{wait}");
    let results = source["taskSpec"]["results"].as_array().unwrap();
    assert!(results.iter().any(|result| result["name"] == "shp-error-reason"), "{results:?}");
    let prune = task(&rendered, "prune-source");
    assert!(param(prune, "shp-source-bundle-image").as_str().unwrap().contains("$(tasks.source."));
}

#[test]
fn a_run_says_the_last_word() {
    let rendered = World::new()
        .with(|world| {
            world.run["spec"]["output"] = json!({
                "pushSecret": "other-login", "insecure": true,
                "labels": {"maintainer": "run"}, "timestamp": "Zero",
            });
        })
        .rendered();
    let spec = &rendered["spec"];
    assert_eq!(spec["timeout"], "2700s");
    assert_eq!(spec["serviceAccountName"], "builder");
    let value = |name: &str| {
        let params = spec["params"].as_array().unwrap();
        &params.iter().find(|param| param["name"] == name).unwrap()["value"]
    };
    assert_eq!(value("dockerfile"), "Containerfile.release");
    // An image that a run does not name is the Build's.
    assert_eq!(value("shp-output-image"), "registry.example/team/app:1.0");
    assert_eq!(value("shp-output-insecure"), "true");
    let last = spec["taskSpec"]["steps"].as_array().unwrap().last().unwrap();
    let args = last["args"].to_string();
    assert!(
        args.contains("maintainer=run") && args.contains(r#""--image-timestamp","0""#),
        "{args}"
    );
    let volumes = spec["taskSpec"]["volumes"].to_string();
    assert!(volumes.contains("other-login") && !volumes.contains("push-login"), "{volumes}");
}

/// The step behind the strategy, as a text.
fn processing(task: &Value) -> String {
    let steps = task["steps"].as_array().unwrap();
    steps.iter().find(|step| step["name"] == "image-processing").unwrap()["args"].to_string()
}

/// An earlier run's tag is no image of this one, and another run may move it at any time.
#[test]
fn a_strategy_that_pushes_is_believed_by_its_digest_or_gets_a_name_of_the_runs_own() {
    let pushing = |args: Value, uid: &str| {
        let world = World::multi().with(|world| {
            world.strategy["spec"]["steps"][0]["args"] = args;
            world.run["metadata"]["uid"] = json!(uid);
        });
        let rendered = world.rendered();
        task(&rendered, "build-linux-amd64").clone()
    };
    let told = pushing(json!(["--digest", "$(results['shp-image-digest'].path)"]), "a");
    let args = processing(&told["taskSpec"]);
    assert!(
        args.contains(r#""--pushed-digest-file","$(results.shp-image-digest.path)""#),
        "{args}"
    );
    assert_eq!(param(&told, "shp-output-image"), "registry.example/team/app:1.0-linux-amd64");

    let untold = ["a", "b"].map(|uid| pushing(json!(["$(params.shp-output-image)"]), uid));
    let names = untold.each_ref().map(|task| param(task, "shp-output-image").as_str().unwrap());
    assert_ne!(names[0], names[1]);
    for (task, name) in untold.iter().zip(names) {
        assert!(name.starts_with("registry.example/team/app:1.0-linux-amd64-run-"), "{name}");
        let args = processing(&task["taskSpec"]);
        assert!(args.contains(r#""--pushed","$(params.shp-output-image)""#), "{args}");
        assert!(
            args.contains(r#""--image","registry.example/team/app:1.0-linux-amd64""#),
            "{args}"
        );
    }
    // What a Build puts into a variable does not say what a strategy does.
    let world = World::multi().with(|world| {
        world.strategy["spec"]["steps"][0]["args"] = json!([]);
        world.build["spec"]["env"] = json!([{"name": "A", "value": "shp-image-digest"}]);
    });
    let args = processing(&task(&world.rendered(), "build-linux-amd64")["taskSpec"]);
    assert!(args.contains("\"--pushed\""), "{args}");
}

/// One image: nothing looks at it unless something is to be done to it.
#[test]
fn the_image_of_an_ordinary_build_goes_where_the_build_says_unless_it_is_changed() {
    let rendered = |labels: bool| {
        let world = World::new().with(|world| {
            world.strategy["spec"]["steps"][0]["args"] = json!(["$(params.shp-output-image)"]);
            let image = "registry.example/team/app";
            world.build["spec"]["output"] = json!({ "image": image });
            world.run["spec"].as_object_mut().unwrap().remove("output");
            if labels {
                world.build["spec"]["output"]["labels"] = json!({"team": "blue"});
            }
        });
        world.rendered()["spec"].take()
    };
    let plain = rendered(false);
    assert_eq!(param(&plain, "shp-output-image"), "registry.example/team/app");
    assert!(!plain.to_string().contains("image-processing"), "{plain:#}");
    let labelled = rendered(true);
    let name = param(&labelled, "shp-output-image").to_string();
    assert!(name.contains("team/app:latest-run-"), "{name}");
    let args = processing(&labelled["taskSpec"]);
    assert!(args.contains(r#""--image","registry.example/team/app:latest""#), "{args}");
}

/// Who may pull the image need not be who may read its source.
#[test]
fn sources_go_to_a_repository_of_their_own_where_the_operator_names_one() {
    let world = |image: &str, sources: &'static str| {
        World::multi()
            .with(|world| {
                world.sources = Some(sources);
                world.build["spec"]["output"]["image"] = json!(image);
                world.build["spec"]["output"]["insecure"] = json!(true);
                world.run["metadata"]["annotations"] =
                    json!({"buildrun.shipwright.io/prune-source-bundle": "true"});
            })
            .rendered()
    };
    let stored = |rendered: &Value| {
        let push = &task(rendered, "source")["taskSpec"]["steps"][1]["args"];
        (push[1].as_str().unwrap().to_owned(), push.to_string().contains("--insecure"))
    };
    let rendered = world("registry.example/team/app:1.0", "sources.example/all");
    let (place, insecure) = stored(&rendered);
    assert!(place.starts_with("sources.example/all:1.0-") && place.ends_with("-src"), "{place}");
    assert!(!insecure, "what is said of the image's registry holds for no other");
    for name in ["build-linux-amd64", "prune-source"] {
        let task = task(&rendered, name);
        let from = param(task, "shp-source-bundle-image");
        assert_eq!(from, "sources.example/all@$(tasks.source.results.shp-source-bundle-digest)");
        assert!(!task["taskSpec"]["steps"][0].to_string().contains("--insecure"), "{task:#}");
    }
    let build = task(&rendered, "build-linux-amd64");
    assert_eq!(param(build, "shp-output-image"), "registry.example/team/app:1.0-linux-amd64");
    // Images of other repositories have the same tags.
    let other = stored(&world("registry.example/team/other:1.0", "sources.example/all")).0;
    assert_ne!(other, place);
    assert!(stored(&world("registry.example/team/app:1.0", "registry.example/sources")).1);
}

#[test]
fn a_plan_is_the_same_every_time_and_differs_by_run() {
    let world = World::multi();
    assert_eq!(world.rendered(), world.rendered());
    let other = world.clone().with(|world| world.run["metadata"]["uid"] = json!("other"));
    assert_ne!(world.rendered()["metadata"]["name"], other.rendered()["metadata"]["name"]);
}

#[test]
fn no_volume_is_there_twice_and_lists_are_declared_as_lists() {
    let rendered = World::multi().rendered();
    let tasks = rendered["spec"]["pipelineSpec"]["tasks"].as_array().unwrap();
    for task in tasks {
        let volumes = task["taskSpec"]["volumes"].as_array().unwrap();
        let mut names: Vec<&str> =
            volumes.iter().map(|one| one["name"].as_str().unwrap()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{volumes:?}");
        for param in task["params"].as_array().into_iter().flatten() {
            let declared = task["taskSpec"]["params"].as_array().unwrap().iter();
            let declared = declared.into_iter().find(|one| one["name"] == param["name"]).unwrap();
            assert_eq!(declared["type"] == "array", param["value"].is_array(), "{param}");
        }
    }
}

#[test]
fn the_rows_of_a_status_are_the_platform_tasks_of_the_plan() {
    let world = World::multi();
    let plan = world.plan().unwrap();
    let Work::Multi(phases) = &plan.work else { panic!("{plan:?}") };
    let spec = serde_json::from_value(world.build["spec"].clone()).unwrap();
    let run = serde_json::from_value(world.run["spec"].clone()).unwrap();
    let rows = plan::rows(&spec, &run);
    assert_eq!(rows.len(), 3);
    for (row, task) in rows.iter().zip(&phases.platforms) {
        assert_eq!(row.platform, task.platform);
        assert_eq!(row.image, task.image);
        assert_eq!(row.task, task.task.name);
    }
}
