//! Trees to disks, judged by e2fsck and debugfs.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod ext4_support;

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use ext4_support::reads_back::reads_back;
use ext4_support::{Builder, MemorySink, acl, fsck, run, text, tool, torture, xattr};
use portolan_rootdisk::ext4::read::Filesystem;
use portolan_rootdisk::ext4::{self, FIRST_DATA_BLOCK, WriteError};
use portolan_rootdisk::tree::{BLOCK, Device, FileData, Kind, NodeId, Run, Tree};

/// What debugfs answers.
fn debugfs(disk: &Path, request: &str) -> Option<String> {
    let tool = tool("debugfs")?;
    let output = run(Command::new(tool).arg("-R").arg(request).arg(disk));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_small_tree_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    Builder::new().write(&disk);
    fsck(&disk);
}

#[test]
fn a_tree_with_everything_in_it_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    torture().write(&disk);
    fsck(&disk);
}

#[test]
fn a_tree_with_everything_in_it_reads_back() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let builder = torture();
    builder.write(&disk);
    reads_back(&builder, &disk);
}

#[test]
fn features_are_the_documented_ones() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    torture().write(&disk);
    let Some(dumpe2fs) = tool("dumpe2fs") else { return };
    let said = text(&run(Command::new(dumpe2fs).arg("-h").arg(&disk)));
    let line = |key: &str| {
        let found = said.lines().find_map(|line| line.strip_prefix(key));
        found.unwrap_or_else(|| panic!("no {key} in {said}")).trim().to_owned()
    };
    assert_eq!(
        line("Filesystem features:"),
        "ext_attr dir_index sparse_super2 filetype extent flex_bg large_file huge_file dir_nlink \
         extra_isize read-only"
    );
    assert_eq!(line("Filesystem state:"), "clean");
    assert_eq!(line("Block size:"), "4096");
    assert_eq!(line("Inode size:"), "256");
    assert_eq!(line("Filesystem UUID:"), "616e2069-642c-2061-6e79-207369787465");
    assert_eq!(line("Default directory hash:"), "half_md4");
    let Some(resize2fs) = tool("resize2fs") else { return };
    let said = text(&run(Command::new(resize2fs).arg("-P").arg(&disk)));
    assert!(said.contains("Estimated minimum size of the filesystem: "), "{said}");
}

#[test]
fn the_same_tree_under_other_ids_is_the_same_disk() {
    let builder = torture();
    let mut plain = MemorySink::default();
    let geometry = ext4::write(&builder.tree, &builder.options(), &mut plain).unwrap();

    // The same tree with its nodes in the other order, the root first, and with a loser among them.
    let count = u32::try_from(builder.tree.nodes.len()).unwrap();
    let other = |id: NodeId| if id == Tree::ROOT { id } else { NodeId(count - id.0) };
    let mut nodes = vec![builder.tree.nodes[0].clone()];
    nodes.extend(builder.tree.nodes[1..].iter().rev().cloned());
    for node in &mut nodes {
        if let Kind::Directory(children) = &mut node.kind {
            children.values_mut().for_each(|child| *child = other(*child));
        }
    }
    nodes.push(nodes[1].clone());
    let mut turned = MemorySink::default();
    let again = ext4::write(&Tree { nodes }, &builder.options(), &mut turned).unwrap();
    assert_eq!(geometry, again);
    assert!(plain == turned);
}

