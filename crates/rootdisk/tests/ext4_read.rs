//! Our reader against the trees that `mke2fs` made images of, debugfs and another reader.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

#[path = "common/images.rs"]
mod images;
#[path = "../../registry/tests/common/skip.rs"]
mod skip;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use images::{LAYOUTS, debugfs, have_tools, planted, succeed, tool};
use portolan_rootdisk::ext4::read::{FileKind, Filesystem, Follow, Inode, ReadError, Superblock};
use portolan_rootdisk::tree::{Device, Time};

fn open(image: &Path) -> Filesystem<File> {
    Filesystem::open(File::open(image).unwrap()).unwrap()
}

fn content(fs: &Filesystem<File>, inode: &Inode) -> Vec<u8> {
    let mut bytes = Vec::new();
    fs.copy_file(inode, &mut bytes).unwrap();
    bytes
}

/// All that is below a folder of this machine.
fn below(tree: &Path) -> BTreeMap<Vec<u8>, fs::Metadata> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![tree.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                waiting.push(path.clone());
            }
            let name = path.strip_prefix(tree).unwrap().as_os_str().as_bytes().to_vec();
            found.insert(name, metadata);
        }
    }
    found
}

fn kind_of(metadata: &fs::Metadata) -> FileKind {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_file() => FileKind::File,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_fifo() => FileKind::Fifo,
        () => panic!("{kind:?} was not planted"),
    }
}

/// With inline data, mke2fs 1.47.0 gives a file the size up to which it wrote.
fn loses_last_hole(layout: &str) -> bool {
    layout == "ext4-inline"
}

fn compare(layout: &str, fs: &Filesystem<File>, tree: &Path) {
    let mut expected = below(tree);
    let mut paths = Vec::new();
    for entry in fs.walk(&fs.root().unwrap()).unwrap() {
        let entry = entry.unwrap_or_else(|e| panic!("{layout}: {e}"));
        paths.push(entry.path.clone());
        if entry.path == b"lost+found" {
            continue;
        }
        let shown = format!("{layout}: {}", String::from_utf8_lossy(&entry.path));
        let metadata = expected.remove(&entry.path).unwrap_or_else(|| panic!("{shown} is new"));
        let on_host = tree.join(Path::new(std::ffi::OsStr::from_bytes(&entry.path)));
        let inode = &entry.inode;
        assert_eq!(inode.kind, kind_of(&metadata), "{shown}");
        assert_eq!(u32::from(inode.mode), metadata.mode() & 0o7777, "{shown}");
        assert_eq!((inode.uid, inode.gid), (metadata.uid(), metadata.gid()), "{shown}");
        assert_eq!(inode.modified.seconds, metadata.mtime(), "{shown}");
        match inode.kind {
            FileKind::File => {
                assert_eq!(u64::from(inode.links), metadata.nlink(), "{shown}");
                let (mut bytes, expected) = (content(fs, inode), fs::read(&on_host).unwrap());
                assert_eq!(bytes.len() as u64, inode.size, "{shown}");
                if loses_last_hole(layout) && expected.ends_with(&[0]) {
                    bytes.resize(expected.len(), 0);
                }
                assert!(bytes == expected, "{shown}");
            }
            FileKind::Symlink => {
                let target = fs::read_link(&on_host).unwrap().into_os_string().into_vec();
                assert_eq!(fs.read_link(inode).unwrap(), target, "{shown}");
            }
            _ => {}
        }
        assert_eq!(fs.lookup(&entry.path).unwrap(), entry.inode, "{shown}");
    }
    assert!(expected.is_empty(), "{layout}: {:?} are missing", expected.keys());
    let parents_first = paths.iter().enumerate().all(|(at, path)| {
        let parent = path.iter().rposition(|b| *b == b'/').map(|slash| &path[..slash]);
        parent.is_none_or(|parent| paths[..at].iter().any(|seen| seen == parent))
    });
    assert!(parents_first, "{layout}: a child came before its parent");
}

/// An image of a layout reads back as the tree it was made of, in every way we know to ask.
fn all_of(layout: &str) {
    if !have_tools() {
        return;
    }
    let (_, options) = LAYOUTS.iter().find(|(name, _)| *name == layout).expect("a known layout");
    let planted = planted(options);
    let fs = open(&planted.image);
    compare(layout, &fs, &planted.tree);
    any_part_of_a_file_and_no_byte_of_a_hole(layout, &fs, &planted.tree);
    the_superblock_says_what_dumpe2fs_says(layout, fs.superblock(), &planted.image);
    another_reader_sees_the_same_tree(layout, &fs, &planted.image);
    what_debugfs_adds_is_seen(layout, &planted.image);
}

