//! `portolan build run` on this machine, against the embedded registry.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{Server, run};

fn app(home: &Path, containerfile: &str) -> PathBuf {
    let dir = home.join("app");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("Containerfile"), containerfile).unwrap();
    std::fs::write(dir.join("app-amd64"), "amd64").unwrap();
    std::fs::write(dir.join("app-arm64"), "arm64").unwrap();
    dir
}

const COPIES: &str =
    "FROM scratch\nARG TARGETARCH\nCOPY --chmod=755 app-$TARGETARCH /app\nENTRYPOINT [\"/app\"]\n";

#[test]
fn a_directory_becomes_an_image_of_two_platforms_in_a_registry() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &home.path().join("data"), &[]);
    let dir = app(home.path(), COPIES);
    let output = format!("{}/team/app:1", server.address);
    let args = [
        "build",
        "run",
        "--dir",
        dir.to_str().unwrap(),
        "--engine",
        "local",
        "--platform",
        "linux/amd64",
        "--platform",
        "linux/arm64",
        "--output",
        &output,
        "-o",
        "json",
    ];
    let status = run(home.path(), &args).json();
    assert_eq!(status["conditions"][0]["status"], "True", "{status:#}");
    assert_eq!(status["executor"]["kind"], "Local");
    let inspected = run(home.path(), &["image", "inspect", &output, "-o", "json"]).json();
    assert_eq!(status["output"]["digest"], inspected["digest"]);
    for (row, entry) in status["output"]["platforms"]
        .as_array()
        .unwrap()
        .iter()
        .zip(inspected["manifests"].as_array().unwrap())
    {
        assert_eq!(row["digest"], entry["digest"]);
        assert_eq!(row["arch"], entry["platform"]["architecture"]);
        let image =
            run(home.path(), &["image", "inspect", row["image"].as_str().unwrap(), "-o", "json"])
                .json();
        assert_eq!(image["digest"], row["digest"]);
    }
    let source =
        run(home.path(), &["image", "inspect", &format!("{output}-src"), "-o", "json"]).json();
    assert_eq!(source["digest"], status["source"]["ociArtifact"]["digest"]);
    // The stored source, and no directory: the same index.
    let stored = format!("{output}-src");
    let other = format!("{}/team/other:1", server.address);
    let rebuilt = run(
        home.path(),
        &[
            "build",
            "run",
            "--source",
            &stored,
            "--engine",
            "local",
            "--platform",
            "linux/amd64,linux/arm64",
            "--output",
            &other,
            "-o",
            "json",
        ],
    )
    .json();
    assert_eq!(rebuilt["output"]["digest"], inspected["digest"]);
    assert_eq!(rebuilt["source"]["ociArtifact"]["digest"], source["digest"]);
    // Again, and nothing is different; for people this time.
    let again = run(home.path(), &[&args[..args.len() - 2], &["--jobs", "1"]].concat());
    assert!(again.err.contains("linux/arm64   building"), "{}", again.err);
    let table = again.ok();
    assert!(table.contains(inspected["digest"].as_str().unwrap()), "{table}");
}

#[test]
fn run_is_bad_input_and_names_buildah() {
    let home = tempfile::tempdir().unwrap();
    let dir = app(home.path(), "FROM scratch\nRUN make\n");
    let output = format!("oci:{}:1", home.path().join("out").display());
    let said = run(
        home.path(),
        &[
            "build",
            "run",
            "--dir",
            dir.to_str().unwrap(),
            "--engine",
            "local",
            "--backend",
            "assembler",
            "--platform",
            "linux/amd64",
            "--output",
            &output,
        ],
    );
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert!(said.err.contains("line 2, column 1") && said.err.contains("buildah"), "{}", said.err);
    assert!(!home.path().join("out").exists(), "nothing was begun");
}

