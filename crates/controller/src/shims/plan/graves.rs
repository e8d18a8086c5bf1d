//! What went and does not come back. An answer to a write may come after the news that its object is gone; a UID is
//! never given twice, so whatever carries one of these is old.

use std::collections::{HashSet, VecDeque};

/// Answers are late by seconds: that many things do not go in that time.
const MOST: usize = 8192;

/// UIDs, the oldest forgotten first.
#[derive(Debug, Default)]
pub(super) struct Graves {
    known: HashSet<String>,
    order: VecDeque<String>,
}

impl Graves {
    pub(super) fn bury(&mut self, uid: String) {
        if !self.known.insert(uid.clone()) {
            return;
        }
        self.order.push_back(uid);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn hold(&self, uid: &str) -> bool {
        self.known.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let mut graves = Graves::default();
        (0..=MOST).for_each(|number| graves.bury(number.to_string()));
        graves.bury("1".to_owned());
        assert!(!graves.hold("0") && graves.hold("1") && graves.hold(&MOST.to_string()));
        assert_eq!((graves.known.len(), graves.order.len()), (MOST, MOST));
    }
}
