//! How a registry is set up, and why it cannot be.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::auth::HtpasswdError;
use crate::layout::{GarbageOptions, LayoutError};
use crate::serving::{self, TlsError, TlsFiles};

/// How to run a registry.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory that holds the repositories; made when it is not there.
    pub root: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Serve HTTPS with these files instead of HTTP.
    pub tls: Option<TlsFiles>,
    /// Let in only the users of this htpasswd file (bcrypt). It is read again when it changes.
    pub htpasswd: Option<PathBuf>,
    /// Collect garbage from time to time; none means only on demand.
    pub garbage: Option<GarbageSchedule>,
    /// Bounds on what strangers may ask for.
    pub limits: Limits,
}

impl Config {
    /// Plain HTTP, no passwords, no garbage collection, the usual bounds.
    pub fn new(root: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            root: root.into(),
            listen,
            tls: None,
            htpasswd: None,
            garbage: None,
            limits: Limits::default(),
        }
    }
}

/// When and how to collect garbage.
#[derive(Debug, Clone)]
pub struct GarbageSchedule {
    /// The time between two collections.
    pub every: Duration,
    /// How to collect.
    pub options: GarbageOptions,
}

/// Bounds on what strangers may ask for.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once; more wait to be accepted.
    pub max_connections: usize,
    /// Uploads that move bytes at once; more are told to come back.
    pub max_uploads: usize,
    /// Upload sessions that are begun and not ended.
    pub max_sessions: usize,
    /// The largest blob.
    pub max_blob_bytes: u64,
    /// How long a request's head may take, and how long a connection may wait for its next
    /// request.
    pub header_timeout: Duration,
    /// How long a body may pause in either direction.
    pub idle_timeout: Duration,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long requests under way may go on after shutdown was asked for.
    pub shutdown_timeout: Duration,
    /// An upload session that nobody wrote to for this long is removed.
    pub upload_expiry: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_uploads: 256,
            max_sessions: 10_000,
            max_blob_bytes: 256 * 1024 * 1024 * 1024,
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(30),
            upload_expiry: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl Limits {
    /// Those of them that are about connections.
    pub(super) fn connections(&self) -> serving::Limits {
        serving::Limits {
            max_connections: self.max_connections,
            header_timeout: self.header_timeout,
            head_timeout: self.header_timeout,
            opening_timeout: self.header_timeout,
            idle_timeout: self.idle_timeout,
            handshake_timeout: self.handshake_timeout,
            shutdown_timeout: self.shutdown_timeout,
            ..serving::Limits::default()
        }
    }
}

/// Why a registry cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}; choose another address, or port 0 for a free one")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// The root directory cannot be made.
    #[error("cannot make the registry's root directory")]
    Root(#[source] LayoutError),
    /// TLS cannot be offered.
    #[error("cannot serve HTTPS")]
    Tls(#[from] TlsError),
    /// The password file cannot be used.
    #[error("cannot check passwords")]
    Htpasswd(#[from] HtpasswdError),
}
