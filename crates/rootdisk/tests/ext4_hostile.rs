//! Disks that lie: nothing panics, everything ends, nothing gives more than the disk has.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

#[path = "common/sparse.rs"]
mod sparse;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use portolan_rootdisk::ext4::read::{FileKind, Filesystem, Inode, ReadError};
use proptest::prelude::*;

/// The seeds of the fuzzer: small file systems, each of another layout.
static SEEDS: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/ext4"));
    let mut seeds: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, sparse::unpack(&std::fs::read(path).unwrap()))
        })
        .collect();
    seeds.sort();
    seeds
});

fn seed(name: &str) -> Vec<u8> {
    SEEDS.iter().find(|(seed, _)| seed == name).unwrap().1.clone()
}

/// Everything the reader can do, to the first error of the walk.
fn look(disk: &[u8]) -> Result<usize, ReadError> {
    let fs = Filesystem::open(disk)?;
    let _ = fs.lookup_following(b"etc/deep/abs");
    let mut count = 0;
    for entry in fs.walk(&fs.root()?)? {
        let inode = entry?.inode;
        count += 1;
        let _ = fs.xattrs(&inode);
        let _ = fs.read_link(&inode);
        let mut given = 0;
        let _ = fs.read_file(&inode, 0..u64::MAX, &mut |_, bytes| {
            given += bytes.len();
            Ok(())
        });
        assert!(given <= disk.len(), "{given} bytes from a disk of {}", disk.len());
    }
    Ok(count)
}

#[test]
fn a_seed_is_a_sound_disk() {
    assert_eq!(SEEDS.len(), 7);
    for (name, disk) in SEEDS.iter() {
        // Thirteen things of all kinds, fifty files in one directory, and lost+found.
        assert_eq!(look(disk).unwrap(), 64, "{name}");
        let fs = Filesystem::open(disk.as_slice()).unwrap();
        let short = fs.lookup_following(b"etc/deep/abs").unwrap();
        assert_eq!(short, fs.lookup(b"etc/short").unwrap(), "{name}");
        assert_eq!(fs.xattrs(&short).unwrap().len(), 3, "{name}");
        let mut bytes = [0; 20];
        let read = fs.read_file_at(&short, 0, &mut bytes).unwrap();
        assert_eq!(&bytes[..read], b"one line\n", "{name}");
    }
}

/// Where a seed says anything: changing a zero far from everything finds nothing.
static PLACES: LazyLock<Vec<Vec<usize>>> =
    LazyLock::new(|| SEEDS.iter().map(|(_, disk)| interesting(disk)).collect());

fn interesting(disk: &[u8]) -> Vec<usize> {
    let nonzero = disk.iter().enumerate().filter(|(_, byte)| **byte != 0);
    let near: BTreeSet<usize> =
        nonzero.flat_map(|(at, _)| [at, (at + 4).min(disk.len() - 1)]).collect();
    near.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_changed_byte_makes_it_panic_or_go_on_for_ever(
        which in 0usize..7,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut disk = SEEDS[which].1.clone();
        for (at, byte) in changes {
            disk[*at.get(&PLACES[which])] = byte;
        }
        let _ = look(&disk);
    }

    #[test]
    fn no_changed_superblock_makes_it_panic(
        which in 0usize..7,
        changes in proptest::collection::vec((0usize..0x180, any::<u8>()), 1..4),
    ) {
        let mut disk = SEEDS[which].1.clone();
        for (at, byte) in changes {
            disk[1024 + at] = byte;
        }
        let _ = look(&disk);
    }
}

#[test]
fn every_byte_of_the_superblock_can_be_anything() {
    let disk = seed("plain");
    for at in 1024..1024 + 0x110 {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = disk.clone();
            changed[at] = byte;
            let _ = look(&changed);
        }
    }
}

#[test]
fn a_cut_disk_is_read_as_far_as_it_goes() {
    for (name, disk) in SEEDS.iter() {
        for cut in (0..disk.len()).step_by(7_919) {
            let part = &disk[..cut];
            match Filesystem::open(part) {
                Ok(fs) => {
                    assert!(fs.is_cut(), "{name} at {cut}");
                    let _ = look(part);
                }
                Err(error) => assert!(matches!(error, ReadError::NotExt4), "{name}: {error}"),
            }
        }
    }
    assert!(matches!(Filesystem::open(&[][..]), Err(ReadError::NotExt4)));
}

