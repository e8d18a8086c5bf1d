//! Why there is no root disk.

use std::sync::Arc;
use std::time::Duration;

use portolan_core::Digest;
use portolan_registry::ErrorClass;
use portolan_registry::durable::DurableError;
use portolan_rootdisk::build::{BuildError, Trouble};
use portolan_rootdisk::fetch::FetchError;

use super::Purpose;
use super::gate::Refusal;
use crate::metrics::PullFailure;
use crate::reason::Reason;

/// Why a root disk was not acquired.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AcquireError {
    /// Whoever asked does not want it any more.
    #[error("the start was cancelled")]
    Cancelled,
    /// A gate does not let the image pass.
    #[error(transparent)]
    Refused(Refusal),
    /// It could not be made. The error is shared by all who waited for it.
    #[error(transparent)]
    Prepare(Arc<PrepareError>),
}

/// Why a root disk could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The manifest or config cannot be had, or is none that can be run.
    #[error("the image {digest} cannot be fetched")]
    Fetch {
        /// The manifest.
        digest: Digest,
        /// Why.
        #[source]
        source: FetchError,
    },
    /// A layer did not come, or the layers do not make a disk.
    #[error("the root disk of {digest} cannot be built")]
    Build {
        /// The manifest.
        digest: Digest,
        /// Why.
        #[source]
        source: BuildError,
    },
    /// The image is as it should be; this machine failed.
    #[error(
        "this host failed while it built the root disk of {digest}, and the image is not to blame; look at the file system of the agent's root and at the kernel's log"
    )]
    Host {
        /// The manifest.
        digest: Digest,
        /// Why.
        #[source]
        source: BuildError,
    },
    /// More layers than an image can have.
    #[error("{digest} has {layers} layers; at most {most} are taken: squash the image")]
    TooManyLayers {
        /// The manifest.
        digest: Digest,
        /// How many.
        layers: usize,
        /// How many there may be.
        most: usize,
    },
    /// The cache could not be written.
    #[error(
        "the root disk of {digest} cannot be stored; look at the file system of the agent's root"
    )]
    Store {
        /// The manifest.
        digest: Digest,
        /// Why.
        #[source]
        source: DurableError,
    },
    /// Above the high-water mark, and nothing left that may go.
    #[error(
        "no room for the root disk of {digest}: {beyond} bytes are above the high-water mark and nothing more can be evicted"
    )]
    NoRoom {
        /// The manifest.
        digest: Digest,
        /// How far above.
        beyond: u64,
    },
    /// It would fit only if something went, and it is not needed yet.
    #[error(
        "no free room for the root disk of {digest}; nothing is evicted for what nobody has asked for yet{}",
        if *enough_may_go { "" } else { ", and all that may go may not be enough" }
    )]
    NoFreeRoom {
        /// The manifest.
        digest: Digest,
        /// It would fit if all went that nobody uses, as far as its manifest tells.
        enough_may_go: bool,
    },
    /// Larger than everything that could be freed.
    #[error(
        "no room for the root disk of {digest}: its layers alone have {least} bytes, and {reachable} can be had; nothing was evicted for it"
    )]
    NeverFits {
        /// The manifest.
        digest: Digest,
        /// What it needs at least, by its own words.
        least: u64,
        /// What is free or may go.
        reachable: u64,
    },
    /// It took too long as a whole.
    #[error(
        "the root disk of {digest} was not there after {} s; the limit is `timeout` in [pull]",
        limit.as_secs()
    )]
    Timeout {
        /// The manifest.
        digest: Digest,
        /// The limit.
        limit: Duration,
    },
    /// Nobody waits for it any more.
    #[error("nobody wants the root disk of {digest} any more")]
    Abandoned {
        /// The manifest.
        digest: Digest,
    },
    /// The work ended without a word.
    #[error(
        "the build of {digest} ended without an outcome, which is a fault of the agent; its log says more"
    )]
    Lost {
        /// The manifest.
        digest: Digest,
    },
}

impl AcquireError {
    /// What to tell the control plane. What was cancelled has no reason of its own and is told as
    /// a pull that failed, should anybody still ask.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Cancelled => Reason::ImagePullFailed,
            Self::Refused(refusal) => refusal.reason,
            Self::Prepare(error) => error.reason(),
        }
    }

    /// Nothing but what nobody uses is in its way, so that it is worth waiting for it to go.
    pub fn waits_for_room(&self) -> bool {
        matches!(self, Self::Prepare(error)
            if matches!(**error, PrepareError::NoFreeRoom { enough_may_go: true, .. }))
    }

    /// Nothing went wrong: it was given up.
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Cancelled => true,
            Self::Refused(_) => false,
            Self::Prepare(error) => matches!(**error, PrepareError::Abandoned { .. }),
        }
    }
}

