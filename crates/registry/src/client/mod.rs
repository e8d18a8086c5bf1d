//! The distribution client.

mod answer;
mod credentials;
mod error;
mod secret;
mod settings;
mod source;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use portolan_core::{Descriptor, Digest, Document, Host, Repository, Tag, Target};

pub use answer::ErrorBody;
pub use credentials::{Credential, CredentialError, CredentialStore};
pub use error::{ClientError, Failure, Step};
pub use secret::Secret;
pub use settings::{Settings, SettingsError};
pub use source::{BlobSource, BytesSource, FileSource, RemoteSource, SourceStream};

/// Connections, settings, credentials and tokens, shared by all repositories. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {}

impl Client {
    /// x
    pub fn new(_settings: Settings, _credentials: CredentialStore) -> Result<Self, ClientError> {
        todo!()
    }
    /// x
    pub fn repository(&self, _registry: &Host, _repository: &Repository) -> Remote {
        todo!()
    }
    /// Shows `credential` to a registry and says whether it is taken.
    pub async fn check_login(
        &self,
        _registry: &Host,
        _credential: &Credential,
    ) -> Result<(), ClientError> {
        todo!()
    }
}

/// One repository of one registry. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Remote {}

/// A manifest or index as it was read: the bytes decide, and the descriptor describes exactly them.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Of these bytes.
    pub descriptor: Descriptor,
    /// As they came.
    pub bytes: Bytes,
    /// What they say.
    pub document: Document,
}

/// A manifest that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// What the registry now has.
    pub descriptor: Descriptor,
}

/// How a blob came to be in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// It was there.
    Present,
    /// The registry took it over from another repository.
    Mounted,
    /// Its bytes were sent.
    Uploaded,
}

/// A blob as it comes.
#[derive(Debug)]
pub struct BlobStream {}
impl Stream for BlobStream {
    type Item = Result<Bytes, ClientError>;
    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        todo!()
    }
}

#[allow(missing_docs)]
impl Remote {
    pub fn registry(&self) -> &Host {
        todo!()
    }
    pub fn repository(&self) -> &Repository {
        todo!()
    }
    pub async fn resolve(&self, _target: &Target) -> Result<Descriptor, ClientError> {
        todo!()
    }
    pub async fn manifest(&self, _target: &Target) -> Result<Fetched, ClientError> {
        todo!()
    }
    pub async fn push_manifest(
        &self,
        _target: &Target,
        _media_type: &str,
        _bytes: &[u8],
    ) -> Result<Pushed, ClientError> {
        todo!()
    }
    pub async fn blob(&self, _descriptor: &Descriptor) -> Result<BlobStream, ClientError> {
        todo!()
    }
    pub async fn blob_exists(&self, _digest: &Digest) -> Result<Option<u64>, ClientError> {
        todo!()
    }
    pub async fn push_blob(
        &self,
        _descriptor: &Descriptor,
        _source: &dyn BlobSource,
    ) -> Result<Upload, ClientError> {
        todo!()
    }
    pub async fn mount_blob(
        &self,
        _digest: &Digest,
        _from: &Repository,
    ) -> Result<bool, ClientError> {
        todo!()
    }
    pub async fn tags(&self) -> Result<Vec<Tag>, ClientError> {
        todo!()
    }
    pub async fn referrers(
        &self,
        _subject: &Digest,
        _artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, ClientError> {
        todo!()
    }
    pub async fn delete_manifest(&self, _digest: &Digest) -> Result<(), ClientError> {
        todo!()
    }
    pub async fn delete_tag(&self, _tag: &Tag) -> Result<(), ClientError> {
        todo!()
    }
    pub async fn delete_blob(&self, _digest: &Digest) -> Result<(), ClientError> {
        todo!()
    }
}
