//! The limit: what any builder of root disks must do at least. Inflate all layers in parallel,
//! hash both sides, write as many bytes as survive, fsync. No tar, no merge, no file system.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};
use flate2::bufread::MultiGzDecoder;
use portolan_core::{Algorithm, Digest, Hasher};
use rustix::fs::OFlags;

const MIB: usize = 1 << 20;
/// What O_DIRECT asks of addresses, offsets and lengths.
const ALIGN: usize = 4096;

/// One layer to be inflated and written at a place of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) blob: PathBuf,
    pub(crate) at: u64,
    /// How much of it survives.
    pub(crate) write: u64,
}

/// Shares the surviving bytes among layers by size and gives each its place, largest first.
pub(crate) fn plan(layers: &[(PathBuf, u64)], surviving: u64) -> Vec<Job> {
    let total: u64 = layers.iter().map(|(_, size)| size).sum();
    let mut sorted: Vec<_> = layers.iter().collect();
    sorted.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    let mut at = 0;
    let jobs = sorted.into_iter().map(|(blob, size)| {
        let share = u128::from(*size) * u128::from(surviving) / u128::from(total.max(1));
        let job = Job { blob: blob.clone(), at, write: u64::try_from(share).unwrap_or(*size) };
        at += job.write.next_multiple_of(MIB as u64);
        job
    });
    jobs.collect()
}

/// Does it, on all cores.
pub(crate) fn run(jobs: &[Job], out: &Path) -> Result<()> {
    let file = create(out)?;
    let queue = Mutex::new(jobs.iter().collect::<VecDeque<_>>());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let next = queue.lock().expect("no worker panics").pop_front();
                let Some(job) = next else { return Ok(()) };
                one(job, &file).with_context(|| format!("layer {}", job.blob.display()))?;
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    file.sync_all().context("fsync")
}

/// Past the page cache where the file system can, as the product does.
fn create(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    let direct = i32::try_from(OFlags::DIRECT.bits()).context("a flag")?;
    options
        .clone()
        .custom_flags(direct)
        .open(path)
        .or_else(|_| options.open(path))
        .with_context(|| format!("create {}", path.display()))
}

fn one(job: &Job, out: &File) -> Result<()> {
    let blob = File::open(&job.blob)?;
    let mut hashed = BufReader::with_capacity(MIB, Hashed::new(blob));
    let magic: [u8; 4] = {
        let start = hashed.fill_buf()?;
        start.get(..4).context("an empty blob")?.try_into()?
    };
    let (inside, mut rest) = if magic.starts_with(&[0x1f, 0x8b]) {
        let mut decoder = MultiGzDecoder::new(hashed);
        (copy(&mut decoder, job, out)?, decoder.into_inner())
    } else if magic == [0x28, 0xb5, 0x2f, 0xfd] {
        let mut decoder = zstd::Decoder::with_buffer(hashed)?;
        (copy(&mut decoder, job, out)?, decoder.finish())
    } else {
        bail!("neither gzip nor zstd");
    };
    std::io::copy(&mut rest, &mut std::io::sink())?;
    // Both digests are made; which they should be is known to those who ask for the image.
    let packed = rest.into_inner().hasher.finish();
    anyhow::ensure!(packed != inside, "a layer that is its own contents");
    Ok(())
}

/// Inflates, hashes and writes the share; the digest of what is inside.
fn copy(from: &mut impl Read, job: &Job, out: &File) -> Result<Digest> {
    let mut hasher = Hasher::new(Algorithm::Sha256);
    let mut memory = vec![0; MIB + ALIGN];
    let start = memory.as_ptr().align_offset(ALIGN);
    let buffer = &mut memory[start..start + MIB];
    let (mut at, end) = (job.at, job.at + job.write);
    loop {
        let mut filled = 0;
        while filled < MIB {
            match from.read(&mut buffer[filled..])? {
                0 => break,
                got => filled += got,
            }
        }
        if filled == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(&buffer[..filled]);
        if at < end {
            let left = usize::try_from(end - at)?.next_multiple_of(ALIGN);
            let length = filled.next_multiple_of(ALIGN).min(left);
            out.write_all_at(&buffer[..length], at)?;
            at += length as u64;
        }
    }
}

/// Hashes what passes.
struct Hashed {
    from: File,
    hasher: Hasher,
}

impl Hashed {
    fn new(from: File) -> Self {
        Self { from, hasher: Hasher::new(Algorithm::Sha256) }
    }
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let got = self.from.read(buffer)?;
        self.hasher.update(&buffer[..got]);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn shares_do_not_overlap_and_add_up() {
        let layers = [("a".into(), 10 << 20), ("b".into(), 30 << 20)];
        let jobs = plan(&layers, 20 << 20);
        assert_eq!(jobs[0], Job { blob: "b".into(), at: 0, write: 15 << 20 });
        assert_eq!(jobs[1], Job { blob: "a".into(), at: 15 << 20, write: 5 << 20 });
    }

    #[test]
    fn it_writes_what_is_inside_both_kinds_of_layers() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..3_000_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&bytes).unwrap();
        let paths = [dir.path().join("gzip"), dir.path().join("zstd")];
        std::fs::write(&paths[0], gzip.finish().unwrap()).unwrap();
        std::fs::write(&paths[1], zstd::encode_all(&bytes[..], 1).unwrap()).unwrap();
        let size = bytes.len() as u64;
        let jobs = plan(&paths.map(|path| (path, size)), 2 * size);
        let out = dir.path().join("out");
        run(&jobs, &out).unwrap();
        let written = std::fs::read(&out).unwrap();
        for job in &jobs {
            let at = usize::try_from(job.at).unwrap();
            assert!(written[at..at + bytes.len()] == bytes, "{}", job.blob.display());
        }
    }
}
