//! Signatures that were found good: the same bytes under the same key are good for ever, and finding
//! that out is most of what a signature costs.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use portolan_core::{Algorithm, Digest, Hasher};

use crate::key::PublicKey;

/// So many, 64 bytes each about. When there are more, all are forgotten: finding out which was used
/// last would cost more than it saves.
const MOST: usize = 16 * 1024;

/// Of one authority. Only what is good is noted, so only who holds its keys can fill it.
#[derive(Default)]
pub(super) struct Proven(Mutex<HashSet<Digest>>);

impl fmt::Debug for Proven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proven")
    }
}

impl Proven {
    /// Whether `signature` of `key` over `message` is good: as was found before, or as `verify` says.
    pub(super) fn or(
        &self,
        key: &PublicKey,
        (message, signature): (&[u8], &[u8]),
        verify: impl FnOnce() -> bool,
    ) -> bool {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        for part in [key.as_der(), signature, message] {
            // With its length, so that no two of these are the same bytes.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let name = hasher.finish();
        if self.lock().contains(&name) {
            return true;
        }
        if !verify() {
            return false;
        }
        let mut known = self.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(name);
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<Digest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::key::PrivateKey;

    #[test]
    fn what_is_good_is_found_out_once_and_what_is_not_each_time() {
        let key = PrivateKey::generate().unwrap();
        let other = PrivateKey::generate().unwrap();
        let signature = key.sign(b"message").unwrap();
        let (proven, asked) = (Proven::default(), Cell::new(0));
        let is_good = |by: &PublicKey, message: &[u8], signature: &[u8]| {
            proven.or(by, (message, signature), || {
                asked.set(asked.get() + 1);
                by.verifies(message, signature)
            })
        };
        assert!(is_good(key.public(), b"message", &signature));
        assert!(is_good(key.public(), b"message", &signature));
        assert_eq!(asked.get(), 1);
        for _ in 0..2 {
            assert!(!is_good(key.public(), b"massage", &signature));
            assert!(!is_good(other.public(), b"message", &signature));
            // The same bytes, cut elsewhere.
            let moved = [&signature[..], b"m"].concat();
            assert!(!is_good(key.public(), b"essage", &moved));
        }
        assert_eq!(asked.get(), 7);
    }

    #[test]
    fn there_are_never_more_than_there_may_be() {
        let key = PrivateKey::generate().unwrap();
        let proven = Proven::default();
        for number in 0..MOST + 10 {
            assert!(proven.or(key.public(), (&number.to_le_bytes(), b"s"), || true));
        }
        assert!(proven.lock().len() <= MOST);
    }
}
