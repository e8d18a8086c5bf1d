//! The steps of builds as the program runs them, against other people's registries; their tools read
//! what comes of it.

use std::fs;
use std::path::{Path, PathBuf};

use portolan_e2e::{Registry, RegistryKind, digest, json, ok, ours, ours_output, peer, tool};

/// The arguments that a plan gives the steps, with a directory for their results.
struct Pod {
    registry: Registry,
    dir: tempfile::TempDir,
}

impl Pod {
    fn new(kind: RegistryKind) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        Self { registry: kind.start().expect("the registry starts"), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn image(&self, tag: &str) -> String {
        format!("{}/team/app:{tag}", self.registry.address)
    }

    fn result(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A repository with a Containerfile for two platforms.
    fn repository(&self) -> String {
        let dir = self.path("repository");
        fs::create_dir(&dir).expect("a directory of its own");
        let text =
            "FROM scratch\nARG TARGETARCH\nCOPY app-$TARGETARCH /app\nENTRYPOINT [\"/app\"]\n";
        fs::write(dir.join("Containerfile"), text).expect("a file of its own");
        for arch in ["amd64", "arm64"] {
            fs::write(dir.join(format!("app-{arch}")), arch).expect("a file of its own");
        }
        for args in [
            &["init", "--quiet", "--initial-branch=main"][..],
            &["add", "."],
            &[
                "-c",
                "user.name=Ada",
                "-c",
                "user.email=a@example.com",
                "commit",
                "--quiet",
                "-m",
                "x",
            ],
        ] {
            ok(peer("git", self.dir.path()).current_dir(&dir).args(args));
        }
        format!("file://{}", dir.display())
    }

    fn step(&self, name: &str, args: &[&str]) {
        ours(&[&["step", name], args].concat());
    }

    /// Everything that the pods of a run for two platforms do, in their order.
    fn build(&self) -> String {
        let url = self.repository();
        self.step(
            "git",
            &[
                "--url",
                &url,
                "--target",
                &self.text("clone"),
                "--result-file-commit-sha",
                &self.text("sha"),
                "--result-file-source-timestamp",
                &self.text("time"),
            ],
        );
        assert_eq!(self.result("sha").len(), 40);
        let source = self.image("1-src");
        self.step(
            "source-push",
            &[
                "--image",
                &source,
                "--source",
                &self.text("clone"),
                "--insecure",
                "--result-file-image-digest",
                &self.text("bundle"),
            ],
        );
        let pinned = format!("{}/team/app@{}", self.registry.address, self.result("bundle"));
        let mut platforms = Vec::new();
        for arch in ["amd64", "arm64"] {
            let platform = format!("linux/{arch}");
            let (context, out) =
                (self.text(&format!("src-{arch}")), self.text(&format!("out-{arch}")));
            self.step("source-pull", &["--image", &pinned, "--target", &context, "--insecure"]);
            self.step(
                "assemble",
                &["--context", &context, "--platform", &platform, "--output", &out],
            );
            self.step(
                "image-push",
                &[
                    "--push",
                    &out,
                    "--label",
                    "team=blue",
                    "--image",
                    &self.image(&format!("1-linux-{arch}")),
                    "--insecure=true",
                    "--platform",
                    &platform,
                    "--result-file-image-digest",
                    &self.text(arch),
                    "--result-file-image-size",
                    &self.text("size"),
                ],
            );
            platforms.push(format!("{platform}={}", self.result(arch)));
        }
        assert!(self.result("size").parse::<u64>().is_ok());
        let mut args = vec!["--platforms"];
        args.extend(platforms.iter().map(String::as_str));
        let (image, file) = (self.image("1"), self.text("index"));
        args.extend(["--image", &image, "--insecure=true", "--result-file-image-digest", &file]);
        self.step("index-assemble", &args);
        self.result("index")
    }
}

#[test]
fn steps_build_an_index_that_crane_and_skopeo_read_in_every_registry() {
    for kind in RegistryKind::ALL {
        let pod = Pod::new(kind);
        let index = pod.build();
        let home = pod.dir.path();
        let crane = |args: &[&str]| ok(peer("crane", home).arg("--insecure").args(args));
        assert_eq!(crane(&["digest", &pod.image("1")]).trim(), index, "{kind:?}");
        for arch in ["amd64", "arm64"] {
            let platform = format!("--platform=linux/{arch}");
            let config = json(&crane(&["config", &platform, &pod.image("1")]));
            assert_eq!(config["architecture"], arch);
            assert_eq!(config["config"]["Labels"]["team"], "blue");
        }
        let remote = format!("docker://{}", pod.image("1"));
        let raw =
            ok(peer("skopeo", home).args(["inspect", "--raw", "--tls-verify=false", &remote]));
        assert_eq!(json(&raw)["manifests"].as_array().map(Vec::len), Some(2), "{kind:?}");
        // The same images in crane's index: the same entries, whatever else it writes.
        let other = pod.image("crane");
        let (amd, arm) = (pod.image("1-linux-amd64"), pod.image("1-linux-arm64"));
        crane(&["index", "append", "--manifest", &amd, "--manifest", &arm, "--tag", &other]);
        let entries = |reference: &str| {
            let index = json(&crane(&["manifest", reference]));
            let all = index["manifests"].as_array().cloned().unwrap_or_default();
            let entry = |e: &serde_json::Value| {
                (e["digest"].clone(), e["platform"]["architecture"].clone(), e["size"].clone())
            };
            all.iter().map(entry).collect::<Vec<_>>()
        };
        assert_eq!(entries(&pod.image("1")), entries(&other), "{kind:?}");
    }
}

#[test]
fn a_laptop_gives_the_digest_that_the_steps_of_a_cluster_give() {
    let pod = Pod::new(RegistryKind::DockerRegistry);
    let index = pod.build();
    let local = pod.image("laptop");
    let dir = pod.text("clone");
    ours(&[
        "build",
        "run",
        "--engine",
        "local",
        "--no-source",
        "--dir",
        &dir,
        "--label",
        "team=blue",
        "--platform",
        "linux/amd64",
        "--platform",
        "linux/arm64",
        "--output",
        &local,
    ]);
    assert_eq!(digest(&local), index);
}

#[test]
fn what_goes_wrong_is_left_where_a_status_is_made_of() {
    let pod = Pod::new(RegistryKind::Olareg);
    pod.build();
    let child = pod.result("amd64");
    let (message, reason) = (pod.text("message"), pod.text("reason"));
    let output = ours_output(&[
        "step",
        "index-assemble",
        "--image",
        &pod.image("wrong"),
        "--result-file-error-message",
        &message,
        "--result-file-error-reason",
        &reason,
        "--platforms",
        &format!("linux/s390x={child}"),
    ]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(pod.result("reason"), "PlatformMismatch");
    assert!(pod.result("message").contains("linux/s390x"), "{}", pod.result("message"));
    assert!(pod.result("message").chars().count() <= 300);
    assert_eq!(ours_output(&["image", "inspect", &pod.image("wrong")]).code, Some(4));
    assert_eq!(ours_output(&["step", "git", "--url", "", "--target", "x"]).code, Some(100));
    assert_eq!(ours_output(&["step", "git", "--url", "https://h/r"]).code, Some(101));
}

/// A Containerfile that runs a program, by buildah on this machine: natively, and for arm64 where the
/// kernel was told how, else with what to do about it.
#[test]
fn run_is_done_by_buildah_on_this_machine() {
    let pod = Pod::new(RegistryKind::Embedded);
    let dir = pod.path("run");
    fs::create_dir(&dir).unwrap();
    fs::copy(tool("busybox"), dir.join("busybox")).unwrap();
    let text = "FROM scratch\nCOPY busybox /bin/sh\nRUN echo made > /made\nLABEL a=b\n";
    fs::write(dir.join("Containerfile"), text).unwrap();
    let arch = portolan_e2e::architecture();
    let native = format!("linux/{arch}");
    let build = |platform: &str, backend: &str| {
        ours_output(&[
            "build",
            "run",
            "--engine",
            "local",
            "--no-source",
            "--backend",
            backend,
            "--dir",
            dir.to_str().unwrap(),
            "--platform",
            platform,
            "--output",
            &pod.image("run"),
        ])
    };
    let built = build(&native, "auto");
    assert_eq!(built.code, Some(0), "{built:?}");
    let out = pod.text("pulled.tar");
    let crane = |args: &[&str]| ok(peer("crane", pod.dir.path()).arg("--insecure").args(args));
    crane(&["export", &pod.image(&format!("run-linux-{arch}")), &out]);
    let listed = ok(std::process::Command::new("tar").args(["-tf", &out]));
    assert!(listed.lines().any(|name| name.trim_start_matches('/') == "made"), "{listed}");
    let refused = build(&native, "assembler");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    if !Path::new("/proc/sys/fs/binfmt_misc/qemu-s390x").exists() {
        let foreign = build("linux/s390x", "buildah");
        assert_eq!(foreign.code, Some(1), "{foreign:?}");
        assert!(foreign.to_string().contains("qemu-user"), "{foreign}");
    }
}
