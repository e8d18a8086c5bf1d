//! What the annotations of a layer say of the signature over it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{CERTIFICATE, CHAIN, LOG_ENTRY, SIGNATURE, TIMESTAMP};

/// Together; a chain of three certificates and a log entry have a tenth of it.
const MAX_ANNOTATION_BYTES: usize = 1024 * 1024;
/// No chain of Fulcio's is longer than three.
const MAX_CERTIFICATES: usize = 8;

/// What came with a signed layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    /// The signature over the layer's bytes. None for attestations, which hold their own.
    pub signature: Option<Vec<u8>>,
    /// The signer's certificate first, then what leads to a trusted one, in DER.
    pub certificates: Vec<Vec<u8>>,
    /// What the log said.
    pub entry: Option<Entry>,
    /// What a timestamping authority said, in DER.
    pub timestamp: Option<Vec<u8>>,
}

/// An entry of a transparency log, with the log's promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The log's signature over the rest.
    pub promise: Vec<u8>,
    /// What was logged.
    pub body: Vec<u8>,
    /// When, in seconds.
    pub integrated_time: i64,
    /// Where in the log.
    pub index: u64,
    /// The SHA-256 of the log's key.
    pub log_id: Vec<u8>,
}

/// Which annotation cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the annotation {annotation} {reason}")]
pub struct LayerError {
    /// Its name.
    pub annotation: &'static str,
    /// What is wrong.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawEntry {
    signed_entry_timestamp: String,
    payload: RawPayload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPayload {
    body: String,
    integrated_time: i64,
    log_index: u64,
    #[serde(rename = "logID")]
    log_id: String,
}

#[derive(Deserialize)]
struct RawTimestamp {
    #[serde(rename = "SignedRFC3161Timestamp")]
    signed: String,
}

impl Layer {
    /// Reads a layer's annotations. Those that are not there are none; those that are there must
    /// be readable.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Self, LayerError> {
        let get = |name| annotations.get(name).map(String::as_str).filter(|text| !text.is_empty());
        let known = [SIGNATURE, CERTIFICATE, CHAIN, LOG_ENTRY, TIMESTAMP];
        let size: usize = known.iter().filter_map(|&name| get(name)).map(str::len).sum();
        if size > MAX_ANNOTATION_BYTES {
            let reason = format!("and its kin have {size} bytes, at most {MAX_ANNOTATION_BYTES}");
            return Err(LayerError { annotation: SIGNATURE, reason });
        }
        let signature = get(SIGNATURE).map(|text| decode(SIGNATURE, text)).transpose()?;
        let mut certificates = Vec::new();
        for name in [CERTIFICATE, CHAIN] {
            let text = get(name).unwrap_or_default();
            certificates.extend(chain(name, text)?);
        }
        // Without the signer's own certificate the rest of a chain leads nowhere.
        if get(CERTIFICATE).is_none() {
            certificates.clear();
        }
        let entry = get(LOG_ENTRY).map(read_entry).transpose()?;
        let timestamp = get(TIMESTAMP).map(read_timestamp).transpose()?;
        Ok(Self { signature, certificates, entry, timestamp })
    }
}

fn decode(annotation: &'static str, text: &str) -> Result<Vec<u8>, LayerError> {
    STANDARD
        .decode(text)
        .map_err(|error| LayerError { annotation, reason: format!("is no base64: {error}") })
}

fn chain(annotation: &'static str, text: &str) -> Result<Vec<Vec<u8>>, LayerError> {
    let fail = |reason: String| LayerError { annotation, reason };
    let blocks = pem::parse_many(text).map_err(|error| fail(format!("is no PEM: {error}")))?;
    if (blocks.is_empty() && !text.is_empty()) || blocks.len() > MAX_CERTIFICATES {
        return Err(fail(format!("holds {} PEM blocks", blocks.len())));
    }
    if let Some(other) = blocks.iter().find(|block| block.tag() != "CERTIFICATE") {
        return Err(fail(format!("holds a PEM block {:?}", other.tag())));
    }
    Ok(blocks.into_iter().map(pem::Pem::into_contents).collect())
}

fn read_entry(text: &str) -> Result<Entry, LayerError> {
    let fail = |reason: String| LayerError { annotation: LOG_ENTRY, reason };
    let raw: RawEntry =
        serde_json::from_str(text).map_err(|error| fail(format!("is no log entry: {error}")))?;
    let log_id =
        unhex(&raw.payload.log_id).ok_or_else(|| fail("has a logID that is no hex".to_owned()))?;
    Ok(Entry {
        promise: decode(LOG_ENTRY, &raw.signed_entry_timestamp)?,
        body: decode(LOG_ENTRY, &raw.payload.body)?,
        integrated_time: raw.payload.integrated_time,
        index: raw.payload.log_index,
        log_id,
    })
}

fn read_timestamp(text: &str) -> Result<Vec<u8>, LayerError> {
    let raw: RawTimestamp = serde_json::from_str(text).map_err(|error| LayerError {
        annotation: TIMESTAMP,
        reason: format!("is no timestamp: {error}"),
    })?;
    decode(TIMESTAMP, &raw.signed)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(annotations: &[(&str, &str)]) -> Result<Layer, LayerError> {
        let owned = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Layer::read(&owned.collect())
    }

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_none() {
        let entry = r#"{"SignedEntryTimestamp":"AQI=","Payload":{"body":"e30=","integratedTime":7,"logIndex":3,"logID":"0aFF"}}"#;
        let stamp = r#"{"SignedRFC3161Timestamp":"AwQ="}"#;
        let layer = read(&[(SIGNATURE, "AAE="), (LOG_ENTRY, entry), (TIMESTAMP, stamp)]).unwrap();
        assert_eq!(layer.signature, Some(vec![0, 1]));
        let expected = Entry {
            promise: vec![1, 2],
            body: b"{}".to_vec(),
            integrated_time: 7,
            index: 3,
            log_id: vec![0x0a, 0xff],
        };
        assert_eq!(layer.entry, Some(expected));
        assert_eq!(layer.timestamp, Some(vec![3, 4]));
        assert_eq!(read(&[]).unwrap(), Layer::default());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let huge = "A".repeat(MAX_ANNOTATION_BYTES + 4);
        let certificate = pem::encode(&pem::Pem::new("CERTIFICATE", b"x".as_slice()));
        let key = pem::encode(&pem::Pem::new("PRIVATE KEY", b"x".as_slice()));
        let many = certificate.repeat(9);
        let odd = r#"{"SignedEntryTimestamp":"","Payload":{"body":"","integratedTime":0,"logIndex":0,"logID":"abc"}}"#;
        for (name, value, expected) in [
            (SIGNATURE, "*", "is no base64"),
            (SIGNATURE, huge.as_str(), "at most"),
            (CERTIFICATE, "hello", "holds 0 PEM blocks"),
            (CERTIFICATE, &key, "PRIVATE KEY"),
            (CHAIN, &many, "holds 9 PEM blocks"),
            (LOG_ENTRY, "{}", "is no log entry"),
            (LOG_ENTRY, odd, "no hex"),
            (TIMESTAMP, "[]", "is no timestamp"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(name), "{error}");
        }
    }
}
