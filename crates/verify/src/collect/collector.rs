//! Fetching what is attached to one subject, within bounds that hold for all of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::try_join;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use portolan_core::causes::chain;
use portolan_core::{Descriptor, Digest, Document, Manifest, Target};
use portolan_registry::ErrorClass;
use portolan_registry::client::Fetched;
use portolan_registry::images::ImageError;

use super::{Carriers, CollectError, Collected, Limits, PassedOver, Sought, Source, Use, layers};
use crate::cosign::{self, Payload};
use crate::evidence::{Carrier, Evidence};

/// Looks for what is attached to a subject, in one place after the other.
pub struct Collector<'a> {
    source: &'a dyn Source,
    subject: Digest,
    sought: Sought,
    limits: &'a Limits,
    /// Bytes read so far.
    spent: AtomicU64,
    /// Pieces, and what was passed over, so far.
    pieces: u64,
    seen: BTreeSet<Digest>,
}

/// An artifact that speaks of the subject.
struct Artifact {
    digest: Digest,
    carrier: Carrier,
    manifest: Manifest,
}

impl fmt::Debug for Collector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").field("subject", &self.subject).finish_non_exhaustive()
    }
}

type Found = (Carrier, Result<Fetched, PassedOver>);

impl<'a> Collector<'a> {
    /// Nothing is asked yet.
    pub fn new(
        source: &'a dyn Source,
        subject: Digest,
        sought: Sought,
        limits: &'a Limits,
    ) -> Self {
        let (spent, pieces, seen) = (AtomicU64::new(0), 0, BTreeSet::new());
        Self { source, subject, sought, limits, spent, pieces, seen }
    }

    /// What is there and was not found before.
    pub async fn look(&mut self, carriers: Carriers) -> Result<Collected, CollectError> {
        let mut passed_over = Vec::new();
        let artifacts = self.artifacts(carriers, &mut passed_over).await?;
        let pieces = self.pieces(&artifacts, &mut passed_over)?;
        // A list and not a stream of closures: with these the compiler does not see that the whole
        // may move between threads.
        let fetches: Vec<_> = pieces
            .into_iter()
            .map(|(artifact, layer, used)| self.piece(artifact, layer, used))
            .collect();
        let evidence =
            stream::iter(fetches).buffered(self.limits.concurrency).try_collect().await?;
        Ok(Collected { evidence, passed_over })
    }

    /// Every artifact that speaks of the subject, each once.
    async fn artifacts(
        &mut self,
        carriers: Carriers,
        passed_over: &mut Vec<PassedOver>,
    ) -> Result<Vec<Artifact>, CollectError> {
        let (listed, tagged) = try_join(self.listed(carriers), self.tagged(carriers)).await?;
        let mut artifacts: Vec<Artifact> = Vec::new();
        for (carrier, fetched) in listed.into_iter().chain(tagged) {
            match fetched.and_then(|fetched| self.speaks(&carrier, fetched)) {
                Err(why) => passed_over.push(why),
                Ok((digest, manifest)) => {
                    if self.seen.insert(digest) {
                        artifacts.push(Artifact { digest, carrier, manifest });
                    }
                }
            }
        }
        Ok(artifacts)
    }

    async fn listed(&self, carriers: Carriers) -> Result<Vec<Found>, CollectError> {
        if !carriers.referrers {
            return Ok(Vec::new());
        }
        let (subject, limit) = (self.subject, self.limits.referrers);
        // No type is asked for: some registries list a bundle as the type of its empty config.
        let listed = self.source.referring(&subject, limit).await;
        let listed =
            listed.map_err(|source| CollectError::List { subject, source: Box::new(source) })?;
        self.bounded("artifacts", listed.len() as u64, limit as u64)?;
        let listed = listed.into_iter().map(|digest| (Carrier::Referrer, Target::Digest(digest)));
        self.fetch_all(listed.collect()).await
    }

    async fn tagged(&self, carriers: Carriers) -> Result<Vec<Found>, CollectError> {
        let suffixes = if carriers.tags { self.sought.suffixes() } else { &[] };
        let tags = suffixes.iter().map(|suffix| {
            let tag = cosign::tag(&self.subject, suffix);
            (Carrier::Tag(tag.clone()), Target::Tag(tag))
        });
        self.fetch_all(tags.collect()).await
    }

