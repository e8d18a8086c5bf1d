//! `portolan rootdisk inspect | extract`, on the fuzzer's small file systems.

#[path = "../../rootdisk/tests/common/sparse.rs"]
mod sparse;
mod support;

use std::path::{Path, PathBuf};

use support::{portolan, run};

/// A disk in a file, and a home for the program.
struct Disk {
    home: tempfile::TempDir,
    file: PathBuf,
}

impl Disk {
    fn new(seed: &str) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("disk.ext4");
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/ext4"));
        let packed = std::fs::read(folder.join(seed)).expect("the seed is there");
        std::fs::write(&file, sparse::unpack(&packed)).expect("the disk can be written");
        Self { home, file }
    }

    fn run(&self, command: &str, args: &[&str]) -> support::Said {
        let file = self.file.to_str().expect("a path in UTF-8");
        let all: Vec<&str> =
            ["rootdisk", command, file].into_iter().chain(args.iter().copied()).collect();
        run(self.home.path(), &all)
    }

    fn inspect(&self, args: &[&str]) -> support::Said {
        self.run("inspect", args)
    }
}

#[test]
fn inspect_says_what_a_disk_is() {
    let disk = Disk::new("plain");
    let text = disk.inspect(&[]).ok();
    for part in ["ext4", "00000000-0000-0000-0000-000000000001", "metadata_csum", "not verified"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json = disk.inspect(&["-o", "json"]).json();
    assert_eq!(json["format"], "ext4");
    assert_eq!((&json["sizeBytes"], &json["filesystemBytes"]), (&409_600.into(), &409_600.into()));
    assert_eq!(json["checksumsVerified"], false);
    assert_eq!(json["clean"], true);
    assert!(json["allocatedBytes"].as_u64().is_some());
    assert!(json.get("metadata").is_none());
    assert!(disk.inspect(&["-o", "yaml"]).ok().contains("blockSize: 1024"));
    assert_eq!(Disk::new("ext2").inspect(&["-o", "json"]).json()["format"], "ext2");
}

#[test]
fn inspect_shows_the_metadata_beside_a_disk() {
    let disk = Disk::new("plain");
    let digest = portolan_core::Digest::sha256(b"an image");
    let key = portolan_rootdisk::meta::rootdisk_key(&digest, "1");
    let beside = disk.home.path().join("disk.meta.json");
    let checksum = serde_json::json!(portolan_rootdisk::checksum::Checksum::from_bytes([1; 32]));
    let metadata = serde_json::json!({
        "resolved_digest": digest.to_string(), "rootdisk_key": key,
        "rootdisk_format_version": "1", "build_timestamp": "2025-12-16T10:00:00Z",
        "filesystem_type": "ext4", "size_bytes": 409_600, "allocated_bytes": 40_960,
        "checksum": checksum, "layers": 3, "files": 60, "inodes": 64,
    });
    std::fs::write(&beside, metadata.to_string()).unwrap();
    assert_eq!(disk.inspect(&["-o", "json"]).json()["metadata"]["rootdisk_key"], key);
    assert!(disk.inspect(&[]).ok().contains(&digest.to_string()));
    // Trouble with it is told, and the disk is shown all the same.
    std::fs::write(&beside, "{}").unwrap();
    let said = disk.inspect(&[]);
    assert!(said.err.contains("warning: "), "{}", said.err);
    assert!(said.ok().contains("ext4"));
}

#[test]
fn ls_lists_a_directory_a_file_or_everything() {
    let disk = Disk::new("plain");
    let root = disk.inspect(&["--ls"]).ok();
    assert!(root.contains("drwxr-xr-x"), "{root}");
    assert!(root.contains("c---------"), "a device: {root}");
    assert!(root.contains("1, 3"), "its numbers: {root}");
    let etc = disk.inspect(&["--ls", "/etc"]).ok();
    assert!(etc.contains("link -> short"), "{etc}");
    assert_eq!(etc.lines().count(), 4, "{etc}");
    let one = disk.inspect(&["--ls", "etc/short", "-o", "json"]).json();
    assert_eq!(one[0]["path"], "/etc/short");
    assert_eq!(one[0]["xattrs"]["user.small"], "31");
    assert_eq!(one[0]["modified"], "2106-02-07T06:28:21Z");
    let all = disk.inspect(&["--ls", "-r", "-o", "json"]).json();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 64);
    let paths: Vec<&str> = all.iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"/etc/deep/same") && paths.contains(&"/lost+found"), "{paths:?}");
    let below = disk.inspect(&["--ls", "/etc", "--recursive"]).ok();
    assert!(below.contains("/etc/deep/same"), "{below}");
}

