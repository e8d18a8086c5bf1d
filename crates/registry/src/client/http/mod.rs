//! One HTTP exchange with a registry, done right: authorised, redirected safely, bounded in time,
//! repeated where that helps.

mod connect;
mod redirect;
mod send;
mod stall;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use portolan_core::{Host, Repository};
use url::Url;

pub(super) use self::connect::{Connections, api_url};
pub(super) use self::redirect::refuse_downgrade;
pub(super) use self::send::{connection_failure, judge};
pub(super) use self::stall::Progress;
use super::answer::ErrorBody;
use super::error::Failure;
use super::retry;
use super::upload::Feed;
use crate::headers;

/// Which registry is spoken to, and about which repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// As people call it; settings and credentials are kept under this name.
    pub(super) host: Host,
    /// Where its API is: scheme, host and port, path `/`.
    pub(super) base: Url,
    /// None for calls to the registry itself.
    pub(super) repository: Option<Repository>,
    /// Why `base` could not be made from the host; told when the first call is made.
    pub(super) fault: Option<url::ParseError>,
}

/// What a call wants to do, which is what its token must allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Access {
    /// Only to be let in.
    Registry,
    Pull,
    Push,
    Delete,
    /// Push here, pull there.
    Mount(Repository),
}

/// A request, complete enough to be sent more than once.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) payload: Payload<'a>,
    pub(super) access: Access,
}

/// What a request carries.
#[derive(Clone)]
pub(super) enum Payload<'a> {
    /// No body; a writing method then says `Content-Length: 0`.
    Empty,
    /// A body held in memory.
    Bytes(Bytes),
    /// `length` bytes of a blob from `offset`.
    Blob { feed: &'a Feed<'a>, offset: u64, length: u64 },
}

/// Without the bytes: the form that asks for a token holds the password.
impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Blob { offset, length, .. } => write!(f, "Blob({offset}, {length})"),
        }
    }
}

/// An answer that was read whole.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Where it came from in the end.
    pub(super) url: Url,
    /// Who to log in at, should that help.
    login: String,
}

impl<'a> Call<'a> {
    pub(super) fn new(method: Method, url: Url, access: Access) -> Self {
        Self { method, url, headers: HeaderMap::new(), payload: Payload::Empty, access }
    }

    /// Adds a header whose value we made ourselves or have parsed before.
    #[must_use]
    pub(super) fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = value.parse() {
            self.headers.insert(name, value);
        }
        self
    }

    #[must_use]
    pub(super) fn payload(mut self, payload: Payload<'a>) -> Self {
        self.payload = payload;
        self
    }
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The first header of that name, if it is text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// All headers of that name that are text: a list may be spread over several.
    pub(super) fn all_headers(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
    }

    /// Itself, or the failure that its status means.
    pub(super) fn success(self) -> Result<Self, Failure> {
        if self.is_success() { Ok(self) } else { Err(self.failure()) }
    }

    /// What its status means, when it is no success.
    pub(super) fn failure(&self) -> Failure {
        Failure::Status {
            status: self.status,
            body: ErrorBody::parse(&self.body),
            host: self.login.clone(),
            retry_after: retry_after(&self.headers),
        }
    }
}

impl Access {
    /// The scopes to ask a token server for.
    pub(super) fn scopes(&self, repository: Option<&Repository>) -> Vec<String> {
        let Some(name) = repository else { return Vec::new() };
        let name = name.as_str();
        match self {
            Self::Registry => Vec::new(),
            Self::Pull => vec![format!("repository:{name}:pull")],
            Self::Push => vec![format!("repository:{name}:pull,push")],
            Self::Delete => vec![format!("repository:{name}:delete")],
            Self::Mount(from) => {
                vec![
                    format!("repository:{name}:pull,push"),
                    format!("repository:{}:pull", from.as_str()),
                ]
            }
        }
    }
}

impl Failure {
    /// Whether the same request may succeed later.
    pub(in crate::client) fn is_transient(&self) -> bool {
        match self {
            Self::Status { status, .. } => retry::is_transient(*status),
            Self::Connection { .. }
            | Self::Deadline { .. }
            | Self::Stalled { .. }
            | Self::NoRoom { .. } => true,
            Self::Token { source, .. } => source.is_transient(),
            _ => false,
        }
    }

    /// Whether it ended because nothing came for a whole deadline.
    pub(super) fn is_hang(&self) -> bool {
        match self {
            Self::Deadline { .. } | Self::Stalled { .. } => true,
            Self::Token { source, .. } => source.is_hang(),
            _ => false,
        }
    }

    /// How long the server wants to be left alone.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Token { source, .. } => source.retry_after(),
            _ => None,
        }
    }

    /// Says how often it was tried, where the text has room for it.
    pub(super) fn after_attempts(mut self, number: u32) -> Self {
        if let Self::Connection { attempts, .. }
        | Self::Deadline { attempts, .. }
        | Self::Stalled { attempts, .. } = &mut self
        {
            *attempts = number;
        }
        self
    }
}

pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers::parse_retry_after(header(headers, "retry-after")?, std::time::SystemTime::now())
}

/// `host[:port]` of a URL, for texts and for finding settings.
pub(super) fn authority(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => String::new(),
    }
}
