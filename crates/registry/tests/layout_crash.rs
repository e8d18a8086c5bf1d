//! The layout store under hostile conditions: killed writers, full disks, read-only directories.
//!
//! The test binary starts itself again as the process that is killed, or that runs in a mount
//! namespace of its own with a tiny file system.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what was skipped is said aloud")]

#[path = "common/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use portolan_core::{Descriptor, Digest, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::layout::{Layout, LayoutError};
use serde_json::json;

/// Where the child process works; set only there.
const CHILD_DIR: &str = "PORTOLAN_TEST_LAYOUT_DIR";

fn child_dir() -> Option<PathBuf> {
    std::env::var_os(CHILD_DIR).map(PathBuf::from)
}

/// This test binary again, running only `test`.
fn again(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD_DIR, dir);
    command
}

fn manifest_for(layer: &[u8]) -> String {
    json!({
        "schemaVersion": 2, "mediaType": media_type::OCI_MANIFEST,
        "config": Descriptor::of(media_type::OCI_EMPTY, b"{}"),
        "layers": [Descriptor::of("application/octet-stream", layer)],
    })
    .to_string()
}

/// What the child does: images one after the other, for ever.
#[test]
fn writer_that_is_killed() {
    let Some(dir) = child_dir() else { return };
    let layout = Layout::create(&dir).unwrap();
    let start = std::process::id();
    for n in 0_u64.. {
        let content: Vec<u8> = format!("{start} {n} ").into_bytes().repeat(20_000);
        let mut writer = layout.blob_writer(Digest::sha256(&content), None).unwrap();
        for piece in content.chunks(4096) {
            writer.write(piece).unwrap();
        }
        writer.commit().unwrap();
        layout.put_blob(b"{}").unwrap();
        let manifest = manifest_for(&content);
        let tag = format!("t{start}-{n}").parse().unwrap();
        layout.put_manifest(media_type::OCI_MANIFEST, manifest.as_bytes(), Some(&tag)).unwrap();
        // Only what was said to be done may be expected to be there.
        println!("done {tag}");
    }
}

fn kill(mut child: Child) -> Vec<String> {
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.strip_prefix("done ").map(str::to_owned)).collect()
}

/// Every file that has a digest for a name has that digest.
fn assert_content_is_whole(layout: &Layout) -> usize {
    let blobs = layout.dir().join("blobs/sha256");
    let mut count = 0;
    for entry in std::fs::read_dir(blobs).unwrap() {
        let entry = entry.unwrap();
        let digest: Digest =
            format!("sha256:{}", entry.file_name().to_str().unwrap()).parse().unwrap();
        assert_eq!(Digest::sha256(&std::fs::read(entry.path()).unwrap()), digest);
        count += 1;
    }
    count
}

#[test]
fn killed_writers_lose_nothing_that_was_done_and_leave_nothing_half_done() {
    if child_dir().is_some() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("layout");
    let mut done = Vec::new();
    for round in 0..8_u64 {
        // Two at once, so that one dies while the other holds or wants the lock.
        let writers: Vec<Child> = (0..2)
            .map(|_| again("writer_that_is_killed", &dir).stdout(Stdio::piped()).spawn().unwrap())
            .collect();
        std::thread::sleep(Duration::from_millis(120 + round * 37));
        for writer in writers {
            done.extend(kill(writer));
        }
    }
    assert!(done.len() > 5, "the writers were too slow to prove anything: {}", done.len());
    let layout = Layout::open(&dir).unwrap();
    let tags: Vec<String> = layout.tags().unwrap().iter().map(ToString::to_string).collect();
    for tag in &done {
        assert!(tags.contains(tag), "{tag} was done and is lost");
    }
    for tag in &tags {
        let target = tag.parse().unwrap();
        let (_, bytes) = layout.manifest(&target).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let layer: Digest =
            serde_json::from_value(manifest["layers"][0]["digest"].clone()).unwrap();
        assert!(layout.blob_size(&layer).unwrap().is_some(), "{tag} is listed without its layer");
    }
    assert!(assert_content_is_whole(&layout) > done.len());

    // What the dead left behind goes when it is old, the next time somebody comes by.
    let temp = dir.join(".portolan/tmp");
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for entry in std::fs::read_dir(&temp).unwrap() {
        let file = std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    Layout::open(&dir).unwrap();
    assert_eq!(std::fs::read_dir(&temp).unwrap().count(), 0);
}

#[test]
fn a_layout_cannot_be_made_where_a_file_is() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = Layout::create(&file.join("below")).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Local, "{error}");
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn a_system_directory_that_takes_no_files_gives_a_local_error() {
    let error = Layout::create(Path::new("/proc/portolan-layout")).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Local, "{error}");
    assert!(error.to_string().contains("/proc"), "{error}");
}

