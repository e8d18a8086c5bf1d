//! `portolan crds` and `portolan build`, as people and scripts call them.

mod support;

use support::run;

fn fixture(name: &str) -> String {
    format!("{}/../../fixtures/build/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn crds_prints_what_is_checked_in() {
    let home = tempfile::tempdir().unwrap();
    let printed = run(home.path(), &["crds"]).ok();
    let dir = format!("{}/../../deploy/crds", env!("CARGO_MANIFEST_DIR"));
    let mut files = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        assert!(printed.contains(&std::fs::read_to_string(&path).unwrap()), "{}", path.display());
        files += 1;
    }
    assert_eq!(printed.split("---\n").count(), files);
    let with_roles = run(home.path(), &["crds", "--roles", "-o", "json"]).json();
    assert_eq!(with_roles["items"].as_array().unwrap().len(), files + 2);
    let table = run(home.path(), &["crds", "-o", "table"]).ok();
    assert!(table.contains("imageplatformclasses.shipwright.io"), "{table}");
}

#[test]
fn plan_prints_the_object_of_the_controller() {
    let home = tempfile::tempdir().unwrap();
    let (build, strategy) = (fixture("build.yaml"), fixture("strategy.yaml"));
    let args = ["build", "plan", "-f", &build, "-f", &strategy, "-o"];
    let yaml = run(home.path(), &[&args[..], &["yaml"]].concat()).ok();
    assert!(yaml.starts_with("apiVersion: tekton.dev/v1\nkind: TaskRun\n"), "{yaml}");
    let json = run(home.path(), &[&args[..], &["json"]].concat()).json();
    assert_eq!(json["spec"]["serviceAccountName"], "builder");
    let table = run(home.path(), &[&args[..], &["table"]].concat()).ok();
    assert!(table.contains("source-default build tidy image-processing"), "{table}");
}

#[test]
fn plan_of_a_build_alone_plans_a_plain_run_of_it() {
    let home = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(fixture("build.yaml")).unwrap();
    let multi = text.split("---\n").next().unwrap().replace(
        "    timestamp:",
        "    multiArch:\n      imagePlatformClass: all\n      platforms:\n        - {os: linux, arch: amd64}\n        - {os: linux, arch: ppcle64}\n    timestamp:",
    );
    let file = home.path().join("build.yaml");
    std::fs::write(&file, multi).unwrap();
    let (strategy, platforms) = (fixture("strategy.yaml"), fixture("platforms.yaml"));
    let file = file.to_str().unwrap();
    let json = run(
        home.path(),
        &["build", "plan", "-f", file, "-f", &strategy, "-f", &platforms, "-o", "json"],
    )
    .json();
    assert_eq!(json["kind"], "PipelineRun");
    let tasks: Vec<&str> = json["spec"]["pipelineSpec"]["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["name"].as_str().unwrap())
        .collect();
    let expected = ["source", "build-linux-amd64", "build-linux-ppc64le", "assemble-index"];
    assert_eq!(tasks, expected);
    // Where the controller has a repository for sources, they are stored there.
    let with = |sources: &str| {
        let files = ["build", "plan", "-f", file, "-f", &strategy, "-f", &platforms];
        run(home.path(), &[&files[..], &["--source-repository", sources]].concat())
    };
    let stored = with("registry.example/sources").ok();
    assert!(
        stored.contains("registry.example/sources:1.0-") && !stored.contains("/app:1.0-src"),
        "{stored}"
    );
    let tagged = with("registry.example/sources:1");
    assert_eq!(tagged.code, 2, "{}", tagged.err);
    assert!(tagged.err.contains("without a tag"), "{}", tagged.err);
}

#[test]
fn a_refused_run_is_the_answer_no_with_every_reason() {
    let home = tempfile::tempdir().unwrap();
    let build = fixture("build.yaml");
    let said = run(home.path(), &["build", "plan", "-f", &build, "-o", "json"]);
    assert_eq!(said.code, 1, "{}", said.err);
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["buildRun"], "app-1");
    assert_eq!(json["refusals"][0]["reason"], "ClusterBuildStrategyNotFound");
    assert!(
        said.err.contains("only the files are looked at") && said.err.contains("-f"),
        "{}",
        said.err
    );
}

#[test]
fn a_file_that_a_cluster_would_refuse_is_named_with_the_field() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("bad.yaml");
    let text = std::fs::read_to_string(fixture("build.yaml")).unwrap();
    std::fs::write(&file, text.replace("multiArch", "x").replace("pushSecret", "pushSecrets"))
        .unwrap();
    let said = run(home.path(), &["build", "plan", "-f", file.to_str().unwrap()]);
    assert_eq!(said.code, 2);
    for part in ["bad.yaml", "spec.output.pushSecrets", "did you mean pushSecret?"] {
        assert!(said.err.contains(part), "{}", said.err);
    }
    let said = run(home.path(), &["build", "plan", "-f", "/nowhere/build.yaml"]);
    assert_eq!((said.code, said.out.as_str()), (4, ""));
}
