//! Compatibility artifacts between us, oras and NFD, on three registries; facts beside NFD's.

use std::collections::BTreeSet;

use portolan_e2e::{
    Output, Registry, RegistryKind, hello_reference, json, ok, ours, ours_output, peer,
};

/// Every Linux has a kernel, and none has this one.
const FITS: &str = r#"{"schemaVersion": "0.1.0", "namespaces": {"kernel": {"plugins": {"kernelVersion": {"data": {"range": "[0.1,)"}}}}}}"#;
const MISFITS: &str = r#"{"schemaVersion": "0.1.0", "namespaces": {"kernel": {"plugins": {"kernelVersion": {"data": {"range": "[999.0,)"}}}}}}"#;

const SPEC_ARTIFACT: &str = "application/vnd.oci.image-compatibility.v1";
const SPEC_LAYER: &str = "application/vnd.oci.image-compatibility.spec.v1+json";
const NFD_ARTIFACT: &str = "application/vnd.nfd.image-compatibility.v1alpha1";
const NFD_LAYER: &str = "application/vnd.nfd.image-compatibility.spec.v1alpha1+yaml";

fn rules(least: &str) -> String {
    format!(
        "version: v1alpha1\ncompatibilities:\n- description: the kernel\n  rules:\n  - name: kernel\n    \
         matchFeatures:\n    - feature: kernel.version\n      matchExpressions:\n        \
         major: {{op: Gt, value: [\"{least}\"]}}\n"
    )
}

/// An image on a registry, and where its manifest for this machine's architecture is.
struct Image {
    home: tempfile::TempDir,
    _registry: Registry,
    reference: String,
    pinned: String,
}

impl Image {
    fn on(kind: RegistryKind) -> Self {
        let registry = kind.start().expect("the registry starts");
        let reference = format!("{}/team/hello:1", registry.address);
        ours(&["image", "copy", &hello_reference(), &reference]);
        let manifest = ours(&["image", "resolve", &reference]);
        let pinned = format!("{}/team/hello@{}", registry.address, manifest.trim());
        let home = tempfile::tempdir().expect("a temporary folder");
        Self { home, _registry: registry, reference, pinned }
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, content).expect("written");
        path.display().to_string()
    }

    fn oras(&self, args: &[&str]) -> String {
        ok(peer("oras", self.home.path()).args(args))
    }

    fn oras_attaches(&self, artifact_type: &str, name: &str, layer_type: &str, content: &str) {
        self.file(name, content);
        let file = format!("{name}:{layer_type}");
        let attach = ["attach", "--plain-http", "--artifact-type", artifact_type, &self.pinned];
        self.oras(&[&attach[..], &[&file]].concat());
    }

    /// The digests and types that oras finds at the manifest.
    fn discovered(&self) -> Vec<(String, String)> {
        let found =
            json(&self.oras(&["discover", "--plain-http", "--format", "json", &self.pinned]));
        let list = found["referrers"].as_array().or_else(|| found["manifests"].as_array());
        let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
        let entries = list.into_iter().flatten();
        entries.map(|entry| (text(&entry["digest"]), text(&entry["artifactType"]))).collect()
    }

    fn check(&self) -> Output {
        ours_output(&["compat", "check", &self.reference, "-o", "json"])
    }
}

fn verdict(output: &Output) -> String {
    json(&output.stdout)["verdict"].as_str().expect("a verdict").to_owned()
}

#[test]
fn what_we_attach_is_found_by_oras_and_gone_after_remove() {
    for kind in RegistryKind::ALL {
        let image = Image::on(kind);
        assert_eq!(image.check().code, Some(6), "{kind:?}");
        let file = image.file("needs.json", FITS);
        let made =
            json(&ours(&["compat", "attach", &image.reference, "--file", &file, "-o", "json"]));
        assert_eq!(made.as_array().map(Vec::len), Some(5), "one for each platform: {made}");
        let found = image.discovered();
        assert_eq!(found.len(), 1, "{kind:?}: {found:?}");
        assert_eq!(found[0].1, SPEC_ARTIFACT, "{kind:?}");
        assert!(made.to_string().contains(&found[0].0), "{kind:?}: {made}");
        let checked = image.check();
        assert_eq!((checked.code, verdict(&checked).as_str()), (Some(0), "compatible"), "{kind:?}");
        // Others read it as we wrote it.
        let blob = image.oras(&[
            "manifest",
            "fetch",
            "--plain-http",
            &format!("{}@{}", image.pinned.split('@').next().expect("a repository"), found[0].0),
        ]);
        assert_eq!(json(&blob)["layers"][0]["mediaType"], SPEC_LAYER);

        ours(&["compat", "remove", &image.reference]);
        assert_eq!(image.discovered(), [], "{kind:?}");
        assert_eq!(image.check().code, Some(6), "{kind:?}");
    }
}

#[test]
fn what_oras_attaches_is_found_by_check() {
    for kind in RegistryKind::ALL {
        for (content, code, expected) in [(FITS, 0, "compatible"), (MISFITS, 1, "incompatible")] {
            let image = Image::on(kind);
            image.oras_attaches(SPEC_ARTIFACT, "needs.json", SPEC_LAYER, content);
            let checked = image.check();
            assert_eq!(
                (checked.code, verdict(&checked).as_str()),
                (Some(code), expected),
                "{kind:?}"
            );
            assert_eq!(json(&checked.stdout)["artifact"], image.discovered()[0].0, "{kind:?}");
        }
    }
}

