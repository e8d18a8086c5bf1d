//! A Sigstore of one's own: a log, an authority that certifies identities, a log of certificates,
//! and the trusted root that names them. Everything is signed for real.
#![allow(dead_code, reason = "every file uses a part of it")]

pub(crate) mod attach;
pub(crate) mod fulcio;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portolan_core::{Descriptor, Digest, hex, media_type};
use portolan_verify::authority::{Accepted, Authority, Judgement, Refusal};
use portolan_verify::cosign::{self, Payload};
use portolan_verify::evidence::{Carrier, Content, Evidence};
use portolan_verify::key::PrivateKey;
use portolan_verify::sigstore::{IN_TOTO, Statement, TrustedRoot, pae};
use portolan_verify::subject::{Kind, Subject};
use serde_json::{Value, json};

/// When things are signed here: 2025-01-01T12:00:00Z, inside what certificates here allow.
pub(crate) const NOON: i64 = 1_735_732_800;

pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn subject(content: &str) -> Subject {
    let descriptor = Descriptor::of(media_type::OCI_INDEX, content.as_bytes());
    Subject { descriptor, kind: Kind::Index, platform: None }
}

pub(crate) fn evidence(content: Content) -> Evidence {
    Evidence { artifact: Digest::sha256(b"artifact"), carrier: Carrier::Referrer, content }
}

/// What `authority` says, which must be something.
#[track_caller]
pub(crate) fn judge(authority: &dyn Authority, subject: &Subject, content: Content) -> Judgement {
    let now = jiff::Timestamp::from_second(NOON).unwrap();
    authority.judge(subject, &evidence(content), now).expect("a kind it reads")
}

#[track_caller]
pub(crate) fn accepted(judgement: Judgement) -> Accepted {
    match judgement {
        Judgement::Accepted(accepted) => accepted,
        Judgement::Refused(refusal) => panic!("{:?}: {refusal}", refusal.code),
    }
}

#[track_caller]
pub(crate) fn refused(judgement: Judgement) -> Refusal {
    match judgement {
        Judgement::Refused(refusal) => refusal,
        Judgement::Accepted(accepted) => panic!("{accepted:?}"),
    }
}

/// A layer of cosign 2 with these extra annotations.
pub(crate) fn simple(payload: &[u8], signature: &[u8], more: &[(&str, String)]) -> Content {
    let mut annotations = BTreeMap::from([(cosign::SIGNATURE.to_owned(), b64(signature))]);
    annotations.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    Content::SimpleSigning { payload: payload.to_vec().into(), annotations }
}

/// A signature of `key` for `digest`, as cosign 2 makes it.
pub(crate) fn signed(key: &PrivateKey, digest: &Digest) -> Content {
    let payload = Payload::new(digest, "registry.example/app").to_vec();
    simple(&payload, &key.sign(&payload).unwrap(), &[])
}

pub(crate) fn statement(digest: &Digest, predicate_type: &str) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "", "digest": {"sha256": digest.hex()}}],
        "predicateType": predicate_type,
        "predicate": {"answer": 42},
    })
}

/// An envelope with the signature that `sign` makes.
pub(crate) fn envelope(payload: &[u8], sign: impl FnOnce(&[u8]) -> Vec<u8>) -> Value {
    let signature = sign(&pae(IN_TOTO, payload));
    json!({"payloadType": IN_TOTO, "payload": b64(payload), "signatures": [{"sig": b64(signature)}]})
}

pub(crate) fn bundle(material: Value, content: (&str, Value)) -> Value {
    let mut bundle = json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": material,
    });
    bundle[content.0] = content.1;
    bundle
}

pub(crate) fn as_bundle(value: &Value) -> Content {
    Content::Bundle(serde_json::to_vec(value).unwrap().into())
}

/// "I signed this", as cosign 3 makes it, without a log.
pub(crate) fn key_bundle(key: &PrivateKey, digest: &Digest) -> Value {
    let payload = Statement::signature(digest).to_vec();
    let envelope = envelope(&payload, |message| key.sign(message).unwrap());
    let hint = b64(Digest::sha256(key.public().as_der()).as_bytes());
    bundle(json!({"publicKey": {"hint": hint}}), ("dsseEnvelope", envelope))
}

/// A transparency log.
pub(crate) struct Log(PrivateKey);

