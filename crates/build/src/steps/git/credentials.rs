//! A secret of a cluster as what git and ssh take. Nothing of it is ever an argument or a variable:
//! files that only we can read hold it, and they go with the step.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use portolan_registry::durable;

use super::reason::{EXIT_AUTH, INCOMPLETE, KEY_EXPECTED, KEY_UNEXPECTED, OTHER, OVER_HTTP};
use super::url::{GitUrl, Transport};
use crate::steps::StepError;

/// No key and no password is larger.
const MAX_SECRET: u64 = 256 * 1024;

/// What git is given.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    /// Settings beside the usual ones.
    pub(super) config: Vec<(String, String)>,
    /// How ssh is called.
    pub(super) ssh: Option<String>,
}

impl Credentials {
    /// Reads what is mounted at `secret` and lays it out in `work`.
    pub(super) fn read(
        secret: Option<&Path>,
        url: &GitUrl,
        rewrite: bool,
        work: &Path,
    ) -> Result<Self, StepError> {
        let part = |name: &str| match secret {
            None => Ok(None),
            Some(dir) => durable::read_bounded(&dir.join(name), MAX_SECRET).map_err(|source| {
                StepError::local(OTHER, format!("the secret's {name} cannot be read"), source)
            }),
        };
        let key = part("ssh-privatekey")?;
        let (user, password) = (part("username")?, part("password")?);
        let refuse = |reason, what: &str| Err(StepError::new(reason, EXIT_AUTH, what));
        let ssh = url.transport() == Transport::Ssh;
        match (key, user, password) {
            (Some(key), _, _) => {
                let rewritten = rewrite && url.transport() == Transport::Https;
                if !ssh && !rewritten {
                    return refuse(
                        KEY_UNEXPECTED,
                        "the secret holds an SSH key and the URL is not one for SSH",
                    );
                }
                Self::ssh(&key, part("known_hosts")?.as_deref(), url, work)
            }
            (None, _, _) if ssh => refuse(
                KEY_EXPECTED,
                "the URL is one for SSH and no secret with ssh-privatekey was given",
            ),
            (None, Some(user), Some(password)) => match url.transport() {
                Transport::Http => refuse(
                    OVER_HTTP,
                    "user and password would go over http, where everybody on the way reads them",
                ),
                Transport::Https => {
                    let login = format!("{}:{}", percent(&user), percent(&password));
                    Self::basic(&login, url, work)
                }
                _ => refuse(OTHER, "user and password mean nothing to this URL"),
            },
            (None, None, None) => match (secret, url.login()) {
                (None, Some(login)) => Self::basic(login, url, work),
                (None, None) => Ok(Self::default()),
                (Some(_), _) => refuse(
                    OTHER,
                    "the secret holds neither ssh-privatekey nor username and password",
                ),
            },
            (None, _, _) => refuse(INCOMPLETE, "the secret needs both username and password"),
        }
    }

    fn ssh(
        key: &[u8],
        known_hosts: Option<&[u8]>,
        url: &GitUrl,
        work: &Path,
    ) -> Result<Self, StepError> {
        // OpenSSH refuses keys whose last line does not end.
        let mut key = key.to_vec();
        if key.last() != Some(&b'\n') {
            key.push(b'\n');
        }
        let key = private_file(work, "key", &key)?;
        let (strict, hosts) = match known_hosts {
            Some(known) => ("yes", private_file(work, "known_hosts", known)?),
            // Nobody said whom to trust: the first answer is taken, and held on to.
            None => ("accept-new", work.join("known_hosts")),
        };
        let option = |text: String| format!(" -o {}", quoted(&text));
        let mut command = format!("ssh -F none -i {}", quoted(&key.display().to_string()));
        for text in [
            "BatchMode=yes".to_owned(),
            "IdentitiesOnly=yes".to_owned(),
            format!("StrictHostKeyChecking={strict}"),
            format!("UserKnownHostsFile={}", hosts.display()),
            "GlobalKnownHostsFile=/dev/null".to_owned(),
        ] {
            command.push_str(&option(text));
        }
        let mut config = Vec::new();
        if url.transport() == Transport::Https {
            let host = url.host();
            config.push((format!("url.ssh://git@{host}/.insteadOf"), format!("https://{host}/")));
        }
        Ok(Self { config, ssh: Some(command) })
    }

