//! Keys, certificates and envelopes of any shape, right and wrong.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self as lc, EcdsaKeyPair, KeyPair as _, RsaKeyPair};
use aws_lc_rs::{encoding::AsDer as _, rsa::KeySize};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use const_oid::ObjectIdentifier;
use const_oid::db::{rfc5280, rfc5912};
use coset::cbor::value::Value as Cbor;
use coset::{CborSerializable as _, TaggedCborSerializable as _};
use der::asn1::{BitString, GeneralizedTime, OctetString};
use der::{Any, Decode as _, Encode as _};
use jiff::Timestamp;
use portolan_core::{Descriptor, Digest};
use portolan_verify::authority::{Accepted, Authority as _, Judgement, Refusal};
use portolan_verify::evidence::{Carrier, Content, Evidence};
use portolan_verify::notation::{COSE, JWS, NotationAuthority};
use portolan_verify::subject::{Kind, Subject};
use serde_json::json;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::{Time, Validity};
use x509_cert::{Certificate, TbsCertificate, Version};

/// The time of every test: no test looks at a clock.
pub(crate) const NOW: &str = "2026-11-17T12:00:00Z";

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) enum Key {
    Ec(EcdsaKeyPair, &'static str),
    Rsa(RsaKeyPair),
}

impl Key {
    pub(crate) fn p256() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&lc::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(), "ES256")
    }

    pub(crate) fn p384() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&lc::ECDSA_P384_SHA384_FIXED_SIGNING).unwrap(), "ES384")
    }

    pub(crate) fn p521() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&lc::ECDSA_P521_SHA512_FIXED_SIGNING).unwrap(), "ES512")
    }

    pub(crate) fn rsa2048() -> Self {
        Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    /// What its envelopes must say.
    pub(crate) fn alg(&self) -> &'static str {
        match self {
            Self::Ec(_, alg) => alg,
            Self::Rsa(_) => "PS256",
        }
    }

    pub(crate) fn public(&self) -> SubjectPublicKeyInfoOwned {
        let der = match self {
            Self::Ec(pair, _) => pair.public_key().as_der().unwrap().as_ref().to_vec(),
            Self::Rsa(pair) => pair.public_key().as_der().unwrap().as_ref().to_vec(),
        };
        SubjectPublicKeyInfoOwned::from_der(&der).unwrap()
    }

    /// As envelopes are signed.
    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ec(pair, _) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&lc::RSA_PSS_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }

    /// As certificates are signed.
    pub(crate) fn sign_x509(&self, message: &[u8]) -> (AlgorithmIdentifierOwned, Vec<u8>) {
        let random = SystemRandom::new();
        match self {
            Self::Ec(pair, alg) => {
                let (asn1, oid) = match *alg {
                    "ES256" => (&lc::ECDSA_P256_SHA256_ASN1_SIGNING, rfc5912::ECDSA_WITH_SHA_256),
                    "ES384" => (&lc::ECDSA_P384_SHA384_ASN1_SIGNING, rfc5912::ECDSA_WITH_SHA_384),
                    _ => (&lc::ECDSA_P521_SHA512_ASN1_SIGNING, rfc5912::ECDSA_WITH_SHA_512),
                };
                let pkcs8 = pair.to_pkcs8v1().unwrap();
                let pair = EcdsaKeyPair::from_pkcs8(asn1, pkcs8.as_ref()).unwrap();
                let signature = pair.sign(&random, message).unwrap().as_ref().to_vec();
                (AlgorithmIdentifierOwned { oid, parameters: None }, signature)
            }
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&lc::RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                let oid = rfc5912::SHA_256_WITH_RSA_ENCRYPTION;
                (AlgorithmIdentifierOwned { oid, parameters: Some(Any::null()) }, signature)
            }
        }
    }
}

/// A certificate to be.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) subject: String,
    pub(crate) serial: u8,
    pub(crate) from: &'static str,
    pub(crate) until: &'static str,
    pub(crate) extensions: Vec<Extension>,
}

