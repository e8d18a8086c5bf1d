//! Private keys: opened, made, and used to sign.

use std::fmt;

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA256_ASN1_SIGNING,
    EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use zeroize::Zeroizing;

use super::public::lines;
use super::{MAX_KEY_BYTES, PrivateKeyError, PublicKey, encrypted};

/// How cosign calls its private keys, first what it writes today.
const ENCRYPTED: [&str; 2] = ["ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY"];

/// What a private key is encrypted with; overwritten when it is no longer needed.
pub struct Password(Zeroizing<Vec<u8>>);

impl Password {
    /// Takes over the bytes. An empty password is one, too: cosign allows it.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Typed twice, is it the same? Both are the typist's own, so nothing is learnt from the time it
/// takes.
impl PartialEq for Password {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// A key that signs.
pub struct PrivateKey {
    pair: Pair,
    public: PublicKey,
    pkcs8: Zeroizing<Vec<u8>>,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(… of {:?})", self.public)
    }
}

impl PrivateKey {
    /// A new key of the kind that cosign makes.
    pub fn generate() -> Result<Self, PrivateKeyError> {
        let broken = |_| PrivateKeyError::Broken { step: "make a key" };
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(broken)?;
        Self::from_pkcs8(pair.to_pkcs8v1().map_err(broken)?.as_ref())
    }

    /// Whether a file has to be opened with a password.
    pub fn is_encrypted(pem: &[u8]) -> Result<bool, PrivateKeyError> {
        let block = block(pem)?;
        Ok(ENCRYPTED.contains(&block.tag()))
    }

    /// Reads a key as cosign encrypts it, or PKCS#8 in the clear.
    pub fn from_pem(pem: &[u8], password: Option<&Password>) -> Result<Self, PrivateKeyError> {
        let block = block(pem)?;
        let tag = block.tag().to_owned();
        let contents = Zeroizing::new(block.into_contents());
        match tag.as_str() {
            tag if ENCRYPTED.contains(&tag) => {
                let password = password.ok_or(PrivateKeyError::PasswordNeeded)?;
                Self::from_pkcs8(&encrypted::open(&contents, password)?)
            }
            "PRIVATE KEY" => Self::from_pkcs8(&contents),
            tag => Err(PrivateKeyError::OtherPem { found: tag.chars().take(60).collect() }),
        }
    }

    /// Reads PKCS#8 in DER.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, PrivateKeyError> {
        let pair = Pair::read(der).ok_or(PrivateKeyError::NotAKey)?;
        let spki = pair.public().ok_or(PrivateKeyError::NotAKey)?;
        let public = PublicKey::from_der(spki.as_ref()).map_err(|_| PrivateKeyError::NotAKey)?;
        Ok(Self { pair, public, pkcs8: Zeroizing::new(der.to_vec()) })
    }

    /// The key as a file that cosign reads.
    pub fn to_encrypted_pem(&self, password: &Password) -> Result<String, PrivateKeyError> {
        let sealed = encrypted::seal(&self.pkcs8, password)?;
        Ok(pem::encode_config(&pem::Pem::new(ENCRYPTED[0], sealed), lines()))
    }

    /// The key in the clear, as PKCS#8: for keys that protect nothing.
    pub fn to_plain_pem(&self) -> Zeroizing<String> {
        let block = pem::Pem::new("PRIVATE KEY", self.pkcs8.as_slice());
        Zeroizing::new(pem::encode_config(&block, lines()))
    }

    #[cfg(test)]
    pub(super) fn to_pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The other half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs with the hash that cosign expects of such a key: SHA-256, and for P-384 SHA-384, which
    /// cosign has to be told (`--signature-digest-algorithm sha384`).
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, PrivateKeyError> {
        let broken = |_| PrivateKeyError::Broken { step: "sign" };
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ecdsa(pair) => Ok(pair.sign(&random, message).map_err(broken)?.as_ref().to_vec()),
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(broken)?;
                Ok(signature)
            }
        }
    }
}

impl Pair {
    fn read(der: &[u8]) -> Option<Self> {
        let curves = [
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            &ECDSA_P384_SHA384_ASN1_SIGNING,
            &ECDSA_P521_SHA256_ASN1_SIGNING,
        ];
        let mut pairs = curves.into_iter().filter_map(|on| EcdsaKeyPair::from_pkcs8(on, der).ok());
        let ecdsa = pairs.next().map(Self::Ecdsa);
        ecdsa
            .or_else(|| Ed25519KeyPair::from_pkcs8(der).ok().map(Self::Ed25519))
            .or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(Self::Rsa))
    }

    fn public(&self) -> Option<PublicKeyX509Der<'static>> {
        match self {
            Self::Ecdsa(pair) => pair.public_key().as_der().ok(),
            Self::Ed25519(pair) => pair.public_key().as_der().ok(),
            Self::Rsa(pair) => pair.public_key().as_der().ok(),
        }
    }
}

fn block(pem: &[u8]) -> Result<pem::Pem, PrivateKeyError> {
    if pem.len() > MAX_KEY_BYTES {
        return Err(PrivateKeyError::TooLarge { size: pem.len() });
    }
    let mut blocks = pem::parse_many(pem).unwrap_or_default();
    match (blocks.pop(), blocks.len()) {
        (Some(only), 0) => Ok(only),
        (last, before) => {
            Err(PrivateKeyError::NotOnePem { found: before + usize::from(last.is_some()) })
        }
    }
}
