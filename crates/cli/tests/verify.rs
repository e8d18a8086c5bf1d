//! `portolan verify`, as scripts use it: over the embedded server, with keys of `portolan key`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use support::{Said, Server, generate, run, stocked, with_password};

struct Bench {
    home: tempfile::TempDir,
    _server: Server,
    address: String,
    image: String,
}

impl Bench {
    /// A registry with an image of five platforms, and two keys.
    fn new() -> Self {
        let (home, server, image) = stocked();
        let address = server.address.clone();
        for name in ["release", "other"] {
            generate(home.path(), name).ok();
        }
        Self { home, _server: server, address, image }
    }

    fn file(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    fn sign(&self, image: &str, more: &[&str]) {
        let key = self.file("release.key");
        let args = [&["sign", image, "--key", &key], more].concat();
        with_password(self.home.path(), &args, "secret").ok();
    }

    fn verify(&self, more: &[&str]) -> Said {
        run(self.home.path(), &[&["verify", "image", &self.image, "-o", "json"], more].concat())
    }

    fn with_key(&self, key: &str, more: &[&str]) -> Said {
        let key = self.file(key);
        self.verify(&[&["--key", &key], more].concat())
    }

    fn policy(&self, text: &str) -> String {
        std::fs::write(self.home.path().join("policy.yaml"), text).unwrap();
        self.file("policy.yaml")
    }
}

#[test]
fn an_image_is_refused_until_index_and_images_are_signed() {
    let bench = Bench::new();
    let amd = ["--platform", "linux/amd64"];
    let unsigned = bench.with_key("release.pub", &amd);
    assert_eq!(unsigned.code, 1, "{}", unsigned.err);
    let answer = unsigned.answer();
    assert_eq!(answer["verdict"], "refused");
    assert_eq!(answer["subjects"][0]["kind"], "index");
    assert_eq!(answer["subjects"][0]["verified"], false);
    assert_eq!(answer["subjects"][0]["reasons"][0]["code"], "NOT_SIGNED");

    bench.sign(&bench.image, &[]);
    assert_eq!(bench.with_key("release.pub", &amd).code, 1, "the images are not signed");
    let index = bench.with_key("release.pub", &[&amd[..], &["--index-policy", "index"]].concat());
    assert_eq!(index.code, 0, "{}", index.out);

    bench.sign(&bench.image, &["--recursive", "--form", "both"]);
    let signed = bench.with_key("release.pub", &amd);
    assert_eq!(signed.code, 0, "{} {}", signed.out, signed.err);
    let answer = signed.answer();
    assert_eq!(answer["verdict"], "verified");
    let subjects = answer["subjects"].as_array().unwrap();
    assert!(subjects.iter().all(|one| one["verified"] == true), "{answer}");
    // amd64 and amd64/v3: a node's labels do not say which it takes.
    let platforms: Vec<_> = subjects.iter().filter_map(|one| one["platform"].as_str()).collect();
    assert_eq!(platforms, ["linux/amd64", "linux/amd64/v3"]);
    assert!(signed.err.contains("linux/riscv64"), "what else there is: {}", signed.err);

    let other = bench.with_key("other.pub", &amd);
    assert_eq!(other.code, 1);
    let signatures = &other.answer()["subjects"][0]["signatures"];
    assert!(signatures.as_array().unwrap().iter().all(|one| one["accepted"] == false));
    assert_eq!(bench.with_key("release.pub", &["--all-platforms"]).code, 0);
    let this_host = bench.with_key("release.pub", &[]);
    assert_eq!(this_host.code, 0, "{}", this_host.err);
}

#[test]
fn people_are_told_who_signed_and_what_is_missing() {
    let bench = Bench::new();
    bench.sign(&bench.image, &[]);
    let key = bench.file("release.pub");
    let args = ["verify", "image", &bench.image, "--key", &key, "--platform", "linux/arm64"];
    let said = run(bench.home.path(), &args);
    assert_eq!(said.code, 1);
    for part in [
        "refused: ",
        "PLATFORM_REFUSED",
        "index sha256:",
        ": verified",
        "NOT_SIGNED",
        "linux/arm64",
        "the signature fits the key",
    ] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
}

#[test]
fn exit_codes_tell_what_kind_of_no_it_is() {
    let bench = Bench::new();
    bench.sign(&bench.image, &["--recursive"]);
    let absent = bench.with_key("release.pub", &["--platform", "linux/s390x"]);
    assert_eq!(absent.code, 1);
    let reason = &absent.answer()["reasons"][0];
    assert_eq!(reason["code"], "PLATFORM_NOT_FOUND");
    assert!(reason["message"].as_str().unwrap().contains("linux/riscv64"), "{reason}");

    let policy = bench.policy(&format!(
        "version: 1\nsigners:\n  release: {{keys: {{files: [release.pub]}}}}\nscopes:\n- name: team\n  match: [\"{}/team/*\"]\n  rule: {{require: {{allOf: [release]}}, platforms: all}}\n",
        bench.address
    ));
    let said = bench.verify(&["--policy", &policy]);
    assert_eq!(said.code, 0, "{} {}", said.out, said.err);
    assert_eq!(said.answer()["policy"], "team");
    assert_eq!(said.answer()["subjects"].as_array().unwrap().len(), 6);

    let nowhere = bench.policy("version: 1\nsigners:\n  release: {keys: {files: [release.pub]}}\nscopes:\n- name: x\n  match: [elsewhere.example]\n  rule: {require: {allOf: [release]}}\n");
    let said = bench.verify(&["--policy", &nowhere]);
    assert_eq!((said.code, said.answer()["verdict"].as_str()), (6, Some("noPolicy")));

    let wrong = bench.policy("version: 1\nscopez: []\n");
    let said = bench.verify(&["--policy", &wrong]);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("did you mean `scopes`?") && said.err.contains("line 2"),
        "{}",
        said.err
    );

