//! `image-push`: what a strategy made is checked, changed as asked for, and pushed.

mod archive;
mod load;
mod mutate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portolan_core::manifest::Document;
use portolan_core::{
    Descriptor, Digest, LayoutReference, Manifest, Platform, Reference, Tag, Target,
};
use portolan_registry::client::{Client, Fetched};
use portolan_registry::copy::{CopyOptions, copy};
use portolan_registry::images::{self, Place};
use portolan_registry::layout::Layout;
use portolan_registry::progress::Silent;

use super::index::there_already;
use super::results::read_number;
use super::source::workshop;
use super::{StepError, child};

pub use mutate::Changes;

pub(crate) const REASON: &str = "ImagePushFailed";

/// What is done to an image.
#[derive(Debug, Clone)]
pub struct Push {
    /// Where it goes, or where the strategy put it.
    pub image: Reference,
    /// Where a strategy that does not push left it.
    pub dir: Option<PathBuf>,
    /// What it must be for.
    pub platform: Option<Platform>,
    /// Annotations of the image, and of an index too.
    pub annotations: BTreeMap<String, String>,
    /// Labels of every image.
    pub labels: BTreeMap<String, String>,
    /// When it says it was made.
    pub timestamp: Timestamp,
}

/// When an image says it was made.
#[derive(Debug, Clone, Default)]
pub enum Timestamp {
    /// As the strategy says.
    #[default]
    Untouched,
    /// Seconds since 1970.
    At(i64),
    /// The same, in a file that a step before wrote.
    InFile(PathBuf),
}

/// What is in the registry now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedImage {
    /// Its digest.
    pub digest: Digest,
    /// Configuration and layers as they are stored; none for an index.
    pub size: Option<u64>,
    /// Whether anything had to be written.
    pub written: bool,
}

/// Checks, changes and pushes.
pub async fn push(request: &Push, client: &Client, temp: &Path) -> Result<PushedImage, StepError> {
    let changes = Changes {
        annotations: request.annotations.clone(),
        labels: request.labels.clone(),
        timestamp: match &request.timestamp {
            Timestamp::Untouched => None,
            Timestamp::At(seconds) => Some(*seconds),
            Timestamp::InFile(file) => Some(read_number(file)?),
        },
    };
    let Some(Target::Tag(tag)) = images::target(&request.image) else {
        let what = format!("{} names no tag to push to", request.image);
        return Err(StepError::bad(REASON, what));
    };
    let work = workshop(temp, REASON)?;
    let there = open(&request.image, client)?;
    let (from, top) = match &request.dir {
        Some(dir) => load::directory(dir, work.path()).await?,
        None => {
            let top = there.manifest(&Target::Tag(tag.clone())).await.map_err(|source| {
                let what =
                    format!("the strategy pushed nothing to {} that could be read", request.image);
                StepError::image(REASON, what, source)
            })?;
            (there.clone(), top)
        }
    };
    let top = match &request.platform {
        Some(platform) => child::find(&from, top, platform, REASON).await?.fetched,
        None => top,
    };
    match from {
        Place::Layout(layout) => {
            let staged = Staged { layout, work: work.path() };
            staged.publish(top, &changes, request, (&there, &tag), client).await
        }
        Place::Remote(_) => in_place(top, &changes, &there, &tag).await,
    }
}

fn open(image: &Reference, client: &Client) -> Result<Place, StepError> {
    Place::create(image, client)
        .map_err(|source| StepError::image(REASON, format!("cannot open {image}"), source))
}

/// Changes an image that a strategy pushed, where it is.
async fn in_place(
    top: Fetched,
    changes: &Changes,
    there: &Place,
    tag: &Tag,
) -> Result<PushedImage, StepError> {
    let size = size(&top.document);
    if changes.is_empty() {
        return Ok(PushedImage { digest: top.descriptor.digest, size, written: false });
    }
    let changed = mutate::apply(there, there, top, changes).await?;
    if there_already(there, &Target::Tag(tag.clone()), &changed.descriptor.digest).await {
        let (digest, size) = (changed.descriptor.digest, self::size(&changed.document));
        return Ok(PushedImage { digest, size, written: false });
    }
    let media_type = changed.descriptor.media_type.clone();
    there
        .push_manifest(&media_type, changed.bytes.clone(), Some(tag))
        .await
        .map_err(|source| StepError::image(REASON, format!("cannot push {there}:{tag}"), source))?;
    let size = self::size(&changed.document);
    Ok(PushedImage { digest: changed.descriptor.digest, size, written: true })
}

