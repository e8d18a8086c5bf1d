//! A file behind any URL: no digest is known before, no registry is spoken to. Redirects, TLS, deadlines,
//! repetition and ranges are those of blobs.

use std::fmt;
use std::sync::Arc;

use ::http::Method;
use ::http::header::ACCEPT_ENCODING;
use bytes::Bytes;
use reqwest::Response;
use url::Url;

use super::download::{may_go_on, of_the_rest, piece, skip};
use super::error::Failure;
use super::http::{Access, Call, Endpoint, authority, header, judge};
use super::retry::Retries;
use super::settings::Limits;
use super::{Client, Shared};
use crate::headers::{LocationError, is_strong_etag, parse_content_range};

/// A file as it comes.
pub struct FileDownload {
    shared: Arc<Shared>,
    endpoint: Endpoint,
    url: Url,
    limit: u64,
    /// The end is checked by whoever reads: the rest may be taken from any answer.
    pinned: bool,
    received: u64,
    flow: Option<Flow>,
    /// What the first answer calls its content: the rest must be of the same.
    validator: Option<String>,
    retries: Retries,
    cuts: u32,
}

/// An answer whose body is being read.
struct Flow {
    response: Response,
    /// Bytes at its beginning that we have already.
    skip: u64,
    /// How long the whole file is, where the answer says so.
    whole: Option<u64>,
}

/// What comes next of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum FilePiece {
    /// These bytes.
    Bytes(Bytes),
    /// The file begins again: what came so far may be of another one and is to be forgotten.
    Again,
}

impl Client {
    /// The file at `url`, of at most `limit` bytes. Nothing is sent yet.
    ///
    /// `pinned`: the reader knows the digest and checks it, so that after a cut the rest may be
    /// asked for although the server does not tell one content from another.
    pub fn file(&self, url: &Url, limit: u64, pinned: bool) -> Result<FileDownload, Failure> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Failure::Location(LocationError::Scheme(url.scheme().to_owned())));
        }
        let host = authority(url)
            .parse()
            .map_err(|_| Failure::Location(LocationError::Malformed(authority(url))))?;
        let endpoint = Endpoint { host, base: url.clone(), repository: None, fault: None };
        let retries = Retries::new(&self.0.settings.host(&endpoint.host).limits);
        Ok(FileDownload {
            shared: self.0.clone(),
            endpoint,
            url: url.clone(),
            limit,
            pinned,
            received: 0,
            flow: None,
            validator: None,
            retries,
            cuts: 0,
        })
    }
}

impl FileDownload {
    /// The next piece, none at the end.
    pub async fn next(&mut self) -> Result<Option<FilePiece>, Failure> {
        loop {
            let Some(flow) = &mut self.flow else {
                match self.open().await {
                    Ok(Some(again)) => return Ok(Some(again)),
                    Ok(None) => {}
                    Err(failure) => self.cut(failure).await?,
                }
                continue;
            };
            let limit = self.shared.settings.host(&self.endpoint.host).limits.stall_timeout;
            let failure = match piece(&mut flow.response, limit, self.received).await {
                Ok(Some(bytes)) => match self.take(bytes)? {
                    Some(bytes) => return Ok(Some(FilePiece::Bytes(bytes))),
                    None => continue,
                },
                Ok(None) => match flow.whole {
                    Some(whole) if whole != self.received => {
                        Failure::Size { expected: whole, actual: self.received, more: false }
                    }
                    _ => return Ok(None),
                },
                Err(failure) => failure,
            };
            self.flow = None;
            self.cut(failure).await?;
        }
    }

    fn take(&mut self, mut bytes: Bytes) -> Result<Option<Bytes>, Failure> {
        let flow = self.flow.as_mut().expect("pieces come from a flow");
        skip(&mut bytes, &mut flow.skip);
        self.received += bytes.len() as u64;
        if self.received > self.limit {
            return Err(self.too_large());
        }
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    fn too_large(&self) -> Failure {
        Failure::TooLarge { limit: usize::try_from(self.limit).unwrap_or(usize::MAX) }
    }

    /// Asks for what is missing.
    async fn open(&mut self) -> Result<Option<FilePiece>, Failure> {
        let limits: &Limits = &self.shared.settings.host(&self.endpoint.host).limits;
        // A proxy that compresses would change what is hashed.
        let mut call = Call::new(Method::GET, self.url.clone(), Access::Registry)
            .header(ACCEPT_ENCODING, "identity");
        let resuming = self.received > 0 && (self.pinned || self.validator.is_some());
        if resuming {
            call = of_the_rest(call, self.received, self.validator.as_deref());
        }
        let response = self.shared.follow(&self.endpoint, &call, None).await?;
        let response = judge(response, &self.endpoint, limits).await?;
        let mut answered = read_head(&response, self.received, resuming)?;
        if answered.whole.is_some_and(|whole| whole > self.limit) {
            return Err(self.too_large());
        }
        let again = answered.begins_again;
        if self.received == 0 || again {
            self.validator = validator(&response);
            answered.skip = 0;
            self.received = 0;
        }
        self.flow = Some(Flow { response, skip: answered.skip, whole: answered.whole });
        Ok(again.then_some(FilePiece::Again))
    }

    /// After a failure: waits for the next attempt, or gives up.
    async fn cut(&mut self, failure: Failure) -> Result<(), Failure> {
        self.cuts += 1;
        if may_go_on(&failure, self.received, self.cuts) && self.retries.wait(&failure).await {
            return Ok(());
        }
        Err(failure.after_attempts(self.retries.attempts()))
    }
}

/// What the head of an answer says of its body.
#[derive(Debug, PartialEq, Eq)]
struct Answered {
    skip: u64,
    whole: Option<u64>,
    begins_again: bool,
}

fn read_head(response: &Response, received: u64, resuming: bool) -> Result<Answered, Failure> {
    let headers = response.headers();
    let bad = |name, problem| {
        let value = header(headers, name).unwrap_or_default().chars().take(120).collect();
        Err(Failure::Header { name, value, problem })
    };
    if header(headers, "content-encoding").is_some_and(|c| !c.eq_ignore_ascii_case("identity")) {
        return bad("Content-Encoding", "changes the bytes that the digest is of");
    }
    let length = header(headers, "content-length").and_then(|text| text.trim().parse().ok());
    match response.status().as_u16() {
        200 => Ok(Answered { skip: 0, whole: length, begins_again: received > 0 }),
        206 if resuming => {
            let range = header(headers, "content-range").and_then(parse_content_range);
            match range {
                Some(range) if range.first <= received && range.last >= received => Ok(Answered {
                    skip: received - range.first,
                    whole: Some(range.size.unwrap_or(range.last + 1)),
                    begins_again: false,
                }),
                Some(_) => bad("Content-Range", "is not the range that was asked for"),
                None => bad("Content-Range", "cannot be read"),
            }
        }
        status => Err(Failure::UnexpectedStatus { status }),
    }
}

/// What `If-Range` may be asked with: a strong tag, or a date.
fn validator(response: &Response) -> Option<String> {
    let headers = response.headers();
    let etag = header(headers, "etag").filter(|etag| is_strong_etag(etag));
    etag.or_else(|| header(headers, "last-modified")).map(str::to_owned)
}

impl fmt::Debug for FileDownload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDownload").field("received", &self.received).finish_non_exhaustive()
    }
}
