//! How much a plugin may use.

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

const MIB: u64 = 1024 * 1024;
/// What every Linux gives the first thread. A larger one would be memory that no other limit
/// counts, and C libraries give as much to each further thread.
const STACK: u64 = 8 * MIB;

/// How much a plugin may use. The defaults let static programs in Go, Rust and C, and a Python
/// that is linked statically, do ordinary work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Seconds of processor time.
    pub cpu_seconds: u64,
    /// Memory that is the process's own and can be written. This is what bounds real use: other
    /// ways to memory (shared maps, files in memory) are closed by the filter and by `files`.
    pub data_bytes: u64,
    /// Addresses, used or not. Go reserves more than a gigabyte before its first line runs, and
    /// dies below 512 MiB; reserving costs nothing, so this is only a second fence.
    pub address_bytes: u64,
    /// Threads. Go starts a few besides one for each processor it sees.
    pub threads: u64,
    /// Open files.
    pub files: u64,
    /// Processors that it sees. Runtimes start as many threads, so a large host would otherwise
    /// break a plugin that a small one runs.
    pub processors: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_seconds: 10,
            data_bytes: 512 * MIB,
            address_bytes: 4096 * MIB,
            threads: 32,
            files: 64,
            processors: 2,
        }
    }
}

impl Limits {
    pub(super) fn apply(&self) -> Result<(), rustix::io::Errno> {
        for (resource, value) in [
            (Resource::Cpu, self.cpu_seconds),
            (Resource::Data, self.data_bytes),
            (Resource::As, self.address_bytes),
            (Resource::Stack, STACK),
            (Resource::Nproc, self.threads),
            (Resource::Nofile, self.files),
            // Not a byte into any file, and no picture of its memory on disk.
            (Resource::Fsize, 0),
            (Resource::Core, 0),
            (Resource::Memlock, 0),
            (Resource::Msgqueue, 0),
        ] {
            lower(resource, value)?;
        }
        self.pin()
    }

    /// Leaves it the first few of the processors that we may use.
    fn pin(&self) -> Result<(), rustix::io::Errno> {
        let all = sched_getaffinity(None)?;
        let mut few = CpuSet::new();
        (0..CpuSet::MAX_CPU)
            .filter(|n| all.is_set(*n))
            .take(self.processors)
            .for_each(|n| few.set(n));
        sched_setaffinity(None, &few)
    }
}

/// Never raises: a stricter limit of the caller stays.
fn lower(resource: Resource, value: u64) -> Result<(), rustix::io::Errno> {
    let now = rustix::process::getrlimit(resource);
    let value = now.maximum.map_or(value, |maximum| maximum.min(value));
    setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
}
