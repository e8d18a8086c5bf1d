//! One Build, every platform, one index.
//!
//! | module | what it holds |
//! |---|---|
//! | `plan` | from resources to phases, tasks and steps, or to every reason why not; pure |
//! | `tekton` | a plan as a TaskRun or a PipelineRun |
//! | `names` | what images, tasks and objects are called |

#![warn(missing_docs)]

pub mod names;
pub mod plan;
pub mod tekton;
