//! JWS in its flattened JSON form.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::envelope::Envelope;
use super::headers::{
    AUTHENTIC_SIGNING_TIME, EXPIRY, RawHeaders, SIGNING_SCHEME, SIGNING_TIME, TIMESTAMP_SIGNATURE,
    time,
};
use super::json;
use super::refuse::{malformed, quoted, unsupported};
use super::signature::EnvelopeAlgorithm;
use crate::authority::Refusal;

pub(super) fn read(bytes: &[u8]) -> Result<Envelope, Refusal> {
    let document = object(bytes, "the envelope")?;
    // Besides these there is the general form with many signatures: a reader that takes both
    // forms would verify another signature than we do.
    let known = ["payload", "protected", "header", "signature"];
    if let Some(other) = document.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(malformed(format!("the envelope has the member {}", quoted(other))));
    }
    let payload = text(&document, "payload")?;
    let protected = text(&document, "protected")?;
    let headers = headers(&decode(protected, "protected")?)?.check()?;
    let Some(Value::Object(unprotected)) = document.get("header") else {
        return Err(malformed("the envelope has no member header"));
    };
    let timestamp = match unprotected.get(TIMESTAMP_SIGNATURE) {
        None => None,
        Some(value) => Some(base64(value, TIMESTAMP_SIGNATURE)?),
    };
    Ok(Envelope {
        headers,
        signed: format!("{protected}.{payload}").into_bytes(),
        signature: decode(text(&document, "signature")?, "signature")?,
        payload: decode(payload, "payload")?,
        chain: chain(unprotected)?,
        timestamp,
    })
}

fn headers(protected: &[u8]) -> Result<RawHeaders, Refusal> {
    let mut headers = RawHeaders::default();
    for (name, value) in object(protected, "the protected header")? {
        let text = || {
            let text = value.as_str();
            text.ok_or_else(|| malformed(format!("the header {} is no text", quoted(&name))))
        };
        match name.as_str() {
            "alg" => {
                let alg = text()?;
                headers.algorithm = Some(EnvelopeAlgorithm::from_jose(alg).ok_or_else(|| {
                    unsupported(format!("the algorithm {} is not taken", quoted(alg)))
                })?);
            }
            "cty" => headers.content_type = Some(text()?.to_owned()),
            "crit" => headers.critical = critical(&value)?,
            SIGNING_SCHEME => headers.scheme = Some(text()?.to_owned()),
            SIGNING_TIME => headers.signing_time = Some(time(text()?, SIGNING_TIME)?),
            AUTHENTIC_SIGNING_TIME => {
                headers.authentic_signing_time = Some(time(text()?, AUTHENTIC_SIGNING_TIME)?);
            }
            EXPIRY => headers.expiry = Some(time(text()?, EXPIRY)?),
            // RFC 7797: the payload would not be in base64, and what is signed another text.
            "b64" => return Err(unsupported("the header b64 is not taken")),
            _ => headers.others.push(name),
        }
    }
    Ok(headers)
}

fn critical(value: &Value) -> Result<Vec<String>, Refusal> {
    let names = value.as_array().filter(|names| !names.is_empty());
    let names = names.map(|names| names.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    match names {
        Some(Some(names)) => Ok(names.into_iter().map(str::to_owned).collect()),
        _ => Err(malformed("the header crit is no list of names")),
    }
}

fn chain(unprotected: &Map<String, Value>) -> Result<Vec<Vec<u8>>, Refusal> {
    let Some(Value::Array(certificates)) = unprotected.get("x5c") else {
        return Err(malformed("the envelope has no list of certificates (x5c)"));
    };
    certificates.iter().map(|value| base64(value, "x5c")).collect()
}

fn object(bytes: &[u8], what: &str) -> Result<Map<String, Value>, Refusal> {
    match json::parse(bytes) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(malformed(format!("{what} is no JSON object"))),
        Err(error) => Err(malformed(format!("{what} is not JSON: {error}"))),
    }
}

fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a str, Refusal> {
    let value = members.get(name).and_then(Value::as_str);
    value.ok_or_else(|| malformed(format!("the envelope has no text {name}")))
}

fn decode(text: &str, what: &str) -> Result<Vec<u8>, Refusal> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|error| malformed(format!("{what} is not in base64url: {error}")))
}

fn base64(value: &Value, what: &str) -> Result<Vec<u8>, Refusal> {
    let text = value.as_str().ok_or_else(|| malformed(format!("{what} is no text")))?;
    STANDARD.decode(text).map_err(|error| malformed(format!("{what} is not in base64: {error}")))
}
