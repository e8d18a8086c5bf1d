//! What the kernel says of our disks.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod ext4_support;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use ext4_support::{Builder, FileSink, Mount, fsck, run, torture};
use portolan_rootdisk::ext4;
use portolan_rootdisk::tree::{BLOCK, Device, Kind, Node, NodeId, Tree};

/// All paths of a tree below `at`, parents first.
fn paths(tree: &Tree, at: &Path) -> Vec<(PathBuf, NodeId)> {
    let mut all = vec![(at.to_owned(), Tree::ROOT)];
    let mut next = 0;
    while let Some((path, id)) = all.get(next).cloned() {
        if let Kind::Directory(children) = &tree.node(id).kind {
            all.extend(children.iter().map(|(name, id)| (path.join(OsStr::from_bytes(name)), *id)));
        }
        next += 1;
    }
    all
}

/// All extended attributes that the kernel lists, with their values.
fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 65536];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 65536];
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            value.truncate(length);
            (name.to_vec(), value)
        })
        .collect()
}

fn device(metadata: &fs::Metadata) -> Device {
    let rdev = metadata.rdev();
    Device { major: rustix::fs::major(rdev), minor: rustix::fs::minor(rdev) }
}

/// Compares one file, as the kernel shows it, with the node it was made of.
fn compare(path: &Path, node: &Node, links: u64, data: &BTreeMap<u32, &[u8]>) {
    let metadata = fs::symlink_metadata(path).unwrap();
    let attributes = &node.attributes;
    let shown = path.display();
    assert_eq!(metadata.mode() & 0o7777, u32::from(attributes.mode), "mode of {shown}");
    assert_eq!((metadata.uid(), metadata.gid()), (attributes.uid, attributes.gid), "{shown}");
    assert_eq!(metadata.nlink(), links, "links of {shown}");
    let time = (metadata.mtime(), metadata.mtime_nsec());
    let wanted = (attributes.mtime.seconds, i64::from(attributes.mtime.nanoseconds));
    assert_eq!(time, wanted, "time of {shown}");
    assert_eq!((metadata.ctime(), metadata.ctime_nsec()), wanted, "change time of {shown}");
    let wanted: BTreeMap<_, _> =
        attributes.xattrs.iter().map(|x| (x.name.to_vec(), x.value.to_vec())).collect();
    assert_eq!(xattrs(path), wanted, "attributes of {shown}");
    let kind = metadata.mode() & 0o170_000;
    match &node.kind {
        Kind::Directory(children) => {
            assert_eq!(kind, 0o040_000, "{shown}");
            let mut names = fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_vec())
                .collect::<Vec<_>>();
            names.sort();
            assert_eq!(names, children.keys().map(|name| name.to_vec()).collect::<Vec<_>>());
        }
        Kind::File(file) => {
            assert_eq!((kind, metadata.len()), (0o100_000, file.size), "{shown}");
            let open = fs::File::open(path).unwrap();
            for run in &file.runs {
                let mut bytes = vec![0; run.blocks as usize * BLOCK];
                let at = u64::from(run.logical) * BLOCK as u64;
                let length = open.read_at(&mut bytes, at).unwrap();
                assert_eq!(bytes[..length], data[&run.physical][..length], "content of {shown}");
            }
        }
        Kind::Symlink(target) => {
            assert_eq!(kind, 0o120_000, "{shown}");
            assert_eq!(fs::read_link(path).unwrap().as_os_str().as_bytes(), &target[..]);
        }
        Kind::CharDevice(wanted) => {
            assert_eq!((kind, device(&metadata)), (0o020_000, *wanted), "{shown}");
        }
        Kind::BlockDevice(wanted) => {
            assert_eq!((kind, device(&metadata)), (0o060_000, *wanted), "{shown}");
        }
        Kind::Fifo => assert_eq!(kind, 0o010_000, "{shown}"),
    }
}

