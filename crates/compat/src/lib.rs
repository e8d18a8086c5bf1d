//! Image compatibility: does this host fit this image?
//!
//! | module | what it holds |
//! |---|---|
//! | `affinity` | what requirements mean for the labels of a cluster's nodes |
//! | `artifact` | how a spec is attached to an image and found again |
//! | `json` | JSON with lines and columns |
//! | `diagnostic` | what is wrong with a document, and what was meant |
//! | `document` | the spec: a graph of namespaces |
//! | `plugins` | what a spec can ask of a host, and what facts say to it |
//! | `value`, `expression`, `range`, `version` | what can be asked of one value |
//! | `evaluate`, `verdict` | from plugins' answers to one verdict: yes, no, or nobody knows |
//! | `check`, `report` | all of it, and how it is told |
//! | `nfd` | rules of Node Feature Discovery |
//! | `requirements` | what an image needs, in either language |
//! | `schema` | the spec as JSON Schema |
//! | `external` | other people's plugins: policy, providers, sandbox, protocol |
//! | `text` | strangers' texts made safe to print |
#![warn(missing_docs)]

pub mod affinity;
pub mod artifact;
pub mod check;
pub mod diagnostic;
pub mod document;
pub mod evaluate;
pub mod expression;
pub mod external;
pub mod json;
pub mod nfd;
pub mod plugins;
pub mod range;
pub mod report;
pub mod requirements;
pub mod schema;
pub mod text;
pub mod value;
pub mod verdict;
pub mod version;

pub use check::{Options, check};
pub use document::{Mode, Spec};
pub use report::Report;
pub use verdict::Verdict;
