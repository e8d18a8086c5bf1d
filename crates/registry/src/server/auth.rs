//! Basic authentication against an htpasswd file with bcrypt hashes.
//!
//! Checking a bcrypt hash takes long on purpose, so it runs on a blocking thread, few at a time,
//! and who was let in is remembered for a while. Unknown users cost the same as wrong passwords.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, header};
use portolan_core::{Algorithm, Digest, Hasher};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::error::{ApiError, Code};

/// An htpasswd file may be this large: ten thousand users.
const MAX_FILE: u64 = 1024 * 1024;
/// Each step doubles the time; 16 is several seconds, more would stop the server.
const MAX_COST: u32 = 16;
/// bcrypt looks at no more than 72 bytes; longer ones could only waste time.
const MAX_HEADER: usize = 1024;
/// How long a password that was right is not checked again.
const REMEMBER_FOR: Duration = Duration::from_secs(300);
/// How many of them.
const MAX_REMEMBERED: usize = 1024;
/// How many hashes are checked at once.
const PARALLEL_CHECKS: usize = 4;

/// Why an htpasswd file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HtpasswdError {
    /// It cannot be read.
    #[error("cannot read the password file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// It is larger than any password file.
    #[error("the password file {} has {size} bytes, at most {MAX_FILE} are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// A line is not `user:hash`.
    #[error("line {line} of {} is not user:hash", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, counted from one.
        line: usize,
    },
    /// A hash is not bcrypt, or costs too much.
    #[error(
        "line {line} of {} has no bcrypt hash with cost up to {MAX_COST}; make one with htpasswd -B",
        path.display()
    )]
    Hash {
        /// The file.
        path: PathBuf,
        /// Which line, counted from one.
        line: usize,
    },
    /// There is nobody in it.
    #[error("the password file {} names no user; nobody could log in", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Who may come in.
#[derive(Debug)]
struct Users {
    hashes: HashMap<String, String>,
    /// Checked for users that do not exist, so that they take as long as those who do.
    decoy: String,
    stamp: (u64, i64, i64),
}

impl Users {
    fn load(path: &Path) -> Result<Self, HtpasswdError> {
        let read = |source| HtpasswdError::Read { path: path.to_path_buf(), source };
        let file = fs::File::open(path).map_err(read)?;
        let metadata = file.metadata().map_err(read)?;
        let mut text = String::new();
        // Bounded by what is read: the size that metadata tells may be of another moment.
        let size = file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(read)? as u64;
        if size > MAX_FILE {
            let size = size.max(metadata.len());
            return Err(HtpasswdError::TooLarge { path: path.to_path_buf(), size });
        }
        let hashes = parse(path, &text)?;
        let cost = hashes.values().filter_map(|hash| cost(hash)).max().unwrap_or(10);
        // A hash that no password has: it is well-formed, and its digest part is all zero.
        let decoy = format!("$2b${cost:02}${}", ".".repeat(53));
        Ok(Self { hashes, decoy, stamp: stamp(&metadata) })
    }
}

fn stamp(metadata: &fs::Metadata) -> (u64, i64, i64) {
    (metadata.ino(), metadata.mtime(), metadata.mtime_nsec())
}

/// Reads `user:hash` lines; empty lines and comments are skipped.
fn parse(path: &Path, text: &str) -> Result<HashMap<String, String>, HtpasswdError> {
    let mut users = HashMap::new();
    for (n, line) in text.lines().enumerate() {
        let (line, number) = (line.trim(), n + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let path = path.to_path_buf();
        match line.split_once(':') {
            Some((user, hash)) if !user.is_empty() => {
                if cost(hash).is_none_or(|cost| cost > MAX_COST) {
                    return Err(HtpasswdError::Hash { path, line: number });
                }
                users.insert(user.to_owned(), hash.to_owned());
            }
            _ => return Err(HtpasswdError::Line { path, line: number }),
        }
    }
    if users.is_empty() {
        return Err(HtpasswdError::Empty { path: path.to_path_buf() });
    }
    Ok(users)
}

/// The cost of a bcrypt hash; none when it is no bcrypt hash.
fn cost(hash: &str) -> Option<u32> {
    let rest = ["$2a$", "$2b$", "$2y$"].iter().find_map(|kind| hash.strip_prefix(kind))?;
    let (cost, digest) = rest.split_once('$')?;
    (cost.len() == 2 && digest.len() == 53).then(|| cost.parse().ok()).flatten()
}

/// The gate.
#[derive(Debug)]
pub(super) struct Gate {
    path: PathBuf,
    users: RwLock<Users>,
    remembered: Mutex<HashMap<Digest, Instant>>,
    /// Makes remembered passwords useless to whoever reads this memory without it.
    key: [u8; 32],
    checks: Semaphore,
}

/// What a request said about itself.
struct Credentials {
    user: String,
    password: Zeroizing<String>,
}

impl Gate {
    /// Reads the file; a server with a bad one must not start.
    pub(super) fn load(path: &Path) -> Result<Self, HtpasswdError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|e| HtpasswdError::Read {
            path: path.to_path_buf(),
            source: io::Error::other(e),
        })?;
        Ok(Self {
            path: path.to_path_buf(),
            users: RwLock::new(Users::load(path)?),
            remembered: Mutex::default(),
            key,
            checks: Semaphore::new(PARALLEL_CHECKS),
        })
    }

    /// Lets a request in and says who it is from, or refuses it.
    pub(super) async fn check(&self, headers: &HeaderMap) -> Result<String, ApiError> {
        let Some(credentials) = credentials(headers) else {
            return Err(refusal("authentication required"));
        };
        self.reload_if_changed();
        let key = self.key_of(&credentials);
        if self.is_remembered(&key) {
            return Ok(credentials.user);
        }
        let hash = {
            let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
            users.hashes.get(&credentials.user).unwrap_or(&users.decoy).clone()
        };
        let Ok(_permit) = self.checks.acquire().await else {
            return Err(refusal("the server is shutting down"));
        };
        let password = credentials.password;
        let right = super::blocking(move || {
            // A malformed hash was refused at load; an error here can only mean "no".
            Ok::<_, ApiError>(bcrypt::verify(password.as_bytes(), &hash).unwrap_or(false))
        })
        .await?;
        let known = {
            let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
            users.hashes.contains_key(&credentials.user)
        };
        if right && known {
            self.remember(key);
            Ok(credentials.user)
        } else {
            Err(refusal("user or password is wrong"))
        }
    }

    /// Picks up a changed file. A bad one is reported and the old users stay.
    fn reload_if_changed(&self) {
        let Ok(metadata) = fs::metadata(&self.path) else { return };
        let now = stamp(&metadata);
        if self.users.read().unwrap_or_else(PoisonError::into_inner).stamp == now {
            return;
        }
        match Users::load(&self.path) {
            Ok(users) => {
                *self.users.write().unwrap_or_else(PoisonError::into_inner) = users;
                self.remembered.lock().unwrap_or_else(PoisonError::into_inner).clear();
                tracing::info!(path = %self.path.display(), "password file read again");
            }
            Err(error) => {
                self.users.write().unwrap_or_else(PoisonError::into_inner).stamp = now;
                tracing::error!(%error, "changed password file is not used");
            }
        }
    }

    fn key_of(&self, credentials: &Credentials) -> Digest {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(&self.key);
        hasher.update(&(credentials.user.len() as u64).to_be_bytes());
        hasher.update(credentials.user.as_bytes());
        hasher.update(credentials.password.as_bytes());
        hasher.finish()
    }

    fn is_remembered(&self, key: &Digest) -> bool {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.get(key).is_some_and(|since| since.elapsed() < REMEMBER_FOR)
    }

    fn remember(&self, key: Digest) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, since| since.elapsed() < REMEMBER_FOR);
        }
        if remembered.len() < MAX_REMEMBERED {
            remembered.insert(key, Instant::now());
        }
    }
}

