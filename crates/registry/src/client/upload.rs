//! Uploading a blob: whole in one request where that works, in pieces where it must, taken up again
//! where it broke.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use ::http::Method;
use ::http::header::{CONTENT_RANGE, CONTENT_TYPE};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use portolan_core::Descriptor;
use url::Url;

use super::Remote;
use super::blobs::may_be;
use super::error::{ClientError, Failure};
use super::http::{Access, Answer, Call, Payload, Progress, refuse_downgrade};
use super::retry::Retries;
use super::source::{BlobSource, SourceStream};
use super::step::Step;
use crate::headers::{parse_upload_range, resolve_location};

/// Blobs up to this size (configurations, artifacts) are tried in a single request.
const SINGLE_POST: u64 = 64 * 1024;
/// The size of pieces when a registry refuses the whole as too large and nothing is set.
const DEFAULT_CHUNK: u64 = 32 * 1024 * 1024;
/// So much progress since the last cut makes the count of retries begin again.
const PROGRESS: u64 = 1024 * 1024;
/// The answers here have no body worth reading.
const MAX_BODY: usize = 64 * 1024;

/// How a blob came to be in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// It was there.
    Present,
    /// The registry took it over from another repository.
    Mounted,
    /// Its bytes were sent.
    Uploaded,
}

/// A source, and the stream opened last, which the next piece continues.
pub(super) struct Feed<'a> {
    source: &'a dyn BlobSource,
    idle: Arc<Mutex<Option<Open>>>,
    error: Arc<Mutex<Option<io::Error>>>,
}

struct Open {
    stream: SourceStream,
    /// Read from the stream and not yet sent.
    rest: Bytes,
    at: u64,
}

impl fmt::Debug for Feed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

impl<'a> Feed<'a> {
    fn new(source: &'a dyn BlobSource) -> Self {
        Self { source, idle: Arc::default(), error: Arc::default() }
    }

    /// A body of `length` bytes from `offset`. It reports its progress, keeps the source's error for
    /// [`Feed::take_error`], and ends with an error when the source is shorter.
    pub(super) async fn body(
        &self,
        offset: u64,
        length: u64,
        progress: Progress,
    ) -> io::Result<reqwest::Body> {
        let kept = self.idle.lock().expect("no panic while the lock is held").take();
        let open = match kept.filter(|open| open.at == offset) {
            Some(open) => open,
            None => {
                Open { stream: self.source.open(offset).await?, rest: Bytes::new(), at: offset }
            }
        };
        let (idle, error) = (self.idle.clone(), self.error.clone());
        let state = (length > 0).then_some((open, length));
        let pieces = stream::unfold(state, move |state| {
            let (idle, error, progress) = (idle.clone(), error.clone(), progress.clone());
            async move {
                let (mut open, left) = state?;
                progress.set_starved(true);
                let piece = open.next(left).await;
                progress.set_starved(false);
                match piece {
                    Ok(piece) => {
                        progress.add(piece.len() as u64);
                        let left = left - piece.len() as u64;
                        if left == 0 {
                            // HTTP stops asking after the last byte, so keep the stream now.
                            *idle.lock().expect("no panic while the lock is held") = Some(open);
                            return Some((Ok(piece), None));
                        }
                        Some((Ok(piece), Some((open, left))))
                    }
                    Err(failed) => {
                        let told = io::Error::new(failed.kind(), "the source failed");
                        *error.lock().expect("no panic while the lock is held") = Some(failed);
                        Some((Err(told), None))
                    }
                }
            }
        });
        Ok(reqwest::Body::wrap_stream(pieces))
    }

    /// Why the source failed, if it did.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.error.lock().expect("no panic while the lock is held").take()
    }
}

impl Open {
    /// The next bytes, at most `most` and never none.
    async fn next(&mut self, most: u64) -> io::Result<Bytes> {
        while self.rest.is_empty() {
            self.rest = match self.stream.next().await {
                Some(piece) => piece?,
                None => {
                    let text = format!("it ends after {} bytes, {most} are missing", self.at);
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
            };
        }
        let take = usize::try_from(most).unwrap_or(usize::MAX).min(self.rest.len());
        let piece = self.rest.split_to(take);
        self.at += piece.len() as u64;
        Ok(piece)
    }
}

/// An upload that the registry has begun.
#[derive(Debug)]
struct Session {
    location: Url,
    /// How much the registry has.
    offset: u64,
    /// The least it wants per piece.
    min_chunk: u64,
}

enum Begun {
    Done,
    Session(Session),
}

/// Everything one upload needs to know.
struct Job<'a> {
    remote: &'a Remote,
    descriptor: &'a Descriptor,
    feed: Feed<'a>,
    /// The size of pieces; none: the whole at once.
    chunk: Option<u64>,
    session: Option<Session>,
}

