//! A disk's tree to a directory: all of it, and nothing outside.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod ext4_support;
#[path = "common/images.rs"]
mod images;
#[path = "common/sparse.rs"]
mod sparse;

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use ext4_support::skip;
use ext4_support::{Builder, xattr};
use images::{debugfs, have_tools, planted};
use portolan_rootdisk::ext4::read::Filesystem;
use portolan_rootdisk::extract::{ExtractError, Options, Report, extract};
use portolan_rootdisk::tree::{Device, Kind, Tree};

fn open(image: &Path) -> Filesystem<File> {
    Filesystem::open(File::open(image).unwrap()).unwrap()
}

fn unprivileged() -> Options {
    Options { privileged: false, ..Options::default() }
}

/// A fuzzer's seed: `etc/short`, `etc/deep/same`, `etc/link` …, a device, a pipe, three attributes.
fn seed(name: &str) -> Vec<u8> {
    let path = format!("{}/../../fuzz/seeds/ext4/{name}", env!("CARGO_MANIFEST_DIR"));
    sparse::unpack(&fs::read(path).unwrap())
}

#[test]
fn modes_times_links_and_holes_are_kept() {
    if !have_tools() {
        return;
    }
    let planted = planted(&["-t", "ext4"]);
    debugfs(&planted.image, "rmdir lost+found");
    // The root was written to just now, which may be a second later than the tree.
    let planting = fs::symlink_metadata(&planted.tree).unwrap().mtime();
    debugfs(&planted.image, &format!("set_inode_field / mtime @{planting}"));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let report = extract(&open(&planted.image), &out, &unprivileged()).unwrap();
    assert_eq!((report.hard_links, report.symlinks, report.special), (1, 6, 1));

    let mut waiting = vec![std::path::PathBuf::new()];
    let mut count = 0;
    while let Some(at) = waiting.pop() {
        let (theirs, ours) = (planted.tree.join(&at), out.join(&at));
        let (expected, found) =
            (fs::symlink_metadata(&theirs).unwrap(), fs::symlink_metadata(&ours).unwrap());
        count += 1;
        assert_eq!(found.mode(), expected.mode() & !0o6000, "{at:?}");
        assert_eq!(found.mtime(), expected.mtime(), "{at:?}");
        if expected.is_dir() {
            let names = |dir: &Path| {
                let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
                let mut names: Vec<_> = names.collect();
                names.sort();
                names
            };
            assert_eq!(names(&ours), names(&theirs));
            waiting.extend(names(&theirs).into_iter().map(|name| at.join(name)));
        } else if expected.is_file() {
            assert!(fs::read(&ours).unwrap() == fs::read(&theirs).unwrap(), "{at:?}");
            assert_eq!(found.nlink(), expected.nlink(), "{at:?}");
        } else if expected.is_symlink() {
            assert_eq!(fs::read_link(&ours).unwrap(), fs::read_link(&theirs).unwrap());
        }
    }
    assert_eq!(count, report.directories + report.files + 1 + 6 + 1 + 1);
    assert!(fs::metadata(out.join("far")).unwrap().blocks() < 1000, "holes stay holes");
    assert!(fs::symlink_metadata(out.join("pipe")).unwrap().file_type().is_fifo());
}

#[test]
fn what_is_not_allowed_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let fs = Filesystem::open(seed("plain")).unwrap();
    let Report { skipped, .. } = extract(&fs, &dir.path().join("out"), &unprivileged()).unwrap();
    assert_eq!(skipped.devices, 1);
    // security.capability for certain; user.* where the file system takes none.
    assert!((1..=3).contains(&skipped.xattrs), "{skipped:?}");
    assert!(skipped.examples.iter().any(|line| line == "null: device"), "{skipped:?}");
    assert!(!dir.path().join("out/null").exists());
    // All is root's: 64 names and the root, without the device and a second name.
    let owners = if rustix::process::geteuid().is_root() { 0 } else { 63 };
    assert_eq!(skipped.owners, owners);
    assert!(!skipped.is_nothing());
}

