//! What an index says of an entry, and what is there.

use portolan_core::{Descriptor, Digest, Document, media_type};

use crate::client::Fetched;

/// An index and its entry disagree. Digest and bytes agree, so it is the index that lies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// On what the entry is.
    #[error(
        "the index lists {digest} as {listed:?}, but it is {found:?}; the index is damaged or forged"
    )]
    OtherKind {
        /// The entry.
        digest: Digest,
        /// As listed.
        listed: String,
        /// As it is.
        found: String,
    },
    /// On how large it is. Runtimes look and do not run such an image.
    #[error(
        "the index lists {digest} with {listed} bytes, but it has {found}; the index is damaged or forged"
    )]
    OtherSize {
        /// The entry.
        digest: Digest,
        /// As listed.
        listed: u64,
        /// As it is.
        found: u64,
    },
}

/// Whether what was read is what its index lists. Whoever opens an entry asks this first.
pub fn check_entry(entry: &Descriptor, fetched: &Fetched) -> Result<(), EntryError> {
    let digest = entry.digest;
    let (listed, found) = (entry.size, fetched.descriptor.size);
    if listed != found {
        return Err(EntryError::OtherSize { digest, listed, found });
    }
    let agrees = match &fetched.document {
        Document::Index(_) => media_type::is_index(&entry.media_type),
        Document::Manifest(_) => media_type::is_manifest(&entry.media_type),
    };
    if agrees {
        return Ok(());
    }
    let found = fetched.document.media_type().to_owned();
    Err(EntryError::OtherKind { digest, listed: entry.media_type.clone(), found })
}

#[cfg(test)]
mod tests {
    use portolan_core::Index;

    use super::*;

    #[test]
    fn an_entry_is_what_its_index_says_or_it_is_told_what_is_another() {
        let bytes = Index::new(Vec::new()).to_vec();
        let document = Document::parse(&bytes, None).unwrap();
        let descriptor = Descriptor::of(document.media_type(), &bytes);
        let fetched = Fetched { descriptor: descriptor.clone(), bytes: bytes.into(), document };
        assert_eq!(check_entry(&descriptor, &fetched), Ok(()));
        for size in [0, descriptor.size - 1, descriptor.size + 1, u64::MAX] {
            let entry = Descriptor { size, ..descriptor.clone() };
            let error = check_entry(&entry, &fetched).unwrap_err();
            assert!(matches!(error, EntryError::OtherSize { listed, .. } if listed == size));
        }
        for kind in [media_type::OCI_MANIFEST, "application/json", ""] {
            let entry = Descriptor { media_type: kind.to_owned(), ..descriptor.clone() };
            let error = check_entry(&entry, &fetched).unwrap_err();
            assert!(matches!(error, EntryError::OtherKind { .. }), "{kind}: {error}");
        }
    }
}