/// Runs `test` again where it may mount: as root of a user namespace of its own.
fn in_own_namespace(test: &str, dir: &Path, mount: &str) -> Option<bool> {
    let namespace = ["--user", "--map-root-user", "--mount"];
    let probe = Command::new("unshare").args(namespace).arg("true").output().ok()?;
    if !probe.status.success() {
        return None;
    }
    let script = format!(
        "{mount} && exec \"$0\" --exact {test} --nocapture",
        mount = mount.replace("DIR", "\"$PORTOLAN_TEST_LAYOUT_DIR\"")
    );
    let status = Command::new("unshare")
        .args(namespace)
        .args(["sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD_DIR, dir)
        // Its closing line is not ours; why it failed comes on the other stream.
        .stdout(Stdio::null())
        .status()
        .unwrap();
    Some(status.success())
}

fn assert_ran(outcome: Option<bool>, what: &str) {
    match outcome {
        Some(passed) => assert!(passed, "the child process failed; its output is above"),
        None => skip::skip(&format!("no mount namespaces here for {what}")),
    }
}

#[test]
fn a_full_disk_is_said_to_be_full_and_loses_nothing() {
    if let Some(dir) = child_dir() {
        let layout = Layout::create(&dir.join("layout")).unwrap();
        let small = layout.put_blob(b"small").unwrap();
        let manifest = manifest_for(b"small");
        let tag = "t".parse().unwrap();
        layout.put_blob(b"{}").unwrap();
        layout.put_manifest(media_type::OCI_MANIFEST, manifest.as_bytes(), Some(&tag)).unwrap();
        let content = vec![7; 4 * 1024 * 1024];
        let mut writer = layout.blob_writer(Digest::sha256(&content), None).unwrap();
        let error = content.chunks(65_536).find_map(|c| writer.write(c).err()).unwrap();
        assert!(matches!(error, LayoutError::DiskFull { .. }), "{error:?}");
        assert_eq!(error.class(), ErrorClass::Local);
        assert!(error.to_string().contains("free some space"), "{error}");
        drop(writer);
        // The room is free again, and what was there is there.
        assert!(layout.put_blob(&vec![1; 100_000]).is_ok());
        assert_eq!(layout.blob_size(&small).unwrap(), Some(5));
        assert_eq!(Layout::open(layout.dir()).unwrap().tags().unwrap(), [tag]);
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let outcome = in_own_namespace(
        "a_full_disk_is_said_to_be_full_and_loses_nothing",
        root.path(),
        "mount -t tmpfs -o size=1m tmpfs DIR",
    );
    assert_ran(outcome, "a full disk");
}

#[test]
fn a_read_only_directory_can_be_read_and_says_that_it_cannot_be_written() {
    if let Some(dir) = child_dir() {
        let layout = Layout::open(&dir).unwrap();
        assert_eq!(layout.tags().unwrap().len(), 1);
        let errors = [
            layout.put_blob(b"new").map(|_| ()).unwrap_err(),
            layout.delete_tag(&"t".parse().unwrap()).map(|_| ()).unwrap_err(),
            Layout::create(&dir.join("other")).map(|_| ()).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, LayoutError::ReadOnly { .. }), "{error:?}");
            assert_eq!(error.class(), ErrorClass::Local);
            assert!(error.to_string().contains("cannot be written"), "{error}");
        }
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::create(root.path()).unwrap();
    layout.put_blob(b"{}").unwrap();
    layout.put_blob(b"layer").unwrap();
    let tag = "t".parse().unwrap();
    let manifest = manifest_for(b"layer");
    layout.put_manifest(media_type::OCI_MANIFEST, manifest.as_bytes(), Some(&tag)).unwrap();
    let outcome = in_own_namespace(
        "a_read_only_directory_can_be_read_and_says_that_it_cannot_be_written",
        root.path(),
        "mount --bind DIR DIR && mount -o remount,bind,ro DIR",
    );
    assert_ran(outcome, "a read-only directory");
}
