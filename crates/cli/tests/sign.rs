//! Signing, as scripts do it: keys, indexes and images, over the embedded server and over layouts.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use support::{HELLO, Said, Server, generate, portolan, run, stocked, with_password};

/// A home with a key, a registry and an image in it.
struct Bench {
    home: tempfile::TempDir,
    _server: Server,
    repository: String,
    image: String,
}

impl Bench {
    fn new() -> Self {
        let (home, server, image) = stocked();
        let repository = format!("{}/team/hello", server.address);
        generate(home.path(), "release").ok();
        Self { home, _server: server, repository, image }
    }

    fn key(&self, name: &str) -> String {
        self.home.path().join(format!("{name}.key")).display().to_string()
    }

    fn sign(&self, image: &str, key: &str, more: &[&str]) -> Said {
        let key = self.key(key);
        let args = [&["sign", image, "--key", &key, "-o", "json"], more].concat();
        with_password(self.home.path(), &args, "secret")
    }

    fn signed(&self, image: &str, key: &str, more: &[&str]) -> Vec<Value> {
        self.sign(image, key, more).json()["signatures"].as_array().unwrap().clone()
    }

    fn run(&self, args: &[&str]) -> Said {
        run(self.home.path(), args)
    }
}

fn column(rows: &[Value], name: &str) -> Vec<String> {
    rows.iter().map(|row| row[name].to_string()).collect()
}

#[test]
fn a_pair_of_keys_is_written_once_and_secretly() {
    let home = tempfile::tempdir().unwrap();
    let said = generate(home.path(), "release");
    assert_eq!((said.code, said.out.lines().count()), (0, 2), "{}", said.err);
    let key = home.path().join("release.key");
    assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let sealed = std::fs::read_to_string(&key).unwrap();
    assert!(sealed.starts_with("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----"), "{sealed}");
    let public = std::fs::read_to_string(home.path().join("release.pub")).unwrap();
    assert!(public.starts_with("-----BEGIN PUBLIC KEY-----"), "{public}");

    let again = generate(home.path(), "release");
    assert_eq!(again.code, 2, "{}", again.err);
    assert!(again.err.contains("not overwritten"), "{}", again.err);
    assert_eq!(std::fs::read_to_string(&key).unwrap(), sealed);
    // Also not when only the public half is left.
    std::fs::remove_file(&key).unwrap();
    assert_eq!(generate(home.path(), "release").code, 2);
    assert!(!key.exists());
    // Nobody to ask: no key without a password by accident.
    let prefix = home.path().join("other").display().to_string();
    let mut silent = portolan(home.path());
    silent.args(["key", "generate", "--output", &prefix]).env_remove("COSIGN_PASSWORD");
    let silent = Said::from(silent.output().unwrap());
    assert_eq!(silent.code, 2, "{}", silent.err);
    assert!(silent.err.contains("COSIGN_PASSWORD"), "{}", silent.err);
    assert!(!home.path().join("other.key").exists());
}

