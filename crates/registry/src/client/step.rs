//! The steps in which a call to a registry can fail.

use std::fmt;

use portolan_core::Digest;

/// What was being done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Setting up connections from the settings.
    Connect,
    /// Checking a login.
    Login,
    /// Reading a manifest by tag or digest, as written here.
    ReadManifest(String),
    /// Writing a manifest.
    WriteManifest(String),
    /// Deleting a manifest or tag.
    DeleteManifest(String),
    /// Looking whether a blob is there.
    FindBlob(Digest),
    /// Downloading a blob.
    ReadBlob(Digest),
    /// Uploading a blob.
    WriteBlob(Digest),
    /// Mounting a blob from another repository.
    MountBlob(Digest),
    /// Deleting a blob.
    DeleteBlob(Digest),
    /// Listing tags.
    ListTags,
    /// Listing what refers to a manifest.
    ListReferrers(Digest),
    /// Changing the list of referrers that is kept under a tag.
    ChangeReferrers(Digest),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("preparing connections"),
            Self::Login => f.write_str("checking the login"),
            Self::ReadManifest(target) => write!(f, "reading manifest {target}"),
            Self::WriteManifest(target) => write!(f, "writing manifest {target}"),
            Self::DeleteManifest(target) => write!(f, "deleting manifest {target}"),
            Self::FindBlob(digest) => write!(f, "looking for blob {digest}"),
            Self::ReadBlob(digest) => write!(f, "downloading blob {digest}"),
            Self::WriteBlob(digest) => write!(f, "uploading blob {digest}"),
            Self::MountBlob(digest) => write!(f, "mounting blob {digest}"),
            Self::DeleteBlob(digest) => write!(f, "deleting blob {digest}"),
            Self::ListTags => f.write_str("listing tags"),
            Self::ListReferrers(digest) => write!(f, "listing referrers of {digest}"),
            Self::ChangeReferrers(digest) => write!(f, "changing the referrers list of {digest}"),
        }
    }
}