    assert_eq!(bench.verify(&["--policy", &bench.file("gone.yaml")]).code, 4);
    assert_eq!(bench.with_key("gone.pub", &[]).code, 4);
    assert_eq!(bench.verify(&[]).code, 2, "nobody may vouch");
    assert_eq!(bench.with_key("release.pub", &["--policy", &policy]).code, 2, "one or the other");
    assert_eq!(bench.verify(&["--certificate-identity", "x"]).code, 2, "and an issuer?");
    let gone = format!("{}/team/hello:9", bench.address);
    let key = bench.file("release.pub");
    let home = bench.home.path();
    assert_eq!(run(home, &["verify", "image", &gone, "--key", &key]).code, 4);
    assert_eq!(run(home, &["verify", "image", "127.0.0.1:1/app:1", "--key", &key]).code, 5);
}

/// Nobody said no.
#[test]
fn a_policy_that_had_no_time_to_decide_cannot_tell() {
    let bench = Bench::new();
    let policy = bench.home.path().join("slow.rego");
    let slow = "package portolan\ndigits := [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n\
        decision := {\"allow\": true} if {\n  count(input.subjects) > 0\n  \
        count([1 | digits[a]; digits[b]; digits[c]; digits[d]; digits[e]; digits[f]; digits[g]; digits[h]; digits[i]]) > 0\n}\n";
    std::fs::write(&policy, slow).unwrap();
    let said = bench.with_key("release.pub", &["--policy", policy.to_str().unwrap()]);
    assert_eq!((said.code, said.out.as_str()), (3, ""), "{}", said.err);
    assert!(said.err.contains("the policy broke down"), "{}", said.err);
}

#[test]
fn platforms_of_a_pod_are_printed_for_people_and_programs() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(home.path().join(name), text).unwrap();
        home.path().join(name).display().to_string()
    };
    let pod = write(
        "pod.yaml",
        "kind: Deployment\nspec:\n  template:\n    spec:\n      nodeSelector: {kubernetes.io/arch: arm64}\n",
    );
    let nodes = write(
        "nodes.yaml",
        "items:\n- metadata: {name: a}\n  status: {nodeInfo: {operatingSystem: linux, architecture: arm64}}\n- metadata: {name: b}\n  status: {nodeInfo: {operatingSystem: linux, architecture: amd64}}\n",
    );
    let ask = |more: &[&str]| {
        run(home.path(), &[&["verify", "pod-platforms", "-f", &pod], more].concat())
    };
    assert_eq!(ask(&[]).ok(), "*/arm64\n");
    assert_eq!(ask(&["--partial", "host"]).ok(), "linux/arm64\n");
    let json = ask(&["--default", "nodes", "--nodes", &nodes, "-o", "json"]).json();
    assert_eq!(json["platforms"][0]["os"], "linux");
    assert_eq!(json["platforms"][0]["arch"], "arm64");
    assert_eq!(json["platforms"].as_array().unwrap().len(), 1);
    assert_eq!(ask(&["--default", "nodes"]).code, 2);
    assert_eq!(ask(&["--default", "nonsense"]).code, 2);
    let service = write("service.yaml", "kind: Service\n");
    assert_eq!(run(home.path(), &["verify", "pod-platforms", "-f", &service]).code, 2);
}

