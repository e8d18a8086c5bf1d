//! Public keys, and what they say of a signature.

use std::fmt;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use ed25519_dalek::{Signature, VerifyingKey};
use portolan_core::Digest;
use sha2::{Digest as _, Sha512};
use x509_cert::der::asn1::UintRef;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode as _, Encode as _, Reader as _, SliceReader};
use x509_cert::spki::SubjectPublicKeyInfoRef;

use super::{KeyError, MAX_KEY_BYTES};

const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// Kinds of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// What cosign makes.
    EcdsaP256,
    /// The larger curve.
    EcdsaP384,
    /// The largest curve.
    EcdsaP521,
    /// RSA with PKCS#1 v1.5 padding, 2048 to 8192 bits.
    Rsa,
    /// Ed25519.
    Ed25519,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EcdsaP256 => "ECDSA P-256",
            Self::EcdsaP384 => "ECDSA P-384",
            Self::EcdsaP521 => "ECDSA P-521",
            Self::Rsa => "RSA",
            Self::Ed25519 => "Ed25519",
        })
    }
}

impl Algorithm {
    /// With which hashes a signature of such a key is taken. cosign hashes with SHA-256 whatever
    /// the key; services that keep keys choose the hash by the size of the key. Each is strong
    /// enough, so each is taken.
    fn accepted(self) -> &'static [&'static dyn VerificationAlgorithm] {
        match self {
            Self::EcdsaP256 => &[&signature::ECDSA_P256_SHA256_ASN1],
            Self::EcdsaP384 => {
                &[&signature::ECDSA_P384_SHA256_ASN1, &signature::ECDSA_P384_SHA384_ASN1]
            }
            Self::EcdsaP521 => {
                &[&signature::ECDSA_P521_SHA256_ASN1, &signature::ECDSA_P521_SHA512_ASN1]
            }
            Self::Rsa => &[
                &signature::RSA_PKCS1_2048_8192_SHA256,
                &signature::RSA_PKCS1_2048_8192_SHA384,
                &signature::RSA_PKCS1_2048_8192_SHA512,
            ],
            Self::Ed25519 => &[&signature::ED25519],
        }
    }
}

/// A public key that is known to be one.
#[derive(Clone)]
pub struct PublicKey {
    spki: Vec<u8>,
    algorithm: Algorithm,
    /// One for every hash that is taken.
    parsed: Vec<ParsedPublicKey>,
    /// For Ed25519 over a hash (Ed25519ph of RFC 8032), which is how cosign signs with such a key.
    prehashed: Option<VerifyingKey>,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} {})", self.algorithm, self.fingerprint())
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.spki == other.spki
    }
}

impl Eq for PublicKey {}

