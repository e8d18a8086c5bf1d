//! What a request path means. Pure: the same path always means the same, whatever is stored.

use percent_encoding::percent_decode_str;
use portolan_core::{Digest, Repository, Target};

use super::error::{ApiError, Code};

/// No path of the API is longer: 255 for the name, 135 for a digest, the words between.
const MAX_PATH: usize = 1024;

/// An endpoint of the distribution API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// `/v2/`
    Base,
    /// `/v2/_catalog`
    Catalog,
    /// `/v2/<name>/tags/list`
    Tags(Repository),
    /// `/v2/<name>/manifests/<reference>`
    Manifest(Repository, Target),
    /// `/v2/<name>/blobs/<digest>`
    Blob(Repository, Digest),
    /// `/v2/<name>/referrers/<digest>`
    Referrers(Repository, Digest),
    /// `/v2/<name>/blobs/uploads/`
    Uploads(Repository),
    /// `/v2/<name>/blobs/uploads/<session>`
    Upload(Repository, UploadId),
}

/// The name of an upload session: 32 lower-case hex digits, so that it can be a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UploadId(String);

impl UploadId {
    /// Takes what we gave out ourselves; anything else names no session.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let hex = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        hex.then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Reads a path as it came over the wire, still percent-encoded.
///
/// The name is never decoded: no name the grammar allows needs encoding, so an encoded dot or
/// slash can only be a trick and fails the grammar as it stands. The last part is decoded,
/// because some clients write the colon of a digest as `%3A`.
pub(super) fn parse(path: &str) -> Result<Route, ApiError> {
    if path.len() > MAX_PATH {
        return Err(ApiError::new(Code::NameInvalid, "the path is longer than any of this API"));
    }
    let Some(rest) = path.strip_prefix("/v2/") else {
        return if path == "/v2" { Ok(Route::Base) } else { Err(unknown_path()) };
    };
    match rest {
        "" => return Ok(Route::Base),
        "_catalog" => return Ok(Route::Catalog),
        _ => {}
    }
    let parts: Vec<&str> = rest.split('/').collect();
    match parts.as_slice() {
        [name @ .., "tags", "list"] => Ok(Route::Tags(repository(name)?)),
        [name @ .., "blobs", "uploads"] | [name @ .., "blobs", "uploads", ""] => {
            Ok(Route::Uploads(repository(name)?))
        }
        [name @ .., "blobs", "uploads", session] => {
            let name = repository(name)?;
            let id = UploadId::parse(session).ok_or_else(ApiError::upload_unknown)?;
            Ok(Route::Upload(name, id))
        }
        [name @ .., "manifests", reference] => {
            Ok(Route::Manifest(repository(name)?, target(reference)?))
        }
        [name @ .., "blobs", digest] => Ok(Route::Blob(repository(name)?, parse_digest(digest)?)),
        [name @ .., "referrers", digest] => {
            Ok(Route::Referrers(repository(name)?, parse_digest(digest)?))
        }
        _ => Err(unknown_path()),
    }
}

fn unknown_path() -> ApiError {
    ApiError::new(Code::UnknownPath, "no such endpoint; the API is below /v2/")
}

fn repository(parts: &[&str]) -> Result<Repository, ApiError> {
    parts.join("/").parse().map_err(|e| ApiError::new(Code::NameInvalid, format!("{e}")))
}

fn decoded(part: &str) -> Result<String, ApiError> {
    let text = percent_decode_str(part).decode_utf8();
    text.map(Into::into)
        .map_err(|_| ApiError::new(Code::DigestInvalid, "the reference is not valid UTF-8"))
}

fn parse_digest(part: &str) -> Result<Digest, ApiError> {
    let text = decoded(part)?;
    text.parse().map_err(|e| ApiError::new(Code::DigestInvalid, format!("{e}")))
}

fn target(part: &str) -> Result<Target, ApiError> {
    let text = decoded(part)?;
    if text.contains(':') {
        return parse_digest(part).map(Target::Digest);
    }
    // What cannot be a tag cannot be pushed, and is unknown to whoever asks for it.
    text.parse().map_err(|e| ApiError::new(Code::TagInvalid, format!("{e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Repository {
        text.parse().unwrap()
    }

    #[test]
    fn every_endpoint() {
        let digest = Digest::sha256(b"x");
        let encoded = digest.to_string().replace(':', "%3A");
        let id = "0123456789abcdef0123456789abcdef";
        for (path, route) in [
            ("/v2".to_owned(), Route::Base),
            ("/v2/".to_owned(), Route::Base),
            ("/v2/_catalog".to_owned(), Route::Catalog),
            ("/v2/a/b/tags/list".to_owned(), Route::Tags(name("a/b"))),
            (
                "/v2/a/manifests/v1".to_owned(),
                Route::Manifest(name("a"), Target::Tag("v1".parse().unwrap())),
            ),
            (
                format!("/v2/a/manifests/{digest}"),
                Route::Manifest(name("a"), Target::Digest(digest)),
            ),
            (format!("/v2/a/blobs/{encoded}"), Route::Blob(name("a"), digest)),
            (format!("/v2/a/referrers/{digest}"), Route::Referrers(name("a"), digest)),
            ("/v2/a/blobs/uploads/".to_owned(), Route::Uploads(name("a"))),
            ("/v2/a/blobs/uploads".to_owned(), Route::Uploads(name("a"))),
            (
                format!("/v2/a/blobs/uploads/{id}"),
                Route::Upload(name("a"), UploadId::parse(id).unwrap()),
            ),
            // Words of the API are good names too.
            ("/v2/a/blobs/sha256/tags/list".to_owned(), Route::Tags(name("a/blobs/sha256"))),
            (
                "/v2/tags/list/manifests/tags".to_owned(),
                Route::Manifest(name("tags/list"), Target::Tag("tags".parse().unwrap())),
            ),
        ] {
            assert_eq!(parse(&path).unwrap(), route, "{path}");
        }
    }

    #[test]
    fn tricks_name_nothing() {
        for (path, code) in [
            ("/v2/../etc/tags/list", Code::NameInvalid),
            ("/v2/a/../b/tags/list", Code::NameInvalid),
            ("/v2/a/%2e%2e/b/tags/list", Code::NameInvalid),
            ("/v2/a%2fb/tags/list", Code::NameInvalid),
            ("/v2/a\\b/tags/list", Code::NameInvalid),
            ("/v2/a%00/tags/list", Code::NameInvalid),
            ("/v2//a/tags/list", Code::NameInvalid),
            ("/v2/a//b/tags/list", Code::NameInvalid),
            ("/v2/tags/list", Code::NameInvalid),
            ("/v2/_layout/tags/list", Code::NameInvalid),
            ("/v2/A/tags/list", Code::NameInvalid),
            ("/v2/a/manifests/..", Code::TagInvalid),
            ("/v2/a/manifests/%2e%2e%2fx", Code::TagInvalid),
            ("/v2/a/manifests/", Code::TagInvalid),
            ("/v2/a/blobs/sha256:../../x", Code::UnknownPath),
            ("/v2/a/blobs/sha256:..%2f..%2fx", Code::DigestInvalid),
            ("/v2/a/blobs/sha256:%ff", Code::DigestInvalid),
            ("/v2/a/blobs/uploads/../x", Code::UnknownPath),
            ("/v2/a/blobs/uploads/x", Code::BlobUploadUnknown),
            ("/v1/", Code::UnknownPath),
            ("/", Code::UnknownPath),
            ("/v2/a", Code::UnknownPath),
        ] {
            assert_eq!(parse(path).unwrap_err().code(), code, "{path}");
        }
        let long = format!("/v2/{}/tags/list", "a".repeat(256));
        assert_eq!(parse(&long).unwrap_err().code(), Code::NameInvalid);
        let longer = format!("/v2/{}/tags/list", "a".repeat(4096));
        assert_eq!(parse(&longer).unwrap_err().code(), Code::NameInvalid);
    }
}