/// Rego decides, the flags say whom it may believe.
#[test]
fn a_policy_in_rego_decides_over_the_signers_of_the_flags() {
    let bench = Bench::new();
    let rego = bench.file("decision.rego");
    let text = "package portolan\ndefault decision := {\"allow\": false, \"messages\": [\"unsigned\"]}\n\
        decision := {\"allow\": true} if {\n  count(input.subjects) > 1\n  every one in input.subjects { count(one.signatures) > 0 }\n}\n";
    std::fs::write(&rego, text).unwrap();
    let by_rego = ["--policy", &rego, "--platform", "linux/amd64"];
    let nobody = bench.verify(&by_rego);
    assert_eq!(nobody.code, 2, "{}", nobody.err);
    assert!(nobody.err.contains("--key"), "{}", nobody.err);
    let unsigned = bench.with_key("release.pub", &by_rego);
    assert_eq!(unsigned.code, 1, "{}", unsigned.err);
    assert_eq!(unsigned.answer()["reasons"][0]["code"], "POLICY_DENIED");
    bench.sign(&bench.image, &["--recursive"]);
    assert_eq!(bench.with_key("release.pub", &by_rego).answer()["verdict"], "verified");
    assert_eq!(bench.with_key("other.pub", &by_rego).code, 1);
    // Rego sees all of an image.
    let less =
        bench.with_key("release.pub", &[&by_rego[..], &["--index-policy", "index"]].concat());
    assert_eq!(less.code, 2, "{}", less.out);
    assert!(less.err.contains("--index-policy means nothing"), "{}", less.err);
}

/// A flag that would be ignored is refused: whoever gave it believes that it counts.
#[test]
fn flags_that_mean_nothing_beside_others_are_refused() {
    let bench = Bench::new();
    let root = bench.file("root.json");
    // A policy file has signers of its own.
    let yaml = bench.policy("version: 1\n");
    for flags in [
        &["--key", "release.pub"][..],
        &["--trusted-root", &root],
        &["--certificate-oidc-issuer", "https://ci.example"],
        &["--certificate-oidc-issuer-regexp", ".*"],
    ] {
        let said = bench.verify(&[&["--policy", &yaml], flags].concat());
        assert_eq!(said.code, 2, "{flags:?}: {}", said.err);
        assert!(said.err.contains("signers are its own"), "{flags:?}: {}", said.err);
    }
    let unused = bench.with_key("release.pub", &["--trusted-root", &root]);
    assert_eq!(unused.code, 2, "{}", unused.err);
    assert!(unused.err.contains("--require-log"), "{}", unused.err);
    let half = bench.with_key("release.pub", &["--certificate-oidc-issuer", "https://ci.example"]);
    assert_eq!(half.code, 2, "{}", half.err);
}

/// No signature of such a key could ever count: that is said before anybody is asked.
#[test]
fn a_log_is_not_required_of_a_key_that_it_cannot_be_asked_about() {
    let bench = Bench::new();
    let file = |name: &str, text: &str| {
        let path = bench.file(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let root = r#"{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}"#;
    let root = file("root.json", root);
    // The first key of RFC 8032.
    let key = "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    let key =
        file("ed.pub", &format!("-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n"));
    let said = bench.verify(&["--key", &key, "--require-log", "--trusted-root", &root]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("of the Ed25519 key sha256:"), "{}", said.err);
}

#[test]
fn each_cause_of_an_error_is_told_once() {
    let bench = Bench::new();
    let wrong = bench.policy("version: 1\nscopez: []\n");
    let said = bench.verify(&["--policy", &wrong]);
    assert_eq!(said.err.matches("scopez").count(), 1, "{}", said.err);
    let pod = bench.file("pod.yaml");
    std::fs::write(&pod, "a: [").unwrap();
    let said = run(bench.home.path(), &["verify", "pod-platforms", "-f", &pod]);
    assert_eq!(said.code, 2, "{}", said.out);
    assert_eq!(said.err.matches("did not find expected").count(), 1, "{}", said.err);
}
