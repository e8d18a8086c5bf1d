//! How much a stranger's image may ask for.
//!
//! An image is a program that its author runs on our decoder: a few kilobytes can ask for
//! terabytes of zeros, millions of names or hours of looking things up. Every such dimension has a
//! number here, and whoever meets it says which one it was.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// The window that every zstd decoder must offer by its specification's advice: granted to all.
pub(crate) const COMMON_WINDOW: u64 = 8 * MIB;

/// The settings. All sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// One layer, unpacked (64 GiB).
    pub max_layer_bytes: u64,
    /// All layers, unpacked (128 GiB).
    pub max_total_bytes: u64,
    /// Unpacked bytes for each compressed one, and bytes on the disk for each compressed one,
    /// counted once a layer has passed `ratio_floor_bytes`; 0 means any (1,000: gzip cannot do
    /// more than 1,032, and only for zeros; a layer that really holds gigabytes of zeros needs a
    /// higher number).
    pub max_ratio: u64,
    /// Below this unpacked size no ratio is suspicious (64 MiB).
    pub ratio_floor_bytes: u64,
    /// Tar entries of all layers, and headers that say nothing of use (4,000,000).
    pub max_entries: u64,
    /// One path, or what one symbolic link says (4,095: what the kernel takes).
    pub max_path_bytes: usize,
    /// One name in a path (255: what ext4 stores).
    pub max_component_bytes: usize,
    /// Directories below each other (1,024).
    pub max_depth: u32,
    /// One PAX header, GNU long name or sparse map (1 MiB).
    pub max_header_bytes: u64,
    /// Names, links and extended attributes of all layers, with what it costs to keep them
    /// (1 GiB). This is what bounds the memory of a build.
    pub max_index_bytes: u64,
    /// Names and values of one file's extended attributes (4,160: what one block and the rest of
    /// an inode can hold).
    pub max_xattr_bytes: usize,
    /// One file's size, holes included (16 TiB less two blocks: where ext4 ends).
    pub max_file_bytes: u64,
    /// Steps taken through symbolic links while names are looked up, in all (32,000,000): links
    /// that lead to links make a short name cost as much as a long one.
    pub max_link_steps: u64,
    /// The largest zstd window (128 MiB).
    pub max_zstd_window_bytes: u64,
    /// What zstd windows above 8 MiB may take together (256 MiB). Layers wait for their turn.
    pub max_zstd_memory_bytes: u64,
    /// The root disk as its file system sees it (256 GiB).
    pub max_virtual_bytes: u64,
    /// The root disk as the host stores it (128 GiB).
    pub max_allocated_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_layer_bytes: 64 * GIB,
            max_total_bytes: 128 * GIB,
            max_ratio: 1000,
            ratio_floor_bytes: 64 * MIB,
            max_entries: 4_000_000,
            max_path_bytes: 4095,
            max_component_bytes: 255,
            max_depth: 1024,
            max_header_bytes: MIB,
            max_index_bytes: GIB,
            max_xattr_bytes: 4160,
            max_file_bytes: 16 * TIB - 8 * KIB,
            max_link_steps: 32_000_000,
            max_zstd_window_bytes: 128 * MIB,
            max_zstd_memory_bytes: 256 * MIB,
            max_virtual_bytes: 256 * GIB,
            max_allocated_bytes: 128 * GIB,
        }
    }
}

impl Limits {
    /// Whether so many packed bytes may have become so many. `what` names the ratio.
    pub(crate) fn check_ratio(
        &self,
        what: &'static str,
        unpacked: u64,
        packed: u64,
    ) -> Result<(), Exceeded> {
        let small = self.max_ratio == 0 || unpacked <= self.ratio_floor_bytes;
        if small || unpacked / self.max_ratio <= packed {
            return Ok(());
        }
        Err(Exceeded { what, limit: self.max_ratio, setting: "max_ratio" })
    }
}

/// A limit was met. The image is refused; nothing is wrong with this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} would pass {limit}; if the image is trusted, raise `{setting}`")]
pub struct Exceeded {
    /// What there was too much of.
    pub what: &'static str,
    /// The number.
    pub limit: u64,
    /// Which field of [`Limits`] it is.
    pub setting: &'static str,
}

/// Whether the work is still wanted.
type Cancelled = Arc<dyn Fn() -> bool + Send + Sync>;

/// What one image has used of its [`Limits`], shared by all who work on it.
///
/// Sums only grow, so whether an image is refused does not depend on which layer came first.
pub struct Budget {
    limits: Limits,
    cancelled: Option<Cancelled>,
    bytes: AtomicU64,
    entries: AtomicU64,
    index: AtomicU64,
    link_steps: AtomicU64,
    large_windows: Mutex<u64>,
    window_freed: Condvar,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("bytes", &self.bytes)
            .field("entries", &self.entries)
            .field("index", &self.index)
            .field("link_steps", &self.link_steps)
            .finish_non_exhaustive()
    }
}

