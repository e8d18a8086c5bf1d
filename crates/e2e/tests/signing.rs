//! Signatures between us and cosign, the version in use and the one before, on three registries.

use std::process::Command;

use serde_json::{Value, json};

use portolan_e2e::{
    Output, Registry, RegistryKind, hello_reference, json as read_json, ok, ours, peer, portolan,
    run,
};

const PASSWORD: &str = "a password of the test";
/// No log is asked and no network is there; cosign 3 has to be told not to fetch who would be.
const OFFLINE: [&str; 3] = ["--key", "our.key", "--tlog-upload=false"];

/// cosign 2 wants to know whom to trust before it reads a bundle, and would ask the network.
const ROOT: &str = r#"{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}"#;

/// A registry and a folder with a pair of keys that we made.
struct Bench {
    home: tempfile::TempDir,
    registry: Registry,
}

impl Bench {
    fn on(kind: RegistryKind) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder");
        let registry = kind.start().expect("the registry starts");
        let bench = Self { home, registry };
        std::fs::write(bench.path("root.json"), ROOT).expect("written");
        bench.make_key("our");
        bench
    }

    fn make_key(&self, name: &str) {
        let prefix = self.path(name);
        ok(secret(portolan().args(["key", "generate", "--output", &prefix])));
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    /// The image under a name of its own.
    fn image(&self, name: &str) -> String {
        let image = format!("{}/team/{name}:1", self.registry.address);
        ours(&["image", "copy", &hello_reference(), &image]);
        image
    }

    fn cosign(&self, version: &str, args: &[&[&str]]) -> Command {
        let mut command = peer(version, self.home.path());
        command.args(args.concat());
        secret(&mut command);
        command
    }

    /// How `portolan sign` finds the image: true for every signature that was there before, and
    /// that our own authority therefore accepted.
    fn existing(&self, image: &str, more: &[&str]) -> Vec<bool> {
        let key = self.path("our.key");
        let args = [&["sign", image, "--key", &key, "-o", "json"], more].concat();
        let said = read_json(&ok(secret(portolan().args(args))));
        let rows = said["signatures"].as_array().expect("a list").iter();
        rows.map(|row| row["existing"].as_bool().expect("yes or no")).collect()
    }

    fn verifies(&self, version: &str, image: &str, key: &str) -> Output {
        let ignore =
            ["verify", "--key", key, "--insecure-ignore-tlog=true", "--trusted-root", "root.json"];
        run(&mut self.cosign(version, &[&ignore, &[image]])).expect("cosign starts")
    }
}

fn secret(command: &mut Command) -> &mut Command {
    command.env("COSIGN_PASSWORD", PASSWORD)
}

/// What each cosign verifies of ours without being told the form.
#[test]
fn what_we_sign_cosign_verifies() {
    for kind in RegistryKind::ALL {
        let bench = Bench::on(kind);
        bench.make_key("other");
        for form in ["bundle", "simple", "both"] {
            let image = bench.image(form);
            let made = bench.existing(&image, &["--recursive", "--form", form]);
            assert!(made.iter().all(|existing| !existing), "{kind:?} {form}: {made:?}");
            let child = ours(&["image", "resolve", &image, "--platform", "linux/arm64"]);
            let child = format!("{}@{}", image.trim_end_matches(":1"), child.trim());
            for version in ["cosign", "cosign2"] {
                for subject in [&image, &child] {
                    let output = bench.verifies(version, subject, "our.pub");
                    assert_eq!(output.code, Some(0), "{kind:?} {form} {version}: {output}");
                    let other = bench.verifies(version, subject, "other.pub");
                    assert_ne!(other.code, Some(0), "{kind:?} {form} {version}: {other}");
                }
            }
        }
    }
}

#[test]
fn what_cosign_signs_we_verify() {
    let three = ["--use-signing-config=false", "--yes"];
    let old = ["--new-bundle-format=false"];
    let none: [&str; 0] = [];
    for kind in RegistryKind::ALL {
        let bench = Bench::on(kind);
        bench.make_key("other");
        for (name, version, flags, form) in [
            ("three-bundle", "cosign", [&three[..], &none[..]], "bundle"),
            ("three-layer", "cosign", [&three[..], &old[..]], "simple"),
            ("two-layer", "cosign2", [&["--yes"][..], &none[..]], "simple"),
        ] {
            let image = bench.image(name);
            let args = [&["sign", "--recursive"], &OFFLINE[..], flags[0], flags[1], &[&image]];
            ok(&mut bench.cosign(version, &args));
            let found = bench.existing(&image, &["--recursive", "--form", form]);
            assert_eq!(found, [true; 6], "{kind:?} {name}");
            // The whole way: found, judged and decided, for every platform and no other key.
            for (key, code, verdict) in [("our.pub", 0, "verified"), ("other.pub", 1, "refused")] {
                let key = bench.path(key);
                let args =
                    ["verify", "image", &image, "--key", &key, "--all-platforms", "-o", "json"];
                let output = run(portolan().args(args)).expect("portolan starts");
                assert_eq!(output.code, Some(code), "{kind:?} {name}: {output}");
                let answer: Value =
                    serde_json::from_str(&output.stdout).expect("an answer in JSON");
                assert_eq!(answer["verdict"], verdict, "{kind:?} {name}: {answer}");
                let subjects = answer["subjects"].as_array().expect("a list");
                assert_eq!(subjects.len(), 6, "{kind:?} {name}: {answer}");
            }
        }
    }
}

