//! `/v2/<name>/blobs/<digest>`: reading, whole or in part, and deleting.

use std::fs::File;
use std::sync::Arc;

use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use portolan_core::{Digest, Repository};

use super::body::{self, Buffers};
use super::error::{ApiError, Code};
use super::respond::{Reply, header_text, not_modified};
use super::{App, blocking};
use crate::headers::{ByteRange, parse_range};

/// What part of a blob a request wants.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    /// From the first byte up to the one before the second.
    Part(u64, u64),
    Nothing,
}

/// Several ranges, another unit or another `If-Range` give the whole, as RFC 9110 allows; one
/// range that is outside or backwards gives 416.
fn wanted(headers: &HeaderMap, etag: &str, size: u64) -> Wanted {
    let Some(range) = header_text(headers, &header::RANGE) else { return Wanted::Whole };
    if header_text(headers, &header::IF_RANGE).is_some_and(|condition| condition != etag) {
        return Wanted::Whole;
    }
    let lower = range.trim().to_ascii_lowercase();
    if !lower.starts_with("bytes=") || lower.contains(',') {
        return Wanted::Whole;
    }
    match parse_range(range).and_then(|range: ByteRange| range.within(size)) {
        Some((first, last)) => Wanted::Part(first, last + 1),
        None => Wanted::Nothing,
    }
}

/// GET and HEAD of a blob.
pub(super) async fn read(
    app: &App,
    method: &Method,
    name: Repository,
    digest: Digest,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let store = app.store();
    let (file, size) = blocking(move || {
        let layout = store.existing(&name)?;
        let opened = layout.open_blob(&digest)?;
        // Whoever looks may be about to refer to it: keep it from being collected meanwhile.
        layout.touch_blob(&digest)?;
        Ok::<_, ApiError>(opened)
    })
    .await?;
    answer(method, headers, &digest, (file, size), app.buffers())
}

/// The answer to GET and HEAD of a blob that is there.
pub(super) fn answer(
    method: &Method,
    headers: &HeaderMap,
    digest: &Digest,
    (file, size): (File, u64),
    buffers: Arc<Buffers>,
) -> Result<Response, ApiError> {
    let etag = format!("\"{digest}\"");
    let reply = Reply::new(StatusCode::OK)
        .text(header::ETAG, &etag)
        .digest(digest)
        .text(header::ACCEPT_RANGES, "bytes")
        .text(header::CACHE_CONTROL, "max-age=31536000, immutable");
    if not_modified(headers, &etag) {
        return Ok(reply.status(StatusCode::NOT_MODIFIED).empty());
    }
    let reply = reply.text(header::CONTENT_TYPE, "application/octet-stream");
    let (reply, start, end) = match wanted(headers, &etag, size) {
        Wanted::Whole => (reply, 0, size),
        Wanted::Part(start, end) => {
            let range = format!("bytes {start}-{}/{size}", end - 1);
            let partial = reply.status(StatusCode::PARTIAL_CONTENT);
            (partial.text(header::CONTENT_RANGE, &range), start, end)
        }
        Wanted::Nothing => {
            let text = format!("the blob has {size} bytes, none of them in the range asked for");
            let range = HeaderValue::from_str(&format!("bytes */{size}")).expect("digits");
            return Err(ApiError::new(Code::RangeNotSatisfiable, text)
                .with_header(header::CONTENT_RANGE, range));
        }
    };
    let reply = reply.number(header::CONTENT_LENGTH, end - start);
    if method == Method::HEAD {
        return Ok(reply.empty());
    }
    Ok(reply.body(body::from_file(file, start, end, buffers)))
}

/// DELETE of a blob.
pub(super) async fn delete(
    app: &App,
    name: Repository,
    digest: Digest,
) -> Result<Response, ApiError> {
    let store = app.store();
    let deleted = blocking(move || Ok::<_, ApiError>(store.existing(&name)?.delete_blob(&digest)?));
    if deleted.await? {
        Ok(Reply::new(StatusCode::ACCEPTED).empty())
    } else {
        let text = format!("blob {digest} is not in this repository");
        Err(ApiError::new(Code::BlobUnknown, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_blob() {
        let with = |range: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, range.parse().unwrap());
            wanted(&headers, "\"e\"", 100)
        };
        assert_eq!(with("bytes=0-9"), Wanted::Part(0, 10));
        assert_eq!(with("bytes=90-"), Wanted::Part(90, 100));
        assert_eq!(with("bytes=-5"), Wanted::Part(95, 100));
        assert_eq!(with("bytes=-500"), Wanted::Part(0, 100));
        assert_eq!(with("bytes=50-500"), Wanted::Part(50, 100));
        assert_eq!(with("bytes=0-0"), Wanted::Part(0, 1));
        for none in ["bytes=100-", "bytes=9-0", "bytes=-0", "bytes=x", "bytes="] {
            assert_eq!(with(none), Wanted::Nothing, "{none}");
        }
        for whole in ["bytes=0-1,5-6", "lines=0-1", "nonsense"] {
            assert_eq!(with(whole), Wanted::Whole, "{whole}");
        }
        assert_eq!(wanted(&HeaderMap::new(), "\"e\"", 100), Wanted::Whole);
    }

    #[test]
    fn if_range_guards_the_range() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, "bytes=0-9".parse().unwrap());
        headers.insert(header::IF_RANGE, "\"e\"".parse().unwrap());
        assert_eq!(wanted(&headers, "\"e\"", 100), Wanted::Part(0, 10));
        assert_eq!(wanted(&headers, "\"f\"", 100), Wanted::Whole);
    }
}
