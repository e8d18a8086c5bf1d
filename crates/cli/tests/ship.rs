//! `portolan ship`: the whole journey as a person makes it, again, interrupted and with bad input.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::fake_agent::{Answers, Fake};
use support::{HELLO, Said, Server, generate, portolan, run};

/// What a person has: a home, and a directory to build.
struct Site {
    home: tempfile::TempDir,
}

impl Site {
    /// With a copy of `examples/hello`, which no other test changes.
    fn new() -> Self {
        let site = Self { home: tempfile::tempdir().unwrap() };
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello");
        let copied = Command::new("cp").arg("-a").arg(from).arg(site.dir()).status().unwrap();
        assert!(copied.success());
        std::fs::create_dir(site.temp()).unwrap();
        site
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("hello")
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("root")
    }

    fn temp(&self) -> PathBuf {
        self.home.path().join("tmp")
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = portolan(self.home.path());
        command.env("TMPDIR", self.temp()).arg("ship").arg(self.dir());
        command.arg("--root").arg(self.root()).args(more);
        command
    }

    fn ship(&self, more: &[&str]) -> Said {
        self.command(more).output().unwrap().into()
    }

    fn shipped(&self, more: &[&str]) -> Value {
        self.ship(&[&["-o", "json"], more].concat()).json()
    }

    /// What is left in the directory for temporary files.
    fn left(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.temp()).unwrap();
        all.map(|entry| entry.unwrap().path()).collect()
    }

    /// The file that holds a manifest in the embedded registry.
    fn blob(&self, digest: &str) -> PathBuf {
        let hex = digest.strip_prefix("sha256:").unwrap();
        self.root().join("registry/hello/_layout/blobs/sha256").join(hex)
    }
}

/// The stages and how each came out.
fn stages(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = report["stages"].as_array().unwrap();
    rows.iter().map(|row| (text(&row["stage"]), text(&row["state"]))).collect()
}

fn words(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

fn produced(report: &Value, stage: usize, name: &str) -> String {
    let all = report["stages"][stage]["produced"].as_array().unwrap();
    let one = all.iter().find(|one| one["name"] == name).unwrap();
    one["digest"].as_str().unwrap().to_owned()
}

const CHANGED: [(&str, &str); 7] = [
    ("build", "done"),
    ("sign", "done"),
    ("attach", "done"),
    ("verify", "done"),
    ("check", "done"),
    ("resolve", "done"),
    ("disk", "done"),
];

const AGAIN: [(&str, &str); 7] = [
    ("build", "unchanged"),
    ("sign", "unchanged"),
    ("attach", "unchanged"),
    ("verify", "done"),
    ("check", "done"),
    ("resolve", "done"),
    ("disk", "unchanged"),
];

#[test]
fn a_directory_is_shipped_and_what_would_come_out_the_same_is_not_made_again() {
    let site = Site::new();
    let first = site.shipped(&[]);
    assert_eq!(stages(&first), words(&CHANGED), "{first:#}");
    let names: Vec<_> = first["stages"][0]["produced"].as_array().unwrap().clone();
    let names: Vec<_> = names.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["source", "linux/amd64", "linux/arm64", "index"]);
    // The index and both images.
    assert_eq!(first["stages"][1]["produced"].as_array().unwrap().len(), 3);
    let disk = Path::new(first["rootdisk"].as_str().unwrap());
    assert!(disk.is_file() && disk.starts_with(site.root().join("rootdisks/sha256")), "{first:#}");
    assert_eq!(site.left(), Vec::<PathBuf>::new());

    let second = site.shipped(&[]);
    assert_eq!(stages(&second), words(&AGAIN), "{second:#}");
    for same in ["indexDigest", "resolvedDigest", "rootdisk", "rootdiskKey", "layout", "publicKey"]
    {
        assert_eq!(first[same], second[same], "{same}");
    }
    let referrers = |report: &Value| produced(report, 1, "index");
    assert_eq!(referrers(&first), referrers(&second), "nothing is signed twice");

    // Something else is built again, and what is the same of it is not pushed or made again.
    std::fs::write(site.dir().join("notes.txt"), "not in the image").unwrap();
    let third = site.shipped(&[]);
    assert_eq!(stages(&third)[0], ("build".to_owned(), "done".to_owned()));
    assert_eq!(first["indexDigest"], third["indexDigest"], "the image is the same");
    assert_ne!(produced(&first, 0, "source"), produced(&third, 0, "source"));
    assert_eq!(stages(&third)[1..], words(&AGAIN)[1..], "{third:#}");
}