/// Compares the whole tree with what is mounted.
fn compare_all(builder: &Builder, at: &Path) {
    let tree = &builder.tree;
    let data = builder.data.iter().map(|(block, bytes)| (*block, &bytes[..])).collect();
    let all = paths(tree, at);
    let mut names = vec![0u64; tree.nodes.len()];
    all.iter().for_each(|(_, id)| names[id.0 as usize] += 1);
    for (path, id) in &all {
        let node = tree.node(*id);
        let links = match &node.kind {
            Kind::Directory(children) => {
                let is_directory =
                    |id: &&NodeId| matches!(tree.node(**id).kind, Kind::Directory(_));
                2 + children.values().filter(is_directory).count() as u64
            }
            _ => names[id.0 as usize],
        };
        compare(path, node, links, &data);
    }
}

#[test]
fn the_kernel_sees_the_tree_that_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let builder = torture();
    builder.write(&disk);
    let Some(mount) = Mount::read_only(&disk) else { return };
    compare_all(&builder, mount.path());
}

#[test]
fn the_kernel_finds_every_name_in_a_large_directory() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let mut builder = Builder::new();
    let large = builder.directory(Tree::ROOT, b"large");
    for name in 0..50_000 {
        builder.file(large, format!("{name} {}", "long ".repeat(name % 40)).as_bytes(), b"");
    }
    builder.write(&disk);
    let Some(mount) = Mount::read_only(&disk) else { return };
    let tree = &builder.tree;
    for (path, _) in paths(tree, mount.path()) {
        fs::symlink_metadata(&path).unwrap();
    }
    let listed = fs::read_dir(mount.path().join("large")).unwrap().count();
    assert_eq!(listed, 50_000);
    assert!(fs::symlink_metadata(mount.path().join("large/no such name")).is_err());
}

#[test]
fn the_kernel_refuses_to_mount_a_root_disk_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    Builder::new().write(&disk);
    if Mount::read_only(&disk).is_none() {
        return;
    }
    let target = tempfile::tempdir().unwrap();
    let output = run(Command::new("mount").args(["-o", "loop,rw"]).arg(&disk).arg(target.path()));
    if output.status.success() {
        // mount(8) may have fallen back to reading only.
        let written = fs::write(target.path().join("x"), b"");
        run(Command::new("umount").arg(target.path()));
        assert!(written.is_err());
    }
}

#[test]
fn a_root_disk_under_a_scratch_disk_takes_what_an_instance_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (root, scratch) = (dir.path().join("root"), dir.path().join("scratch"));
    torture().write(&root);
    let file = fs::File::options().write(true).create_new(true).open(&scratch).unwrap();
    let mut sink = FileSink(file);
    let geometry = ext4::scratch(64 << 20, *b"scratch's own id", &mut sink).unwrap();
    sink.0.set_len(geometry.size_bytes).unwrap();
    let before = fs::read(&root).unwrap();
    {
        let Some(lower) = Mount::read_only(&root) else { return };
        let Some(upper) = Mount::writable(&scratch) else { return };
        let options = format!(
            "lowerdir={},upperdir={}/upper,workdir={}/work",
            lower.path().display(),
            upper.path().display(),
            upper.path().display()
        );
        let Some(overlay) = Mount::overlay(&options) else { return };
        let at = overlay.path();
        assert_eq!(fs::read(at.join("bin/tool")).unwrap(), vec![0xab; 10_000]);
        fs::write(at.join("bin/tool"), b"changed").unwrap();
        fs::remove_dir_all(at.join("many")).unwrap();
        fs::create_dir(at.join("many")).unwrap();
        for name in 0..3_000 {
            fs::write(at.join("many").join(format!("{name}")), vec![1; name]).unwrap();
        }
        fs::rename(at.join("empty"), at.join("renamed")).unwrap();
        assert_eq!(fs::read(at.join("bin/tool")).unwrap(), b"changed");
        assert!(!at.join("empty").exists());
    }
    assert!(fs::read(&root).unwrap() == before, "the root disk was written");
    fsck(&scratch);
}