#[test]
fn root_makes_devices_and_sets_capabilities() {
    if !rustix::process::geteuid().is_root() {
        return skip::skip("only root may");
    }
    let dir = tempfile::tempdir().unwrap();
    let (disk, out) = (dir.path().join("disk"), dir.path().join("out"));
    let capability = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut builder = Builder::new();
    let tool = builder.file(Tree::ROOT, b"tool", b"x");
    builder.set(tool, |a| a.xattrs = Box::new([xattr("security.capability", capability)]));
    let device = Device { major: 1, minor: 3 };
    builder.add(Tree::ROOT, b"null", Kind::CharDevice(device));
    builder.write(&disk);
    let report = extract(&open(&disk), &out, &Options::default()).unwrap();
    if report.skipped.devices > 0 {
        return skip::skip("this root may make no devices");
    }
    let null = fs::symlink_metadata(out.join("null")).unwrap();
    assert!(null.file_type().is_char_device());
    assert_eq!(null.rdev(), rustix::fs::makedev(1, 3));
    if report.skipped.xattrs > 0 {
        return skip::skip("this root may set no capabilities");
    }
    let mut value = [0; 64];
    let length =
        rustix::fs::lgetxattr(out.join("tool"), "security.capability", &mut value).unwrap();
    assert_eq!(value[..length], *capability);
}

#[test]
fn setuid_bits_are_for_root_who_sets_owners() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = seed("plain");
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    let short = fs.lookup(b"etc/short").unwrap();
    // The inode is found by its mode and size, and gets both bits and this user as its owner.
    let (mode, size) = ((0x8000 | short.mode).to_le_bytes(), 9_u32.to_le_bytes());
    let inode = (0..disk.len() - 256)
        .step_by(128)
        .find(|at| disk[*at..at + 2] == mode && disk[at + 4..at + 8] == size)
        .expect("the inode is in the table");
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    disk[inode..inode + 2].copy_from_slice(&0x8de8_u16.to_le_bytes());
    for (at, half) in [(0x02, uid), (0x18, gid), (0x78, uid >> 16), (0x7a, gid >> 16)] {
        let half = u16::try_from(half & 0xffff).unwrap().to_le_bytes();
        disk[inode + at..inode + at + 2].copy_from_slice(&half);
    }
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    assert_eq!(fs.lookup(b"etc/short").unwrap().mode, 0o6750);
    let extracted = |to: &str, options: &Options| {
        let out = dir.path().join(to);
        let report = extract(&fs, &out, options).unwrap();
        let mode = fs::metadata(out.join("etc/short")).unwrap().mode();
        (mode & 0o7777, report.skipped.set_id_bits)
    };
    // It is this user's own file, and still nobody shall run it as this user.
    assert_eq!(extracted("plain", &unprivileged()), (0o750, 1));
    if rustix::process::geteuid().is_root() {
        assert_eq!(extracted("root", &Options::default()), (0o6750, 0));
    }
}

#[test]
fn one_path_gets_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let fs = Filesystem::open(seed("plain")).unwrap();
    let part = |path: &str, to: &str| {
        let options = Options { path: Some(path.into()), ..unprivileged() };
        extract(&fs, &dir.path().join(to), &options)
    };
    part("/etc/deep/", "a").unwrap();
    assert_eq!(fs::read(dir.path().join("a/deep/same")).unwrap(), b"one line\n");
    assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 1);
    part("etc/link", "b").unwrap();
    assert_eq!(fs::read_link(dir.path().join("b/link")).unwrap(), Path::new("short"));
    part("etc/deep/..", "c").unwrap_err();
    let error = part("etc/none", "d").unwrap_err();
    assert!(matches!(error, ExtractError::Read { .. }), "{error}");
    assert!(!dir.path().join("d").exists(), "nothing is made before it is known what for");
}

#[test]
fn a_directory_with_something_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine"), b"mine").unwrap();
    let fs = Filesystem::open(seed("plain")).unwrap();
    let error = extract(&fs, dir.path(), &unprivileged()).unwrap_err();
    assert!(matches!(error, ExtractError::NotEmpty { .. }), "{error}");
    let options = Options { into_non_empty: true, ..unprivileged() };
    extract(&fs, dir.path(), &options).unwrap();
    assert_eq!(fs::read(dir.path().join("mine")).unwrap(), b"mine");
    // A second time every file is in the way, and stays.
    let error = extract(&fs, dir.path(), &options).unwrap_err();
    assert!(matches!(error, ExtractError::Write { .. }), "{error}");
}

#[test]
fn the_target_itself_is_left_alone_on_request() {
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let fs = Filesystem::open(seed("plain")).unwrap();
    for (keep_target, kept) in [(true, true), (false, false)] {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        extract(&fs, dir.path(), &Options { keep_target, ..unprivileged() }).unwrap();
        assert_eq!(mode(dir.path()) == 0o1777, kept, "{:o}", mode(dir.path()));
    }
}

