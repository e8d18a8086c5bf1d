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
use portolan_registry::ErrorClass;
use portolan_registry::client::{Client, Fetched};
use portolan_registry::copy::{CopyOptions, copy};
use portolan_registry::durable;
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
    /// Where it goes.
    pub image: Reference,
    /// Where it is.
    pub made: Made,
    /// What it must be for.
    pub platform: Option<Platform>,
    /// Annotations of the image, and of an index too.
    pub annotations: BTreeMap<String, String>,
    /// Labels of every image.
    pub labels: BTreeMap<String, String>,
    /// When it says it was made.
    pub timestamp: Timestamp,
}

/// Where a strategy left its image. A tag that an earlier run moved, or another one moves at the same time, says nothing
/// of this run; so in a cluster it is never asked.
#[derive(Debug, Clone, Default)]
pub enum Made {
    /// A directory with an OCI layout or one tarball.
    InDirectory(PathBuf),
    /// Pushed, with its digest in this file.
    ByDigest(PathBuf),
    /// Pushed under a name that no other run uses.
    Under(Reference),
    /// Whatever the tag is now: for people, who know.
    #[default]
    AsTagged,
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
    let (from, whole) = match &request.made {
        Made::InDirectory(dir) => load::directory(dir, work.path()).await?,
        Made::ByDigest(file) => {
            let target = Target::Digest(left_digest(file)?);
            (there.clone(), pushed(&there, &target, &request.image).await?)
        }
        Made::Under(name) => {
            let target = beside(name, &request.image)?;
            (there.clone(), pushed(&there, &target, name).await?)
        }
        Made::AsTagged => {
            let target = Target::Tag(tag.clone());
            (there.clone(), pushed(&there, &target, &request.image).await?)
        }
    };
    let top = match &request.platform {
        Some(platform) => child::find(&from, whole.clone(), platform, REASON).await?.fetched,
        None => whole.clone(),
    };
    match from {
        Place::Layout(layout) => {
            let staged = Staged { layout, work: work.path() };
            staged.publish(top, &changes, request, (&there, &tag), client).await
        }
        Place::Remote(_) => in_place((whole, top), &changes, &there, &tag).await,
    }
}

/// A name in the repository of the image, whose parts then are where the image's tag needs them.
fn beside(name: &Reference, image: &Reference) -> Result<Target, StepError> {
    let place = |reference: &Reference| match reference {
        Reference::Registry(found) => (found.registry.to_string(), found.repository.to_string()),
        Reference::Layout(found) => (String::new(), found.dir.display().to_string()),
    };
    images::target(name).filter(|_| place(name) == place(image)).ok_or_else(|| {
        let what = format!("{name} names nothing in the repository of {image}; push there");
        StepError::bad(REASON, what)
    })
}

/// What a strategy pushed.
async fn pushed(place: &Place, target: &Target, name: &Reference) -> Result<Fetched, StepError> {
    place.manifest(target).await.map_err(|source| {
        let named = match target {
            Target::Digest(digest) => format!("{name} as {digest}"),
            Target::Tag(_) => name.to_string(),
        };
        let what = format!("the strategy pushed nothing to {named} that could be read");
        StepError::image(REASON, what, source)
    })
}

/// The digest that a strategy left.
fn left_digest(file: &Path) -> Result<Digest, StepError> {
    /// Longer than any digest: what is not one is not read.
    const MOST: u64 = 1024;
    let hint = "a strategy in whose steps shp-image-digest is named, also in a comment, has to write it there";
    let bytes = durable::read_bounded(file, MOST).map_err(|source| {
        StepError::local(REASON, format!("cannot read {}", file.display()), source)
    })?;
    let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).trim().to_owned();
    if text.is_empty() {
        let what = format!("the strategy left no digest in {}; {hint}", file.display());
        return Err(StepError::bad(REASON, what));
    }
    text.parse().map_err(|source| {
        let what = format!("the strategy left {text:?} in {}, no digest; {hint}", file.display());
        StepError::of(REASON, Some(ErrorClass::BadInput), what, source)
    })
}

fn open(image: &Reference, client: &Client) -> Result<Place, StepError> {
    Place::create(image, client)
        .map_err(|source| StepError::image(REASON, format!("cannot open {image}"), source))
}

/// Changes an image that a strategy pushed, where it is, and sees to it that the tag names what came of it. `whole` is what
/// was pushed, and `top` the image in it that counts.
async fn in_place(
    (whole, top): (Fetched, Fetched),
    changes: &Changes,
    there: &Place,
    tag: &Tag,
) -> Result<PushedImage, StepError> {
    let (image, named) = match changes.is_empty() {
        // An index keeps its tag, with the attestations that are in it.
        true => (top, whole),
        false => {
            let changed = mutate::apply(there, there, top, changes).await?;
            (changed.clone(), changed)
        }
    };
    let (digest, size) = (image.descriptor.digest, size(&image.document));
    if there_already(there, &Target::Tag(tag.clone()), &named.descriptor.digest).await {
        return Ok(PushedImage { digest, size, written: false });
    }
    there
        .push_manifest(&named.descriptor.media_type, named.bytes.clone(), Some(tag))
        .await
        .map_err(|source| StepError::image(REASON, format!("cannot push {there}:{tag}"), source))?;
    Ok(PushedImage { digest, size, written: true })
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
