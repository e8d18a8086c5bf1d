//! What images need, as scripts ask it: attached, listed, checked, removed; over the embedded server
//! and over layouts.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};

use support::{HELLO, Said, Server, run, stocked};

/// Two kernels, one of which every host of these tests has.
const OLD: &str = r#"{"schemaVersion": "0.1.0", "namespaces": {"kernel": {"plugins": {"kernelVersion": {"data": {"range": "[4.0,)"}}}}}}"#;
const NEW: &str = r#"{"schemaVersion": "0.1.0", "namespaces": {"kernel": {"plugins": {"kernelVersion": {"data": {"range": "[7.0,)"}}}}}}"#;
const RULES: &str = "version: v1alpha1
compatibilities:
- {tag: old, weight: 1, rules: [{name: kernel, matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Ge, value: ['4']}}}]}]}
- {tag: new, weight: 9, rules: [{name: kernel, matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Ge, value: ['7']}}}]}]}
";

/// A home, a registry and an image in it.
struct Bench {
    home: tempfile::TempDir,
    _server: Server,
    image: String,
}

impl Bench {
    fn new() -> Self {
        let (home, server, image) = stocked();
        Self { home, _server: server, image }
    }

    fn run(&self, args: &[&str]) -> Said {
        run(self.home.path(), args)
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    fn attach(&self, content: &str, more: &[&str]) -> serde_json::Value {
        let file = self.file("needs", content);
        let args = ["compat", "attach", &self.image, "--file", &file, "-o", "json"];
        self.run(&[&args[..], more].concat()).json()
    }

    /// A machine of this platform and kernel.
    fn host(&self, name: &str, level: &str, kernel: &str) -> PathBuf {
        let root = self.home.path().join(name);
        write(&root, "proc/sys/kernel/osrelease", kernel);
        write(&root, "proc/sys/kernel/ostype", "Linux\n");
        write(&root, "proc/sys/kernel/arch", "x86_64\n");
        let flags = "fpu cx8 cmov fxsr mmx sse sse2 syscall lm";
        let two = "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2";
        let three = "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave";
        let flags = match level {
            "v1" => flags.to_owned(),
            "v2" => format!("{flags} {two}"),
            _ => format!("{flags} {two} {three}"),
        };
        let cpuinfo = format!("processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\n");
        write(&root, "proc/cpuinfo", &cpuinfo);
        root
    }

    fn check(&self, host: &Path, more: &[&str]) -> Said {
        let host = host.to_str().unwrap();
        self.run(&[&["compat", "check", &self.image, "--host", host, "-o", "json"], more].concat())
    }
}

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn json(said: &Said) -> serde_json::Value {
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {} {}", said.out, said.err))
}

#[test]
fn attach_list_check_and_remove() {
    let bench = Bench::new();
    let host = bench.host("host", "v3", "6.1.0");
    let none = bench.check(&host, &[]);
    assert_eq!(none.code, 6, "{}", none.err);
    assert!(none.err.contains("compat attach"), "{}", none.err);

    let made = bench.attach(OLD, &[]);
    let made = made.as_array().unwrap();
    assert_eq!(made.len(), 5, "one for each platform");
    let said = bench.check(&host, &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    let report = json(&said);
    assert_eq!(report["verdict"], "compatible");
    assert_eq!(report["platform"]["host"], "linux/amd64/v3");
    // The best image for the level is the one whose needs count.
    assert_eq!(report["platform"]["image"], "linux/amd64/v3");
    let own = made.iter().find(|one| one["platform"] == "linux/amd64/v3").unwrap();
    assert_eq!(report["artifact"], own["artifact"]);
    assert_eq!(report["subject"], own["subject"]);
    assert!(report["image"].as_str().unwrap().starts_with(&bench.image), "{report}");

    let listed = bench.run(&["compat", "list", &bench.image, "-o", "json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 5);
    assert!(listed.as_array().unwrap().iter().all(|row| row["chosen"] == true));

    let artifact = own["artifact"].as_str().unwrap();
    bench.run(&["compat", "remove", &bench.image, "--artifact", artifact]).ok();
    assert_eq!(bench.check(&host, &[]).code, 6);
    assert_eq!(bench.check(&host, &["--platform", "linux/amd64"]).code, 0);
    let removed = bench.run(&["compat", "remove", &bench.image, "-o", "json"]).json();
    assert_eq!(removed["removed"].as_array().unwrap().len(), 4);
    let nothing = bench.run(&["compat", "remove", &bench.image]);
    assert_eq!(nothing.code, 6);
    assert!(nothing.err.contains("nothing to remove"), "{}", nothing.err);
    let twice = bench.run(&["compat", "remove", &bench.image, "--artifact", artifact]);
    assert_eq!(twice.code, 4, "{}", twice.err);
}

#[test]
fn every_exit_code_of_check() {
    let bench = Bench::new();
    let host = bench.host("host", "v2", "6.1.0");
    let bare = bench.home.path().join("bare");
    write(&bare, "proc/sys/kernel/ostype", "Linux\n");
    write(&bare, "proc/sys/kernel/arch", "x86_64\n");
    bench.attach(NEW, &[]);
    let no = bench.check(&host, &[]);
    assert_eq!((no.code, json(&no)["verdict"].as_str()), (1, Some("incompatible")));
    let open = bench.check(&bare, &[]);
    assert_eq!((open.code, json(&open)["verdict"].as_str()), (3, Some("unknown")), "{}", open.err);
    let no_platform = bench.check(&host, &["--platform", "linux/s390x"]);
    assert_eq!(no_platform.code, 1, "{}", no_platform.err);
    let told = json(&no_platform);
    assert_eq!(
        (&told["verdict"], &told["platform"]["match"]),
        (&"incompatible".into(), &false.into())
    );
    let here = host.to_str().unwrap();
    let missing = bench.image.replace(":1", ":2");
    assert_eq!(bench.run(&["compat", "check", &missing, "--host", here]).code, 4);
    let nobody = bench.run(&["compat", "check", "127.0.0.1:1/a:1", "--host", here]);
    assert_eq!(nobody.code, 5, "{}", nobody.err);
    let nowhere = bench.check(&bench.home.path().join("nowhere"), &[]);
    assert_eq!(nowhere.code, 4, "{}", nowhere.err);
    let nothing = bench.run(&["compat", "check"]);
    assert_eq!(nothing.code, 2);
    assert!(nothing.err.contains("--spec"), "{}", nothing.err);
}

#[test]
fn an_artifact_with_known_mistakes_is_read_unless_strictly() {
    let bench = Bench::new();
    let host = bench.host("host", "v2", "6.1.0");
    bench.attach(&OLD.replace("schemaVersion", "schema"), &[]);
    assert_eq!(bench.check(&host, &[]).code, 0);
    let strict = bench.check(&host, &["--strict"]);
    assert_eq!(strict.code, 2, "{}", strict.err);
    assert!(strict.err.contains("W_SCHEMA_ALIAS"), "{}", strict.err);
}

#[test]
fn the_newest_counts_and_another_can_be_asked_for() {
    let bench = Bench::new();
    let host = bench.host("host", "v1", "6.1.0");
    let old = bench.attach(NEW, &["--platform", "linux/amd64"]);
    let new = bench.attach(OLD, &["--platform", "linux/amd64"]);
    assert_eq!(new[0]["supersedes"][0], old[0]["artifact"]);
    assert_eq!(new[0]["chosen"], new[0]["artifact"]);
    let said = bench.check(&host, &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    let warnings = json(&said)["warnings"].to_string();
    assert!(warnings.contains(old[0]["artifact"].as_str().unwrap()), "{warnings}");
    let given = bench.check(&host, &["--artifact", old[0]["artifact"].as_str().unwrap()]);
    assert_eq!(given.code, 1, "{}", given.err);
    let table = bench.run(&["compat", "list", &bench.image]).ok();
    let marked: Vec<_> = table.lines().filter(|line| line.starts_with('*')).collect();
    assert_eq!(marked.len(), 1, "{table}");
    assert!(marked[0].contains(new[0]["artifact"].as_str().unwrap()), "{table}");
}

/// Several in one second: the last one counts, and attach says so.
#[test]
fn what_is_attached_counts_at_once_or_says_what_does() {
    let bench = Bench::new();
    let one = ["--platform", "linux/amd64"];
    for n in 0..6 {
        let spec = OLD.replace("4.0", &format!("4.{n}"));
        let made = bench.attach(&spec, &one);
        let listed = bench.run(&["compat", "list", &bench.image, "-o", "json"]).json();
        let listed = listed.as_array().unwrap();
        let chosen = listed.iter().find(|row| row["chosen"] == true).unwrap();
        assert_eq!(chosen["digest"], made[0]["artifact"], "{n}");
        assert_eq!(made[0]["supersedes"].as_array().unwrap().len(), n);
    }
    // Rules never come before a spec.
    let file = bench.file("rules", RULES);
    let args = ["compat", "attach", &bench.image, "--file", &file, "--platform", "linux/amd64"];
    let table = bench.run(&args).ok();
    assert!(table.contains("does not count"), "{table}");
}

#[test]
fn doubtful_plugins_are_warned_of() {
    let bench = Bench::new();
    let spec = OLD.replace("kernelVersion", "gpu");
    let needs = bench.file("needs", &spec);
    let script = bench.file("script", "#!/bin/sh\n");
    let elf = bench.home.path().join("elf");
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    header.extend([2, 0, 183, 0]);
    std::fs::write(&elf, &header).unwrap();
    let elf = elf.display();
    let attach = |plugin: String| {
        let args = ["compat", "attach", &bench.image, "--file", &needs, "--plugin", &plugin];
        let said = bench.run(&[&args[..], &["--platform", "linux/amd64"]].concat());
        assert_eq!(said.code, 0, "{}", said.err);
        said.err
    };
    let said = attach(format!("gpu={script}"));
    assert!(said.contains("no ELF program"), "{said}");
    let said = attach(format!("gpu={elf}"));
    assert!(said.contains("arm64") && said.contains("linux/amd64"), "{said}");
    let said = attach(format!("gpu={elf}@linux/arm64"));
    assert!(!said.contains("program"), "{said}");
    let said = attach(format!("gpv={elf}@linux/arm64"));
    assert!(said.contains("asks for a plugin \"gpv\""), "{said}");
}

#[test]
fn an_artifact_under_a_tag_must_speak_of_the_image() {
    let bench = Bench::new();
    let host = bench.host("host", "v1", "6.1.0");
    let made = bench.attach(OLD, &["--platform", "linux/amd64"]);
    let repository = bench.image.trim_end_matches(":1");
    let artifact = format!("{repository}@{}", made[0]["artifact"].as_str().unwrap());
    let tagged = format!("{repository}:needs");
    bench.run(&["image", "copy", &artifact, &tagged]).ok();
    assert_eq!(bench.check(&host, &["--artifact-ref", &tagged]).code, 0);
    let other = bench.check(&host, &["--artifact-ref", &tagged, "--platform", "linux/arm64"]);
    assert_eq!(other.code, 2, "{}", other.err);
    assert!(other.err.contains("speaks of"), "{}", other.err);
    let image = bench.check(&host, &["--artifact-ref", &bench.image]);
    assert_eq!(image.code, 2, "{}", image.err);
}

#[test]
fn an_index_can_be_the_subject() {
    let bench = Bench::new();
    let host = bench.host("host", "v1", "6.1.0");
    let made = bench.attach(OLD, &["--subject", "index"]);
    assert_eq!(made.as_array().unwrap().len(), 1);
    assert_eq!(bench.check(&host, &[]).code, 6);
    for subject in ["index", "auto"] {
        assert_eq!(bench.check(&host, &["--subject", subject]).code, 0, "{subject}");
    }
}

#[test]
fn what_is_wrong_is_not_attached() {
    let bench = Bench::new();
    let file = bench.file(
        "bad.json",
        r#"{"schemaVersion": "0.1.0", "namespaces": {"a": {"refs": {"all": ["b"]}}}}"#,
    );
    let said = bench.run(&["compat", "attach", &bench.image, "--file", &file]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("E_DANGLING"), "{}", said.err);
    let rules = bench.file("bad.yaml", "version: v1alpha1\ncompatibilities: [{rules: [{matchFeatures: [{feature: a.b, matchName: {op: Inn}}]}]}]");
    assert_eq!(bench.run(&["compat", "attach", &bench.image, "--file", &rules]).code, 2);
    let good = bench.file("good.json", OLD);
    for (more, code) in [
        (["--platform", "linux/s390x"], 4),
        (["--plugin", "../x=/dev/null"], 2),
        (["--plugin", "x=/nowhere/at/all"], 4),
    ] {
        let args = ["compat", "attach", &bench.image, "--file", &good];
        let said = bench.run(&[&args[..], &more[..]].concat());
        assert_eq!(said.code, code, "{more:?}: {}", said.err);
    }
    assert_eq!(
        bench.run(&["compat", "list", &bench.image, "-o", "json"]).json(),
        serde_json::json!([])
    );
}

#[test]
fn plugins_come_with_the_artifact() {
    let bench = Bench::new();
    let program = bench.file("gpu", "#!/bin/sh\n");
    let wasm = bench.file("any", "\0asm1");
    let (native, any) = (format!("gpu={program}"), format!("any={wasm}"));
    let other = format!("gpu={program}@linux/arm64");
    let made = bench.attach(
        OLD,
        &[
            "--platform",
            "linux/amd64/v3",
            "--plugin",
            &native,
            "--plugin",
            &any,
            "--plugin",
            &other,
        ],
    );
    let repository = bench.image.trim_end_matches(":1");
    let artifact = format!("{repository}@{}", made[0]["artifact"].as_str().unwrap());
    let shown = bench.run(&["image", "inspect", &artifact, "-o", "json"]).json();
    let layers = shown["layers"].as_array().unwrap();
    let of = |n: usize, key: &str| layers[n]["annotations"][key].as_str().map(str::to_owned);
    let platform = "org.opencontainers.image-compatibility.plugin.platform";
    assert_eq!(of(1, "org.opencontainers.image.title").as_deref(), Some("gpu"));
    // What is for amd64/v3 is for amd64: a plugin runs on the host, whatever the image was built for.
    assert_eq!(of(1, platform).as_deref(), Some("linux/amd64"));
    assert_eq!(
        (of(2, platform), layers[2]["mediaType"].as_str()),
        (None, Some("application/vnd.oci.image-compatibility.plugin.v1+wasm"))
    );
    assert_eq!(of(3, platform).as_deref(), Some("linux/arm64"));
}

#[test]
fn rules_of_nfd_are_evaluated_and_tags_choose() {
    let bench = Bench::new();
    let host = bench.host("host", "v1", "6.1.0");
    bench.attach(RULES, &[]);
    let said = bench.check(&host, &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(json(&said)["solution"][0], "set1-old");
    assert_eq!(bench.check(&host, &["--tags", "new"]).code, 1);
    assert_eq!(bench.check(&host, &["--tags", "new,old"]).code, 0);
    assert_eq!(bench.check(&host, &["--tags", "other"]).code, 2);
    assert_eq!(bench.run(&["compat", "remove", &bench.image]).code, 6, "others may rely on it");
    let spec = Bench::new();
    spec.attach(OLD, &[]);
    assert_eq!(spec.check(&host, &["--tags", "old"]).code, 2, "a spec has no tags");
}

#[test]
fn a_matrix_says_which_hosts_fit_which_images() {
    let bench = Bench::new();
    bench.attach(NEW, &[]);
    let other = bench.image.replace("hello:1", "other:1");
    bench.run(&["image", "copy", HELLO, &other]).ok();
    let file = bench.file("old.json", OLD);
    bench.run(&["compat", "attach", &other, "--file", &file]).ok();
    let record = |name: &str, major: &str| {
        let version = serde_json::json!({"full": format!("{major}.1.0"), "major": major, "minor": "1", "revision": "0"});
        let platform = serde_json::json!({"os": "linux", "arch": "amd64", "variant": "v3"});
        let facts = serde_json::json!({"flags": {}, "instances": {}, "attributes": {
            "kernel.version": {"elements": version}, "system.platform": {"elements": platform},
        }});
        bench.file(&format!("{name}.json"), &facts.to_string())
    };
    let (a, b) = (record("a", "6"), record("b", "7"));
    let args = ["compat", "check", &bench.image, &other, "--facts", &a, "--facts", &b];
    let said = bench.run(&[&args[..], &["-o", "json"]].concat());
    assert_eq!(said.code, 1, "{}", said.err);
    let cells = json(&said)["cells"].clone();
    let verdict = |host: &str, image: &str| {
        let fits = |cell: &&serde_json::Value| cell["host"] == host && cell["image"] == image;
        let cell = cells.as_array().unwrap().iter().find(fits).unwrap_or_else(|| panic!("{cells}"));
        cell["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict(&a, &bench.image), "incompatible");
    assert_eq!(verdict(&b, &bench.image), "compatible");
    assert_eq!(verdict(&a, &other), "compatible");
    let table = bench.run(&args).out;
    let line = table.lines().find(|line| line.starts_with(&a)).unwrap_or_else(|| panic!("{table}"));
    assert!(line.contains("incompatible") && line.ends_with("compatible"), "{table}");
    let fine = ["compat", "check", &other, "--facts", &a, "--facts", &b];
    assert_eq!(bench.run(&fine).code, 0);
}

#[test]
fn layouts_hold_artifacts_too() {
    let home = tempfile::tempdir().unwrap();
    let image = format!("oci:{}:1", home.path().join("layout").display());
    run(home.path(), &["image", "copy", HELLO, &image]).ok();
    let file = home.path().join("needs.json");
    std::fs::write(&file, OLD).unwrap();
    let file = file.to_str().unwrap();
    run(home.path(), &["compat", "attach", &image, "--file", file]).ok();
    let host = home.path().join("host");
    write(&host, "proc/sys/kernel/osrelease", "6.1.0");
    let host = host.to_str().unwrap();
    let check = ["compat", "check", &image, "--host", host, "--platform", "linux/arm64"];
    let said = run(home.path(), &check);
    assert_eq!(said.code, 0, "{}", said.err);
    run(home.path(), &["compat", "remove", &image]).ok();
    assert_eq!(run(home.path(), &check).code, 6);
}

#[test]
fn resolve_takes_the_best_whose_needs_the_host_meets() {
    let bench = Bench::new();
    let host = bench.host("host", "v3", "6.1.0");
    let host = host.to_str().unwrap();
    let resolve = |more: &[&str]| {
        bench.run(&[&["image", "resolve", &bench.image, "--host", host], more].concat())
    };
    let plain = |platform: &str| {
        let args = ["image", "resolve", &bench.image, "--platform", platform];
        bench.run(&args).ok()
    };
    // Nothing says what it needs, so the best is as good as without.
    assert_eq!(resolve(&["--compatible"]).ok(), plain("linux/amd64/v3"));
    bench.attach(NEW, &["--platform", "linux/amd64/v3"]);
    assert_eq!(resolve(&[]).ok(), plain("linux/amd64/v3"));
    let said = resolve(&["--compatible"]);
    assert!(said.err.contains("linux/amd64/v3 is incompatible"), "{}", said.err);
    assert_eq!(said.ok(), plain("linux/amd64"));
    let json = resolve(&["--compatible", "-o", "json"]).json();
    assert_eq!(json["passedOver"][0]["platform"], "linux/amd64/v3");
    bench.attach(NEW, &["--platform", "linux/amd64"]);
    let none = resolve(&["--compatible"]);
    assert_eq!((none.code, none.out.as_str()), (1, ""), "{}", none.err);
    assert!(none.err.contains("whose needs it meets"), "{}", none.err);
}

#[test]
fn inspect_shows_what_each_level_gets_and_indexes_are_made_of_levels() {
    let home = tempfile::tempdir().unwrap();
    let json = run(home.path(), &["image", "inspect", HELLO, "-o", "json"]).json();
    let runs = |variant: &str| {
        let fits = |one: &&serde_json::Value| {
            one["host"]["architecture"] == "amd64"
                && one["host"]["variant"].as_str().unwrap_or("v1") == variant
        };
        json["levels"].as_array().unwrap().iter().find(fits).unwrap()["runs"].clone()
    };
    assert_eq!((runs("v1"), runs("v3")), (runs("v2"), runs("v4")));
    assert_ne!(runs("v2"), runs("v3"));
    let table = run(home.path(), &["image", "inspect", HELLO]).ok();
    assert!(table.contains("linux/amd64/v3 … linux/amd64/v4"), "{table}");

    let image = |variant: &str| {
        let of = format!("oci:{}:1", home.path().join(variant).display());
        let platform = if variant == "v9" { "arm64" } else { "amd64" };
        let config = format!(
            r#"{{"os":"linux","architecture":"{platform}","variant":"{variant}","rootfs":{{"type":"layers","diff_ids":[]}}}}"#
        );
        layout(&home.path().join(variant), &config);
        of
    };
    let (v3, v9) = (image("v3"), image("v9"));
    let index = format!("oci:{}:1", home.path().join("index").display());
    let made =
        run(home.path(), &["image", "index", "create", &index, &v3, &v9, "-o", "json"]).json();
    assert_eq!(
        made["manifests"][0]["platform"],
        serde_json::json!({"os": "linux", "architecture": "amd64", "variant": "v3"})
    );
    assert_eq!(
        made["manifests"][1]["platform"],
        serde_json::json!({"os": "linux", "architecture": "arm64", "variant": "v9"})
    );
    let low = run(home.path(), &["image", "resolve", &index, "--platform", "linux/arm64/v8.9"]);
    assert_eq!(low.code, 1, "{}", low.out);
}

/// A layout with one image without layers, under the tag `1`.
fn layout(dir: &Path, config: &str) {
    use portolan_core::{Descriptor, Index, Manifest, media_type};
    let put = |bytes: &[u8]| {
        let name = portolan_core::Digest::sha256(bytes).to_string().replace(':', "/");
        write(dir, &format!("blobs/{name}"), std::str::from_utf8(bytes).unwrap());
    };
    put(config.as_bytes());
    let manifest =
        Manifest::new(Descriptor::of(media_type::OCI_CONFIG, config.as_bytes()), Vec::new());
    put(&manifest.to_vec());
    let mut entry = Descriptor::of(media_type::OCI_MANIFEST, &manifest.to_vec());
    entry.annotations.insert("org.opencontainers.image.ref.name".to_owned(), "1".to_owned());
    write(dir, "index.json", std::str::from_utf8(&Index::new(vec![entry]).to_vec()).unwrap());
    write(dir, "oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#);
}

#[test]
fn the_needs_of_an_image_as_node_affinity() {
    let bench = Bench::new();
    let none = bench.run(&["compat", "affinity", &bench.image]);
    assert_eq!(none.code, 6, "{}", none.err);
    let needs = r#"{"schemaVersion": "0.1.0", "namespaces": {"app": {"plugins": {"cpu": {"data": {"flags": ["AVX2"]}}, "kernelModules": {"data": {"vfio": {}}}}}}}"#;
    bench.attach(needs, &["--platform", "linux/amd64/v3"]);
    let args = ["compat", "affinity", &bench.image, "--platform", "linux/amd64/v3"];
    let yaml = bench.run(&args).ok();
    assert!(yaml.starts_with("# labels cannot say: app/kernelModules: module vfio\n"), "{yaml}");
    let read: serde_json::Value = serde_yaml_ng::from_str(&yaml).unwrap();
    let terms = &read["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    let keys: Vec<_> = terms[0]["matchExpressions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        keys,
        [
            "feature.node.kubernetes.io/cpu-cpuid.AVX2",
            "feature.node.kubernetes.io/cpu-cpuid.X86_64_V3",
            "kubernetes.io/arch",
            "kubernetes.io/os"
        ]
    );
    assert_eq!(terms[0]["matchExpressions"][0]["values"], serde_json::json!(["true"]));
    let strict = bench.run(&[&args[..], &["--strict"]].concat());
    assert_eq!((strict.code, strict.out.as_str()), (1, ""));
    assert!(strict.err.contains("module vfio"), "{}", strict.err);
    // The other images ask for nothing: any machine of their platform will do.
    let all = bench.run(&["compat", "affinity", &bench.image, "-o", "json"]).json();
    let terms = &all["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    assert_eq!(terms.as_array().unwrap().len(), 4, "amd64 covers amd64/v3: {all}");
    let file = bench.file("module.json", r#"{"schemaVersion": "0.1.0", "namespaces": {"app": {"plugins": {"kernelModules": {"data": {"vfio": {}}}}}}}"#);
    let open = bench.run(&["compat", "affinity", "--spec", &file]).ok();
    assert!(open.contains("any node may run it") && open.contains("affinity: {}"), "{open}");
}

#[test]
fn show_prints_what_was_attached() {
    let bench = Bench::new();
    bench.attach(OLD, &["--platform", "linux/arm64"]);
    let args = ["compat", "show", &bench.image, "--platform", "linux/arm64"];
    let tree = bench.run(&args);
    assert!(tree.err.contains("linux/arm64"), "{}", tree.err);
    assert!(tree.ok().contains("kernelVersion"));
    assert_eq!(bench.run(&[&args[..], &["--raw"]].concat()).ok(), OLD);
    let svg = bench.run(&[&args[..], &["--graph", "svg"]].concat()).ok();
    assert!(svg.starts_with("<svg"), "{svg}");
    assert_eq!(bench.run(&["compat", "show", &bench.image, "--platform", "linux/amd64"]).code, 6);
    assert_eq!(bench.run(&["compat", "show", "./no such file"]).code, 4);
    let rules = bench.file("rules.yaml", RULES);
    assert_eq!(bench.run(&["compat", "show", &rules]).ok(), RULES);
}