impl Budget {
    /// Nothing used yet; nobody cancels.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            cancelled: None,
            bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            index: AtomicU64::new(0),
            link_steps: AtomicU64::new(0),
            large_windows: Mutex::new(0),
            window_freed: Condvar::new(),
        }
    }

    /// Nothing used yet; long work asks `cancelled` now and then and stops when it says so.
    pub fn with_cancel(
        limits: Limits,
        cancelled: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { cancelled: Some(Arc::new(cancelled)), ..Self::new(limits) }
    }

    /// The settings.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether the work is no longer wanted.
    pub fn cancelled(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled())
    }

    /// Unpacked bytes so far, of all layers.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Entries so far, of all layers.
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Memory counted for names and attributes so far.
    pub fn index_bytes(&self) -> u64 {
        self.index.load(Ordering::Relaxed)
    }

    pub(crate) fn take_bytes(&self, bytes: u64) -> Result<(), Exceeded> {
        let limit = self.limits.max_total_bytes;
        take(&self.bytes, bytes, limit).ok_or(Exceeded {
            what: "all layers, unpacked,",
            limit,
            setting: "max_total_bytes",
        })
    }

    pub(crate) fn take_entry(&self) -> Result<(), Exceeded> {
        let limit = self.limits.max_entries;
        take(&self.entries, 1, limit).ok_or(Exceeded {
            what: "the number of entries",
            limit,
            setting: "max_entries",
        })
    }

    pub(crate) fn take_index(&self, bytes: usize) -> Result<(), Exceeded> {
        let limit = self.limits.max_index_bytes;
        let what = "memory for names, links and attributes";
        take(&self.index, bytes as u64, limit).ok_or(Exceeded {
            what,
            limit,
            setting: "max_index_bytes",
        })
    }

    pub(crate) fn take_link_step(&self) -> Result<(), Exceeded> {
        let limit = self.limits.max_link_steps;
        let what = "the work of following symbolic links";
        take(&self.link_steps, 1, limit).ok_or(Exceeded { what, limit, setting: "max_link_steps" })
    }

    /// The right to hold one window above the common size; waits while others hold them all.
    /// `None` when the work was cancelled meanwhile.
    pub(crate) fn large_window(self: &Arc<Self>) -> Option<LargeWindow> {
        // Each may grow to the largest, so each is counted as that: nobody holds one and waits
        // for more, hence there is no deadlock.
        let each = self.limits.max_zstd_window_bytes.max(1);
        let most = (self.limits.max_zstd_memory_bytes / each).max(1);
        let mut held = self.large_windows.lock().unwrap_or_else(PoisonError::into_inner);
        while *held >= most {
            if self.cancelled() {
                return None;
            }
            // Cancelling rings no bell: look again now and then.
            (held, _) = self
                .window_freed
                .wait_timeout(held, Duration::from_millis(100))
                .unwrap_or_else(PoisonError::into_inner);
        }
        *held += 1;
        Some(LargeWindow(Arc::clone(self)))
    }
}

/// Adds, unless the sum would pass the limit.
fn take(counter: &AtomicU64, amount: u64, limit: u64) -> Option<()> {
    let before = counter.fetch_add(amount, Ordering::Relaxed);
    before.checked_add(amount).filter(|sum| *sum <= limit).map(|_| ())
}

/// The right to one large window, given back when dropped.
#[derive(Debug)]
pub(crate) struct LargeWindow(Arc<Budget>);

impl Drop for LargeWindow {
    fn drop(&mut self) {
        *self.0.large_windows.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.window_freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_all_layers_and_the_error_names_the_setting() {
        let budget =
            Budget::new(Limits { max_total_bytes: 10, max_entries: 1, ..Limits::default() });
        budget.take_bytes(6).unwrap();
        budget.take_bytes(4).unwrap();
        let error = budget.take_bytes(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "all layers, unpacked, would pass 10; if the image is trusted, raise `max_total_bytes`"
        );
        budget.take_entry().unwrap();
        assert_eq!(budget.take_entry().unwrap_err().setting, "max_entries");
    }

    #[test]
    fn settings_are_read_with_defaults_and_unknown_ones_refused() {
        let limits: Limits = serde_json::from_str(r#"{"max_ratio": 5}"#).unwrap();
        assert_eq!(limits, Limits { max_ratio: 5, ..Limits::default() });
        assert!(serde_json::from_str::<Limits>(r#"{"max_ration": 5}"#).is_err());
    }

    #[test]
    fn a_third_large_window_waits_for_the_first_two() {
        let budget = Arc::new(Budget::new(Limits::default()));
        let first = budget.large_window().unwrap();
        let _second = budget.large_window().unwrap();
        let waiter = std::thread::spawn({
            let budget = Arc::clone(&budget);
            move || budget.large_window().is_some()
        });
        assert_eq!(*budget.large_windows.lock().unwrap(), 2);
        drop(first);
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn waiting_for_a_window_ends_when_cancelled() {
        let limits = Limits { max_zstd_memory_bytes: 0, ..Limits::default() };
        let budget = Arc::new(Budget::with_cancel(limits, || true));
        let _only = budget.large_window().unwrap();
        assert!(budget.large_window().is_none());
    }
}
