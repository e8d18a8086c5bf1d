//! How many Releases are looked at at one registry: one that is slow, or hangs, must not take the place of the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use portolan_core::Host;

/// Who is looked at, by registry.
#[derive(Debug, Default)]
pub(crate) struct Places {
    most: usize,
    taken: Arc<Mutex<HashMap<Host, usize>>>,
}

/// A place that is held.
#[derive(Debug)]
pub(crate) struct Place {
    host: Host,
    taken: Arc<Mutex<HashMap<Host, usize>>>,
}

impl Places {
    /// A quarter of all workers for one registry, and at least one.
    pub(crate) fn new(workers: u16) -> Self {
        Self { most: usize::from(workers / 4).max(1), taken: Arc::default() }
    }

    /// A place, unless there is none at the moment.
    pub(crate) fn take(&self, host: &Host) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let now = taken.entry(host.clone()).or_default();
        if *now >= self.most {
            return None;
        }
        *now += 1;
        Some(Place { host: host.clone(), taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = taken.get_mut(&self.host) {
            *now -= 1;
            if *now == 0 {
                taken.remove(&self.host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_registry_takes_a_quarter_of_the_places_and_gives_them_back() {
        let places = Places::new(8);
        let (slow, other): (Host, Host) =
            ("slow.example".parse().unwrap(), "other.example".parse().unwrap());
        let first = places.take(&slow).unwrap();
        let _second = places.take(&slow).unwrap();
        assert!(places.take(&slow).is_none());
        assert!(places.take(&other).is_some(), "the others have their own");
        drop(first);
        assert!(places.take(&slow).is_some());
        assert_eq!(places.taken.lock().unwrap().len(), 1);
        assert!(Places::new(1).take(&slow).is_some());
    }
}
