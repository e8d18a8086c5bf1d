//! Downloading a blob: hashed and bounded while it flows, taken up again where the connection broke.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use ::http::{HeaderMap, Method};
use bytes::{Buf as _, Bytes};
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use portolan_core::{Descriptor, Hasher};
use reqwest::Response;
use tokio::sync::OwnedSemaphorePermit;

use super::error::{ClientError, Failure};
use super::http::{Access, Call, Endpoint, authority, connection_failure, header, judge};
use super::retry::Retries;
use super::settings::Limits;
use super::step::Step;
use super::{Remote, Shared};
use crate::ErrorClass;
use crate::headers::{is_strong_etag, parse_content_range};

/// So much progress since the last cut makes the count of retries begin again.
const PROGRESS: u64 = 1024 * 1024;
/// A connection that breaks more often than this is not worth going on with.
const MAX_CUTS: u32 = 100;

/// A blob as it comes, in the pieces in which it comes.
///
/// The stream ends only after exactly the declared number of bytes with exactly the declared digest;
/// anything else is an error, and the last piece is not handed out before the digest matched. A
/// connection that breaks or stands still is taken up again by a Range request.
pub struct BlobStream {
    descriptor: Descriptor,
    inner: BoxStream<'static, Result<Bytes, ClientError>>,
}

impl BlobStream {
    /// What is being read.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }
}

impl Stream for BlobStream {
    type Item = Result<Bytes, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.poll_next_unpin(context)
    }
}

impl fmt::Debug for BlobStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobStream")
            .field("digest", &self.descriptor.digest)
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// Reads a blob. It waits its turn when `max_concurrency` others are being read from this
    /// registry; the turn ends with the stream, so read it or drop it.
    pub async fn blob(&self, descriptor: &Descriptor) -> Result<BlobStream, ClientError> {
        let check = Check::Hashing(Box::new(Hasher::new(descriptor.digest.algorithm())));
        self.download(descriptor, check).await
    }

    /// Reads a blob for a caller that hashes the bytes itself, so that it is done once: the size is
    /// enforced here, the digest is not. Never to be handed out of this crate.
    pub(crate) async fn blob_unhashed(
        &self,
        descriptor: &Descriptor,
    ) -> Result<BlobStream, ClientError> {
        self.download(descriptor, Check::Counting).await
    }

    async fn download(
        &self,
        descriptor: &Descriptor,
        check: Check,
    ) -> Result<BlobStream, ClientError> {
        let gates = self.shared.gates(&self.upstream.host);
        let permit =
            gates.downloads.clone().acquire_owned().await.expect("the gates are never closed");
        let mut download = Download {
            shared: self.shared.clone(),
            sources: self.blob_sources(),
            descriptor: descriptor.clone(),
            step: Step::ReadBlob(descriptor.digest),
            check,
            received: 0,
            flow: None,
            etag: None,
            retries: None,
            counted_at: 0,
            cuts: 0,
            _permit: permit,
        };
        download.open().await?;
        let inner = stream::unfold(Some(download), |state| async move {
            let mut download = state?;
            match download.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(download))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(BlobStream { descriptor: descriptor.clone(), inner: inner.boxed() })
    }
}

struct Download {
    shared: Arc<Shared>,
    /// Who to ask, the first one now; those that failed are removed.
    sources: Vec<Endpoint>,
    descriptor: Descriptor,
    step: Step,
    check: Check,
    received: u64,
    flow: Option<Flow>,
    /// Of the first answer: the rest must come from the same content.
    etag: Option<String>,
    retries: Option<Retries>,
    /// Where the current count of retries began.
    counted_at: u64,
    cuts: u32,
    _permit: OwnedSemaphorePermit,
}

/// How the bytes are held to their descriptor.
enum Check {
    /// Size and digest.
    Hashing(Box<Hasher>),
    /// Size alone; who reads them hashes them.
    Counting,
    /// All bytes came and passed.
    Passed,
}

/// An answer whose body is being read.
struct Flow {
    response: Response,
    /// Bytes at its beginning that we have already.
    skip: u64,
    /// Its end is the end of the content for certain, not perhaps of the connection.
    ends_surely: bool,
}

/// The next piece of an answer; from a server that sends nothing for so long none will come.
pub(super) async fn piece(
    response: &mut Response,
    limit: Duration,
    moved: u64,
) -> Result<Option<Bytes>, Failure> {
    match tokio::time::timeout(limit, response.chunk()).await {
        Ok(Ok(piece)) => Ok(piece),
        Ok(Err(error)) => Err(connection_failure(&authority(response.url()), error)),
        Err(_) => Err(Failure::Stalled { limit, moved, attempts: 1 }),
    }
}

