//! One HTTPS server that is told things or asked for some: a control plane, an API server.
//! Certificate and token are read from files that others renew.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use portolan_registry::durable::{self, DurableError};
use url::Url;

/// A token or a few certificates; more is another file.
const MAX_FILE: u64 = 1024 * 1024;
/// For one call, from connecting to the last byte of the answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// What is read of an answer. A node with many images is some hundred kilobytes.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// What is shown of a refusal.
const MAX_SHOWN: usize = 300;
/// What is kept of one, for who looks at its causes.
const MAX_REFUSAL: usize = 256 * 1024;
/// One line of a stream: an object of Kubernetes has at most 1.5 MiB, written with more words here.
const MAX_LINE: usize = 4 * 1024 * 1024;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: DurableError,
    },
    /// A file is not there or does not hold what it should.
    #[error("{} holds no {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// The connection cannot be set up.
    #[error("cannot set up the connection")]
    Setup(#[source] reqwest::Error),
    /// Nobody answered, or not to the end.
    #[error("{url} did not answer")]
    Transport {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The answer is longer than any that is expected.
    #[error("the answer of {url}, or a line of it, has more than {limit} bytes")]
    TooLarge {
        /// Where.
        url: String,
        /// So many may be.
        limit: usize,
    },
    /// The answer is no.
    #[error("{url} answered {status}: {text}")]
    Refused {
        /// Where.
        url: String,
        /// The status code.
        status: StatusCode,
        /// The beginning of what it said.
        text: String,
        /// More of it, as it came.
        body: Vec<u8>,
    },
    /// The answer is something else than expected.
    #[error("the answer of {url} cannot be read")]
    Malformed {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl EndpointError {
    /// The status code of a refusal.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// A server and how to speak to it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    /// The connections, and the certificates they were made with.
    client: Option<(reqwest::Client, Vec<u8>)>,
}

impl Endpoint {
    pub(crate) fn new(token_file: Option<PathBuf>, ca_file: Option<PathBuf>) -> Self {
        Self { token_file, ca_file, client: None }
    }

    /// One request; the whole answer if it is a success.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        url: &Url,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Bytes, EndpointError> {
        let mut request = self.request(method, url)?;
        if let Some((kind, bytes)) = body {
            request = request.header(header::CONTENT_TYPE, kind).body(bytes);
        }
        let mut response = request.send().await.map_err(|source| broken(url, source))?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|source| broken(url, source))? {
            if bytes.len() + chunk.len() > MAX_ANSWER {
                return Err(EndpointError::TooLarge { url: shown(url), limit: MAX_ANSWER });
            }
            bytes.extend_from_slice(&chunk);
        }
        if status.is_success() { Ok(bytes.into()) } else { Err(refused(url, status, bytes)) }
    }

    /// An answer that comes line by line for at most `lasts`.
    pub(crate) async fn lines(
        &mut self,
        url: &Url,
        lasts: Duration,
    ) -> Result<Lines, EndpointError> {
        let request = self.request(Method::GET, url)?.timeout(lasts);
        let mut response = request.send().await.map_err(|source| broken(url, source))?;
        let status = response.status();
        if status.is_success() {
            return Ok(Lines { url: url.clone(), response, rest: Vec::new() });
        }
        let mut bytes = Vec::new();
        while bytes.len() < MAX_REFUSAL
            && let Ok(Some(chunk)) = response.chunk().await
        {
            bytes.extend_from_slice(&chunk);
        }
        Err(refused(url, status, bytes))
    }

    /// What every request has.
    fn request(
        &mut self,
        method: Method,
        url: &Url,
    ) -> Result<reqwest::RequestBuilder, EndpointError> {
        let client = self.client(url.scheme() == "https")?;
        let request =
            client.request(method, url.clone()).header(header::ACCEPT, "application/json");
        Ok(match self.token()? {
            Some(token) => request.header(header::AUTHORIZATION, token),
            None => request,
        })
    }

    /// The connections; new ones when the certificates changed.
    fn client(&mut self, tls: bool) -> Result<reqwest::Client, EndpointError> {
        let pem = self.ca_file.as_deref().map(read).transpose()?.unwrap_or_default();
        if let Some((client, made_with)) = &self.client
            && *made_with == pem
        {
            return Ok(client.clone());
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("portolan-agent/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .timeout(TIMEOUT)
            .referer(false);
        if !tls {
            // Only this machine is spoken to in the clear, which needs no proxy and none of the
            // system's certificates.
            builder = builder.no_proxy().tls_certs_only([]);
        } else if let Some(path) = &self.ca_file {
            let none = || EndpointError::Content { path: path.clone(), what: "certificates" };
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|_| none())?;
            if certificates.is_empty() {
                return Err(none());
            }
            builder = builder.tls_certs_only(certificates);
        }
        let client = builder.build().map_err(EndpointError::Setup)?;
        self.client = Some((client.clone(), pem));
        Ok(client)
    }

    /// A header that no log shows.
    fn token(&self) -> Result<Option<HeaderValue>, EndpointError> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let none = || EndpointError::Content { path: path.clone(), what: "token" };
        let bytes = read(path)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| none())?.trim();
        if text.is_empty() {
            return Err(none());
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| none())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// An answer that comes line by line.
#[derive(Debug)]
pub(crate) struct Lines {
    url: Url,
    response: reqwest::Response,
    /// The beginning of the next line.
    rest: Vec<u8>,
}

impl Lines {
    /// The next line without its end; none at the end of the answer. Half a line at the end is no line: whoever sent it
    /// was cut off.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, EndpointError> {
        let mut looked = 0;
        loop {
            if let Some(end) = self.rest[looked..].iter().position(|b| *b == b'\n') {
                let mut line: Vec<u8> = self.rest.drain(..=looked + end).collect();
                line.pop();
                return Ok(Some(line));
            }
            looked = self.rest.len();
            if looked > MAX_LINE {
                return Err(EndpointError::TooLarge { url: shown(&self.url), limit: MAX_LINE });
            }
            let chunk = self.response.chunk().await.map_err(|source| broken(&self.url, source))?;
            match chunk {
                Some(chunk) => self.rest.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}

fn broken(url: &Url, source: reqwest::Error) -> EndpointError {
    // The URL is in the message already.
    EndpointError::Transport { url: shown(url), source: source.without_url() }
}

/// A refusal, as it is told.
pub(crate) fn refused(url: &Url, status: StatusCode, mut body: Vec<u8>) -> EndpointError {
    body.truncate(MAX_REFUSAL);
    let text = String::from_utf8_lossy(&body);
    let text = text.chars().take(MAX_SHOWN).map(|c| if c.is_control() { ' ' } else { c });
    EndpointError::Refused { url: shown(url), status, text: text.collect(), body }
}

/// A URL for a message. What people write behind the question mark is often a secret.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    if url.query().is_some() {
        url.set_query(Some("…"));
    }
    url.to_string()
}

fn read(path: &Path) -> Result<Vec<u8>, EndpointError> {
    let bytes = durable::read_bounded(path, MAX_FILE)
        .map_err(|source| EndpointError::File { path: path.to_owned(), source })?;
    bytes.ok_or_else(|| EndpointError::Content {
        path: path.to_owned(),
        what: "text; it is not there",
    })
}