#[test]
fn ext4_as_mke2fs_makes_it() {
    all_of("ext4");
}

#[test]
fn ext4_with_small_blocks() {
    all_of("ext4-1k");
}

#[test]
fn ext4_with_the_largest_blocks() {
    all_of("ext4-64k");
}

#[test]
fn ext4_without_64bit_and_checksums() {
    all_of("ext4-plain");
}

#[test]
fn ext4_with_inline_data() {
    all_of("ext4-inline");
}

#[test]
fn ext4_with_meta_block_groups() {
    all_of("ext4-meta-bg");
}

#[test]
fn ext4_with_small_inodes() {
    all_of("ext4-small-inodes");
}

#[test]
fn ext4_with_attributes_in_inodes() {
    all_of("ext4-ea-inode");
}

#[test]
fn ext3_reads_back() {
    all_of("ext3");
}

#[test]
fn ext2_without_file_types() {
    all_of("ext2");
}

#[test]
fn a_value_that_fits_no_block_is_read_from_its_inode() {
    if !have_tools() {
        return;
    }
    let planted = planted(&["-t", "ext4", "-b", "1024", "-O", "ea_inode"]);
    // As long as a block, which with its name and header is too long for one; debugfs takes no more.
    let value: Vec<u8> = (0..1024_u32).map(|n| b'a' + (n % 26) as u8).collect();
    let file = planted.tree.join("value");
    fs::write(&file, &value).unwrap();
    debugfs(&planted.image, &format!("ea_set -f {} /etc/short user.large", file.display()));
    let fs = open(&planted.image);
    let xattrs = fs.xattrs(&fs.lookup(b"etc/short").unwrap()).unwrap();
    assert_eq!(xattrs.len(), 1);
    assert_eq!(&*xattrs[0].name, b"user.large");
    assert!(*xattrs[0].value == *value);
}

#[test]
fn an_indexed_directory_reads_like_a_plain_one() {
    if !have_tools() {
        return;
    }
    let planted = planted(&["-t", "ext4", "-b", "1024"]);
    // 1: directories were changed, which is what was asked for.
    let status = tool("e2fsck").args(["-fyD"]).arg(&planted.image).output().unwrap().status;
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
    let stat = debugfs(&planted.image, "htree_dump /many");
    assert!(String::from_utf8_lossy(&stat).contains("Root node dump"), "it has an index");
    compare("indexed", &open(&planted.image), &planted.tree);
}

#[test]
fn debugfs_sees_the_same_inodes() {
    if !have_tools() {
        return;
    }
    let planted = planted(&["-t", "ext4"]);
    let fs = open(&planted.image);
    for directory in ["/", "/etc", "/etc/deep", "/many"] {
        let listed = debugfs(&planted.image, &format!("ls -p {directory}"));
        // Its lines: /inode/mode/uid/gid/name/size/
        let mut theirs = BTreeMap::new();
        for line in listed.split(|b| *b == b'\n') {
            let fields: Vec<&[u8]> = line.split(|b| *b == b'/').collect();
            let [_, inode, mode, uid, gid, name, size, _] = fields[..] else { continue };
            let number = |field: &[u8]| String::from_utf8_lossy(field).parse::<u32>().unwrap_or(0);
            let mode = u32::from_str_radix(&String::from_utf8_lossy(mode), 8).unwrap();
            if !name.is_empty() && name != b"." && name != b".." {
                let values = (number(inode), mode & 0o7777, number(uid), number(gid), number(size));
                theirs.insert(name.to_vec(), values);
            }
        }
        let dir = fs.lookup(directory.as_bytes()).unwrap();
        let ours: BTreeMap<_, _> = fs
            .read_dir(&dir)
            .unwrap()
            .into_iter()
            .map(|entry| {
                let inode = fs.inode(entry.inode).unwrap();
                let size = if inode.kind == FileKind::Directory { 0 } else { inode.size };
                let size = u32::try_from(size).unwrap();
                let values = (entry.inode, u32::from(inode.mode), inode.uid, inode.gid, size);
                (entry.name.into_vec(), values)
            })
            .collect();
        // debugfs writes a name's strange bytes in its own way, so those of the root are counted.
        assert_eq!(ours.len(), theirs.len(), "{directory}");
        for (name, values) in ours.iter().filter(|(name, _)| name.is_ascii()) {
            assert!(
                name.contains(&0x1b) || theirs.get(name) == Some(values),
                "{name:?} {values:?}"
            );
        }
    }
}

