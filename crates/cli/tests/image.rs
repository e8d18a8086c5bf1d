//! The fixed command lines that scripts rely on, and what people see.

mod support;

use support::{HELLO, Server, run};

const ARM64: &str = "linux/arm64";

fn digest_of(platform: &str, inspected: &serde_json::Value) -> String {
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let entry = inspected["manifests"].as_array().expect("a list").iter().find(|entry| {
        let platform_of = &entry["platform"];
        let variant = platform_of["variant"].as_str().map(|v| format!("/{v}")).unwrap_or_default();
        let (os, arch) = (&platform_of["os"], &platform_of["architecture"]);
        format!("{}/{}{variant}", text(os), text(arch)) == platform
    });
    text(&entry.unwrap_or_else(|| panic!("no {platform}"))["digest"])
}

#[test]
fn resolve_prints_the_digest_alone() {
    let home = tempfile::tempdir().unwrap();
    let inspected = run(home.path(), &["image", "inspect", HELLO, "-o", "json"]).json();
    let said = run(home.path(), &["image", "resolve", HELLO, "--platform", ARM64]);
    assert_eq!(said.ok(), format!("{}\n", digest_of(ARM64, &inspected)));
}

#[test]
fn resolve_takes_the_best_level_the_platform_has() {
    let home = tempfile::tempdir().unwrap();
    let inspected = run(home.path(), &["image", "inspect", HELLO, "-o", "json"]).json();
    for (wanted, expected) in [
        ("linux/amd64", "linux/amd64"),
        ("linux/amd64/v2", "linux/amd64"),
        ("linux/amd64/v4", "linux/amd64/v3"),
        ("linux/aarch64", "linux/arm64"),
        // Half a name: the operating system is that of the machine the test runs on.
        ("arm64", "linux/arm64"),
    ] {
        let said = run(home.path(), &["image", "resolve", HELLO, "--platform", wanted]);
        assert_eq!(said.ok().trim(), digest_of(expected, &inspected), "{wanted}");
    }
}

#[test]
fn no_match_is_the_answer_no_and_lists_what_there_is() {
    let home = tempfile::tempdir().unwrap();
    let said = run(home.path(), &["image", "resolve", HELLO, "--platform", "linux/s390x"]);
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    for platform in ["linux/amd64/v3", "linux/arm64", "linux/arm/v7", "linux/riscv64"] {
        assert!(said.err.contains(platform), "{}", said.err);
    }
}

#[test]
fn inspect_has_the_fields_scripts_use() {
    let home = tempfile::tempdir().unwrap();
    let json = run(home.path(), &["image", "inspect", HELLO, "-o", "json"]).json();
    assert!(json["digest"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(json["mediaType"], "application/vnd.oci.image.index.v1+json");
    assert_eq!(json["annotations"]["org.opencontainers.image.title"], "hello");
    let entries = json["manifests"].as_array().unwrap();
    assert_eq!(entries.len(), 5);
    for entry in entries {
        assert_eq!(entry["platform"]["os"], "linux");
        assert!(entry["digest"].is_string() && entry["size"].is_u64());
    }
    let yaml = run(home.path(), &["image", "inspect", HELLO, "-o", "yaml"]).ok();
    assert!(yaml.contains("mediaType: application/vnd.oci.image.index.v1+json"), "{yaml}");
}

#[test]
fn inspect_marks_what_a_host_would_run_and_says_why_the_others_lost() {
    let home = tempfile::tempdir().unwrap();
    let table = run(home.path(), &["image", "inspect", HELLO, "--platform", "linux/amd64/v2"]).ok();
    let marked: Vec<_> = table.lines().filter(|line| line.starts_with('*')).collect();
    assert_eq!(marked.len(), 1, "{table}");
    assert!(marked[0].contains("linux/amd64 ") && marked[0].contains("chosen"), "{table}");
    assert!(table.lines().any(|l| l.contains("linux/amd64/v3") && l.contains("lost")), "{table}");
    assert!(table.contains("org.opencontainers.image.title"), "{table}");
    assert!(!table.contains('\u{1b}'), "no colours into a pipe");
}

#[test]
fn inspect_of_a_foreign_root_judges_by_that_root() {
    let home = tempfile::tempdir().unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hosts/graviton3");
    let json = run(home.path(), &["image", "inspect", HELLO, "--host", root, "-o", "json"]).json();
    assert_eq!(json["host"]["platform"]["platform"]["architecture"], "arm64");
    assert_eq!(json["host"]["runs"].as_str().unwrap(), digest_of(ARM64, &json));
}

#[test]
fn an_image_goes_to_a_registry_and_back_with_the_same_digests() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &home.path().join("data"), &[]);
    let remote = format!("{}/team/hello:1", server.address);
    let back = format!("oci:{}:again", home.path().join("back").display());
    run(home.path(), &["image", "copy", HELLO, &remote]).ok();
    let second = run(home.path(), &["image", "copy", HELLO, &remote, "-o", "json"]).json();
    assert_eq!(second["blobsCopied"], 0, "{second}");
    run(home.path(), &["image", "copy", &remote, &back]).ok();
    let digest = |reference: &str| {
        let json = run(home.path(), &["image", "inspect", reference, "-o", "json"]).json();
        json["digest"].as_str().unwrap().to_owned()
    };
    assert_eq!(digest(HELLO), digest(&remote));
    assert_eq!(digest(HELLO), digest(&back));
    let listed =
        run(home.path(), &["image", "ls", remote.trim_end_matches(":1"), "-o", "json"]).json();
    assert_eq!(listed[0]["tag"], "1");
    assert_eq!(listed[0]["digest"], digest(HELLO));
    assert!(
        run(home.path(), &["image", "ls", back.trim_end_matches(":again")]).ok().contains("again")
    );
}

