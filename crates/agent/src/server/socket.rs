//! The unix socket: taken over from a dead agent, never from a living one, made again when somebody
//! removes it.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use portolan_registry::serving::{self, Limits, Listener};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often the name is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// What the kernel takes for the name of a socket, with its end.
const MAX_PATH: usize = 107;

/// Why the socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody answers there.
    #[error("an agent already listens on {}; stop it, or choose another --socket", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else has the name.
    #[error("{} is there and is no socket; remove it, or choose another --socket", path.display())]
    NotASocket {
        /// The name.
        path: PathBuf,
    },
    /// The kernel takes no such long name.
    #[error("{} is longer than {MAX_PATH} bytes; choose a shorter --socket", path.display())]
    TooLong {
        /// The name.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was tried.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
}

/// Which file it is, whatever its name leads to later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

fn identity(path: &Path) -> io::Result<Identity> {
    std::fs::symlink_metadata(path).map(|found| Identity(found.dev(), found.ino()))
}

/// The socket under its name, with the right mode.
#[derive(Debug)]
pub struct UnixSocket {
    path: PathBuf,
    mode: u32,
    bound: Bound,
}

/// A socket that has its name and waits to serve.
#[derive(Debug)]
struct Bound {
    listener: UnixListener,
    identity: Identity,
}

/// Whether somebody listens there. A queue that is full is a busy agent's, not a dead one's.
async fn answers(path: &Path) -> io::Result<bool> {
    match UnixStream::connect(path).await {
        Ok(_) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(false),
            io::ErrorKind::WouldBlock => Ok(true),
            _ => Err(error),
        },
    }
}

/// What is there is a socket, or nothing.
fn is_socket_or_free(path: &Path) -> Result<bool, SocketError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(SocketError::Io { step: "look at", path: path.to_owned(), source }),
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => Err(SocketError::NotASocket { path: path.to_owned() }),
    }
}

/// Makes the socket's directory, if it is not there, for those whom the socket is for.
fn make_directory(dir: &Path, mode: u32) -> io::Result<()> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(dir)?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(way_to(mode)))
}

/// The mode of a directory that its owner alone may look into, and that those may pass through who
/// may use a socket of this mode in it.
pub(crate) fn way_to(mode: u32) -> u32 {
    let passes = |bits: u32| if mode & bits == 0 { 0 } else { bits & 0o111 };
    0o700 | passes(0o070) | passes(0o007)
}

/// Takes the name.
async fn bind(path: &Path, mode: u32) -> Result<Bound, SocketError> {
    let owned = || path.to_owned();
    let failed = |step| move |source| SocketError::Io { step, path: path.to_owned(), source };
    // Made under another name, so that nobody gets in before the mode is set, and renamed over
    // what a dead agent left.
    let made = path.with_added_extension("new");
    if made.as_os_str().len() > MAX_PATH {
        return Err(SocketError::TooLong { path: owned() });
    }
    if is_socket_or_free(path)? && answers(path).await.map_err(failed("look at"))? {
        return Err(SocketError::InUse { path: owned() });
    }
    if let Some(dir) = path.parent() {
        make_directory(dir, mode).map_err(failed("make the directory of"))?;
    }
    if is_socket_or_free(&made)? {
        std::fs::remove_file(&made).map_err(failed("replace"))?;
    }
    let listener = UnixListener::bind(&made).map_err(failed("listen on"))?;
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(&made, permissions).map_err(failed("set the mode of"))?;
    std::fs::rename(&made, path).map_err(failed("name"))?;
    let identity = identity(path).map_err(failed("look at"))?;
    Ok(Bound { listener, identity })
}

impl UnixSocket {
    /// Takes the name. Whoever connects waits until [`serve`](Self::serve).
    ///
    /// # Errors
    /// When another agent has it, or it cannot be made.
    pub async fn bind(path: &Path, mode: u32) -> Result<Self, SocketError> {
        let bound = bind(path, mode).await?;
        Ok(Self { path: path.to_owned(), mode, bound })
    }

