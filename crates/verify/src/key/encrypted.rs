//! Private keys as cosign keeps them: scrypt makes a key of the password, NaCl's secretbox
//! encrypts with it, JSON says how.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crypto_secretbox::aead::{Aead as _, KeyInit as _};
use crypto_secretbox::{Key, Nonce, XSalsa20Poly1305};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Password, PrivateKeyError};

/// What opening a key may cost. cosign's keys need 64 MiB, the strictest of its kin 128 MiB; a file
/// made by a stranger could ask for everything the machine has.
pub const MAX_SCRYPT_BYTES: u128 = 256 * 1024 * 1024;

/// What cosign writes and, since it compares them, what it reads.
const N: u64 = 65_536;
const R: u32 = 8;
const P: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Envelope {
    kdf: Kdf,
    cipher: Cipher,
    ciphertext: String,
}

#[derive(Serialize, Deserialize)]
struct Kdf {
    name: String,
    params: Params,
    salt: String,
}

#[derive(Serialize, Deserialize)]
struct Params {
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
}

#[derive(Serialize, Deserialize)]
struct Cipher {
    name: String,
    nonce: String,
}

fn envelope(reason: impl Into<String>) -> PrivateKeyError {
    PrivateKeyError::Envelope { reason: reason.into() }
}

/// What is inside, given the password.
pub(super) fn open(
    json: &[u8],
    password: &Password,
) -> Result<Zeroizing<Vec<u8>>, PrivateKeyError> {
    let read: Envelope =
        serde_json::from_slice(json).map_err(|error| envelope(error.to_string()))?;
    for (what, found, known) in
        [("kdf", &read.kdf.name, "scrypt"), ("cipher", &read.cipher.name, "nacl/secretbox")]
    {
        if found != known {
            let found: String = found.chars().take(40).collect();
            return Err(envelope(format!("its {what} is {found:?}, only {known:?} is known")));
        }
    }
    let decode = |what: &str, text: &str| {
        STANDARD.decode(text).map_err(|error| envelope(format!("its {what} is no base64: {error}")))
    };
    let salt = decode("salt", &read.kdf.salt)?;
    let nonce = decode("nonce", &read.cipher.nonce)?;
    let ciphertext = decode("ciphertext", &read.ciphertext)?;
    let nonce: [u8; 24] = nonce.try_into().map_err(|nonce: Vec<u8>| {
        envelope(format!("its nonce has {} bytes, not 24", nonce.len()))
    })?;
    let key = derive(&read.kdf.params, &salt, password)?;
    let opened = XSalsa20Poly1305::new(Key::from_slice(key.as_slice()))
        .decrypt(Nonce::from_slice(&nonce), ciphertext.as_slice())
        .map_err(|_| PrivateKeyError::WrongPassword)?;
    Ok(Zeroizing::new(opened))
}

/// The envelope of `secret`, under a fresh salt and nonce.
pub(super) fn seal(secret: &[u8], password: &Password) -> Result<Vec<u8>, PrivateKeyError> {
    let broken = |step| PrivateKeyError::Broken { step };
    let (mut salt, mut nonce) = ([0; 32], [0; 24]);
    aws_lc_rs::rand::fill(&mut salt).map_err(|_| broken("make random bytes"))?;
    aws_lc_rs::rand::fill(&mut nonce).map_err(|_| broken("make random bytes"))?;
    let params = Params { n: N, r: R, p: P };
    let key = derive(&params, &salt, password)?;
    let ciphertext = XSalsa20Poly1305::new(Key::from_slice(key.as_slice()))
        .encrypt(Nonce::from_slice(&nonce), secret)
        .map_err(|_| broken("encrypt the key"))?;
    let envelope = Envelope {
        kdf: Kdf { name: "scrypt".to_owned(), params, salt: STANDARD.encode(salt) },
        cipher: Cipher { name: "nacl/secretbox".to_owned(), nonce: STANDARD.encode(nonce) },
        ciphertext: STANDARD.encode(ciphertext),
    };
    Ok(serde_json::to_vec(&envelope).expect("strings and numbers are JSON"))
}

fn derive(
    params: &Params,
    salt: &[u8],
    password: &Password,
) -> Result<Zeroizing<[u8; 32]>, PrivateKeyError> {
    let Params { n, r, p } = *params;
    // The product bounds memory (N and r) and time (also p) at once.
    let wanted = (128 * u128::from(n) * u128::from(r)).saturating_mul(u128::from(p));
    if wanted > MAX_SCRYPT_BYTES {
        return Err(PrivateKeyError::TooExpensive { n, r, p, wanted });
    }
    let bad = || envelope(format!("scrypt does not take N={n} r={r} p={p}"));
    if n < 2 || !n.is_power_of_two() {
        return Err(bad());
    }
    let log_n = u8::try_from(n.ilog2()).map_err(|_| bad())?;
    let params = scrypt::Params::new(log_n, r, p).map_err(|_| bad())?;
    let mut key = Zeroizing::new([0; 32]);
    scrypt::scrypt(password.as_bytes(), salt, &params, key.as_mut_slice()).map_err(|_| bad())?;
    Ok(key)
}
