//! Why something is no key that is taken.

use super::MAX_KEY_BYTES;
use super::encrypted::MAX_SCRYPT_BYTES;

/// Why bytes are no public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Larger than any key.
    #[error("the key has {size} bytes, at most {MAX_KEY_BYTES} are read")]
    TooLarge {
        /// How many there were.
        size: usize,
    },
    /// Not PEM, or more than one block.
    #[error(
        "it holds {found} PEM blocks and must hold one; a public key begins with -----BEGIN PUBLIC KEY-----"
    )]
    NotOnePem {
        /// How many.
        found: usize,
    },
    /// PEM of something else.
    #[error("it is a PEM block of {found:?}, not of \"PUBLIC KEY\"{}", hint(found))]
    OtherPem {
        /// The label.
        found: String,
    },
    /// Not the structure that public keys have.
    #[error("it is no SubjectPublicKeyInfo in DER: {reason}")]
    NotSpki {
        /// What the parser said.
        reason: String,
    },
    /// A kind of key that is not taken.
    #[error(
        "keys of the kind {oid} are not taken; use ECDSA (P-256, P-384, P-521), RSA or Ed25519"
    )]
    UnknownAlgorithm {
        /// Its object identifier.
        oid: String,
    },
    /// An RSA key that is too short to trust or too long to bear.
    #[error("the RSA key has {bits} bits, 2048 to 8192 are taken")]
    RsaSize {
        /// Of the modulus.
        bits: usize,
    },
    /// The structure is right, the numbers are not.
    #[error("its numbers are no {algorithm} key")]
    NotAKey {
        /// What it says it is.
        algorithm: super::Algorithm,
    },
}

fn hint(label: &str) -> &'static str {
    match label {
        "CERTIFICATE" => {
            "; a certificate is not trusted as a key, extract it: openssl x509 -pubkey"
        }
        label if label.ends_with("PRIVATE KEY") => "; give the public half of the pair",
        "RSA PUBLIC KEY" => "; convert it: openssl rsa -RSAPublicKey_in -pubout",
        _ => "",
    }
}

/// Why a file is no private key that can sign, or cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrivateKeyError {
    /// Larger than any key.
    #[error("the key has {size} bytes, at most {MAX_KEY_BYTES} are read")]
    TooLarge {
        /// How many there were.
        size: usize,
    },
    /// Not PEM, or more than one block.
    #[error("it holds {found} PEM blocks and must hold one")]
    NotOnePem {
        /// How many.
        found: usize,
    },
    /// PEM of something else.
    #[error(
        "it is a PEM block of {found:?}, not a private key that is read here; convert it: \
         cosign import-key-pair, or openssl pkcs8 -topk8 -nocrypt"
    )]
    OtherPem {
        /// The label.
        found: String,
    },
    /// The encrypted form is not what cosign writes.
    #[error("the encrypted key is not what cosign writes: {reason}")]
    Envelope {
        /// What is wrong.
        reason: String,
    },
    /// To open it would cost more than any honest key.
    #[error(
        "to open the key scrypt would need {wanted} bytes (N={n} r={r} p={p}), at most \
         {MAX_SCRYPT_BYTES} are spent; make a new key, this one was not made by cosign"
    )]
    TooExpensive {
        /// Blocks.
        n: u64,
        /// Size of a block.
        r: u32,
        /// How often.
        p: u32,
        /// In total.
        wanted: u128,
    },
    /// Encrypted, and no password was given.
    #[error("the key is encrypted and needs a password; set COSIGN_PASSWORD")]
    PasswordNeeded,
    /// It does not open.
    #[error("the key does not open: wrong password, or the file was changed")]
    WrongPassword,
    /// Opened, but no key that signs here.
    #[error(
        "it is no ECDSA (P-256, P-384, P-521), RSA (2048 to 8192 bits) or Ed25519 key in PKCS#8"
    )]
    NotAKey,
    /// The random generator or the algorithm failed.
    #[error("the system's cryptography failed to {step}")]
    Broken {
        /// What was done.
        step: &'static str,
    },
}
