//! From a reference to the one manifest that a host runs.

use portolan_core::manifest::{MAX_MANIFEST_BYTES, config_platform};
use portolan_core::platform::HostPlatform;
use portolan_core::select::{Candidates, Question, Selection, select};
use portolan_core::{Descriptor, Document, Manifest, Platform, Target, media_type};

use super::{Place, ResolveError};
use crate::client::Fetched;

/// What a reference was, and what of it a host runs.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The index or manifest that the reference named at the moment it was resolved. From here
    /// on only digests are used.
    pub top: Descriptor,
    /// What the host runs, and why every other entry lost. When the reference named a single
    /// manifest that is the only entry, judged by what its config says it runs on.
    pub selection: Selection,
}

impl Resolved {
    /// The manifest to run.
    pub fn chosen(&self) -> &Descriptor {
        &self.selection.chosen
    }
}

/// Resolves `target` (none: the only image of a layout) to the one manifest that `host` runs.
///
/// A tag is asked for once. Nested indexes are opened and configs of entries without a platform
/// are read, to the bounds of [`portolan_core::select`].
pub async fn resolve_platform(
    place: &Place,
    target: Option<&Target>,
    host: &HostPlatform,
) -> Result<Resolved, ResolveError> {
    let top = place.fetch(target).await.map_err(ResolveError::Read)?;
    let candidates = candidates(place, &top).await?;
    let selection = select(&candidates, host)
        .map_err(|refusal| ResolveError::NoMatch { digest: top.descriptor.digest, refusal })?;
    Ok(Resolved { top: top.descriptor, selection })
}

/// Everything that could be chosen from in `top`, with all that had to be read for it: nested
/// indexes, and configs of manifests that no index gives a platform.
pub async fn candidates(place: &Place, top: &Fetched) -> Result<Candidates, ResolveError> {
    let digest = top.descriptor.digest;
    let index = match &top.document {
        Document::Index(index) => index,
        Document::Manifest(manifest) => {
            let platform = manifest_platform(place, manifest).await?;
            return Ok(Candidates::single(top.descriptor.clone(), platform));
        }
    };
    let mut candidates = Candidates::new(digest, index);
    while let Some(question) = candidates.question() {
        let (Question::Index(entry) | Question::Platform(entry)) = &question;
        let target = Target::Digest(entry.digest);
        let fetched = place.manifest(&target).await.map_err(ResolveError::Read)?;
        match (&question, &fetched.document) {
            (Question::Index(entry), Document::Index(index)) => {
                candidates.answer_index(&entry.digest, index);
            }
            (Question::Platform(entry), Document::Manifest(manifest)) => {
                let platform = manifest_platform(place, manifest).await?;
                candidates.answer_platform(&entry.digest, platform);
            }
            (_, other) => {
                return Err(ResolveError::OtherKind {
                    digest: entry.digest,
                    listed: entry.media_type.clone(),
                    found: other.media_type().to_owned(),
                });
            }
        }
    }
    Ok(candidates)
}

/// What the manifest's config says it runs on. The config of an artifact is not one of an image
/// and says nothing.
async fn manifest_platform(
    place: &Place,
    manifest: &Manifest,
) -> Result<Option<Platform>, ResolveError> {
    let config = &manifest.config;
    if !media_type::is_image_config(&config.media_type) {
        return Ok(None);
    }
    let limit = MAX_MANIFEST_BYTES as u64;
    let bytes = place.read_blob(config, limit).await.map_err(ResolveError::Read)?;
    config_platform(&bytes).map_err(|source| ResolveError::Config { digest: config.digest, source })
}