/// Takes away what is known already, as far as it is in this piece.
pub(super) fn skip(bytes: &mut Bytes, known: &mut u64) {
    let here = usize::try_from(*known).unwrap_or(usize::MAX).min(bytes.len());
    *known -= here as u64;
    bytes.advance(here);
}

/// The same call for what comes after `received` bytes, of the content that the validator is of.
pub(super) fn of_the_rest<'a>(call: Call<'a>, received: u64, validator: Option<&str>) -> Call<'a> {
    let call = call.header(RANGE, &format!("bytes={received}-"));
    match validator {
        Some(validator) => call.header(IF_RANGE, validator),
        None => call,
    }
}

/// Whether the rest may be asked for after a failure: it may pass, or the body ended early.
pub(super) fn may_go_on(failure: &Failure, received: u64, cuts: u32) -> bool {
    let short = matches!(failure, Failure::Size { more: false, .. }) && received > 0;
    (failure.is_transient() || short) && cuts < MAX_CUTS
}

impl Download {
    async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let Some(flow) = &mut self.flow else {
                self.open().await?;
                continue;
            };
            let limit = self.shared.settings.host(&self.sources[0].host).limits.stall_timeout;
            let failure = match piece(&mut flow.response, limit, self.received).await {
                Ok(Some(bytes)) => {
                    match self.take(bytes).map_err(|failure| self.error(failure))? {
                        Some(bytes) => return Ok(Some(bytes)),
                        None => continue,
                    }
                }
                Ok(None) if self.received < self.descriptor.size => {
                    let ends_surely = flow.ends_surely;
                    let short = self.size_failure(self.received, false);
                    if ends_surely {
                        return Err(self.error(short));
                    }
                    short
                }
                Ok(None) => return self.finish().map_err(|failure| self.error(failure)),
                // All is there and checked; how the connection ends does not matter.
                Err(_) if matches!(self.check, Check::Passed) => return Ok(None),
                Err(failure) => failure,
            };
            self.flow = None;
            self.cut(failure).await?;
        }
    }

    /// Takes a piece in; none when all of it was known already.
    fn take(&mut self, mut bytes: Bytes) -> Result<Option<Bytes>, Failure> {
        let flow = self.flow.as_mut().expect("pieces come from a flow");
        skip(&mut bytes, &mut flow.skip);
        if bytes.is_empty() {
            return Ok(None);
        }
        let after = self.received + bytes.len() as u64;
        match &mut self.check {
            _ if after > self.descriptor.size => return Err(self.size_failure(after, true)),
            Check::Hashing(hasher) => hasher.update(&bytes),
            Check::Counting | Check::Passed => {}
        }
        self.received = after;
        if after == self.descriptor.size {
            self.finish()?;
        }
        Ok(Some(bytes))
    }

    /// Compares the digest, once.
    fn finish(&mut self) -> Result<Option<Bytes>, Failure> {
        if let Check::Hashing(hasher) = std::mem::replace(&mut self.check, Check::Passed) {
            let actual = hasher.finish();
            if actual != self.descriptor.digest {
                return Err(Failure::digest(self.descriptor.digest, actual));
            }
        }
        Ok(None)
    }

    /// Opens the body at the next byte that is missing, from the first source that gives it.
    async fn open(&mut self) -> Result<(), ClientError> {
        while self.flow.is_none() {
            match self.open_once().await {
                Ok(flow) => self.flow = Some(flow),
                Err(failure) => self.cut(failure).await?,
            }
        }
        Ok(())
    }

    async fn open_once(&mut self) -> Result<Flow, Failure> {
        let endpoint = &self.sources[0];
        let limits = &self.shared.settings.host(&endpoint.host).limits;
        let url = endpoint.url(&format!("blobs/{}", self.descriptor.digest));
        // A proxy that compresses would change what the digest is of.
        let mut call =
            Call::new(Method::GET, url, Access::Pull).header(ACCEPT_ENCODING, "identity");
        if self.received > 0 {
            call = of_the_rest(call, self.received, self.etag.as_deref());
        }
        let response = self.shared.attempt(endpoint, &call).await?;
        let response = judge(response, endpoint, limits).await?;
        let skip = already_known(
            response.status().as_u16(),
            response.headers(),
            self.received,
            self.descriptor.size,
        )?;
        if self.received == 0 {
            self.etag = header(response.headers(), "etag")
                .filter(|etag| is_strong_etag(etag))
                .map(str::to_owned);
        }
        let ends_surely = header(response.headers(), "transfer-encoding").is_some()
            && response.status().as_u16() == 200;
        Ok(Flow { response, skip, ends_surely })
    }

    /// After a failure: waits for the next attempt, or goes to the next source, or gives up.
    async fn cut(&mut self, failure: Failure) -> Result<(), ClientError> {
        self.cuts += 1;
        if self.received >= self.counted_at + PROGRESS {
            self.counted_at = self.received;
            self.retries = None;
        }
        let repeat = may_go_on(&failure, self.received, self.cuts);
        let limits: &Limits = &self.shared.settings.host(&self.sources[0].host).limits;
        let retries = self.retries.get_or_insert_with(|| Retries::new(limits));
        if repeat && retries.wait(&failure).await {
            return Ok(());
        }
        let failure = failure.after_attempts(retries.attempts());
        // What broke a rule is told at once, also of a mirror; trouble sends us to the next source.
        if self.sources.len() > 1 && failure.class() != ErrorClass::BadInput {
            tracing::debug!(mirror = %self.sources[0].host.as_str(), %failure, "asking the next source");
            self.sources.remove(0);
            self.retries = None;
            self.etag = None;
            return Ok(());
        }
        Err(self.error(failure))
    }

    fn size_failure(&self, actual: u64, more: bool) -> Failure {
        Failure::Size { expected: self.descriptor.size, actual, more }
    }

    fn error(&self, failure: Failure) -> ClientError {
        self.sources[0].error(&self.step, failure)
    }
}

