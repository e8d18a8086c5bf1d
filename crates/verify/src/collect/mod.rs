//! Everything attached to a subject, fetched within bounds, unjudged.
//!
//! | where | what |
//! |---|---|
//! | the list of referrers | whatever its layers are: types in the list are not relied on |
//! | the tag `sha256-….sig` | signatures of cosign 2 |
//! | the tag `sha256-….att` | attestations of cosign 2 |
//!
//! That nothing is there and that it cannot be had are two things: the second is an error. What is
//! there but cannot be used is [passed over](PassedOver) with the reason, and never counts.

mod layers;

use std::collections::BTreeSet;
use std::fmt;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use portolan_core::causes::chain;
use portolan_core::{Descriptor, Digest, Document, Manifest, Target};
use portolan_registry::ErrorClass;
use portolan_registry::client::Fetched;
use portolan_registry::images::{ImageError, Place};
use serde::Serialize;

use crate::cosign;
use crate::evidence::{Carrier, Evidence};
use crate::subject::Subject;

pub use layers::Use;
pub(crate) use layers::{CYCLONEDX, SARIF, SPDX};

/// How much is looked at for one subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Artifacts that refer to it.
    pub referrers: usize,
    /// Signatures, attestations and documents in all of them.
    pub pieces: usize,
    /// Bytes of one of these.
    pub blob: u64,
    /// Bytes of all together.
    pub total: u64,
    /// Requests at the same time.
    pub concurrency: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            referrers: 64,
            pieces: 128,
            blob: 4 * 1024 * 1024,
            total: 32 * 1024 * 1024,
            concurrency: 4,
        }
    }
}

/// What was found for a subject.
#[derive(Debug, Clone, Default)]
pub struct Collected {
    /// To be judged.
    pub evidence: Vec<Evidence>,
    /// What was there and is not evidence that can be judged.
    pub passed_over: Vec<PassedOver>,
}

/// An artifact, or a layer of one, that does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassedOver {
    /// The artifact.
    pub artifact: Digest,
    /// Why.
    pub why: String,
}

/// Why it is not known what is attached to a subject.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Nobody says what refers to it.
    #[error("cannot list what refers to {subject}")]
    List {
        /// Whose list.
        subject: Digest,
        /// The cause.
        #[source]
        source: Box<ImageError>,
    },
    /// Something that is listed cannot be had.
    #[error("cannot read {what}, which is attached to {subject}")]
    Read {
        /// Of whom.
        subject: Digest,
        /// The artifact or blob.
        what: String,
        /// The cause.
        #[source]
        source: Box<ImageError>,
    },
    /// More than anybody looks at. Looking at a part would let the rest be hidden behind it.
    #[error(
        "{subject} has {found} {what} attached, more than the {limit} that are looked at; delete those that are out of date"
    )]
    TooMuch {
        /// Of whom.
        subject: Digest,
        /// Artifacts, pieces or bytes.
        what: &'static str,
        /// How many.
        found: u64,
        /// The bound.
        limit: u64,
    },
}

impl CollectError {
    /// What kind of trouble it is. That something listed is gone is the registry's trouble: the
    /// image itself was found.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::List { source, .. } | Self::Read { source, .. } => match source.class() {
                ErrorClass::NotFound => ErrorClass::Transport,
                class => class,
            },
            Self::TooMuch { .. } => ErrorClass::BadInput,
        }
    }
}

/// An artifact that speaks of the subject.
struct Artifact {
    digest: Digest,
    carrier: Carrier,
    manifest: Manifest,
}

/// Finds everything attached to `subject`.
pub async fn collect(
    place: &Place,
    subject: &Subject,
    limits: &Limits,
) -> Result<Collected, CollectError> {
    let collector = Collector { place, subject: subject.descriptor.digest, limits };
    let mut passed_over = Vec::new();
    let artifacts = collector.artifacts(&mut passed_over).await?;
    let mut pieces = Vec::new();
    for artifact in &artifacts {
        for layer in &artifact.manifest.layers {
            match layers::of(&artifact.manifest, layer) {
                Some(_) if layer.size > limits.blob => passed_over.push(PassedOver {
                    artifact: artifact.digest,
                    why: format!(
                        "its layer {} has {} bytes, more than the {} that are read",
                        layer.digest, layer.size, limits.blob
                    ),
                }),
                Some(used) => pieces.push((artifact, layer, used)),
                None => {}
            }
        }
        if !pieces.iter().any(|(of, ..)| of.digest == artifact.digest) {
            let known = passed_over.iter().any(|one| one.artifact == artifact.digest);
            if !known {
                let why = "it is neither a signature, an attestation nor a document that is known";
                passed_over.push(PassedOver { artifact: artifact.digest, why: why.to_owned() });
            }
        }
    }
    collector.bounded("pieces of evidence", pieces.len() as u64, limits.pieces as u64)?;
    let total = pieces.iter().map(|(_, layer, _)| layer.size).fold(0, u64::saturating_add);
    collector.bounded("bytes", total, limits.total)?;
    // A list and not a stream of closures: with these the compiler does not see that the whole may
    // move between threads.
    let fetches: Vec<_> = pieces
        .into_iter()
        .map(|(artifact, layer, used)| collector.piece(artifact, layer, used))
        .collect();
    let evidence = stream::iter(fetches).buffered(limits.concurrency).try_collect().await?;
    Ok(Collected { evidence, passed_over })
}

