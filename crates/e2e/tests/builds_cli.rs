//! `portolan build`, `buildrun`, `platform` and `platform-class` against the real API server. The
//! tests do themselves what the controller and Tekton do, so that each step of a run can be held.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Namespace, Output, Testbed, json as parsed, ours, portolan, program_image, run, tool, wait_for,
};
use serde_json::{Value, json};

/// The proposal's own lines, with our name for the program.
const CREATE: &str = "build create sample-go --strategy=source-to-image --output quay.io/adambkaplan/sample-go:v1 \
  --platform=linux/amd64 --platform=linux/arm64 --platform-class default";
const RUN: &str = "build run sample-go --platform-class default --platform linux/amd64 --platform linux/arm64 \
  --platform linux/s390x";

/// The definitions, once.
fn definitions() {
    static APPLIED: OnceLock<()> = OnceLock::new();
    APPLIED.get_or_init(|| {
        let testbed = Testbed::get();
        testbed
            .apply(&parsed(&ours(&["crds", "--roles", "-o", "json"])))
            .expect("they are applied");
        wait_for("the definitions", Duration::from_secs(30), || {
            ["builds", "buildruns", "imageplatformclasses"]
                .iter()
                .try_for_each(|kind| testbed.kubectl(&["get", kind]).map(drop))
        })
        .expect("they are served");
    });
}

fn namespace() -> Result<Namespace> {
    definitions();
    Namespace::new("builds")
}

fn command(namespace: &Namespace, args: &[&str]) -> Command {
    let mut command = portolan();
    command.env("KUBECONFIG", &Testbed::get().kubeconfig).args(args);
    command.args(["--namespace", namespace.name()]);
    command
}

fn said(namespace: &Namespace, args: &[&str]) -> Output {
    run(&mut command(namespace, args)).expect("portolan starts")
}

#[track_caller]
fn ok(namespace: &Namespace, args: &[&str]) -> String {
    let said = said(namespace, args);
    assert_eq!(said.code, Some(0), "{said}");
    said.stdout
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().filter(|word| *word != "\\").collect()
}

fn platform(arch: &str) -> Value {
    json!({ "os": "linux", "arch": arch })
}

#[test]
fn the_proposals_lines_make_the_objects_that_they_say() -> Result<()> {
    let namespace = namespace()?;
    assert_eq!(ok(&namespace, &words(CREATE)), "Created build \"sample-go\"\n");
    let build = namespace.kubectl_json(&["get", "build", "sample-go"])?;
    let multi_arch = json!({
        "imagePlatformClass": "default", "platforms": [platform("amd64"), platform("arm64")],
    });
    let expected = json!({
        "strategy": { "name": "source-to-image", "kind": "ClusterBuildStrategy" },
        "output": { "image": "quay.io/adambkaplan/sample-go:v1", "multiArch": multi_arch },
    });
    assert_eq!(build["spec"], expected);
    let told = ok(&namespace, &words(RUN));
    let runs = namespace.kubectl_json(&["get", "buildruns"])?;
    let [made] = runs["items"].as_array().context("a list")?.as_slice() else {
        panic!("one run: {runs}")
    };
    let name = made["metadata"]["name"].as_str().context("a name")?;
    assert!(name.starts_with("sample-go-"), "{name}");
    assert_eq!(told, format!("BuildRun created {name:?} for build \"sample-go\"\n"));
    let platforms = [platform("amd64"), platform("arm64"), platform("s390x")];
    let multi_arch = json!({ "imagePlatformClass": "default", "platforms": platforms });
    let expected =
        json!({ "build": { "name": "sample-go" }, "output": { "multiArch": multi_arch } });
    assert_eq!(made["spec"], expected);
    Ok(())
}

