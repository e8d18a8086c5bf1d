//! What can go wrong in one call, and what to try.

use std::path::PathBuf;
use std::time::Duration;

use portolan_core::Digest;
use portolan_core::manifest::ParseManifestError;
use portolan_core::reference::ParseReferenceError;

use super::answer::ErrorBody;
use super::credentials::CredentialError;
use super::error::ClientError;
use crate::ErrorClass;
use crate::headers::{LocationError, ParseChallengeError};

/// What happened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The registry answered with an error status.
    #[error("the answer is {status}{body}{}", advice(*status, host))]
    Status {
        /// The HTTP status.
        status: u16,
        /// What the registry said about it.
        body: ErrorBody,
        /// Where to log in, should that help.
        host: String,
        /// How long the registry wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// A 2xx answer that the protocol does not allow here.
    #[error("the answer is {status}, which means nothing here; is it a registry?")]
    UnexpectedStatus {
        /// The HTTP status.
        status: u16,
    },
    /// No connection, or it broke.
    #[error("{host} cannot be reached, or the connection broke{}", tried(*attempts))]
    Connection {
        /// Who was called.
        host: String,
        /// How often.
        attempts: u32,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// TLS failed; trying again does not help.
    #[error(
        "TLS with {host} fails; if it has a private CA or speaks plain http, say so in registries.toml (ca, plain_http)"
    )]
    Handshake {
        /// Who was called.
        host: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The answer took too long as a whole.
    #[error("no complete answer within {} s{}; the deadline is `request_timeout` in registries.toml", .limit.as_secs_f32(), tried(*attempts))]
    Deadline {
        /// The deadline.
        limit: Duration,
        /// How often.
        attempts: u32,
    },
    /// Nothing moved.
    #[error("no byte moved for {} s, after {moved} bytes{}; the limit is `stall_timeout` in registries.toml", .limit.as_secs_f32(), tried(*attempts))]
    Stalled {
        /// The limit.
        limit: Duration,
        /// How many bytes had been moved.
        moved: u64,
        /// How often.
        attempts: u32,
    },
    /// The bytes are not what the digest promises.
    #[error(
        "the content has digest {actual}, not {expected}; it was damaged or replaced, nothing of it is kept"
    )]
    Digest {
        /// What was asked for or announced.
        expected: Box<Digest>,
        /// What came.
        actual: Box<Digest>,
    },
    /// Fewer or more bytes than declared.
    #[error("the content has {actual} bytes{}, its descriptor says {expected}", if *.more { " or more" } else { "" })]
    Size {
        /// What the descriptor says.
        expected: u64,
        /// What came, or was announced.
        actual: u64,
        /// Reading stopped there; there may be more.
        more: bool,
    },
    /// A manifest or list beyond the bound.
    #[error("the answer is larger than {limit} bytes, the most that is read here")]
    TooLarge {
        /// The bound.
        limit: usize,
    },
    /// Too much is held already.
    #[error("there is no room for the answer: {limit} bytes of others are being looked at")]
    NoRoom {
        /// The bound.
        limit: usize,
    },
    /// Not a manifest or index.
    #[error("what came is not a manifest or index")]
    Document(#[source] ParseManifestError),
    /// A list that is no JSON of the right shape.
    #[error("what came is not the JSON that the protocol asks for")]
    Json(#[source] serde_json::Error),
    /// A list with something that is no tag.
    #[error("the list holds something that is no tag")]
    Tag(#[source] ParseReferenceError),
    /// A header that cannot be read or contradicts another.
    #[error("the answer's {name} header is {value:?}, which {problem}")]
    Header {
        /// Its name.
        name: &'static str,
        /// Its value, shortened.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A challenge that cannot be read.
    #[error("the answer's WWW-Authenticate header cannot be read")]
    Challenge(#[source] ParseChallengeError),
    /// Only schemes that we do not speak.
    #[error("the registry wants to see {schemes}; Basic and Bearer are spoken here")]
    UnknownScheme {
        /// What it offered.
        schemes: String,
    },
    /// A redirect or upload location that cannot be used.
    #[error("the registry pointed to a place that is not used")]
    Location(#[source] LocationError),
    /// From https to http.
    #[error(
        "{from} redirects to plain http at {to}; refused, since anyone on the way could read and change it"
    )]
    InsecureRedirect {
        /// Who redirects.
        from: String,
        /// Where to.
        to: String,
    },
    /// Round and round.
    #[error("more than {limit} redirects, the last one to {last}")]
    TooManyRedirects {
        /// The bound.
        limit: usize,
        /// The host it went to last.
        last: String,
    },
    /// A token server over plain http for a registry over https.
    #[error(
        "the token server {realm} of an https registry speaks plain http; refused, since credentials and tokens would be readable on the way"
    )]
    InsecureRealm {
        /// The host of the token server.
        realm: String,
    },
    /// A page that continues elsewhere.
    #[error("the list continues at {to}, another host; refused")]
    ForeignPage {
        /// The host of the next page.
        to: String,
    },
    /// A page that the one before names is not there.
    #[error("the list breaks off after {read} pages: the next one is not there; try again")]
    LostPage {
        /// Pages that were there.
        read: usize,
    },
    /// A success that is no list of referrers.
    #[error(
        "what came with success is {media_type:?} and no list of referrers; something that answers everything stands before the registry, or there is no referrers API, to which the answer should be 404"
    )]
    NoReferrers {
        /// What it says it is, shortened.
        media_type: String,
    },
    /// More pages or entries than can be meant.
    #[error("the list does not end after {pages} pages and {entries} entries")]
    EndlessList {
        /// Pages read.
        pages: usize,
        /// Entries read.
        entries: usize,
    },
    /// More entries that do not tell their type than are looked up.
    #[error("more than {limit} entries of the list do not say what they are")]
    UntypedList {
        /// The bound.
        limit: usize,
    },
    /// Credentials cannot be had.
    #[error("the credentials for {host} cannot be read")]
    Credentials {
        /// For whom.
        host: String,
        /// Why.
        #[source]
        source: CredentialError,
    },
    /// The token server gave none.
    #[error("the token server {realm} gives no token")]
    Token {
        /// The host of the token server.
        realm: String,
        /// Why.
        #[source]
        source: Box<Failure>,
    },
    /// A token or password with characters that no header can carry.
    #[error("the token or password holds characters that cannot be sent; log in again")]
    UnusableToken,
    /// The token server's answer has no token.
    #[error("the token server {realm} answered without a token")]
    NoToken {
        /// The host of the token server.
        realm: String,
    },
    /// A file that the settings name cannot be used.
    #[error("{} from registries.toml cannot be used", path.display())]
    CertificateFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up; are CA certificates installed on this machine?")]
    Tls(#[source] reqwest::Error),
    /// What is to be uploaded cannot be read.
    #[error("the content to upload cannot be read")]
    Source(#[source] std::io::Error),
    /// The tag of the referrers list holds something else.
    #[error(
        "the tag {tag} should hold a list of referrers and holds {media_type}; move it away first"
    )]
    NotAReferrersList {
        /// The tag.
        tag: String,
        /// What it holds.
        media_type: String,
    },
    /// Others kept overwriting the list.
    #[error(
        "others changed the referrers list under tag {tag} each of {attempts} times; try again"
    )]
    LostRace {
        /// The tag.
        tag: String,
        /// How often.
        attempts: u32,
    },
    /// A URL could not be put together.
    #[error("{url:?} is not a URL")]
    Url {
        /// The text.
        url: String,
        /// Why.
        #[source]
        source: url::ParseError,
    },
}

