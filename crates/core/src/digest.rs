//! Content digests: the only name a manifest or blob has once a tag has been resolved.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256, Sha512};
use subtle::ConstantTimeEq;

use crate::quote::quote;

/// The hash functions that OCI registers and we accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// SHA-256, what nearly every image uses.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// The word before the colon.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// How many bytes a hash of this kind has.
    pub fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// The algorithm called `name`, exactly as OCI spells it.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "sha256" => Some(Self::Sha256),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `sha256:<64 hex>` or `sha512:<128 hex>`, already checked.
///
/// Equality takes the same time wherever the first difference is: a digest may be compared with
/// one that an attacker is still guessing (a signature's payload, a pinned plugin).
#[derive(Clone, Copy, Hash)]
#[allow(clippy::derived_hash_with_manual_eq, reason = "both look at every byte")]
pub struct Digest(Repr);

#[derive(Clone, Copy, Hash)]
enum Repr {
    Sha256([u8; 32]),
    Sha512([u8; 64]),
}

impl Digest {
    /// The digest of `bytes`.
    pub fn of(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The SHA-256 digest of `bytes`: what we give to content we make ourselves.
    pub fn sha256(bytes: &[u8]) -> Self {
        Self::of(Algorithm::Sha256, bytes)
    }

    /// Which hash function made it.
    pub fn algorithm(&self) -> Algorithm {
        match self.0 {
            Repr::Sha256(_) => Algorithm::Sha256,
            Repr::Sha512(_) => Algorithm::Sha512,
        }
    }

    /// The hash itself.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Sha256(bytes) => bytes,
            Repr::Sha512(bytes) => bytes,
        }
    }

    /// The lower-case hex after the colon.
    pub fn hex(&self) -> String {
        crate::hex(self.as_bytes())
    }

    /// The first twelve hex digits, for tables read by people. Never for lookups.
    pub fn short(&self) -> String {
        self.hex()[..12].to_owned()
    }

    /// The tag under which registries without the referrers API keep the referrers of this
    /// digest: algorithm and hex joined by `-`, hex cut to 64 so that a tag (128 at most) holds it.
    pub fn referrers_tag(&self) -> String {
        let hex = self.hex();
        format!("{}-{}", self.algorithm(), &hex[..hex.len().min(64)])
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm() == other.algorithm() && self.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl Eq for Digest {}

impl PartialOrd for Digest {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Digest {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.algorithm(), self.as_bytes()).cmp(&(other.algorithm(), other.as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm(), self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseDigestError {
    /// There is no `algorithm:` part.
    #[error("digest {0:?} has no algorithm; write sha256:<hex>")]
    NoAlgorithm(String),
    /// The algorithm is none that we can compute.
    #[error("digest algorithm {0:?} is not supported; sha256 and sha512 are")]
    Algorithm(String),
    /// The hash has the wrong number of digits.
    #[error("{algorithm} digest has {found} digits, needs {}", algorithm.bytes() * 2)]
    Length {
        /// Which algorithm was named.
        algorithm: Algorithm,
        /// How many characters followed the colon.
        found: usize,
    },
    /// The hash has a character that is not a lower-case hex digit.
    #[error("digest has {0:?} where only 0-9 and a-f may stand")]
    Character(char),
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, hex) =
            text.split_once(':').ok_or_else(|| ParseDigestError::NoAlgorithm(quote(text)))?;
        let algorithm =
            Algorithm::from_name(name).ok_or_else(|| ParseDigestError::Algorithm(quote(name)))?;
        if let Some(bad) = hex.chars().find(|c| !matches!(c, '0'..='9' | 'a'..='f')) {
            return Err(ParseDigestError::Character(bad));
        }
        if hex.len() != algorithm.bytes() * 2 {
            return Err(ParseDigestError::Length { algorithm, found: hex.len() });
        }
        let mut bytes = [0_u8; 64];
        for (out, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            *out = nibble(pair[0]) << 4 | nibble(pair[1]);
        }
        Ok(Self(match algorithm {
            Algorithm::Sha256 => {
                let mut short = [0; 32];
                short.copy_from_slice(&bytes[..32]);
                Repr::Sha256(short)
            }
            Algorithm::Sha512 => Repr::Sha512(bytes),
        }))
    }
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Computes a digest over bytes as they flow.
#[derive(Clone)]
pub struct Hasher(State);

#[derive(Clone)]
enum State {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// Nothing hashed yet.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
        })
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(hasher) => hasher.update(bytes),
            State::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The digest of everything taken.
    pub fn finish(self) -> Digest {
        Digest(match self.0 {
            State::Sha256(hasher) => Repr::Sha256(hasher.finalize().into()),
            State::Sha512(hasher) => Repr::Sha512(hasher.finalize().into()),
        })
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn known_hashes() {
        assert_eq!(Digest::sha256(b"").to_string(), EMPTY);
        assert!(
            Digest::of(Algorithm::Sha512, b"").to_string().starts_with("sha512:cf83e1357eefb8bd")
        );
        assert_eq!(Digest::sha256(b"{}").short(), "44136fa355b3");
    }

    #[test]
    fn hashing_in_parts_equals_hashing_at_once() {
        let mut hasher = Hasher::new(Algorithm::Sha512);
        hasher.update(b"por");
        hasher.update(b"tolan");
        assert_eq!(hasher.finish(), Digest::of(Algorithm::Sha512, b"portolan"));
    }

    #[test]
    fn refuses_what_is_not_a_digest() {
        let upper = EMPTY.to_uppercase().replacen("SHA256", "sha256", 1);
        for (text, expected) in [
            ("abc".to_owned(), "has no algorithm"),
            ("md5:abc".to_owned(), "\"md5\" is not supported"),
            ("sha256:abc".to_owned(), "has 3 digits, needs 64"),
            ("sha512:".to_owned(), "has 0 digits, needs 128"),
            (upper, "where only 0-9 and a-f"),
            ("sha256:../../etc".to_owned(), "'.' where only"),
        ] {
            let message = text.parse::<Digest>().unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn the_referrers_tag_of_a_long_digest_still_is_a_tag() {
        assert_eq!(Digest::sha256(b"").referrers_tag(), EMPTY.replace(':', "-"));
        assert_eq!(Digest::of(Algorithm::Sha512, b"").referrers_tag().len(), "sha512-".len() + 64);
    }

    #[test]
    fn a_sha256_never_equals_a_sha512() {
        assert_ne!(Digest::sha256(b"x"), Digest::of(Algorithm::Sha512, b"x"));
    }
}
