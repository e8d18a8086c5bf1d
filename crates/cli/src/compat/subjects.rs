//! The manifests of an image that artifacts speak of.

use portolan_compat::artifact::{FindError, Subject};
use portolan_core::{Descriptor, Document, Platform, Reference, media_type};
use portolan_registry::client::Client;
use portolan_registry::images::{self, Place};

use crate::context::classed;
use crate::exit::{Exit, Failure};
use crate::image;

/// What an artifact is attached to, or looked for at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SubjectArg {
    /// The manifest of the platform
    Manifest,
    /// The index the image is in
    Index,
    /// The manifest, else the index
    Auto,
}

impl From<SubjectArg> for Subject {
    fn from(arg: SubjectArg) -> Self {
        match arg {
            SubjectArg::Manifest => Self::Manifest,
            SubjectArg::Index => Self::Index,
            SubjectArg::Auto => Self::Auto,
        }
    }
}

/// An image manifest, or the index itself.
#[derive(Debug, Clone)]
pub(super) struct Spoken {
    pub(super) descriptor: Descriptor,
    /// What it runs on, where that is known; none for an index.
    pub(super) platform: Option<Platform>,
    pub(super) is_index: bool,
}

impl Spoken {
    /// For a table.
    pub(super) fn name(&self) -> String {
        match &self.platform {
            _ if self.is_index => "(index)".to_owned(),
            Some(platform) => platform.to_string(),
            None => "-".to_owned(),
        }
    }
}

/// Every manifest that `reference` names and the index last where it is one, or only the manifests
/// for one of `platforms`.
pub(super) async fn of(
    reference: &Reference,
    platforms: &[Platform],
    client: &Client,
) -> Result<(Place, Vec<Spoken>), Failure> {
    let place = image::open(reference, client)?;
    let target = images::target(reference);
    let top = place.fetch(target.as_ref()).await.map_err(image::failure)?;
    let candidates = images::candidates(&place, &top).await.map_err(image::resolve::failure)?;
    let mut found = Vec::new();
    for (descriptor, platform) in candidates.manifests() {
        let artifact = descriptor.artifact_type.as_deref();
        let is_image = artifact.is_none_or(media_type::is_image_config)
            && platform.is_none_or(|platform| !platform.is_unknown());
        if is_image {
            let platform = platform.map(Platform::normalised);
            found.push(Spoken { descriptor: descriptor.clone(), platform, is_index: false });
        }
    }
    if !platforms.is_empty() {
        found = chosen(found, platforms, reference)?;
    } else if matches!(top.document, Document::Index(_)) {
        found.push(Spoken { descriptor: top.descriptor, platform: None, is_index: true });
    }
    Ok((place, found))
}

/// The manifests for exactly these platforms: an artifact for `linux/amd64` says nothing about the
/// image for `linux/amd64/v3`.
fn chosen(
    found: Vec<Spoken>,
    platforms: &[Platform],
    reference: &Reference,
) -> Result<Vec<Spoken>, Failure> {
    let mut kept = Vec::new();
    for platform in platforms {
        image::wanted::warn(platform);
        let wanted = platform.normalised();
        let fits = |one: &&Spoken| one.platform.as_ref() == Some(&wanted);
        let before = kept.len();
        kept.extend(found.iter().filter(fits).cloned());
        if kept.len() == before {
            let known: Vec<_> = found.iter().map(Spoken::name).collect();
            let error = anyhow::anyhow!(
                "{reference} has no image for {wanted}; it has {}",
                known.join(", ")
            );
            return Err(Failure::new(Exit::NotFound, error));
        }
    }
    Ok(kept)
}

/// That nothing says what an image needs has an exit code of its own; the rest is trouble.
pub(crate) fn failure(error: FindError) -> Failure {
    match error.class() {
        Some(class) => classed(class, error),
        None => Failure::new(Exit::NoArtifact, error),
    }
}