/// As where the disk is full: nothing is left that looks like a key and is none.
#[test]
fn a_pair_of_keys_that_cannot_be_written_leaves_nothing() {
    let (home, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let prefix = target.path().join("release").display().to_string();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]);
    let command = portolan(home.path());
    shell.arg(command.get_program()).args(["key", "generate", "--output", &prefix]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let said = Said::from(shell.env("COSIGN_PASSWORD", "secret").output().unwrap());
    assert_eq!(said.code, 5, "{}", said.err);
    let left: Vec<_> = std::fs::read_dir(target.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_index_is_signed_alone_or_with_everything_in_it_and_only_once() {
    let bench = Bench::new();
    let alone = bench.signed(&bench.image, "release", &[]);
    assert_eq!(alone.len(), 1);
    assert_eq!((&alone[0]["kind"], &alone[0]["existing"]), (&"index".into(), &false.into()));

    let all = bench.signed(&bench.image, "release", &["--recursive"]);
    assert_eq!(all.len(), 6, "the index and five images: {all:?}");
    assert_eq!(all[0]["artifact"], alone[0]["artifact"], "the index was signed before");
    assert_eq!(all[0]["existing"], true);
    assert!(all[1..].iter().all(|row| row["existing"] == false && row["kind"] == "manifest"));
    let platforms: BTreeSet<_> = column(&all[1..], "platform").into_iter().collect();
    assert_eq!(platforms.len(), 5, "{platforms:?}");

    let again = bench.signed(&bench.image, "release", &["--recursive"]);
    assert!(again.iter().all(|row| row["existing"] == true), "{again:?}");
    assert_eq!(column(&again, "artifact"), column(&all, "artifact"));
}

#[test]
fn what_was_signed_is_named_by_digest_and_by_key() {
    let bench = Bench::new();
    let said = bench.sign(&bench.image, "release", &[]).json();
    let subject = said["signatures"][0]["subject"].as_str().unwrap();
    assert_eq!(said["image"], format!("{}@{subject}", bench.repository));
    assert!(said["key"].as_str().unwrap().starts_with("sha256:"), "{said}");
    let key = bench.key("release");
    let table = with_password(bench.home.path(), &["sign", &bench.image, "--key", &key], "secret");
    assert!(table.ok().contains("was there"));
}

#[test]
fn a_layout_is_signed_in_both_forms() {
    let bench = Bench::new();
    let layout = format!("oci:{}", bench.home.path().join("layout").display());
    let image = format!("{layout}:1");
    bench.run(&["image", "copy", HELLO, &image]).ok();
    let rows = bench.signed(&image, "release", &["--recursive", "--form", "both"]);
    assert_eq!(rows.len(), 12, "{rows:?}");
    let tags = bench.run(&["image", "ls", &layout]).ok();
    assert_eq!(tags.matches(".sig").count(), 6, "{tags}");
    let again = bench.signed(&image, "release", &["--recursive", "--form", "both"]);
    assert!(again.iter().all(|row| row["existing"] == true), "{again:?}");
    assert_eq!(bench.run(&["image", "ls", &layout]).ok(), tags);
}

#[test]
fn several_keys_sign_one_image_and_none_pushes_another_out() {
    let bench = Bench::new();
    generate(bench.home.path(), "second").ok();
    for form in ["bundle", "simple"] {
        let more = ["--form", form];
        let first = bench.signed(&bench.image, "release", &more);
        let second = bench.signed(&bench.image, "second", &more);
        assert_eq!(second[0]["existing"], false, "{form}: another key's signature is no excuse");
        for key in ["release", "second"] {
            let again = bench.signed(&bench.image, key, &more);
            assert_eq!(again[0]["existing"], true, "{form} {key}");
        }
        assert_ne!(first[0]["artifact"], second[0]["artifact"]);
    }
}

#[test]
fn a_signature_of_another_image_in_the_right_place_is_no_signature() {
    let bench = Bench::new();
    let rows = bench.signed(&bench.image, "release", &["--recursive", "--form", "simple"]);
    let tag = |row: &Value| {
        let digest = row["subject"].as_str().unwrap().replace(':', "-");
        format!("{}:{digest}.sig", bench.repository)
    };
    // The first image's signature under the second image's tag.
    bench.run(&["image", "copy", &tag(&rows[1]), &tag(&rows[2])]).ok();
    let second = format!("{}@{}", bench.repository, rows[2]["subject"].as_str().unwrap());
    let again = bench.signed(&second, "release", &["--form", "simple"]);
    assert_eq!(again[0]["existing"], false);
    assert_eq!(bench.signed(&second, "release", &["--form", "simple"])[0]["existing"], true);
}

#[test]
fn a_copy_with_what_refers_to_it_is_signed_as_the_original_is() {
    let bench = Bench::new();
    bench.sign(&bench.image, "release", &["--recursive"]).ok();
    let copy = bench.image.replace("team/hello", "elsewhere/copy");
    bench.run(&["image", "copy", "--referrers", &bench.image, &copy]).ok();
    let found = bench.signed(&copy, "release", &["--recursive"]);
    assert!(found.iter().all(|row| row["existing"] == true), "{found:?}");
}

#[test]
fn every_exit_code_of_sign() {
    let bench = Bench::new();
    let missing = bench.image.replace(":1", ":2");
    assert_eq!(bench.sign(&missing, "release", &[]).code, 4);
    let no_key = bench.sign(&bench.image, "nobody", &[]);
    assert_eq!(no_key.code, 4, "{}", no_key.err);
    assert!(no_key.err.contains("key generate"), "{}", no_key.err);
    assert_eq!(bench.sign("127.0.0.1:1/team/hello:1", "release", &[]).code, 5);
    let key = bench.key("release");
    let wrong = with_password(bench.home.path(), &["sign", &bench.image, "--key", &key], "Secret");
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert!(wrong.err.contains("wrong password"), "{}", wrong.err);
    assert!(!wrong.err.contains("Secret"), "{}", wrong.err);
    let mut silent = portolan(bench.home.path());
    silent.args(["sign", &bench.image, "--key", &key]).env_remove("COSIGN_PASSWORD");
    let silent = Said::from(silent.output().unwrap());
    assert_eq!(silent.code, 2, "{}", silent.err);
    assert!(silent.err.contains("COSIGN_PASSWORD"), "{}", silent.err);
    let public = key.replace(".key", ".pub");
    let half = with_password(bench.home.path(), &["sign", &bench.image, "--key", &public], "");
    assert_eq!(half.code, 2, "{}", half.err);
    assert_eq!(bench.run(&["sign", "Not A Reference", "--key", &key]).code, 2);
}