#[test]
fn no_link_leads_out_of_the_target() {
    // A link that is there already, where the disk has a directory.
    let dir = tempfile::tempdir().unwrap();
    let (outside, out) = (dir.path().join("outside"), dir.path().join("out"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&out).unwrap();
    symlink(&outside, out.join("etc")).unwrap();
    let fs = Filesystem::open(seed("plain")).unwrap();
    let options = Options { into_non_empty: true, ..unprivileged() };
    let error = extract(&fs, &out, &options).unwrap_err();
    assert!(matches!(error, ExtractError::Write { .. }), "{error}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // And one where it has a file.
    let out = dir.path().join("second");
    fs::create_dir(&out).unwrap();
    symlink(outside.join("file"), out.join("sparse")).unwrap();
    extract(&fs, &out, &options).unwrap_err();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_link_and_a_directory_of_one_name_do_not_lead_out() {
    // A hostile disk: `d` twice in the root, first a link to the outside, then a directory.
    let dir = tempfile::tempdir().unwrap();
    let mut disk = seed("plain");
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    let link = fs.lookup(b"etc/deep/abs").unwrap().number;
    let pipe = disk.windows(4).position(|name| name == b"pipe").unwrap();
    disk[pipe - 8..pipe - 4].copy_from_slice(&link.to_le_bytes());
    disk[pipe - 2] = 1;
    disk[pipe] = b'd';
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    let twice = fs.read_dir(&fs.root().unwrap()).unwrap();
    assert_eq!(twice.iter().filter(|entry| *entry.name == *b"d").count(), 2);
    let error = extract(&fs, &dir.path().join("out"), &unprivileged()).unwrap_err();
    assert!(matches!(error, ExtractError::Write { .. }), "{error}");
}

#[test]
fn files_that_have_their_blocks_in_common_are_read_once_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = seed("plain");
    // Every small file gets the map of the file with holes in it: each by itself is sound.
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    let sparse = fs.lookup(b"sparse").unwrap();
    let size = u32::try_from(sparse.size).unwrap().to_le_bytes();
    let inodes = |disk: &[u8], size: [u8; 4]| -> Vec<usize> {
        (0..disk.len() - 256)
            .step_by(128)
            .filter(|at| disk[at + 1] >> 4 == 8 && disk[at + 4..at + 8] == size)
            .collect()
    };
    let from = inodes(&disk, size)[0];
    let small: Vec<usize> = (0..60).flat_map(|n: u32| inodes(&disk, n.to_le_bytes())).collect();
    let map: Vec<u8> = disk[from + 0x28..from + 0x64].to_vec();
    let mut changed = 0;
    for at in small {
        if disk[at + 0x1a] != 1 {
            continue;
        }
        disk[at + 4..at + 8].copy_from_slice(&size);
        disk[at + 0x28..at + 0x64].copy_from_slice(&map);
        changed += 1;
    }
    assert!(changed > 20, "{changed}");
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    let out = dir.path().join("out");
    let error =
        extract(&fs, &out, &Options { max_bytes: Some(u64::MAX), ..unprivileged() }).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("more than once"), "{error}: {cause}");
}

#[test]
fn content_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let fs = Filesystem::open(seed("plain")).unwrap();
    let options = Options { max_bytes: Some(5000), ..unprivileged() };
    let error = extract(&fs, &dir.path().join("out"), &options).unwrap_err();
    assert!(matches!(error, ExtractError::TooLarge { limit: 5000 }), "{error}");
}

#[test]
fn a_directory_that_lets_nobody_in_is_filled_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = seed("plain");
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    let etc = fs.lookup(b"etc").unwrap();
    let mode = (0x4000 | etc.mode).to_le_bytes();
    // Every directory of that mode that is not the root: no bits at all.
    for at in (0..disk.len() - 128).step_by(256) {
        if disk[at..at + 2] == mode && disk[at + 0x1a] < 5 {
            disk[at..at + 2].copy_from_slice(&0x4000_u16.to_le_bytes());
        }
    }
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    assert_eq!(fs.lookup(b"etc").unwrap().mode, 0);
    let out = dir.path().join("out");
    extract(&fs, &out, &unprivileged()).unwrap();
    assert_eq!(fs::metadata(out.join("etc")).unwrap().mode() & 0o7777, 0);
    fs::set_permissions(out.join("etc"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(out.join("etc/deep"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::read(out.join("etc/deep/same")).unwrap(), b"one line\n");
    fs::set_permissions(out.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
}
