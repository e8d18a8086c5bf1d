//! Credentials: where they are kept and how they are found.
//!
//! Read are, in this order, docker's `config.json` (`$DOCKER_CONFIG`, else `~/.docker`),
//! `$REGISTRY_AUTH_FILE`, and `$XDG_RUNTIME_DIR/containers/auth.json`; in each of them a credential
//! helper named for the host, then the general helper, then what the file itself holds. The first
//! that knows the host wins. Written is docker's `config.json` alone, or the helper it names.

mod config;
mod edit;
mod helper;
mod logins;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use portolan_core::{Host, Repository};

use self::config::ConfigFile;
pub use self::helper::HelperError;
pub use self::logins::{Logins, LoginsForm};
use super::Secret;
use crate::ErrorClass;

/// What to show a registry.
#[derive(Debug, Clone)]
pub enum Credential {
    /// Nothing.
    Anonymous,
    /// A user name and a password or access token.
    Basic {
        /// Who.
        username: String,
        /// With what.
        password: Secret,
    },
    /// An OAuth2 refresh token, to be exchanged for access tokens.
    IdentityToken(Secret),
    /// An access token that is sent as it is.
    RegistryToken(Secret),
}

/// Where credentials are kept.
#[derive(Clone, Default)]
pub struct CredentialStore {
    /// Docker's `config.json`, the only file that is written.
    writable: Option<PathBuf>,
    /// All files that are read, in order.
    readable: Vec<PathBuf>,
    /// Where helpers are looked for, in the form of `PATH`.
    helper_path: OsString,
    /// Given by the program itself; these come first.
    given: Vec<(Host, Credential)>,
}

impl fmt::Debug for CredentialStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialStore").field("readable", &self.readable).finish_non_exhaustive()
    }
}

/// Where a login was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// In this file, readable by its owner but not encrypted.
    File(PathBuf),
    /// By the helper `docker-credential-NAME`.
    Helper(String),
}

/// What became of a login that was to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// Whether there was one.
    pub removed: bool,
    /// A file that is not ours to write and still holds one for this host.
    pub remains_in: Option<PathBuf>,
}

/// Why credentials cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Far too long.
    #[error("{} is larger than {} bytes, which no list of logins needs", path.display(), config::MAX_FILE)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Not the JSON it should be. The cause is left out of the text: it may quote a password.
    #[error("{} is not a docker configuration (line {line}, column {column}); repair it by hand", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where.
        line: usize,
        /// Where in that line.
        column: usize,
    },
    /// The `auth` field is not base64 of `user:password`.
    #[error("{}: the entry {key:?} has an auth field that is not base64 of user:password; log in again", path.display())]
    Auth {
        /// The file.
        path: PathBuf,
        /// The entry.
        key: String,
    },
    /// A helper failed.
    #[error("the credential helper {name:?}, which {} names, failed", path.display())]
    Helper {
        /// The file that names it.
        path: PathBuf,
        /// Its name, what follows `docker-credential-`.
        name: String,
        /// How.
        #[source]
        source: HelperError,
    },
    /// No home directory.
    #[error("there is no place to keep a login: set HOME or DOCKER_CONFIG")]
    NoPlace,
    /// The file cannot be written.
    #[error("{} cannot be written; the old one is untouched", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl CredentialError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Read { .. } | Self::NoPlace | Self::Write { .. } | Self::Helper { .. } => {
                ErrorClass::Local
            }
            Self::TooLarge { .. } | Self::Malformed { .. } | Self::Auth { .. } => {
                ErrorClass::BadInput
            }
        }
    }
}

