//! A URL to a file whose digest is known, before anything looks into it.
//!
//! Bytes are hashed while they are written to a file that only its owner may read. A digest that was
//! given is compared before the file is handed over; one that does not match removes the file.

mod location;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_core::{Algorithm, Digest, Hasher};
use portolan_registry::ErrorClass;
use portolan_registry::client::{
    Client, ClientError, CredentialStore, Failure, FilePiece, Settings,
};
use portolan_registry::durable::{DurableError, TempFile};

pub use location::Location;

use crate::node::disk::unname;
use crate::report::Reason;

/// More than any shim's archive has: the largest known is below 100 MB.
pub const MAX_BYTES: u64 = 1 << 30;
/// For everything together, waits included.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// How to fetch.
#[derive(Debug, Clone)]
pub struct Transport {
    /// More bytes than this are refused.
    pub max_bytes: u64,
    /// For everything together.
    pub timeout: Duration,
    /// Without a single byte.
    pub stall: Duration,
    /// How often it is tried again.
    pub retries: u32,
    /// Before it is tried the first time again; each further wait is twice as long.
    pub first_wait: Duration,
    /// Whom to trust beside the system.
    pub ca: Option<PathBuf>,
}

impl Default for Transport {
    fn default() -> Self {
        let stall = Duration::from_secs(30);
        let first_wait = Duration::from_millis(250);
        Self { max_bytes: MAX_BYTES, timeout: TIMEOUT, stall, retries: 4, first_wait, ca: None }
    }
}

/// What was fetched.
#[derive(Debug)]
pub struct Fetched {
    /// The bytes, gone when this is dropped.
    pub file: TempFile,
    /// What they hash to.
    pub digest: Digest,
    /// How many.
    pub bytes: u64,
    /// What deserves a look.
    pub warnings: Vec<String>,
}

/// Why nothing was fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No http or https URL, or policy says no.
    #[error("{location} is not fetched: {why}")]
    NotAllowed {
        /// Where, without what may be secret in it.
        location: String,
        /// Why not.
        why: &'static str,
    },
    /// No digest, and policy asks for one.
    #[error(
        "no sha256 is given for {location}, and policy asks for one; `portolan shim pin` fills it in"
    )]
    DigestRequired {
        /// Where.
        location: String,
    },
    /// The client cannot be made.
    #[error("the HTTP client cannot be made")]
    Client(#[source] ClientError),
    /// The server's no.
    #[error("{location} answers {status}{}", advice(*status))]
    Status {
        /// Where.
        location: String,
        /// The HTTP status.
        status: u16,
    },
    /// More than allowed.
    #[error("{location} has more than {limit} bytes; if it is right, raise --max-bytes")]
    TooLarge {
        /// Where.
        location: String,
        /// The bound.
        limit: u64,
    },
    /// Another file than was asked for.
    #[error(
        "{location} has SHA-256 {actual}, not {expected}: it was replaced or damaged; nothing of it is kept"
    )]
    Digest {
        /// Where.
        location: String,
        /// As asked for.
        expected: String,
        /// As it came.
        actual: String,
    },
    /// Not within the time.
    #[error("{location} was not fetched within {} s; give more by --timeout", limit.as_secs())]
    Deadline {
        /// Where.
        location: String,
        /// The time.
        limit: Duration,
    },
    /// It stands still.
    #[error("{location} stands still: no byte for {} s", limit.as_secs())]
    Stalled {
        /// Where.
        location: String,
        /// So long.
        limit: Duration,
    },
    /// Nobody there, TLS, redirects that lead nowhere.
    #[error("{location} cannot be fetched: {what}")]
    Transfer {
        /// Where.
        location: String,
        /// What happened.
        what: &'static str,
        /// What would happen again.
        permanent: bool,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// This machine's disk.
    #[error("what was fetched cannot be kept")]
    Disk(#[from] DurableError),
}

fn advice(status: u16) -> &'static str {
    match status {
        401 | 403 => "; it is fetched without a login, so it must be public",
        404 | 410 => "; is the location right, and is there a file for this architecture?",
        _ => "",
    }
}