#[test]
fn large_directories_have_an_index_of_the_depth_they_need() {
    for (entries, name_length, depth) in [(12_000, 8, 1), (60_000, 32, 2), (9_000, 255, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        let mut builder = Builder::new();
        let large = builder.directory(Tree::ROOT, b"large");
        let mut node = large;
        for entry in 0..entries {
            let name = format!("{entry:0name_length$}");
            // A few nodes by many names, so that it is the directory that is large.
            if entry % 60_000 == 0 {
                node = builder.file(large, name.as_bytes(), b"y");
            }
            builder.link(large, name.as_bytes(), node);
        }
        builder.write(&disk);
        if !fsck(&disk) {
            return;
        }
        let Some(said) = debugfs(&disk, "htree_dump large") else { return };
        let levels = format!("Indirect levels: {}", depth - 1);
        assert!(said.contains(&levels), "{entries} entries: {}", &said[..400.min(said.len())]);
    }
}

#[test]
fn subdirectories_are_counted_to_65000_and_then_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = Builder::new();
    let mut names = (0..).map(|name| format!("{name}"));
    for (more, links) in [(64_998, 65_000), (1, 1)] {
        for name in names.by_ref().take(more) {
            builder.directory(Tree::ROOT, name.as_bytes());
        }
        let disk = dir.path().join(format!("{links}"));
        builder.write(&disk);
        fsck(&disk);
        let Some(said) = debugfs(&disk, "stat /") else { return };
        assert!(said.contains(&format!("Links: {links} ")), "{said}");
    }
}

#[test]
fn a_file_of_many_runs_has_a_tree_of_depth_two() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let mut builder = Builder::new();
    let count = 5 * 340 + 3;
    // Every other block on the disk, and every third in the file.
    let runs: Box<[Run]> = (0..count)
        .map(|n| Run { logical: n * 3, physical: FIRST_DATA_BLOCK + n * 2, blocks: 1 })
        .collect();
    let size = u64::from(count) * 3 * BLOCK as u64;
    builder.add(Tree::ROOT, b"many", Kind::File(FileData { size, runs }));
    builder.next = FIRST_DATA_BLOCK + 2 * count;
    builder.write(&disk);
    if !fsck(&disk) {
        return;
    }
    let Some(said) = debugfs(&disk, "extents /many") else { return };
    let last = said.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let (logical, physical) = ((count - 1) * 3, FIRST_DATA_BLOCK + (count - 1) * 2);
    assert_eq!(last, format!("2/ 2 3/ 3 {logical} - {logical} {physical} - {physical} 1"));
    let stat = debugfs(&disk, "stat /many").unwrap();
    let sectors = (count + 6 + 1) * 8;
    assert!(stat.contains(&format!("Blockcount: {sectors}\n")), "{stat}");
}

#[test]
fn a_disk_of_a_tebibyte_and_files_beyond_128_gib() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let mut builder = Builder::new();
    let blocks = 40 << 20; // 160 GiB in one piece: 1280 extents, four leaves
    let runs = Box::new([Run { logical: 0, physical: FIRST_DATA_BLOCK, blocks }]);
    let size = u64::from(blocks) * BLOCK as u64 - 17;
    builder.add(Tree::ROOT, b"large", Kind::File(FileData { size, runs }));
    let end = Run { logical: u32::MAX - 1, physical: FIRST_DATA_BLOCK + blocks, blocks: 1 };
    let size = u64::from(u32::MAX) * BLOCK as u64;
    builder.add(Tree::ROOT, b"sparse", Kind::File(FileData { size, runs: Box::new([end]) }));
    builder.next = FIRST_DATA_BLOCK + blocks + 1;
    let mut options = builder.options();
    options.min_bytes = 1 << 40;
    let geometry = builder.write_with(&options, &disk).unwrap();
    assert_eq!(geometry.size_bytes, 1 << 40);
    let allocated = std::fs::metadata(&disk).unwrap().blocks() * 512;
    assert!(allocated < 64 << 20, "{allocated} bytes for a disk without data");
    fsck(&disk);
}