#[test]
fn what_cannot_be_pushed_is_transport_trouble_in_the_status_too() {
    let home = tempfile::tempdir().unwrap();
    let dir = app(home.path(), COPIES);
    // A port that was free a moment ago: nobody listens.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = format!("{address}/app:1");
    let said = run(
        home.path(),
        &[
            "build",
            "run",
            "--dir",
            dir.to_str().unwrap(),
            "--engine",
            "local",
            "--no-source",
            "--platform",
            "linux/amd64,linux/arm64",
            "--output",
            &output,
            "-o",
            "json",
        ],
    );
    assert_eq!(said.code, 5, "{}", said.err);
    let status: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let rows = status["output"]["platforms"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["failure"]["reason"] == "PushFailed"), "{status:#}");
    assert_eq!(status["output"]["digest"], serde_json::Value::Null);
}

#[test]
fn platforms_and_outputs_are_not_guessed() {
    let home = tempfile::tempdir().unwrap();
    let dir = app(home.path(), COPIES);
    let digest = format!("127.0.0.1:1/app@sha256:{}", "0".repeat(64));
    let twice =
        ["--platform", "linux/arm64", "--platform", "linux/aarch64", "--output", "127.0.0.1:1/a"];
    for (more, what) in [
        (&["--output", "127.0.0.1:1/a"][..], "--platform"),
        (&["--platform", "linux/amd64", "--output", &digest][..], "name a tag"),
        (&twice[..], "there twice"),
    ] {
        let args = ["build", "run", "--dir", dir.to_str().unwrap(), "--engine", "local"];
        let said = run(home.path(), &[&args[..], more].concat());
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains(what), "{}", said.err);
    }
    let gone = run(
        home.path(),
        &[
            "build",
            "run",
            "--dir",
            "/nowhere",
            "--engine",
            "local",
            "--platform",
            "linux/amd64",
            "--output",
            "127.0.0.1:1/a",
        ],
    );
    assert_eq!(gone.code, 4, "{}", gone.err);
}

const BUILD: &str = "\
apiVersion: shipwright.io/v1beta1
kind: Build
metadata: {name: app}
spec:
  source: {type: Local, local: {}}
  strategy: {name: portolan, kind: ClusterBuildStrategy}
  output:
    image: ADDRESS/team/app:1
    labels: {made: by-a-build}
    multiArch:
      imagePlatformClass: default
      platforms: [{os: linux, arch: amd64}, {os: linux, arch: arm64}]
---
apiVersion: shipwright.io/v1beta1
kind: ClusterBuildStrategy
metadata: {name: portolan}
spec:
  parameters:
    - {name: dockerfile, description: the file, type: string, default: Containerfile}
  steps:
    - name: assemble
      image: portolan
      command: [portolan, step, assemble]
      args: [--output, $(params.shp-output-directory)]
---
apiVersion: shipwright.io/v1alpha1
kind: ImagePlatform
metadata: {name: amd}
spec: {platform: {os: linux, arch: amd64}, nodeSelector: {kubernetes.io/arch: amd64}}
---
apiVersion: shipwright.io/v1alpha1
kind: ImagePlatform
metadata: {name: arm}
spec: {platform: {os: linux, arch: arm64}, nodeSelector: {kubernetes.io/arch: arm64}}
---
apiVersion: shipwright.io/v1alpha1
kind: ImagePlatformClass
metadata: {name: default}
spec: {imagePlatforms: [{name: amd}, {name: arm}]}
";

