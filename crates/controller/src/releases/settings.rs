//! What the operator decides of Releases.

use std::path::PathBuf;
use std::time::Duration;

/// How Releases are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How registries are spoken to: mirrors, certificates, plain HTTP, deadlines.
    pub registries: Option<PathBuf>,
    /// How often tags are asked for that are followed.
    pub poll: Duration,
    /// How long one look may take.
    pub deadline: Duration,
    /// Releases that are worked on at once.
    pub workers: u16,
}
