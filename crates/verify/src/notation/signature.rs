//! Keys, and which algorithms they may sign with.
//!
//! The key decides the algorithm of an envelope, never the envelope: its `alg` only has to agree.

use aws_lc_rs::signature::{self as lc, UnparsedPublicKey, VerificationAlgorithm};
use const_oid::ObjectIdentifier;
use const_oid::db::{rfc5912, rfc8410};
use der::asn1::{AnyRef, UintRef};
use der::{Decode, Reader, SliceReader, Tag, TagNumber, Tagged};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

/// The hash functions that are taken. SHA-1 is not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub(super) fn from_oid(oid: &ObjectIdentifier) -> Option<Self> {
        match *oid {
            rfc5912::ID_SHA_256 => Some(Self::Sha256),
            rfc5912::ID_SHA_384 => Some(Self::Sha384),
            rfc5912::ID_SHA_512 => Some(Self::Sha512),
            _ => None,
        }
    }

    pub(super) fn of(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &aws_lc_rs::digest::SHA256,
            Self::Sha384 => &aws_lc_rs::digest::SHA384,
            Self::Sha512 => &aws_lc_rs::digest::SHA512,
        };
        aws_lc_rs::digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

/// What an envelope may be signed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvelopeAlgorithm {
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
}

impl EnvelopeAlgorithm {
    /// As JWS writes it.
    pub(super) fn from_jose(name: &str) -> Option<Self> {
        match name {
            "PS256" => Some(Self::Ps256),
            "PS384" => Some(Self::Ps384),
            "PS512" => Some(Self::Ps512),
            "ES256" => Some(Self::Es256),
            "ES384" => Some(Self::Es384),
            "ES512" => Some(Self::Es512),
            _ => None,
        }
    }

    /// As COSE numbers it.
    pub(super) fn from_cose(label: i64) -> Option<Self> {
        match label {
            -37 => Some(Self::Ps256),
            -38 => Some(Self::Ps384),
            -39 => Some(Self::Ps512),
            -7 => Some(Self::Es256),
            -35 => Some(Self::Es384),
            -36 => Some(Self::Es512),
            _ => None,
        }
    }

    fn verifier(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Ps256 => &lc::RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &lc::RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &lc::RSA_PSS_2048_8192_SHA512,
            Self::Es256 => &lc::ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &lc::ECDSA_P384_SHA384_FIXED,
            Self::Es512 => &lc::ECDSA_P521_SHA512_FIXED,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rsa { bits: usize },
    P256,
    P384,
    P521,
    Ed25519,
}

/// A public key of a kind that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicKey {
    kind: Kind,
    bytes: Vec<u8>,
}

/// Why a signature does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An algorithm that is not taken, or not with this key.
    Algorithm,
    /// It does not fit.
    Mismatch,
}

impl PublicKey {
    /// None for a key of a kind that is not taken.
    pub(super) fn read(info: &SubjectPublicKeyInfoOwned) -> Option<Self> {
        let bytes = info.subject_public_key.as_bytes()?.to_vec();
        let kind = match info.algorithm.oid {
            rfc5912::RSA_ENCRYPTION => Kind::Rsa { bits: modulus_bits(&bytes)? },
            rfc5912::ID_EC_PUBLIC_KEY => {
                match info.algorithm.parameters.as_ref()?.decode_as::<ObjectIdentifier>().ok()? {
                    rfc5912::SECP_256_R_1 => Kind::P256,
                    rfc5912::SECP_384_R_1 => Kind::P384,
                    rfc5912::SECP_521_R_1 => Kind::P521,
                    _ => return None,
                }
            }
            rfc8410::ID_ED_25519 => Kind::Ed25519,
            _ => return None,
        };
        Some(Self { kind, bytes })
    }

    /// The one algorithm that this key signs envelopes with; none for a key that must not.
    pub(super) fn envelope_algorithm(&self) -> Option<EnvelopeAlgorithm> {
        match self.kind {
            Kind::Rsa { bits: 2048 } => Some(EnvelopeAlgorithm::Ps256),
            Kind::Rsa { bits: 3072 } => Some(EnvelopeAlgorithm::Ps384),
            Kind::Rsa { bits: 4096 } => Some(EnvelopeAlgorithm::Ps512),
            Kind::P256 => Some(EnvelopeAlgorithm::Es256),
            Kind::P384 => Some(EnvelopeAlgorithm::Es384),
            Kind::P521 => Some(EnvelopeAlgorithm::Es512),
            Kind::Rsa { .. } | Kind::Ed25519 => None,
        }
    }

    /// Whether `signature` over `message` is this key's, in an envelope.
    pub(super) fn verify_envelope(
        &self,
        algorithm: EnvelopeAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        if self.envelope_algorithm() != Some(algorithm) {
            return Err(Fault::Algorithm);
        }
        self.verify_by(algorithm.verifier(), message, signature)
    }

    /// Whether `signature` over `message` is this key's, in a certificate or a revocation list.
    pub(super) fn verify_x509(
        &self,
        algorithm: &AlgorithmIdentifierOwned,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        let verifier = self.x509_verifier(algorithm).ok_or(Fault::Algorithm)?;
        self.verify_by(verifier, message, signature)
    }

    /// Whether `signature` over `message` is this key's, in CMS, where the algorithm may leave the
    /// hash to another field.
    pub(super) fn verify_cms(
        &self,
        algorithm: &AlgorithmIdentifierOwned,
        hash: Hash,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        let verifier = match algorithm.oid {
            rfc5912::RSA_ENCRYPTION => self.rsa(hash, false),
            rfc5912::ID_EC_PUBLIC_KEY => self.ecdsa(hash),
            _ => self.x509_verifier(algorithm),
        };
        self.verify_by(verifier.ok_or(Fault::Algorithm)?, message, signature)
    }