#[test]
fn one_platform_is_copied_under_its_own_digest_and_several_as_a_new_index() {
    let home = tempfile::tempdir().unwrap();
    let one = format!("oci:{}:one", home.path().join("l").display());
    let two = format!("oci:{}:two", home.path().join("l").display());
    let wanted = run(home.path(), &["image", "resolve", HELLO, "--platform", ARM64]).ok();
    let said = run(home.path(), &["image", "copy", HELLO, &one, "--platform", ARM64, "-o", "json"]);
    assert_eq!(said.json()["digest"], wanted.trim());
    let args = ["image", "copy", HELLO, &two, "--platform", ARM64, "--platform", "linux/amd64"];
    let said = run(home.path(), &args);
    assert!(said.err.contains("digest changed"), "{}", said.err);
    let json = run(home.path(), &["image", "inspect", &two, "-o", "json"]).json();
    assert_eq!(json["manifests"].as_array().unwrap().len(), 2);
}

#[test]
fn an_index_is_made_of_images_and_is_the_same_every_time() {
    let home = tempfile::tempdir().unwrap();
    let layout = home.path().join("parts");
    let mut parts = Vec::new();
    for platform in ["linux/amd64", ARM64] {
        let tag = platform.replace('/', "-");
        let part = format!("oci:{}:{tag}", layout.display());
        run(home.path(), &["image", "copy", HELLO, &part, "--platform", platform]).ok();
        parts.push(part);
    }
    let server = Server::start(home.path(), &home.path().join("data"), &[]);
    let make = |name: &str| {
        let target = format!("{}/{name}:1", server.address);
        let mut args = vec!["image", "index", "create", &target, "-o", "json"];
        args.extend(parts.iter().map(String::as_str));
        args.extend(["--annotation", "org.example.k=v"]);
        run(home.path(), &args).json()["digest"].as_str().unwrap().to_owned()
    };
    assert_eq!(make("one"), make("two"));
    let made = format!("{}/one:1", server.address);
    let json = run(home.path(), &["image", "inspect", &made, "-o", "json"]).json();
    assert_eq!(json["annotations"]["org.example.k"], "v");
    let resolved = run(home.path(), &["image", "resolve", &made, "--platform", ARM64]).ok();
    let original = run(home.path(), &["image", "resolve", HELLO, "--platform", ARM64]).ok();
    assert_eq!(resolved, original);

    // What is refused is refused before anything is written.
    let fresh = home.path().join("fresh");
    let twice = format!("oci:{}:twice", fresh.display());
    let said = run(home.path(), &["image", "index", "create", &twice, &parts[0], &parts[0]]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("both for linux/amd64"), "{}", said.err);
    let pinned = format!("oci:{}@{}", fresh.display(), original.trim());
    let said = run(home.path(), &["image", "index", "create", &pinned, &parts[0]]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("name a tag"), "{}", said.err);
    assert!(!fresh.exists());
}