    async fn fetch_all(&self, asked: Vec<(Carrier, Target)>) -> Result<Vec<Found>, CollectError> {
        let fetches: Vec<_> =
            asked.into_iter().map(|(carrier, target)| self.fetch(carrier, target)).collect();
        let found: Vec<_> =
            stream::iter(fetches).buffered(self.limits.concurrency).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// None where a tag is not there. What is there and is no manifest, or is listed and gone, is
    /// passed over.
    async fn fetch(&self, carrier: Carrier, target: Target) -> Result<Option<Found>, CollectError> {
        let error = match self.source.manifest(&target).await {
            Ok(fetched) => {
                self.spend(fetched.bytes.len() as u64)?;
                return Ok(Some((carrier, Ok(fetched))));
            }
            Err(error) => error,
        };
        // Where a document may say no, one that cannot be had may be the one.
        let may_be_passed_over = self.sought.more_only_helps();
        match (&target, error.class()) {
            (Target::Tag(_), ErrorClass::NotFound) => Ok(None),
            (Target::Digest(_), _) if !may_be_passed_over => {
                Err(self.unreadable(target.to_string(), error))
            }
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

    /// The layers to read, all within the bounds.
    fn pieces<'b>(
        &mut self,
        artifacts: &'b [Artifact],
        passed_over: &mut Vec<PassedOver>,
    ) -> Result<Vec<(&'b Artifact, &'b Descriptor, Use)>, CollectError> {
        let limits = self.limits;
        let mut pieces = Vec::new();
        for artifact in artifacts {
            let before = (pieces.len(), passed_over.len());
            let mut unsought = false;
            for layer in &artifact.manifest.layers {
                match layers::of(&artifact.manifest, layer) {
                    Some(used) if !self.sought.has(used) => unsought = true,
                    Some(_) if layer.size > limits.blob => {
                        passed_over.push(self.too_large(artifact, layer)?);
                    }
                    Some(used) => pieces.push((artifact, layer, used)),
                    None => {}
                }
                self.few(pieces.len() + passed_over.len())?;
            }
            if before == (pieces.len(), passed_over.len()) {
                let why = match unsought {
                    true => "the policy asks for nothing of its kind",
                    false => {
                        "it is neither a signature, an attestation nor a document that is known"
                    }
                };
                passed_over.push(PassedOver { artifact: artifact.digest, why: why.to_owned() });
            }
        }
        self.few(pieces.len() + passed_over.len())?;
        self.pieces += (pieces.len() + passed_over.len()) as u64;
        let total = pieces.iter().map(|(_, layer, _)| layer.size).fold(0, u64::saturating_add);
        self.spend(total)?;
        Ok(pieces)
    }

    /// A signature that nobody reads is one less. A document that nobody reads may be the one that
    /// says no.
    fn too_large(
        &self,
        artifact: &Artifact,
        layer: &Descriptor,
    ) -> Result<PassedOver, CollectError> {
        let (digest, size, limit) = (layer.digest, layer.size, self.limits.blob);
        match self.sought.more_only_helps() {
            true => Ok(PassedOver {
                artifact: artifact.digest,
                why: format!(
                    "its layer {digest} has {size} bytes, more than the {limit} that are read"
                ),
            }),
            false => {
                Err(CollectError::TooLarge { subject: self.subject, layer: digest, size, limit })
            }
        }
    }

    async fn piece(
        &self,
        artifact: &Artifact,
        layer: &Descriptor,
        used: Use,
    ) -> Result<Evidence, CollectError> {
        let bytes = match self.known(layer, used) {
            Some(bytes) => bytes,
            None => {
                let bytes = self.source.blob(layer, self.limits.blob).await;
                bytes.map_err(|source| self.unreadable(layer.digest, source))?
            }
        };
        let content = used.content(&artifact.manifest, layer, bytes);
        Ok(Evidence { artifact: artifact.digest, carrier: artifact.carrier.clone(), content })
    }

    /// The layer's bytes where they need not be fetched: what cosign signs says nothing but what the
    /// image is and where it was, so where it still is the document can be written here, and its
    /// digest tells whether it is the one.
    fn known(&self, layer: &Descriptor, used: Use) -> Option<Bytes> {
        if used != Use::SimpleSigning {
            return None;
        }
        let payload = Payload::new(&self.subject, &self.source.name()).to_vec();
        let fits = payload.len() as u64 == layer.size
            && Digest::of(layer.digest.algorithm(), &payload) == layer.digest;
        fits.then(|| payload.into())
    }

    fn few(&self, more: usize) -> Result<(), CollectError> {
        let (found, limit) = (self.pieces + more as u64, self.limits.pieces as u64);
        self.bounded("pieces of evidence", found, limit)
    }

    /// Counts bytes that are read, or about to be.
    fn spend(&self, bytes: u64) -> Result<(), CollectError> {
        let before = self.spent.fetch_add(bytes.min(u64::MAX / 4), Ordering::Relaxed);
        self.bounded("bytes", before.saturating_add(bytes), self.limits.total)
    }

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
