//! What an image consists of: every index, manifest and blob below one top, read from its place
//! before anything is written to another.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::future::FutureExt as _;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use portolan_core::{Descriptor, Digest, Target, media_type};

use super::CopyError;
use crate::client::Fetched;
use crate::images::{Place, check_entry};

/// Indexes within indexes are followed as deep as when one entry is chosen.
pub use portolan_core::select::MAX_DEPTH;

/// One image may have this many indexes and manifests, referrers included. The largest ones in
/// use have about a hundred; each costs a request at both ends.
pub const MAX_MANIFESTS: usize = 4096;
/// All indexes and manifests of one image together. They are held in memory until they are
/// written, which is after their blobs, so this bounds memory.
pub const MAX_MANIFEST_TOTAL: usize = 24 * 1024 * 1024;
/// How many manifests are read at a time.
const PARALLEL: usize = 8;

/// One index or manifest.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) descriptor: Descriptor,
    pub(super) bytes: Bytes,
    /// What must be at the destination before it.
    children: Vec<Digest>,
}

/// Everything below the roots taken in so far.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: BTreeMap<Digest, Node>,
    blobs: BTreeMap<Digest, Descriptor>,
    foreign: BTreeMap<Digest, Descriptor>,
    total: usize,
}

impl Graph {
    /// Takes in `root`, which was read already, and everything below it.
    pub(super) async fn take(&mut self, place: &Place, root: Fetched) -> Result<(), CopyError> {
        let top = root.descriptor.digest;
        let mut frontier = self.add(root)?;
        for _ in 0..MAX_DEPTH {
            let (mut wanted, mut seen) = (Vec::new(), BTreeSet::new());
            for entry in frontier {
                if !self.nodes.contains_key(&entry.digest) && seen.insert(entry.digest) {
                    wanted.push(entry);
                }
            }
            if wanted.is_empty() {
                return Ok(());
            }
            self.check_count(wanted.len())?;
            let fetches: Vec<_> =
                wanted.into_iter().map(|entry| fetch(place.clone(), entry).boxed()).collect();
            let mut fetched = stream::iter(fetches).buffer_unordered(PARALLEL);
            frontier = Vec::new();
            while let Some(child) = fetched.try_next().await? {
                frontier.extend(self.add(child)?);
            }
        }
        match frontier.iter().all(|entry| self.nodes.contains_key(&entry.digest)) {
            true => Ok(()),
            false => Err(CopyError::TooDeep { top }),
        }
    }

    /// Whether it was taken in.
    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.nodes.contains_key(digest)
    }

    /// Fails when so many more would be too many.
    pub(super) fn check_count(&self, more: usize) -> Result<(), CopyError> {
        let found = self.nodes.len() + more;
        if found > MAX_MANIFESTS { Err(CopyError::TooMany { found }) } else { Ok(()) }
    }

    /// Remembers one document; returns the entries to follow.
    fn add(&mut self, fetched: Fetched) -> Result<Vec<Descriptor>, CopyError> {
        let Fetched { descriptor, bytes, document } = fetched;
        self.total += bytes.len();
        if self.total > MAX_MANIFEST_TOTAL {
            return Err(CopyError::ManifestsTooLarge { digest: descriptor.digest });
        }
        for blob in document.blobs() {
            self.add_blob(blob)?;
        }
        let entries = document.children().to_vec();
        let children = entries.iter().map(|entry| entry.digest).collect();
        self.nodes.insert(descriptor.digest, Node { descriptor, bytes, children });
        Ok(entries)
    }

    fn add_blob(&mut self, blob: &Descriptor) -> Result<(), CopyError> {
        let all = if is_foreign(blob) { &mut self.foreign } else { &mut self.blobs };
        let known = all
            .entry(blob.digest)
            .or_insert_with(|| Descriptor::new(&blob.media_type, blob.digest, blob.size));
        if known.size == blob.size {
            return Ok(());
        }
        Err(CopyError::TwoSizes { digest: blob.digest, first: known.size, second: blob.size })
    }

    /// Every blob once, the largest first: the longest transfer must not be the last to begin.
    pub(super) fn blobs(&self) -> Vec<Descriptor> {
        let mut blobs: Vec<_> = self.blobs.values().cloned().collect();
        blobs.sort_by_key(|blob| std::cmp::Reverse(blob.size));
        blobs
    }

    /// Layers that their author forbids to distribute and that are fetched from elsewhere.
    pub(super) fn foreign(&self) -> Vec<Descriptor> {
        self.foreign.values().cloned().collect()
    }

    /// How many indexes and manifests there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The digests of all indexes and manifests.
    pub(super) fn manifests(&self) -> Vec<Digest> {
        self.nodes.keys().copied().collect()
    }

    /// One of the nodes.
    pub(super) fn node(&self, digest: &Digest) -> Option<&Node> {
        self.nodes.get(digest)
    }

    /// All nodes in groups: everything a node needs is in a group before its own, so that the
    /// nodes of one group can be written at the same time.
    pub(super) fn levels(&self) -> Vec<Vec<&Node>> {
        let mut left: BTreeSet<Digest> = self.nodes.keys().copied().collect();
        let mut levels = Vec::new();
        while !left.is_empty() {
            let ready = |d: &&Digest| !self.nodes[*d].children.iter().any(|c| left.contains(c));
            let level: BTreeSet<Digest> = left.iter().filter(ready).copied().collect();
            // Only a broken hash function makes a circle; what is left then goes last.
            let level = if level.is_empty() { left.clone() } else { level };
            left.retain(|digest| !level.contains(digest));
            levels.push(level.iter().map(|digest| &self.nodes[digest]).collect());
        }
        levels
    }
}