impl Log {
    pub(crate) fn new() -> Self {
        Self(PrivateKey::generate().unwrap())
    }

    pub(crate) fn id(&self) -> Vec<u8> {
        Digest::sha256(self.0.public().as_der()).as_bytes().to_vec()
    }

    pub(crate) fn in_root(&self) -> Value {
        json!({
            "baseUrl": "https://log.example",
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": b64(self.0.public().as_der()),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": {"start": "2020-01-01T00:00:00Z"},
            },
            "logId": {"keyId": b64(self.id())},
        })
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).unwrap()
    }

    fn promise(&self, body: &Value, time: i64) -> Vec<u8> {
        let body = b64(serde_json::to_vec(body).unwrap());
        let id = hex(&self.id());
        // Canonical JSON: sorted keys, no spaces.
        let signed =
            format!(r#"{{"body":"{body}","integratedTime":{time},"logID":"{id}","logIndex":0}}"#);
        self.sign(signed.as_bytes())
    }

    /// What cosign 2 keeps of the log's answer.
    pub(crate) fn annotation(&self, body: &Value, time: i64) -> String {
        let promise = b64(self.promise(body, time));
        let body = b64(serde_json::to_vec(body).unwrap());
        let payload = json!({
            "body": body, "integratedTime": time, "logIndex": 0, "logID": hex(&self.id()),
        });
        json!({"SignedEntryTimestamp": promise, "Payload": payload}).to_string()
    }

    /// What a bundle keeps: the promise, and the proof in a tree of one leaf.
    pub(crate) fn entry(&self, body: &Value, time: i64) -> Value {
        let bytes = serde_json::to_vec(body).unwrap();
        let root = Digest::sha256(&[&[0], bytes.as_slice()].concat());
        let note = format!("log.example - 1\n1\n{}\n", b64(root.as_bytes()));
        let signature = [&self.id()[..4], &self.sign(note.as_bytes())].concat();
        let checkpoint = format!("{note}\n\u{2014} log.example {}\n", b64(signature));
        json!({
            "logIndex": "0",
            "logId": {"keyId": b64(self.id())},
            "kindVersion": {"kind": body["kind"], "version": body["apiVersion"]},
            "integratedTime": time.to_string(),
            "inclusionPromise": {"signedEntryTimestamp": b64(self.promise(body, time))},
            "inclusionProof": {
                "logIndex": "0", "rootHash": b64(root.as_bytes()), "treeSize": "1", "hashes": [],
                "checkpoint": {"envelope": checkpoint},
            },
            "canonicalizedBody": b64(bytes),
        })
    }
}

/// What a log keeps of a signature over bytes.
pub(crate) fn hashedrekord(message: &[u8], signature: &[u8], verifier_pem: &str) -> Value {
    json!({"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": {
        "data": {"hash": {"algorithm": "sha256", "value": Digest::sha256(message).hex()}},
        "signature": {"content": b64(signature), "publicKey": {"content": b64(verifier_pem)}},
    }})
}

/// What a log keeps of an envelope.
pub(crate) fn dsse_entry(envelope: &Value, verifier_pem: &str) -> Value {
    let payload = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
    let whole = serde_json::to_vec(envelope).unwrap();
    let hash = |bytes: &[u8]| json!({"algorithm": "sha256", "value": Digest::sha256(bytes).hex()});
    json!({"apiVersion": "0.0.1", "kind": "dsse", "spec": {
        "envelopeHash": hash(&whole),
        "payloadHash": hash(&payload),
        "signatures": [{
            "signature": envelope["signatures"][0]["sig"], "verifier": b64(verifier_pem),
        }],
    }})
}

pub(crate) fn root_json(logs: &[&Log], authorities: &[Value], ct_logs: &[&Log]) -> Value {
    json!({
        "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
        "tlogs": logs.iter().map(|log| log.in_root()).collect::<Vec<_>>(),
        "certificateAuthorities": authorities,
        "ctlogs": ct_logs.iter().map(|log| log.in_root()).collect::<Vec<_>>(),
        "timestampAuthorities": [],
    })
}

pub(crate) fn root(value: &Value) -> TrustedRoot {
    TrustedRoot::from_json(&serde_json::to_vec(value).unwrap()).unwrap()
}
