//! What is kept with its own end, and how much room each takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::Expiry;

use crate::decision::SubjectAnswer;
use crate::server::question::Ground;
use crate::server::reports::Written;

/// What is known, and until when that may be said without asking again.
#[derive(Debug, Clone)]
pub(in crate::server) struct Kept<V> {
    pub(in crate::server) value: V,
    pub(in crate::server) until: Instant,
}

/// An answer as it is written, under a policy.
pub(in crate::server) struct KeptAnswer {
    /// As it was asked.
    pub(in crate::server) key: Arc<str>,
    pub(in crate::server) written: Arc<Written>,
    pub(in crate::server) ground: Ground,
    /// The earliest end of all that it was made of.
    pub(in crate::server) until: Instant,
}

/// A key as it begins its item, and what is told of it.
type Item = (Box<[u8]>, Arc<KeptAnswer>);

/// What is told to a request, byte for byte the same, whose keys are all known.
pub(in crate::server) struct KeptRequest {
    items: Box<[Item]>,
    /// Of its answer, about.
    bytes: usize,
    pub(super) ground: Ground,
    until: Instant,
}

impl KeptRequest {
    /// Each key as it begins its item, and what is told of it. None where there are no keys, or where
    /// what is told does not rest on one ground.
    pub(in crate::server) fn new(items: Vec<(Box<[u8]>, Arc<KeptAnswer>)>) -> Option<Self> {
        let until = items.iter().map(|(_, kept)| kept.until).min()?;
        let ground = items.first()?.1.ground.clone();
        let bytes = items.iter().map(|(head, kept)| head.len() + kept.written.bytes()).sum();
        let one_ground = items.iter().all(|(_, kept)| kept.ground == ground);
        one_ground.then(|| Self { items: items.into(), bytes, ground, until })
    }

    pub(in crate::server) fn items(&self) -> &[(Box<[u8]>, Arc<KeptAnswer>)] {
        &self.items
    }

    pub(in crate::server) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What has an end of its own.
pub(super) trait Until {
    fn until(&self) -> Instant;
}

impl<V> Until for Kept<V> {
    fn until(&self) -> Instant {
        self.until
    }
}

impl Until for KeptAnswer {
    fn until(&self) -> Instant {
        self.until
    }
}

impl Until for KeptRequest {
    fn until(&self) -> Instant {
        self.until
    }
}

impl<T: Until> Until for Arc<T> {
    fn until(&self) -> Instant {
        (**self).until()
    }
}

/// Each when its own time is over.
pub(super) struct WhenOver;

impl<K, V: Until> Expiry<K, V> for WhenOver {
    fn expire_after_create(&self, _: &K, kept: &V, now: Instant) -> Option<Duration> {
        Some(kept.until().saturating_duration_since(now))
    }

    fn expire_after_update(
        &self,
        key: &K,
        kept: &V,
        now: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_create(key, kept, now)
    }
}

/// What a cache needs to find an entry, about, and its time.
pub(super) const ENTRY: usize = 512;

pub(super) fn weight(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// About as many bytes as an answer takes: its text, and what holds the pieces together.
pub(super) fn text_bytes(answer: &SubjectAnswer) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let signatures = answer.signatures.iter().map(|one| {
        400 + text(&one.tag)
            + one.warnings.iter().map(|warning| 24 + warning.len()).sum::<usize>()
            + one.signer.len()
            + text(&one.identity)
            + text(&one.issuer)
            + text(&one.predicate_type)
            + text(&one.message)
    });
    let over = answer.passed_over.iter().map(|one| 100 + one.why.len());
    let reasons = answer.reasons.iter().map(|one| 50 + one.message.len());
    let facts = answer.facts.iter().map(|facts| facts.bytes());
    let all = signatures.chain(over).chain(reasons).chain(facts);
    answer.media_type.len() + all.sum::<usize>()
}