    /// Serves until `shutdown`; then the name is removed, if it is still ours. A name that is lost
    /// is taken again when it is free.
    pub async fn serve(self, router: Router, limits: Limits, shutdown: CancellationToken) {
        let Self { path, mode, bound } = self;
        tracing::info!(socket = %path.display(), "listening");
        let mut serving = JoinSet::new();
        let mut ours = serve(&mut serving, bound, &router, &limits, &shutdown);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(LOOK) => {}
            }
            if identity(&path).ok() == Some(ours) {
                continue;
            }
            match bind(&path, mode).await {
                Ok(bound) => {
                    tracing::warn!(socket = %path.display(), "the socket was removed; made again");
                    ours = serve(&mut serving, bound, &router, &limits, &shutdown);
                }
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(error, "the socket was taken away and cannot be had again");
                }
            }
        }
        if identity(&path).ok() == Some(ours)
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(%error, socket = %path.display(), "the socket stays behind");
        }
        while serving.join_next().await.is_some() {}
    }
}

/// Old connections go on while a new socket is served.
fn serve(
    serving: &mut JoinSet<()>,
    bound: Bound,
    router: &Router,
    limits: &Limits,
    shutdown: &CancellationToken,
) -> Identity {
    let (router, limits, shutdown) = (router.clone(), limits.clone(), shutdown.clone());
    serving.spawn(async move {
        let listener = Listener::Unix(bound.listener);
        serving::run(listener, router, &limits, shutdown.cancelled()).await;
    });
    bound.identity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_agent_s_socket_is_taken_over_and_a_living_one_s_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/agent.sock");
        let first = bind(&path, 0o660).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        assert!(matches!(bind(&path, 0o660).await, Err(SocketError::InUse { .. })));
        drop(first);
        assert!(path.exists(), "the name of a dead one stays");
        bind(&path, 0o600).await.unwrap();
    }

    #[tokio::test]
    async fn an_agent_that_is_too_busy_to_answer_is_not_taken_for_a_dead_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        // Nobody accepts: connections pile up until the kernel takes no more.
        let _busy = bind(&path, 0o660).await.unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = UnixStream::connect(&path).await {
            waiting.push(stream);
            assert!(waiting.len() < 100_000, "the queue has no end here");
        }
        assert!(matches!(bind(&path, 0o660).await, Err(SocketError::InUse { .. })));
    }

    #[test]
    fn a_directory_lets_those_pass_who_may_use_the_socket_in_it() {
        for (socket, dir) in [(0o600, 0o700), (0o660, 0o710), (0o666, 0o711), (0o606, 0o701)] {
            assert_eq!(way_to(socket), dir, "{socket:o}");
        }
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&path, 0o660).await, Err(SocketError::NotASocket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let mut other = dir.path().join("agent.sock");
        std::fs::write(other.with_added_extension("new"), "precious").unwrap();
        assert!(matches!(bind(&other, 0o660).await, Err(SocketError::NotASocket { .. })));
        other.set_extension("sock.new");
        assert_eq!(std::fs::read(&other).unwrap(), b"precious");
        let long = dir.path().join("x".repeat(120));
        assert!(matches!(bind(&long, 0o660).await, Err(SocketError::TooLong { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_was_removed_is_made_again_and_goes_away_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let shutdown = CancellationToken::new();
        let server = tokio::spawn({
            let (path, shutdown) = (path.clone(), shutdown.clone());
            async move {
                let socket = UnixSocket::bind(&path, 0o660).await.unwrap();
                socket.serve(Router::new(), Limits::default(), shutdown).await;
            }
        });
        let appears = async || {
            while !path.exists() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        appears().await;
        std::fs::remove_file(&path).unwrap();
        appears().await;
        UnixStream::connect(&path).await.unwrap();
        shutdown.cancel();
        server.await.unwrap();
        assert!(!path.exists());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_another_took_is_left_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let shutdown = CancellationToken::new();
        let server = tokio::spawn({
            let (path, shutdown) = (path.clone(), shutdown.clone());
            async move {
                let socket = UnixSocket::bind(&path, 0o660).await.unwrap();
                socket.serve(Router::new(), Limits::default(), shutdown).await;
            }
        });
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        std::fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        let theirs = identity(&path).unwrap();
        tokio::time::sleep(LOOK * 3).await;
        shutdown.cancel();
        server.await.unwrap();
        assert_eq!(identity(&path).unwrap(), theirs);
        drop(other);
    }
}
