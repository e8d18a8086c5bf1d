//! Our disks read by others: a reader of ext4 that is not ours, and the hashes of e2fsprogs.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod ext4_support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use ext4_support::{Builder, MemorySink, Mount, fsck, run, tool, torture};
use ext4_view::{Ext4, FileType};
use portolan_rootdisk::ext4;
use portolan_rootdisk::tree::{Kind, Tree};

#[test]
fn another_reader_sees_the_same_tree() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let mut builder = torture();
    for node in &mut builder.tree.nodes {
        // That reader takes the low half of the seconds for unsigned and gives up on its highest
        // bit; the kernel, in another test, is asked about such times.
        node.attributes.mtime.seconds &= !0x8000_0000;
        node.attributes.mtime.seconds &= 0x3_ffff_ffff;
    }
    builder.write(&disk);
    let view = Ext4::load(Box::new(fs::read(&disk).unwrap())).unwrap();
    let data: HashMap<u32, &[u8]> =
        builder.data.iter().map(|(block, bytes)| (*block, &bytes[..])).collect();
    let mut all = vec![(b"/".to_vec(), Tree::ROOT)];
    while let Some((path, id)) = all.pop() {
        let node = builder.tree.node(id);
        let path_seen = ext4_view::Path::new(&path[..]);
        let metadata = view.symlink_metadata(path_seen).unwrap();
        let attributes = &node.attributes;
        assert_eq!(metadata.mode() & 0o7777, attributes.mode);
        assert_eq!((metadata.uid(), metadata.gid()), (attributes.uid, attributes.gid));
        let time = metadata.modified();
        let wanted = (attributes.mtime.seconds, attributes.mtime.nanoseconds);
        assert_eq!((time.seconds(), time.nanoseconds()), wanted);
        let wanted = match &node.kind {
            Kind::Directory(children) => {
                let seen = view.read_dir(path_seen).unwrap().map(|entry| entry.unwrap());
                let mut seen =
                    seen.map(|entry| entry.file_name().as_ref().to_vec()).collect::<Vec<_>>();
                seen.retain(|name| !matches!(&name[..], b"." | b".."));
                seen.sort();
                assert_eq!(seen, children.keys().map(|name| name.to_vec()).collect::<Vec<_>>());
                for (name, child) in children {
                    all.push(([&path[..], b"/", name].concat(), *child));
                }
                FileType::Directory
            }
            Kind::File(file) => {
                assert_eq!(metadata.len(), file.size);
                if let [only] = file.runs[..]
                    && only.logical == 0
                {
                    let content = view.read(path_seen).unwrap();
                    assert_eq!(content, data[&only.physical][..content.len()]);
                }
                FileType::Regular
            }
            // Nor does it show a target with a component that could be no name.
            Kind::Symlink(target) if target.len() > 255 => FileType::Symlink,
            Kind::Symlink(target) => {
                let seen = view.read_link(path_seen).unwrap();
                assert_eq!(AsRef::<[u8]>::as_ref(&seen), &target[..]);
                FileType::Symlink
            }
            Kind::CharDevice(_) => FileType::CharacterDevice,
            Kind::BlockDevice(_) => FileType::BlockDevice,
            Kind::Fifo => FileType::Fifo,
        };
        assert_eq!(metadata.file_type(), wanted);
    }
}

/// The major hash of each name, as debugfs says it for the seed of [`Builder::options`].
fn hashes(names: &[String]) -> Option<Vec<u32>> {
    let debugfs = tool("debugfs")?;
    let dir = tempfile::tempdir().unwrap();
    let requests = dir.path().join("requests");
    let text = names.iter().fold(String::new(), |mut text, name| {
        let seed = "61207365-6564-206f-6620-686173686573";
        writeln!(text, "dx_hash -h half_md4 -s {seed} {name}").unwrap();
        text
    });
    fs::write(&requests, text).unwrap();
    let output = run(Command::new(debugfs).arg("-f").arg(&requests));
    let said = String::from_utf8(output.stdout).unwrap();
    let hash = |line: &str| {
        let hash = line.strip_prefix("Hash of ")?.split_once(" is 0x")?.1;
        u32::from_str_radix(hash.split(' ').next()?, 16).ok()
    };
    Some(said.lines().filter_map(hash).collect())
}

/// Two names of one hash at the seam of two leaves: the index must say that the second leaf goes
/// on with the hash of the first, or the kernel does not look there.
#[test]
fn names_of_one_hash_in_two_leaves_are_found() {
    // Among so many names some have the same hash.
    let names = (0..150_000).map(|n| format!("name {n:015}").replace(' ', "-")).collect::<Vec<_>>();
    let Some(hashes) = hashes(&names) else { return };
    let mut sorted = hashes.into_iter().zip(&names).collect::<Vec<_>>();
    assert_eq!(sorted.len(), names.len(), "debugfs answered for every name");
    sorted.sort();
    // Names of 20 bytes: 146 records of 28 bytes fill a leaf.
    let per_leaf = 4096 / 28;
    let pairs = (per_leaf..sorted.len() - 1).filter(|&n| sorted[n].0 == sorted[n + 1].0);
    let pairs = pairs.collect::<Vec<_>>();
    assert!(!pairs.is_empty());
    for first in pairs {
        let mut builder = Builder::new();
        let large = builder.directory(Tree::ROOT, b"large");
        let below = first + 1 - per_leaf;
        let chosen = &sorted[below..sorted.len().min(first + 1000)];
        for (_, name) in chosen {
            builder.file(large, name.as_bytes(), b"");
        }
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        builder.write(&disk);
        fsck(&disk);
        let Some(mount) = Mount::read_only(&disk) else { return };
        for (_, name) in chosen {
            let path = mount.path().join("large").join(name);
            assert!(fs::symlink_metadata(&path).is_ok(), "{name} is not found");
        }
    }
}

/// The bytes of a disk are a promise: when this changes, `ROOTDISK_FORMAT_VERSION` must, too.
#[test]
fn the_bytes_of_a_known_tree_do_not_change() {
    let builder = torture();
    let mut sink = MemorySink::default();
    ext4::write(&builder.tree, &builder.options(), &mut sink).unwrap();
    let mut hasher = blake3::Hasher::new();
    for (block, bytes) in &sink.0 {
        hasher.update(&block.to_le_bytes()).update(bytes);
    }
    assert_eq!(
        hasher.finalize().to_hex().as_str(),
        "a0d23646ee18ef5780cf85e93ff0c170e3259a15c41331a59b65c7f3d5df0440"
    );
}
