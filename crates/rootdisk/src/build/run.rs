//! All of it together: layers side by side, then one tree, then the file system.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::layer::{Done, Shared};
use super::sink::MetadataSink;
use super::{BuildError, Built, LayerSource, Phase, Request, Stats, Watch, identity, verity};
use crate::disk::{CHUNK_BLOCKS, Disk, Writers};
use crate::ext4;
use crate::limits::Budget;
use crate::merge::{Merged, Merger};
use crate::meta::{FilesystemType, Metadata, ROOTDISK_FORMAT_VERSION, rootdisk_key};
use crate::region::{self, Plan};
use crate::tree::{Kind, Run, Tree};
use crate::verity::{Params, Verity};

/// How many layers are at work at a time unless somebody says it, where there are so many: as
/// many as there are processors, within these. A thread that waits for the network costs nothing,
/// and a slow registry is faster asked for several blobs at once; but each may hold a dozen MiB,
/// and what a build takes must not grow with the machine.
const WORKERS: std::ops::RangeInclusive<usize> = 4..=8;

/// Threads that write. They wait for the disk most of the time.
const WRITERS: usize = 2;

/// Chunks that wait to be written, beside the one that each layer fills.
const QUEUE: usize = 8;

/// How often a build that waits for layers asks whether it is still wanted.
const PULSE: Duration = Duration::from_millis(50);

/// Builds a disk in a temp file in `temp_dir`, which must be on the file system of its final
/// place. Takes the calling thread and others until it is done; nothing stays when it fails.
///
/// The bytes depend on the layers and on the options that say so, on nothing else: not on
/// threads, on time, or on how the file was written.
pub fn build(
    request: &Request,
    source: &dyn LayerSource,
    temp_dir: &Path,
    watch: &Arc<dyn Watch>,
) -> Result<Built, BuildError> {
    let stop = Arc::new(AtomicBool::new(false));
    let result = Build { request, source, watch, stop, began: Instant::now() }.run(temp_dir);
    if result.is_err() {
        source.stop();
    }
    result
}

struct Build<'a> {
    request: &'a Request,
    source: &'a dyn LayerSource,
    watch: &'a Arc<dyn Watch>,
    /// Set at the first failure.
    stop: Arc<AtomicBool>,
    began: Instant,
}

/// What the layers came to.
struct Unpacked {
    merged: Merged,
    /// The first block behind all data.
    end: u32,
    stats: Stats,
}

