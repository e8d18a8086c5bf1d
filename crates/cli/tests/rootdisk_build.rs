//! `portolan rootdisk build`, run as a person runs it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use support::{HELLO, Server, portolan, run};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_disk_is_built_from_layouts_and_registries_alike() {
    let home = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let disk = out.path().join("hello.ext4");
    let disk_arg = disk.to_str().unwrap();
    let build = ["rootdisk", "build", HELLO, "--platform", "linux/amd64", "--output", disk_arg];
    let json = run(home.path(), &[&build[..], &["-o", "json"]].concat()).json();
    assert_eq!(json["filesystem_type"], "ext4");
    assert_eq!(json["rootdisk_format_version"], "1");
    assert_eq!(json["size_bytes"], std::fs::metadata(&disk).unwrap().len());
    assert!(json["build_timestamp"].as_str().unwrap().ends_with('Z'));
    assert!(json["checksum"].as_str().unwrap().starts_with("blake3-chunks:"));
    assert_eq!(names(out.path()), ["hello.ext4", "hello.meta.json"]);
    let meta = std::fs::read(out.path().join("hello.meta.json")).unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&meta).unwrap(), json);

    let again = run(home.path(), &build);
    assert_eq!(again.code, 2, "{}", again.err);
    assert!(again.err.contains("--force"), "{}", again.err);

    let root = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), root.path(), &[]);
    let remote = format!("{}/hello:1", server.address);
    run(home.path(), &["image", "copy", HELLO, &remote]).ok();
    let blobs = out.path().join("blobs");
    let more = ["--force", "-o", "json", "--threads", "1", "--buffered", "--blobs"];
    let from_registry =
        ["rootdisk", "build", &remote, "--platform", "linux/amd64", "--output", disk_arg];
    let arguments = [&from_registry[..], &more, &[blobs.to_str().unwrap()]].concat();
    let second = run(home.path(), &arguments).json();
    assert_eq!(second["checksum"], json["checksum"]);
    assert_eq!(second["resolved_digest"], json["resolved_digest"]);
    assert_eq!(names(out.path()), ["blobs", "hello.ext4", "hello.meta.json"]);
    let digest = json["resolved_digest"].as_str().unwrap();
    let kept = format!("oci:{}@{digest}", blobs.display());
    let from_kept = ["rootdisk", "build", &kept, "--platform", "linux/amd64", "--output", disk_arg];
    let third = run(home.path(), &[&from_kept[..], &["--force", "-o", "json"]].concat()).json();
    assert_eq!(third["checksum"], json["checksum"]);
}

#[test]
fn what_cannot_be_built_says_why_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let disk = out.path().join("x.ext4");
    let built = |reference: &str, platform: &str, more: &[&str]| {
        let output = disk.to_str().unwrap();
        let all = ["rootdisk", "build", reference, "--platform", platform, "--output", output];
        let said = run(home.path(), &[&all[..], more].concat());
        assert!(names(out.path()).is_empty(), "{}", said.err);
        said
    };
    assert_eq!(built(HELLO, "plan9/amd64", &[]).code, 1);
    assert_eq!(built("oci:/nowhere:1", "linux/amd64", &[]).code, 4);
    let small = built(HELLO, "linux/amd64", &["--max-size", "1MiB"]);
    assert_eq!(small.code, 2, "{}", small.err);
    assert!(small.err.contains("more than the 1048576 it may have"), "{}", small.err);
    assert!(small.err.contains("--min-size"), "{}", small.err);
    let large = built(HELLO, "linux/amd64", &["--min-size", "2GiB", "--max-size", "1GiB"]);
    assert_eq!(large.code, 2, "{}", large.err);
    assert!(large.err.contains("`max_virtual_bytes`"), "{}", large.err);
    let said = run(
        home.path(),
        &["rootdisk", "build", HELLO, "--platform", "linux/amd64", "--output", "/no/dir/x"],
    );
    assert_eq!(said.code, 4, "{}", said.err);
}

#[test]
fn a_limit_that_an_error_names_can_be_set() {
    let home = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let build = |limit: &str| {
        let disk = out.path().join("hello-1.2");
        let output = disk.to_str().unwrap();
        let all = ["rootdisk", "build", HELLO, "--platform", "linux/amd64", "--output", output];
        run(home.path(), &[&all[..], &["--limit", limit]].concat())
    };
    let said = build("max_entries=0");
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("raise `max_entries`"), "{}", said.err);
    let said = build("max_entry=1");
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("`max_entries`"), "those that there are: {}", said.err);
    assert!(names(out.path()).is_empty());
    build("max_entries=100").ok();
    assert_eq!(names(out.path()), ["hello-1.2", "hello-1.2.meta.json"], "a dot is no extension");
}

/// A build that waits for a layer which never comes, its temp file made.
fn waiting_build(home: &Path, out: &Path) -> Child {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let layout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/images/hello");
    // It ends with the test program.
    std::thread::spawn(move || silent_registry(&listener, &layout));
    let mut child = portolan(home)
        .args(["rootdisk", "build", &format!("{address}/hello:1"), "--platform", "linux/amd64"])
        .arg("--output")
        .arg(out.join("x.ext4"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let patience = Instant::now();
    while names(out).is_empty() {
        assert!(patience.elapsed() < Duration::from_secs(60), "the build did not begin");
        assert!(child.try_wait().unwrap().is_none(), "the build ended early");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn an_interrupt_ends_the_build_and_cleans_up() {
    let home = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let child = waiting_build(home.path(), out.path());
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert!(names(out.path()).is_empty());
    }
}

#[test]
fn a_killed_build_leaves_no_disk() {
    let home = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let mut child = waiting_build(home.path(), out.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let left = names(out.path());
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(!left[0].contains("x."), "neither the disk nor what is known of it: {left:?}");
}

/// Answers manifests and configs from a layout; a layer's request is read and left waiting.
fn silent_registry(listener: &TcpListener, layout: &Path) {
    let index = std::fs::read(layout.join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    let tag = "org.opencontainers.image.ref.name";
    let entries = index["manifests"].as_array().unwrap();
    let tagged = entries.iter().find(|entry| entry["annotations"][tag] == "1").unwrap();
    let top = tagged["digest"].as_str().unwrap();
    std::thread::scope(|scope| {
        for stream in listener.incoming().flatten() {
            scope.spawn(move || while answer(&stream, layout, top).is_some() {});
        }
    });
}

/// Answers one request; none when the connection has ended.
fn answer(mut stream: &TcpStream, layout: &Path, top: &str) -> Option<()> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    let request = String::from_utf8(request).ok()?;
    let name = request.split(' ').nth(1)?.rsplit('/').next()?;
    let digest = if name == "1" { top } else { name };
    let bytes = std::fs::read(layout.join("blobs").join(digest.replacen(':', "/", 1))).ok()?;
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(&bytes) else {
        // A layer. Nothing comes until the client hangs up.
        return stream.read_exact(&mut byte).ok();
    };
    let media_type = json["mediaType"].as_str().unwrap_or("application/json");
    let length = bytes.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\nDocker-Content-Digest: {digest}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    if request.starts_with("HEAD") { Some(()) } else { stream.write_all(&bytes).ok() }
}
