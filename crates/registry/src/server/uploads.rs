//! `/v2/<name>/blobs/uploads/`: every way of bringing a blob in.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use portolan_core::{Algorithm, Digest, Repository};

use super::body::{self, Piece};
use super::error::{ApiError, Code};
use super::query::Query;
use super::respond::{Reply, number_header};
use super::route::UploadId;
use super::upload::Session;
use super::{App, blocking};
use crate::headers::parse_upload_range;
use crate::layout::Layout;

/// Pieces of an upload are written to the disk in batches of at least this many bytes, while
/// the next batch arrives.
const BATCH: usize = 512 * 1024;

/// POST to `uploads/`: mount, upload in one request, or begin a session.
pub(super) async fn start(
    app: &App,
    name: Repository,
    query: &Query,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Response, ApiError> {
    if let Some(mount) = query.get("mount") {
        let digest = digest_parameter(mount)?;
        if mounted(app, &name, digest, query.get("from")).await? {
            return Ok(created(&name, &digest));
        }
    }
    let whole = query.get("digest").map(digest_parameter).transpose()?;
    let algorithm = match (&whole, query.get("digest-algorithm")) {
        (Some(digest), _) => digest.algorithm(),
        (None, Some(word)) => Algorithm::from_name(word).ok_or_else(|| {
            let text = "this digest algorithm is not supported; sha256 and sha512 are";
            ApiError::new(Code::DigestInvalid, text)
        })?,
        (None, None) => Algorithm::Sha256,
    };
    let (store, uploads, repository) = (app.store(), app.uploads(), name.clone());
    let (layout, id) = blocking(move || {
        let layout = store.create(&repository)?;
        let id = uploads.start(&layout, algorithm)?;
        Ok::<_, ApiError>((layout, id))
    })
    .await?;
    let Some(digest) = whole else {
        return Ok(session_reply(StatusCode::ACCEPTED, &name, &id, 0).empty());
    };
    let session = open(app, &layout, &id).await?;
    match receive(app, session, None, headers, body).await {
        Ok(session) => finish(app, session, layout, &name, digest).await,
        Err(error) => {
            // Nobody knows the session's name, so nobody could go on with it.
            let _ = cancel(app, layout, id).await;
            Err(error)
        }
    }
}

/// GET of a session: how far it is.
pub(super) async fn status(
    app: &App,
    name: Repository,
    id: UploadId,
) -> Result<Response, ApiError> {
    let layout = existing(app, &name).await?;
    let (uploads, session) = (app.uploads(), id.clone());
    let size = blocking(move || uploads.size(&layout, &session)).await?;
    Ok(session_reply(StatusCode::NO_CONTENT, &name, &id, size).empty())
}

/// DELETE of a session.
pub(super) async fn abort(app: &App, name: Repository, id: UploadId) -> Result<Response, ApiError> {
    let layout = existing(app, &name).await?;
    cancel(app, layout, id).await?;
    Ok(Reply::new(StatusCode::NO_CONTENT).empty())
}

/// PATCH of a session: the next chunk, or the whole as a stream.
pub(super) async fn patch(
    app: &App,
    name: Repository,
    id: UploadId,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Response, ApiError> {
    let layout = existing(app, &name).await?;
    let session = open(app, &layout, &id).await?;
    let expected = check_order(&session, &name, &id, headers)?;
    let session = receive(app, session, expected, headers, body).await?;
    Ok(session_reply(StatusCode::ACCEPTED, &name, &id, session.size()).empty())
}

/// PUT of a session: the last chunk, if there is one, and the end.
pub(super) async fn put(
    app: &App,
    name: Repository,
    id: UploadId,
    query: &Query,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Response, ApiError> {
    let digest = query.get("digest").ok_or_else(|| {
        ApiError::new(Code::DigestInvalid, "the digest parameter is missing; add ?digest=")
    })?;
    let digest = digest_parameter(digest)?;
    let layout = existing(app, &name).await?;
    let mut session = open(app, &layout, &id).await?;
    let expected = check_order(&session, &name, &id, headers)?;
    session.expect(digest.algorithm());
    let session = receive(app, session, expected, headers, body).await?;
    finish(app, session, layout, &name, digest).await
}

/// A chunk must begin where the last one ended. Returns how long the chunk is said to be.
fn check_order(
    session: &Session,
    name: &Repository,
    id: &UploadId,
    headers: &HeaderMap,
) -> Result<Option<u64>, ApiError> {
    let Some(range) = headers.get(header::CONTENT_RANGE) else { return Ok(None) };
    let range = range.to_str().ok().and_then(chunk_range).ok_or_else(|| {
        let text = "Content-Range must be <first>-<last>, both inclusive";
        ApiError::new(Code::BlobUploadInvalid, text)
    })?;
    let (first, last) = range;
    if first != session.size() {
        let text = format!("the chunk begins at {first}, the next byte is {}", session.size());
        let error = ApiError::new(Code::ChunkOutOfOrder, text);
        return Err(error
            .with_header(header::LOCATION, text_value(&upload_path(name, id)))
            .with_header(header::RANGE, text_value(&progress_range(session.size()))));
    }
    Ok(Some(last - first + 1))
}

/// The specification writes `0-9`; clients that think of RFC 9110 write `bytes 0-9/*`.
fn chunk_range(value: &str) -> Option<(u64, u64)> {
    let value = value.trim();
    let value = value.strip_prefix("bytes ").unwrap_or(value);
    parse_upload_range(value.split_once('/').map_or(value, |(range, _)| range))
}

/// Writes a request's body to the session. `expected` is the length the range promised.
async fn receive(
    app: &App,
    session: Session,
    expected: Option<u64>,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Session, ApiError> {
    let before = session.size();
    let announced = number_header(headers, &header::CONTENT_LENGTH);
    let allowed = allowed(before, expected, announced, app.limits().max_blob_bytes)?;
    let _permit = app.upload_permit()?;
    let (mut session, outcome) = pump(session, body, allowed, app.limits().idle_timeout).await?;
    let short = expected.is_some_and(|expected| session.size() - before < expected);
    let error = match outcome {
        // What came before the line was cut stays: the client may ask how far it got.
        Err(error) if matches!(error.code(), Code::BlobUploadInvalid | Code::RequestTimeout) => {
            return Err(error);
        }
        Err(error) => error,
        Ok(()) if short => {
            ApiError::new(Code::SizeInvalid, "the chunk is shorter than its Content-Range")
        }
        Ok(()) => return Ok(session),
    };
    blocking(move || session.truncate(before).map_err(|e| ApiError::io("shorten an upload", &e)))
        .await?;
    Err(error)
}

/// How many bytes a request may bring, and the refusal when it brings more.
struct Allowed {
    bytes: u64,
    beyond: fn(u64) -> ApiError,
}

/// Decides before a byte is read.
fn allowed(
    before: u64,
    expected: Option<u64>,
    announced: Option<u64>,
    limit: u64,
) -> Result<Allowed, ApiError> {
    let too_large = |limit| {
        let text = format!("the upload is larger than what is taken: at most {limit} more bytes");
        ApiError::new(Code::TooLarge, text)
    };
    let too_long = |length| {
        let text = format!("the chunk goes on after the {length} bytes of its Content-Range");
        ApiError::new(Code::SizeInvalid, text)
    };
    if let (Some(expected), Some(announced)) = (expected, announced)
        && expected != announced
    {
        let text = format!("Content-Range has {expected} bytes, Content-Length {announced}");
        return Err(ApiError::new(Code::SizeInvalid, text));
    }
    let room = limit.saturating_sub(before);
    match announced.or(expected) {
        Some(length) if length > room => Err(too_large(room)),
        _ => Ok(match expected {
            Some(length) => Allowed { bytes: length, beyond: too_long },
            None => Allowed { bytes: room, beyond: too_large },
        }),
    }
}

/// Moves the body to the disk, one batch being written while the next one arrives.
///
/// The session travels into each write and back, so that it stays locked until the last write
/// is done even when the client goes away and this future is dropped.
async fn pump(
    session: Session,
    body: &mut Body,
    allowed: Allowed,
    idle: std::time::Duration,
) -> Result<(Session, Result<(), ApiError>), ApiError> {
    let mut writing = Writing::Idle(session);
    let (mut batch, mut batched, mut left) = (Vec::new(), 0, allowed.bytes);
    let outcome = loop {
        let data = match body::next_piece(body, idle).await {
            Ok(Piece::Data(data)) => data,
            Ok(Piece::End) => break Ok(()),
            Err(error) => break Err(error),
        };
        match left.checked_sub(data.len() as u64) {
            Some(rest) => left = rest,
            None => break Err((allowed.beyond)(allowed.bytes)),
        }
        batched += data.len();
        batch.push(data);
        if batched >= BATCH {
            writing = writing.append(std::mem::take(&mut batch)).await?;
            batched = 0;
        }
    };
    Ok((writing.append(batch).await?.done().await?, outcome))
}

/// A session, either here or in the hands of the thread that writes to it.
enum Writing {
    Idle(Session),
    Busy(tokio::task::JoinHandle<Result<Session, ApiError>>),
}

impl Writing {
    /// Waits for the write before this one and starts this one.
    async fn append(self, batch: Vec<Bytes>) -> Result<Self, ApiError> {
        let mut session = self.done().await?;
        if batch.is_empty() {
            return Ok(Self::Idle(session));
        }
        Ok(Self::Busy(tokio::task::spawn_blocking(move || {
            if let Err(error) = session.append(&batch) {
                // A half-written upload must not keep the disk full; the client starts again.
                let _ = session.truncate(0);
                return Err(ApiError::io("write an upload", &error));
            }
            Ok(session)
        })))
    }

    async fn done(self) -> Result<Session, ApiError> {
        match self {
            Self::Idle(session) => Ok(session),
            Self::Busy(task) => task.await.map_err(|e| ApiError::task_failed(&e))?,
        }
    }
}

async fn finish(
    app: &App,
    session: Session,
    layout: Layout,
    name: &Repository,
    digest: Digest,
) -> Result<Response, ApiError> {
    let uploads = app.uploads();
    blocking(move || uploads.finish(session, &layout, &digest)).await?;
    Ok(created(name, &digest))
}

async fn mounted(
    app: &App,
    name: &Repository,
    digest: Digest,
    from: Option<&str>,
) -> Result<bool, ApiError> {
    // A source that cannot exist is a source that does not have the blob.
    let from = match from.map(str::parse::<Repository>) {
        Some(Ok(from)) => Some(from),
        Some(Err(_)) => return Ok(false),
        None => None,
    };
    let (store, name) = (app.store(), name.clone());
    blocking(move || {
        let source = match from {
            Some(from) => store.find(&from)?,
            None => store.holder(&digest)?,
        };
        match source {
            Some(source) if source.blob_size(&digest)?.is_some() => {
                Ok::<_, ApiError>(store.create(&name)?.mount_blob(&digest, &source)?)
            }
            _ => Ok(false),
        }
    })
    .await
}

async fn existing(app: &App, name: &Repository) -> Result<Layout, ApiError> {
    let (store, name) = (app.store(), name.clone());
    blocking(move || store.existing(&name)).await
}

/// Takes a session over. A client whose line was cut comes back before the server has noticed
/// that the old request is dead, so a busy session is waited for a little.
async fn open(app: &App, layout: &Layout, id: &UploadId) -> Result<Session, ApiError> {
    const TRIES: u32 = 20;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
    for _ in 1..TRIES {
        match try_open(app, layout, id).await {
            Err(error) if error.code() == Code::UploadBusy => tokio::time::sleep(PAUSE).await,
            other => return other,
        }
    }
    try_open(app, layout, id).await
}

async fn try_open(app: &App, layout: &Layout, id: &UploadId) -> Result<Session, ApiError> {
    let (uploads, layout, id) = (app.uploads(), layout.clone(), id.clone());
    blocking(move || uploads.open(&layout, &id)).await
}

async fn cancel(app: &App, layout: Layout, id: UploadId) -> Result<(), ApiError> {
    let uploads = app.uploads();
    blocking(move || uploads.cancel(uploads.open(&layout, &id)?)).await
}

fn digest_parameter(text: &str) -> Result<Digest, ApiError> {
    text.parse().map_err(|e| ApiError::new(Code::DigestInvalid, format!("{e}")))
}

fn created(name: &Repository, digest: &Digest) -> Response {
    Reply::new(StatusCode::CREATED)
        .text(header::LOCATION, &format!("/v2/{name}/blobs/{digest}"))
        .digest(digest)
        .empty()
}

fn session_reply(status: StatusCode, name: &Repository, id: &UploadId, size: u64) -> Reply {
    Reply::new(status)
        .text(header::LOCATION, &upload_path(name, id))
        .text(header::RANGE, &progress_range(size))
        .text(super::respond::UPLOAD_UUID, id.as_str())
}

fn upload_path(name: &Repository, id: &UploadId) -> String {
    format!("/v2/{name}/blobs/uploads/{}", id.as_str())
}

/// Inclusive at both ends, so nothing at all cannot be said; `0-0` is what clients expect then.
fn progress_range(size: u64) -> String {
    format!("0-{}", size.saturating_sub(1))
}

fn text_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("names, ids and digits are plain ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_chunk_may_bring() {
        let bytes = |e, a| allowed(10, e, a, 100).map(|a| a.bytes).map_err(|e| e.code());
        assert_eq!(bytes(None, None), Ok(90));
        assert_eq!(bytes(Some(5), Some(5)), Ok(5));
        assert_eq!(bytes(Some(5), None), Ok(5));
        assert_eq!(bytes(Some(5), Some(6)), Err(Code::SizeInvalid));
        assert_eq!(bytes(None, Some(91)), Err(Code::TooLarge));
        assert_eq!(bytes(Some(91), None), Err(Code::TooLarge));
        assert_eq!(bytes(None, Some(u64::MAX)), Err(Code::TooLarge));
    }

    #[test]
    fn chunk_ranges_of_both_kinds() {
        assert_eq!(chunk_range("0-9"), Some((0, 9)));
        assert_eq!(chunk_range("bytes 0-9/*"), Some((0, 9)));
        assert_eq!(chunk_range("bytes 5-9/10"), Some((5, 9)));
        for bad in ["", "9-0", "a-b", "-1-5", "0-99999999999999999999"] {
            assert_eq!(chunk_range(bad), None, "{bad}");
        }
    }
}