#[test]
fn a_build_of_a_file_is_built_on_this_machine() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &home.path().join("data"), &[]);
    let dir = app(home.path(), COPIES);
    let file = home.path().join("build.yaml");
    std::fs::write(&file, BUILD.replace("ADDRESS", &server.address)).unwrap();
    let (file, dir) = (file.to_str().unwrap(), dir.to_str().unwrap());
    let args = ["build", "run", "-f", file, "--engine", "local", "--dir", dir, "-o", "json"];
    let status = run(home.path(), &args).json();
    assert_eq!(status["conditions"][0]["status"], "True", "{status:#}");
    assert_eq!(status["output"]["platforms"].as_array().unwrap().len(), 2);
    let output = format!("{}/team/app:1", server.address);
    let by_flags = [
        &["build", "run", "--dir", dir, "--engine", "local", "--platform"][..],
        &[
            "linux/amd64,linux/arm64",
            "--label",
            "made=by-a-build",
            "--output",
            &output,
            "-o",
            "json",
        ],
    ];
    let same = run(home.path(), &by_flags.concat()).json();
    assert_eq!(same["output"]["digest"], status["output"]["digest"]);
    // One platform of the class, asked for on the command line.
    let one = run(home.path(), &[&args[..], &["--platform", "linux/arm64"]].concat()).json();
    assert_eq!(one["output"]["platforms"].as_array().unwrap().len(), 1);
    let other = run(home.path(), &[&args[..], &["--platform", "linux/s390x"]].concat());
    assert_eq!(other.code, 1, "{}", other.err);
    assert!(other.err.contains("PlatformNotSupported"), "{}", other.err);
}

#[test]
fn a_cluster_is_not_asked_where_none_is_needed() {
    let home = tempfile::tempdir().unwrap();
    let create = [
        "build",
        "create",
        "app",
        "--strategy",
        "s",
        "--output",
        "h.example/a:1",
        "--platform",
        "linux/ppcle64",
        "--dry-run",
        "-o",
        "json",
    ];
    let said = run(home.path(), &create);
    assert!(said.err.contains("ppc64le"), "{}", said.err);
    let build = said.json();
    let multi_arch = &build["spec"]["output"]["multiArch"];
    assert_eq!(multi_arch["imagePlatformClass"], "default");
    assert_eq!(multi_arch["platforms"][0]["arch"], "ppc64le");
    for (args, code, told) in [
        (&["build", "run", "app", "--dir", "."][..], 2, "--engine local"),
        (&["build", "run"], 2, "name the Build"),
        (&["build", "run", "--engine", "local"], 2, "--dir"),
        (&["build", "list", "--kubeconfig", "/nowhere"], 4, "kubeconfig"),
        (&["build", "upload", "app", "/nowhere"], 4, "no directory"),
    ] {
        let said = run(home.path(), args);
        assert_eq!(said.code, code, "{args:?}: {}", said.err);
        assert!(said.err.contains(told), "{args:?}: {}", said.err);
    }
}

#[test]
fn a_build_of_a_file_goes_to_a_directory_as_what_flags_say_does() {
    let home = tempfile::tempdir().unwrap();
    let dir = app(home.path(), COPIES);
    let file = home.path().join("build.yaml");
    std::fs::write(&file, BUILD.replace("ADDRESS", "h.example")).unwrap();
    let (file, dir) = (file.to_str().unwrap(), dir.to_str().unwrap());
    let place = |name: &str| format!("oci:{}:1", home.path().join(name).display());
    let (by_file, by_flags) = (place("by-file"), place("by-flags"));
    let same = ["build", "run", "--engine", "local", "--dir", dir, "-o", "json", "--output"];
    let status = run(home.path(), &[&same[..], &[&by_file, "-f", file]].concat()).json();
    let flags = ["--platform", "linux/amd64,linux/arm64", "--label", "made=by-a-build"];
    let expected = run(home.path(), &[&same[..], &[&by_flags], &flags].concat()).json();
    assert_eq!(status["output"]["digest"], expected["output"]["digest"]);
    let inspected = run(home.path(), &["image", "inspect", &by_file, "-o", "json"]).json();
    assert_eq!(inspected["digest"], status["output"]["digest"]);
}

