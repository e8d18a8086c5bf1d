//! What comes out.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portolan_rootdisk::build::{BuildOptions, Phase, Unwatched, Watch, build};
use portolan_rootdisk::checksum;
use portolan_rootdisk::meta::ROOTDISK_FORMAT_VERSION;

use crate::ext4_support::fsck;
use crate::images::{GZIP, Image, PLAIN, ZSTD, count, noise, same, small, threads, tree};
use crate::support::tarball::{Holes, Item, Tarball};

/// Three layers that touch each other in every way that moves data.
fn image() -> Image {
    let big = noise(3_000_000, 1);
    let mut base = Tarball::new()
        .add(Item::directory("etc").mode(0o700))
        .add(Item::file("etc/motd", "hello"))
        .add(Item::file("big", &big))
        .add(Item::symlink("link", "etc/motd"));
    for number in 0..300 {
        base = base.add(Item::file(format!("many/{number}"), noise(number * 50, 2)));
    }
    let middle = Tarball::new()
        .add(Item::whiteout("big"))
        .add(Item::file("etc/motd", "changed"))
        .add(Item::file("zeros", vec![0; 200_000]))
        .add(Item::hardlink("again", "etc/motd"))
        .add(Item::file("huge", noise(5_000_000, 3)));
    let top = Tarball::new()
        .add(Item::opaque("many"))
        .add(Item::file("many/one", "left"))
        .add(Item::sparse("sparse", Holes::Pax10, &[(6 << 30, 3)], "end", (6 << 30) + 3));
    Image::default()
        .with(GZIP, &base.finish())
        .with(ZSTD, &middle.finish())
        .with(PLAIN, &top.finish())
}

#[test]
fn a_disk_holds_what_the_layers_say_and_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let built = image().build(dir.path(), small()).unwrap();
    let disk = dir.path().join("disk.ext4");
    built.disk.rename(&disk).unwrap();
    fsck(&disk);
    let found = tree(&disk);
    let names: BTreeSet<_> = found.keys().map(String::as_str).collect();
    let expected =
        ["again", "etc", "etc/motd", "huge", "link", "many", "many/one", "sparse", "zeros"];
    assert_eq!(names, BTreeSet::from(expected));
    assert_eq!(found["etc"], "dir 700");
    assert_eq!(found["etc/motd"], "file changed");
    assert_eq!(found["again"], "file changed");
    assert_eq!(found["link"], "link etc/motd");
    assert_eq!(found["many/one"], "file left");
    assert_eq!(found["sparse"], format!("sparse {} end", (6_u64 << 30) + 3));

    let metadata = built.metadata;
    let file = std::fs::metadata(&disk).unwrap();
    assert_eq!(metadata.size_bytes, file.len());
    assert_eq!(metadata.allocated_bytes, file.blocks() * 512);
    assert_eq!(metadata.checksum, checksum::of_file(&disk).unwrap());
    assert_eq!((metadata.layers, metadata.files), (3, 5), "two names are one file");
    assert_eq!(metadata.rootdisk_format_version, ROOTDISK_FORMAT_VERSION);
    assert_eq!(metadata.verity, None);
    assert!(built.stats.lost_bytes > 3_000_000, "{:?}", built.stats);
    assert!(metadata.allocated_bytes < 8_000_000, "what lost takes no room: {metadata:?}");
}

#[test]
fn threads_and_ways_of_writing_do_not_change_a_byte() {
    let image = image();
    let dir = tempfile::tempdir().unwrap();
    let first = image.build(dir.path(), threads(1)).unwrap();
    let buffered = |threads| BuildOptions { direct_io: false, ..threads };
    for options in [threads(2), threads(7), buffered(threads(1)), buffered(threads(3)), small()] {
        let built = image.build(dir.path(), options.clone()).unwrap();
        assert_eq!(built.metadata.checksum, first.metadata.checksum, "{options:?}");
        assert_eq!(checksum::of_file(built.disk.path()).unwrap(), first.metadata.checksum);
        assert!(same(built.disk.path(), first.disk.path()), "{options:?}");
    }
}

#[test]
fn another_digest_is_another_disk_in_its_uuid_and_nothing_else_of_size() {
    let dir = tempfile::tempdir().unwrap();
    let image = image();
    let watch: Arc<dyn Watch> = Arc::new(Unwatched);
    let one = build(&image.request(small()), &image, dir.path(), &watch).unwrap();
    let mut request = image.request(small());
    request.resolved_digest = portolan_core::Digest::sha256(b"another manifest");
    let two = build(&request, &image, dir.path(), &watch).unwrap();
    assert_eq!(one.metadata.size_bytes, two.metadata.size_bytes);
    assert_ne!(one.metadata.checksum, two.metadata.checksum);
    assert_ne!(one.metadata.rootdisk_key, two.metadata.rootdisk_key);
}