impl PublicKey {
    /// Reads one PEM block `PUBLIC KEY`.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        if pem.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLarge { size: pem.len() });
        }
        let blocks = pem::parse_many(pem).unwrap_or_default();
        let [block] = blocks.as_slice() else {
            return Err(KeyError::NotOnePem { found: blocks.len() });
        };
        if block.tag() != "PUBLIC KEY" {
            return Err(KeyError::OtherPem { found: block.tag().chars().take(60).collect() });
        }
        Self::from_der(block.contents())
    }

    /// Reads a SubjectPublicKeyInfo.
    pub fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        if der.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLarge { size: der.len() });
        }
        let not_spki =
            |error: x509_cert::der::Error| KeyError::NotSpki { reason: error.to_string() };
        let spki = SubjectPublicKeyInfoRef::from_der(der).map_err(not_spki)?;
        let algorithm = algorithm(&spki)?;
        if algorithm == Algorithm::Rsa {
            check_rsa(&spki)?;
        }
        let not_a_key = || KeyError::NotAKey { algorithm };
        let prehashed = match algorithm {
            Algorithm::Ed25519 => Some(prehashed(&spki).ok_or_else(not_a_key)?),
            _ => None,
        };
        let spki = spki.to_der().map_err(not_spki)?;
        let parsed = algorithm.accepted().iter();
        let parsed = parsed
            .map(|&accepted| ParsedPublicKey::new(accepted, &spki).map_err(|_| not_a_key()))
            .collect::<Result<Vec<_>, _>>()?;
        // One key has one fingerprint: what is kept is how the library writes it, with points of
        // curves in full, not the bytes as given. Else one key in two forms would be two signers.
        let written = parsed.first().and_then(|key| key.as_der().ok()).ok_or_else(not_a_key)?;
        Ok(Self { spki: written.as_ref().to_vec(), algorithm, parsed, prehashed })
    }

    /// What kind of key it is.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The key as a SubjectPublicKeyInfo in DER.
    pub fn as_der(&self) -> &[u8] {
        &self.spki
    }

    /// The key as a file.
    pub fn to_pem(&self) -> String {
        pem::encode_config(&pem::Pem::new("PUBLIC KEY", self.spki.as_slice()), lines())
    }

    /// The SHA-256 of the DER in hex: the name that people and reports call the key.
    pub fn fingerprint(&self) -> String {
        Digest::sha256(&self.spki).hex()
    }

    /// Whether `signature` is of this key over `message`.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.parsed.iter().any(|key| key.verify_sig(message, signature).is_ok())
            || self.prehashed.is_some_and(|key| {
                let hash = Sha512::new_with_prefix(message);
                Signature::from_slice(signature)
                    .is_ok_and(|one| key.verify_prehashed_strict(hash, None, &one).is_ok())
            })
    }

    /// Whether `signature` is of this key over content with this digest. Ed25519 hashes the content
    /// in its own way, so it cannot tell and the answer is no.
    pub fn verifies_digest(&self, digest: &Digest, signature: &[u8]) -> bool {
        let algorithm = match digest.algorithm() {
            portolan_core::Algorithm::Sha256 => &aws_lc_rs::digest::SHA256,
            portolan_core::Algorithm::Sha512 => &aws_lc_rs::digest::SHA512,
        };
        let Ok(digest) = aws_lc_rs::digest::Digest::import_less_safe(digest.as_bytes(), algorithm)
        else {
            return false;
        };
        self.parsed.iter().any(|key| key.verify_digest_sig(&digest, signature).is_ok())
    }
}

/// As Go writes PEM, so that both write the same file.
pub(super) fn lines() -> pem::EncodeConfig {
    pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF)
}

fn algorithm(spki: &SubjectPublicKeyInfoRef<'_>) -> Result<Algorithm, KeyError> {
    let unknown = |oid: &ObjectIdentifier| KeyError::UnknownAlgorithm { oid: oid.to_string() };
    match spki.algorithm.oid {
        RSA => Ok(Algorithm::Rsa),
        ED25519 => Ok(Algorithm::Ed25519),
        EC => match spki.algorithm.parameters_oid() {
            Ok(P256) => Ok(Algorithm::EcdsaP256),
            Ok(P384) => Ok(Algorithm::EcdsaP384),
            Ok(P521) => Ok(Algorithm::EcdsaP521),
            Ok(curve) => Err(unknown(&curve)),
            Err(_) => Err(unknown(&EC)),
        },
        other => Err(unknown(&other)),
    }
}

fn prehashed(spki: &SubjectPublicKeyInfoRef<'_>) -> Option<VerifyingKey> {
    VerifyingKey::from_bytes(spki.subject_public_key.as_bytes()?.try_into().ok()?).ok()
}

/// RSA keys say their size only by their modulus.
fn check_rsa(spki: &SubjectPublicKeyInfoRef<'_>) -> Result<(), KeyError> {
    let broken = KeyError::NotAKey { algorithm: Algorithm::Rsa };
    let bytes = spki.subject_public_key.as_bytes().ok_or_else(|| broken.clone())?;
    let modulus = SliceReader::new(bytes)
        .and_then(|mut reader| {
            reader.sequence(|inner| {
                let modulus: UintRef<'_> = inner.decode()?;
                let _exponent: UintRef<'_> = inner.decode()?;
                Ok(modulus)
            })
        })
        .map_err(|_| broken)?;
    let first = modulus.as_bytes().first().copied().unwrap_or_default();
    let bits = (modulus.as_bytes().len() * 8).saturating_sub(first.leading_zeros() as usize);
    match bits {
        2048..=8192 => Ok(()),
        bits => Err(KeyError::RsaSize { bits }),
    }
}