/// As in a cluster: what the class says of a platform counts for it, and is in its row.
#[test]
fn a_platform_of_a_class_has_a_stage_and_arguments_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let stages = "FROM scratch AS small\nCOPY app-arm64 /small\nFROM scratch AS big\nARG NAME\nLABEL name=$NAME\n\
                  COPY app-amd64 /big\nFROM big\nLABEL last=yes\n";
    let dir = app(home.path(), stages);
    let params = "    - {name: target, description: the stage, default: ''}\n    \
                  - {name: build-args, description: values, type: array, defaults: []}\n  steps:";
    let text = BUILD.replace("ADDRESS", "h.example").replace("  steps:", params).replace(
        "arch: arm64}, nodeSelector",
        "arch: arm64}, paramValues: [{name: target, value: big}, {name: build-args, values: [{value: NAME=arm}]}], nodeSelector",
    );
    let file = home.path().join("build.yaml");
    std::fs::write(&file, text).unwrap();
    let output = format!("oci:{}:1", home.path().join("out").display());
    let (file, dir) = (file.to_str().unwrap(), dir.to_str().unwrap());
    let args = ["build", "run", "--engine", "local", "-f", file, "--dir", dir, "--output", &output];
    let said = run(home.path(), &[&args[..], &["-o", "json"]].concat());
    assert!(said.err.contains("nodeSelector of ImagePlatform amd, arm"), "{}", said.err);
    let status = said.json();
    let rows = &status["output"]["platforms"];
    assert_eq!(
        (&rows[0]["imagePlatform"], &rows[1]["imagePlatform"]),
        (&"amd".into(), &"arm".into())
    );
    let labels = |row: usize| {
        let image = rows[row]["image"].as_str().unwrap();
        let inspected = run(home.path(), &["image", "inspect", image, "-o", "json"]).json();
        let config = inspected["config"]["digest"].as_str().unwrap().replace(':', "/");
        let config = std::fs::read(home.path().join("out/blobs").join(config)).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        config["config"]["Labels"].clone()
    };
    assert_eq!(labels(0), serde_json::json!({"name": "", "last": "yes", "made": "by-a-build"}));
    assert_eq!(labels(1), serde_json::json!({"name": "arm", "made": "by-a-build"}));
}

/// Nothing is left out in silence, and what is wrong has the exit code of what it is.
#[test]
fn a_run_in_a_file_is_told_to_be_left_out_and_a_bad_repository_has_its_exit_code() {
    let home = tempfile::tempdir().unwrap();
    let one = "    platforms: [{os: linux, arch: amd64}]\n";
    let run_of = "---\napiVersion: shipwright.io/v1beta1\nkind: BuildRun\nmetadata: {name: later}\n\
                  spec: {build: {name: app}, timeout: 1s}\n";
    let file = home.path().join("build.yaml");
    let path = file.to_str().unwrap();
    let nowhere = format!("file://{}/none.git", home.path().display());
    for (url, code) in [("ext::sh -c true", 2), (nowhere.as_str(), 4)] {
        let source = format!("source: {{type: Git, git: {{url: \"{url}\"}}}}");
        let text = alone().replace("source: {type: Local, local: {}}", &source);
        std::fs::write(&file, format!("{text}{one}{run_of}")).unwrap();
        let said = run(home.path(), &["build", "run", "--engine", "local", "-f", path]);
        assert_eq!(said.code, code, "{url}: {}", said.err);
        assert!(said.err.contains("BuildRun later is not looked at"), "{}", said.err);
    }
    let said = run(home.path(), &["build", "create", "-f", path, "--dry-run"]);
    assert!(said.err.contains("BuildRun later is not looked at"), "{}", said.err);
}

/// A Build and nothing that it names.
fn alone() -> String {
    let build = BUILD.split("---\n").next().unwrap();
    let (build, _) = build.split_once("    multiArch:").unwrap();
    build.replace("ADDRESS", "h.example")
}