impl From<PrepareError> for AcquireError {
    fn from(error: PrepareError) -> Self {
        Self::Prepare(Arc::new(error))
    }
}

impl PrepareError {
    /// What to tell the control plane.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Fetch { source, .. } if source.is_platform() => Reason::PlatformMismatch,
            Self::Build { source, .. } => match source.trouble() {
                Trouble::Pull | Trouble::Cancelled => Reason::ImagePullFailed,
                Trouble::Image | Trouble::Local => Reason::RootfsBuildFailed,
                Trouble::DiskFull => Reason::DiskFull,
            },
            Self::Store { source, .. } if source.is_full() => Reason::DiskFull,
            Self::NoRoom { .. } | Self::NoFreeRoom { .. } | Self::NeverFits { .. } => {
                Reason::DiskFull
            }
            Self::Host { .. }
            | Self::TooManyLayers { .. }
            | Self::Store { .. }
            | Self::Lost { .. } => Reason::RootfsBuildFailed,
            Self::Fetch { .. } | Self::Timeout { .. } | Self::Abandoned { .. } => {
                Reason::ImagePullFailed
            }
        }
    }

    /// The class of trouble with whoever was asked for the image; none when it was not their
    /// fault.
    fn pull_class(&self) -> Option<ErrorClass> {
        match self {
            Self::Fetch { source, .. } => Some(source.class()),
            Self::Build { source: BuildError::Source { source, .. }, .. }
            | Self::Host { source: BuildError::Source { source, .. }, .. } => Some(source.class),
            _ => None,
        }
    }

    /// The network or the registry failed, and the same pull may work in a moment. Content that
    /// is not what its digest says is none of that.
    pub fn is_transient(&self) -> bool {
        self.pull_class() == Some(ErrorClass::Transport)
    }

    /// The repository does not have it or does not give it; another repository may.
    pub fn is_about_the_repository(&self) -> bool {
        matches!(self.pull_class(), Some(ErrorClass::NotFound | ErrorClass::Denied))
    }

    /// This machine has no room.
    pub fn is_full(&self) -> bool {
        self.reason() == Reason::DiskFull
    }

    /// There may be room for whoever may make it.
    pub fn is_for_want_of_free_room(&self) -> bool {
        matches!(self, Self::NoFreeRoom { .. })
    }

    /// The same as it is for whoever wanted the disk: without the right to make room, full is full of what others keep.
    /// What was full in the middle is larger than its manifest tells, so nobody knows whether it would ever fit.
    pub(super) fn for_purpose(self, digest: Digest, purpose: Purpose) -> Self {
        match purpose {
            Purpose::Ahead
                if self.is_full() && !self.never_fits() && !self.is_for_want_of_free_room() =>
            {
                Self::NoFreeRoom { digest, enough_may_go: false }
            }
            _ => self,
        }
    }

    /// No room that could be made would be enough.
    pub(super) fn never_fits(&self) -> bool {
        matches!(self, Self::NeverFits { .. })
    }

    /// How it is counted, when the pull failed; none when the image came.
    pub fn pull_failure(&self) -> Option<PullFailure> {
        match self {
            Self::Timeout { .. } => Some(PullFailure::Timeout),
            Self::Abandoned { .. } => Some(PullFailure::Cancelled),
            Self::Fetch { source, .. } if source.is_platform() => {
                Some(PullFailure::PlatformMismatch)
            }
            Self::Build { source: BuildError::DiffIdMismatch { .. }, .. } => {
                Some(PullFailure::DigestMismatch)
            }
            Self::Build { source: BuildError::Source { source, .. }, .. } if source.cancelled => {
                Some(PullFailure::Cancelled)
            }
            _ => self.pull_class().map(|class| match class {
                ErrorClass::NotFound => PullFailure::NotFound,
                ErrorClass::Denied => PullFailure::Denied,
                ErrorClass::Transport => PullFailure::Transport,
                ErrorClass::Local => PullFailure::Disk,
                ErrorClass::BadInput if matches!(self, Self::Build { .. }) => {
                    PullFailure::DigestMismatch
                }
                ErrorClass::BadInput => match self {
                    Self::Fetch { source: FetchError::Read { .. }, .. } => {
                        PullFailure::DigestMismatch
                    }
                    _ => PullFailure::Unusable,
                },
            }),
        }
    }
}
