//! Gatekeeper's external data: requests and answers as they are written.
//!
//! Gatekeeper decodes an answer whatever its status is, and takes one that it cannot decode for a
//! breakdown without a word of why. So every answer here is a `ProviderResponse`, also to what is
//! no request.

use std::borrow::Cow;

use serde::Deserialize;

use super::config::{Limits, TransientErrors};
use super::reports::{Stamp, Value, Written};
use super::trouble::Trouble;
use crate::report::cut;

/// Of a whole answer. Gatekeeper asks of a pod's images at once, and of each there is some kilobytes to say.
const MAX_RESPONSE: usize = 8 * 1024 * 1024;
/// Of an error; what registries say may be longer.
const MAX_ERROR: usize = 4000;

/// Which generation of Ratify the asking template was written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    V1 = 0,
    V2 = 1,
}

impl Shape {
    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "externaldata.gatekeeper.sh/v1alpha1",
            Self::V2 => "externaldata.gatekeeper.sh/v1beta1",
        }
    }
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    request: Keys<'a>,
}

#[derive(Deserialize)]
struct Keys<'a> {
    #[serde(borrow)]
    keys: Vec<Key<'a>>,
}

/// Of the request's own bytes, unless something in it was escaped.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// A request that is not answered, with the status that says so.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAnswered {
    pub(super) status: u16,
    pub(super) message: String,
}

impl NotAnswered {
    pub(super) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

/// The keys of a request.
pub(super) fn read<'a>(body: &'a [u8], limits: &Limits) -> Result<Vec<Cow<'a, str>>, NotAnswered> {
    let request: Request<'a> = serde_json::from_slice(body).map_err(|error| {
        NotAnswered::new(400, format!("the body is no ProviderRequest with request.keys: {error}"))
    })?;
    let keys = request.request.keys;
    if keys.len() > limits.keys {
        let (found, most) = (keys.len(), limits.keys);
        let what = format!(
            "the request has {found} keys, at most {most} are answered; ask in parts, or raise limits.keys"
        );
        return Err(NotAnswered::new(413, what));
    }
    Ok(keys.into_iter().map(|Key(key)| key).collect())
}

/// An answer to a request, as it is written.
#[derive(Debug)]
pub(super) struct ProviderResponse {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// What is asked of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Verify,
    Mutate,
}

/// An answer that is none.
pub(super) fn system_error(shape: Shape, refused: NotAnswered) -> ProviderResponse {
    let mut body = begin(shape, refused.message.len());
    body.extend_from_slice(b"\"systemError\":");
    text(&mut body, &cut(&refused.message, MAX_ERROR));
    body.extend_from_slice(b"}}");
    ProviderResponse { status: refused.status, body }
}

/// The answer to all keys, in the order in which they were asked.
///
/// Trouble with one key that will pass is told for the whole request, unless it is configured
/// otherwise: Gatekeeper keeps items, also those with an error, and would refuse that image until
/// it forgets them.
pub(super) fn answer(
    shape: Shape,
    purpose: Purpose,
    transient: TransientErrors,
    stamp: &Stamp<'_>,
    told: &[(Cow<'_, str>, Result<Value, Trouble>)],
) -> ProviderResponse {
    let passing = |(key, told): &(Cow<'_, str>, Result<Value, Trouble>)| match told {
        Err(trouble) if trouble.will_pass() => Some(format!("{key}: {}", trouble.text())),
        _ => None,
    };
    if transient == TransientErrors::System {
        let mut troubles = told.iter().filter_map(passing);
        if let Some(first) = troubles.next() {
            let more = match troubles.count() {
                0 => String::new(),
                more => format!(" (and {more} more keys)"),
            };
            return system_error(shape, NotAnswered::new(503, format!("{first}{more}")));
        }
    }
    let stamp = stamp.written();
    let bytes = told.iter().map(|(key, told)| 100 + stamp.len() + key.len() + size(told)).sum();
    if bytes > MAX_RESPONSE {
        let what = format!(
            "the answer to these {} keys has about {bytes} bytes, at most {MAX_RESPONSE} are written; ask in parts",
            told.len()
        );
        return system_error(shape, NotAnswered::new(413, what));
    }
    let mut body = begin(shape, bytes);
    if purpose == Purpose::Mutate {
        body.extend_from_slice(b"\"idempotent\":true,");
    }
    body.extend_from_slice(b"\"items\":[");
    for (at, (key, told)) in told.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        item(&mut body, key);
        match told {
            Ok(value) => {
                body.extend_from_slice(VALUE);
                value.write(&stamp, &mut body);
            }
            Err(trouble) => {
                // As Ratify does, for what reads the value of a mutation without looking for an
                // error.
                if purpose == Purpose::Mutate {
                    body.extend_from_slice(VALUE);
                    text(&mut body, key);
                }
                body.extend_from_slice(b",\"error\":");
                text(&mut body, &cut(&trouble.text(), MAX_ERROR));
            }
        }
        body.push(b'}');
    }
    body.extend_from_slice(b"]}}");
    ProviderResponse { status: 200, body }
}

const VALUE: &[u8] = b",\"value\":";

/// Begins an item: with the key as it was asked, byte for byte, because the answer is found by it.
fn item(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b"{\"key\":");
    text(out, key);
}

/// An item up to its value, for who writes it again and again.
pub(super) fn up_to_value(key: &str) -> Box<[u8]> {
    let mut out = Vec::with_capacity(key.len() + 32);
    item(&mut out, key);
    out.extend_from_slice(VALUE);
    out.into()
}

/// The answer to a request whose keys are all known: items up to their values, and these. It has about
/// so many `bytes`.
pub(super) fn again<'a>(
    shape: Shape,
    stamp: &Stamp<'_>,
    items: impl ExactSizeIterator<Item = (&'a [u8], &'a Written)>,
    bytes: usize,
) -> ProviderResponse {
    let stamp = stamp.written();
    let mut body = begin(shape, bytes + items.len() * (stamp.len() + 2));
    body.extend_from_slice(b"\"items\":[");
    for (at, (head, written)) in items.enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(head);
        written.write(&stamp, &mut body);
        body.push(b'}');
    }
    body.extend_from_slice(b"]}}");
    ProviderResponse { status: 200, body }
}

fn size(told: &Result<Value, Trouble>) -> usize {
    told.as_ref().map_or(MAX_ERROR, Value::bytes)
}

/// The beginning of an answer, with room for about so much more.
fn begin(shape: Shape, more: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(128 + more);
    body.extend_from_slice(b"{\"apiVersion\":\"");
    body.extend_from_slice(shape.api_version().as_bytes());
    body.extend_from_slice(b"\",\"kind\":\"ProviderResponse\",\"response\":{");
    body
}

/// A text in JSON.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    // Writing a text to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn an_answer_that_would_be_too_long_is_none() {
        let stamp = Stamp { trace: "t", now: Timestamp::UNIX_EPOCH };
        let told = |keys: usize| -> Vec<(Cow<'_, str>, Result<Value, Trouble>)> {
            let value = || Ok(Value::Text("x".repeat(100_000)));
            (0..keys).map(|_| (Cow::Borrowed("key"), value())).collect()
        };
        let write =
            |keys| answer(Shape::V2, Purpose::Verify, TransientErrors::System, &stamp, &told(keys));
        assert_eq!(write(80).status, 200);
        let none = write(90);
        assert_eq!(none.status, 413);
        let text = String::from_utf8(none.body).unwrap();
        assert!(text.contains("systemError") && text.contains("ask in parts"), "{text}");
    }
}