    fn verify_by(
        &self,
        verifier: &'static dyn VerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        UnparsedPublicKey::new(verifier, &self.bytes)
            .verify(message, signature)
            .map_err(|_| Fault::Mismatch)
    }

    fn x509_verifier(
        &self,
        algorithm: &AlgorithmIdentifierOwned,
    ) -> Option<&'static dyn VerificationAlgorithm> {
        match algorithm.oid {
            rfc5912::SHA_256_WITH_RSA_ENCRYPTION => self.rsa(Hash::Sha256, false),
            rfc5912::SHA_384_WITH_RSA_ENCRYPTION => self.rsa(Hash::Sha384, false),
            rfc5912::SHA_512_WITH_RSA_ENCRYPTION => self.rsa(Hash::Sha512, false),
            rfc5912::ID_RSASSA_PSS => self.rsa(pss_hash(algorithm)?, true),
            rfc5912::ECDSA_WITH_SHA_256 => self.ecdsa(Hash::Sha256),
            rfc5912::ECDSA_WITH_SHA_384 => self.ecdsa(Hash::Sha384),
            rfc5912::ECDSA_WITH_SHA_512 => self.ecdsa(Hash::Sha512),
            rfc8410::ID_ED_25519 if self.kind == Kind::Ed25519 => Some(&lc::ED25519),
            _ => None,
        }
    }

    fn rsa(&self, hash: Hash, pss: bool) -> Option<&'static dyn VerificationAlgorithm> {
        if !matches!(self.kind, Kind::Rsa { .. }) {
            return None;
        }
        Some(match (hash, pss) {
            (Hash::Sha256, false) => &lc::RSA_PKCS1_2048_8192_SHA256,
            (Hash::Sha384, false) => &lc::RSA_PKCS1_2048_8192_SHA384,
            (Hash::Sha512, false) => &lc::RSA_PKCS1_2048_8192_SHA512,
            (Hash::Sha256, true) => &lc::RSA_PSS_2048_8192_SHA256,
            (Hash::Sha384, true) => &lc::RSA_PSS_2048_8192_SHA384,
            (Hash::Sha512, true) => &lc::RSA_PSS_2048_8192_SHA512,
        })
    }

    fn ecdsa(&self, hash: Hash) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match (self.kind, hash) {
            (Kind::P256, Hash::Sha256) => &lc::ECDSA_P256_SHA256_ASN1,
            (Kind::P256, Hash::Sha384) => &lc::ECDSA_P256_SHA384_ASN1,
            (Kind::P256, Hash::Sha512) => &lc::ECDSA_P256_SHA512_ASN1,
            (Kind::P384, Hash::Sha256) => &lc::ECDSA_P384_SHA256_ASN1,
            (Kind::P384, Hash::Sha384) => &lc::ECDSA_P384_SHA384_ASN1,
            (Kind::P384, Hash::Sha512) => &lc::ECDSA_P384_SHA512_ASN1,
            (Kind::P521, Hash::Sha256) => &lc::ECDSA_P521_SHA256_ASN1,
            (Kind::P521, Hash::Sha384) => &lc::ECDSA_P521_SHA384_ASN1,
            (Kind::P521, Hash::Sha512) => &lc::ECDSA_P521_SHA512_ASN1,
            _ => return None,
        })
    }
}

/// Bits of the modulus in a PKCS #1 public key.
fn modulus_bits(bytes: &[u8]) -> Option<usize> {
    let mut reader = SliceReader::new(bytes).ok()?;
    let bits = reader.sequence(|inner| {
        let modulus: UintRef<'_> = inner.decode()?;
        let _exponent: UintRef<'_> = inner.decode()?;
        let octets = modulus.as_bytes();
        let zeros = octets.first().map_or(0, |octet| octet.leading_zeros() as usize);
        Ok(octets.len() * 8 - zeros)
    });
    bits.and_then(|bits| reader.finish(bits)).ok()
}

/// The hash of RSA-PSS parameters, when the mask uses the same and the salt is as long, as every
/// issuer does and as the verifier below expects.
fn pss_hash(algorithm: &AlgorithmIdentifierOwned) -> Option<Hash> {
    let parameters = algorithm.parameters.as_ref()?;
    if parameters.tag() != Tag::Sequence {
        return None;
    }
    let mut reader = SliceReader::new(parameters.value()).ok()?;
    let hash: AlgorithmIdentifierOwned = explicit(&mut reader, TagNumber::N0)?;
    let mask: AlgorithmIdentifierOwned = explicit(&mut reader, TagNumber::N1)?;
    let salt: u64 = explicit(&mut reader, TagNumber::N2)?;
    let masked: AlgorithmIdentifierOwned = mask.parameters.as_ref()?.decode_as().ok()?;
    let hash = Hash::from_oid(&hash.oid)?;
    let same = mask.oid == rfc5912::ID_MGF_1 && Hash::from_oid(&masked.oid) == Some(hash);
    (same && salt == hash.bytes() && reader.is_finished()).then_some(hash)
}

fn explicit<'a, T: Decode<'a>>(reader: &mut SliceReader<'a>, number: TagNumber) -> Option<T> {
    let outer: AnyRef<'a> = reader.decode().ok()?;
    let tag = Tag::ContextSpecific { constructed: true, number };
    if outer.tag() != tag {
        return None;
    }
    T::from_der(outer.value()).ok()
}