#[test]
fn people_see_a_row_for_each_platform_and_a_table_of_stages() {
    let site = Site::new();
    let said = site.ship(&["--progress", "plain", "--listen", "127.0.0.1:0"]);
    for line in ["linux/amd64    running building", "linux/arm64    succeeded "] {
        assert!(said.err.lines().any(|one| one.starts_with(line)), "{line}: {}", said.err);
    }
    assert!(said.err.contains("made a development key"), "{}", said.err);
    let table = said.ok();
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("STAGE    TOOK     RESULT"), "{table}");
    for (row, (stage, _)) in rows[1..].iter().zip(CHANGED) {
        assert!(row.starts_with(stage) && row.contains(" s  "), "{table}");
    }
    assert!(rows[8].starts_with("total"), "{table}");
    assert!(table.contains("the development key") && table.contains("\nNext:\n"), "{table}");
    let said = site.ship(&["--progress", "none", "--listen", "127.0.0.1:0"]);
    assert_eq!(said.err, "");
    assert!(said.ok().contains("unchanged: source, linux/amd64, linux/arm64, index"));
}

#[test]
fn the_commands_that_are_named_next_work_as_they_are() {
    let site = Site::new();
    let report = site.shipped(&[]);
    let next = report["next"].as_array().unwrap();
    let shell = |command: &str| {
        let mut shell = Command::new("sh");
        let like = portolan(site.home.path());
        shell.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.args(["-c", command]).current_dir("/").stdin(Stdio::null());
        shell
    };
    let mut tried = Vec::new();
    for command in next.iter().map(|one| one.as_str().unwrap()) {
        let what = command.split_whitespace().nth(1).unwrap().to_owned();
        if command.ends_with(" --boot") {
            // It would; a machine is booted where there is a kernel for it.
            continue;
        }
        if what == "registry" {
            use std::io::BufRead as _;
            let command = format!("exec {command} --listen 127.0.0.1:0");
            let mut server = shell(&command).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            let mut out = std::io::BufReader::new(server.stdout.take().unwrap());
            out.read_line(&mut line).unwrap();
            let image = format!("{}/hello:latest", line.trim());
            let resolved = run(site.home.path(), &["image", "resolve", &image]);
            server.kill().unwrap();
            server.wait().unwrap();
            assert_eq!(resolved.ok().trim(), report["resolvedDigest"].as_str().unwrap());
        } else {
            let said: Said = shell(command).output().unwrap().into();
            assert_eq!(said.code, 0, "{command}: {}", said.err);
        }
        tried.push(what);
    }
    assert_eq!(tried, ["image", "verify", "rootdisk", "registry"]);
}

#[test]
fn a_child_that_somebody_changed_is_refused_and_nothing_is_made_of_it() {
    let site = Site::new();
    let first = site.shipped(&[]);
    let disk = PathBuf::from(first["rootdisk"].as_str().unwrap());
    std::fs::remove_file(&disk).unwrap();
    let child = site.blob(&produced(&first, 0, "linux/amd64"));
    let manifest = std::fs::read_to_string(&child).unwrap();
    let changed = manifest.replace("vnd.oci.image.layer", "vnd.oci.image.laxer");
    assert_ne!(manifest, changed);
    std::fs::remove_file(&child).unwrap();
    std::fs::write(&child, changed).unwrap();
    let said = site.ship(&["-o", "json"]);
    assert_ne!(said.code, 0);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let last = stages(&report).pop().unwrap();
    assert!(["sign", "verify"].contains(&last.0.as_str()) && last.1 == "failed", "{report:#}");
    assert!(!disk.exists() && report.get("rootdisk").is_none(), "{report:#}");
    assert!(said.err.contains("sha256:"), "{}", said.err);
}

