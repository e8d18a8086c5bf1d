//! Whether the runtime knows a handler: it is asked itself, over the interface that the kubelet uses.

mod cri;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use cri::{CriError, Status, status};

use super::config::Loaded;
use super::preset::Site;
use super::root::HostRoot;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(200);

/// Why the runtime is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum ReadyError {
    /// It does not answer.
    #[error("the runtime does not answer at {}", socket.display())]
    Silent {
        /// Where it was asked.
        socket: PathBuf,
        /// How that ended.
        #[source]
        source: CriError,
    },
    /// It answers and is not well.
    #[error("the runtime answers and says that it is not ready: {why}")]
    NotReady {
        /// Its words.
        why: String,
    },
    /// It does not know the handler.
    #[error("the runtime runs and does not know the handler {handler}; it knows {known}")]
    Unknown {
        /// The handler.
        handler: String,
        /// Those it knows.
        known: String,
    },
    /// The process from before is still there, or none: what is said is of no account.
    #[error("no new process of the runtime was seen: it was not started again")]
    Same,
    /// It still knows the handler.
    #[error("the runtime still knows the handler {handler}")]
    StillKnown {
        /// The handler.
        handler: String,
    },
}

/// What the runtime should say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect<'a> {
    /// That it knows these handlers.
    Known(&'a [&'a str]),
    /// That it does not.
    Gone(&'a str),
    /// Only that it is well.
    Well,
}

/// Where the runtime answers, as the host names it: what it was started with, what its configuration says,
/// what is usual.
#[must_use]
pub fn socket(site: &Site, loaded: &[Loaded]) -> String {
    let started = site.daemon.as_ref().and_then(|daemon| daemon.address.clone());
    let configured = || {
        loaded.iter().rev().find_map(|file| {
            let old = file.document.get("grpc").and_then(|grpc| grpc.get("address"));
            let new = file.document.get("plugins").and_then(|plugins| {
                plugins.get("io.containerd.server.v1.grpc").and_then(|grpc| grpc.get("address"))
            });
            old.or(new).and_then(|item| item.as_str()).map(str::to_owned)
        })
    };
    let found = started.or_else(configured).filter(|path| path.starts_with('/'));
    found.unwrap_or_else(|| site.preset.socket.to_owned())
}

/// Where that is here.
pub(crate) fn socket_here(root: &HostRoot, socket: &str) -> PathBuf {
    root.locate(socket).unwrap_or_else(|_| root.dir().join(socket.trim_start_matches('/')))
}

/// Whether an answer is the one.
fn judge(status: &Status, expect: Expect<'_>) -> Result<(), ReadyError> {
    if let Some(why) = &status.not_ready {
        return Err(ReadyError::NotReady { why: why.clone() });
    }
    let unknown = |handler: &&&str| !status.handlers.contains(**handler);
    match expect {
        Expect::Known(handlers) => match handlers.iter().find(unknown) {
            Some(handler) => Err(ReadyError::Unknown {
                handler: (*handler).to_owned(),
                known: status.handlers.iter().cloned().collect::<Vec<_>>().join(", "),
            }),
            None => Ok(()),
        },
        Expect::Gone(handler) if status.handlers.contains(handler) => {
            Err(ReadyError::StillKnown { handler: handler.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Whether somebody listens there.
pub(crate) async fn accepts(socket: &Path) -> bool {
    cri::connect(socket).await.is_ok()
}

/// Asks once.
///
/// # Errors
/// It is not as expected.
pub async fn look(socket: &Path, expect: Expect<'_>) -> Result<Status, ReadyError> {
    let silent = |source| ReadyError::Silent { socket: socket.to_owned(), source };
    let status = status(socket).await.map_err(silent)?;
    judge(&status, expect)?;
    Ok(status)
}

/// Asks until it is as expected, at most so long. What is said while it `is_old` does not count: a runtime
/// that is about to end still answers.
///
/// # Errors
/// How it was when the time was over.
pub async fn wait(
    socket: &Path,
    expect: Expect<'_>,
    patience: Duration,
    is_old: impl Fn() -> bool,
) -> Result<Status, ReadyError> {
    let began = tokio::time::Instant::now();
    loop {
        // Looked at before it is asked: who is new then, is new when it answers.
        let answer = if is_old() { Err(ReadyError::Same) } else { look(socket, expect).await };
        match answer {
            Ok(status) => return Ok(status),
            Err(error) if began.elapsed() >= patience => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_held_against_what_is_expected() {
        let knows = |names: &[&str]| Status {
            handlers: names.iter().map(|n| (*n).to_owned()).collect(),
            not_ready: None,
            version: None,
        };
        let known = knows(&["runc", "spin-v2"]);
        assert!(judge(&known, Expect::Known(&["spin-v2", "runc"])).is_ok());
        for handlers in [&["spin"][..], &["runc", "spin"]] {
            let told = judge(&known, Expect::Known(handlers));
            assert!(matches!(told, Err(ReadyError::Unknown { handler, .. }) if handler == "spin"));
        }
        assert!(matches!(judge(&known, Expect::Gone("runc")), Err(ReadyError::StillKnown { .. })));
        assert!(judge(&known, Expect::Gone("spin")).is_ok());
        let ill = Status { not_ready: Some("no network".into()), ..known };
        assert!(matches!(judge(&ill, Expect::Well), Err(ReadyError::NotReady { .. })));
    }
}