#[test]
fn sizes_follow_the_options() {
    let mut builder = Builder::new();
    builder.file(Tree::ROOT, b"file", &[1; 40 << 20]);
    let write = |change: &dyn Fn(&mut ext4::Options)| {
        let mut options = builder.options();
        change(&mut options);
        ext4::write(&builder.tree, &options, &mut MemorySink::default())
    };
    let plain = write(&|_| {}).unwrap();
    assert!(plain.size_bytes > 44 << 20 && plain.size_bytes < 48 << 20, "{plain:?}");
    assert_eq!(write(&|options| options.min_bytes = 512 << 20).unwrap().size_bytes, 512 << 20);
    let roomy = write(&|options| options.headroom_percent = 200).unwrap();
    assert!(roomy.size_bytes >= u64::from(roomy.used_blocks) * 2 * 4096, "{roomy:?}");
    let many = write(&|options| options.min_inodes = 100_000).unwrap();
    assert!(many.inodes >= 100_000 && many.used_inodes == 11, "{many:?}");
    let error = write(&|options| options.max_bytes = 40 << 20).unwrap_err();
    assert!(matches!(error, WriteError::TooLarge { max: 41_943_040, .. }), "{error}");
    assert!(error.to_string().contains("`max_virtual_bytes`"), "{error}");
}

#[test]
fn a_writable_disk_lacks_only_the_read_only_feature() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let builder = torture();
    let mut options = builder.options();
    options.read_only = false;
    options.headroom_percent = 150;
    builder.write_with(&options, &disk).unwrap();
    if !fsck(&disk) {
        return;
    }
    let Some(said) = debugfs(&disk, "features") else { return };
    assert!(said.contains("extra_isize") && !said.contains("read-only"), "{said}");
}

/// What a tree with one more entry is refused for.
fn refusal(change: impl FnOnce(&mut Builder)) -> String {
    let mut builder = Builder::new();
    let dir = builder.directory(Tree::ROOT, b"dir");
    assert_eq!(dir, NodeId(1));
    change(&mut builder);
    ext4::write(&builder.tree, &builder.options(), &mut MemorySink::default())
        .unwrap_err()
        .to_string()
}

#[test]
fn what_ext4_cannot_hold_is_refused_by_name() {
    let dir = NodeId(1);
    let link = |target: Vec<u8>| {
        refusal(|builder| {
            builder.add(dir, b"link", Kind::Symlink(target.into()));
        })
    };
    for target in [vec![], vec![b'x'; 4096], b"a\0b".to_vec()] {
        assert!(link(target).contains("/dir/link"));
    }
    let device = Device { major: 4096, minor: 0 };
    let said = refusal(|builder| {
        builder.add(dir, b"dev\xff", Kind::CharDevice(device));
    });
    assert!(said.contains(r"/dir/dev\xff") && said.contains("4096:0"), "{said}");
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'n'; 256]] {
        let said = refusal(|builder| {
            builder.add(dir, name, Kind::Fifo);
        });
        assert!(said.starts_with("/dir has an entry called"), "{said}");
    }
    let said = refusal(|builder| builder.link(dir, b"self", dir));
    assert!(said.contains("two names"), "{said}");
    let said = refusal(|builder| builder.link(dir, b"up", Tree::ROOT));
    assert!(said.contains("two names"), "{said}");
    let said = refusal(|builder| {
        let file = builder.file(dir, b"much", b"");
        builder.set(file, |a| a.xattrs = Box::new([xattr("user.x", &[7; 4100])]));
    });
    assert!(said.contains("/dir/much need 4120 bytes"), "{said}");
    let said = refusal(|builder| {
        let file = builder.file(dir, b"acl", b"");
        builder.set(file, |a| a.xattrs = Box::new([xattr("system.posix_acl_access", b"?")]));
    });
    assert!(said.contains("/dir/acl"), "{said}");
    let said = refusal(|builder| {
        let size = u64::from(u32::MAX) * 4096 + 1;
        builder.add(dir, b"huge", Kind::File(FileData { size, runs: Box::new([]) }));
    });
    assert!(said.contains("/dir/huge has 17592186040321 bytes"), "{said}");
}

#[test]
fn hard_links_are_counted_to_65000_and_more_are_refused() {
    let links = |count: u32| {
        let mut builder = Builder::new();
        let file = builder.file(Tree::ROOT, b"0", b"x");
        (1..count).for_each(|n| builder.link(Tree::ROOT, format!("{n}").as_bytes(), file));
        builder
    };
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    links(65_000).write(&disk);
    fsck(&disk);
    let builder = links(65_001);
    let error = ext4::write(&builder.tree, &builder.options(), &mut MemorySink::default());
    assert!(matches!(error, Err(WriteError::Links { .. })), "{error:?}");
}

