//! What happens when it cannot be built: the right error, and nothing left behind.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use portolan_core::Digest;
use portolan_registry::ErrorClass;
use portolan_rootdisk::build::{
    BuildError, BuildOptions, Chunks, LayerSource, Phase, SourceError, Trouble, Unwatched, Watch,
    build,
};
use portolan_rootdisk::limits::Limits;

use crate::images::{GZIP, Image, PLAIN, ZSTD, count, noise, small, threads};
use crate::support::pack;
use crate::support::tarball::{Holes, Item, Tarball};

#[allow(unreachable_pub, reason = "it is public to the tests of its own crate")]
#[path = "../../../registry/tests/support/disk.rs"]
mod disk;
use crate::ext4_support::{busy, skip};

/// A good layer below a bad one.
fn refused(media_type: &str, blob: Vec<u8>, diff_id: Digest) -> BuildError {
    let good = Tarball::of([Item::file("good", noise(300_000, 9))]);
    let image = Image::default().with(GZIP, &good).with_blob(media_type, blob, diff_id);
    let dir = tempfile::tempdir().unwrap();
    let error = image.build(dir.path(), small()).unwrap_err();
    assert_eq!(count(dir.path()), 0, "nothing is left");
    error
}

fn chain(error: &BuildError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[test]
fn a_layer_that_is_not_its_diff_id_is_refused() {
    let tar = Tarball::of([Item::file("f", "x")]);
    let error = refused(GZIP, pack::gzip(&tar), Digest::sha256(b"other"));
    assert!(matches!(error, BuildError::DiffIdMismatch { layer: 1, .. }), "{error}");
    assert_eq!(error.trouble(), Trouble::Pull);
}

#[test]
fn cut_and_damaged_streams_are_refused() {
    let tar = Tarball::of([Item::file("f", noise(500_000, 1)), Item::file("g", "end")]);
    let diff_id = Digest::sha256(&tar);
    for (media_type, whole) in [(GZIP, pack::gzip(&tar)), (ZSTD, pack::zstd(&tar))] {
        for cut in [10, 20, whole.len() / 2, whole.len() - 1] {
            let error = refused(media_type, whole[..cut].to_vec(), diff_id);
            assert!(matches!(error, BuildError::Unpack { layer: 1, .. }), "cut at {cut}: {error}");
            assert!(chain(&error).contains("stream is cut off"), "{}", chain(&error));
        }
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 0x10;
        let error = refused(media_type, damaged, diff_id);
        assert!(matches!(error.trouble(), Trouble::Image | Trouble::Pull), "{}", chain(&error));
    }
    let cut = &tar[..100_000];
    let error = refused(PLAIN, cut.to_vec(), Digest::sha256(cut));
    assert!(matches!(error, BuildError::Tar { layer: 1, .. }), "{error}");
}

#[test]
fn an_unknown_layer_type_is_refused() {
    let error = refused("application/vnd.example.cake", b"x".to_vec(), Digest::sha256(b"x"));
    assert!(matches!(error, BuildError::Unpack { layer: 1, .. }), "{error}");
    assert!(chain(&error).contains("application/vnd.example.cake"), "{}", chain(&error));
}

/// Layers of which one fails after its first piece, and others that wait until they are stopped.
struct Failing {
    image: Image,
    stopped: std::sync::Mutex<bool>,
    bell: std::sync::Condvar,
}

struct Fails(Option<Bytes>);

impl Chunks for Fails {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        match self.0.take() {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(SourceError::new(ErrorClass::Transport, "the line was cut")),
        }
    }
}

struct Waits(Arc<Failing>);

impl Chunks for Waits {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let mut stopped = self.0.stopped.lock().unwrap();
        while !*stopped {
            stopped = self.0.bell.wait(stopped).unwrap();
        }
        Err(SourceError::cancelled())
    }
}

struct Source(Arc<Failing>);

impl LayerSource for Source {
    fn open(&self, layer: usize) -> Result<Box<dyn Chunks>, SourceError> {
        Ok(match layer {
            1 => Box::new(Fails(Some(self.0.image.blobs[1].slice(..1000)))),
            _ => Box::new(Waits(Arc::clone(&self.0))),
        })
    }

    fn stop(&self) {
        *self.0.stopped.lock().unwrap() = true;
        self.0.bell.notify_all();
    }
}

#[test]
fn one_lost_layer_ends_the_others_that_wait() {
    let layer = |seed| Tarball::of([Item::file("f", noise(100_000, seed))]);
    let image = Image::default().with(GZIP, &layer(1)).with(GZIP, &layer(2)).with(GZIP, &layer(3));
    let request = image.request(small());
    let failing = Failing { image, stopped: std::sync::Mutex::default(), bell: Default::default() };
    let source = Source(Arc::new(failing));
    let dir = tempfile::tempdir().unwrap();
    let watch: Arc<dyn Watch> = Arc::new(Unwatched);
    let error = build(&request, &source, dir.path(), &watch).unwrap_err();
    assert!(matches!(error, BuildError::Source { layer: 1, .. }), "{error}");
    assert_eq!(error.trouble(), Trouble::Pull);
    assert_eq!(count(dir.path()), 0);
}