impl CredentialStore {
    /// Knows nobody and keeps nothing.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// The files of this user (see the module's text) and the helpers in `PATH`.
    pub fn from_environment() -> Self {
        let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let docker =
            variable("DOCKER_CONFIG").or_else(|| variable("HOME").map(|home| home.join(".docker")));
        let containers = variable("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json"));
        let also = variable("REGISTRY_AUTH_FILE").into_iter().chain(containers);
        let helper_path = std::env::var_os("PATH").unwrap_or_default();
        Self::from_files(docker.map(|dir| dir.join("config.json")), also.collect(), helper_path)
    }

    /// Reads and writes `config` (a docker `config.json`), also reads `others`, and looks for helpers
    /// in `helper_path`, which has the form of `PATH`.
    pub fn from_files(
        config: Option<PathBuf>,
        others: Vec<PathBuf>,
        helper_path: OsString,
    ) -> Self {
        let readable = config.iter().cloned().chain(others).collect();
        Self { writable: config, readable, helper_path, given: Vec::new() }
    }

    /// Adds a credential that goes before whatever the files say about that host.
    #[must_use]
    pub fn with(mut self, host: Host, credential: Credential) -> Self {
        self.given.push((host, credential));
        self
    }

    /// What would stand in the way of a login: files that cannot be read, helpers that are not there. Nobody is asked.
    pub fn problems(&self) -> Vec<CredentialError> {
        let mut problems = Vec::new();
        for path in &self.readable {
            let config = match ConfigFile::read(path) {
                Ok(Some(config)) => config,
                Ok(None) => continue,
                Err(error) => {
                    problems.push(error);
                    continue;
                }
            };
            let absent = config.helpers().into_iter().filter_map(|name| {
                let source = helper::find(&self.helper_path, name).err()?;
                Some(CredentialError::Helper { path: path.clone(), name: name.to_owned(), source })
            });
            problems.extend(absent);
        }
        problems
    }

    /// What is known for a registry. Entries of `auth.json` may be for one repository or a group
    /// of them; the closest one wins.
    pub async fn lookup(
        &self,
        host: &Host,
        repository: Option<&Repository>,
    ) -> Result<Credential, CredentialError> {
        if let Some((_, credential)) = self.given.iter().rev().find(|(given, _)| given == host) {
            return Ok(credential.clone());
        }
        for path in &self.readable {
            if let Some(found) = self.lookup_in(path, host, repository).await? {
                return Ok(found);
            }
        }
        Ok(Credential::Anonymous)
    }

    async fn lookup_in(
        &self,
        path: &Path,
        host: &Host,
        repository: Option<&Repository>,
    ) -> Result<Option<Credential>, CredentialError> {
        let Some(config) = ConfigFile::read(path)? else { return Ok(None) };
        if let Some(name) = config.helper(host) {
            let found = helper::get(&self.helper_path, name, &config::server_key(host))
                .await
                .map_err(|source| CredentialError::Helper {
                    path: path.to_owned(),
                    name: name.to_owned(),
                    source,
                })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        config.entry(path, host, repository)
    }

    /// Keeps a login: by the helper that `config.json` names for this host, else in the file itself
    /// (mode 0600, everything else in it stays as it is).
    pub async fn store(
        &self,
        host: &Host,
        username: &str,
        password: &Secret,
    ) -> Result<Stored, CredentialError> {
        let path = self.writable.as_deref().ok_or(CredentialError::NoPlace)?;
        let config = ConfigFile::read(path)?.unwrap_or_default();
        let stored = match config.helper(host) {
            Some(name) => {
                helper::store(
                    &self.helper_path,
                    name,
                    &config::server_key(host),
                    username,
                    password,
                )
                .await
                .map_err(|source| CredentialError::Helper {
                    path: path.to_owned(),
                    name: name.to_owned(),
                    source,
                })?;
                Stored::Helper(name.to_owned())
            }
            None => Stored::File(path.to_owned()),
        };
        // Docker keeps an empty entry beside a helper's, to know which hosts it has.
        let auth = matches!(stored, Stored::File(_)).then(|| config::encode(username, password));
        edit::set(path, host, auth.as_ref())?;
        Ok(stored)
    }

    /// Forgets a login, in the helper and in `config.json`.
    pub async fn erase(&self, host: &Host) -> Result<Erased, CredentialError> {
        let path = self.writable.as_deref().ok_or(CredentialError::NoPlace)?;
        let config = ConfigFile::read(path)?.unwrap_or_default();
        let mut removed = false;
        if let Some(name) = config.helper(host) {
            removed = helper::erase(&self.helper_path, name, &config::server_key(host))
                .await
                .map_err(|source| CredentialError::Helper {
                    path: path.to_owned(),
                    name: name.to_owned(),
                    source,
                })?;
        }
        removed |= edit::remove(path, host)?;
        let mut remains_in = None;
        for other in self.readable.iter().filter(|other| other.as_path() != path) {
            if remains_in.is_none() && self.lookup_in(other, host, None).await?.is_some() {
                remains_in = Some(other.clone());
            }
        }
        Ok(Erased { removed, remains_in })
    }
}
