//! One Build, every platform, one index.
//!
//! | module | what it holds |
//! |---|---|
//! | `plan` | from resources to phases, tasks and steps, or to every reason why not; pure |
//! | `tekton` | a plan as a TaskRun or a PipelineRun |
//! | `names` | what images, tasks and objects are called |
//! | `source` | a directory as an OCI artifact |
//! | `containerfile` | how an image is put together, for one platform; pure |
//! | `assemble` | images from Containerfiles that run nothing |
//! | `steps` | what the pods of a cluster run |
//! | `request` | what somebody asks of a cluster as objects, and what its answers mean; pure |
//! | `engine` | source, platforms and index on this machine |
//! | `blocking` | work on a thread, which ends with whoever waits for it |
//! | `listing` | the names in a directory, for walks |
//! | `workshop` | a directory to work in, which goes with its process |

#![warn(missing_docs)]

pub mod assemble;
pub mod blocking;
pub mod containerfile;
pub mod engine;
mod listing;
pub mod names;
pub mod plan;
pub mod request;
pub mod source;
pub mod steps;
pub mod tekton;
pub mod workshop;