#[test]
fn names_from_a_disk_do_not_reach_the_terminal_raw() {
    let disk = Disk::new("plain");
    let listed = disk.inspect(&["--ls"]).ok();
    assert!(listed.contains("not\\xffutf8"), "{listed}");
    let rows = disk.inspect(&["--ls", "-o", "json"]).json();
    let row = rows.as_array().unwrap().iter().find(|row| row.get("pathHex").is_some()).unwrap();
    assert_eq!(row["pathHex"], "2f6e6f74ff75746638");
    // The same name with an escape sequence in it.
    let mut bytes = std::fs::read(&disk.file).unwrap();
    let at = bytes.windows(8).position(|name| name == b"not\xffutf8").unwrap();
    bytes[at..at + 4].copy_from_slice(b"\x1b[1m");
    std::fs::write(&disk.file, bytes).unwrap();
    let listed = disk.inspect(&["--ls"]).ok();
    assert!(listed.contains("\\u{1b}[1mutf8") && !listed.contains('\u{1b}'), "{listed}");
}

#[test]
fn cat_gives_the_bytes_and_follows_links_inside() {
    let disk = Disk::new("plain");
    assert_eq!(disk.inspect(&["--cat", "/etc/short"]).ok(), "one line\n");
    assert_eq!(disk.inspect(&["--cat", "etc/deep/abs"]).ok(), "one line\n");
    let output = portolan(disk.home.path())
        .args(["rootdisk", "inspect", disk.file.to_str().unwrap(), "--cat", "sparse"])
        .output()
        .unwrap();
    assert_eq!(output.stdout.len(), 100_000);
}

#[test]
fn what_goes_wrong_has_its_exit_code() {
    let disk = Disk::new("plain");
    for (args, code) in [
        (&["--cat", "/none"][..], 4),
        (&["--cat", "/etc/longlink"], 4),
        (&["--ls", "/none"], 4),
        (&["--cat", "/etc"], 2),
        (&["--cat", "/x", "--ls"], 2),
        (&["--recursive"], 2),
    ] {
        let said = disk.inspect(args);
        assert_eq!(said.code, code, "{args:?}: {}", said.err);
        assert!(!said.err.is_empty() && said.out.is_empty(), "{args:?}");
    }
    let missing = disk.home.path().join("none");
    let inspect =
        |file: &Path| run(disk.home.path(), &["rootdisk", "inspect", file.to_str().unwrap()]);
    assert_eq!(inspect(&missing).code, 4);
    assert_eq!(inspect(disk.home.path()).code, 2);
    let socket = disk.home.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let said = inspect(&socket);
    assert_eq!(said.code, 2, "nobody waits for what is no disk: {}", said.err);
    assert!(said.err.contains("neither a file nor a block device"), "{}", said.err);
    std::fs::write(&missing, vec![7; 5000]).unwrap();
    let said = inspect(&missing);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("no ext2, ext3 or ext4"), "{}", said.err);
    // Cut in the middle: what is there is shown, with a warning.
    let bytes = std::fs::read(&disk.file).unwrap();
    std::fs::write(&missing, &bytes[..bytes.len() / 2]).unwrap();
    let said = inspect(&missing);
    assert!(said.err.contains("ends before"), "{}", said.err);
    assert_eq!(said.code, 0);
}

#[test]
fn extract_writes_a_tree_and_says_what_it_left_out() {
    let disk = Disk::new("four-k");
    let out = disk.home.path().join("out");
    let to = out.to_str().unwrap();
    let said = disk.run("extract", &[to, "--unprivileged"]);
    assert!(said.err.contains("1 devices"), "{}", said.err);
    assert!(said.err.contains("null: device"), "{}", said.err);
    assert!(said.ok().contains("1 hard links"));
    assert_eq!(std::fs::read(out.join("etc/deep/same")).unwrap(), b"one line\n");
    let again = disk.run("extract", &[to, "--unprivileged"]);
    assert_eq!(again.code, 2, "{}", again.err);
    assert!(again.err.contains("not empty"), "{}", again.err);

    let part = disk.home.path().join("part");
    let args = [part.to_str().unwrap(), "--path", "/etc/deep", "--unprivileged", "-o", "json"];
    let json = disk.run("extract", &args).json();
    assert_eq!((&json["files"], &json["directories"]), (&2.into(), &1.into()));
    assert_eq!(disk.run("extract", &[to, "--path", "/none"]).code, 4);
    let nowhere = disk.home.path().join("no/where");
    assert_eq!(disk.run("extract", &[nowhere.to_str().unwrap()]).code, 4);
}
