//! Where layers come from.

use std::io;

use bytes::Bytes;
use portolan_registry::{ErrorClass, durable};

/// Where layers come from. Called from the builder's threads, several at a time.
pub trait LayerSource: Send + Sync {
    /// Begins to read a layer's blob, by its place in the request. Called once for each layer.
    fn open(&self, layer: usize) -> Result<Box<dyn Chunks>, SourceError>;

    /// The build failed or was given up: whoever waits in [`Chunks::next`] should soon return.
    fn stop(&self) {}
}

/// A blob, piece by piece.
pub trait Chunks: Send {
    /// The next piece, never empty; none only after the size and the digest were found right.
    fn next(&mut self) -> Result<Option<Bytes>, SourceError>;
}

/// Why a layer's blob could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the blob cannot be read")]
pub struct SourceError {
    /// What kind of trouble it is.
    pub class: ErrorClass,
    /// This machine has no room to keep it.
    pub full: bool,
    /// Because somebody asked for it.
    pub cancelled: bool,
    /// What happened.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl SourceError {
    /// Of this class.
    pub fn new(
        class: ErrorClass,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { class, full: false, cancelled: false, source: source.into() }
    }

    /// A blob that came could not be kept.
    pub fn local(source: io::Error) -> Self {
        let full = durable::is_full(&source);
        Self { full, ..Self::new(ErrorClass::Local, source) }
    }

    /// Because somebody asked for it.
    pub fn cancelled() -> Self {
        Self { cancelled: true, ..Self::new(ErrorClass::Local, "the transfer was given up") }
    }
}