impl Build<'_> {
    fn phase(&self, phase: Phase) {
        let digest = &self.request.resolved_digest;
        tracing::debug!(resolved_digest = %digest, ?phase, after = ?self.began.elapsed(), "build");
        self.watch.phase(phase);
    }

    fn run(&self, temp_dir: &Path) -> Result<Built, BuildError> {
        let Request { resolved_digest, layers, options } = self.request;
        let limits = &options.limits;
        let max_bytes = limits.max_virtual_bytes.min(ext4::MAX_BYTES);
        if options.min_bytes > max_bytes {
            return Err(region::TooLarge { needed: options.min_bytes, max: max_bytes }.into());
        }
        let sizes: Vec<u64> = layers.iter().map(|layer| layer.descriptor.size).collect();
        let plan = Plan::new(ext4::FIRST_DATA_BLOCK, &sizes, max_bytes)?;
        let disk = Disk::create(temp_dir, options.direct_io)?;
        self.phase(Phase::Layers);
        let Unpacked { merged, end, mut stats } = self.unpack(&plan, &disk)?;

        self.phase(Phase::Filesystem);
        let Merged { tree, losers, .. } = merged;
        stats.lost_bytes = losers.iter().map(Run::bytes).sum();
        disk.lose(&losers, &|| self.watch.cancelled())?;
        drop(losers);
        let (uuid, hash_seed) = identity::of(resolved_digest);
        let first_free = end.max(ext4::FIRST_DATA_BLOCK).next_multiple_of(CHUNK_BLOCKS);
        let options = ext4::Options {
            uuid,
            hash_seed,
            read_only: true,
            first_free,
            min_bytes: options.min_bytes,
            headroom_percent: options.headroom_percent.saturating_add(100),
            max_bytes,
            min_inodes: 0,
        };
        let geometry = self.write(&tree, &options, &disk)?;
        stats.dropped_xattrs = geometry.dropped_xattrs;
        if stats.dropped_xattrs > 0 {
            let count = stats.dropped_xattrs;
            tracing::warn!(resolved_digest = %resolved_digest, count, "extended attributes that Linux has no place for were left out");
        }
        let files = files(&tree);
        drop(tree);
        let verity = match self.request.options.verity {
            true => Some(self.verity(&geometry, uuid, &disk)?),
            false => None,
        };

        self.phase(Phase::Flush);
        stats.direct = disk.is_direct();
        let (disk, checksum, allocated_bytes) = disk.finish()?;
        tracing::debug!(resolved_digest = %resolved_digest, ?stats, after = ?self.began.elapsed(), "built");
        let size_bytes = verity.as_ref().map_or(geometry.size_bytes, |tree| tree.size_bytes);
        let metadata = Metadata {
            resolved_digest: *resolved_digest,
            rootdisk_key: rootdisk_key(resolved_digest, ROOTDISK_FORMAT_VERSION),
            rootdisk_format_version: ROOTDISK_FORMAT_VERSION.to_owned(),
            build_timestamp: jiff::Timestamp::now(),
            filesystem_type: FilesystemType::Ext4,
            size_bytes,
            allocated_bytes,
            checksum,
            layers: u32::try_from(layers.len()).expect("a manifest of 4 MiB has fewer layers"),
            files,
            inodes: u64::from(geometry.used_inodes),
            verity: verity.map(|tree| verity::described(&tree)),
        };
        Ok(Built { disk, metadata, stats })
    }

    /// Brings all layers in and merges them.
    fn unpack(&self, plan: &Plan, disk: &Disk) -> Result<Unpacked, BuildError> {
        disk.reach(u64::from(plan.end_of_regions()) * crate::tree::BLOCK as u64)?;
        let Request { layers, options, .. } = self.request;
        let workers = workers(options.threads).min(layers.len());
        let writers = Writers::new(disk, workers + QUEUE);
        let budget = Arc::new(Budget::with_cancel(options.limits.clone(), {
            let (watch, stop) = (Arc::clone(self.watch), Arc::clone(&self.stop));
            move || stop.load(Ordering::Relaxed) || watch.cancelled()
        }));
        let shared = Shared {
            layers,
            source: self.source,
            watch: &**self.watch,
            budget,
            plan,
            disk,
            writers: &writers,
            stop: &self.stop,
            data: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            processors: options.threads.map_or_else(processors, NonZeroUsize::get),
        };
        // Largest first: what is left for the end is then short, whoever takes it.
        let mut order: Vec<usize> = (0..layers.len()).collect();
        order.sort_by_key(|layer| std::cmp::Reverse(layers[*layer].descriptor.size));
        let next = AtomicUsize::new(0);
        let (sender, results) = mpsc::channel();
        let unpacked = std::thread::scope(|scope| {
            // The scope waits for all threads, and they must not wait for one that panicked.
            let _end = (OrGiveUp(self), CloseAtEnd(&writers));
            for _ in 0..WRITERS {
                scope.spawn(|| writers.run());
            }
            for _ in 0..workers {
                let (sender, order, next, shared) = (sender.clone(), &order, &next, &shared);
                scope.spawn(move || {
                    let _end = OrGiveUp(self);
                    while let Some(layer) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // Who no longer listens has another error already.
                        let _ = sender.send((*layer, shared.layer(*layer)));
                    }
                });
            }
            drop(sender);
            let merged = self.merge(&shared, &results);
            if merged.is_err() {
                self.give_up();
            }
            // Those who still wait for a buffer must get one, so the writers end last.
            let rest = results.into_iter().count();
            debug_assert!(merged.is_err() || rest == 0);
            merged
        });
        // Layers only know that writing failed, and the last may have ended before it did.
        match (unpacked, writers.failure()) {
            (_, Some(failure)) => Err(failure),
            (unpacked, None) => unpacked,
        }
    }

    /// Whoever still works on a layer, or waits for one, should end.
    fn give_up(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.source.stop();
    }

    /// Takes layers as they are done, and merges them in their own order.
    fn merge(
        &self,
        shared: &Shared<'_>,
        results: &Receiver<(usize, Result<Done, BuildError>)>,
    ) -> Result<Unpacked, BuildError> {
        let mut merger = Merger::new(Arc::clone(&shared.budget));
        let mut end = 0;
        let mut stats = Stats::default();
        for _ in &self.request.layers {
            let (layer, done) = self.next(shared, results)?;
            let done = done?;
            end = end.max(done.end);
            stats.blob_bytes += done.blob_bytes;
            stats.tar_bytes += done.tar_bytes;
            stats.entries += done.index.entries.len() as u64;
            merger.submit(layer, done.index)?;
        }
        let merged = merger.finish()?;
        stats.data_bytes = shared.data.load(Ordering::Relaxed);
        Ok(Unpacked { merged, end, stats })
    }

    fn next(
        &self,
        shared: &Shared<'_>,
        results: &Receiver<(usize, Result<Done, BuildError>)>,
    ) -> Result<(usize, Result<Done, BuildError>), BuildError> {
        loop {
            match results.recv_timeout(PULSE) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => shared.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("each layer sends its result, or panics, and then so do we")
                }
            }
        }
    }

    /// Writes the file system round the data.
    fn write(
        &self,
        tree: &Tree,
        options: &ext4::Options,
        disk: &Disk,
    ) -> Result<ext4::Geometry, BuildError> {
        let cancelled = || self.watch.cancelled();
        let mut sink = MetadataSink::new(disk, &cancelled);
        let geometry = match ext4::write(tree, options, &mut sink) {
            Ok(geometry) => geometry,
            Err(source) => {
                return Err(sink.failure().unwrap_or(BuildError::Filesystem { source }));
            }
        };
        disk.set_size(geometry.size_bytes)?;
        sink.finish()?;
        Ok(geometry)
    }

    /// Puts the hash tree behind the file system.
    fn verity(
        &self,
        geometry: &ext4::Geometry,
        uuid: [u8; 16],
        disk: &Disk,
    ) -> Result<Verity, BuildError> {
        self.phase(Phase::Verity);
        let salt = identity::salt(&self.request.resolved_digest);
        let params = Params { data_blocks: geometry.blocks, uuid, salt };
        verity::append(params, disk, &|| self.watch.cancelled())
    }
}

/// Gives the build up when its thread panics.
struct OrGiveUp<'a>(&'a Build<'a>);

impl Drop for OrGiveUp<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up();
        }
    }
}

/// Lets the writers end, whatever else happens.
struct CloseAtEnd<'a>(&'a Writers<'a>);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// How many layers are at work at a time.
fn workers(wanted: Option<NonZeroUsize>) -> usize {
    wanted.map_or_else(|| processors().clamp(*WORKERS.start(), *WORKERS.end()), NonZeroUsize::get)
}

/// Regular files that a name leads to.
fn files(tree: &Tree) -> u64 {
    let mut seen = vec![false; tree.nodes.len()];
    let mut open = vec![Tree::ROOT];
    let mut files = 0;
    while let Some(id) = open.pop() {
        if std::mem::replace(&mut seen[id.0 as usize], true) {
            continue;
        }
        match &tree.node(id).kind {
            Kind::Directory(names) => open.extend(names.values()),
            Kind::File(_) => files += 1,
            _ => {}
        }
    }
    files
}
