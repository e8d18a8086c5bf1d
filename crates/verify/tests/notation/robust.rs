//! Whatever is done to a good envelope: an answer, and never yes.

use std::sync::LazyLock;

use portolan_verify::authority::Accepted;
use portolan_verify::notation::{COSE, JWS, NotationAuthority};
use proptest::prelude::*;
use serde_json::Value;

use crate::mint::{Family, judge};
use crate::policies::authority;

struct Good {
    authority: NotationAuthority,
    jws: Vec<u8>,
    cose: Vec<u8>,
    accepted: Accepted,
}

static GOOD: LazyLock<Good> = LazyLock::new(|| {
    let family = Family::new();
    let authority = authority(family.root(), |_| {});
    let (jws, cose) = (family.draft().jws(), family.draft().cose());
    let accepted = judge(&authority, JWS, &jws).unwrap();
    assert_eq!(judge(&authority, COSE, &cose).unwrap(), accepted);
    Good { authority, jws, cose, accepted }
});

/// One thing done to bytes.
#[derive(Debug, Clone)]
enum Change {
    Flip(prop::sample::Index, u8),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
    Copy(prop::sample::Index, prop::sample::Index, usize),
    Cut(prop::sample::Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = any::<prop::sample::Index>;
    let one = prop_oneof![
        4 => (at(), 1_u8..).prop_map(|(at, mask)| Change::Flip(at, mask)),
        1 => (at(), 1_usize..40).prop_map(|(at, count)| Change::Remove(at, count)),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (at(), at(), 1_usize..200).prop_map(|(from, to, count)| Change::Copy(from, to, count)),
        1 => at().prop_map(Change::Cut),
    ];
    prop::collection::vec(one, 1..4)
}

fn apply(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        if bytes.is_empty() {
            break;
        }
        match change {
            Change::Flip(at, mask) => {
                let at = at.index(bytes.len());
                bytes[at] ^= mask;
            }
            Change::Remove(at, count) => {
                let at = at.index(bytes.len());
                let end = (at + count).min(bytes.len());
                bytes.drain(at..end);
            }
            Change::Insert(at, more) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, more.iter().copied());
            }
            Change::Copy(from, to, count) => {
                let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
                let piece = bytes[from..(from + count).min(bytes.len())].to_vec();
                bytes.splice(to..to, piece);
            }
            Change::Cut(at) => bytes.truncate(at.index(bytes.len())),
        }
    }
    bytes
}

/// What counts of a JWS: all but the spelling of JSON and what is signed by nobody.
fn meaning(bytes: &[u8]) -> Option<[Value; 4]> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let parts = ["payload", "protected", "signature"].map(|name| value[name].clone());
    let [payload, protected, signature] = parts;
    Some([payload, protected, signature, value["header"]["x5c"].clone()])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_jws_that_was_changed_is_never_accepted(changes in changes()) {
        let changed = apply(GOOD.jws.clone(), &changes);
        match judge(&GOOD.authority, JWS, &changed) {
            // Blanks between members and the name of the signing tool are nobody's signature.
            Ok(accepted) => {
                prop_assert_eq!(meaning(&changed), meaning(&GOOD.jws));
                prop_assert_eq!(&accepted, &GOOD.accepted);
            }
            Err(_) => prop_assert_ne!(&changed, &GOOD.jws, "what is unchanged is accepted"),
        }
    }

    #[test]
    fn a_cose_that_was_changed_is_never_accepted(changes in changes()) {
        let changed = apply(GOOD.cose.clone(), &changes);
        if changed != GOOD.cose {
            prop_assert!(judge(&GOOD.authority, COSE, &changed).is_err());
        }
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(judge(&GOOD.authority, JWS, &bytes).is_err());
        prop_assert!(judge(&GOOD.authority, COSE, &bytes).is_err());
    }
}
