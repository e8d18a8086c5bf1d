//! One face over the two places where images live: a repository of a registry, and an OCI layout
//! on disk. What reads or writes images asks a [`Place`] and need not know which it is.

mod blob;
mod entry;
mod error;
mod platform;

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use portolan_core::manifest::Document;
use portolan_core::{Descriptor, Digest, Reference, Tag, Target};

pub use blob::BlobBytes;
pub(crate) use blob::LayoutSource;
pub use entry::{EntryError, check_entry};
pub use error::{ImageError, ResolveError};
pub use platform::{Resolved, candidates, resolve_platform};

use crate::client::blobs::may_be;
use crate::client::{Client, Fetched, Remote};
use crate::layout::{Layout, LayoutError};

/// A repository or a layout.
#[derive(Debug, Clone)]
pub enum Place {
    /// A repository of a registry.
    Remote(Remote),
    /// A layout on this machine.
    Layout(Layout),
}

impl fmt::Display for Place {
    /// As in a reference, without tag and digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(remote) => {
                write!(f, "{}/{}", remote.registry().as_str(), remote.repository().as_str())
            }
            Self::Layout(layout) => write!(f, "oci:{}", layout.dir().display()),
        }
    }
}

/// What a reference asks its place for; none where only a directory was written.
pub fn target(reference: &Reference) -> Option<Target> {
    match reference {
        Reference::Registry(reference) => Some(reference.target()),
        Reference::Layout(reference) => reference.target(),
    }
}

impl Place {
    /// The place of `reference`, for reading. A layout must exist; a registry is not asked yet.
    pub fn open(reference: &Reference, client: &Client) -> Result<Self, ImageError> {
        match reference {
            Reference::Registry(r) => Ok(Self::remote(&r.registry, &r.repository, client)),
            Reference::Layout(r) => Ok(Self::Layout(Layout::open(&r.dir)?)),
        }
    }

    /// The place of `reference`, for writing. A layout is made where there is none.
    pub fn create(reference: &Reference, client: &Client) -> Result<Self, ImageError> {
        match reference {
            Reference::Registry(r) => Ok(Self::remote(&r.registry, &r.repository, client)),
            Reference::Layout(r) => Ok(Self::Layout(Layout::create(&r.dir)?)),
        }
    }

    fn remote(
        registry: &portolan_core::Host,
        repository: &portolan_core::Repository,
        client: &Client,
    ) -> Self {
        Self::Remote(client.repository(registry, repository))
    }

    /// What `target` is right now. Ask once: afterwards only the digest it returns is used, so
    /// that a tag that moves cannot give two answers within one operation.
    pub async fn resolve(&self, target: Option<&Target>) -> Result<Descriptor, ImageError> {
        match self {
            Self::Remote(remote) => {
                let latest = Target::Tag(Tag::latest());
                Ok(remote.resolve(target.unwrap_or(&latest)).await?)
            }
            Self::Layout(layout) => {
                let (layout, target) = (layout.clone(), target.cloned());
                Ok(blocking(move || layout.resolve(target.as_ref())).await?)
            }
        }
    }

    /// The index or manifest itself, bounded and verified.
    pub async fn manifest(&self, target: &Target) -> Result<Fetched, ImageError> {
        match self {
            Self::Remote(remote) => Ok(remote.manifest(target).await?),
            Self::Layout(layout) => {
                let (layout, target) = (layout.clone(), target.clone());
                blocking(move || read_manifest(&layout, &target)).await
            }
        }
    }

    /// What `target` is and its content, in one step: a tag is asked for once.
    pub async fn fetch(&self, target: Option<&Target>) -> Result<Fetched, ImageError> {
        let target = match target {
            Some(target) => target.clone(),
            None => match self {
                Self::Remote(_) => Target::Tag(Tag::latest()),
                Self::Layout(_) => Target::Digest(self.resolve(None).await?.digest),
            },
        };
        self.manifest(&target).await
    }

    /// A blob's bytes as they come; the stream ends only after size and digest matched.
    pub async fn blob(&self, descriptor: &Descriptor) -> Result<BlobBytes, ImageError> {
        blob::open(self, descriptor).await
    }

    /// A small blob as a whole: a config, an artifact's payload. Larger than `limit` is an error
    /// before a byte is read.
    pub async fn read_blob(
        &self,
        descriptor: &Descriptor,
        limit: u64,
    ) -> Result<Bytes, ImageError> {
        blob::read(self, descriptor, limit).await
    }

    /// Whether the content is there, as large as it should be.
    pub async fn has_blob(&self, blob: &Descriptor) -> Result<bool, ImageError> {
        match self {
            Self::Remote(remote) => {
                let found = remote.blob_exists(&blob.digest).await?;
                Ok(found.is_some_and(|size| may_be(blob, size)))
            }
            Self::Layout(layout) => Ok(layout.blob_size(&blob.digest)? == Some(blob.size)),
        }
    }

