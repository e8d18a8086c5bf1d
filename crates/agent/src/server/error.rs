//! Answers that are no success: one JSON form, a word to match on, a text for people.

use std::error::Error;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::api::ErrorBody;
use crate::id::InstanceId;
use crate::reason::Reason;
use crate::spec::SpecError;
use portolan_core::causes::chain;

/// A refusal or a breakdown, ready to be sent.
#[derive(Debug)]
pub struct ApiError {
    // Boxed: it is the error of every call, and success should stay small.
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    status: StatusCode,
    body: ErrorBody,
    allow: Option<HeaderValue>,
}

impl ApiError {
    /// With a word of the API's own.
    pub fn new(status: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        let body = ErrorBody { reason: reason.to_owned(), message: message.into(), hint: None };
        Self { inner: Box::new(Inner { status, body, allow: None }) }
    }

    /// With a reason that instances have too.
    pub fn of(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(status(reason), reason.as_str(), message)
    }

    /// What to try.
    #[must_use]
    pub fn hint(mut self, hint: &str) -> Self {
        self.inner.body.hint = Some(hint.to_owned());
        self
    }

    /// The request cannot be read.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// There is no such instance.
    pub fn no_instance(id: &InstanceId) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("there is no instance {id}"))
            .hint("list them with GET /v1/instances")
    }

    /// Trouble of our own: the causes go to the log and, on this host, to the caller.
    pub fn internal(step: &str, error: &dyn Error) -> Self {
        let message = format!("{step}: {}", chain(error));
        tracing::error!(error = %message, "a call failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
            .hint("the agent's log says more")
    }

    pub(super) fn unknown_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "there is no such path")
            .hint("GET /openapi.json lists all of them")
    }

    pub(super) fn method_not_allowed(allow: &str) -> Self {
        let message = format!("this path knows {allow}");
        let mut error = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
        error.inner.allow = HeaderValue::from_str(allow).ok();
        error
    }

    pub(super) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "too many calls at once")
            .hint("try again in a moment")
    }

    pub(super) fn timeout() -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "the call took too long and was given up")
            .hint("the agent's log says what it waited for")
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.inner.body.message
    }

    /// The word to match on.
    pub fn reason(&self) -> &str {
        &self.inner.body.reason
    }

    /// The status code it is sent with.
    pub fn status(&self) -> StatusCode {
        self.inner.status
    }
}

/// The client's fault is 4xx, the registry's and the host's 5xx.
fn status(reason: Reason) -> StatusCode {
    match reason {
        Reason::ResolvedDigestMissing
        | Reason::PlatformMismatch
        | Reason::VerificationFailed
        | Reason::HostIncompatible
        | Reason::InvalidSpec => StatusCode::UNPROCESSABLE_ENTITY,
        Reason::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        Reason::ImagePullFailed => StatusCode::BAD_GATEWAY,
        Reason::VerificationUndecided => StatusCode::SERVICE_UNAVAILABLE,
        Reason::RootfsBuildFailed | Reason::StartFailed => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<SpecError> for ApiError {
    fn from(error: SpecError) -> Self {
        Self::of(error.reason(), chain(&error))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Inner { status, body, allow } = *self.inner;
        let bytes = serde_json::to_vec(&body).expect("three texts are JSON");
        let mut response = Response::new(Body::from(bytes));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(allow) = allow {
            headers.insert(header::ALLOW, allow);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