#[test]
fn builds_and_runs_are_made_listed_and_deleted() -> Result<()> {
    let namespace = namespace()?;
    let create = words(
        "build create app --strategy buildah --strategy-kind BuildStrategy --output h.example/app:1 \
         --source-git-url https://git.example/app.git --source-git-revision main --source-git-depth 0 \
         --source-context-dir sub --param-value dockerfile=Containerfile --param-item build-args=A=1 \
         --env E=1 --timeout 10m --node-selector pool=big --toleration dedicated=builds:NoSchedule \
         --scheduler-name other --runtime-class kata --retention-failed-limit 3 \
         --retention-ttl-after-succeeded 1h --output-image-label l=1 --output-image-annotation a=2 \
         --output-image-push-secret push --output-insecure --output-timestamp Zero",
    );
    // What is printed without a cluster is what a cluster is sent.
    let dry = ok(&namespace, &[&create[..], &["--dry-run", "-o", "json"]].concat());
    let printed = parsed(&dry);
    let made = parsed(&ok(&namespace, &[&create[..], &["-o", "json"]].concat()));
    assert_eq!(printed["spec"], made["spec"]);
    assert_eq!(made["spec"]["source"]["git"]["depth"], 0);
    assert_eq!(made["spec"]["tolerations"][0]["operator"], "Equal");
    assert!(made["metadata"]["managedFields"].is_null(), "{made}");

    let run =
        ["buildrun", "create", "app-1", "--buildref-name", "app", "--platform", "linux/arm64"];
    assert_eq!(ok(&namespace, &run), "BuildRun created \"app-1\" for Build \"app\"\n");
    let stored = namespace.kubectl_json(&["get", "buildrun", "app-1"])?;
    let class = &stored["spec"]["output"]["multiArch"]["imagePlatformClass"];
    assert_eq!(class, "default", "{stored}");

    let table = ok(&namespace, &["build", "list"]);
    assert!(table.starts_with("NAME") && table.contains("h.example/app:1"), "{table}");
    let table = ok(&namespace, &["buildrun", "list", "--wide", "--no-header"]);
    assert!(table.starts_with("app-1") && table.contains("linux/arm64"), "{table}");
    let listed = parsed(&ok(&namespace, &["buildrun", "list", "-o", "json"]));
    assert_eq!(listed[0]["metadata"]["name"], "app-1");

    let deleted = ok(&namespace, &["build", "delete", "app", "--delete-runs"]);
    assert_eq!(deleted, "Build deleted \"app\"\nBuildRun deleted \"app-1\"\n");
    let empty = said(&namespace, &["buildrun", "list"]);
    assert_eq!((empty.code, empty.stdout.as_str()), (Some(0), ""), "{empty}");
    assert!(empty.stderr.contains("no BuildRuns"), "{empty}");
    Ok(())
}

#[test]
fn bad_input_is_told_with_its_exit_code_and_makes_nothing() -> Result<()> {
    let namespace = namespace()?;
    let digest = format!("h.example/a@sha256:{}", "0".repeat(64));
    let create = |output: &str, platforms: &[&str]| {
        let mut args = vec!["build", "create", "app", "--strategy", "s", "--output"];
        args.push(output);
        args.extend(platforms.iter().flat_map(|platform| ["--platform", platform]));
        said(&namespace, &args)
    };
    for (said, code, told) in [
        (create("h.example/a:1", &["linux"]), 2, "only half of a platform"),
        (create("h.example/a:1", &["linux/amd64/v3/x"]), 2, "linux/amd64/v3/x"),
        (create("h.example/a:1", &["linux/amd64", "linux/x86_64"]), 2, "twice"),
        (create(&digest, &["linux/amd64"]), 2, "digest"),
        (create("oci:dir:1", &[]), 2, "directory"),
        (said(&namespace, &["build", "run", "nobody"]), 4, "nobody"),
        (said(&namespace, &["build", "run", "app", "--dir", "."]), 2, "--engine local"),
        (said(&namespace, &["buildrun", "logs", "nobody"]), 4, "nobody"),
        (said(&namespace, &["build", "logs", "nobody"]), 4, "no run"),
        (said(&namespace, &["platform-class", "check", "nobody-at-all"]), 4, "nobody-at-all"),
        (said(&namespace, &["build", "list", "--kubeconfig", "/nowhere"]), 4, "kubeconfig"),
        (said(&namespace, &["build", "list", "--context", "nobody"]), 2, "nobody"),
    ] {
        assert_eq!(said.code, Some(code), "{said}");
        assert!(said.stderr.contains(told), "{told}: {said}");
    }
    assert_eq!(namespace.kubectl_json(&["get", "builds"])?["items"], json!([]));
    let fine = create("h.example/a:1", &["linux/amd64/v3"]);
    assert_eq!(fine.code, Some(0), "{fine}");
    let build = namespace.kubectl_json(&["get", "build", "app"])?;
    let variant = &build["spec"]["output"]["multiArch"]["platforms"][0]["variant"];
    assert_eq!(variant, "v3", "{build}");
    let again = create("h.example/a:1", &[]);
    assert_eq!(again.code, Some(2), "{again}");
    assert!(again.stderr.contains("already exists"), "{again}");
    Ok(())
}

