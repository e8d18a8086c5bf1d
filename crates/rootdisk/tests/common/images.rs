//! Images made by `mke2fs -d` from a tree that has something of everything.
#![allow(dead_code, reason = "every file uses a part of it")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

/// Options of `mke2fs` that give every layout the reader knows.
pub(crate) const LAYOUTS: &[(&str, &[&str])] = &[
    ("ext4", &["-t", "ext4", "-b", "4096"]),
    ("ext4-1k", &["-t", "ext4", "-b", "1024"]),
    ("ext4-64k", &["-t", "ext4", "-b", "65536"]),
    ("ext4-plain", &["-t", "ext4", "-b", "4096", "-O", "^64bit,^metadata_csum,^flex_bg,uninit_bg"]),
    ("ext4-inline", &["-t", "ext4", "-b", "4096", "-I", "512", "-O", "inline_data"]),
    ("ext4-meta-bg", &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode", "-g", "1024"]),
    ("ext4-small-inodes", &["-t", "ext4", "-b", "4096", "-I", "128"]),
    ("ext4-ea-inode", &["-t", "ext4", "-b", "4096", "-O", "ea_inode"]),
    ("ext3", &["-t", "ext3", "-b", "1024"]),
    ("ext2", &["-t", "ext2", "-b", "4096", "-O", "^filetype", "-I", "128"]),
];

/// How many names the large directory has: enough for an index over it.
pub(crate) const MANY: usize = 400;

/// A tool of e2fsprogs, which not everybody has in the path.
pub(crate) fn tool(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").env("TZ", "UTC");
    command
}

/// Whether the tools are here; else the test is counted as skipped.
#[track_caller]
pub(crate) fn have_tools() -> bool {
    let have =
        ["mke2fs", "debugfs", "e2fsck"].iter().all(|name| tool(name).arg("-V").output().is_ok());
    if !have {
        super::skip::skip("mke2fs, debugfs and e2fsck are not installed (e2fsprogs)");
    }
    have
}

#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A command of debugfs, which does not say by its exit code whether it worked.
pub(crate) fn debugfs(image: &Path, request: &str) -> Vec<u8> {
    succeed(tool("debugfs").args(["-w", "-R", request]).arg(image)).stdout
}

/// Something of everything that can be made without being root.
pub(crate) fn plant(tree: &Path) {
    let at = |name: &str| tree.join(name);
    fs::create_dir_all(at("etc/deep/deeper/deepest")).unwrap();
    fs::write(at("etc/empty"), b"").unwrap();
    fs::write(at("etc/short"), b"one line\n").unwrap();
    let long: Vec<u8> = (0..100_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    fs::write(at("etc/deep/long"), &long).unwrap();
    fs::write(at("etc/inline-rest"), vec![b'r'; 150]).unwrap();
    fs::hard_link(at("etc/short"), at("etc/deep/deeper/same")).unwrap();
    symlink("short", at("etc/link")).unwrap();
    symlink("/etc/deep/../deep", at("etc/absolute")).unwrap();
    symlink("x".repeat(200), at("etc/long-link")).unwrap();
    symlink("../../../../etc/link", at("etc/deep/up")).unwrap();
    symlink("round-b", at("round-a")).unwrap();
    symlink("round-a", at("round-b")).unwrap();
    let bytes =
        <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"not\xffutf8\x1b[1m");
    fs::write(tree.join(bytes), b"bytes").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    // A block, a hole of one block, and so on: as many extents as blocks, so a deep tree.
    let holes = File::create(at("holes")).unwrap();
    for block in 0..700_u64 {
        holes.write_all_at(&[7; 4096], block * 8192).unwrap();
    }
    holes.set_len(700 * 8192 + 3 * 4096 + 5).unwrap();
    // Beyond what direct and single indirect numbers of 1 KiB blocks reach, nearly all hole.
    let far = File::create(at("far")).unwrap();
    far.write_all_at(b"far away", 68_000_000).unwrap();
    far.set_len(68_500_001).unwrap();
    fs::create_dir(at("many")).unwrap();
    for n in 0..MANY {
        fs::write(at(&format!("many/a-rather-long-name-of-a-file-{n:05}")), n.to_string()).unwrap();
    }
    fs::set_permissions(at("etc/short"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(at("etc/deep"), fs::Permissions::from_mode(0o1775)).unwrap();
    let old = SystemTime::UNIX_EPOCH - Duration::from_secs(1000);
    File::open(at("etc/empty")).unwrap().set_modified(old).unwrap();
}

/// Makes an image of a tree.
pub(crate) fn make(options: &[&str], tree: &Path, image: &Path) {
    File::create(image).unwrap().set_len(128 << 20).unwrap();
    let mut command = tool("mke2fs");
    command.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).args(options);
    succeed(command.arg("-d").arg(tree).arg(image));
}

/// An image of the tree of [`plant`], and that tree.
pub(crate) struct Planted {
    _dir: tempfile::TempDir,
    pub(crate) tree: PathBuf,
    pub(crate) image: PathBuf,
}

pub(crate) fn planted(options: &[&str]) -> Planted {
    let dir = tempfile::tempdir().unwrap();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    plant(&tree);
    make(options, &tree, &image);
    Planted { _dir: dir, tree, image }
}