impl Remote {
    /// Puts a blob into the repository, unless it is there.
    ///
    /// The bytes go up in one request, or in pieces of `upload_chunk_bytes` where that is set (and of
    /// 32 MiB where the registry finds the whole too large). When the connection breaks, the registry
    /// is asked how much it has and the rest is sent. The registry checks the digest; a source that is
    /// shorter than the descriptor says is an error here.
    pub async fn push_blob(
        &self,
        descriptor: &Descriptor,
        source: &dyn BlobSource,
    ) -> Result<Upload, ClientError> {
        let step = Step::WriteBlob(descriptor.digest);
        // Images that are pushed side by side share layers: whoever comes second finds it there.
        let turn = self.turn("blob", &descriptor.digest);
        let _turn = turn.lock().await;
        let found = self.find_blob(&descriptor.digest, Access::Push).await?;
        if found.is_some_and(|size| may_be(descriptor, size)) {
            return Ok(Upload::Present);
        }
        let gates = self.shared.gates(&self.upstream.host);
        let _permit = gates.uploads.acquire().await.expect("the gates are never closed");
        let chunk = self.shared.settings.host(&self.upstream.host).upload_chunk_bytes;
        let mut job =
            Job { remote: self, descriptor, feed: Feed::new(source), chunk, session: None };
        job.run().await.map_err(|failure| self.upstream.error(&step, failure))?;
        Ok(Upload::Uploaded)
    }
}

impl Job<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let limits = &self.remote.shared.settings.host(&self.remote.upstream.host).limits;
        let mut retries: Option<Retries> = None;
        let mut best = 0;
        loop {
            let failure = match self.proceed().await {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let too_large =
                matches!(failure, Failure::Status { status: 413, .. }) && self.chunk.is_none();
            if too_large && self.descriptor.size > DEFAULT_CHUNK {
                tracing::debug!(blob = %self.descriptor.digest, "too large for one request, going on in pieces");
                self.chunk = Some(DEFAULT_CHUNK);
            } else if !self.may_recover(&failure) {
                return Err(failure);
            }
            let counted = retries.get_or_insert_with(|| Retries::new(limits));
            if !counted.wait(&failure).await {
                return Err(failure.after_attempts(counted.attempts()));
            }
            if self.recover().await? {
                return Ok(());
            }
            let offset = self.session.as_ref().map_or(0, |session| session.offset);
            if offset >= best + PROGRESS {
                best = offset;
                retries = None;
            }
        }
    }

    /// Whether asking the registry for its state, or beginning anew, may help.
    fn may_recover(&self, failure: &Failure) -> bool {
        let lost =
            matches!(failure, Failure::Status { status: 404 | 416, .. }) && self.session.is_some();
        lost || failure.is_transient()
    }

    /// Finds out where the upload stands after a failure; true when the blob is there after all,
    /// since only the answer may have been lost.
    async fn recover(&mut self) -> Result<bool, Failure> {
        let remote = self.remote;
        let found = remote.find_blob_failing(&self.descriptor.digest, Access::Push).await?;
        if found.is_some() {
            return Ok(true);
        }
        let Some(mut session) = self.session.take() else { return Ok(false) };
        let call = Call::new(Method::GET, session.location.clone(), Access::Push);
        let answer = remote.shared.exchange(&remote.upstream, &call, MAX_BODY).await?;
        // 0-0 is either one byte or none; none is the safe reading, a refusal then begins anew.
        let state = answer.header("range").and_then(parse_upload_range).map(|(_, last)| last);
        if answer.is_success()
            && let Some(last) = state
            && last > 0
            && last < self.descriptor.size
        {
            session.offset = last + 1;
            session.location = next_location(&answer, remote, session.location)?;
            self.session = Some(session);
        }
        Ok(false)
    }

    /// Sends what is missing.
    async fn proceed(&mut self) -> Result<(), Failure> {
        if self.session.is_none() {
            match self.begin().await? {
                Begun::Done => return Ok(()),
                Begun::Session(session) => self.session = Some(session),
            }
        }
        loop {
            let session = self.session.as_ref().expect("begun above");
            let (offset, size) = (session.offset, self.descriptor.size);
            let length = piece(offset, size, self.chunk, session.min_chunk);
            if length == size || offset == size {
                return self.finish(size - offset).await;
            }
            self.send_piece(length).await?;
        }
    }

    async fn begin(&mut self) -> Result<Begun, Failure> {
        let remote = self.remote;
        let url = remote.upstream.url("blobs/uploads/");
        let size = self.descriptor.size;
        if size <= SINGLE_POST {
            let mut url = url.clone();
            url.query_pairs_mut().append_pair("digest", &self.descriptor.digest.to_string());
            let call = Call::new(Method::POST, url, Access::Push)
                .header(CONTENT_TYPE, "application/octet-stream")
                .payload(Payload::Blob { feed: &self.feed, offset: 0, length: size });
            let answer = self.exchange_once(&call).await?;
            match answer.status {
                201 => return Ok(Begun::Done),
                202 => return session(&answer, remote).map(Begun::Session),
                // Some registries do not expect a body here; they get the two-step form.
                400 | 405 | 411 | 415 | 501 => {}
                _ => answer.success().map(drop)?,
            }
        }
        let call = Call::new(Method::POST, url, Access::Push);
        let answer = remote.shared.exchange(&remote.upstream, &call, MAX_BODY).await?.success()?;
        session(&answer, remote).map(Begun::Session)
    }

    /// One PATCH.
    async fn send_piece(&mut self, length: u64) -> Result<(), Failure> {
        let remote = self.remote;
        let session = self.session.as_ref().expect("a piece belongs to a session");
        let (offset, location) = (session.offset, session.location.clone());
        let call = Call::new(Method::PATCH, location.clone(), Access::Push)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_RANGE, &format!("{offset}-{}", offset + length - 1))
            .payload(Payload::Blob { feed: &self.feed, offset, length });
        let answer = self.exchange_once(&call).await?.success()?;
        let has = answer
            .header("range")
            .and_then(parse_upload_range)
            .map_or(offset + length, |(_, last)| last + 1);
        if has > offset + length || has <= offset {
            let value = answer.header("range").unwrap_or_default().chars().take(64).collect();
            return Err(Failure::Header {
                name: "Range",
                value,
                problem: "does not fit the piece that was sent",
            });
        }
        let location = next_location(&answer, remote, location)?;
        let session = self.session.as_mut().expect("a piece belongs to a session");
        session.offset = has;
        session.location = location;
        Ok(())
    }

    /// The closing PUT, with the last `length` bytes.
    async fn finish(&mut self, length: u64) -> Result<(), Failure> {
        let session = self.session.as_ref().expect("only a session is finished");
        let mut url = session.location.clone();
        url.query_pairs_mut().append_pair("digest", &self.descriptor.digest.to_string());
        let mut call = Call::new(Method::PUT, url, Access::Push);
        if length > 0 {
            call = call.header(CONTENT_TYPE, "application/octet-stream").payload(Payload::Blob {
                feed: &self.feed,
                offset: session.offset,
                length,
            });
        }
        self.exchange_once(&call).await?.success().map(drop)
    }

    async fn exchange_once(&self, call: &Call<'_>) -> Result<Answer, Failure> {
        let remote = self.remote;
        let limits = &remote.shared.settings.host(&remote.upstream.host).limits;
        remote.shared.exchange_once(&remote.upstream, call, MAX_BODY, limits).await
    }
}