#[test]
fn a_cluster_that_does_not_answer_is_trouble_of_its_own() -> Result<()> {
    let namespace = namespace()?;
    let config = std::fs::read_to_string(&Testbed::get().kubeconfig)?;
    let server = config
        .lines()
        .find_map(|line| line.trim().strip_prefix("server: "))
        .or_else(|| config.split("\"server\":").nth(1).and_then(|rest| rest.split('"').nth(1)))
        .context("a server")?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("config");
    std::fs::write(&file, config.replace(server.trim_matches('"'), "https://127.0.0.1:1"))?;
    let file = file.display().to_string();
    let said = said(&namespace, &["build", "list", "--kubeconfig", &file]);
    assert_eq!(said.code, Some(5), "{said}");
    assert!(said.stderr.contains("cannot be reached"), "{said}");
    Ok(())
}

/// What `portolan ARGS` says in the end, while the test goes on.
fn begin(namespace: &Namespace, args: &[&str]) -> JoinHandle<Result<Output>> {
    let mut command = command(namespace, args);
    std::thread::spawn(move || run(&mut command))
}

/// The one run that there is.
fn one_run(namespace: &Namespace) -> Result<String> {
    wait_for("a BuildRun", Duration::from_secs(20), || {
        let runs = namespace.kubectl_json(&["get", "buildruns"])?;
        let name = runs["items"][0]["metadata"]["name"].as_str().context("no run yet")?;
        Ok(name.to_owned())
    })
}

fn set_status(namespace: &Namespace, run: &str, status: Value) -> Result<()> {
    let patch = json!({ "status": status }).to_string();
    let args = ["patch", "buildrun", run, "--subresource=status", "--type=merge", "-p", &patch];
    namespace.kubectl(&args).map(drop)
}

/// A pod as Tekton would make it.
fn step_pod(run: &str, task: &str, name: &str, container: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": {
            "buildrun.shipwright.io/name": run, "tekton.dev/pipelineTask": task,
        } },
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [{ "name": "tmp", "emptyDir": {} }, { "name": "source", "emptyDir": {} }],
        },
    })
}

fn script(step: &str, script: &str) -> Result<Value> {
    let image = Testbed::get().image("busybox")?;
    Ok(json!({ "name": step, "image": image, "command": ["sh", "-c", script] }))
}

fn ended(namespace: &Namespace, pod: &str) -> Result<()> {
    wait_for("the pod to end", Duration::from_secs(60), || {
        let pod = namespace.kubectl_json(&["get", "pod", pod])?;
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        ensure!(phase == "Succeeded" || phase == "Failed", "{}", pod["status"]);
        Ok(())
    })
}