#[test]
fn what_is_in_the_registry_is_what_the_directory_says_whoever_moved_the_tag() {
    let site = Site::new();
    let first = site.shipped(&[]);
    let layout = first["layout"].as_str().unwrap();
    run(site.home.path(), &["image", "copy", HELLO, layout]).ok();
    let moved = run(site.home.path(), &["image", "resolve", layout]).ok();
    assert_ne!(moved.trim(), first["resolvedDigest"].as_str().unwrap());
    let second = site.shipped(&[]);
    assert_eq!(stages(&second)[0].1, "done", "{second:#}");
    assert_eq!(first["indexDigest"], second["indexDigest"]);
    let back = run(site.home.path(), &["image", "resolve", layout]).ok();
    assert_eq!(back.trim(), first["resolvedDigest"].as_str().unwrap());
}

#[test]
fn a_key_of_ones_own_signs_and_what_is_no_key_is_told_before_anything_is_built() {
    let site = Site::new();
    generate(site.home.path(), "release").ok();
    let key = site.home.path().join("release.key").display().to_string();
    let with = |key: &str, password: &str| -> Said {
        let mut command = site.command(&["--key", key, "-o", "json"]);
        command.env("COSIGN_PASSWORD", password).output().unwrap().into()
    };
    std::fs::write(site.home.path().join("no.key"), "no key").unwrap();
    let none = site.home.path().join("no.key").display().to_string();
    for (key, password, code) in
        [(key.as_str(), "wrong", 2), (&none, "secret", 2), ("/nowhere.key", "secret", 4)]
    {
        let said = with(key, password);
        assert_eq!((said.code, said.out.as_str()), (code, ""), "{}", said.err);
        assert!(said.err.contains("key"), "{}", said.err);
    }
    assert!(!site.root().join("registry/hello").exists());
    let report = with(&key, "secret").json();
    assert_eq!(
        report["publicKey"].as_str().unwrap(),
        site.home.path().join("release.pub").to_str().unwrap()
    );
    assert!(!site.root().join("keys/development.key").exists());
    // The development key signs beside it, and both verify.
    let second = site.shipped(&[]);
    assert_eq!(stages(&second)[1], ("sign".to_owned(), "done".to_owned()));
    let layout = report["layout"].as_str().unwrap();
    for report in [&report, &second] {
        let key = report["publicKey"].as_str().unwrap();
        run(site.home.path(), &["verify", "image", layout, "--key", key, "--all-platforms"]).ok();
    }
}

#[test]
fn half_a_development_key_is_made_whole_and_another_half_is_refused() {
    let site = Site::new();
    let first = site.shipped(&[]);
    let public = site.root().join("keys/development.pub");
    let pem = std::fs::read(&public).unwrap();
    std::fs::remove_file(&public).unwrap();
    let second = site.shipped(&[]);
    assert_eq!(stages(&second), words(&AGAIN));
    assert_eq!(std::fs::read(&public).unwrap(), pem);
    let other = Site::new();
    other.shipped(&[]);
    std::fs::copy(other.root().join("keys/development.pub"), &public).unwrap();
    let said = site.ship(&[]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("remove both"), "{}", said.err);
    assert_eq!(first["indexDigest"], second["indexDigest"]);
}

#[test]
fn a_registry_of_somebodys_is_pushed_to() {
    let site = Site::new();
    let server = Server::start(site.home.path(), &site.home.path().join("data"), &[]);
    let to = format!("{}/team/app:2", server.address);
    let first = site.shipped(&["--to", &to]);
    assert_eq!((first["image"].as_str(), first.get("layout")), (Some(to.as_str()), None));
    assert_eq!(stages(&first), words(&CHANGED));
    let tags = run(site.home.path(), &["image", "ls", &to.replace(":2", ""), "-o", "json"]).ok();
    for tag in ["2", "2-src", "2-linux-amd64", "2-linux-arm64"] {
        assert!(tags.contains(&format!("{tag:?}")), "{tag}: {tags}");
    }
    assert_eq!(stages(&site.shipped(&["--to", &to])), words(&AGAIN));
    // Gone from there, it is pushed again.
    drop(server);
    std::fs::remove_dir_all(site.home.path().join("data")).unwrap();
    let said = site.ship(&["--to", &to]);
    assert_eq!(said.code, 5, "{}", said.err);
    let server = Server::start(site.home.path(), &site.home.path().join("data"), &[]);
    let to = format!("{}/team/app:2", server.address);
    assert_eq!(stages(&site.shipped(&["--to", &to]))[0].1, "done");
}

