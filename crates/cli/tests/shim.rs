//! `portolan shim plan | lint | pin`, as people and scripts call them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use support::run;

fn fixture(name: &str) -> String {
    format!("{}/../../fixtures/shim/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The examples of the proposal, each in a file.
fn examples(dir: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(fixture("proposal.yaml")).unwrap();
    let parts = text.split("---\n").enumerate();
    parts
        .map(|(at, part)| {
            let file = dir.join(format!("{at}.yaml"));
            std::fs::write(&file, part).unwrap();
            file.to_str().unwrap().to_owned()
        })
        .collect()
}

const RELEASE: &str = "https://github.com/spinframework/containerd-shim-spin/releases/download/v0.22.0/containerd-shim-spin-v2-linux";

#[test]
fn shim_plan_says_what_each_selected_node_would_get() {
    let home = tempfile::tempdir().unwrap();
    let files = examples(home.path());
    let nodes = fixture("nodes.yaml");
    let plan = |file: &str| {
        run(home.path(), &["shim", "plan", "-f", file, "--nodes", &nodes, "-o", "json"])
    };
    let row = |node: &str, arch: Option<&str>, sha256: Value, error: Value| {
        let location = arch.map(|arch| format!("{RELEASE}-{arch}.tar.gz"));
        json!({"node": node, "location": location, "sha256": sha256, "error": error})
    };
    let one = plan(&files[0]).json();
    let all = ["amd-1", "arm-1", "risc-1"]
        .map(|node| row(node, Some("aarch64"), json!(null), json!(null)));
    assert_eq!(one, json!(all), "one archive for every node");
    let error = json!("no platform artifact matches node risc-1 (linux/riscv64)");
    for (file, digests) in [
        (&files[1], [json!(null), json!(null)]),
        (&files[2], [json!("f6e5d4c3b2a1..."), json!("a1b2c3d4e5f6...")]),
    ] {
        let said = plan(file);
        assert_eq!(said.code, 1, "one node gets nothing: {}", said.err);
        let found: Value = serde_json::from_str(&said.out).unwrap();
        let [amd, arm] = digests;
        // A digest of documents is one that no download can match, so a controller refuses it.
        let refused = |arch: &str, digest: &Value| match digest {
            Value::String(digest) => json!(format!(
                "the sha256 {digest:?} of {RELEASE}-{arch}.tar.gz is not 64 hexadecimal digits, so no download can match it"
            )),
            _ => json!(null),
        };
        let expected = [
            row("amd-1", Some("x86_64"), amd.clone(), refused("x86_64", &amd)),
            row("arm-1", Some("aarch64"), arm.clone(), refused("aarch64", &arm)),
            row("risc-1", None, json!(null), error.clone()),
        ];
        assert_eq!(found, json!(expected));
    }
    // Digests come out as the controller hands them to nodes; what is no URL is an error as it is there.
    let text = std::fs::read_to_string(&files[2]).unwrap();
    let digest = "AB".repeat(32);
    let text = text.replace("f6e5d4c3b2a1...", &format!("sha256:{digest}"));
    let text = text.replace(&format!("{RELEASE}-aarch64.tar.gz"), "file:///x");
    std::fs::write(&files[2], text).unwrap();
    let said = plan(&files[2]);
    let found: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&found[0]["sha256"], &found[0]["error"]), (&json!("ab".repeat(32)), &json!(null)));
    assert_eq!(found[1]["error"], "\"file:///x\" is no http or https URL");
    assert_eq!(said.code, 1);
    let table = run(home.path(), &["shim", "plan", "-f", &files[1], "--nodes", &nodes]);
    assert!(table.out.starts_with("NODE") && table.out.contains("linux/riscv64"), "{}", table.out);
}

/// What every node would refuse is an error here, and so is what the controller is told to refuse.
#[test]
fn shim_plan_says_what_no_node_takes_and_what_a_policy_refuses() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("shim.yaml");
    let file = file.to_str().unwrap();
    let text = std::fs::read_to_string(fixture("proposal.yaml")).unwrap();
    let first = text.split("---\n").next().unwrap();
    let errors = |text: &str, more: &[&str]| {
        std::fs::write(file, text).unwrap();
        let nodes = fixture("nodes.yaml");
        let args = ["shim", "plan", "-f", file, "--nodes", &nodes, "-o", "json"];
        let said = run(home.path(), &[&args[..], more].concat());
        let rows: Value = serde_json::from_str(&said.out).unwrap();
        let errors: Vec<_> =
            rows.as_array().unwrap().iter().map(|row| row["error"].clone()).collect();
        assert_eq!(said.code, i32::from(errors.iter().any(|error| !error.is_null())));
        errors[0].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(errors(first, &[]), "");
    let told = errors(&format!("{first}  containerdRuntimeOptions: {{TypeUrl: text}}\n"), &[]);
    assert!(told.contains("write text in quotes"), "{told}");
    let login = first.replace("https://", "https://me:secret@");
    let told = errors(&login, &[]);
    assert!(told.contains("user name") && !told.contains("secret"), "{told}");
    let enforced = errors(first, &["--require-digest", "enforce"]);
    assert!(enforced.contains("has no sha256"), "{enforced}");
    let plain = first.replace("https://", "http://");
    assert_eq!(errors(&plain, &["--require-https", "off"]), "");
    assert!(errors(&plain, &["--require-https", "enforce"]).contains("plain http"));
}

