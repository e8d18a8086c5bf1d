//! What a copy says while it runs. Libraries never print: whoever draws bars listens here.

use portolan_core::Descriptor;

/// How a blob came to be at its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlobOutcome {
    /// It was there already.
    Present,
    /// The registry took it over from another of its repositories; no bytes moved.
    Mounted,
    /// Another layout's file was hashed and linked; no bytes moved.
    Linked,
    /// Its bytes were transferred.
    Copied,
}

/// Listens to a copy. Every method may be called from several tasks at once and must return
/// quickly: it runs between two reads from the network.
///
/// Order: [`planned`](Self::planned) once; for each blob of the plan
/// [`started`](Self::started), any number of [`advanced`](Self::advanced), then
/// [`finished`](Self::finished), unless the copy failed; [`stored`](Self::stored) for each
/// manifest, always after its blobs.
pub trait Progress: Send + Sync {
    /// These blobs will be copied or found present, in this order.
    fn planned(&self, blobs: &[Descriptor]) {
        let _ = blobs;
    }

    /// Work on a blob begins.
    fn started(&self, blob: &Descriptor) {
        let _ = blob;
    }

    /// So many bytes of the blob are through. A position, not a difference: an upload that had
    /// to begin again reports a smaller one.
    fn advanced(&self, blob: &Descriptor, position: u64) {
        let _ = (blob, position);
    }

    /// The blob is at its destination, verified.
    fn finished(&self, blob: &Descriptor, outcome: BlobOutcome) {
        let _ = (blob, outcome);
    }

    /// A manifest or index is at its destination.
    fn stored(&self, manifest: &Descriptor) {
        let _ = manifest;
    }
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {}
