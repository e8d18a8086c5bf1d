//! COSE_Sign1, tagged.

use coset::cbor::value::Value;
use coset::{
    CoseSign1, Label, RegisteredLabel, RegisteredLabelWithPrivate, TaggedCborSerializable, iana,
    iana::EnumI64,
};
use jiff::Timestamp;

use super::envelope::Envelope;
use super::headers::{
    AUTHENTIC_SIGNING_TIME, EXPIRY, RawHeaders, SIGNING_SCHEME, SIGNING_TIME, TIMESTAMP_SIGNATURE,
};
use super::refuse::{malformed, quoted, unsupported};
use super::signature::EnvelopeAlgorithm;
use crate::authority::Refusal;

/// RFC 9360.
const X5CHAIN: i64 = 33;
/// A time as seconds since 1970.
const EPOCH_TAG: u64 = 1;

pub(super) fn read(bytes: &[u8]) -> Result<Envelope, Refusal> {
    let message = CoseSign1::from_tagged_slice(bytes)
        .map_err(|error| malformed(format!("the envelope is no COSE_Sign1: {error}")))?;
    let headers = headers(&message.protected.header)?.check()?;
    let Some(payload) = message.payload.clone() else {
        return Err(malformed("the envelope has no payload"));
    };
    let unprotected = &message.unprotected;
    let timestamp = match entry(unprotected, &Label::Text(TIMESTAMP_SIGNATURE.to_owned())) {
        None => None,
        Some(Value::Bytes(token)) => Some(token.clone()),
        Some(_) => return Err(malformed(format!("{TIMESTAMP_SIGNATURE} is no byte string"))),
    };
    Ok(Envelope {
        headers,
        signed: message.tbs_data(b""),
        payload,
        chain: chain(unprotected)?,
        timestamp,
        signature: message.signature,
    })
}

fn headers(protected: &coset::Header) -> Result<RawHeaders, Refusal> {
    let mut headers = RawHeaders {
        algorithm: algorithm(protected)?,
        content_type: content_type(protected)?,
        ..RawHeaders::default()
    };
    for label in &protected.crit {
        match label {
            RegisteredLabelWithPrivate::Text(name) => headers.critical.push(name.clone()),
            // Always understood.
            RegisteredLabelWithPrivate::Assigned(
                iana::HeaderParameter::Alg | iana::HeaderParameter::ContentType,
            ) => {}
            other => return Err(unsupported(format!("the critical header {other:?}"))),
        }
    }
    for (label, value) in &protected.rest {
        let Label::Text(name) = label else { continue };
        match name.as_str() {
            SIGNING_SCHEME => {
                let scheme = value.as_text();
                let scheme = scheme.ok_or_else(|| malformed(format!("{name} is no text")))?;
                headers.scheme = Some(scheme.to_owned());
            }
            SIGNING_TIME => headers.signing_time = Some(time(value, name)?),
            AUTHENTIC_SIGNING_TIME => headers.authentic_signing_time = Some(time(value, name)?),
            EXPIRY => headers.expiry = Some(time(value, name)?),
            _ => headers.others.push(name.clone()),
        }
    }
    Ok(headers)
}

fn algorithm(protected: &coset::Header) -> Result<Option<EnvelopeAlgorithm>, Refusal> {
    let number = match &protected.alg {
        None => return Ok(None),
        Some(RegisteredLabelWithPrivate::Assigned(algorithm)) => algorithm.to_i64(),
        Some(other) => return Err(unsupported(format!("the algorithm {other:?} is not taken"))),
    };
    let known = EnvelopeAlgorithm::from_cose(number);
    known.map(Some).ok_or_else(|| unsupported(format!("the algorithm {number} is not taken")))
}

fn content_type(protected: &coset::Header) -> Result<Option<String>, Refusal> {
    match &protected.content_type {
        None => Ok(None),
        Some(RegisteredLabel::Text(text)) => Ok(Some(text.clone())),
        Some(RegisteredLabel::Assigned(format)) => {
            Err(unsupported(format!("the payload is of type {format:?}")))
        }
    }
}

fn chain(unprotected: &coset::Header) -> Result<Vec<Vec<u8>>, Refusal> {
    let wrong = || malformed("x5chain is neither a certificate nor a list of them");
    match entry(unprotected, &Label::Int(X5CHAIN)) {
        None => Err(malformed("the envelope has no certificates (x5chain)")),
        Some(Value::Bytes(one)) => Ok(vec![one.clone()]),
        Some(Value::Array(many)) => {
            many.iter().map(|value| value.as_bytes().cloned().ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

fn entry<'a>(header: &'a coset::Header, wanted: &Label) -> Option<&'a Value> {
    header.rest.iter().find(|(label, _)| label == wanted).map(|(_, value)| value)
}

fn time(value: &Value, what: &str) -> Result<Timestamp, Refusal> {
    let seconds = match value {
        Value::Tag(EPOCH_TAG, inner) => {
            inner.as_integer().and_then(|integer| i64::try_from(integer).ok())
        }
        _ => None,
    };
    seconds
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .ok_or_else(|| malformed(format!("{} is no time since 1970", quoted(what))))
}