/// How much to send next: the whole when nothing is there yet and no pieces are wanted, else one
/// piece, never smaller than the registry wants unless it is the last.
fn piece(offset: u64, size: u64, chunk: Option<u64>, min_chunk: u64) -> u64 {
    let left = size - offset;
    match chunk {
        Some(chunk) => chunk.max(min_chunk).max(1).min(left),
        None => left,
    }
}

fn session(answer: &Answer, remote: &Remote) -> Result<Session, Failure> {
    let min_chunk = answer
        .header("oci-chunk-min-length")
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    match answer.header("location") {
        Some(_) => Ok(Session {
            location: next_location(answer, remote, answer.url.clone())?,
            offset: 0,
            min_chunk,
        }),
        None => Err(Failure::Header {
            name: "Location",
            value: String::new(),
            problem: "must say where the upload goes on",
        }),
    }
}

/// Where the upload goes on: what the answer says, else where it was.
fn next_location(answer: &Answer, remote: &Remote, before: Url) -> Result<Url, Failure> {
    let Some(location) = answer.header("location") else { return Ok(before) };
    let url = resolve_location(&answer.url, location).map_err(Failure::Location)?;
    refuse_downgrade(&remote.upstream.base, &url)?;
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::BytesSource;

    #[test]
    fn pieces() {
        for (offset, size, chunk, min, expected) in [
            (0, 100, None, 0, 100),
            (40, 100, None, 0, 60),
            (0, 100, Some(30), 0, 30),
            (90, 100, Some(30), 0, 10),
            (0, 100, Some(30), 50, 50),
            (80, 100, Some(30), 50, 20),
            (0, 100, Some(300), 0, 100),
            (0, 0, Some(30), 0, 0),
            (0, 0, None, 0, 0),
        ] {
            assert_eq!(
                piece(offset, size, chunk, min),
                expected,
                "{offset} of {size} by {chunk:?}, at least {min}"
            );
        }
    }

    #[tokio::test]
    async fn a_piece_may_end_inside_what_the_source_gives() {
        let mut open = Open {
            stream: BytesSource(Bytes::from_static(b"0123456789")).open(2).await.unwrap(),
            rest: Bytes::new(),
            at: 2,
        };
        assert_eq!(open.next(3).await.unwrap(), "234");
        assert_eq!(open.next(100).await.unwrap(), "56789");
        assert_eq!(open.at, 10);
        assert_eq!(open.next(1).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