/// An image in a directory that is not ours to write to.
struct Staged<'a> {
    layout: Layout,
    work: &'a Path,
}

impl Staged<'_> {
    async fn publish(
        &self,
        top: Fetched,
        changes: &Changes,
        request: &Push,
        (there, tag): (&Place, &Tag),
        client: &Client,
    ) -> Result<PushedImage, StepError> {
        let (layout, top) = match changes.is_empty() {
            true => (self.layout.clone(), top),
            false => {
                let keep = |source| StepError::local(REASON, "the image cannot be kept", source);
                let ours = Layout::create(&self.work.join("changed")).map_err(keep)?;
                take_over(&self.layout, &top.descriptor.digest, &ours, None)?;
                let (from, to) = (Place::Layout(self.layout.clone()), Place::Layout(ours.clone()));
                (ours, mutate::apply(&from, &to, top, changes).await?)
            }
        };
        let (digest, size) = (top.descriptor.digest, size(&top.document));
        if there_already(there, &Target::Tag(tag.clone()), &digest).await {
            return Ok(PushedImage { digest, size, written: false });
        }
        let from =
            LayoutReference { dir: layout.dir().to_owned(), tag: None, digest: Some(digest) };
        let options = CopyOptions::default();
        copy(&Reference::Layout(from), &request.image, client, &options, Arc::new(Silent))
            .await
            .map_err(|source| {
                StepError::copy(REASON, format!("cannot push {}", request.image), source)
            })?;
        Ok(PushedImage { digest, size, written: true })
    }
}

/// Changes an image of a layout there, as a cluster changes what a strategy left; returns what it is now.
pub(crate) async fn change(
    layout: &Layout,
    image: &Digest,
    changes: &Changes,
) -> Result<(Descriptor, Option<u64>), StepError> {
    let place = Place::Layout(layout.clone());
    let top = place
        .manifest(&Target::Digest(*image))
        .await
        .map_err(|source| StepError::image(REASON, format!("cannot read {image}"), source))?;
    let top = match changes.is_empty() {
        true => top,
        false => mutate::apply(&place, &place, top, changes).await?,
    };
    Ok((top.descriptor, size(&top.document)))
}

/// Configuration and layers of one image.
fn size(document: &Document) -> Option<u64> {
    match document {
        Document::Index(_) => None,
        Document::Manifest(Manifest { config, layers, .. }) => {
            let all = layers.iter().map(|layer| layer.size);
            Some(all.fold(config.size, u64::saturating_add))
        }
    }
}

/// Takes an image with everything in it over to another layout, by links where that is possible.
pub(crate) fn take_over(
    from: &Layout,
    top: &Digest,
    to: &Layout,
    tag: Option<&Tag>,
) -> Result<Descriptor, StepError> {
    let keep = |source| StepError::local(REASON, "the image cannot be kept", source);
    let (descriptor, bytes) = from.manifest(&Target::Digest(*top)).map_err(keep)?;
    let document = Document::parse(&bytes, Some(&descriptor.media_type))
        .map_err(|source| StepError::local(REASON, format!("{top} cannot be read"), source))?;
    for child in document.children() {
        take_over(from, &child.digest, to, None)?;
    }
    for blob in document.blobs() {
        if !to.mount_blob(&blob.digest, from).map_err(keep)? {
            let what = format!("the image lacks {}, which it names", blob.digest);
            return Err(StepError::bad(REASON, what));
        }
    }
    to.put_manifest(&descriptor.media_type, &bytes, tag).map_err(keep)
}
