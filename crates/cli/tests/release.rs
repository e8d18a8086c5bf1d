//! `portolan release` without a cluster, as scripts use it: over the embedded server, with keys of `portolan key`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use serde_json::Value;
use support::{HELLO, Said, Server, generate, run, stocked, with_password};

const POLICY: &str = "version: 1\nsigners:\n  release: { keys: { files: [release.pub] } }\ndefault:\n  require: { allOf: [release] }\n";

const NEEDS: &str = r#"{"schemaVersion": "0.1.0", "namespaces": {"kernel": {"plugins": {"kernelVersion": {"data": {"range": "[4.0,)"}}}}}}"#;

struct Bench {
    home: tempfile::TempDir,
    _server: Server,
    image: String,
}

impl Bench {
    /// A registry with an image of five platforms, a key, and a policy that asks for it.
    fn new() -> Self {
        let (home, server, image) = stocked();
        generate(home.path(), "release").ok();
        std::fs::write(home.path().join("policy.yaml"), POLICY).unwrap();
        Self { home, _server: server, image }
    }

    fn file(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    fn sign(&self) {
        let key = self.file("release.key");
        let args = ["sign", &self.image, "--key", &key, "--recursive"];
        with_password(self.home.path(), &args, "secret").ok();
    }

    fn create(&self, more: &[&str]) -> Said {
        let own = ["release", "create", &self.image, "--local", "-o", "json"];
        run(self.home.path(), &[&own[..], more].concat())
    }

    fn verified(&self, more: &[&str]) -> Said {
        let policy = self.file("policy.yaml");
        self.create(&[&["--policy", &policy], more].concat())
    }

    /// What was recorded, in a file.
    fn record(&self, said: &Said) -> String {
        std::fs::write(self.home.path().join("release.yaml"), &said.out).unwrap();
        self.file("release.yaml")
    }

    fn workload(&self, file: &str, more: &[&str]) -> Said {
        run(self.home.path(), &[&["release", "workload", "-f", file], more].concat())
    }
}

fn condition(release: &Value, kind: &str) -> String {
    let conditions = release["status"]["conditions"].as_array().unwrap();
    let one = conditions.iter().find(|one| one["type"] == kind).unwrap();
    format!("{} {}", one["status"].as_str().unwrap(), one["reason"].as_str().unwrap())
}

#[test]
fn an_image_is_released_when_its_index_and_every_image_are_signed() {
    let bench = Bench::new();
    let unsigned = bench.verified(&[]);
    assert_eq!(unsigned.code, 1, "{}", unsigned.err);
    let release = unsigned.answer();
    assert_eq!(condition(&release, "Resolved"), "True Resolved");
    assert_eq!(condition(&release, "Verified"), "False NotVerified");
    assert_eq!(condition(&release, "Ready"), "False NotVerified");
    assert!(unsigned.err.contains("not Ready: NotVerified"), "{}", unsigned.err);
    // What is not Ready runs nowhere.
    let refused = bench.workload(&bench.record(&unsigned), &["--platform", "linux/amd64"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{}", refused.err);

    bench.sign();
    let signed = bench.verified(&[]);
    assert_eq!(signed.code, 0, "{}", signed.err);
    let release = signed.answer();
    assert_eq!(condition(&release, "Ready"), "True Ready");
    let status = &release["status"];
    assert_eq!(status["indexDigest"], status["digest"]);
    assert_eq!(status["verifiedBy"][0]["name"], "release");
    let resolved = status["resolved"].as_array().unwrap();
    assert_eq!(resolved.len(), 5, "{resolved:?}");
    for image in resolved {
        assert_eq!(image["verifiedBy"][0]["name"], "release", "{image}");
        assert!(image["size"].as_i64().unwrap() > 0);
    }

    // An agent takes what is printed, and the digest is the one that `image resolve` chooses.
    let file = bench.record(&signed);
    let spec = bench.workload(&file, &["--platform", "linux/arm64"]).json();
    assert_eq!(spec["image"]["index_digest"], status["digest"]);
    assert_eq!(format!("{}:1", spec["image"]["repository"].as_str().unwrap()), bench.image);
    let own = ["image", "resolve", &bench.image, "--platform", "linux/arm64", "-o", "json"];
    let chosen = run(bench.home.path(), &own).json();
    assert!(chosen.to_string().contains(spec["image"]["resolved_digest"].as_str().unwrap()));
    assert_eq!(spec["release"], "hello-1");
    let nowhere = bench.workload(&file, &["--platform", "linux/s390x"]);
    assert_eq!(nowhere.code, 1, "{}", nowhere.err);
    let shown = run(bench.home.path(), &["release", "show", "-f", &file]);
    assert!(shown.code == 0 && shown.out.contains("linux/arm64"), "{shown:?}");
}

#[test]
fn what_is_recorded_is_for_the_host_whose_facts_are_given() {
    let bench = Bench::new();
    let said = bench.create(&["--no-verification"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let file = bench.record(&said);
    let facts = run(bench.home.path(), &["host", "facts", "-o", "json"]).ok();
    std::fs::write(bench.home.path().join("facts.json"), facts).unwrap();
    let facts = bench.file("facts.json");
    let spec = bench.workload(&file, &["--host-facts", &facts, "-o", "yaml"]).ok();
    assert!(spec.contains("resolved_digest: sha256:"), "{spec}");
    let silent = bench.workload(&file, &[]);
    assert_eq!(silent.code, 2, "there is no host by default: {}", silent.err);
}

#[test]
fn a_release_that_was_changed_since_is_no_answer() {
    let bench = Bench::new();
    let said = bench.create(&["--no-verification"]);
    let mut release = said.answer();
    release["metadata"]["generation"] = 2.into();
    for (seen, code) in [(2, 0), (1, 3)] {
        release["status"]["observedGeneration"] = seen.into();
        for condition in release["status"]["conditions"].as_array_mut().unwrap() {
            condition["observedGeneration"] = seen.into();
        }
        std::fs::write(bench.home.path().join("release.yaml"), release.to_string()).unwrap();
        let workload = bench.workload(&bench.file("release.yaml"), &["--platform", "linux/amd64"]);
        assert_eq!(workload.code, code, "{}", workload.err);
        assert_eq!(workload.err.contains("was changed"), code == 3, "{}", workload.err);
    }
}

#[test]
fn without_a_policy_nothing_is_ready_unless_that_is_said() {
    let bench = Bench::new();
    let nobody = bench.create(&[]);
    assert_eq!(nobody.code, 6, "{}", nobody.err);
    assert_eq!(condition(&nobody.answer(), "Verified"), "Unknown NoPolicy");
    assert_eq!(condition(&nobody.answer(), "Ready"), "False NoPolicy");
    let free = bench.create(&["--no-verification"]).answer();
    assert_eq!(condition(&free, "Ready"), "True VerificationNotRequired");
}

#[test]
fn only_the_platforms_that_were_asked_for_are_recorded_and_one_that_is_missing_is_a_no() {
    let bench = Bench::new();
    let two = ["--no-verification", "--platform", "linux/arm64", "--platform", "linux/amd64"];
    let own = bench.create(&["--no-verification", "--namespace", "team"]).answer();
    assert_eq!(own["metadata"]["namespace"], "team");
    let release = bench.create(&two).answer();
    let resolved = release["status"]["resolved"].as_array().unwrap();
    let platforms: Vec<_> = resolved.iter().map(|one| one["platform"].as_str().unwrap()).collect();
    assert_eq!(platforms, ["linux/arm64", "linux/amd64"]);
    let missing = bench.create(&["--no-verification", "--platform", "linux/s390x"]);
    assert_eq!(missing.code, 1, "{}", missing.err);
    assert_eq!(condition(&missing.answer(), "Resolved"), "False PlatformNotFound");
}

#[test]
fn what_is_not_there_or_not_meant_has_its_own_exit_code() {
    let bench = Bench::new();
    let run = |args: &[&str]| run(bench.home.path(), args);
    let address = bench.image.split('/').next().unwrap();
    let absent = run(&["release", "create", &format!("{address}/team/none:1"), "--local"]);
    assert_eq!(absent.code, 4, "{}", absent.err);
    let away = run(&["release", "create", "127.0.0.1:1/app:1", "--local"]);
    assert_eq!(away.code, 5, "{}", away.err);
    let layout = run(&["release", "create", HELLO, "--local"]);
    assert_eq!(layout.code, 2, "{}", layout.err);
    let elsewhere = run(&["release", "create", &bench.image, "--local", "--context", "there"]);
    assert_eq!(elsewhere.code, 2, "{}", elsewhere.err);
    let policy =
        run(&["release", "create", &bench.image, "--local", "--policy", "/no/such/policy"]);
    assert_eq!(policy.code, 4, "{}", policy.err);
    let file = run(&["release", "show", "-f", "/no/such/file"]);
    assert_eq!(file.code, 4, "{}", file.err);
    std::fs::write(
        bench.file("odd.yaml"),
        "apiVersion: portolan.dev/v1alpha1\nkind: Release\nmetadata: {name: x}\nspec: {imaeg: y}\n",
    )
    .unwrap();
    let odd = run(&["release", "show", "-f", &bench.file("odd.yaml")]);
    assert_eq!(odd.code, 2, "{}", odd.err);
    assert!(odd.err.contains("image"), "{}", odd.err);
}

#[test]
fn a_compatibility_artifact_is_recorded_with_the_image_it_speaks_of() {
    let bench = Bench::new();
    std::fs::write(bench.file("needs.json"), NEEDS).unwrap();
    let needs = bench.file("needs.json");
    let attach = ["compat", "attach", &bench.image, "--platform", "linux/amd64", "--file", &needs];
    let attached = run(bench.home.path(), &attach);
    assert_eq!(attached.code, 0, "{}", attached.err);
    let release = bench.create(&["--no-verification"]).answer();
    let resolved = release["status"]["resolved"].as_array().unwrap();
    for image in resolved {
        let own = image["platform"] == "linux/amd64";
        assert_eq!(image["compatibility"]["digest"].is_string(), own, "{image}");
    }
}

/// What an image needs is not in the record, so facts are held against its platform alone; that is told, with what to ask.
#[test]
fn what_facts_were_not_held_against_is_told() {
    let bench = Bench::new();
    let facts = run(bench.home.path(), &["host", "facts", "-o", "json"]).ok();
    std::fs::write(bench.file("facts.json"), facts).unwrap();
    let facts = bench.file("facts.json");
    let silent = bench.record(&bench.create(&["--no-verification"]));
    let silent = bench.workload(&silent, &["--host-facts", &facts]);
    assert_eq!((silent.code, silent.err.as_str()), (0, ""));
    std::fs::write(bench.file("needs.json"), NEEDS).unwrap();
    run(
        bench.home.path(),
        &["compat", "attach", &bench.image, "--file", &bench.file("needs.json")],
    )
    .ok();
    let file = bench.record(&bench.create(&["--no-verification"]));
    let told = bench.workload(&file, &["--host-facts", &facts]);
    assert_eq!(told.code, 0, "{}", told.err);
    // What is told to ask is what answers.
    let (_, command) = told.err.split_once("portolan compat check ").expect(&told.err);
    let (command, _) = command.split_once(';').unwrap();
    let words: Vec<&str> = ["compat", "check"].into_iter().chain(command.split(' ')).collect();
    let asked = run(bench.home.path(), &words);
    assert_eq!(asked.code, 0, "{words:?}: {}", asked.err);
    let named = bench.workload(&file, &["--platform", "linux/amd64"]);
    assert_eq!((named.code, named.err.as_str()), (0, ""));
}