#[test]
fn a_run_is_followed_through_all_of_its_pods_to_the_platform_that_failed() -> Result<()> {
    let namespace = namespace()?;
    let create = words(
        "build create app --strategy s --output h.example/app:1 --platform linux/amd64,linux/arm64",
    );
    ok(&namespace, &create);
    let following = begin(&namespace, &["build", "run", "app", "--follow"]);
    let run = one_run(&namespace)?;
    let tasks = [
        ("source", "p-source", script("step-git", "echo cloned")?),
        ("build-linux-amd64", "p-amd", script("step-build", "echo compiled for one")?),
        ("build-linux-arm64", "p-arm", script("step-build", "echo broke for the other; exit 3")?),
    ];
    for (task, name, container) in tasks {
        namespace.apply(step_pod(&run, task, name, container))?;
        ended(&namespace, name)?;
    }
    let row = |arch: &str, state: &str| {
        let image = format!("h.example/app:1-linux-{arch}");
        json!({ "os": "linux", "arch": arch, "image": image, "state": state })
    };
    let condition = json!({
        "type": "Succeeded", "status": "False", "reason": "Failed", "message": "a step failed",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    set_status(
        &namespace,
        &run,
        json!({
            "conditions": [condition], "completionTime": "2026-01-01T00:00:00Z",
            "output": { "platforms": [row("amd64", "Succeeded"), row("arm64", "Failed")] },
        }),
    )?;
    let said_at_the_end = following.join().expect("no panic")?;
    assert_eq!(said_at_the_end.code, Some(1), "{said_at_the_end}");
    let lines = [
        "[source:git] cloned",
        "[linux/amd64:build] compiled for one",
        "[linux/arm64:build] broke for the other",
    ];
    for line in lines {
        assert!(said_at_the_end.stdout.contains(line), "{line}: {said_at_the_end}");
    }
    let told = "has failed: Failed: a step failed (failed: linux/arm64)";
    assert!(said_at_the_end.stderr.contains(told), "{said_at_the_end}");
    assert!(said_at_the_end.stderr.contains("linux/arm64    failed"), "{said_at_the_end}");

    // Afterwards the same lines are there, phase by phase.
    assert_eq!(ok(&namespace, &["buildrun", "logs", &run]), lines.join("\n") + "\n");
    assert_eq!(ok(&namespace, &["build", "logs", "app"]), lines.join("\n") + "\n");
    let late = said(&namespace, &["buildrun", "cancel", &run]);
    assert_eq!(late.code, Some(1), "{late}");
    let dir = tempfile::tempdir()?;
    let place = dir.path().display().to_string();
    ok(&namespace, &["buildrun", "gather", &run, "--output", &place]);
    let top = dir.path().join(format!("buildrun-{run}-gather"));
    let log = std::fs::read_to_string(top.join("logs/p-arm/step-build.log"))?;
    assert_eq!(log, "broke for the other\n");
    for file in ["buildrun.yaml", "build.yaml", "pods/p-source.yaml"] {
        assert!(top.join(file).is_file(), "{file}");
    }
    Ok(())
}

#[test]
fn a_run_that_is_at_work_is_canceled() -> Result<()> {
    let namespace = namespace()?;
    ok(&namespace, &words("build create app --strategy s --output h.example/app:1"));
    ok(&namespace, &["build", "run", "app"]);
    let run = one_run(&namespace)?;
    let told = ok(&namespace, &["build", "cancel", "app"]);
    assert_eq!(told, format!("BuildRun successfully canceled {run:?}\n"));
    let stored = namespace.kubectl_json(&["get", "buildrun", &run])?;
    assert_eq!(stored["spec"]["state"], "BuildRunCanceled");
    let none = said(&namespace, &["build", "cancel", "other"]);
    assert_eq!(none.code, Some(1), "{none}");
    Ok(())
}

/// A pod that waits for a source as our own step does, and then says what it got.
fn waiting_pod(run: &str, scratch: &Path) -> Result<Value> {
    let busybox = tool("busybox");
    let portolan = portolan();
    let program = Path::new(portolan.get_program());
    let more = [("bin/busybox", busybox)];
    let place = (scratch, "portolan/cli");
    let image =
        program_image(program, "bin/portolan", &more, json!({ "Env": ["PATH=/bin"] }), place)?;
    let script = "b=/bin/busybox; sleep() { $b sleep $1; }; sleep 1; echo 1 > /shp-tmp/waiter.lock; \
        while [ -e /shp-tmp/waiter.lock ]; do sleep 0.1; done; \
        cd /workspace/source && $b find . | $b sort && $b readlink link && $b cat deep/file";
    Ok(step_pod(
        run,
        "source",
        "waits",
        json!({
            "name": "step-source-local", "image": image,
            "command": ["/bin/busybox", "sh", "-c", script],
            "env": [{ "name": "TMPDIR", "value": "/shp-tmp" }],
            "securityContext": { "runAsUser": 1000, "readOnlyRootFilesystem": true },
            "volumeMounts": [
                { "name": "tmp", "mountPath": "/shp-tmp" },
                { "name": "source", "mountPath": "/workspace/source" },
            ],
        }),
    ))
}

#[test]
fn a_directory_is_sent_to_the_pod_that_waits_for_it() -> Result<()> {
    let namespace = namespace()?;
    let create = words(
        "build create app --strategy s --output h.example/app:1 --source-local --platform linux/amd64",
    );
    let created = said(&namespace, &create);
    assert_eq!(created.code, Some(0), "{created}");
    assert!(
        created.stderr.contains("warning: the source is stored as h.example/app:1-src"),
        "{created}"
    );
    let dir = tempfile::tempdir()?;
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("deep"))?;
    std::fs::write(source.join("deep/file"), "what was sent\n")?;
    std::fs::write(source.join(".shpignore"), "*.log\n")?;
    std::fs::write(source.join("deep/noise.log"), "x")?;
    std::os::unix::fs::symlink("deep/file", source.join("link"))?;
    // Enough to be sent in many pieces, and not to be packed to nothing.
    let noise: Vec<u8> =
        (0u32..1 << 20).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(source.join("big"), noise)?;
    let place = source.display().to_string();
    let sending = begin(&namespace, &["build", "upload", "app", &place]);
    let run = one_run(&namespace)?;
    let stored = namespace.kubectl_json(&["get", "buildrun", &run])?;
    assert_eq!(stored["spec"]["source"]["type"], "Local", "{stored}");
    namespace.apply(waiting_pod(&run, dir.path())?)?;
    let sent = sending.join().expect("no panic")?;
    assert_eq!(sent.code, Some(0), "{sent}");
    ended(&namespace, "waits")?;
    let log = namespace.kubectl(&["logs", "waits"])?;
    let expected =
        ".\n./.shpignore\n./big\n./deep\n./deep/file\n./link\ndeep/file\nwhat was sent\n";
    assert_eq!(log, expected);
    Ok(())
}

#[test]
fn classes_are_judged_with_and_without_a_build() -> Result<()> {
    let namespace = namespace()?;
    let testbed = Testbed::get();
    let name = |suffix: &str| format!("{}-{suffix}", namespace.name());
    let object = |kind: &str, name: String, spec: Value| {
        json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": kind,
            "metadata": { "name": name }, "spec": spec,
        })
    };
    let native = |arch: &str| json!({ "platform": platform(arch), "nodeSelector": { "kubernetes.io/arch": arch } });
    let class = |names: &[&str]| {
        let names: Vec<Value> = names.iter().map(|n| json!({ "name": name(n) })).collect();
        json!({ "imagePlatforms": names })
    };
    let strategy = json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "ClusterBuildStrategy",
        "metadata": { "name": name("s") }, "spec": { "steps": [{ "name": "x", "image": "i" }] },
    });
    for object in [
        object("ImagePlatform", name("amd"), native("amd64")),
        object("ImagePlatform", name("amd-too"), native("amd64")),
        object("ImagePlatform", name("arm"), native("arm64")),
        object("ImagePlatformClass", name("good"), class(&["amd", "arm"])),
        object("ImagePlatformClass", name("twice"), class(&["amd", "amd-too"])),
        object("ImagePlatformClass", name("lacks"), class(&["amd", "gone"])),
        strategy,
    ] {
        testbed.apply(&object)?;
    }
    let check = |class: &str, more: &[&str]| {
        let class = name(class);
        said(&namespace, &[&["platform-class", "check", &class], more].concat())
    };
    for (said, code, told) in [
        (check("good", &["--platform", "linux/arm64"]), 0, "is available"),
        (check("good", &["--platform", "linux/s390x"]), 1, "missing: linux/s390x"),
        (check("twice", &[]), 1, "DuplicatePlatform"),
        (check("lacks", &[]), 1, "ImagePlatformNotFound"),
    ] {
        assert_eq!(said.code, Some(code), "{said}");
        assert!(said.stdout.contains(told), "{told}: {said}");
    }
    let (strategy, good) = (name("s"), name("good"));
    let create = |build: &str, more: &[&str]| {
        let base = ["build", "create", build, "--strategy", &strategy, "--output", "h.example/a:1"];
        let platforms = ["--platform", "linux/arm64", "--platform-class", &good];
        ok(&namespace, &[&base[..], &platforms, more].concat());
    };
    create("fits", &[]);
    create("collides", &["--node-selector", "kubernetes.io/arch=arm64"]);
    let fits = check("good", &["--build", "fits"]);
    assert_eq!(fits.code, Some(0), "{fits}");
    let collides = check("good", &["--build", "collides", "-o", "json"]);
    assert_eq!(collides.code, Some(1), "{collides}");
    let answer = parsed(&collides.stdout);
    assert_eq!(answer["refusals"][0]["reason"], "NodeSelectorCollision", "{answer}");

    let platforms = ok(&namespace, &["platform", "list"]);
    let row = platforms.lines().find(|line| line.starts_with(&name("arm"))).context("a row")?;
    assert!(row.contains("linux/arm64") && row.contains("native"), "{row}");
    assert!(ok(&namespace, &["platform-class", "list"]).contains(&good));
    assert!(ok(&namespace, &["strategy", "list"]).contains(&strategy));
    for (kind, names) in [
        ("imageplatformclass", vec!["good", "twice", "lacks"]),
        ("imageplatform", vec!["amd", "amd-too", "arm"]),
        ("clusterbuildstrategy", vec!["s"]),
    ] {
        for suffix in names {
            testbed.kubectl(&["delete", kind, &name(suffix)])?;
        }
    }
    Ok(())
}
