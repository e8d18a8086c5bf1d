use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RsaKeyPair,
};
use portolan_core::Digest;
use x509_cert::der::asn1::BitString;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::*;

fn pkcs8() -> Vec<(Algorithm, Vec<u8>)> {
    let curve = |on| EcdsaKeyPair::generate(on).unwrap().to_pkcs8v1().unwrap().as_ref().to_vec();
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    vec![
        (Algorithm::EcdsaP256, PrivateKey::generate().unwrap().to_pkcs8().to_vec()),
        (Algorithm::EcdsaP384, curve(&ECDSA_P384_SHA384_ASN1_SIGNING)),
        (Algorithm::EcdsaP521, curve(&ECDSA_P521_SHA512_ASN1_SIGNING)),
        (
            Algorithm::Ed25519,
            Ed25519KeyPair::generate().unwrap().to_pkcs8().unwrap().as_ref().to_vec(),
        ),
        (Algorithm::Rsa, rsa.as_der().unwrap().as_ref().to_vec()),
    ]
}

fn clear(der: &[u8]) -> String {
    pem::encode(&pem::Pem::new("PRIVATE KEY", der))
}

#[test]
fn every_kind_of_key_signs_and_is_recognised_by_its_other_half() {
    let stranger = PrivateKey::generate().unwrap();
    for (algorithm, der) in pkcs8() {
        let key = PrivateKey::from_pem(clear(&der).as_bytes(), None).unwrap();
        let public = PublicKey::from_pem(key.public().to_pem().as_bytes()).unwrap();
        assert_eq!(public.algorithm(), algorithm);
        assert_eq!(public, *key.public());
        let signature = key.sign(b"message").unwrap();
        assert!(public.verifies(b"message", &signature), "{algorithm}");
        assert!(!public.verifies(b"Message", &signature), "{algorithm}");
        assert!(!public.verifies(b"message", &signature[1..]), "{algorithm}");
        assert!(!public.verifies(b"message", b""), "{algorithm}");
        assert!(!stranger.public().verifies(b"message", &signature), "{algorithm}");
    }
}

#[test]
fn a_signature_over_content_can_be_judged_by_its_digest_alone() {
    let key = PrivateKey::generate().unwrap();
    let signature = key.sign(b"content").unwrap();
    assert!(key.public().verifies_digest(&Digest::sha256(b"content"), &signature));
    assert!(!key.public().verifies_digest(&Digest::sha256(b"other"), &signature));
    let ed = pkcs8().remove(3).1;
    let ed = PrivateKey::from_pkcs8(&ed).unwrap();
    let signature = ed.sign(b"content").unwrap();
    assert!(!ed.public().verifies_digest(&Digest::sha256(b"content"), &signature));
}

#[test]
fn a_fingerprint_is_the_hash_of_the_der() {
    let key = PrivateKey::generate().unwrap();
    let der = key.public().as_der();
    assert_eq!(key.public().fingerprint(), Digest::sha256(der).hex());
    assert_eq!(key.public().fingerprint().len(), 64);
}

/// The same key with its point written short: `openssl ec -pubin -conv_form compressed`.
pub(crate) fn compressed(key: &PublicKey) -> Vec<u8> {
    let mut spki = SubjectPublicKeyInfoOwned::from_der(key.as_der()).unwrap();
    let point = spki.subject_public_key.raw_bytes();
    let (half, last) = (point.len() / 2, point[point.len() - 1]);
    assert_eq!((point[0], point.len() % 2), (4, 1), "written in full");
    let short = [&[2 + (last & 1)], &point[1..=half]].concat();
    spki.subject_public_key = BitString::from_bytes(&short).unwrap();
    spki.to_der().unwrap()
}

/// Thresholds count keys by their fingerprints.
#[test]
fn one_key_has_one_fingerprint_however_its_point_is_written() {
    for (algorithm, der) in pkcs8().into_iter().take(3) {
        let key = PrivateKey::from_pkcs8(&der).unwrap();
        let short = compressed(key.public());
        assert_ne!(short, key.public().as_der(), "{algorithm}");
        let read = PublicKey::from_der(&short).unwrap();
        assert_eq!(read.fingerprint(), key.public().fingerprint(), "{algorithm}");
        assert_eq!(read, *key.public());
        assert!(read.verifies(b"message", &key.sign(b"message").unwrap()), "{algorithm}");
    }
}