pub(crate) fn extension(
    oid: ObjectIdentifier,
    critical: bool,
    value: &impl der::Encode,
) -> Extension {
    let extn_value = OctetString::new(value.to_der().unwrap()).unwrap();
    Extension { extn_id: oid, critical, extn_value }
}

pub(crate) fn key_usage(
    critical: bool,
    usages: impl Into<der::flagset::FlagSet<KeyUsages>>,
) -> Extension {
    extension(rfc5280::ID_CE_KEY_USAGE, critical, &KeyUsage(usages.into()))
}

pub(crate) fn constraints(critical: bool, ca: bool, path: Option<u8>) -> Extension {
    let value = BasicConstraints { ca, path_len_constraint: path };
    extension(rfc5280::ID_CE_BASIC_CONSTRAINTS, critical, &value)
}

pub(crate) fn extended(critical: bool, usages: &[ObjectIdentifier]) -> Extension {
    extension(rfc5280::ID_CE_EXT_KEY_USAGE, critical, &ExtendedKeyUsage(usages.to_vec()))
}

impl Shape {
    pub(crate) fn authority(name: &str) -> Self {
        let usages = KeyUsages::KeyCertSign | KeyUsages::CRLSign;
        Self {
            subject: format!("CN={name},O=Acme,ST=WA,C=US"),
            serial: 1,
            from: "2026-01-01T00:00:00Z",
            until: "2027-01-01T00:00:00Z",
            extensions: vec![constraints(true, true, None), key_usage(true, usages)],
        }
    }

    pub(crate) fn signer(name: &str) -> Self {
        Self {
            extensions: vec![
                key_usage(true, KeyUsages::DigitalSignature),
                extended(false, &[rfc5280::ID_KP_CODE_SIGNING]),
            ],
            serial: 7,
            ..Self::authority(name)
        }
    }

    pub(crate) fn clock(name: &str) -> Self {
        Self {
            extensions: vec![
                key_usage(true, KeyUsages::DigitalSignature),
                extended(true, &[rfc5280::ID_KP_TIME_STAMPING]),
            ],
            ..Self::signer(name)
        }
    }

    /// With this extension instead of the one of its kind.
    pub(crate) fn with(mut self, extension: Extension) -> Self {
        self.extensions.retain(|old| old.extn_id != extension.extn_id);
        self.extensions.push(extension);
        self
    }

    pub(crate) fn without(mut self, oid: ObjectIdentifier) -> Self {
        self.extensions.retain(|old| old.extn_id != oid);
        self
    }

    pub(crate) fn valid(mut self, from: &'static str, until: &'static str) -> Self {
        (self.from, self.until) = (from, until);
        self
    }

    /// The certificate, of `key`, by an issuer.
    pub(crate) fn issue(&self, key: &Key, issuer: &str, issuer_key: &Key) -> Vec<u8> {
        let (algorithm, _) = issuer_key.sign_x509(b"");
        let moment = |text: &str| {
            let seconds = u64::try_from(time(text).as_second()).unwrap();
            let since = std::time::Duration::from_secs(seconds);
            Time::GeneralTime(GeneralizedTime::from_unix_duration(since).unwrap())
        };
        let tbs_certificate = TbsCertificate {
            version: Version::V3,
            serial_number: SerialNumber::new(&[self.serial]).unwrap(),
            signature: algorithm.clone(),
            issuer: issuer.parse().unwrap(),
            validity: Validity { not_before: moment(self.from), not_after: moment(self.until) },
            subject: self.subject.parse().unwrap(),
            subject_public_key_info: key.public(),
            issuer_unique_id: None,
            subject_unique_id: None,
            extensions: Some(self.extensions.clone()),
        };
        let (_, signature) = issuer_key.sign_x509(&tbs_certificate.to_der().unwrap());
        let signature = BitString::from_bytes(&signature).unwrap();
        let signature_algorithm = algorithm;
        Certificate { tbs_certificate, signature_algorithm, signature }.to_der().unwrap()
    }