/// A key pair that cosign made signs with ours, and the other way round.
#[test]
fn a_key_of_cosign_is_a_key_of_ours() {
    let bench = Bench::on(RegistryKind::Embedded);
    for version in ["cosign", "cosign2"] {
        let prefix = ["generate-key-pair", "--output-key-prefix", version];
        ok(&mut bench.cosign(version, &[&prefix]));
        let image = bench.image(version);
        let key = bench.path(&format!("{version}.key"));
        ok(secret(portolan().args(["sign", &image, "--key", &key])));
        let output = bench.verifies(version, &image, &format!("{version}.pub"));
        assert_eq!(output.code, Some(0), "{version}: {output}");
        // cosign reads our private key, too, and finds the public half that we wrote.
        let public = ok(&mut bench.cosign(version, &[&["public-key", "--key", "our.key"]]));
        let ours = std::fs::read_to_string(bench.path("our.pub")).expect("our.pub");
        assert_eq!(public.trim(), ours.trim(), "{version}");
    }
}

/// Keys of the other kinds, made by openssl and imported by cosign: what it signs with them we verify,
/// and what we sign with them it verifies.
#[test]
fn keys_of_other_kinds_are_keys_of_both() {
    let bench = Bench::on(RegistryKind::Embedded);
    bench.make_key("other");
    let none: [&str; 0] = [];
    for (kind, make) in [
        ("p384", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"][..]),
        ("rsa", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:3072"][..]),
        ("ed25519", &["-algorithm", "ed25519"][..]),
    ] {
        let pem = bench.path(&format!("{kind}.pem"));
        let mut openssl = Command::new(portolan_e2e::tool("openssl"));
        ok(openssl.arg("genpkey").args(make).args(["-out", &pem]));
        for (version, flags) in
            [("cosign", &["--use-signing-config=false", "--yes"][..]), ("cosign2", &["--yes"][..])]
        {
            let prefix = format!("{kind}-{version}");
            let (key, public) = (format!("{prefix}.key"), bench.path(&format!("{prefix}.pub")));
            let import = ["import-key-pair", "--key", &pem, "--output-key-prefix", &prefix];
            ok(&mut bench.cosign(version, &[&import]));
            let theirs = bench.image(&format!("{prefix}-theirs"));
            let sign = ["sign", "--recursive", "--key", &key, "--tlog-upload=false"];
            ok(&mut bench.cosign(version, &[&sign, flags, &[&theirs]]));
            for (key, code) in [(&public, 0), (&bench.path("other.pub"), 1)] {
                let args = ["verify", "image", &theirs, "--key", key, "--all-platforms"];
                let output = run(portolan().args(args)).expect("portolan starts");
                assert_eq!(output.code, Some(code), "{prefix}: {output}");
            }
            let private = bench.path(&key);
            for form in ["bundle", "simple", "both"] {
                let ours = bench.image(&format!("{prefix}-{form}"));
                ok(secret(portolan().args(["sign", &ours, "--key", &private, "--form", form])));
                // As the guide says: cosign takes SHA-256 for granted, whatever the key.
                let told = ["--signature-digest-algorithm", "sha384"];
                let told = if kind == "p384" { &told[..] } else { &none[..] };
                for (public, verified) in [(&public, true), (&bench.path("other.pub"), false)] {
                    let verify = ["verify", "--key", public, "--insecure-ignore-tlog=true"];
                    let root = ["--trusted-root", "root.json"];
                    let output = run(&mut bench.cosign(version, &[&verify, &root, told, &[&ours]]));
                    let output = output.expect("cosign starts");
                    assert_eq!(output.code == Some(0), verified, "{prefix} {form}: {output}");
                }
            }
        }
    }
}

/// A kind of statement: cosign's word for it, what it says, and a rule that it satisfies and one that it
/// does not.
fn statements() -> [(&'static str, Value, &'static str, &'static str); 4] {
    let provenance = json!({"builder": {"id": "https://ci.example"}, "buildType": "https://ci.example/x",
        "invocation": {}, "metadata": {"reproducible": false}, "materials": []});
    let spdx = json!({"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": "hello", "documentNamespace": "https://ci.example/hello",
        "creationInfo": {"created": "2026-01-01T00:00:00Z", "creators": ["Tool: test"]},
        "packages": [{"name": "musl", "SPDXID": "SPDXRef-musl", "versionInfo": "1.2.5",
            "downloadLocation": "NONE", "licenseConcluded": "MIT", "licenseDeclared": "MIT"}]});
    let cyclonedx = json!({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "components": [{"type": "library", "name": "musl", "version": "1.2.5",
            "licenses": [{"license": {"id": "MIT"}}]}]});
    // As Trivy writes it (`--format cosign-vuln`): its own report, not SARIF.
    let trivy = json!({"SchemaVersion": 2, "ArtifactName": "hello", "Results": [{"Target": "hello",
        "Class": "os-pkgs", "Vulnerabilities": [{"VulnerabilityID": "CVE-2026-0001",
            "PkgName": "musl", "InstalledVersion": "1.2.5", "Severity": "HIGH"}]}]});
    let vuln = json!({"invocation": {"parameters": null, "uri": "", "event_id": "", "builder.id": ""},
        "scanner": {"uri": "pkg:github/aquasecurity/trivy", "version": "dev",
            "db": {"uri": "", "version": ""}, "result": trivy},
        "metadata": {"scanStartedOn": "2026-01-01T00:00:00Z",
            "scanFinishedOn": "2026-01-01T00:01:00Z"}});
    let sbom = |licence| match licence {
        "MIT" => "documents: {sbom: {disallowedLicenses: [MIT]}}",
        _ => "documents: {sbom: {disallowedLicenses: [GPL-3.0-only]}}",
    };
    [
        (
            "slsaprovenance",
            provenance,
            "attestations: [{predicateType: https://slsa.dev/provenance/v0.2, conditions: [{pointer: /builder/id, equals: https://ci.example}]}]",
            "attestations: [{predicateType: https://slsa.dev/provenance/v0.2, conditions: [{pointer: /builder/id, equals: https://else.example}]}]",
        ),
        ("spdxjson", spdx, sbom("GPL"), sbom("MIT")),
        ("cyclonedx", cyclonedx, sbom("GPL"), sbom("MIT")),
        (
            "vuln",
            vuln,
            "documents: {vulnerabilities: {disallowedSeverities: [critical]}}",
            "documents: {vulnerabilities: {disallowedSeverities: [high]}}",
        ),
    ]
}

/// Statements that cosign makes, in both of its forms: a policy finds them and reads what they say.
#[test]
fn what_cosign_attests_a_policy_reads() {
    let bench = Bench::on(RegistryKind::Embedded);
    let new = "--new-bundle-format=true";
    let old = "--new-bundle-format=false";
    for (version, form, flags) in [
        ("cosign", "bundle", &["--use-signing-config=false", new][..]),
        ("cosign", "layer", &["--use-signing-config=false", old]),
        ("cosign2", "bundle", &[new]),
        ("cosign2", "layer", &[old]),
    ] {
        for (kind, predicate, good, bad) in statements() {
            let name = format!("{version}-{form}-{kind}");
            let image = bench.image(&name);
            let child = ours(&["image", "resolve", &image, "--platform", "linux/arm64"]);
            let child = format!("{}@{}", image.trim_end_matches(":1"), child.trim());
            bench.existing(&child, &[]);
            let verdict = |rule: &str| {
                let policy = format!(
                    "version: 1\nsigners: {{us: {{keys: {{files: [our.pub]}}}}}}\ndefault:\n  require: {{allOf: [us]}}\n  {rule}\n"
                );
                std::fs::write(bench.path("policy.yaml"), policy).expect("written");
                let policy = bench.path("policy.yaml");
                let args = ["verify", "image", &child, "--policy", &policy, "-o", "json"];
                run(portolan().args(args)).expect("portolan starts")
            };
            let none = verdict(good);
            assert_eq!(none.code, Some(1), "{name}: nothing is attested yet: {none}");
            std::fs::write(bench.path("predicate.json"), predicate.to_string()).expect("written");
            let attest = ["attest", "--yes", "--type", kind, "--predicate", "predicate.json"];
            ok(&mut bench.cosign(version, &[&attest, &OFFLINE, flags, &[&child]]));
            for (rule, code) in [(good, 0), (bad, 1)] {
                let output = verdict(rule);
                assert_eq!(output.code, Some(code), "{name} {rule}: {output}");
            }
        }
    }
}
