//! The part of an image that some platforms need.

use std::collections::BTreeSet;

use portolan_core::platform::HostPlatform;
use portolan_core::select::select;
use portolan_core::{Descriptor, Digest, Document, Index, Platform};

use super::{CopyError, graph};
use crate::client::Fetched;
use crate::images::{Place, ResolveError, candidates};

/// On an attestation entry: the digest of the image it speaks of (what BuildKit writes).
const ATTESTED: &str = "vnd.docker.reference.digest";

/// How much of the source was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Narrowed {
    /// All of it, under its own digest.
    Whole,
    /// The one manifest of an index that a platform runs, under the manifest's own digest.
    Manifest,
    /// Several manifests of an index, in a new index with a digest of its own. What refers to
    /// the source's index (a signature, say) does not refer to the new one.
    NewIndex,
}

/// What of `top` is to be copied for these platforms; all of it when there are none.
pub(super) async fn choose(
    place: &Place,
    top: Fetched,
    platforms: &[Platform],
) -> Result<(Fetched, Narrowed), CopyError> {
    if platforms.is_empty() {
        return Ok((top, Narrowed::Whole));
    }
    let candidates = candidates(place, &top).await.map_err(CopyError::Platform)?;
    let mut chosen: Vec<Descriptor> = Vec::new();
    for platform in platforms {
        let selection = select(&candidates, &HostPlatform::named(platform)).map_err(|refusal| {
            let digest = top.descriptor.digest;
            CopyError::Platform(ResolveError::NoMatch { digest, refusal })
        })?;
        if !chosen.iter().any(|known| known.digest == selection.chosen.digest) {
            chosen.push(selection.chosen);
        }
    }
    match (&top.document, chosen.as_slice()) {
        (Document::Manifest(_), _) => Ok((top, Narrowed::Whole)),
        (Document::Index(_), [one]) => {
            let manifest = graph::fetch(place.clone(), one.clone()).await?;
            Ok((manifest, Narrowed::Manifest))
        }
        (Document::Index(index), _) => {
            let new = narrowed(index, &chosen);
            if new == *index {
                return Ok((top, Narrowed::Whole));
            }
            let bytes = new.to_vec();
            let document = Document::Index(new);
            let descriptor = Descriptor::of(document.media_type(), &bytes);
            Ok((Fetched { descriptor, bytes: bytes.into(), document }, Narrowed::NewIndex))
        }
    }
}

/// The index with only the entries in `kept`, in the author's order, and the attestation entries
/// that speak of them. Entries that came from an index inside it follow, since that index is
/// not kept. Annotations and everything else stay.
fn narrowed(index: &Index, kept: &[Descriptor]) -> Index {
    let direct: BTreeSet<Digest> = index.manifests.iter().map(|entry| entry.digest).collect();
    let nested = kept.iter().filter(|entry| !direct.contains(&entry.digest));
    let kept: BTreeSet<Digest> = kept.iter().map(|entry| entry.digest).collect();
    let speaks_of_kept = |annotated: &String| {
        annotated.parse::<Digest>().is_ok_and(|subject| kept.contains(&subject))
    };
    let mut narrowed = index.clone();
    narrowed.manifests.retain(|entry| {
        kept.contains(&entry.digest) || entry.annotations.get(ATTESTED).is_some_and(speaks_of_kept)
    });
    narrowed.manifests.extend(nested.cloned());
    narrowed
}

#[cfg(test)]
mod tests {
    use portolan_core::{Descriptor, media_type};

    use super::*;

    fn entry(content: &[u8]) -> Descriptor {
        Descriptor::of(media_type::OCI_MANIFEST, content)
    }

    #[test]
    fn keeps_order_and_the_attestations_of_what_is_kept() {
        let attestation = |of: &Descriptor, content: &[u8]| {
            let mut entry = entry(content);
            entry.annotations.insert(ATTESTED.to_owned(), of.digest.to_string());
            entry
        };
        let (a, b, c) = (entry(b"a"), entry(b"b"), entry(b"c"));
        let (of_a, of_b) = (attestation(&a, b"1"), attestation(&b, b"2"));
        let all = vec![c.clone(), of_a.clone(), a.clone(), of_b, b];
        let index = Index::new(all);
        let nested = entry(b"nested");
        let kept = [a.clone(), nested.clone(), c.clone()];
        assert_eq!(narrowed(&index, &kept).manifests, [c, of_a, a, nested]);
    }

    #[test]
    fn an_annotation_that_is_no_digest_keeps_nothing() {
        let mut odd = entry(b"odd");
        odd.annotations.insert(ATTESTED.to_owned(), "sha256:zz".to_owned());
        let a = entry(b"a");
        let index = Index::new(vec![odd, a.clone()]);
        assert_eq!(narrowed(&index, std::slice::from_ref(&a)).manifests, [a]);
    }
}