/// Layers that both fail to be written, of which the first to end waits for the other. Whoever
/// ended first is then heard last.
struct Overtaken {
    image: Image,
    ended: Arc<AtomicU64>,
}

struct EndsLate {
    chunks: Box<dyn Chunks>,
    ended: Arc<AtomicU64>,
}

impl Chunks for EndsLate {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.chunks.next()
    }
}

impl Drop for EndsLate {
    fn drop(&mut self) {
        if self.ended.fetch_add(1, Ordering::SeqCst) == 0 {
            let patience = Instant::now();
            while self.ended.load(Ordering::SeqCst) < 2 && patience.elapsed().as_secs() < 10 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl LayerSource for Overtaken {
    fn open(&self, layer: usize) -> Result<Box<dyn Chunks>, SourceError> {
        let chunks = self.image.open(layer)?;
        Ok(Box::new(EndsLate { chunks, ended: Arc::clone(&self.ended) }))
    }
}

#[test]
fn a_full_disk_is_told_whichever_layer_is_heard_first() {
    let layer = |seed| Tarball::of([Item::file("f", noise(30 << 20, seed))]);
    let image = Image::default().with(PLAIN, &layer(1)).with(PLAIN, &layer(2));
    let Some(mount) = disk::Mount::tmpfs(1 << 20) else { return };
    let request = image.request(BuildOptions { direct_io: false, ..threads(2) });
    let source = Overtaken { image, ended: Arc::default() };
    let watch: Arc<dyn Watch> = Arc::new(Unwatched);
    let error = build(&request, &source, &mount.join("tmp"), &watch).unwrap_err();
    assert_eq!(error.trouble(), Trouble::DiskFull, "{}", chain(&error));
}

/// One layer's source panics; the other waits until it is stopped.
struct Panics(Source);

impl LayerSource for Panics {
    fn open(&self, layer: usize) -> Result<Box<dyn Chunks>, SourceError> {
        assert_ne!(layer, 1, "this source panics");
        self.0.open(layer)
    }

    fn stop(&self) {
        self.0.stop();
    }
}

#[test]
fn a_panic_in_a_layer_ends_the_build_and_is_no_wait_for_ever() {
    let layer = |seed| Tarball::of([Item::file("f", noise(100_000, seed))]);
    let image = Image::default().with(GZIP, &layer(1)).with(GZIP, &layer(2));
    let request = image.request(threads(2));
    let failing = Failing { image, stopped: std::sync::Mutex::default(), bell: Default::default() };
    let source = Panics(Source(Arc::new(failing)));
    let dir = tempfile::tempdir().unwrap();
    let tmp = dir.path().join("tmp");
    let (done, ended) = std::sync::mpsc::channel();
    let builder = std::thread::spawn({
        let tmp = tmp.clone();
        move || {
            // Told when it is dropped, by a panic or otherwise.
            let _done = done;
            let watch: Arc<dyn Watch> = Arc::new(Unwatched);
            build(&request, &source, &tmp, &watch)
        }
    });
    let disconnected = Err(std::sync::mpsc::RecvTimeoutError::Disconnected);
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), disconnected as Result<(), _>);
    assert!(builder.join().is_err(), "the panic is not hidden");
    assert_eq!(count(&tmp), 0, "nothing is left");
}

/// Gives up after so many questions, or in this phase.
struct Impatient {
    left: AtomicU64,
    phase: Option<Phase>,
}

impl Watch for Impatient {
    fn phase(&self, phase: Phase) {
        if self.phase == Some(phase) {
            self.left.store(0, Ordering::Relaxed);
        }
    }

