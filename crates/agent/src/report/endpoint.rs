//! One HTTPS server that reports go to. Certificate and token are read from files that others
//! renew.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use portolan_registry::durable::{self, DurableError};
use url::Url;

/// A token or a few certificates; more is another file.
const MAX_FILE: u64 = 1024 * 1024;
/// For one report, from connecting to the last byte of the answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// What is read of an answer. A node with many images is some hundred kilobytes.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// What is shown of a refusal.
const MAX_SHOWN: usize = 300;

/// Why a report was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
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
    #[error("the answer of {url} has more than {MAX_ANSWER} bytes")]
    TooLarge {
        /// Where.
        url: String,
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

/// A server and how to speak to it.
#[derive(Debug)]
pub(super) struct Endpoint {
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    /// The connections, and the certificates they were made with.
    client: Option<(reqwest::Client, Vec<u8>)>,
}

impl Endpoint {
    pub(super) fn new(token_file: Option<PathBuf>, ca_file: Option<PathBuf>) -> Self {
        Self { token_file, ca_file, client: None }
    }

    /// One request; the whole answer if it is a success.
    pub(super) async fn call(
        &mut self,
        method: Method,
        url: &Url,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Bytes, ReportError> {
        let client = self.client(url.scheme() == "https")?;
        let mut request =
            client.request(method, url.clone()).header(header::ACCEPT, "application/json");
        if let Some(token) = self.token()? {
            request = request.header(header::AUTHORIZATION, token);
        }
        if let Some((kind, bytes)) = body {
            request = request.header(header::CONTENT_TYPE, kind).body(bytes);
        }
        let shown = shown(url);
        let failed = |source: reqwest::Error| ReportError::Transport {
            url: shown.clone(),
            // The URL is in the message already.
            source: source.without_url(),
        };
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if bytes.len() + chunk.len() > MAX_ANSWER {
                return Err(ReportError::TooLarge { url: shown });
            }
            bytes.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return Ok(bytes.into());
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.chars().take(MAX_SHOWN).map(|c| if c.is_control() { ' ' } else { c });
        Err(ReportError::Refused { url: shown, status, text: text.collect() })
    }

    /// The connections; new ones when the certificates changed.
    fn client(&mut self, tls: bool) -> Result<reqwest::Client, ReportError> {
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
            let none = || ReportError::Content { path: path.clone(), what: "certificates" };
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|_| none())?;
            if certificates.is_empty() {
                return Err(none());
            }
            builder = builder.tls_certs_only(certificates);
        }
        let client = builder.build().map_err(ReportError::Setup)?;
        self.client = Some((client.clone(), pem));
        Ok(client)
    }

    /// A header that no log shows.
    fn token(&self) -> Result<Option<HeaderValue>, ReportError> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let none = || ReportError::Content { path: path.clone(), what: "token" };
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

/// A URL for a message. What people write behind the question mark is often a secret.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    if url.query().is_some() {
        url.set_query(Some("…"));
    }
    url.to_string()
}

fn read(path: &Path) -> Result<Vec<u8>, ReportError> {
    let bytes = durable::read_bounded(path, MAX_FILE)
        .map_err(|source| ReportError::File { path: path.to_owned(), source })?;
    bytes.ok_or_else(|| ReportError::Content {
        path: path.to_owned(),
        what: "text; it is not there",
    })
}
