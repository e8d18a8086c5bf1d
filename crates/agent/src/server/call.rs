//! One call, read: parameters of the path, of the query, and a JSON body within bounds.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ApiError;
use crate::id::InstanceId;

/// A spec with all its words is a quarter of this.
pub(super) const MAX_BODY: usize = 1024 * 1024;
/// How long a whole body may take: a megabyte on this machine takes milliseconds. A bound on its
/// pauses alone would let a byte every few seconds keep a place for ever.
const MAX_TIME: Duration = Duration::from_secs(20);

/// A call that a route was found for.
#[derive(Debug)]
pub(super) struct Call {
    parts: Parts,
    body: Body,
    parameters: Vec<String>,
}

impl Call {
    pub(super) fn new(request: Request, parameters: Vec<String>) -> Self {
        let (parts, body) = request.into_parts();
        Self { parts, body, parameters }
    }

    /// The first `{…}` of the path.
    pub(super) fn parameter(&self) -> &str {
        self.parameters.first().map_or("", String::as_str)
    }

    /// The same as an instance's id.
    pub(super) fn id(&self) -> Result<InstanceId, ApiError> {
        self.parameter().parse().map_err(|e| ApiError::invalid(format!("{e}")))
    }

    /// The query's values in the order of `names`. Others, and one given twice, are refused.
    pub(super) fn query<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[Option<String>; N], ApiError> {
        let mut values = [const { None }; N];
        let query = self.parts.uri.query().unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let place = names.iter().position(|n| *n == name).ok_or_else(|| {
                let name: String = name.chars().take(80).collect();
                ApiError::invalid(format!("the query has {name:?}, which is not known here"))
            })?;
            if values[place].replace(value.into_owned()).is_some() {
                return Err(ApiError::invalid(format!("the query has {name} twice")));
            }
        }
        Ok(values)
    }

    /// The body as JSON. An empty one is refused where `T` has fields that must be there.
    pub(super) async fn json<T: DeserializeOwned>(mut self) -> Result<T, ApiError> {
        self.check_content_type()?;
        let bytes = self.read().await?;
        let text = if bytes.is_empty() { b"{}" } else { bytes.as_ref() };
        serde_json::from_slice(text).map_err(|error| {
            ApiError::invalid(format!("the body cannot be read: {error}"))
                .hint("the schemas are in GET /openapi.json")
        })
    }

    /// A form or a text from a browser is not meant for us.
    fn check_content_type(&self) -> Result<(), ApiError> {
        let Some(value) = self.parts.headers.get(header::CONTENT_TYPE) else { return Ok(()) };
        let json = value.to_str().is_ok_and(|text| {
            text.split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .eq_ignore_ascii_case("application/json")
        });
        if json {
            return Ok(());
        }
        let message = "the body is not application/json";
        Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request", message))
    }

    async fn read(&mut self) -> Result<Bytes, ApiError> {
        let mut bytes = BytesMut::new();
        let deadline = tokio::time::Instant::now() + MAX_TIME;
        loop {
            let frame = match tokio::time::timeout_at(deadline, self.body.frame()).await {
                Ok(None) => return Ok(bytes.freeze()),
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    return Err(ApiError::invalid(format!("the body ended early: {error}")));
                }
                Err(_) => {
                    let message = "the body did not come in time";
                    return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message));
                }
            };
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > MAX_BODY {
                let message = format!("the body is larger than {MAX_BODY} bytes");
                return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
            }
            bytes.extend_from_slice(&data);
        }
    }
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, ApiError> {
    let bytes = serde_json::to_vec(value).map_err(|e| ApiError::internal("write JSON", &e))?;
    Ok(typed(status, "application/json", bytes))
}

/// An answer of another kind.
pub(super) fn typed(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
