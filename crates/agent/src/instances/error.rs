//! Why an instance could not be made, changed or removed.

use std::io;
use std::path::PathBuf;

use portolan_registry::durable::DurableError;

use crate::id::InstanceId;

/// Why there are no instances at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder of all instances.
    #[error("the instances in {} cannot be read", path.display())]
    Folder {
        /// Where they are.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// The folder of all instances cannot be made.
    #[error("there is no place for instances")]
    Create(#[source] DurableError),
}

/// Why an instance was not made or changed.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// It is on its way out.
    #[error("{id} is being deleted; wait until it is gone and put it again")]
    Deleting {
        /// Which.
        id: InstanceId,
    },
    /// The disk did not take it.
    #[error("{id} cannot be written to disk; nothing was changed")]
    Write {
        /// Which.
        id: InstanceId,
        /// Why.
        #[source]
        source: DurableError,
    },
}

/// Why an instance is still there.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// It could not be marked.
    #[error("{id} cannot be marked as deleted; nothing was changed")]
    Mark {
        /// Which.
        id: InstanceId,
        /// Why.
        #[source]
        source: DurableError,
    },
    /// It is marked and takes long.
    #[error("{id} is still being deleted, and will be: {message}")]
    Slow {
        /// Which.
        id: InstanceId,
        /// What it waits for, where that is known.
        message: String,
    },
}
