//! Speak OCI: the distribution client, the image layout on disk, the embedded registry server.
//!
//! Every byte that comes from elsewhere is bounded and hashed as it flows; secrets have no
//! printable form; nothing here prints.

#![warn(missing_docs)]

pub mod class;
pub mod client;
pub mod copy;
pub mod durable;
pub mod headers;
pub mod images;
pub mod layout;
pub mod progress;
pub mod server;
pub mod serving;

pub use class::ErrorClass;
