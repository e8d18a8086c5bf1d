//! Image compatibility: does this host fit this image?
//!
//! | module | what it holds |
//! |---|---|
//! | `json` | JSON with lines and columns |
//! | `diagnostic`, `suggest` | what is wrong with a document, and what was meant |
//! | `document` | the spec: a graph of namespaces |
//! | `evaluate` | from plugins' answers to one verdict |
//! | `verdict` | yes, no, and nobody knows |
#![warn(missing_docs)]

pub mod diagnostic;
pub mod document;
pub mod evaluate;
pub mod json;
mod suggest;
pub mod verdict;

pub use document::{Mode, Spec};
pub use verdict::Verdict;