#[test]
fn misplaced_data_is_refused() {
    let place = |runs: &[&[Run]], size: u64| {
        let mut builder = Builder::new();
        for (name, runs) in runs.iter().enumerate() {
            let file = FileData { size, runs: (*runs).into() };
            builder.add(Tree::ROOT, format!("{name}").as_bytes(), Kind::File(file));
        }
        builder.next = 2000;
        ext4::write(&builder.tree, &builder.options(), &mut MemorySink::default())
    };
    let run = |physical| Run { logical: 0, physical, blocks: 2 };
    assert!(place(&[&[run(1024)], &[run(1026)]], 8192).is_ok());
    let shared = place(&[&[run(1024)], &[run(1025)]], 8192);
    assert!(matches!(shared, Err(WriteError::Shared { block: 1025 })), "{shared:?}");
    for (physical, size) in [(1, 8192), (1999, 8192), (1024, 4096)] {
        let refused = place(&[&[run(physical)]], size);
        assert!(matches!(refused, Err(WriteError::Runs { .. })), "{refused:?}");
    }
}

#[test]
fn attributes_that_linux_does_not_have_are_left_out_and_counted() {
    let mut builder = Builder::new();
    let file = builder.file(Tree::ROOT, b"file", b"");
    let names = ["com.apple.provenance", "system.nfs4_acl", "user.", "nothing", "user.kept"];
    builder.set(file, |a| a.xattrs = names.map(|name| xattr(name, b"v")).into());
    let geometry =
        ext4::write(&builder.tree, &builder.options(), &mut MemorySink::default()).unwrap();
    assert_eq!(geometry.dropped_xattrs, 4);
}

/// The kernel would never have set these, and an overlay cannot copy a file up that has them.
#[test]
fn attributes_that_linux_has_no_place_for_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let list = acl(&[(1, 6, u32::MAX), (4, 4, u32::MAX), (32, 0, u32::MAX)]);
    let all = || {
        Box::new([
            xattr("system.posix_acl_access", &list),
            xattr("system.posix_acl_default", &list),
            xattr("trusted.t", b"v"),
            xattr("user.u", b"v"),
        ])
    };
    let mut builder = Builder::new();
    let device = Device { major: 1, minor: 3 };
    let directory = builder.directory(Tree::ROOT, b"directory");
    let nodes = [
        (directory, 4),
        (builder.file(Tree::ROOT, b"file", b""), 3),
        (builder.add(Tree::ROOT, b"link", Kind::Symlink(b"file"[..].into())), 1),
        (builder.add(Tree::ROOT, b"pipe", Kind::Fifo), 2),
        (builder.add(Tree::ROOT, b"null", Kind::CharDevice(device)), 2),
    ];
    for (node, _) in nodes {
        builder.set(node, |a| a.xattrs = all());
    }
    let geometry = builder.write(&disk);
    assert_eq!(geometry.dropped_xattrs, 1 + 3 + 2 + 2);
    fsck(&disk);
    let fs = Filesystem::open(std::fs::File::open(&disk).unwrap()).unwrap();
    for (name, (_, kept)) in ["directory", "file", "link", "pipe", "null"].iter().zip(nodes) {
        let inode = fs.lookup(name.as_bytes()).unwrap();
        assert_eq!(fs.xattrs(&inode).unwrap().len(), kept, "{name}");
    }
}

#[test]
fn files_with_the_same_attributes_share_a_block() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let mut builder = Builder::new();
    for name in 0..2_500 {
        let file = builder.file(Tree::ROOT, format!("{name}").as_bytes(), b"");
        builder.set(file, |a| a.xattrs = Box::new([xattr("user.same", &[1; 500])]));
    }
    let before = Builder::new().write(&dir.path().join("empty"));
    let geometry = builder.write(&disk);
    // 2,500 inodes take 157 blocks, the directory some 20: there is no room for 2,500 blocks.
    assert!(geometry.used_blocks < before.used_blocks + 200, "{geometry:?}");
    fsck(&disk);
}