    pub(crate) fn issue_itself(&self, key: &Key) -> Vec<u8> {
        self.issue(key, &self.subject, key)
    }
}

/// A root, an authority below it and a signer below that.
pub(crate) struct Family {
    pub(crate) root_key: Key,
    pub(crate) middle_key: Key,
    pub(crate) leaf_key: Key,
    pub(crate) chain: Vec<Vec<u8>>,
}

/// The shapes of a family, to change before it is born.
pub(crate) struct Shapes {
    pub(crate) root: Shape,
    pub(crate) middle: Shape,
    pub(crate) leaf: Shape,
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            root: Shape::authority("root"),
            middle: Shape { serial: 5, ..Shape::authority("middle") },
            leaf: Shape::signer("build"),
        }
    }
}

impl Family {
    pub(crate) fn new() -> Self {
        Self::of(&Shapes::default(), Key::p256())
    }

    pub(crate) fn of(shapes: &Shapes, leaf_key: Key) -> Self {
        let (root_key, middle_key) = (Key::p384(), Key::p521());
        let chain = vec![
            shapes.leaf.issue(&leaf_key, &shapes.middle.subject, &middle_key),
            shapes.middle.issue(&middle_key, &shapes.root.subject, &root_key),
            shapes.root.issue_itself(&root_key),
        ];
        Self { root_key, middle_key, leaf_key, chain }
    }

    pub(crate) fn changed(change: impl Fn(&mut Shapes)) -> Self {
        let mut shapes = Shapes::default();
        change(&mut shapes);
        Self::of(&shapes, Key::p256())
    }

    pub(crate) fn root(&self) -> &[u8] {
        self.chain.last().unwrap()
    }

    pub(crate) fn draft(&self) -> Draft<'_> {
        Draft::new(&self.leaf_key, self.chain.clone())
    }
}

/// Makes a token over a signature.
pub(crate) type Stamper<'a> = Box<dyn Fn(&[u8]) -> Vec<u8> + 'a>;

/// An envelope to be.
pub(crate) struct Draft<'a> {
    pub(crate) key: &'a Key,
    pub(crate) chain: Vec<Vec<u8>>,
    pub(crate) alg: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) critical: Vec<&'static str>,
    pub(crate) texts: Vec<(&'static str, &'static str)>,
    pub(crate) times: Vec<(&'static str, &'static str)>,
    pub(crate) payload: serde_json::Value,
    pub(crate) stamp: Option<Stamper<'a>>,
}

pub(crate) const SCHEME: &str = "io.cncf.notary.signingScheme";
pub(crate) const SIGNING_TIME: &str = "io.cncf.notary.signingTime";
pub(crate) const AUTHENTIC: &str = "io.cncf.notary.authenticSigningTime";
pub(crate) const EXPIRY: &str = "io.cncf.notary.expiry";
pub(crate) const STAMP: &str = "io.cncf.notary.timestampSignature";

pub(crate) fn subject() -> Subject {
    let media_type = "application/vnd.oci.image.index.v1+json";
    let descriptor = Descriptor::new(media_type, Digest::sha256(b"image"), 1234);
    Subject { descriptor, kind: Kind::Index, platform: None }
}

impl<'a> Draft<'a> {
    pub(crate) fn new(key: &'a Key, chain: Vec<Vec<u8>>) -> Self {
        let target = subject().descriptor;
        Self {
            key,
            chain,
            alg: key.alg(),
            content_type: "application/vnd.cncf.notary.payload.v1+json",
            critical: vec![SCHEME],
            texts: vec![(SCHEME, "notary.x509")],
            times: vec![(SIGNING_TIME, "2026-11-01T08:00:00Z")],
            payload: json!({"targetArtifact": {
                "mediaType": target.media_type,
                "digest": target.digest.to_string(),
                "size": target.size
            }}),
            stamp: None,
        }
    }

