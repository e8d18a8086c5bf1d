//! What there is to sign in an image.

use std::collections::HashSet;

use portolan_core::{Descriptor, Document, Index, Platform, Target};
use portolan_registry::client::Fetched;
use portolan_registry::images::{Place, check_entry};

use super::SignError;
use crate::subject::{Kind, Subject};

/// No image has more, and each costs a few requests.
pub const MAX_SUBJECTS: usize = 1000;
/// An index in an index is rare, and one in that has not been seen.
const MAX_DEPTH: usize = 4;

/// The manifest or index `top` alone or, when `recursive`, with every index and every image in it.
/// Entries for no platform, such as BuildKit's attestations, are not signed: nobody asks for it.
/// A mark beside a real platform does not count, since runtimes do not look at it and run them.
pub async fn subjects(
    place: &Place,
    top: &Fetched,
    recursive: bool,
) -> Result<Vec<Subject>, SignError> {
    let kind = match top.document {
        Document::Index(_) => Kind::Index,
        Document::Manifest(_) => Kind::Manifest,
    };
    let first = Subject { descriptor: plain(&top.descriptor), kind, platform: None };
    let mut found = vec![first];
    let Document::Index(index) = &top.document else { return Ok(found) };
    if !recursive {
        return Ok(found);
    }
    let mut seen = HashSet::from([top.descriptor.digest]);
    let mut level = entries(index);
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for entry in std::mem::take(&mut level) {
            if !seen.insert(entry.digest) {
                continue;
            }
            if found.len() == MAX_SUBJECTS {
                return Err(SignError::TooMany { digest: top.descriptor.digest });
            }
            let platform = entry.platform.as_ref().map(Platform::normalised);
            let kind = match inner(place, &entry).await? {
                Some(inner) => {
                    next.extend(entries(&inner));
                    Kind::Index
                }
                None => Kind::Manifest,
            };
            found.push(Subject { descriptor: plain(&entry), kind, platform });
        }
        level = next;
    }
    match level.iter().all(|entry| seen.contains(&entry.digest)) {
        true => Ok(found),
        false => Err(SignError::TooMany { digest: top.descriptor.digest }),
    }
}

/// The index behind an entry; none where the entry is an image. An image is looked at, too: what
/// is not there or not what it says must not be signed.
async fn inner(place: &Place, entry: &Descriptor) -> Result<Option<Index>, SignError> {
    let fetched = place.manifest(&Target::Digest(entry.digest)).await;
    let fetched = fetched.map_err(|source| SignError::read(entry.digest, place, source))?;
    check_entry(entry, &fetched)?;
    match fetched.document {
        Document::Index(index) => Ok(Some(index)),
        Document::Manifest(_) => Ok(None),
    }
}

fn entries(index: &Index) -> Vec<Descriptor> {
    let runs =
        |entry: &&Descriptor| entry.platform.as_ref().is_none_or(|platform| !platform.is_unknown());
    index.manifests.iter().filter(runs).cloned().collect()
}

/// What an index says of its entry is not part of what is signed.
fn plain(descriptor: &Descriptor) -> Descriptor {
    Descriptor::new(&descriptor.media_type, descriptor.digest, descriptor.size)
}
