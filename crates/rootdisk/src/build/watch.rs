//! Who listens to a build.

/// What a build is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Layers are read, inflated and written.
    Layers,
    /// All layers are in; what was replaced is taken out and the file system is written.
    Filesystem,
    /// The hash tree is made.
    Verity,
    /// The file is being made durable.
    Flush,
}

/// Listens to a build and may give it up. Every method is called from several threads and must
/// return quickly.
pub trait Watch: Send + Sync {
    /// So many more bytes of a layer's blob were taken in.
    fn bytes(&self, layer: usize, more: u64) {
        let _ = (layer, more);
    }

    /// So many more entries were read from layers.
    fn files(&self, more: u64) {
        let _ = more;
    }

    /// A layer is in, and is what manifest and config say.
    fn layer_done(&self, layer: usize) {
        let _ = layer;
    }

    /// The next phase begins.
    fn phase(&self, phase: Phase) {
        let _ = phase;
    }

    /// Whether to give up. Asked every few hundred KiB, so it must be cheap.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Listens to nothing and never gives up.
#[derive(Debug, Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {}