impl Failure {
    pub(super) fn digest(expected: Digest, actual: Digest) -> Self {
        Self::Digest { expected: Box::new(expected), actual: Box::new(actual) }
    }

    /// Whether a registry without the referrers API may answer so, which ought to say 404: by a web page,
    /// or by sending who asks to a place that knows nothing of it.
    pub(super) fn may_mean_no_referrers(&self) -> bool {
        match self {
            Self::Status { .. } => {
                !matches!(self.class(), ErrorClass::Denied | ErrorClass::NotFound)
            }
            Self::NoReferrers { .. }
            | Self::InsecureRedirect { .. }
            | Self::TooManyRedirects { .. }
            | Self::Location(_) => true,
            _ => false,
        }
    }

    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Status { status: 404 | 410, .. } => ErrorClass::NotFound,
            Self::Status { status: 401 | 403 | 407, .. }
            | Self::UnknownScheme { .. }
            | Self::NoToken { .. }
            | Self::UnusableToken
            | Self::InsecureRealm { .. } => ErrorClass::Denied,
            Self::Status { status: 408 | 425 | 429 | 500..=599, .. }
            | Self::UnexpectedStatus { .. }
            | Self::Connection { .. }
            | Self::Handshake { .. }
            | Self::Deadline { .. }
            | Self::Stalled { .. }
            | Self::InsecureRedirect { .. }
            | Self::TooManyRedirects { .. }
            // What answers here is not the registry, or not all of it: it says nothing of the image.
            | Self::LostPage { .. }
            | Self::NoReferrers { .. }
            | Self::NoRoom { .. }
            | Self::LostRace { .. } => ErrorClass::Transport,
            Self::Credentials { source, .. } => source.class(),
            Self::Token { source, .. } => source.class(),
            Self::Source(source) => source
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<ClientError>())
                .map_or(ErrorClass::Local, ClientError::class),
            Self::CertificateFile { .. } | Self::Tls(_) => ErrorClass::Local,
            Self::Status { .. }
            | Self::Digest { .. }
            | Self::Size { .. }
            | Self::TooLarge { .. }
            | Self::Document(_)
            | Self::Json(_)
            | Self::Tag(_)
            | Self::Header { .. }
            | Self::Challenge(_)
            | Self::Location(_)
            | Self::ForeignPage { .. }
            | Self::EndlessList { .. }
            | Self::UntypedList { .. }
            | Self::NotAReferrersList { .. }
            | Self::Url { .. } => ErrorClass::BadInput,
        }
    }
}

/// What to try on an error status.
fn advice(status: u16, host: &str) -> String {
    match status {
        401 => format!("; log in with: portolan registry login {host}"),
        403 => format!(
            "; the account has no right to do this; log in as another with: portolan registry login {host}"
        ),
        404 => "; check the name and the tag".to_owned(),
        405 => {
            "; the registry does not allow this, perhaps deletion is turned off there".to_owned()
        }
        413 => "; set `upload_chunk_bytes` for this host in registries.toml".to_owned(),
        429 => "; it limits how often one may ask, wait a while or log in for a higher limit"
            .to_owned(),
        500..=599 => "; the registry is in trouble, try again later".to_owned(),
        _ => String::new(),
    }
}

fn tried(attempts: u32) -> String {
    if attempts > 1 { format!(" (tried {attempts} times)") } else { String::new() }
}