#[test]
fn a_build_alone_is_built_by_the_strategies_and_platforms_that_are_shipped() {
    let home = tempfile::tempdir().unwrap();
    let dir = app(home.path(), COPIES);
    let file = home.path().join("build.yaml");
    std::fs::write(&file, alone()).unwrap();
    let (file, dir) = (file.to_str().unwrap(), dir.to_str().unwrap());
    let output = format!("oci:{}:1", home.path().join("out").display());
    let args = [
        &["build", "run", "--file", file, "--engine", "local", "--dir", dir, "-o", "json"][..],
        &["--platform", "linux/amd64", "--platform", "linux/arm64", "--output", &output],
    ]
    .concat();
    let status = run(home.path(), &args).json();
    assert_eq!(status["output"]["platforms"].as_array().unwrap().len(), 2, "{status:#}");
    // What a file has comes before what is shipped under the same name.
    let own = "---\napiVersion: shipwright.io/v1alpha1\nkind: ImagePlatformClass\n\
        metadata: {name: default}\nspec: {imagePlatforms: [{name: linux-arm64}]}\n";
    std::fs::write(file, format!("{}{own}", alone())).unwrap();
    let said = run(home.path(), &args);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("PlatformNotSupported"), "{}", said.err);
}

/// Flags that only clusters have a use for, and what is told of them.
const TOLD: [(&[&str], &str); 9] = [
    (&["--output-image-push-secret", "s"], "output.pushSecret"),
    (&["--env", "CGO=0"], "the variable CGO"),
    (&["--param-item", "registries-insecure=h.example"], "the parameter registries-insecure"),
    (&["--sa-name", "builder"], "--sa-name"),
    (&["--node-selector", "a=b"], "nodeSelector"),
    (&["--toleration", "a"], "tolerations"),
    (&["--scheduler-name", "s"], "schedulerName"),
    (&["--runtime-class", "r"], "runtimeClassName"),
    (&["--retention-ttl-after-failed", "1h", "--retention-ttl-after-succeeded", "1h"], "retention"),
];

#[test]
fn every_flag_counts_on_one_machine_or_is_told() {
    let home = tempfile::tempdir().unwrap();
    let dir = app(home.path(), COPIES);
    let file = home.path().join("build.yaml");
    std::fs::write(&file, alone()).unwrap();
    let (file, dir) = (file.to_str().unwrap(), dir.to_str().unwrap());
    let output = format!("oci:{}:1", home.path().join("out").display());
    let base = [
        &["build", "run", "--engine", "local", "--dir", dir, "--output", &output][..],
        &["--platform", "linux/amd64", "--env", "SOURCE_DATE_EPOCH=7", "-o", "json"],
    ]
    .concat();
    let useless: Vec<&str> = TOLD.iter().flat_map(|(flags, _)| flags.iter().copied()).collect();
    for (more, class) in [(&[][..], true), (&["-f", file], false)] {
        let all = [&base[..], more, &useless, &["--platform-class", "default"]].concat();
        let said = run(home.path(), &all);
        let note = said.err.lines().find(|line| line.contains("not used on one machine"));
        let note = note.unwrap_or_else(|| panic!("{}", said.err)).to_owned();
        for (_, told) in TOLD {
            assert!(note.contains(told), "{told}: {note}");
        }
        assert_eq!(note.contains("--platform-class"), class, "a Build has one: {note}");
        assert!(!note.contains("SOURCE_DATE_EPOCH"), "{note}");
        let status = said.json();
        let plain = run(home.path(), &[&base[..], more].concat());
        assert!(!plain.err.contains("not used"), "{}", plain.err);
        assert_eq!(plain.json()["output"]["digest"], status["output"]["digest"]);
        let image = status["output"]["platforms"][0]["image"].as_str().unwrap();
        let inspected = run(home.path(), &["image", "inspect", image, "-o", "json"]).json();
        let config = inspected["config"]["digest"].as_str().unwrap().replace(':', "/");
        let config = std::fs::read_to_string(home.path().join("out/blobs").join(config)).unwrap();
        assert!(config.contains("1970-01-01T00:00:07Z"), "{config}");
    }
    // Whoever adds a flag says here what becomes of it.
    let counts = "annotation backend build-arg dir dockerfile engine file format jobs label no-source \
        output-image output-insecure output-timestamp param-value param-secret param-config-map platform \
        platform-class source source-date-epoch target timeout";
    let refused_or_of_the_cluster = "context follow dry-run kubeconfig namespace release release-policy request-timeout retention-ttl-after-succeeded";
    let of_every_command = "help progress registries verbose version";
    let mut known: Vec<&str> = [counts, refused_or_of_the_cluster, of_every_command]
        .iter()
        .flat_map(|flags| flags.split_whitespace())
        .collect();
    known.extend(TOLD.iter().map(|(flags, _)| flags[0].trim_start_matches('-')));
    known.extend(["output-image-label", "output-image-annotation"]);
    let help = run(home.path(), &["build", "run", "--help"]).ok();
    let flags = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let long = line.find("--").filter(|at| line.starts_with('-') && *at <= 4)?;
        line[long + 2..].split(|c: char| c != '-' && !c.is_ascii_lowercase()).next()
    });
    let unknown: Vec<&str> = flags.filter(|flag| !known.contains(flag)).collect();
    assert_eq!(unknown, [""; 0]);
}

