//! Whether there is room to start something new. It is looked at anew each time, from what is true
//! then, so that the answer gets better by itself when the room comes back.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evict::{Marks, Usage, bytes_beyond};

/// How much room there is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Pressure {
    /// New root disks are not built. Cached ones still start.
    pub degraded: bool,
    /// Because nothing can be written, and not because there is no room.
    pub read_only: bool,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Allocated bytes of the cache itself.
    pub cache_bytes: u64,
    /// Of those, what could be evicted.
    pub evictable_bytes: u64,
    /// The size of the file system that the cache is on.
    pub filesystem_bytes: u64,
    /// What that file system still gives to the agent.
    pub available_bytes: u64,
}

/// Looks at the numbers. `shortfall` is what the last build that ended for want of room would have
/// needed, until another build got through or that is long ago.
pub fn assess(usage: &Usage, marks: &Marks, evictable: u64, shortfall: Option<u64>) -> Pressure {
    let beyond = bytes_beyond(usage, marks, evictable);
    let reachable = usage.available_bytes.saturating_add(evictable);
    let message = match shortfall {
        _ if usage.read_only => Some(
            "the file system of the agent's root is read-only; see the kernel's log for why, and mount it for writing"
                .to_owned(),
        ),
        _ if beyond > 0 => Some(format!(
            "{beyond} bytes are above the high-water mark and nothing that may go is left; free them, or raise the marks in [cache]"
        )),
        Some(needed) if reachable < needed => Some(format!(
            "the last build needed {needed} bytes and {reachable} can be had; free some on the file system of the cache"
        )),
        _ => None,
    };
    Pressure {
        degraded: message.is_some(),
        read_only: usage.read_only,
        message,
        cache_bytes: usage.cache_bytes,
        evictable_bytes: evictable,
        filesystem_bytes: usage.filesystem_bytes,
        available_bytes: usage.available_bytes,
    }
}

/// Pressure as schedulers are told of it: it begins at once, and is over when there has been room for a while. A node
/// that is full, evicts, takes a pod and is full again would else be tainted and untainted without end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settling {
    told: bool,
    room_since: Option<Instant>,
}

impl Settling {
    /// What is told now that it is `pressed` or not; `settle` is the while.
    pub fn next(&mut self, pressed: bool, now: Instant, settle: Duration) -> bool {
        self.room_since = match pressed {
            true => None,
            false => Some(self.room_since.unwrap_or(now)),
        };
        let settled = |since: Instant| now.saturating_duration_since(since) >= settle;
        self.told = pressed || (self.told && !self.room_since.is_some_and(settled));
        self.told
    }

    /// What was told last.
    pub fn told(&self) -> bool {
        self.told
    }

    /// What is told where it is `pressed` now. Who asks before the first look, as the first report after a crash does,
    /// would else be told of room and take away what keeps pods off a node that is full.
    pub fn tells(&self, pressed: bool) -> bool {
        self.told || pressed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Percent;

    const MARKS: Marks = Marks {
        bytes: Some((100, 60)),
        high_percent: Percent::new(90),
        target_percent: Percent::new(80),
    };

    fn usage(cache_bytes: u64, available_bytes: u64) -> Usage {
        Usage { cache_bytes, filesystem_bytes: 1000, available_bytes, ..Usage::default() }
    }

    #[test]
    fn pressure_that_evicting_relieves_is_none() {
        assert!(!assess(&usage(150, 500), &MARKS, 50, None).degraded);
        let stuck = assess(&usage(150, 500), &MARKS, 49, None);
        assert!(stuck.degraded && stuck.message.unwrap().contains("1 bytes"));
        assert!(assess(&usage(10, 50), &MARKS, 10, None).degraded);
    }

    #[test]
    fn what_cannot_be_written_is_no_want_of_room() {
        let stuck = Usage { read_only: true, ..usage(10, 900) };
        let pressure = assess(&stuck, &MARKS, 10, None);
        assert!(pressure.degraded && pressure.read_only);
        assert!(pressure.message.unwrap().contains("read-only"));
    }

    #[test]
    fn it_is_over_when_the_room_that_was_missing_is_back() {
        let missing = Some(300);
        assert!(assess(&usage(10, 200), &MARKS, 10, missing).degraded);
        assert!(!assess(&usage(10, 295), &MARKS, 10, missing).degraded);
        assert!(!assess(&usage(10, 200), &MARKS, 10, None).degraded);
    }

    #[test]
    fn before_the_first_look_pressure_is_told_as_it_is() {
        let mut settling = Settling::default();
        assert!(settling.tells(true) && !settling.tells(false));
        settling.next(true, Instant::now(), Duration::from_secs(60));
        assert!(settling.tells(false), "it is not over at once");
    }

    #[test]
    fn pressure_is_told_at_once_and_its_end_when_there_was_room_for_a_while() {
        let (start, settle) = (Instant::now(), Duration::from_secs(60));
        let mut settling = Settling::default();
        for (second, pressed, told) in [
            (0, false, false),
            (1, true, true),
            (2, false, true),
            (61, false, true),
            // Again, before it was settled.
            (61, true, true),
            (62, false, true),
            (121, false, true),
            (122, false, false),
            (500, false, false),
            (501, true, true),
        ] {
            let now = start + Duration::from_secs(second);
            assert_eq!(settling.next(pressed, now, settle), told, "{second}");
        }
    }

    proptest! {
        #[test]
        fn pressure_is_never_hidden_and_ends_once_there_is_room(
            looks in prop::collection::vec((any::<bool>(), 0_u64..100), 1..50),
            settle in 0_u64..200,
        ) {
            let (mut now, settle) = (Instant::now(), Duration::from_secs(settle));
            let mut settling = Settling::default();
            for (pressed, pause) in looks {
                now += Duration::from_secs(pause);
                let told = settling.next(pressed, now, settle);
                prop_assert!(told || !pressed);
            }
            settling.next(false, now, settle);
            prop_assert!(!settling.next(false, now + settle, settle));
        }
    }
}
