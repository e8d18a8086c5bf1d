//! From an image to the artifact that says what it needs.

use bytes::Bytes;
use portolan_core::{Descriptor, Digest, Target};
use portolan_registry::ErrorClass;
use portolan_registry::client::Fetched;
use portolan_registry::images::{ImageError, Place};

use super::choose::{Listed, choose};
use super::contents::{Contents, ContentsError, contents};
use super::{Kind, MAX_SPEC_BYTES};

/// What artifacts may speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Subject {
    /// The manifest of the platform.
    #[default]
    Manifest,
    /// The index that the image was found in.
    Index,
    /// The manifest, and where nothing speaks of it the index.
    Auto,
}

/// An image, resolved for one platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What the reference named.
    pub top: Digest,
    /// The manifest of the platform; the same where the reference named a manifest.
    pub manifest: Digest,
}

/// Which artifact is meant.
#[derive(Debug, Clone)]
pub enum Which {
    /// The one that counts among those that refer to the image.
    Best,
    /// This one, in the repository of the image.
    Digest(Digest),
    /// The one under this tag or digest, perhaps elsewhere.
    At(Place, Target),
}

/// The artifact of an image.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its manifest.
    pub digest: Digest,
    /// What is in it.
    pub contents: Contents,
    /// The requirements, as they were attached.
    pub spec: Bytes,
    /// Artifacts of the same image that do not count.
    pub skipped: Vec<Listed>,
    /// Where it is, for its plugins.
    pub place: Place,
}

/// Why the artifact of an image was not found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Nothing says what the image needs. An answer, not a breakdown.
    #[error("nothing says what {} needs; attach a spec with `portolan compat attach`", looked.iter().map(Digest::to_string).collect::<Vec<_>>().join(" or "))]
    NoArtifact {
        /// What was asked for.
        looked: Vec<Digest>,
    },
    /// The list of what refers to the image could not be had.
    #[error("cannot list what refers to {subject}")]
    List {
        /// The manifest or index.
        subject: Digest,
        /// Why.
        #[source]
        source: Box<ImageError>,
    },
    /// The artifact could not be read.
    #[error("cannot read the compatibility artifact {artifact}")]
    Read {
        /// As it was named.
        artifact: String,
        /// Why.
        #[source]
        source: Box<ImageError>,
    },
    /// What was read cannot be used.
    #[error("{artifact} cannot be used; attach the spec again")]
    Contents {
        /// The manifest.
        artifact: Digest,
        /// Why.
        #[source]
        source: ContentsError,
    },
    /// It speaks of another image.
    #[error("{artifact} speaks of {subject}, not of {}", expected.iter().map(Digest::to_string).collect::<Vec<_>>().join(" or "))]
    OtherImage {
        /// The artifact.
        artifact: Digest,
        /// What it speaks of.
        subject: Digest,
        /// What it was to speak of.
        expected: Vec<Digest>,
    },
}

impl FindError {
    /// What kind of trouble it is; none when it is no trouble but the answer that there is none.
    pub fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::NoArtifact { .. } => None,
            Self::List { source, .. } | Self::Read { source, .. } => Some(source.class()),
            Self::Contents { .. } | Self::OtherImage { .. } => Some(ErrorClass::BadInput),
        }
    }
}

impl Subject {
    /// What an artifact of `image` may speak of, in the order in which it is looked for.
    fn of(self, image: &Image) -> Vec<Digest> {
        let mut subjects = match self {
            Self::Manifest => vec![image.manifest],
            Self::Index => vec![image.top],
            Self::Auto => vec![image.manifest, image.top],
        };
        subjects.dedup();
        subjects
    }
}

/// Every compatibility artifact that refers to `subject`, in the order of the list.
pub async fn list(place: &Place, subject: &Digest) -> Result<Vec<Listed>, FindError> {
    let mut found = Vec::new();
    for kind in Kind::ALL {
        found.extend(list_kind(place, subject, kind).await?);
    }
    Ok(found)
}

async fn list_kind(place: &Place, subject: &Digest, kind: Kind) -> Result<Vec<Listed>, FindError> {
    let subject = *subject;
    let entries = place.referrers(&subject, Some(kind.artifact_type())).await;
    let entries =
        entries.map_err(|source| FindError::List { subject, source: Box::new(source) })?;
    Ok(entries.iter().filter_map(|entry| Listed::of(entry, subject)).collect())
}

/// The artifact of `image`, with its requirements.
///
/// A given artifact must speak of the image. Of those found by the image the newest counts
/// ([`choose`]); rules of NFD are only asked for where there is no compatibility spec.
pub async fn find(
    place: &Place,
    image: &Image,
    subject: Subject,
    which: &Which,
) -> Result<Found, FindError> {
    let subjects = subject.of(image);
    let (place, target, skipped) = match which {
        Which::Best => {
            let Some(choice) = best(place, &subjects).await? else {
                return Err(FindError::NoArtifact { looked: subjects });
            };
            (place, Target::Digest(choice.chosen.digest), choice.skipped)
        }
        Which::Digest(digest) => (place, Target::Digest(*digest), Vec::new()),
        Which::At(place, target) => (place, target.clone(), Vec::new()),
    };
    let fetched = place.manifest(&target).await.map_err(|source| FindError::Read {
        artifact: match &target {
            Target::Tag(tag) => format!("{place}:{tag}"),
            Target::Digest(digest) => format!("{place}@{digest}"),
        },
        source: Box::new(source),
    })?;
    let mut found = open(place, &fetched, &subjects).await?;
    found.skipped = skipped;
    Ok(found)
}

async fn best(
    place: &Place,
    subjects: &[Digest],
) -> Result<Option<super::choose::Choice>, FindError> {
    for subject in subjects {
        for kind in Kind::ALL {
            if let Some(choice) = choose(list_kind(place, subject, kind).await?) {
                return Ok(Some(choice));
            }
        }
    }
    Ok(None)
}

/// Checks what an artifact speaks of and reads its requirements.
async fn open(place: &Place, fetched: &Fetched, subjects: &[Digest]) -> Result<Found, FindError> {
    let Descriptor { digest: artifact, .. } = fetched.descriptor;
    let contents =
        contents(&fetched.document).map_err(|source| FindError::Contents { artifact, source })?;
    let subject = contents.subject;
    if !subjects.contains(&subject) {
        return Err(FindError::OtherImage { artifact, subject, expected: subjects.to_vec() });
    }
    let spec = place.read_blob(&contents.spec, MAX_SPEC_BYTES).await;
    let spec = spec.map_err(|source| FindError::Read {
        artifact: artifact.to_string(),
        source: Box::new(source),
    })?;
    let place = place.clone();
    Ok(Found { digest: artifact, contents, spec, skipped: Vec::new(), place })
}