#[test]
fn layers_that_inflate_far_more_than_four_times_overflow_into_arenas() {
    // Text that gzip makes a hundredth of, but no zeros.
    let lines = |seed: u8| -> Vec<u8> {
        let line = noise(3000, seed);
        line.iter().copied().cycle().take(9 << 20).collect()
    };
    let image = Image::default()
        .with(GZIP, &Tarball::of([Item::file("a", lines(1))]))
        .with(GZIP, &Tarball::of([Item::file("b", lines(2))]))
        .with(GZIP, &Tarball::of([Item::file("c", "small")]));
    let dir = tempfile::tempdir().unwrap();
    let mut sums = Vec::new();
    for count in [1, 3] {
        let built = image.build(dir.path(), threads(count)).unwrap();
        let disk = dir.path().join(format!("{count}.ext4"));
        built.disk.rename(&disk).unwrap();
        fsck(&disk);
        let found = tree(&disk);
        for (name, seed) in [("a", 1), ("b", 2)] {
            let digest = portolan_core::Digest::sha256(&lines(seed));
            assert_eq!(found[name], format!("file {digest}"));
        }
        assert_eq!(found["c"], "file small");
        assert!(built.metadata.allocated_bytes < 20 << 20, "arenas are sparse");
        sums.push(built.metadata.checksum);
    }
    assert_eq!(sums[0], sums[1]);
}

#[test]
fn no_layers_and_empty_layers_make_an_empty_root() {
    let dir = tempfile::tempdir().unwrap();
    let empty = Image::default().with(GZIP, &Tarball::of([])).with(PLAIN, b"");
    for (number, image) in [Image::default(), empty].iter().enumerate() {
        let built = image.build(dir.path(), BuildOptions::default()).unwrap();
        let disk = dir.path().join(format!("{number}.ext4"));
        built.disk.rename(&disk).unwrap();
        fsck(&disk);
        assert!(tree(&disk).is_empty());
        assert_eq!(built.metadata.size_bytes, 512 << 20, "the smallest size");
        assert!(built.metadata.allocated_bytes < 1 << 20);
    }
}

#[test]
fn the_size_is_the_largest_of_minimum_and_use_with_headroom() {
    let dir = tempfile::tempdir().unwrap();
    let tar = Tarball::of([Item::file("f", noise(40 << 20, 1))]);
    let image = Image::default().with(PLAIN, &tar);
    let size = |min_bytes: u64, headroom_percent| {
        let options = BuildOptions { min_bytes, headroom_percent, ..small() };
        image.build(dir.path(), options).unwrap().metadata.size_bytes
    };
    assert_eq!(size(1 << 30, 0), 1 << 30);
    let bare = size(0, 0);
    assert!(bare > 40 << 20 && bare < 60 << 20, "{bare}");
    assert!(size(0, 100) >= 80 << 20);
}

#[test]
fn progress_counts_every_byte_and_entry_once() {
    #[derive(Default)]
    struct Counts {
        bytes: AtomicU64,
        files: AtomicU64,
        layers: AtomicU64,
        phases: std::sync::Mutex<Vec<Phase>>,
    }
    impl Watch for Counts {
        fn bytes(&self, _layer: usize, more: u64) {
            self.bytes.fetch_add(more, Ordering::Relaxed);
        }
        fn files(&self, more: u64) {
            self.files.fetch_add(more, Ordering::Relaxed);
        }
        fn layer_done(&self, layer: usize) {
            self.layers.fetch_add(1 << (8 * layer), Ordering::Relaxed);
        }
        fn phase(&self, phase: Phase) {
            self.phases.lock().unwrap().push(phase);
        }
    }
    let image = image();
    let dir = tempfile::tempdir().unwrap();
    let counts = Arc::new(Counts::default());
    let watch: Arc<dyn Watch> = counts.clone();
    let built = build(&image.request(small()), &image, dir.path(), &watch).unwrap();
    let sizes: u64 = image.layers.iter().map(|layer| layer.descriptor.size).sum();
    assert_eq!(counts.bytes.load(Ordering::Relaxed), sizes);
    assert_eq!(built.stats.blob_bytes, sizes);
    assert_eq!(counts.files.load(Ordering::Relaxed), 304 + 5 + 3);
    assert_eq!(built.stats.entries, 304 + 5 + 3);
    assert_eq!(counts.layers.load(Ordering::Relaxed), 0x01_01_01);
    assert_eq!(*counts.phases.lock().unwrap(), [Phase::Layers, Phase::Filesystem, Phase::Flush]);
    drop(built);
    assert_eq!(count(dir.path()), 0, "a disk that nobody renames is gone");
}