/// Reads one entry of an index and holds it to what the index says of it.
pub(super) async fn fetch(place: Place, entry: Descriptor) -> Result<Fetched, CopyError> {
    if !media_type::is_index(&entry.media_type) && !media_type::is_manifest(&entry.media_type) {
        let Descriptor { digest, media_type, .. } = entry;
        return Err(CopyError::EntryType { digest, media_type });
    }
    let fetched = place.manifest(&Target::Digest(entry.digest)).await.map_err(CopyError::Read)?;
    check_entry(&entry, &fetched)?;
    Ok(fetched)
}

/// Layers of Windows base images and the like: the manifest says where else to get them, and the
/// registry usually does not have them.
fn is_foreign(blob: &Descriptor) -> bool {
    let restricted = blob.media_type.contains(".nondistributable.")
        || blob.media_type == "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
    restricted && !blob.urls.is_empty()
}

#[cfg(test)]
mod tests {
    use portolan_core::{Document, Index, Manifest};

    use super::*;

    fn node(graph: &mut Graph, document: Document) -> Descriptor {
        let bytes = match &document {
            Document::Index(index) => index.to_vec(),
            Document::Manifest(manifest) => manifest.to_vec(),
        };
        let descriptor = Descriptor::of(document.media_type(), &bytes);
        let fetched = Fetched { descriptor: descriptor.clone(), bytes: bytes.into(), document };
        graph.add(fetched).unwrap();
        descriptor
    }

    fn manifest(layers: &[&[u8]]) -> Document {
        let layers = layers.iter().map(|l| Descriptor::of("layer", l)).collect();
        Document::Manifest(Manifest::new(Descriptor::of("config", b"{}"), layers))
    }

    #[test]
    fn what_a_node_needs_is_in_an_earlier_level() {
        let mut graph = Graph::default();
        let shared = node(&mut graph, manifest(&[b"a"]));
        let other = node(&mut graph, manifest(&[b"b"]));
        let inner = node(&mut graph, Document::Index(Index::new(vec![shared.clone()])));
        let top = node(&mut graph, Document::Index(Index::new(vec![inner.clone(), shared, other])));
        let levels: Vec<Vec<Digest>> = graph
            .levels()
            .iter()
            .map(|level| level.iter().map(|node| node.descriptor.digest).collect())
            .collect();
        assert_eq!(levels[0].len(), 2);
        assert_eq!(levels[1..], [vec![inner.digest], vec![top.digest]]);
    }

    #[test]
    fn blobs_come_once_and_the_largest_first() {
        let mut graph = Graph::default();
        node(&mut graph, manifest(&[b"small", b"much larger"]));
        node(&mut graph, manifest(&[b"much larger", b"middling"]));
        let sizes: Vec<u64> = graph.blobs().iter().map(|b| b.size).collect();
        assert_eq!(sizes, [11, 8, 5, 2]);
    }

    #[test]
    fn one_digest_cannot_have_two_sizes() {
        let mut graph = Graph::default();
        let blob = Descriptor::of("layer", b"abc");
        graph.add_blob(&blob).unwrap();
        let error = graph.add_blob(&Descriptor { size: 4, ..blob }).unwrap_err();
        assert!(matches!(error, CopyError::TwoSizes { first: 3, second: 4, .. }), "{error}");
    }

    #[test]
    fn a_restricted_layer_is_foreign_only_if_it_says_where_it_is() {
        let name = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip";
        let mut layer = Descriptor::of(name, b"x");
        assert!(!is_foreign(&layer));
        layer.urls.push("https://example.com/x".to_owned());
        assert!(is_foreign(&layer));
        layer.media_type = "application/vnd.oci.image.layer.v1.tar+gzip".to_owned();
        assert!(!is_foreign(&layer));
    }
}
