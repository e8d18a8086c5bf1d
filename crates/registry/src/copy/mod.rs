//! Copying whole images, as they are, between registries and layouts.
//!
//! **What is copied.** Everything below the source: an index with all its platforms, nested
//! indexes, manifests, configs, layers; on request also what refers to any of them (signatures,
//! attestations, compatibility artifacts) and what refers to those. Bytes are never changed, so
//! every digest stays; the one exception is an index narrowed to several platforms, see
//! [`CopyOptions::platforms`]. Layers that their author forbids to distribute stay where their
//! `urls` say and are listed in [`CopyReport::foreign`].
//!
//! **In which order.** The source's tag is resolved once. The whole graph of manifests is read
//! and checked before the destination is touched. Then blobs, then manifests, each after what it
//! refers to, and the tag last: whoever reads the destination at any moment finds the old image
//! or the new one, never half of one.
//!
//! **When it fails** or the future is dropped, blobs that arrived whole stay, and a second try
//! finds them; nothing else is left. (After a drop, files being written are removed by their
//! tasks a moment later.)

mod error;
mod graph;
mod narrow;
mod transfer;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use futures_util::future::FutureExt as _;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use portolan_core::{Algorithm, Descriptor, Digest, Platform, Reference, Tag, Target};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

pub use error::CopyError;
pub use graph::{MAX_DEPTH, MAX_MANIFEST_TOTAL, MAX_MANIFESTS};
pub use narrow::Narrowed;

use crate::client::Client;
use crate::images::{self, Place, blocking};
use crate::progress::{BlobOutcome, Progress};
use graph::{Graph, Node};
use transfer::Transfer;

/// Blobs in flight at a time. More does not fill a line better and costs memory and connections.
const PARALLEL_BLOBS: NonZeroUsize = NonZeroUsize::new(6).expect("six is not zero");
/// Manifests written at a time.
const PARALLEL_MANIFESTS: usize = 8;
/// Referrers of referrers are followed this deep: a signature on an attestation is two.
pub const MAX_REFERRER_DEPTH: usize = 8;

/// What to copy.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// Only these platforms; all when empty.
    ///
    /// One platform: the manifest that a host of that platform would run is copied itself, with
    /// its own digest, and no index. Several: a new index with just those entries is made, which
    /// has another digest than the source's index; signatures of the source's index do not speak
    /// of it. [`CopyReport::narrowed`] says which of the two happened.
    pub platforms: Vec<Platform>,
    /// Also what refers to anything that is copied, recursively.
    pub referrers: bool,
    /// Blobs in flight at a time.
    pub parallel: NonZeroUsize,
}

impl Default for CopyOptions {
    /// Everything but referrers.
    fn default() -> Self {
        Self { platforms: Vec::new(), referrers: false, parallel: PARALLEL_BLOBS }
    }
}

/// What was done.
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// What the source was at the moment it was resolved.
    pub source: Descriptor,
    /// What is at the destination now, under its tag if it has one.
    pub copied: Descriptor,
    /// Whether it is all of the source or a part.
    pub narrowed: Narrowed,
    /// Indexes and manifests written, referrers included.
    pub manifests: usize,
    /// Manifests that refer to others, among the above.
    pub referrers: usize,
    /// How many blobs came over in which way.
    pub blobs: BTreeMap<BlobOutcome, usize>,
    /// Bytes of blobs that were really moved.
    pub bytes: u64,
    /// Layers that may not be distributed and were left where they are.
    pub foreign: Vec<Descriptor>,
}