    /// Stores small content and returns its descriptor.
    pub async fn push_blob(
        &self,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<Descriptor, ImageError> {
        let descriptor = Descriptor::of(media_type, &bytes);
        match self {
            Self::Remote(remote) => {
                let source = crate::client::BytesSource(bytes);
                remote.push_blob(&descriptor, &source).await?;
            }
            Self::Layout(layout) => {
                let layout = layout.clone();
                blocking(move || layout.put_blob(&bytes)).await?;
            }
        }
        Ok(descriptor)
    }

    /// Stores a manifest or index, under `tag` if one is given. What it refers to must be there.
    pub async fn push_manifest(
        &self,
        media_type: &str,
        bytes: Bytes,
        tag: Option<&Tag>,
    ) -> Result<Descriptor, ImageError> {
        match self {
            Self::Remote(remote) => {
                let target = match tag {
                    Some(tag) => Target::Tag(tag.clone()),
                    None => Target::Digest(Digest::sha256(&bytes)),
                };
                Ok(remote.push_manifest(&target, media_type, &bytes).await?.descriptor)
            }
            Self::Layout(layout) => {
                let (layout, tag, media_type) =
                    (layout.clone(), tag.cloned(), media_type.to_owned());
                Ok(blocking(move || layout.put_manifest(&media_type, &bytes, tag.as_ref())).await?)
            }
        }
    }

    /// All tags.
    pub async fn tags(&self) -> Result<Vec<Tag>, ImageError> {
        match self {
            Self::Remote(remote) => Ok(remote.tags().await?),
            Self::Layout(layout) => {
                let layout = layout.clone();
                Ok(blocking(move || layout.tags()).await?)
            }
        }
    }

    /// What refers to `subject`, of one kind of artifact or of all.
    pub async fn referrers(
        &self,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, ImageError> {
        match self {
            Self::Remote(remote) => Ok(remote.referrers(subject, artifact_type).await?),
            Self::Layout(layout) => {
                let (layout, subject) = (layout.clone(), *subject);
                let artifact_type = artifact_type.map(str::to_owned);
                Ok(blocking(move || layout.referrers(&subject, artifact_type.as_deref())).await?)
            }
        }
    }

    /// The digests of all that refers to `subject`, as [`Remote::referring`] finds them: where there
    /// are more than `limit`, not all.
    pub async fn referring(
        &self,
        subject: &Digest,
        limit: usize,
    ) -> Result<BTreeSet<Digest>, ImageError> {
        match self {
            Self::Remote(remote) => Ok(remote.referring(subject, limit).await?),
            Self::Layout(_) => {
                let listed = self.referrers(subject, None).await?;
                Ok(listed.into_iter().map(|entry| entry.digest).collect())
            }
        }
    }

    /// Deletes a manifest and every tag on it.
    pub async fn delete_manifest(&self, digest: &Digest) -> Result<(), ImageError> {
        match self {
            Self::Remote(remote) => Ok(remote.delete_manifest(digest).await?),
            Self::Layout(layout) => {
                let (layout, digest) = (layout.clone(), *digest);
                blocking(move || match layout.delete_manifest(&digest)? {
                    true => Ok(()),
                    false => {
                        let dir = layout.dir().to_owned();
                        Err(LayoutError::ManifestNotFound { dir, digest }.into())
                    }
                })
                .await
            }
        }
    }

    /// Deletes a tag; the manifest stays.
    pub async fn delete_tag(&self, tag: &Tag) -> Result<(), ImageError> {
        match self {
            Self::Remote(remote) => Ok(remote.delete_tag(tag).await?),
            Self::Layout(layout) => {
                let (layout, tag) = (layout.clone(), tag.clone());
                blocking(move || match layout.delete_tag(&tag)? {
                    true => Ok(()),
                    false => {
                        let known = layout.tags()?.iter().map(ToString::to_string).collect();
                        let dir = layout.dir().to_owned();
                        Err(LayoutError::TagNotFound { dir, tag, known }.into())
                    }
                })
                .await
            }
        }
    }
}

fn read_manifest(layout: &Layout, target: &Target) -> Result<Fetched, ImageError> {
    let (descriptor, bytes) = layout.manifest(target)?;
    let document = Document::parse(&bytes, Some(&descriptor.media_type)).map_err(|source| {
        ImageError::Document {
            place: layout.dir().display().to_string(),
            digest: descriptor.digest,
            source,
        }
    })?;
    Ok(Fetched { descriptor, bytes: bytes.into(), document })
}

/// Runs what may wait for a disk where waiting disturbs nobody.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        // Nothing cancels these tasks, so it panicked: go on panicking here.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
