//! Credential helpers: programs called `docker-credential-NAME` that speak JSON over standard input
//! and output and keep secrets in the system's own store.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use zeroize::Zeroizing;

use super::Credential;
use crate::client::Secret;

/// Long enough for a person to unlock a key ring.
const DEADLINE: Duration = Duration::from_secs(60);
/// Tokens of cloud registries have a few kilobytes.
const MAX_OUTPUT: u64 = 256 * 1024;
/// The user name by which a helper says that the secret is an identity token.
const TOKEN_USER: &str = "<token>";

/// How a credential helper failed.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The name could be a path or an option.
    #[error("{0:?} cannot be the name of a helper; use letters, digits, . _ -")]
    Name(String),
    /// No such program.
    #[error(
        "docker-credential-{0} is not in PATH; install it, or remove it from the configuration"
    )]
    Missing(String),
    /// It cannot be started or spoken to.
    #[error("{} cannot be run", path.display())]
    Run {
        /// The program.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It hangs.
    #[error("it did not answer within {} s", DEADLINE.as_secs())]
    Deadline,
    /// It said no.
    #[error("it said: {0}")]
    Refused(String),
    /// Its answer is too long or not the JSON it should be. The answer is not shown: it may hold a secret.
    #[error("its answer is not the JSON it should be")]
    Answer,
}

#[derive(Deserialize)]
struct Found {
    #[serde(rename = "Username", default)]
    username: String,
    #[serde(rename = "Secret", default)]
    secret: String,
}

#[derive(Serialize)]
struct Keep<'a> {
    #[serde(rename = "ServerURL")]
    server: &'a str,
    #[serde(rename = "Username")]
    username: &'a str,
    #[serde(rename = "Secret")]
    secret: &'a str,
}

/// Asks for the credential of a server; none when the helper has none.
pub(super) async fn get(
    path: &OsStr,
    name: &str,
    server: &str,
) -> Result<Option<Credential>, HelperError> {
    match run(path, name, "get", server.as_bytes()).await? {
        Answer::NotThere => Ok(None),
        Answer::Output(output) => {
            let found: Found = serde_json::from_slice(&output).map_err(|_| HelperError::Answer)?;
            let secret = Secret::new(found.secret);
            Ok(match found.username.as_str() {
                _ if secret.is_empty() => None,
                TOKEN_USER => Some(Credential::IdentityToken(secret)),
                _ => Some(Credential::Basic { username: found.username, password: secret }),
            })
        }
    }
}

/// Gives a credential to keep.
pub(super) async fn store(
    path: &OsStr,
    name: &str,
    server: &str,
    username: &str,
    secret: &Secret,
) -> Result<(), HelperError> {
    let keep = Keep { server, username, secret: secret.expose() };
    let input = Zeroizing::new(serde_json::to_vec(&keep).expect("three strings are JSON"));
    match run(path, name, "store", &input).await? {
        Answer::Output(_) => Ok(()),
        Answer::NotThere => Err(HelperError::Answer),
    }
}

/// Has a credential forgotten; false when the helper had none.
pub(super) async fn erase(path: &OsStr, name: &str, server: &str) -> Result<bool, HelperError> {
    // Most helpers report success for what was never there, so ask first.
    if get(path, name, server).await?.is_none() {
        return Ok(false);
    }
    Ok(matches!(run(path, name, "erase", server.as_bytes()).await?, Answer::Output(_)))
}

enum Answer {
    Output(Zeroizing<Vec<u8>>),
    NotThere,
}

async fn run(path: &OsStr, name: &str, action: &str, input: &[u8]) -> Result<Answer, HelperError> {
    let program = find(path, name)?;
    let failed = |source| HelperError::Run { path: program.clone(), source };
    let mut child = Command::new(&program)
        .arg(action)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take().expect("piped above");
    let stdout = child.stdout.take().expect("piped above");
    let talk = async {
        let send = async {
            // A helper that does not read its input may still answer.
            let _ = stdin.write_all(input).await;
            drop(stdin);
        };
        let ((), output) = tokio::join!(send, read(stdout));
        Ok((output?, child.wait().await?))
    };
    let (output, status) = tokio::time::timeout(DEADLINE, talk)
        .await
        .map_err(|_| HelperError::Deadline)?
        .map_err(failed)?;
    if output.len() as u64 > MAX_OUTPUT {
        return Err(HelperError::Answer);
    }
    if status.success() {
        return Ok(Answer::Output(output));
    }
    let said = String::from_utf8_lossy(&output);
    // The protocol has no code for "none": it is this sentence.
    if said.contains("credentials not found") {
        return Ok(Answer::NotThere);
    }
    let said: String = said.trim().chars().filter(|c| !c.is_control()).take(200).collect();
    Err(HelperError::Refused(if said.is_empty() { status.to_string() } else { said }))
}

async fn read(mut output: impl AsyncRead + Unpin) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    (&mut output).take(MAX_OUTPUT + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// The first executable of that name. Relative parts of `PATH` are skipped: what lies in the current
/// directory must not get to see credentials.
pub(super) fn find(path: &OsStr, name: &str) -> Result<PathBuf, HelperError> {
    let fits = !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !fits {
        return Err(HelperError::Name(name.chars().take(64).collect()));
    }
    let executable = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(format!("docker-credential-{name}")))
        .find(executable)
        .ok_or_else(|| HelperError::Missing(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_paths() {
        for name in ["", "../x", "a/b", "a b", "a\0", &"x".repeat(65)] {
            assert!(
                matches!(find(OsStr::new("/bin"), name), Err(HelperError::Name(_))),
                "{name:?}"
            );
        }
        assert!(matches!(find(OsStr::new("/bin"), "no-such-helper"), Err(HelperError::Missing(_))));
    }

    #[test]
    fn relative_directories_are_skipped() {
        let here = tempfile::tempdir_in(".").unwrap();
        let program = here.path().join("docker-credential-here");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let relative = PathBuf::from(here.path().file_name().unwrap());
        assert!(find(relative.as_os_str(), "here").is_err());
        assert!(find(std::path::absolute(&relative).unwrap().as_os_str(), "here").is_ok());
    }
}