fn another_reader_sees_the_same_tree(layout: &str, fs: &Filesystem<File>, image: &Path) {
    // It reads less than we do; what it must read is said here, so that this can fail.
    let required = matches!(layout, "ext4" | "ext4-1k" | "ext4-plain");
    let theirs = match ext4_view::Ext4::load(Box::new(fs::read(image).unwrap())) {
        Ok(theirs) if fs.superblock().inode_size > 128 => theirs,
        other => return assert!(!required, "{layout}: {:?}", other.err()),
    };
    for entry in fs.walk(&fs.root().unwrap()).unwrap() {
        let entry = entry.unwrap();
        // It knows no time before 1970, and takes a hole among block numbers for damage.
        let sparse = entry.path == b"far" || entry.path == b"holes";
        if entry.inode.modified.seconds < 0 || (sparse && !fs.superblock().features.has("extent")) {
            continue;
        }
        let path = [b"/", entry.path.as_slice()].concat();
        let path = ext4_view::Path::new(&path);
        let metadata = theirs.symlink_metadata(path).unwrap();
        let inode = &entry.inode;
        assert_eq!((metadata.uid(), metadata.gid()), (inode.uid, inode.gid));
        assert_eq!(metadata.mode() & 0o7777, inode.mode);
        match inode.kind {
            FileKind::File => assert!(theirs.read(path).unwrap() == content(fs, inode)),
            FileKind::Symlink => {
                let target = theirs.read_link(path).unwrap();
                assert_eq!(target.as_ref(), fs.read_link(inode).unwrap().as_slice());
            }
            FileKind::Directory => assert!(metadata.is_dir()),
            _ => {}
        }
    }
}

/// Attributes in inodes and blocks, devices, late times, large owners.
fn what_debugfs_adds_is_seen(layout: &str, image: &Path) {
    let large = "v".repeat(700);
    for request in [
        "ea_set /etc/short user.small 1".to_owned(),
        format!("ea_set /etc/short user.large {large}"),
        "ea_set /etc/short security.capability abc".to_owned(),
        "ea_set /etc/short trusted.overlay.opaque y".to_owned(),
        "mknod null c 1 3".to_owned(),
        "mknod disk b 259 60000".to_owned(),
        "set_inode_field /etc/empty mtime @4294967301".to_owned(),
        "set_inode_field /etc/empty uid 70000".to_owned(),
        "set_inode_field /etc/empty gid 4294967294".to_owned(),
    ] {
        debugfs(image, &request);
    }
    let fs = open(image);
    let xattrs = fs.xattrs(&fs.lookup(b"etc/short").unwrap()).unwrap();
    let pairs: Vec<(&[u8], &[u8])> =
        xattrs.iter().map(|xattr| (&*xattr.name, &*xattr.value)).collect();
    let expected: [(&[u8], &[u8]); 4] = [
        (b"security.capability", b"abc"),
        (b"trusted.overlay.opaque", b"y"),
        (b"user.large", large.as_bytes()),
        (b"user.small", b"1"),
    ];
    assert_eq!(pairs, expected, "{layout}");
    assert_eq!(fs.xattrs(&fs.lookup(b"etc/inline-rest").unwrap()).unwrap(), [], "{layout}");

    let null = fs.lookup(b"null").unwrap();
    assert_eq!(
        (null.kind, null.device),
        (FileKind::CharDevice, Some(Device { major: 1, minor: 3 }))
    );
    let disk = fs.lookup(b"disk").unwrap();
    let device = Some(Device { major: 259, minor: 60_000 });
    assert_eq!((disk.kind, disk.device), (FileKind::BlockDevice, device), "{layout}");
    let late = fs.lookup(b"etc/empty").unwrap();
    assert_eq!((late.uid, late.gid), (70_000, u32::MAX - 1), "{layout}");
    if fs.superblock().inode_size > 128 {
        assert_eq!(late.modified, Time { seconds: 4_294_967_301, nanoseconds: 0 }, "{layout}");
    }
}

