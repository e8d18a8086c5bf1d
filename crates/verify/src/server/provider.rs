//! Gatekeeper's external data: requests and answers as they are written.
//!
//! Gatekeeper decodes an answer whatever its status is, and takes one that it cannot decode for a
//! breakdown without a word of why. So every answer here is a `ProviderResponse`, also to what is
//! no request.

use serde::{Deserialize, Serialize};

use super::config::{Limits, TransientErrors};
use super::reports::Value;
use super::trouble::Trouble;

/// Which generation of Ratify the asking template was written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    V1,
    V2,
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
struct Request {
    request: Keys,
}

#[derive(Deserialize)]
struct Keys {
    keys: Vec<String>,
}

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
pub(super) fn read(body: &[u8], limits: &Limits) -> Result<Vec<String>, NotAnswered> {
    let request: Request = serde_json::from_slice(body).map_err(|error| {
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
    Ok(keys)
}

/// An answer to a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProviderResponse {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
    #[serde(skip)]
    pub(super) status: u16,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<Vec<Item>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_error: Option<String>,
}

/// What came of one key.
#[derive(Debug, Serialize)]
pub(super) struct Item {
    /// As it was asked, byte for byte: the answer is found by it.
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What is asked of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Verify,
    Mutate,
}

/// An answer that is none.
pub(super) fn system_error(shape: Shape, refused: NotAnswered) -> ProviderResponse {
    let NotAnswered { status, message } = refused;
    let response = Response { system_error: Some(message), ..Response::default() };
    whole(shape, response, status)
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
    told: Vec<(String, Result<Value, Trouble>)>,
) -> ProviderResponse {
    let passing = |(key, told): &(String, Result<Value, Trouble>)| match told {
        Err(trouble) if trouble.will_pass() => Some(format!("{key}: {}", trouble.text())),
        _ => None,
    };
    if transient == TransientErrors::System {
        let troubles: Vec<_> = told.iter().filter_map(passing).collect();
        if let Some(first) = troubles.first() {
            let more = match troubles.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more keys)"),
            };
            return system_error(shape, NotAnswered::new(503, format!("{first}{more}")));
        }
    }
    let item = |(key, told): (String, Result<Value, Trouble>)| match told {
        Ok(value) => Item { key, value: Some(value), error: None },
        Err(trouble) => {
            // As Ratify does, for what reads the value of a mutation without looking for an error.
            let value = (purpose == Purpose::Mutate).then(|| Value::Text(key.clone()));
            Item { key, value, error: Some(trouble.text()) }
        }
    };
    let items = Some(told.into_iter().map(item).collect());
    let idempotent = (purpose == Purpose::Mutate).then_some(true);
    whole(shape, Response { idempotent, items, system_error: None }, 200)
}

fn whole(shape: Shape, response: Response, status: u16) -> ProviderResponse {
    let api_version = shape.api_version();
    ProviderResponse { api_version, kind: "ProviderResponse", response, status }
}
