//! From the layers of cosign 2 to a bundle, which is what the Sigstore library judges.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portolan_core::Digest;
use serde::Deserialize;
use serde_json::{Value, json};
use sigstore_verify::types::Bundle;

use super::dsse::Envelope;
use super::refusal::malformed;
use crate::authority::Refusal;
use crate::cosign::{Entry, Layer};

/// What a layer held.
pub(super) enum Content<'a> {
    /// A document, signed beside it.
    Payload { bytes: &'a [u8], signature: &'a [u8] },
    /// A statement in its envelope.
    Envelope(&'a Envelope),
}

/// A bundle that says what the layer said.
pub(super) fn bundle(content: &Content<'_>, layer: &Layer) -> Result<Bundle, Refusal> {
    let b64 = |bytes: &[u8]| STANDARD.encode(bytes);
    let (name, value) = match content {
        Content::Payload { bytes, signature } => {
            let digest = b64(Digest::sha256(bytes).as_bytes());
            let digest = json!({"algorithm": "SHA2_256", "digest": digest});
            let value = json!({"messageDigest": digest, "signature": b64(signature)});
            ("messageSignature", value)
        }
        Content::Envelope(envelope) => {
            let signatures = envelope.signatures.iter().map(|sig| json!({"sig": b64(sig)}));
            let signatures: Vec<Value> = signatures.collect();
            let payload = b64(&envelope.payload);
            let kind = &envelope.payload_type;
            let value = json!({"payloadType": kind, "payload": payload, "signatures": signatures});
            ("dsseEnvelope", value)
        }
    };
    let material = match layer.certificates.is_empty() {
        true => json!({"publicKey": {"hint": ""}}),
        false => {
            let all = layer.certificates.iter().map(|der| json!({"rawBytes": b64(der)}));
            json!({"x509CertificateChain": {"certificates": all.collect::<Vec<_>>()}})
        }
    };
    let mut material = material;
    if let Some(entry) = &layer.entry {
        material["tlogEntries"] = json!([log_entry(entry)?]);
    }
    if let Some(timestamp) = &layer.timestamp {
        material["timestampVerificationData"] =
            json!({"rfc3161Timestamps": [{"signedTimestamp": b64(timestamp)}]});
    }
    // The first version is the one whose proof is the log's promise, which is all a layer has;
    // without a promise it must be the second, which may have a timestamp alone.
    let version = if layer.entry.is_some() { "0.1" } else { "0.2" };
    let mut bundle = json!({
        "mediaType": format!("application/vnd.dev.sigstore.bundle+json;version={version}"),
        "verificationMaterial": material,
    });
    bundle[name] = value;
    let unfit = |error| malformed(format!("the layer's annotations make no bundle: {error}"));
    serde_json::from_value(bundle).map_err(unfit)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    kind: String,
    api_version: String,
}

fn log_entry(entry: &Entry) -> Result<Value, Refusal> {
    let b64 = |bytes: &[u8]| STANDARD.encode(bytes);
    let body: Body = serde_json::from_slice(&entry.body)
        .map_err(|error| malformed(format!("the log entry's body is no log entry: {error}")))?;
    Ok(json!({
        "logIndex": entry.index.to_string(),
        "logId": {"keyId": b64(&entry.log_id)},
        "kindVersion": {"kind": body.kind, "version": body.api_version},
        "integratedTime": entry.integrated_time.to_string(),
        "inclusionPromise": {"signedEntryTimestamp": b64(&entry.promise)},
        "canonicalizedBody": b64(&entry.body),
    }))
}