mod random {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// One step of growing a tree: numbers that are taken modulo whatever there is.
    #[derive(Debug, Clone)]
    struct Step {
        parent: usize,
        name: Vec<u8>,
        what: u8,
        size: usize,
        xattrs: Vec<(u8, Vec<u8>, Vec<u8>)>,
        owner: (u32, u32),
        time: (i64, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let byte = any::<u8>().prop_filter("part of a name", |b| !matches!(b, 0 | b'/'));
        let name = prop_oneof![vec(byte.clone(), 1..20), vec(byte, 200..=255)]
            .prop_filter("a name", |name| !matches!(&name[..], b"." | b".."));
        let letters = vec(b'a'..=b'z', 1..30);
        let xattrs = vec((0u8..3, letters, vec(any::<u8>(), 0..300)), 0..4);
        let (owner, time) = (any::<(u32, u32)>(), (any::<i64>(), 0u32..1_000_000_000));
        (any::<usize>(), name, any::<u8>(), 0usize..20_000, xattrs, owner, time).prop_map(
            |(parent, name, what, size, xattrs, owner, time)| Step {
                parent,
                name,
                what,
                size,
                xattrs,
                owner,
                time,
            },
        )
    }

    fn grow(steps: &[Step]) -> Builder {
        let mut builder = Builder::new();
        let mut directories = vec![Tree::ROOT];
        let mut files = Vec::new();
        for step in steps {
            let parent = directories[step.parent % directories.len()];
            let Kind::Directory(children) = &builder.tree.node(parent).kind else { continue };
            if children.contains_key(&step.name[..]) {
                continue;
            }
            let name = &step.name[..];
            let number = u32::try_from(step.size).unwrap();
            let node = match step.what % 10 {
                0 | 1 => {
                    let node = builder.directory(parent, name);
                    directories.push(node);
                    node
                }
                2 => builder.add(
                    parent,
                    name,
                    Kind::Symlink(vec![b't'; step.size % 4095 + 1].into()),
                ),
                3 => {
                    let device = Device { major: number % 4096, minor: number };
                    builder.add(parent, name, Kind::CharDevice(device))
                }
                4 => builder.add(parent, name, Kind::Fifo),
                5 if !files.is_empty() => {
                    builder.link(parent, name, files[step.size % files.len()]);
                    continue;
                }
                _ => {
                    let node = builder.file(parent, name, &vec![step.what; step.size]);
                    files.push(node);
                    node
                }
            };
            builder.set(node, |attributes| {
                (attributes.uid, attributes.gid) = step.owner;
                (attributes.mtime.seconds, attributes.mtime.nanoseconds) = step.time;
                attributes.mode = u16::from(step.what) * 16 % 0o10000;
                let mut xattrs = step
                    .xattrs
                    .iter()
                    .map(|(space, name, value)| {
                        let mut full = String::new();
                        // Users have attributes on files and directories only.
                        let first = usize::from(matches!(step.what % 10, 2..=4));
                        let space = ["user", "trusted", "security"][usize::from(*space).max(first)];
                        write!(full, "{space}.{}", String::from_utf8_lossy(name)).unwrap();
                        xattr(&full, value)
                    })
                    .collect::<Vec<_>>();
                xattrs.sort();
                xattrs.dedup_by(|a, b| a.name == b.name);
                attributes.xattrs = xattrs.into();
            });
        }
        builder
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn random_trees_are_clean(steps in vec(step(), 0..300)) {
            let builder = grow(&steps);
            let dir = tempfile::tempdir().unwrap();
            let disk = dir.path().join("disk");
            builder.write(&disk);
            fsck(&disk);
        }

        #[test]
        fn what_is_written_is_what_is_read(steps in vec(step(), 0..300)) {
            let builder = grow(&steps);
            let dir = tempfile::tempdir().unwrap();
            let disk = dir.path().join("disk");
            builder.write(&disk);
            reads_back(&builder, &disk);
        }
    }
}
