//! Keys that sign and keys that are trusted.
//!
//! What cosign takes is taken: ECDSA on the three curves of NIST, RSA with PKCS#1 v1.5 padding,
//! and Ed25519.

mod encrypted;
mod error;
mod private;
mod public;

pub use encrypted::MAX_SCRYPT_BYTES;
pub use error::{KeyError, PrivateKeyError};
pub use private::{Password, PrivateKey};
pub use public::{Algorithm, PublicKey};

/// No key file is larger; an encrypted RSA key of 8192 bits has less than a tenth of it.
pub const MAX_KEY_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests;
