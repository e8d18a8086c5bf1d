//! What a platform is and how one is chosen; what an image is called and what it is made of.
//!
//! No I/O here and no async: every function is a decision over facts it was given, so that the
//! rest of the house can call it anywhere and tests can try every case.
#![warn(missing_docs)]

pub mod assemble;
pub mod causes;
pub mod digest;
mod hex;
pub mod manifest;
pub mod platform;
mod quote;
pub mod reference;
pub mod select;
pub mod suggest;
pub mod terminal;
pub mod yaml;

pub use digest::{Algorithm, Digest, Hasher};
pub use hex::hex;
pub use manifest::{Descriptor, Document, Index, Manifest, media_type};
pub use platform::{HostPlatform, Platform};
pub use reference::{Host, LayoutReference, Reference, RegistryReference, Repository, Tag, Target};
