//! What the pods of a build run: `portolan step …`. Everything here works without a cluster, on
//! directories and registries alone, and leaves its results in files.
//!
//! | module | step |
//! |---|---|
//! | `git` | `git`: a repository becomes a directory |
//! | `upload` | `wait-upload`: waits until a developer's files are there |
//! | `source` | `source-push`, `source-pull`, `source-prune` |
//! | `image` | `image-push`: what a strategy made is checked, changed and pushed |
//! | `index` | `index-assemble`: the images of all platforms become one index |
//! | `recipe` | `assemble`: the embedded assembler as a strategy |

mod access;
mod child;
mod error;
pub mod git;
pub mod image;
pub mod index;
pub mod recipe;
mod results;
pub mod source;
pub mod upload;

pub use access::{Access, client};
pub use child::{PlatformMismatch, same_platform};
pub use error::StepError;
pub use results::{MAX_MESSAGE, MAX_RESULT, Results, tell_error};