#[test]
fn an_agent_that_answers_is_given_the_image_by_its_digests() {
    let site = Site::new();
    let time = "2026-01-01T00:00:00Z";
    let status = json!({
        "version": "0", "node": "n", "platform": "linux/amd64", "rootdisk_format_version": "1",
        "started_at": time, "time": time, "ready": true, "degraded": [], "pools": {}, "instances": {},
    });
    let key = "ab".repeat(32);
    let fetched = json!({ "images": [{ "rootdisk_key": key, "cached": false }] });
    let fake = Fake::new(Answers::from([
        ("GET /v1/status", (200, status.clone())),
        ("POST /v1/prefetch", (200, fetched)),
    ]));
    let socket = fake.socket().display().to_string();
    let report = site.shipped(&["--socket", &socket]);
    assert_eq!(
        (report["rootdiskKey"].as_str(), report.get("rootdisk")),
        (Some(key.as_str()), None)
    );
    assert!(!site.root().join("rootdisks").exists(), "the cache is the agent's");
    let asked = fake.asked();
    let image = &asked.iter().find(|(call, _)| call == "POST /v1/prefetch").unwrap().1["images"][0];
    assert_eq!(image["resolved_digest"], report["resolvedDigest"]);
    assert_eq!(image["index_digest"], report["indexDigest"]);
    assert!(image["repository"].as_str().unwrap().ends_with("/hello"), "{image}");
    let said = site.ship(&["--socket", &socket, "--boot", "--accel", "tcg"]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("--accel"), "{}", said.err);

    let refused =
        json!({ "images": [{ "reason": "verification_failed", "message": "not signed" }] });
    let fake = Fake::new(Answers::from([
        ("GET /v1/status", (200, status)),
        ("POST /v1/prefetch", (200, refused)),
    ]));
    let said = site.ship(&["--socket", &fake.socket().display().to_string()]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("not signed"), "{}", said.err);
}

#[test]
fn a_host_that_meets_no_need_gets_no_disk() {
    let site = Site::new();
    let needs = json!({ "schemaVersion": "0.1.0", "namespaces": { "app": { "plugins": {
        "kernelVersion": { "data": { "range": "[900,)" } } } } } });
    std::fs::write(site.dir().join("compatibility.json"), needs.to_string()).unwrap();
    let said = site.ship(&["-o", "json"]);
    assert_eq!(said.code, 1, "{}", said.err);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(stages(&report).pop().unwrap(), ("resolve".to_owned(), "failed".to_owned()));
    let check = report["stages"][4]["result"].as_str().unwrap();
    assert!(check.contains("incompatible"), "{check}");
    assert!(!site.root().join("rootdisks").exists());
    // Other needs count from now on, and the same again adds nothing.
    std::fs::write(site.dir().join("compatibility.json"), needs.to_string().replace("900", "3.2"))
        .unwrap();
    assert_eq!(stages(&site.shipped(&[]))[2].1, "done");
    assert_eq!(stages(&site.shipped(&[])), words(&AGAIN));
    // Without the file the same image has them still, and it is told how they go.
    let file = site.dir().join("compatibility.json");
    std::fs::write(&file, needs.to_string()).unwrap();
    assert_eq!(site.ship(&[]).code, 1);
    std::fs::remove_file(&file).unwrap();
    let said = site.ship(&["-o", "json"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("by the artifact") && said.err.contains("compat remove"), "{said:?}");
    let check = said.answer()["stages"][3]["result"].as_str().unwrap().to_owned();
    let (_, remove) = check.split_once("to drop it: ").expect(&check);
    let mut words = remove.split(' ').skip(1);
    assert_eq!((words.next(), words.next()), (Some("compat"), Some("remove")), "{remove}");
    run(site.home.path(), &["compat", "remove", words.next().unwrap()]).ok();
    assert_eq!(site.ship(&[]).code, 0);
    std::fs::write(site.dir().join("compatibility.json"), "{").unwrap();
    let said = site.ship(&[]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("compatibility.json"), "{}", said.err);
}