/// Changes an entry's inode number, wherever its name is.
fn redirect(disk: &mut [u8], name: &[u8], inode: u32) {
    let at = disk
        .windows(name.len())
        .enumerate()
        .find(|(at, window)| *window == name && usize::from(disk[at - 2]) == name.len())
        .map(|(at, _)| at)
        .expect("the name is in a directory");
    disk[at - 8..at - 4].copy_from_slice(&inode.to_le_bytes());
}

#[test]
fn a_directory_in_itself_is_seen() {
    let mut disk = seed("plain");
    redirect(&mut disk, b"deep", 2);
    let error = look(&disk).unwrap_err();
    assert!(error.to_string().contains("more than one name"), "{error}");
    // A path through it is only as long as it was asked for.
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    let root = fs.root().unwrap();
    assert_eq!(fs.lookup("etc/deep/".repeat(100).as_bytes()).unwrap(), root);
    let too_long = fs.lookup("etc/deep/".repeat(6_000).as_bytes());
    assert!(matches!(too_long, Err(ReadError::TooManyLinks { .. })));
}

fn inode_of(disk: &[u8], path: &[u8]) -> Inode {
    Filesystem::open(disk).unwrap().lookup(path).unwrap()
}

/// Blocks that begin like a node of an extent tree.
fn extent_nodes(disk: &[u8]) -> Vec<usize> {
    (0..disk.len()).step_by(1024).filter(|at| disk[*at..].starts_with(&[0x0a, 0xf3])).collect()
}

fn read_all(disk: &[u8], path: &[u8]) -> Result<(), ReadError> {
    let fs = Filesystem::open(disk).unwrap();
    let inode = fs.lookup(path).unwrap();
    fs.read_file(&inode, 0..inode.size, &mut |_, _| Ok(()))
}

#[test]
fn an_extent_tree_that_leads_into_itself_is_seen() {
    let disk = seed("plain");
    read_all(&disk, b"sparse").unwrap();
    let nodes = extent_nodes(&disk);
    assert!(!nodes.is_empty(), "the sparse file has a tree");
    for node in nodes {
        // A leaf that says it is one level up: its first extent now names a node, itself.
        let mut looped = disk.clone();
        looped[node + 6] = 1;
        let own = u32::try_from(node / 1024).unwrap();
        looped[node + 16..node + 20].copy_from_slice(&own.to_le_bytes());
        let error = read_all(&looped, b"sparse").unwrap_err();
        assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
        // Two extents for one place of the file.
        let mut twice = disk.clone();
        twice.copy_within(node + 12..node + 24, node + 24);
        let error = read_all(&twice, b"sparse").unwrap_err();
        assert!(error.to_string().contains("overlap"), "{error}");
    }
}

#[test]
fn block_numbers_that_lead_into_themselves_end() {
    let mut disk = seed("ext2");
    let long = inode_of(&disk, b"etc/deep/long");
    // Its first block becomes a block of numbers that are all its own.
    let content = disk.windows(1024).position(|block| block == [b'x'; 1024]).unwrap();
    assert_eq!(content % 1024, 0);
    let own = u32::try_from(content / 1024).unwrap().to_le_bytes();
    for place in disk[content..content + 1024].chunks_mut(4) {
        place.copy_from_slice(&own);
    }
    // And the inode says 4 TiB through three levels of it.
    let inode = find_inode(&disk, &long);
    disk[inode + 0x28 + 14 * 4..inode + 0x28 + 15 * 4].copy_from_slice(&own);
    disk[inode + 0x6c..inode + 0x70].copy_from_slice(&3_u32.to_le_bytes());
    let error = read_all(&disk, b"etc/deep/long").unwrap_err();
    assert!(error.to_string().contains("more than once"), "{error}");
    look(&disk).unwrap();
}

