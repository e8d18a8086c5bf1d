//! Building answers, and reading the few headers several endpoints share.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use portolan_core::Digest;

/// The digest of what is sent or was stored.
pub(super) const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
/// The session's name, which older clients read instead of the location.
pub(super) const UPLOAD_UUID: HeaderName = HeaderName::from_static("docker-upload-uuid");
/// Says that the `subject` of a pushed manifest was seen.
pub(super) const OCI_SUBJECT: HeaderName = HeaderName::from_static("oci-subject");
/// The tags that a push by digest gave.
pub(super) const OCI_TAG: HeaderName = HeaderName::from_static("oci-tag");
/// The filters a list of referrers went through.
pub(super) const OCI_FILTERS: HeaderName = HeaderName::from_static("oci-filters-applied");

/// An answer under construction.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    headers: HeaderMap,
}

impl Reply {
    pub(super) fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new() }
    }

    pub(super) fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Adds a header made of our own words; one that cannot be a header value is left out.
    pub(super) fn text(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(name, value);
        }
        self
    }

    pub(super) fn number(mut self, name: HeaderName, value: u64) -> Self {
        self.headers.insert(name, HeaderValue::from(value));
        self
    }

    pub(super) fn digest(self, digest: &Digest) -> Self {
        self.text(CONTENT_DIGEST, &digest.to_string())
    }

    pub(super) fn body(self, body: Body) -> Response {
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }

    pub(super) fn empty(self) -> Response {
        self.body(Body::empty())
    }
}

/// A header as text; none when it is absent or not ASCII.
pub(super) fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A header that is a number of bytes.
pub(super) fn number_header(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    header_text(headers, name)?.trim().parse().ok()
}

/// Whether `If-None-Match` names what the client has already.
pub(super) fn not_modified(headers: &HeaderMap, etag: &str) -> bool {
    headers.get_all(header::IF_NONE_MATCH).iter().any(|value| matches_etag(value, etag))
}

/// Whether a list of entity tags holds this one, compared weakly.
pub(super) fn matches_etag(list: &HeaderValue, etag: &str) -> bool {
    let Ok(list) = list.to_str() else { return false };
    list.split(',')
        .map(str::trim)
        .any(|item| item == "*" || item.strip_prefix("W/").unwrap_or(item) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags() {
        let mut headers = HeaderMap::new();
        assert!(!not_modified(&headers, "\"a\""));
        headers.insert(header::IF_NONE_MATCH, "\"x\", W/\"a\"".parse().unwrap());
        assert!(not_modified(&headers, "\"a\""));
        assert!(!not_modified(&headers, "\"b\""));
        headers.insert(header::IF_NONE_MATCH, "*".parse().unwrap());
        assert!(not_modified(&headers, "\"b\""));
    }
}