#[test]
fn exit_codes_tell_apart_what_went_wrong() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &home.path().join("data"), &[]);
    let code = |args: &[&str]| run(home.path(), args).code;
    assert_eq!(code(&["image", "inspect", "127.0.0.1:1/UPPER"]), 2);
    assert_eq!(code(&["image", "inspect"]), 2);
    assert_eq!(code(&["image", "resolve", HELLO, "--platform", "linux/*"]), 2);
    let empty = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hosts/empty");
    assert_eq!(code(&["image", "resolve", HELLO, "--host", empty]), 3);
    assert_eq!(code(&["image", "resolve", HELLO, "--host", "/no/such/dir"]), 4);
    assert_eq!(code(&["image", "resolve", HELLO, "--host", env!("CARGO_BIN_EXE_portolan")]), 2);
    assert_eq!(code(&["image", "inspect", "oci:/no/such/dir:1"]), 4);
    assert_eq!(code(&["image", "inspect", &format!("{}/none:1", server.address)]), 4);
    let gone = server.address.clone();
    drop(server);
    let said = run(home.path(), &["image", "inspect", &format!("{gone}/none:1")]);
    assert_eq!(said.code, 5, "{}", said.err);
    assert!(said.err.contains(&gone), "{}", said.err);
}

#[test]
fn a_broken_log_filter_is_told() {
    let home = tempfile::tempdir().unwrap();
    let out = support::portolan(home.path())
        .env("PORTOLAN_LOG", "portolan=loud")
        .arg("version")
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("PORTOLAN_LOG"));
}

#[test]
fn a_broken_registries_file_is_named_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("registries.toml");
    std::fs::write(&file, "\n[host.\"r.example\"]\nplain_htp = true\n").unwrap();
    let said =
        run(home.path(), &["--registries", file.to_str().unwrap(), "image", "inspect", HELLO]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("registries.toml") && said.err.contains('3'), "{}", said.err);
}

#[test]
fn strangers_names_do_not_reach_the_terminal_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    let layout = home.path().join("layout");
    std::fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    std::fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let entry = |digit: char| {
        serde_json::json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{}", digit.to_string().repeat(64)),
            "size": 2,
            "annotations": {"org.opencontainers.image.ref.name": format!("{digit}\u{1b}]0;title\u{7}")},
        })
    };
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [entry('1'), entry('2')]});
    std::fs::write(layout.join("index.json"), index.to_string()).unwrap();
    let said = run(home.path(), &["image", "inspect", &format!("oci:{}", layout.display())]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("title"), "{}", said.err);
    assert!(said.err.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", said.err);
}

#[test]
fn a_stderr_that_takes_nothing_stops_nothing() {
    let home = tempfile::tempdir().unwrap();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let copy = format!("oci:{}:1", home.path().join("copy").display());
    let copied = support::portolan(home.path())
        .args(["--progress", "plain", "image", "copy", HELLO, &copy])
        .stderr(full())
        .status()
        .unwrap();
    assert_eq!(copied.code(), Some(0));
    run(home.path(), &["image", "inspect", &copy]).ok();
    let missing = support::portolan(home.path())
        .args(["image", "inspect", "oci:/no/such/dir:1"])
        .stderr(full())
        .status()
        .unwrap();
    assert_eq!(missing.code(), Some(4));
}

#[test]
fn progress_in_plain_lines_tells_each_blob_once() {
    let home = tempfile::tempdir().unwrap();
    let to = format!("oci:{}:1", home.path().join("l").display());
    let said = run(home.path(), &["image", "copy", HELLO, &to, "--progress", "plain"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let lines: Vec<_> = said.err.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(lines.len(), 10, "{}", said.err);
    assert!(lines[9].starts_with("[10/10] "), "{}", said.err);
    let silent = run(home.path(), &["image", "copy", HELLO, &to, "--progress", "none"]);
    assert_eq!(silent.err, "");
}

#[test]
fn odd_platforms_are_told_wherever_they_are_named() {
    let home = tempfile::tempdir().unwrap();
    let odd = ["--platform", "linux/amd64/v9"];
    let (context, out) = (home.path().join("app"), home.path().join("out"));
    std::fs::create_dir(&context).unwrap();
    std::fs::write(context.join("Containerfile"), "FROM scratch\nCOPY Containerfile /\n").unwrap();
    let (context, out) = (context.display().to_string(), format!("oci:{}:1", out.display()));
    let build = ["build", "run", "--engine", "local", "--dir", &context, "--output", &out];
    for args in [&["image", "resolve", HELLO][..], &["image", "inspect", HELLO], &build] {
        let said = run(home.path(), &[args, &odd].concat());
        assert_eq!(said.code, 0, "{args:?}: {}", said.err);
        let told = said.err.matches("warning: no level \"amd64/v9\" is known").count();
        assert_eq!(told, 1, "{args:?}: {}", said.err);
    }
}
