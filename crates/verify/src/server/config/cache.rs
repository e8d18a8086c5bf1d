//! What is kept.

use serde::Deserialize;

use super::Span;

/// What is kept, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// What a tag is: `"10s"`.
    pub tag_ttl: Span,
    /// How many tags: 10000.
    pub tags: u64,
    /// What is in an image; it cannot change, so it goes when it is not used: `"1h"`.
    pub image_idle: Span,
    /// Bytes of these, about: 16 MiB.
    pub image_bytes: u64,
    /// That a subject is verified: `"60s"`.
    pub verified_ttl: Span,
    /// That it is not: `"10s"`. Signatures that come late are seen that late.
    pub refused_ttl: Span,
    /// Bytes of verdicts, about: 16 MiB.
    pub verdict_bytes: u64,
    /// Bytes of manifests and blobs of signatures, about; they go as images do: 8 MiB.
    pub content_bytes: u64,
    /// Bytes of answers as they are written, about, in each of the two shapes: 8 MiB. None is kept
    /// for longer than what it was made of.
    pub answer_bytes: u64,
    /// How often the policy is looked at: `"5s"`.
    pub policy_poll: Span,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            tag_ttl: Span::seconds(10),
            tags: 10_000,
            image_idle: Span::seconds(3600),
            image_bytes: 16 * 1024 * 1024,
            verified_ttl: Span::seconds(60),
            refused_ttl: Span::seconds(10),
            verdict_bytes: 16 * 1024 * 1024,
            content_bytes: 8 * 1024 * 1024,
            answer_bytes: 8 * 1024 * 1024,
            policy_poll: Span::seconds(5),
        }
    }
}
