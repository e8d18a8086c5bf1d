//! The one door for foreign DER.
//!
//! `der` sorts every SET that it reads by insertion, so a megabyte of tiny elements in the wrong
//! order would cost hours. A walk without recursion looks at the shape first.

use der::{Decode, Encode, Reader, SliceReader};

/// Levels of nesting; a certificate needs ten.
const MAX_DEPTH: usize = 24;
/// Elements of one SET. Tokens carry a few certificates and attributes, names one or two values.
const MAX_SET: usize = 32;

/// Why bytes are no such DER.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DerFault {
    /// Lengths or tags do not add up, or are of BER only.
    #[error("no DER at byte {0}")]
    Shape(usize),
    /// Nested deeper than anything real.
    #[error("nested deeper than {MAX_DEPTH} levels at byte {0}")]
    Depth(usize),
    /// A SET with more elements than anything real.
    #[error("a SET with more than {MAX_SET} elements at byte {0}")]
    Set(usize),
    /// Well-formed, but not of this type.
    #[error("not the expected structure: {0}")]
    Type(#[from] der::Error),
}

/// Reads all of `bytes` as a `T`.
pub(super) fn decode<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T, DerFault> {
    check_shape(bytes)?;
    Ok(T::from_der(bytes)?)
}

/// The three parts of what is signed in X.509: the signed bytes as they were written (another
/// encoding of the same would have another hash), the algorithm, and the signature.
pub(super) struct SignedParts<'a> {
    pub(super) signed: &'a [u8],
    pub(super) algorithm: x509_cert::spki::AlgorithmIdentifierOwned,
    pub(super) signature: Vec<u8>,
}

/// Takes a certificate or a revocation list apart.
pub(super) fn signed_parts(bytes: &[u8]) -> Result<SignedParts<'_>, DerFault> {
    let mut reader = SliceReader::new(bytes)?;
    let parts = reader.sequence(|inner| {
        let signed = inner.tlv_bytes()?;
        let algorithm = inner.decode()?;
        let signature: der::asn1::BitString = inner.decode()?;
        let octets = signature.as_bytes().ok_or_else(|| der::Tag::BitString.value_error())?;
        Ok(SignedParts { signed, algorithm, signature: octets.to_vec() })
    })?;
    reader.finish(parts).map_err(DerFault::Type)
}

/// The DER elements that stand one after the other in `bytes`.
pub(super) fn elements(bytes: &[u8]) -> Result<Vec<&[u8]>, DerFault> {
    let mut reader = SliceReader::new(bytes)?;
    let mut found = Vec::new();
    while !reader.is_finished() {
        found.push(reader.tlv_bytes()?);
    }
    Ok(found)
}

/// The DER of something that was decoded or made here.
pub(super) fn encode(value: &impl Encode) -> Result<Vec<u8>, DerFault> {
    Ok(value.to_der()?)
}

/// An open element: where it ends, whether it is a SET, and how many elements it has so far.
struct Open {
    end: usize,
    set: bool,
    elements: usize,
}

fn check_shape(bytes: &[u8]) -> Result<(), DerFault> {
    let mut open = vec![Open { end: bytes.len(), set: false, elements: 0 }];
    let mut at = 0;
    while let Some(top) = open.last_mut() {
        if at == top.end {
            open.pop();
            continue;
        }
        top.elements += 1;
        if top.set && top.elements > MAX_SET {
            return Err(DerFault::Set(at));
        }
        let end = top.end;
        let tag = bytes[at];
        let (start, length) = header(bytes, at, end).ok_or(DerFault::Shape(at))?;
        at = start;
        let constructed = tag & 0x20 != 0;
        if constructed {
            if open.len() > MAX_DEPTH {
                return Err(DerFault::Depth(at));
            }
            // Context tags may stand for a SET, as signed attributes do.
            let set = tag == 0x31 || tag & 0xc0 == 0x80;
            open.push(Open { end: start + length, set, elements: 0 });
        } else {
            at = start + length;
        }
    }
    Ok(())
}

/// Where the content of the element at `at` begins, and how long it is; none when it does not end
/// at or before `end`, or has no definite length of at most four bytes, or a tag of many bytes.
fn header(bytes: &[u8], at: usize, end: usize) -> Option<(usize, usize)> {
    if bytes.get(at)? & 0x1f == 0x1f {
        return None;
    }
    let first = *bytes.get(at + 1).filter(|_| at + 1 < end)?;
    let (start, length) = match first {
        0..=0x7f => (at + 2, usize::from(first)),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let octets = bytes.get(at + 2..at + 2 + count)?;
            let length = octets.iter().fold(0_usize, |sum, octet| (sum << 8) | usize::from(*octet));
            (at + 2 + count, length)
        }
        _ => return None,
    };
    (start.checked_add(length)? <= end).then_some((start, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sets_and_depth_have_bounds() {
        let many = [vec![0x31, 0x42], [0x05, 0x00].repeat(33)].concat();
        assert_eq!(check_shape(&many), Err(DerFault::Set(2 + 64)));
        let mut deep = vec![0x05, 0x00];
        for _ in 0..30 {
            let length = u8::try_from(deep.len()).unwrap();
            deep = [vec![0x30, length], deep].concat();
        }
        assert!(matches!(check_shape(&deep), Err(DerFault::Depth(_))));
        assert_eq!(check_shape(&[0x30, 0x02, 0x05, 0x00]), Ok(()));
    }

    #[test]
    fn lengths_must_add_up() {
        for bytes in [
            &[0x30_u8, 0x03, 0x05, 0x00][..],
            &[0x30],
            &[0x30, 0x80, 0x00, 0x00],
            &[0x30, 0x02, 0x05, 0x01, 0x00],
            &[0x1f, 0x01, 0x00],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert!(matches!(check_shape(bytes), Err(DerFault::Shape(_))), "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_to_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = check_shape(&bytes);
        }
    }
}