/// Copies the image at `source` to `destination`.
pub async fn copy(
    source: &Reference,
    destination: &Reference,
    client: &Client,
    options: &CopyOptions,
    progress: Arc<dyn Progress>,
) -> Result<CopyReport, CopyError> {
    let from = Place::open(source, client).map_err(CopyError::Read)?;
    let top = from.fetch(images::target(source).as_ref()).await.map_err(CopyError::Read)?;
    let resolved = top.descriptor.clone();
    let (top, narrowed) = narrow::choose(&from, top, &options.platforms).await?;
    let copied = top.descriptor.clone();
    let tag = destination_tag(destination, &copied.digest)?;

    let mut graph = Graph::default();
    graph.take(&from, top).await?;
    let referrers = match options.referrers {
        true => take_referrers(&mut graph, &from).await?,
        false => Vec::new(),
    };

    let (there, by) = (destination.clone(), client.clone());
    let to = blocking(move || Place::create(&there, &by)).await.map_err(CopyError::Write)?;
    let (under_way, mut all_gone) = mpsc::channel(1);
    let transfer = Transfer { from, to: to.clone(), progress: Arc::clone(&progress), under_way };
    let moved = move_blobs(&graph, transfer, options.parallel).await;
    // Ends when the last transfer has gone: a failed copy leaves no file behind it.
    let _ = all_gone.recv().await;
    let moved = moved?;
    let writer = Arc::new(ManifestWriter { to, progress, top: copied.digest, referrers });
    writer.write(&graph, tag).await?;

    let mut blobs = BTreeMap::new();
    for (_, outcome) in &moved {
        *blobs.entry(*outcome).or_default() += 1;
    }
    let bytes = moved.iter().filter(|(_, o)| *o == BlobOutcome::Copied).map(|(b, _)| b.size).sum();
    Ok(CopyReport {
        source: resolved,
        copied,
        narrowed,
        manifests: graph.len(),
        referrers: writer.referrers.len(),
        blobs,
        bytes,
        foreign: graph.foreign(),
    })
}

/// The tag to set at the end. A destination with a digest is a promise that is checked before
/// anything is done.
fn destination_tag(destination: &Reference, copied: &Digest) -> Result<Option<Tag>, CopyError> {
    if let Some(wanted) = destination.digest().filter(|wanted| *wanted != copied) {
        return Err(CopyError::OtherDigest { wanted: *wanted, found: *copied });
    }
    match (destination.tag(), images::target(destination)) {
        (Some(tag), _) => Ok(Some(tag.clone())),
        (None, Some(Target::Tag(latest))) => Ok(Some(latest)),
        (None, Some(Target::Digest(_)) | None) => Ok(None),
    }
}

/// Takes in what refers to the graph's manifests, and what refers to that. Returns the referrers.
async fn take_referrers(graph: &mut Graph, from: &Place) -> Result<Vec<Digest>, CopyError> {
    let mut referrers = Vec::new();
    let mut subjects = graph.manifests();
    for _ in 0..MAX_REFERRER_DEPTH {
        let asked = subjects.into_iter().map(|subject| {
            let from = from.clone();
            async move { from.referrers(&subject, None).await.map_err(CopyError::Read) }.boxed()
        });
        let asked: Vec<_> = asked.collect();
        let lists: Vec<Vec<Descriptor>> =
            stream::iter(asked).buffered(PARALLEL_MANIFESTS).try_collect().await?;
        let before = graph.manifests();
        for entry in lists.into_iter().flatten() {
            if graph.contains(&entry.digest) {
                continue;
            }
            graph.check_count(1)?;
            let root = graph::fetch(from.clone(), entry).await?;
            referrers.push(root.descriptor.digest);
            graph.take(from, root).await?;
        }
        subjects =
            graph.manifests().into_iter().filter(|d| before.binary_search(d).is_err()).collect();
        if subjects.is_empty() {
            return Ok(referrers);
        }
    }
    match subjects.first() {
        Some(subject) => Err(CopyError::ReferrersTooDeep { subject: *subject }),
        None => Ok(referrers),
    }
}