struct Collector<'a> {
    place: &'a Place,
    subject: Digest,
    limits: &'a Limits,
}

impl Collector<'_> {
    fn bounded(&self, what: &'static str, found: u64, limit: u64) -> Result<(), CollectError> {
        match found > limit {
            true => Err(CollectError::TooMuch { subject: self.subject, what, found, limit }),
            false => Ok(()),
        }
    }

    fn unreadable(&self, what: impl fmt::Display, source: ImageError) -> CollectError {
        CollectError::Read {
            subject: self.subject,
            what: what.to_string(),
            source: Box::new(source),
        }
    }

    /// Every artifact that speaks of the subject, each once.
    async fn artifacts(
        &self,
        passed_over: &mut Vec<PassedOver>,
    ) -> Result<Vec<Artifact>, CollectError> {
        let subject = self.subject;
        // No type is asked for: some registries list a bundle as the type of its empty config.
        let listed = self.place.referrers(&subject, None).await;
        let listed =
            listed.map_err(|source| CollectError::List { subject, source: Box::new(source) })?;
        let listed: BTreeSet<Digest> = listed.iter().map(|entry| entry.digest).collect();
        self.bounded("artifacts", listed.len() as u64, self.limits.referrers as u64)?;
        let asked = listed.into_iter().map(|digest| (Carrier::Referrer, Target::Digest(digest)));
        let asked = asked.chain(["sig", "att"].map(|suffix| {
            let tag = cosign::tag(&subject, suffix);
            (Carrier::Tag(tag.clone()), Target::Tag(tag))
        }));
        let fetched: Vec<_> = stream::iter(asked)
            .map(|(carrier, target)| self.fetch(carrier, target))
            .buffered(self.limits.concurrency)
            .try_collect()
            .await?;
        let mut artifacts: Vec<Artifact> = Vec::new();
        for (carrier, fetched) in fetched.into_iter().flatten() {
            match fetched.and_then(|fetched| self.speaks(&carrier, fetched)) {
                Err(why) => passed_over.push(why),
                Ok((digest, _)) if artifacts.iter().any(|one| one.digest == digest) => {}
                Ok((digest, manifest)) => artifacts.push(Artifact { digest, carrier, manifest }),
            }
        }
        Ok(artifacts)
    }

    /// None where a tag is not there. What is there and is no manifest, or is listed and gone, is
    /// passed over.
    async fn fetch(
        &self,
        carrier: Carrier,
        target: Target,
    ) -> Result<Option<(Carrier, Result<Fetched, PassedOver>)>, CollectError> {
        let error = match self.place.manifest(&target).await {
            Ok(fetched) => return Ok(Some((carrier, Ok(fetched)))),
            Err(error) => error,
        };
        match (&target, error.class()) {
            (Target::Tag(_), ErrorClass::NotFound) => Ok(None),
            (Target::Digest(artifact), ErrorClass::NotFound) => {
                let why = "it is listed, but it is not there".to_owned();
                Ok(Some((carrier, Err(PassedOver { artifact: *artifact, why }))))
            }
            (Target::Digest(artifact), ErrorClass::BadInput) if is_unknown_form(&error) => {
                let why = format!("it is no manifest that can be read: {}", chain(&error));
                Ok(Some((carrier, Err(PassedOver { artifact: *artifact, why }))))
            }
            _ => Err(self.unreadable(
                match &target {
                    Target::Tag(tag) => format!("the tag {tag}"),
                    Target::Digest(digest) => digest.to_string(),
                },
                error,
            )),
        }
    }

    /// An artifact counts if it says itself that it speaks of the subject; under a tag made of the
    /// subject's digest it need not, as cosign 2 does not.
    fn speaks(
        &self,
        carrier: &Carrier,
        fetched: Fetched,
    ) -> Result<(Digest, Manifest), PassedOver> {
        let artifact = fetched.descriptor.digest;
        let refuse = |why: String| Err(PassedOver { artifact, why });
        let subject = fetched.document.subject().map(|subject| subject.digest);
        match (carrier, subject) {
            (_, Some(subject)) if subject == self.subject => {}
            (Carrier::Tag(_), None) => {}
            (_, Some(other)) => return refuse(format!("it speaks of {other}")),
            (Carrier::Referrer, None) => {
                return refuse("it is listed, but it does not say what it speaks of".to_owned());
            }
        }
        match fetched.document {
            Document::Manifest(manifest) => Ok((artifact, manifest)),
            Document::Index(_) => refuse("it is an index and holds no evidence itself".to_owned()),
        }
    }

    async fn piece(
        &self,
        artifact: &Artifact,
        layer: &Descriptor,
        used: Use,
    ) -> Result<Evidence, CollectError> {
        let bytes = self.place.read_blob(layer, self.limits.blob).await;
        let bytes = bytes.map_err(|source| self.unreadable(layer.digest, source))?;
        let content = used.content(&artifact.manifest, layer, bytes);
        Ok(Evidence { artifact: artifact.digest, carrier: artifact.carrier.clone(), content })
    }
}

/// Whether the bytes are what their digest says and are only no manifest that we know, such as the
/// withdrawn artifact manifest: then there is no evidence in it, and no breakdown either.
fn is_unknown_form(error: &ImageError) -> bool {
    use portolan_registry::client::Failure;
    match error {
        ImageError::Document { .. } => true,
        ImageError::Client(error) => matches!(error.failure(), Failure::Document(_)),
        ImageError::Layout(_) | ImageError::TooLarge { .. } => false,
    }
}