    pub(crate) fn jws(&self) -> Vec<u8> {
        let mut protected =
            json!({"alg": self.alg, "cty": self.content_type, "crit": self.critical});
        for (name, value) in self.texts.iter().chain(&self.times) {
            protected[name] = json!(value);
        }
        let protected = URL_SAFE_NO_PAD.encode(protected.to_string());
        let payload = URL_SAFE_NO_PAD.encode(self.payload.to_string());
        let signature = self.key.sign(format!("{protected}.{payload}").as_bytes());
        let x5c: Vec<_> = self.chain.iter().map(|der| STANDARD.encode(der)).collect();
        let mut header = json!({"x5c": x5c, "io.cncf.notary.signingAgent": "mint/1"});
        if let Some(stamp) = &self.stamp {
            header[STAMP] = json!(STANDARD.encode(stamp(&signature)));
        }
        let signature = URL_SAFE_NO_PAD.encode(signature);
        json!({
            "payload": payload, "protected": protected, "header": header, "signature": signature
        })
        .to_string()
        .into_bytes()
    }

    pub(crate) fn cose(&self) -> Vec<u8> {
        let number = match self.alg {
            "ES256" => -7,
            "ES384" => -35,
            "ES512" => -36,
            "PS256" => -37,
            "PS384" => -38,
            "PS512" => -39,
            "RS256" => -257,
            _ => -70_000,
        };
        let text = |text: &str| Cbor::Text(text.to_owned());
        let mut protected = vec![
            (Cbor::from(1), Cbor::from(number)),
            (Cbor::from(2), Cbor::Array(self.critical.iter().map(|name| text(name)).collect())),
            (Cbor::from(3), text(self.content_type)),
        ];
        protected.extend(self.texts.iter().map(|(name, value)| (text(name), text(value))));
        protected.extend(self.times.iter().map(|(name, value)| {
            let seconds = time(value).as_second();
            (text(name), Cbor::Tag(1, Box::new(Cbor::from(seconds))))
        }));
        let mut bytes = Vec::new();
        coset::cbor::ser::into_writer(&Cbor::Map(protected), &mut bytes).unwrap();
        let header = coset::Header::from_slice(&bytes).unwrap();
        let protected = coset::ProtectedHeader { original_data: Some(bytes), header };
        let mut message = coset::CoseSign1 {
            protected,
            payload: Some(self.payload.to_string().into_bytes()),
            ..coset::CoseSign1::default()
        };
        message.signature = self.key.sign(&message.tbs_data(b""));
        let chain = self.chain.iter().cloned().map(Cbor::Bytes).collect();
        message.unprotected.rest.push((coset::Label::Int(33), Cbor::Array(chain)));
        if let Some(stamp) = &self.stamp {
            let token = Cbor::Bytes(stamp(&message.signature));
            message.unprotected.rest.push((coset::Label::Text(STAMP.to_owned()), token));
        }
        message.to_tagged_vec().unwrap()
    }

    /// Both forms.
    pub(crate) fn both(&self) -> [(&'static str, Vec<u8>); 2] {
        [(JWS, self.jws()), (COSE, self.cose())]
    }
}

pub(crate) fn judge_as(
    authority: &NotationAuthority,
    subject: &Subject,
    media_type: &str,
    envelope: &[u8],
    now: &str,
) -> Result<Accepted, Refusal> {
    let evidence = Evidence {
        artifact: Digest::sha256(b"artifact"),
        carrier: Carrier::Referrer,
        content: Content::Notation {
            media_type: media_type.to_owned(),
            envelope: Bytes::copy_from_slice(envelope),
        },
    };
    match authority.judge(subject, &evidence, time(now)).unwrap() {
        Judgement::Accepted(accepted) => Ok(accepted),
        Judgement::Refused(refusal) => Err(refusal),
    }
}

pub(crate) fn judge(
    authority: &NotationAuthority,
    media_type: &str,
    envelope: &[u8],
) -> Result<Accepted, Refusal> {
    judge_as(authority, &subject(), media_type, envelope, NOW)
}