fn credentials(headers: &HeaderMap) -> Option<Credentials> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") || encoded.len() > MAX_HEADER {
        return None;
    }
    let decoded = Zeroizing::new(STANDARD.decode(encoded.trim()).ok()?);
    let text = std::str::from_utf8(&decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Credentials { user: user.to_owned(), password: Zeroizing::new(password.to_owned()) })
}

fn refusal(message: &str) -> ApiError {
    let challenge = HeaderValue::from_static("Basic realm=\"portolan registry\"");
    ApiError::new(Code::Unauthorized, message).with_header(header::WWW_AUTHENTICATE, challenge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash() -> String {
        bcrypt::hash("secret", 4).unwrap()
    }

    fn asking(user: &str, password: &str) -> HeaderMap {
        let value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[test]
    fn files_are_checked_when_read() {
        let path = Path::new("f");
        let good = format!("# people\n\nann:{}\nbob:{}\n", hash(), hash());
        assert_eq!(parse(path, &good).unwrap().len(), 2);
        assert!(matches!(parse(path, "ann"), Err(HtpasswdError::Line { line: 1, .. })));
        assert!(matches!(parse(path, "ann:plain"), Err(HtpasswdError::Hash { .. })));
        assert!(matches!(parse(path, "\n# x\n"), Err(HtpasswdError::Empty { .. })));
        let dear = format!("ann:$2y$31${}", "x".repeat(53));
        assert!(matches!(parse(path, &dear), Err(HtpasswdError::Hash { .. })));
        let shown = parse(path, "x\nann:$apr1$hunter2").unwrap_err().to_string();
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[tokio::test]
    async fn right_wrong_unknown_and_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("htpasswd");
        fs::write(&path, format!("ann:{}\n", hash())).unwrap();
        let gate = Gate::load(&path).unwrap();
        assert_eq!(gate.check(&asking("ann", "secret")).await.unwrap(), "ann");
        assert_eq!(gate.check(&asking("ann", "secret")).await.unwrap(), "ann");
        for (user, password) in [("ann", "other"), ("bob", "secret"), ("", ""), ("bob", "")] {
            let refused = gate.check(&asking(user, password)).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unauthorized, "{user}");
        }
        assert!(gate.check(&HeaderMap::new()).await.is_err());

        // Ann is gone and Bob is there as soon as the file says so.
        let next = dir.path().join("next");
        fs::write(&next, format!("bob:{}\n", hash())).unwrap();
        fs::rename(&next, &path).unwrap();
        assert!(gate.check(&asking("ann", "secret")).await.is_err());
        assert_eq!(gate.check(&asking("bob", "secret")).await.unwrap(), "bob");

        // A broken file changes nothing.
        fs::write(&next, "broken").unwrap();
        fs::rename(&next, &path).unwrap();
        assert_eq!(gate.check(&asking("bob", "secret")).await.unwrap(), "bob");
    }

    #[test]
    fn the_decoy_is_a_hash_that_takes_as_long() {
        let started = Instant::now();
        let decoy = format!("$2b$10${}", ".".repeat(53));
        assert!(!bcrypt::verify("x", &decoy).unwrap());
        assert!(started.elapsed() > Duration::from_millis(5));
    }

    #[test]
    fn other_schemes_and_garbage_are_no_credentials() {
        for value in ["Bearer abc", "Basic", "Basic !!!", "Basic YWJj"] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            assert!(credentials(&headers).is_none(), "{value}");
        }
    }
}