/// How many bytes at the beginning of an answer's body we have already, or why the answer cannot be used.
fn already_known(
    status: u16,
    headers: &HeaderMap,
    received: u64,
    size: u64,
) -> Result<u64, Failure> {
    let bad = |name, problem| {
        let value = header(headers, name).unwrap_or_default().chars().take(120).collect();
        Err(Failure::Header { name, value, problem })
    };
    if header(headers, "content-encoding")
        .is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"))
    {
        return bad("Content-Encoding", "changes the bytes that the digest is of");
    }
    let length: Option<u64> = match header(headers, "content-length") {
        Some(text) => match text.trim().parse() {
            Ok(length) => Some(length),
            Err(_) => return bad("Content-Length", "is not a number"),
        },
        None => None,
    };
    match status {
        200 if length.is_some_and(|length| length != size) => {
            Err(Failure::Size { expected: size, actual: length.unwrap_or_default(), more: false })
        }
        200 => Ok(received),
        206 if received > 0 => {
            let Some(range) = header(headers, "content-range").and_then(parse_content_range) else {
                return bad("Content-Range", "cannot be read");
            };
            let fits = range.first <= received
                && range.last >= received
                && range.last < size
                && range.size.is_none_or(|whole| whole == size)
                && length.is_none_or(|length| length == range.last - range.first + 1);
            if fits {
                Ok(received - range.first)
            } else {
                bad("Content-Range", "is not the range that was asked for")
            }
        }
        status => Err(Failure::UnexpectedStatus { status }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_answers() {
        let head = |status, pairs: &[(&'static str, &str)], received| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            already_known(status, &headers, received, 100).map_err(|failure| failure.to_string())
        };
        assert_eq!(head(200, &[], 0), Ok(0));
        assert_eq!(head(200, &[("content-length", "100")], 0), Ok(0));
        assert_eq!(head(200, &[("content-length", "100")], 40), Ok(40), "the whole again");
        assert_eq!(head(206, &[("content-range", "bytes 40-99/100")], 40), Ok(0));
        assert_eq!(
            head(206, &[("content-range", "bytes 40-59/*"), ("content-length", "20")], 40),
            Ok(0)
        );
        assert_eq!(head(206, &[("content-range", "bytes 30-99/100")], 40), Ok(10), "began earlier");
        for (status, pairs, received, expected) in [
            (200, vec![("content-length", "99")], 0, "99 bytes"),
            (200, vec![("content-length", "101")], 0, "101 bytes"),
            (200, vec![("content-length", "-1")], 0, "not a number"),
            (200, vec![("content-encoding", "gzip")], 0, "Content-Encoding"),
            (206, vec![("content-range", "bytes 0-99/100")], 0, "206"),
            (206, vec![("content-range", "bytes 41-99/100")], 40, "not the range"),
            (206, vec![("content-range", "bytes 40-99/200")], 40, "not the range"),
            (206, vec![("content-range", "bytes 40-199/*")], 40, "not the range"),
            (
                206,
                vec![("content-range", "bytes 40-99/100"), ("content-length", "5")],
                40,
                "not the range",
            ),
            (206, vec![], 40, "cannot be read"),
            (204, vec![], 0, "204"),
        ] {
            let error = head(status, &pairs, received).unwrap_err();
            assert!(error.contains(expected), "{status} {pairs:?}: {error}");
        }
    }
}