/// One block of zeros in the place of a million: walking through it must not take a million steps
/// for each of its zeros.
#[test]
fn a_block_of_zeros_that_all_places_name_ends() {
    let mut disk = seed("ext2");
    let long = inode_of(&disk, b"etc/deep/long");
    let content = disk.windows(1024).position(|block| block == [b'x'; 1024]).unwrap();
    let number = |at: usize| u32::try_from(at / 1024).unwrap().to_le_bytes();
    // Three blocks of its content: one names nothing, and each other one names the one before it
    // everywhere.
    disk[content..content + 1024].fill(0);
    for block in [content + 1024, content + 2048] {
        for place in disk[block..block + 1024].chunks_mut(4) {
            place.copy_from_slice(&number(block - 1024));
        }
    }
    let inode = find_inode(&disk, &long);
    disk[inode + 0x28..inode + 0x28 + 60].fill(0);
    disk[inode + 0x28 + 14 * 4..inode + 0x28 + 15 * 4].copy_from_slice(&number(content + 2048));
    disk[inode + 0x6c..inode + 0x70].copy_from_slice(&3_u32.to_le_bytes());
    let (fs, mut given) = (Filesystem::open(disk.as_slice()).unwrap(), 0);
    let long = fs.lookup(b"etc/deep/long").unwrap();
    let error = fs
        .read_file(&long, 0..long.size, &mut |_, bytes| {
            given += bytes.len();
            Ok(())
        })
        .unwrap_err();
    assert!(error.to_string().contains("more than once"), "{error}");
    assert_eq!(given, 0);
}

/// Where an inode is, by its size and its mode.
fn find_inode(disk: &[u8], inode: &Inode) -> usize {
    let size = u32::try_from(inode.size).unwrap().to_le_bytes();
    let mode = (0x8000 | inode.mode).to_le_bytes();
    (0..disk.len() - 128)
        .step_by(128)
        .find(|at| disk[*at..at + 2] == mode && disk[at + 4..at + 8] == size)
        .expect("the inode is in the table")
}

#[test]
fn a_size_is_never_believed() {
    let mut disk = seed("plain");
    let inode = find_inode(&disk, &inode_of(&disk, b"etc/deep/long"));
    // Nearly all that 32 bits of blocks allow, 4 TiB, of which five thousand bytes are there.
    disk[inode + 0x6c..inode + 0x70].copy_from_slice(&0x3ff_u32.to_le_bytes());
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    let long = fs.lookup(b"etc/deep/long").unwrap();
    assert!(long.size > 3 << 40);
    let mut given = 0;
    fs.read_file(&long, 0..long.size, &mut |_, bytes| {
        given += bytes.len();
        Ok(())
    })
    .unwrap();
    assert_eq!(given, 5 * 1024);
    let mut end = [1; 10];
    assert_eq!(fs.read_file_at(&long, long.size - 4, &mut end).unwrap(), 4);
    assert_eq!(end[..4], [0; 4]);
    // One more and no file system could hold it.
    disk[inode + 0x6c..inode + 0x70].copy_from_slice(&0x400_u32.to_le_bytes());
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    assert!(matches!(fs.lookup(b"etc/deep/long"), Err(ReadError::Damaged { .. })));
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let disk = seed("plain");
    for (bit, name) in [
        (0x1_u32, "compression"),
        (0x8, "journal_dev"),
        (0x1_0000, "encrypt"),
        (1 << 30, "0x40000000"),
    ] {
        let mut changed = disk.clone();
        let incompatible = u32::from_le_bytes(disk[1024 + 0x60..][..4].try_into().unwrap());
        changed[1024 + 0x60..][..4].copy_from_slice(&(incompatible | bit).to_le_bytes());
        let error = Filesystem::open(changed.as_slice()).unwrap_err();
        assert!(matches!(error, ReadError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let mut dirty = disk;
    dirty[1024 + 0x60] |= 4;
    let fs = Filesystem::open(dirty.as_slice()).unwrap();
    assert!(fs.superblock().needs_recovery());
}

#[test]
fn a_writer_that_has_had_enough_is_told_apart_from_a_broken_disk() {
    let disk = seed("plain");
    let fs = Filesystem::open(disk.as_slice()).unwrap();
    let long = fs.lookup(b"etc/deep/long").unwrap();
    let error = fs
        .read_file(&long, 0..10, &mut |_, _| Err(std::io::ErrorKind::BrokenPipe.into()))
        .unwrap_err();
    assert!(matches!(error, ReadError::Sink { .. }));
    let wrong = fs.read_file(&fs.root().unwrap(), 0..1, &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(wrong, ReadError::WrongKind { kind: FileKind::Directory, .. }));
}