#[test]
fn links_are_followed_inside_the_image_only() {
    if !have_tools() {
        return;
    }
    let planted = planted(&["-t", "ext4"]);
    let fs = open(&planted.image);
    let short = fs.lookup(b"/etc//short/").unwrap();
    for path in ["etc/link", "etc/absolute/up", "etc/deep/up", "../../etc/./deep/../short"] {
        assert_eq!(fs.lookup_following(path.as_bytes()).unwrap(), short, "{path}");
    }
    assert_eq!(fs.lookup(b"etc/link").unwrap().kind, FileKind::Symlink);
    assert_eq!(fs.find(b"etc/absolute/up", Follow::Parents).unwrap().kind, FileKind::Symlink);
    let refused = |path: &[u8], follow| fs.find(path, follow).unwrap_err();
    assert!(matches!(refused(b"round-a", Follow::Always), ReadError::TooManyLinks { .. }));
    assert!(matches!(refused(b"etc/absolute/up", Follow::Never), ReadError::NotADirectory { .. }));
    assert!(matches!(refused(b"etc/short/x", Follow::Always), ReadError::NotADirectory { .. }));
    assert!(matches!(refused(b"etc/nothing", Follow::Always), ReadError::NotFound { .. }));
    assert!(matches!(refused(b"etc/long-link", Follow::Always), ReadError::NotFound { .. }));
    assert_eq!(fs.lookup(b"").unwrap(), fs.root().unwrap());
}

fn any_part_of_a_file_and_no_byte_of_a_hole(layout: &str, fs: &Filesystem<File>, tree: &Path) {
    for name in ["holes", "far", "etc/deep/long", "etc/short", "etc/inline-rest"] {
        let mut whole = fs::read(tree.join(name)).unwrap();
        let inode = fs.lookup(name.as_bytes()).unwrap();
        if loses_last_hole(layout) {
            whole.truncate(usize::try_from(inode.size).unwrap());
        }
        let size = whole.len();
        for start in [0, 1, 100, 4095, 8192, size / 2, size.saturating_sub(3), size, size + 9] {
            let mut bytes = vec![0xee; 10_000];
            let read = fs.read_file_at(&inode, start as u64, &mut bytes).unwrap();
            let expected = &whole[start.min(size)..(start + 10_000).min(size)];
            assert!(bytes[..read] == *expected, "{layout}: {name} at {start}");
        }
    }
    let mut given = 0;
    let far = fs.lookup(b"far").unwrap();
    fs.read_file(&far, 0..far.size, &mut |_, bytes| {
        given += bytes.len();
        Ok(())
    })
    .unwrap();
    assert!(given <= 65536, "{layout}: {given} bytes of a file that is one hole");
}

fn the_superblock_says_what_dumpe2fs_says(layout: &str, superblock: &Superblock, image: &Path) {
    let said = succeed(tool("dumpe2fs").arg("-h").arg(image)).stdout;
    let said = String::from_utf8(said).unwrap();
    let field = |name: &str| {
        let line = said.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("", |(_, value)| value).trim().to_owned()
    };
    assert_eq!(superblock.uuid_text(), field("Filesystem UUID"), "{layout}");
    assert_eq!(superblock.blocks.to_string(), field("Block count"), "{layout}");
    assert_eq!(superblock.free_blocks.to_string(), field("Free blocks"), "{layout}");
    assert_eq!(superblock.inodes.to_string(), field("Inode count"), "{layout}");
    assert_eq!(superblock.free_inodes.to_string(), field("Free inodes"), "{layout}");
    assert_eq!(superblock.block_size.to_string(), field("Block size"), "{layout}");
    assert_eq!(superblock.inode_size.to_string(), field("Inode size"), "{layout}");
    assert!(superblock.clean && !superblock.errors && !superblock.needs_recovery());
    let features = &superblock.features;
    let mut ours: Vec<&String> =
        [&features.compatible, &features.incompatible, &features.read_only_compatible]
            .into_iter()
            .flatten()
            .collect();
    ours.sort();
    let theirs = field("Filesystem features");
    let mut theirs: Vec<&str> = theirs.split_whitespace().collect();
    theirs.sort_unstable();
    assert_eq!(ours, theirs, "{layout}");
}
