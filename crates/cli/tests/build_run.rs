//! `portolan build run` on this machine, against the embedded registry.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::path::{Path, PathBuf};

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
