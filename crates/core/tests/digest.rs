//! Digests as values: read, written, compared.

use portolan_core::{Algorithm, Digest, Hasher};
use proptest::prelude::*;

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(vec![Algorithm::Sha256, Algorithm::Sha512])
}

#[test]
fn in_json_it_is_a_string_and_nothing_else() {
    let digest = Digest::sha256(b"portolan");
    let json = serde_json::to_string(&digest).unwrap();
    assert_eq!(json, format!("\"{digest}\""));
    assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
    for wrong in ["\"sha256:\"", "\"sha256:zz\"", "7", "null", "\"../../x\""] {
        assert!(serde_json::from_str::<Digest>(wrong).is_err(), "{wrong}");
    }
    let message = serde_json::from_str::<Digest>("\"md5:00\"").unwrap_err().to_string();
    assert!(message.contains("sha256 and sha512 are"), "{message}");
}

#[test]
fn long_rubbish_is_not_repeated_in_the_message() {
    let message = "x".repeat(10_000).parse::<Digest>().unwrap_err().to_string();
    assert!(message.len() < 200, "{}", message.len());
}

proptest! {
    #[test]
    fn parse_undoes_print(algorithm in algorithm(), bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let digest = Digest::of(algorithm, &bytes);
        prop_assert_eq!(digest.to_string().parse::<Digest>(), Ok(digest));
        prop_assert_eq!(digest.hex().len(), algorithm.bytes() * 2);
        prop_assert_eq!(digest.as_bytes().len(), algorithm.bytes());
    }

    #[test]
    fn cutting_the_bytes_anywhere_changes_nothing(
        algorithm in algorithm(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        cut in any::<prop::sample::Index>(),
    ) {
        let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
        let mut hasher = Hasher::new(algorithm);
        hasher.update(first);
        hasher.update(second);
        prop_assert_eq!(hasher.finish(), Digest::of(algorithm, &bytes));
    }

    #[test]
    fn equal_and_ordered_alike(a in any::<[u8; 2]>(), b in any::<[u8; 2]>(), x in algorithm(), y in algorithm()) {
        let (a, b) = (Digest::of(x, &a), Digest::of(y, &b));
        prop_assert_eq!(a == b, a.cmp(&b).is_eq());
        prop_assert_eq!(a == b, a.to_string() == b.to_string());
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
    }

    #[test]
    fn one_changed_digit_is_another_digest(at in 7_usize..71, digit in "[0-9a-f]") {
        let digest = Digest::sha256(b"portolan");
        let mut text = digest.to_string();
        let same = text[at..=at] == digit;
        text.replace_range(at..=at, &digit);
        prop_assert_eq!(text.parse::<Digest>().unwrap() == digest, same);
    }
}