    fn cancelled(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }
}

#[test]
fn a_build_that_is_given_up_leaves_nothing() {
    let layer = |seed| Tarball::of([Item::file("f", noise(2_000_000, seed))]);
    let image = Image::default().with(GZIP, &layer(1)).with(PLAIN, &layer(2));
    let dir = tempfile::tempdir().unwrap();
    let never = u64::MAX;
    for (left, phase) in [(0, None), (3, None), (9, None), (never, Some(Phase::Filesystem))] {
        let watch: Arc<dyn Watch> = Arc::new(Impatient { left: left.into(), phase });
        let error = build(&image.request(small()), &image, dir.path(), &watch).unwrap_err();
        assert!(matches!(error, BuildError::Cancelled), "after {left}: {error}");
        assert_eq!(error.trouble(), Trouble::Cancelled);
        assert_eq!(count(dir.path()), 0, "after {left}");
    }
}

fn limited(limits: Limits) -> BuildError {
    let tar = Tarball::of([Item::file("f", noise(6 << 20, 1))]);
    let image = Image::default().with(PLAIN, &tar).with(PLAIN, &tar);
    let dir = tempfile::tempdir().unwrap();
    let error = image.build(dir.path(), BuildOptions { limits, ..small() }).unwrap_err();
    assert_eq!(count(dir.path()), 0);
    assert_eq!(error.trouble(), Trouble::Image, "{error}");
    error
}

#[test]
fn virtual_and_allocated_size_are_capped() {
    let error = limited(Limits { max_virtual_bytes: 40 << 20, ..Limits::default() });
    assert!(matches!(error, BuildError::TooLarge(_)), "{error}");
    assert!(chain(&error).contains("more than the 41943040 it may have"), "{}", chain(&error));
    let error = limited(Limits { max_allocated_bytes: 8 << 20, ..Limits::default() });
    assert!(matches!(error, BuildError::TooMuchData { .. }), "{error}");
    let error = limited(Limits { max_layer_bytes: 1 << 20, ..Limits::default() });
    assert!(chain(&error).contains("max_layer_bytes"), "{}", chain(&error));
}

#[test]
fn a_smallest_size_above_the_largest_is_refused_before_any_layer() {
    let image = Image::default().with_blob(GZIP, b"not read".to_vec(), Digest::sha256(b""));
    let dir = tempfile::tempdir().unwrap();
    for min_bytes in [1 << 40, u64::MAX] {
        let error = image.build(dir.path(), BuildOptions { min_bytes, ..small() }).unwrap_err();
        assert!(matches!(error, BuildError::TooLarge(_)), "{}", chain(&error));
        assert!(chain(&error).contains("`max_virtual_bytes`"), "{}", chain(&error));
    }
}

/// A byte in each 32 KiB: a tar of kilobytes, a disk of megabytes.
#[test]
fn a_map_of_holes_is_no_way_round_the_ratio() {
    let pieces: Vec<(u64, u64)> = (0..2000).map(|n| (n << 15, 1)).collect();
    let bytes = vec![1; pieces.len()];
    let tar = Tarball::of([Item::sparse("f", Holes::Pax10, &pieces, bytes, 2000 << 15)]);
    let image = Image::default().with(GZIP, &tar);
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { ratio_floor_bytes: 4 << 20, ..Limits::default() };
    let built = |limits| image.build(dir.path(), BuildOptions { limits, ..small() });
    let error = built(limits.clone()).unwrap_err();
    assert!(matches!(error, BuildError::Unpack { layer: 0, .. }), "{}", chain(&error));
    assert!(chain(&error).contains("takes on the disk"), "{}", chain(&error));
    assert!(chain(&error).contains("raise `max_ratio`"), "{}", chain(&error));
    assert_eq!(built(Limits { max_ratio: 0, ..limits }).unwrap().stats.data_bytes, 2000 << 15);
}

#[test]
fn a_full_disk_is_told_as_such_at_every_stage() {
    let layer = |seed| {
        let mut tar = Tarball::new().add(Item::file("f", noise(2 << 20, seed)));
        for number in 0..2000 {
            tar = tar.add(Item::symlink(format!("links-{seed}/{number}"), noise(80, seed)));
        }
        tar.finish()
    };
    let image = Image::default().with(GZIP, &layer(1)).with(ZSTD, &layer(2));
    // From "not one block" over "not all data" to "not all metadata".
    for kib in [4, 512, 2048, 3 << 10, 4608] {
        let Some(mount) = disk::Mount::tmpfs(kib << 10) else { return };
        let dir = mount.join("tmp");
        std::fs::create_dir(&dir).unwrap();
        for direct_io in [true, false] {
            let error = image.build(&dir, BuildOptions { direct_io, ..small() }).unwrap_err();
            assert_eq!(error.trouble(), Trouble::DiskFull, "{kib} KiB: {}", chain(&error));
            assert_eq!(count(&dir), 0, "{kib} KiB");
        }
    }
    let Some(mount) = disk::Mount::tmpfs(64 << 20) else { return };
    drop(image.build(&mount.join("tmp"), small()).unwrap());
    mount.make_read_only();
    let error = image.build(&mount.join("tmp"), small()).unwrap_err();
    assert_eq!(error.trouble(), Trouble::Local, "read-only is not full: {}", chain(&error));
}

#[test]
fn a_directory_that_cannot_be_written_is_no_full_disk() {
    let image = Image::default().with(GZIP, &Tarball::of([]));
    let error = image.build(Path::new("/proc/none"), small()).unwrap_err();
    assert!(matches!(error, BuildError::Io { .. }), "{error}");
    assert_eq!(error.trouble(), Trouble::Local);
}
