//! How to talk to each registry: what `registries.toml` says, or the defaults.
//!
//! The file and every key are described in `docs/registries.md`.

mod file;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_core::{Host, Repository, Target};

use super::room::Room;
use crate::ErrorClass;

/// More than any list of registries needs.
const MAX_FILE: u64 = 1024 * 1024;

/// How to talk to all registries. `Settings::default()` suits public registries and loopback.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    defaults: HostSettings,
    hosts: BTreeMap<Host, HostSettings>,
    room: Option<Room>,
}

/// How to talk to one registry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSettings {
    /// Plain HTTP instead of HTTPS. Not set: plain for loopback hosts, HTTPS for all others.
    pub plain_http: Option<bool>,
    /// PEM files with CA certificates to trust beside the system's.
    pub ca: Vec<PathBuf>,
    /// What to show a registry that wants to see a certificate.
    pub client_certificate: Option<ClientCertificate>,
    /// Accept any certificate. Anyone on the way can then read and change everything but what is
    /// pinned by digest, so a warning is logged.
    pub insecure_skip_verify: bool,
    /// Who is asked first when reading, in this order; the registry itself comes last.
    pub mirrors: Vec<Mirror>,
    /// Deadlines, retries and concurrency.
    pub limits: Limits,
    /// Upload larger blobs in pieces of this size, for registries behind a proxy that bounds
    /// request bodies. Not set: one request per blob.
    pub upload_chunk_bytes: Option<u64>,
    /// Where lists of referrers are.
    pub referrers: ReferrersIn,
}

/// Where a registry has its lists of referrers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReferrersIn {
    /// The referrers API; under tags where a 404 says that there is none.
    #[default]
    Api,
    /// Under tags alone, for a registry that answers by something else than a 404: the API is never
    /// asked.
    Tag,
}

/// A certificate and its key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, followed by its chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Bounds on time, repetition and parallelism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// To set up a connection, TLS included.
    pub connect_timeout: Duration,
    /// Without a single byte moving, in either direction.
    pub stall_timeout: Duration,
    /// For a whole answer that is read at once: manifests, lists, tokens.
    pub request_timeout: Duration,
    /// For one call with all its repetitions and waits (blob bytes that keep flowing not counted).
    pub retry_deadline: Duration,
    /// Before the first repetition; each further wait is twice as long.
    pub first_wait: Duration,
    /// How often a request is repeated after connect errors, 408, 429 and 5xx.
    pub retries: u32,
    /// Blobs downloaded at once from this host; the same number may be uploaded at once.
    pub max_concurrency: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(60),
            retry_deadline: Duration::from_secs(180),
            first_wait: Duration::from_millis(250),
            retries: 4,
            // Six layers at once fill a fast link; more only divide it.
            max_concurrency: 6,
        }
    }
}

/// Another registry that holds copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Where it is. Its own settings (TLS, deadlines) come from its own section.
    pub host: Host,
    /// Put before the repository name: `hub` makes `library/alpine` `hub/library/alpine`.
    pub prefix: Option<Repository>,
    /// What it is asked for.
    pub pull: MirrorPull,
    /// Whether its lists of tags and referrers are believed. A pull-through cache often has
    /// none or old ones, so this is off unless said.
    pub discovery: bool,
}

/// What a mirror is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MirrorPull {
    /// Tags and digests.
    #[default]
    All,
    /// Digests only: a mirror can then be slow to follow a tag, but never wrong.
    Digest,
    /// Tags only.
    Tag,
}

impl MirrorPull {
    /// Whether a mirror set so may be asked for `target`.
    pub fn allows(self, target: &Target) -> bool {
        match (self, target) {
            (Self::All, _) | (Self::Digest, Target::Digest(_)) | (Self::Tag, Target::Tag(_)) => {
                true
            }
            (Self::Digest, Target::Tag(_)) | (Self::Tag, Target::Digest(_)) => false,
        }
    }
}

/// Why `registries.toml` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Far too long.
    #[error("{} has more than {MAX_FILE} bytes, which no list of registries needs", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Not TOML, an unknown key, or a value that cannot be meant; the cause names the line.
    #[error("{} is not a valid registries.toml", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// Keys that contradict each other.
    #[error("{}: {section}: {problem}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// The section.
        section: String,
        /// What is wrong.
        problem: &'static str,
    },
}

impl SettingsError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                ErrorClass::NotFound
            }
            Self::Read { .. } => ErrorClass::Local,
            Self::TooLarge { .. } | Self::Parse { .. } | Self::Contradiction { .. } => {
                ErrorClass::BadInput
            }
        }
    }
}

impl Settings {
    /// Reads the first of `$PORTOLAN_REGISTRIES` (which must then exist),
    /// `$XDG_CONFIG_HOME/portolan/registries.toml` (`~/.config` when that is not set) and
    /// `/etc/portolan/registries.toml`. Without any of them: the defaults.
    pub fn load() -> Result<Self, SettingsError> {
        if let Some(path) = non_empty("PORTOLAN_REGISTRIES") {
            return Self::from_file(&path);
        }
        let config = non_empty("XDG_CONFIG_HOME")
            .or_else(|| non_empty("HOME").map(|home| home.join(".config")));
        let places = config
            .map(|dir| dir.join("portolan/registries.toml"))
            .into_iter()
            .chain([PathBuf::from("/etc/portolan/registries.toml")]);
        for path in places {
            match Self::from_file(&path) {
                Err(error) if error.class() == ErrorClass::NotFound => {}
                result => return result,
            }
        }
        Ok(Self::default())
    }

    /// Reads one file, which must exist.
    pub fn from_file(path: &Path) -> Result<Self, SettingsError> {
        let failed = |source| SettingsError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        // The bound is on what is read: a device or a pipe has no size to ask for.
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_FILE {
            return Err(SettingsError::TooLarge { path: path.to_owned() });
        }
        Self::parse(&text, path)
    }

    /// Reads text. `path` appears in errors, and file names in the text are relative to its directory.
    pub fn parse(text: &str, path: &Path) -> Result<Self, SettingsError> {
        file::parse(text, path)
    }

    /// What holds for one registry: its own section, or the defaults.
    pub fn host(&self, host: &Host) -> &HostSettings {
        self.hosts.get(host).unwrap_or(&self.defaults)
    }

    /// Bounds what is held in memory of all that registries send and that is read whole. Without it
    /// each answer has its own bound alone.
    pub fn bound_memory(&mut self, room: Room) {
        self.room = Some(room);
    }

    /// Where what is read whole is counted, if it is.
    pub(super) fn room(&self) -> Option<&Room> {
        self.room.as_ref()
    }

    /// Whether a registry has a section of its own.
    pub(super) fn has_section(&self, host: &Host) -> bool {
        self.hosts.contains_key(host)
    }

    /// What holds for every registry without a section of its own.
    pub fn defaults_mut(&mut self) -> &mut HostSettings {
        &mut self.defaults
    }

    /// The section of one registry, made from the defaults if it has none yet.
    pub fn host_mut(&mut self, host: &Host) -> &mut HostSettings {
        let defaults = &self.defaults;
        self.hosts.entry(host.clone()).or_insert_with(|| defaults.clone())
    }
}

impl HostSettings {
    /// Whether `host`, which these settings are for, is spoken to over plain HTTP.
    pub fn speaks_plain_http(&self, host: &Host) -> bool {
        self.plain_http.unwrap_or_else(|| host.is_loopback())
    }
}

fn non_empty(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
