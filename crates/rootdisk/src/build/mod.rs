//! Layers in, a root disk out.

mod diff;
mod error;
mod identity;
mod layer;
mod request;
mod run;
mod sink;
mod source;
mod verity;
mod watch;

pub use error::{BuildError, Trouble};
pub use request::{BuildOptions, Built, LayerInput, Request, Stats};
pub use run::build;
pub use source::{Chunks, LayerSource, SourceError};
pub use watch::{Phase, Unwatched, Watch};