impl FetchError {
    /// In the report's words.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotAllowed { .. } => Reason::LocationNotAllowed,
            Self::DigestRequired { .. } => Reason::DigestRequired,
            Self::Status { status: 408 | 425 | 429 | 500..=599, .. } => Reason::DownloadFailed,
            Self::Status { .. } | Self::Transfer { permanent: true, .. } => Reason::NotDownloadable,
            Self::TooLarge { .. } => Reason::TooLarge,
            Self::Digest { .. } => Reason::DigestMismatch,
            Self::Deadline { .. } | Self::Stalled { .. } | Self::Transfer { .. } => {
                Reason::DownloadFailed
            }
            Self::Client(_) => Reason::BadRequest,
            Self::Disk(_) => Reason::HostTrouble,
        }
    }

    /// Whether what was asked for is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { status: 404 | 410, .. })
    }
}

/// Fetches `location` into a file in `temp`.
///
/// # Errors
/// See [`FetchError`].
pub async fn fetch(
    location: &Location,
    transport: &Transport,
    temp: &Path,
) -> Result<Fetched, FetchError> {
    let limit = transport.timeout;
    let late = || FetchError::Deadline { location: location.shown(), limit };
    tokio::time::timeout(limit, download(location, transport, temp)).await.map_err(|_| late())?
}

async fn download(
    location: &Location,
    transport: &Transport,
    temp: &Path,
) -> Result<Fetched, FetchError> {
    let failed = |failure| told(location, transport, failure);
    let client = client(transport).map_err(FetchError::Client)?;
    let pinned = location.digest.is_some();
    let mut from = client.file(&location.url, transport.max_bytes, pinned).map_err(failed)?;
    let mut into = Sink::new(temp)?;
    while let Some(piece) = from.next().await.map_err(failed)? {
        match piece {
            FilePiece::Bytes(bytes) => into.write(&bytes)?,
            FilePiece::Again => into = Sink::new(temp)?,
        }
    }
    let Sink { file, hasher, bytes } = into;
    let digest = hasher.finish();
    if let Some(expected) = location.digest.filter(|expected| *expected != digest) {
        return Err(FetchError::Digest {
            location: location.shown(),
            expected: expected.hex(),
            actual: digest.hex(),
        });
    }
    Ok(Fetched { file, digest, bytes, warnings: location.warnings.clone() })
}

fn client(transport: &Transport) -> Result<Client, ClientError> {
    let mut settings = Settings::default();
    let defaults = settings.defaults_mut();
    defaults.ca.extend(transport.ca.clone());
    defaults.limits.retries = transport.retries;
    defaults.limits.first_wait = transport.first_wait;
    defaults.limits.retry_deadline = transport.timeout;
    defaults.limits.stall_timeout = transport.stall;
    defaults.limits.connect_timeout = defaults.limits.connect_timeout.min(transport.timeout);
    Client::new(settings, CredentialStore::anonymous())
}

/// A file that is hashed while it grows.
struct Sink {
    file: TempFile,
    hasher: Hasher,
    bytes: u64,
}

impl Sink {
    fn new(temp: &Path) -> Result<Self, DurableError> {
        let file = TempFile::create(temp)?;
        file.file()
            .set_permissions(Permissions::from_mode(0o600))
            .map_err(|e| DurableError::io("set the mode of", file.path(), e))?;
        unname(&file)?;
        Ok(Self { file, hasher: Hasher::new(Algorithm::Sha256), bytes: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write(bytes)
    }
}

/// A failure of the client in this operation's words: what it says of registries means nothing here.
fn told(location: &Location, transport: &Transport, failure: Failure) -> FetchError {
    let location = location.shown();
    let permanent = failure.class() != ErrorClass::Transport;
    let transfer =
        |what, source| FetchError::Transfer { location: location.clone(), what, permanent, source };
    match failure {
        Failure::Status { status, .. } | Failure::UnexpectedStatus { status } => {
            FetchError::Status { location, status }
        }
        Failure::TooLarge { .. } => FetchError::TooLarge { location, limit: transport.max_bytes },
        Failure::Stalled { limit, .. } | Failure::Deadline { limit, .. } => {
            FetchError::Stalled { location, limit }
        }
        Failure::Connection { source, .. } => {
            transfer("it cannot be reached, or the connection broke", source.into())
        }
        Failure::Handshake { source, .. } => FetchError::Transfer {
            location: location.clone(),
            what: "TLS fails; a private CA is given by --ca-bundle or PORTOLAN_CA_BUNDLE",
            permanent: true,
            source: source.into(),
        },
        Failure::InsecureRedirect { .. } => FetchError::Transfer {
            location: location.clone(),
            what: "https may not become http",
            permanent: true,
            source: failure.into(),
        },
        failure => transfer("what it answers is not usable", failure.into()),
    }
}