#[test]
fn a_build_that_takes_longer_than_it_may_ends_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let dir = app(home.path(), COPIES);
    let temp = home.path().join("tmp");
    std::fs::create_dir(&temp).unwrap();
    let output = format!("oci:{}:1", home.path().join("out").display());
    let args = ["build", "run", "--engine", "local", "--platform", "linux/amd64", "--timeout"];
    let build_as = |timeout: &str, format: &str| -> support::Said {
        let mut command = support::portolan(home.path());
        command.args(args).args([timeout, "-o", format, "--output", &output, "--dir"]).arg(&dir);
        command.env("TMPDIR", &temp).output().unwrap().into()
    };
    let build = |timeout: &str| build_as(timeout, "table");
    let told = ["BuildRunTimeout", "a longer --timeout, or 0 for no limit"];
    for format in ["table", "json"] {
        let said = build_as("1us", format);
        assert_eq!((said.code, said.out.is_empty()), (1, format == "table"), "{}", said.err);
        assert!(told.iter().all(|told| said.err.contains(told)), "{}", said.err);
    }
    // Programs get the document that they asked for.
    let status: Value = serde_json::from_str(&build_as("1us", "json").out).unwrap();
    let condition = &status["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("Succeeded"), &json!("False"), &json!("BuildRunTimeout"))
    );
    assert!(status["startTime"].is_string() && status["completionTime"].is_string(), "{status}");
    assert_eq!(std::fs::read_dir(&temp).unwrap().count(), 0);
    build("0").ok();
    build("10m").ok();
}

#[test]
fn a_registry_without_tls_is_pushed_to_where_the_output_is_insecure() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &home.path().join("data"), &[]);
    let dir = app(home.path(), COPIES);
    // The same machine under a name that is not loopback's, which needs no permission.
    let output = format!("{}/app:1", server.address.replace("127.0.0.1", "0.0.0.0"));
    let settings = home.path().join("registries.toml");
    std::fs::write(&settings, "[defaults]\nretries = 0\n").unwrap();
    let build = |more: &[&str]| -> support::Said {
        let mut command = support::portolan(home.path());
        command.arg("--registries").arg(&settings).env("NO_PROXY", "*");
        command.args(["build", "run", "--engine", "local", "--platform", "linux/amd64"]);
        command.args(["--output", &output, "--dir"]).arg(&dir).args(more).output().unwrap().into()
    };
    assert_eq!(build(&[]).code, 5);
    build(&["--output-insecure"]).ok();
    let file = home.path().join("build.yaml");
    let insecure = alone().replace("    labels:", "    insecure: true\n    labels:");
    std::fs::write(&file, insecure).unwrap();
    build(&["-f", file.to_str().unwrap()]).ok();
    assert_eq!(build(&["-f", file.to_str().unwrap(), "--output-insecure=false"]).code, 5);
}