    /// `login` is a user and a password as one has them in a URL.
    fn basic(login: &str, url: &GitUrl, work: &Path) -> Result<Self, StepError> {
        let scheme = if url.transport() == Transport::Http { "http" } else { "https" };
        let line = format!("{scheme}://{login}@{}\n", url.host());
        let file = private_file(work, "credentials", line.as_bytes())?;
        let helper = format!("store --file={}", quoted(&file.display().to_string()));
        // The first, empty one forgets all helpers that anybody else has set up.
        let helpers = [String::new(), helper];
        let config = helpers.map(|helper| ("credential.helper".to_owned(), helper)).to_vec();
        Ok(Self { config, ssh: None })
    }
}

fn private_file(work: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, StepError> {
    let path = work.join(name);
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(&path);
    let written = made.and_then(|mut file| file.write_all(bytes));
    written.map_err(|source| StepError::local(OTHER, format!("cannot keep the {name}"), source))?;
    Ok(path)
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Everything but letters, digits and a few signs as `%` and digits; a line end at the end of a
/// secret is an editor's.
fn percent(bytes: &[u8]) -> String {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                text.push(char::from(*byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)], url: &str, rewrite: bool) -> Result<Credentials, StepError> {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        let secret = dir.path().join("secret");
        fs::create_dir(&work).unwrap();
        fs::create_dir(&secret).unwrap();
        for (name, text) in files {
            fs::write(secret.join(name), text).unwrap();
        }
        Credentials::read(Some(&secret), &GitUrl::parse(url).unwrap(), rewrite, &work)
    }

    #[test]
    fn secrets_that_do_not_go_with_the_url_are_refused_with_110_and_a_reason() {
        let key = ("ssh-privatekey", "k");
        let (user, password) = (("username", "u"), ("password", "p"));
        for (files, url, reason) in [
            (&[key][..], "https://h/r", KEY_UNEXPECTED),
            (&[][..], "git@h:r", KEY_EXPECTED),
            (&[user, password][..], "ssh://h/r", KEY_EXPECTED),
            (&[user][..], "https://h/r", INCOMPLETE),
            (&[password][..], "https://h/r", INCOMPLETE),
            (&[user, password][..], "http://h/r", OVER_HTTP),
            (&[("token", "t")][..], "https://h/r", OTHER),
        ] {
            let error = read(files, url, false).unwrap_err();
            assert_eq!((error.reason, error.exit), (reason, EXIT_AUTH), "{files:?} {url}");
        }
        let url = GitUrl::parse("git@h:r").unwrap();
        let error = Credentials::read(None, &url, false, Path::new("/")).unwrap_err();
        assert_eq!(error.reason, KEY_EXPECTED);
    }

    #[test]
    fn hosts_are_strict_where_they_are_known() {
        let with = |files: &[(&str, &str)]| read(files, "git@h:r", false).unwrap().ssh.unwrap();
        assert!(with(&[("ssh-privatekey", "k")]).contains("StrictHostKeyChecking=accept-new"));
        let strict = with(&[("ssh-privatekey", "k"), ("known_hosts", "h ssh-ed25519 A")]);
        assert!(strict.contains("StrictHostKeyChecking=yes") && strict.contains("BatchMode=yes"));
    }

    #[test]
    fn a_key_rewrites_an_https_url_where_that_is_asked_for() {
        let made = read(&[("ssh-privatekey", "k")], "https://h:8443/r", true).unwrap();
        let expected = ("url.ssh://git@h:8443/.insteadOf".to_owned(), "https://h:8443/".to_owned());
        assert_eq!(made.config, [expected]);
    }

    #[test]
    fn passwords_may_hold_anything() {
        assert_eq!(percent("p@ss:/%ä\n".as_bytes()), "p%40ss%3A%2F%25%C3%A4");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
