//! Refusals as the specification writes them, and breakdowns that say little to strangers and
//! all to the log.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use portolan_core::causes::chain;
use serde_json::{Value, json};

use crate::durable::DurableError;
use crate::layout::LayoutError;

/// The specification's error codes, and the few cases it has none for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    BlobUnknown,
    BlobUploadInvalid,
    BlobUploadUnknown,
    /// A chunk that does not begin where the last one ended.
    ChunkOutOfOrder,
    /// Another request is writing to the same upload.
    UploadBusy,
    DigestInvalid,
    ManifestBlobUnknown,
    ManifestInvalid,
    ManifestTooLarge,
    ManifestUnknown,
    NameInvalid,
    NameUnknown,
    TagInvalid,
    /// A number in the query that is none, or a bad page mark.
    PaginationInvalid,
    /// More bytes than this registry takes.
    TooLarge,
    SizeInvalid,
    RangeNotSatisfiable,
    PreconditionFailed,
    Unauthorized,
    MethodNotAllowed,
    UnknownPath,
    TooManyRequests,
    /// The client stopped sending.
    RequestTimeout,
    /// The disk is full.
    NoSpace,
    /// Trouble of our own.
    Internal,
}

impl Code {
    fn status(self) -> StatusCode {
        match self {
            Self::BlobUploadInvalid
            | Self::DigestInvalid
            | Self::ManifestInvalid
            | Self::NameInvalid
            | Self::TagInvalid
            | Self::PaginationInvalid
            | Self::SizeInvalid => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            // The table of endpoints names 404 for a manifest whose blobs are not there.
            Self::BlobUnknown
            | Self::BlobUploadUnknown
            | Self::ManifestBlobUnknown
            | Self::ManifestUnknown
            | Self::NameUnknown
            | Self::UnknownPath => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::UploadBusy => StatusCode::CONFLICT,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::ManifestTooLarge | Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ChunkOutOfOrder | Self::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The word on the wire, always one of the specification's.
    fn word(self) -> &'static str {
        match self {
            Self::BlobUnknown => "BLOB_UNKNOWN",
            Self::BlobUploadInvalid
            | Self::ChunkOutOfOrder
            | Self::UploadBusy
            | Self::RequestTimeout => "BLOB_UPLOAD_INVALID",
            Self::BlobUploadUnknown => "BLOB_UPLOAD_UNKNOWN",
            Self::DigestInvalid => "DIGEST_INVALID",
            Self::ManifestBlobUnknown => "MANIFEST_BLOB_UNKNOWN",
            Self::ManifestInvalid | Self::TagInvalid | Self::PreconditionFailed => {
                "MANIFEST_INVALID"
            }
            Self::ManifestUnknown => "MANIFEST_UNKNOWN",
            Self::NameInvalid => "NAME_INVALID",
            Self::NameUnknown => "NAME_UNKNOWN",
            Self::ManifestTooLarge | Self::TooLarge | Self::SizeInvalid => "SIZE_INVALID",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::PaginationInvalid
            | Self::RangeNotSatisfiable
            | Self::MethodNotAllowed
            | Self::UnknownPath
            | Self::NoSpace
            | Self::Internal => "UNSUPPORTED",
            Self::TooManyRequests => "TOOMANYREQUESTS",
        }
    }
}

/// A refusal or a breakdown, ready to be sent.
#[derive(Debug)]
pub(super) struct ApiError {
    // Boxed: it is the error of nearly every function here, and success should stay small.
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    code: Code,
    message: String,
    detail: Value,
    headers: HeaderMap,
}

impl ApiError {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        let (message, headers) = (message.into(), HeaderMap::new());
        Self { inner: Box::new(Inner { code, message, detail: Value::Null, headers }) }
    }

    pub(super) fn code(&self) -> Code {
        self.inner.code
    }

    pub(super) fn with_detail(mut self, detail: Value) -> Self {
        self.inner.detail = detail;
        self
    }

    pub(super) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.inner.headers.insert(name, value);
        self
    }

    pub(super) fn upload_unknown() -> Self {
        Self::new(Code::BlobUploadUnknown, "no such upload; it is finished, cancelled or expired")
    }

    /// A task of ours panicked or was cancelled.
    pub(super) fn task_failed(error: &tokio::task::JoinError) -> Self {
        tracing::error!(%error, "a task of the registry failed");
        Self::new(Code::Internal, "the registry failed to handle this request")
    }

    /// Trouble with a file of ours; the path stays in the log.
    pub(super) fn io(step: &str, error: &std::io::Error) -> Self {
        let full = matches!(
            error.kind(),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
        );
        tracing::error!(%error, step, "the registry cannot use its disk");
        if full {
            Self::no_space()
        } else {
            Self::new(Code::Internal, "the registry cannot use its disk")
        }
    }

    fn no_space() -> Self {
        Self::new(Code::NoSpace, "the registry's disk is full; try again when there is room")
    }
}

impl From<DurableError> for ApiError {
    fn from(error: DurableError) -> Self {
        LayoutError::from(error).into()
    }
}

impl From<LayoutError> for ApiError {
    fn from(error: LayoutError) -> Self {
        match &error {
            LayoutError::BlobNotFound { digest, .. } => {
                Self::new(Code::BlobUnknown, format!("blob {digest} is not in this repository"))
            }
            LayoutError::ManifestNotFound { digest, .. } => Self::new(
                Code::ManifestUnknown,
                format!("manifest {digest} is not in this repository"),
            ),
            LayoutError::TagNotFound { tag, .. } => {
                Self::new(Code::ManifestUnknown, format!("tag {tag} is not in this repository"))
            }
            LayoutError::DiskFull { .. } => {
                tracing::error!(error = %chain(&error), "the registry cannot write");
                Self::no_space()
            }
            _ => {
                tracing::error!(error = %chain(&error), "the registry cannot use its store");
                Self::new(Code::Internal, "the registry cannot use its store")
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Inner { code, message, detail, headers } = *self.inner;
        let mut error = json!({ "code": code.word(), "message": message });
        if !detail.is_null() {
            error["detail"] = detail;
        }
        let body = json!({ "errors": [error] }).to_string();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = code.status();
        *response.headers_mut() = headers;
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}