/// Brings all blobs over, so many at a time. The graph has each digest once, so there is one
/// flight per digest.
async fn move_blobs(
    graph: &Graph,
    transfer: Transfer,
    parallel: NonZeroUsize,
) -> Result<Vec<(Descriptor, BlobOutcome)>, CopyError> {
    let blobs = graph.blobs();
    transfer.progress.planned(&blobs);
    let flights = blobs.into_iter().map(|blob| {
        let transfer = transfer.clone();
        async move {
            // A task of its own, so that blobs are hashed on all processors; it ends with us.
            let flight = AbortOnDropHandle::new(tokio::spawn(transfer.blob(blob.clone())));
            match flight.await {
                Ok(outcome) => Ok((blob, outcome?)),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        .boxed()
    });
    let flights: Vec<_> = flights.collect();
    stream::iter(flights).buffer_unordered(parallel.get()).try_collect().await
}

/// Writes manifests, each after what it refers to.
struct ManifestWriter {
    to: Place,
    progress: Arc<dyn Progress>,
    top: Digest,
    referrers: Vec<Digest>,
}

impl ManifestWriter {
    /// The tag comes last of all, after the referrers: whoever finds the image by its tag finds
    /// its signatures too.
    async fn write(self: &Arc<Self>, graph: &Graph, tag: Option<Tag>) -> Result<(), CopyError> {
        for level in graph.levels() {
            let writes = level.into_iter().map(|node| {
                let (writer, node) = (Arc::clone(self), node.clone());
                async move { writer.write_node(&node).await }.boxed()
            });
            let writes: Vec<_> = writes.collect();
            stream::iter(writes).buffer_unordered(PARALLEL_MANIFESTS).try_collect::<()>().await?;
        }
        let top = graph.node(&self.top).expect("the top was the first to be taken in");
        self.write_top(top, tag).await?;
        self.progress.stored(&top.descriptor);
        Ok(())
    }

    async fn write_node(&self, node: &Node) -> Result<(), CopyError> {
        let Descriptor { digest, media_type, .. } = node.descriptor.clone();
        if digest == self.top {
            return Ok(());
        }
        match &self.to {
            Place::Remote(remote) => {
                remote.push_manifest(&Target::Digest(digest), &media_type, &node.bytes).await?;
            }
            Place::Layout(layout) => {
                let (layout, bytes) = (layout.clone(), node.bytes.clone());
                // Only a referrer must be listed to be found; the rest is found through its index.
                let listed = self.referrers.contains(&digest);
                blocking(move || match listed {
                    true => layout.put_manifest_as(digest, &media_type, &bytes, &[]).map(drop),
                    false => layout.put_blob_as(digest, &bytes),
                })
                .await?;
            }
        }
        self.progress.stored(&node.descriptor);
        Ok(())
    }

    async fn write_top(&self, node: &Node, tag: Option<Tag>) -> Result<(), CopyError> {
        let Descriptor { digest, media_type, .. } = node.descriptor.clone();
        match &self.to {
            Place::Remote(remote) => {
                // Under a tag registries know content by its SHA-256 alone; another digest must
                // be named, and a missing tag leaves only the digest to name it by.
                if tag.is_none() || digest.algorithm() != Algorithm::Sha256 {
                    let target = Target::Digest(digest);
                    remote.push_manifest(&target, &media_type, &node.bytes).await?;
                }
                if let Some(tag) = tag {
                    let target = Target::Tag(tag);
                    remote.push_manifest(&target, &media_type, &node.bytes).await?;
                }
            }
            Place::Layout(layout) => {
                let (layout, bytes) = (layout.clone(), node.bytes.clone());
                let tags: Vec<Tag> = tag.into_iter().collect();
                blocking(move || layout.put_manifest_as(digest, &media_type, &bytes, &tags))
                    .await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{CredentialStore, Settings};
    use crate::progress::Silent;

    /// Services spawn copies. A stream over a closure that borrows would forbid it, which is why
    /// futures are boxed and collected before they are run side by side.
    #[tokio::test]
    async fn a_copy_can_be_spawned() {
        let dir = tempfile::tempdir().unwrap();
        let reference =
            |name: &str| format!("oci:{}:v1", dir.path().join(name).display()).parse().unwrap();
        let (from, to): (Reference, Reference) = (reference("a"), reference("b"));
        let client = Client::new(Settings::default(), CredentialStore::anonymous()).unwrap();
        let copying = tokio::spawn(async move {
            copy(&from, &to, &client, &CopyOptions::default(), Arc::new(Silent)).await
        });
        let error = copying.await.unwrap().unwrap_err();
        assert_eq!(error.class(), Some(crate::ErrorClass::NotFound));
    }

    #[test]
    fn the_tag_of_a_destination() {
        let digest = Digest::sha256(b"image");
        let tag = |text: String| {
            let tag = destination_tag(&text.parse().unwrap(), &digest)?;
            Ok::<_, CopyError>(tag.map(|tag| tag.to_string()))
        };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(tag("r.example/a:v1".into()).unwrap(), named("v1"));
        assert_eq!(tag("r.example/a".into()).unwrap(), named("latest"));
        assert_eq!(tag(format!("r.example/a@{digest}")).unwrap(), None);
        assert_eq!(tag(format!("r.example/a:v1@{digest}")).unwrap(), named("v1"));
        assert_eq!(tag("oci:dir".into()).unwrap(), None);
        assert_eq!(tag("oci:dir:v1".into()).unwrap(), named("v1"));
        let other = Digest::sha256(b"other");
        let refused = tag(format!("r.example/a:v1@{other}")).unwrap_err();
        assert!(matches!(refused, CopyError::OtherDigest { .. }), "{refused}");
    }
}
