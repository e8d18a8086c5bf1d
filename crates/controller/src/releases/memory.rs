//! When each Release was looked at last. Kept in memory alone: a copy that begins looks at everything once, and nothing
//! is written for a look that changed nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::plan::Looked;

/// What is forgotten late takes little.
const SPARE: usize = 256;

/// By the UID of the Release.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<String, Looked>>);

impl Memory {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Looked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn of(&self, uid: &str) -> Option<Looked> {
        self.all().get(uid).copied()
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.all().remove(uid);
    }

    /// Keeps it. Those that are not there any more are forgotten when there are more than could be.
    pub(crate) fn keep(
        &self,
        uid: &str,
        looked: Looked,
        there: usize,
        is_there: impl Fn(&str) -> bool,
    ) {
        let mut all = self.all();
        all.insert(uid.to_owned(), looked);
        if all.len() > 2 * there + SPARE {
            all.retain(|uid, _| is_there(uid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_forgotten() {
        let memory = Memory::default();
        let looked = Looked { generation: None, due: 0, failures: 0 };
        for number in 0..1000 {
            memory.keep(&number.to_string(), looked, 1, |uid| uid == "7");
            assert!(memory.all().len() <= SPARE + 3);
        }
        assert_eq!(memory.of("7"), Some(looked));
        memory.forget("7");
        assert_eq!(memory.of("7"), None);
    }
}