#[test]
fn what_is_no_public_key_is_refused_with_a_way_out() {
    let key = PrivateKey::generate().unwrap();
    let public = key.public().to_pem();
    let pem = |tag: &str, der: &[u8]| pem::encode(&pem::Pem::new(tag, der));
    let mut cut = key.public().as_der().to_vec();
    cut.pop();
    let mut off_curve = key.public().as_der().to_vec();
    *off_curve.last_mut().unwrap() ^= 1;
    let mut longer = key.public().as_der().to_vec();
    longer.push(0);
    // X25519, which agrees on secrets and does not sign.
    let x25519 =
        [&[0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x6e, 3, 0x21, 0][..], &[9; 32]].concat();
    for (text, expected) in [
        (String::new(), "0 PEM blocks"),
        (format!("{public}{public}"), "2 PEM blocks"),
        ("x".repeat(MAX_KEY_BYTES + 1), "at most"),
        (pem("CERTIFICATE", b"x"), "openssl x509 -pubkey"),
        (clear(b"x"), "public half"),
        (pem("RSA PUBLIC KEY", b"x"), "openssl rsa"),
        (pem("PUBLIC KEY", &cut), "no SubjectPublicKeyInfo"),
        (pem("PUBLIC KEY", &longer), "no SubjectPublicKeyInfo"),
        (pem("PUBLIC KEY", &off_curve), "no ECDSA P-256 key"),
        (pem("PUBLIC KEY", &x25519), "1.3.101.110"),
    ] {
        let error = PublicKey::from_pem(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn short_rsa_keys_are_not_taken() {
    // 1024 bits, of openssl genrsa: nobody should trust it, and nothing here makes one.
    let short = include_bytes!("../../tests/data/rsa1024.pub");
    assert_eq!(PublicKey::from_pem(short), Err(KeyError::RsaSize { bits: 1024 }));
}

#[test]
fn an_encrypted_key_opens_with_its_password_only() {
    let key = PrivateKey::generate().unwrap();
    let password = || Password::new(b"secret".to_vec());
    let file = key.to_encrypted_pem(&password()).unwrap();
    assert!(file.starts_with("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n"), "{file}");
    assert!(PrivateKey::is_encrypted(file.as_bytes()).unwrap());
    let opened = PrivateKey::from_pem(file.as_bytes(), Some(&password())).unwrap();
    assert_eq!(opened.public(), key.public());
    let old = file.replace("SIGSTORE", "COSIGN");
    assert!(PrivateKey::from_pem(old.as_bytes(), Some(&password())).is_ok());
    let wrong = Password::new(b"Secret".to_vec());
    let error = PrivateKey::from_pem(file.as_bytes(), Some(&wrong)).unwrap_err();
    assert_eq!(error, PrivateKeyError::WrongPassword);
    let error = PrivateKey::from_pem(file.as_bytes(), None).unwrap_err();
    assert_eq!(error, PrivateKeyError::PasswordNeeded);
}

#[test]
fn no_key_file_costs_the_machine() {
    let hostile = |n: u64, r: u32, p: u32| {
        let json = serde_json::json!({
            "kdf": {"name": "scrypt", "params": {"N": n, "r": r, "p": p}, "salt": ""},
            "cipher": {"name": "nacl/secretbox", "nonce": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
            "ciphertext": "",
        });
        let json = serde_json::to_vec(&json).unwrap();
        let file = pem::encode(&pem::Pem::new("ENCRYPTED SIGSTORE PRIVATE KEY", json));
        PrivateKey::from_pem(file.as_bytes(), Some(&Password::new(vec![]))).unwrap_err()
    };
    let all = (u64::MAX, u32::MAX, u32::MAX);
    for (n, r, p) in
        [(1 << 40, 8, 1), (1 << 15, u32::MAX, 1), (2, 1, u32::MAX), (u64::MAX, 1, 1), all]
    {
        let error = hostile(n, r, p);
        assert!(matches!(error, PrivateKeyError::TooExpensive { .. }), "{error}");
    }
    for (n, r, p) in [(0, 8, 1), (3, 8, 1), (1, 8, 1), (16, 0, 1), (16, 8, 0)] {
        let error = hostile(n, r, p);
        assert!(matches!(error, PrivateKeyError::Envelope { .. }), "N={n} r={r} p={p}: {error}");
    }
    assert_eq!(hostile(16, 8, 1), PrivateKeyError::WrongPassword);
}

#[test]
fn what_is_no_private_key_is_refused() {
    let some = Password::new(vec![]);
    let pem = |tag: &str, bytes: &[u8]| pem::encode(&pem::Pem::new(tag, bytes));
    let encrypted = |json: &str| pem("ENCRYPTED COSIGN PRIVATE KEY", json.as_bytes());
    let params = r#""params":{"N":16,"r":8,"p":1},"salt":"""#;
    let cipher = r#""cipher":{"name":"nacl/secretbox","nonce":""},"ciphertext":"""#;
    for (text, expected) in [
        ("hello".to_owned(), "0 PEM blocks"),
        (pem("EC PRIVATE KEY", b"x"), "openssl pkcs8"),
        (pem("PRIVATE KEY", b"x"), "PKCS#8"),
        (encrypted("[]"), "not what cosign writes"),
        (encrypted(&format!(r#"{{"kdf":{{"name":"md5",{params}}},{cipher}}}"#)), "\"md5\""),
        (
            encrypted(&format!(r#"{{"kdf":{{"name":"scrypt",{params}}},{cipher}}}"#)),
            "0 bytes, not 24",
        ),
        ("x".repeat(MAX_KEY_BYTES + 1), "at most"),
    ] {
        let error = PrivateKey::from_pem(text.as_bytes(), Some(&some)).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn secrets_do_not_show_themselves() {
    let password = Password::new(b"secret".to_vec());
    assert_eq!(format!("{password:?}"), "Password(…)");
    let key = PrivateKey::generate().unwrap();
    let shown = format!("{key:?}");
    assert!(shown.starts_with("PrivateKey(… of PublicKey(ECDSA P-256 "), "{shown}");
}
#[test]
fn a_key_made_by_cosign_opens() {
    let file = include_bytes!("../../tests/data/cosign.key");
    let password = Password::new(b"portolan".to_vec());
    let key = PrivateKey::from_pem(file, Some(&password)).unwrap();
    let public = PublicKey::from_pem(include_bytes!("../../tests/data/cosign.pub")).unwrap();
    assert_eq!(*key.public(), public);
}

/// Recorded from cosign 2.6 with a key of openssl: it hashes first (Ed25519ph).
#[test]
fn a_signature_that_cosign_made_with_ed25519_counts_for_its_bytes_alone() {
    use base64::Engine as _;
    let key = b"-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAICjGn7i5tW0yFLxMS/tj3BbbBN1Ldgo+TGXblT+Sk6Y=\n-----END PUBLIC KEY-----\n";
    let key = PublicKey::from_pem(key).unwrap();
    let signature =
        "Ve+Gbe8HpyG934yOuZKVbQyTV9k0BUzil12AEjYr909JWW3lD46CsypiMCOusmw9pmkciSdMFFxJY29tvHylCw==";
    let signature = base64::engine::general_purpose::STANDARD.decode(signature).unwrap();
    let payload = "{\"critical\":{\"identity\":{\"docker-reference\":\"127.0.0.1:15999/kinds/ed25519-2-theirs\"},\
        \"image\":{\"docker-manifest-digest\":\"sha256:40f2d11bda7fcda1ad1efc1fa3792fe76c0a87bc9386647b87708c63f1d32c2f\"},\
        \"type\":\"cosign container image signature\"},\"optional\":null}";
    assert!(key.verifies(payload.as_bytes(), &signature));
    assert!(!key.verifies(&payload.as_bytes()[1..], &signature));
    assert!(!key.verifies(payload.as_bytes(), &signature[1..]));
    let other = Ed25519KeyPair::generate().unwrap();
    let other = PrivateKey::from_pkcs8(other.to_pkcs8().unwrap().as_ref()).unwrap();
    assert!(!other.public().verifies(payload.as_bytes(), &signature));
}