#[test]
fn shim_plan_of_a_file_that_a_cluster_would_refuse_is_bad_input() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("shim.yaml");
    let file = file.to_str().unwrap();
    let text = std::fs::read_to_string(fixture("proposal.yaml")).unwrap();
    let second = text.split("---\n").nth(1).unwrap();
    for (from, to, word) in [
        ("arch: x86_64", "arch: sparc", "arch"),
        ("os: linux", "os: windows", "os"),
        ("location:", "locations:", "did you mean location?"),
        ("type: recreate", "type: sideways", "sideways"),
    ] {
        std::fs::write(file, second.replace(from, to)).unwrap();
        let said =
            run(home.path(), &["shim", "plan", "-f", file, "--nodes", &fixture("nodes.yaml")]);
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains(word), "{}", said.err);
    }
    let said =
        run(home.path(), &["shim", "plan", "-f", "/nowhere", "--nodes", &fixture("nodes.yaml")]);
    assert_eq!(said.code, 4);
}

#[test]
fn shim_lint_tells_what_cannot_work_from_what_deserves_a_look() {
    let home = tempfile::tempdir().unwrap();
    let files = examples(home.path());
    let said = run(home.path(), &["shim", "lint", &files[1]]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("warning: spec.fetchStrategy.platforms[0]:"), "{}", said.out);
    assert_eq!(run(home.path(), &["shim", "lint", "--strict", &files[1]]).code, 2);
    let elided = run(home.path(), &["shim", "lint", "-o", "json", &files[2]]);
    assert_eq!(elided.code, 2);
    let found: Value = serde_json::from_str(&elided.out).unwrap();
    assert_eq!(found[0]["findings"][0]["severity"], "error");
}

/// Serves this body to every request, and counts them.
fn serve(body: &'static [u8]) -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    (format!("http://{address}/a.tar.gz"), count)
}

#[test]
fn shim_pin_downloads_once_and_keeps_what_people_wrote() {
    let home = tempfile::tempdir().unwrap();
    let (url, count) = serve(b"an archive");
    let text = std::fs::read_to_string(fixture("proposal.yaml")).unwrap();
    let second = text.split("---\n").nth(1).unwrap();
    let mut text = String::from("# Ours.\n");
    for line in second.lines() {
        match line.trim_start().starts_with("location:") {
            true => text.push_str(&format!("        location: {url} # here\n")),
            false => text.push_str(&format!("{line}\n")),
        }
    }
    let file = home.path().join("shim.yaml");
    std::fs::write(&file, &text).unwrap();
    let path = file.to_str().unwrap();
    let pinned = run(home.path(), &["shim", "pin", path]).ok();
    assert_eq!(pinned.matches("sha256: \"").count(), 2, "{pinned}");
    assert!(
        pinned.starts_with("# Ours.\n") && pinned.contains("# here\n        sha256: \""),
        "{pinned}"
    );
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 1, "one download for both");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "the file is as it was");
    let found = pinned.split("sha256: \"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(found, portolan_core::Digest::sha256(b"an archive").hex());
    // The file that a link leads to, as it may be read now, and nothing beside it.
    let manifests = tempfile::tempdir().unwrap();
    let (real, link) = (manifests.path().join("real.yaml"), manifests.path().join("link.yaml"));
    std::fs::write(&real, &text).unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real.yaml", &link).unwrap();
    run(home.path(), &["shim", "pin", "--in-place", link.to_str().unwrap()]).ok();
    assert_eq!(std::fs::read_to_string(&real).unwrap(), pinned);
    assert_eq!(real.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
    assert!(link.is_symlink());
    let mut listing: Vec<_> =
        std::fs::read_dir(manifests.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
    listing.sort();
    assert_eq!(listing, ["link.yaml", "real.yaml"]);
    run(home.path(), &["shim", "pin", "--in-place", path]).ok();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), pinned);
    assert_eq!(run(home.path(), &["shim", "lint", path]).code, 0);
    std::fs::write(&file, &text).unwrap();
    let large = run(home.path(), &["shim", "pin", "--max-size", "0", path]);
    assert_eq!(large.code, 2, "{}", large.err);
    assert!(large.err.contains("--max-size"), "{}", large.err);
}
