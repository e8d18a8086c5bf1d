//! File handles: how many a process may have, and how many it has.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long a count is believed. Counting takes longer with each handle.
const COUNTED_FOR: Duration = Duration::from_millis(100);

/// The file handles of this process. Connections in both directions are most of them, and whoever
/// runs out of them can neither answer nor ask.
#[derive(Debug)]
pub struct Handles {
    most: usize,
    begun: Instant,
    open: AtomicUsize,
    /// When they were last counted, in milliseconds since it began, and one; zero is never.
    counted: AtomicU64,
}

impl Handles {
    /// Raises what this process may have to the most that it may give itself.
    pub fn raise() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current != maximum
            && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err()
        {
            tracing::debug!("the limit of file handles cannot be raised");
        }
        let most = getrlimit(Resource::Nofile).current;
        Self::of(most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX)))
    }

    /// As if there were so many.
    pub fn of(most: usize) -> Self {
        Self { most, begun: Instant::now(), open: AtomicUsize::new(0), counted: AtomicU64::new(0) }
    }

    /// How many there may be.
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many more there may be, as of a moment ago.
    pub fn left(&self) -> usize {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX / 2) + 1;
        let before = self.counted.load(Ordering::Relaxed);
        let old = u64::try_from(COUNTED_FOR.as_millis()).unwrap_or(u64::MAX);
        // Where two see that it is old, one of them counts.
        if (before == 0 || now - before >= old)
            && self
                .counted
                .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let open = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count());
            self.open.store(open, Ordering::Relaxed);
        }
        self.most.saturating_sub(self.open.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_counted_as_of_a_moment_ago() {
        let handles = Handles::of(100_000);
        let before = handles.left();
        assert!(before < 100_000);
        let _open: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        std::thread::sleep(COUNTED_FOR * 2);
        // Other tests open and close some as well.
        assert!(handles.left() < before, "{before}");
        assert_eq!(Handles::of(1).left(), 0);
    }
}