#[test]
fn rules_of_nfd_attached_by_oras_are_evaluated() {
    for kind in RegistryKind::ALL {
        for (least, code, expected) in [("0", 0, "compatible"), ("999", 1, "incompatible")] {
            let image = Image::on(kind);
            image.oras_attaches(NFD_ARTIFACT, "rules.yaml", NFD_LAYER, &rules(least));
            let checked = image.check();
            assert_eq!(
                (checked.code, verdict(&checked).as_str()),
                (Some(code), expected),
                "{kind:?}"
            );
        }
    }
}

#[test]
fn nfd_itself_reads_the_rules_that_we_attach() {
    let image = Image::on(RegistryKind::Olareg);
    let file = image.file("rules.yaml", &rules("0"));
    // NFD takes an index for the subject, so it is given the manifest itself.
    ours(&["compat", "attach", &image.pinned, "--file", &file]);
    let mut nfd = peer("nfd", image.home.path());
    nfd.args(["compat", "validate-node", "--plain-http", "--output-json", "--image"]);
    let said = json(&ok(nfd.arg(&image.pinned)));
    assert_eq!(said[0]["rules"][0]["isMatch"], true, "{said}");
    assert_eq!(image.check().code, Some(0));
}

#[test]
fn an_artifact_under_a_tag_must_speak_of_the_image() {
    let image = Image::on(RegistryKind::DockerRegistry);
    let file = image.file("needs.json", FITS);
    ours(&["compat", "attach", &image.reference, "--file", &file]);
    let repository = image.pinned.split('@').next().expect("a repository").to_owned();
    let artifact = format!("{repository}@{}", image.discovered()[0].0);
    image.oras(&["tag", "--plain-http", &artifact, "needs"]);
    let given = format!("{repository}:needs");
    let check = |platform: &str| {
        let args = ["compat", "check", &image.reference, "--artifact-ref", &given];
        ours_output(&[&args[..], &["--platform", platform]].concat()).code
    };
    let here = if cfg!(target_arch = "aarch64") { "linux/arm64" } else { "linux/amd64/v3" };
    let there = "linux/riscv64";
    let manifest = ours(&["image", "resolve", &image.reference, "--platform", here]);
    // Which manifest the artifact speaks of depends on how far this processor goes.
    let speaks_of_it = image.pinned.ends_with(manifest.trim());
    assert_eq!(check(here) == Some(0), speaks_of_it);
    assert_eq!(check(there), Some(2));
}

/// What the kernel prints of this machine's processor, without the underscores that NFD leaves out.
fn printed_flags() -> BTreeSet<String> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").expect("cpuinfo");
    let lines =
        cpuinfo.lines().filter(|line| line.starts_with("flags") || line.starts_with("Features"));
    lines.flat_map(str::split_whitespace).map(|word| word.replace('_', "")).collect()
}

/// Whether a difference between NFD 0.18 and us is one that `docs/host-facts.md` tells of.
fn is_documented(feature: &str, element: &str, in_nfd: bool, printed: &BTreeSet<String>) -> bool {
    match (feature, in_nfd) {
        // NFD asks the processor; we ask the kernel, which hides what programs may not use.
        ("cpu.cpuid", true) => !printed.contains(&element.to_lowercase().replace('_', "")),
        // Later versions of NFD have these, too.
        ("cpu.cpuid", false) => element.starts_with("X86_64_V"),
        ("cpu.model", false) => element == "hypervisor",
        // Boot parameters may hold secrets.
        ("kernel.config", true) => element == "CMDLINE",
        _ => false,
    }
}

#[test]
fn the_facts_of_this_machine_are_those_of_nfd() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let theirs = json(&ok(peer("nfd", home.path()).args(["export", "features"])));
    let ours = json(&ours(&["host", "facts", "-o", "json"]));
    let printed = printed_flags();
    let mut wrong = Vec::new();
    for kind in ["flags", "attributes"] {
        for (feature, set) in theirs[kind].as_object().into_iter().flatten() {
            let empty = serde_json::Map::new();
            let of =
                |value: &serde_json::Value| value["elements"].as_object().unwrap_or(&empty).clone();
            let (theirs, own) = (of(set), of(&ours[kind][feature]));
            if own.is_empty() && ours["unknown"][feature].is_string() {
                continue;
            }
            for name in theirs.keys().chain(own.keys()).collect::<BTreeSet<_>>() {
                let (a, b) = (theirs.get(name), own.get(name));
                if a != b && !is_documented(feature, name, a.is_some(), &printed) {
                    wrong.push(format!("{feature} {name}: nfd {a:?}, ours {b:?}"));
                }
            }
        }
    }
    for (feature, set) in theirs["instances"].as_object().into_iter().flatten() {
        let sorted = |value: &serde_json::Value| {
            let mut all: Vec<String> = value["elements"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|one| {
                    let mut one = one.clone();
                    // Says whose it is, so we leave it out.
                    one["attributes"].as_object_mut().map(|own| own.remove("serial"));
                    one.to_string()
                })
                .collect();
            all.sort();
            all
        };
        let (theirs, own) = (sorted(set), sorted(&ours["instances"][feature]));
        if theirs != own && !(own.is_empty() && ours["unknown"][feature].is_string()) {
            wrong.push(format!("{feature}: nfd {theirs:?}, ours {own:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
