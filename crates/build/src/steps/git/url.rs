//! Where a repository is. Only what fetches over a network, or from a file, is a URL here: git also
//! knows `ext::` and others, which run programs.

use super::reason::OTHER;
use crate::steps::StepError;

/// How a repository is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// `https://`
    Https,
    /// `http://`, where everybody on the way reads along.
    Http,
    /// `ssh://` or `user@host:path`.
    Ssh,
    /// `git://`
    Git,
    /// `file://`
    File,
}

/// A URL that git may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitUrl {
    text: String,
    transport: Transport,
    host: String,
    login: Option<String>,
}

impl GitUrl {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, StepError> {
        let bad = |why: &str| {
            let what = format!(
                "{:?} is no URL of a repository: {why}",
                redacted(&text.chars().take(256).collect::<String>())
            );
            StepError::new(OTHER, 2, what)
        };
        if text.starts_with('-') {
            return Err(bad("it begins with a dash"));
        }
        if text.chars().any(|c| c.is_control() || c == ' ') {
            return Err(bad("it has spaces or control characters"));
        }
        let parsed = match text.split_once("://") {
            Some((scheme, rest)) => {
                let transport = match scheme {
                    "https" => Transport::Https,
                    "http" => Transport::Http,
                    "ssh" | "git+ssh" | "ssh+git" => Transport::Ssh,
                    "git" => Transport::Git,
                    "file" => Transport::File,
                    _ => return Err(bad("use https, ssh, http, git or file")),
                };
                let host = authority(rest);
                if transport != Transport::File && host.is_empty() {
                    return Err(bad("it has no host"));
                }
                let (text, login) = without_login(scheme, rest, transport);
                Self { text, transport, host, login }
            }
            None if text.contains("::") => return Err(bad("git would run a program for it")),
            None => {
                // user@host:path; what has a slash before the colon is a path of this machine.
                let Some((host, path)) = text.split_once(':') else {
                    return Err(bad("use https:// or ssh://"));
                };
                if host.contains('/') || path.is_empty() {
                    return Err(bad("use https:// or ssh://"));
                }
                let host = host.rsplit_once('@').map_or(host, |(_, host)| host).to_owned();
                Self { text: text.to_owned(), transport: Transport::Ssh, host, login: None }
            }
        };
        // ssh would take such a host for an option.
        match parsed.host.starts_with('-') {
            true => Err(bad("its host begins with a dash")),
            false => Ok(parsed),
        }
    }

    /// As it is written, but for a password: git keeps this in the clone, and everybody gets that
    /// with the source.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The user and password that it was written with, as one has them in a URL.
    pub(super) fn login(&self) -> Option<&str> {
        self.login.as_deref()
    }

    /// How it is reached.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Whom it leads to, with a port where one is named.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What git may use for it and for its submodules.
    pub(super) fn allowed(&self) -> &'static str {
        match self.transport {
            Transport::File => "https:http:ssh:git:file",
            _ => "https:http:ssh:git",
        }
    }
}

/// The host and port between the scheme and the path.
fn authority(rest: &str) -> String {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned()
}

/// A URL without its login, and the login where it has a password. To ssh the user is part of the
/// address and stays; a password means nothing there.
fn without_login(scheme: &str, rest: &str, transport: Transport) -> (String, Option<String>) {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some((login, host)) = rest[..end].rsplit_once('@') else {
        return (format!("{scheme}://{rest}"), None);
    };
    let path = &rest[end..];
    match transport {
        Transport::Ssh => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            (format!("{scheme}://{user}@{host}{path}"), None)
        }
        Transport::Https | Transport::Http => {
            // Whatever comes before the last sign belongs to the password.
            let login = login.contains(':').then(|| login.replace('@', "%40"));
            (format!("{scheme}://{host}{path}"), login)
        }
        Transport::Git | Transport::File => (format!("{scheme}://{host}{path}"), None),
    }
}

/// A text without what stands between a scheme and an `@`: names and passwords.
pub fn redacted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(['/', ' ', '\'', '"', '\n']).unwrap_or(after.len());
        match after[..end].rfind('@') {
            Some(sign) => {
                out.push_str("***");
                rest = &after[sign..];
            }
            None => rest = after,
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_known_by_how_they_are_reached() {
        for (text, transport, host) in [
            ("https://git.example/a.git", Transport::Https, "git.example"),
            ("https://u:p@git.example:8443/a", Transport::Https, "git.example:8443"),
            ("http://127.0.0.1:80/a", Transport::Http, "127.0.0.1:80"),
            ("ssh://git@git.example:2222/a", Transport::Ssh, "git.example:2222"),
            ("git@git.example:team/a.git", Transport::Ssh, "git.example"),
            ("file:///srv/a", Transport::File, ""),
        ] {
            let url = GitUrl::parse(text).unwrap();
            assert_eq!((url.transport(), url.host()), (transport, host), "{text}");
        }
    }

    #[test]
    fn a_password_is_no_part_of_what_git_is_shown() {
        for (text, shown, login) in [
            ("https://u:p@h:8443/a?b@c", "https://h:8443/a?b@c", Some("u:p")),
            ("http://u:p@ss@h", "http://h", Some("u:p%40ss")),
            ("https://token@h/a", "https://h/a", None),
            ("ssh://git:p@h:22/a", "ssh://git@h:22/a", None),
            ("ssh://git@h/a", "ssh://git@h/a", None),
            ("git://u:p@h/a", "git://h/a", None),
            ("file:///srv/a@b", "file:///srv/a@b", None),
            ("git@h:a", "git@h:a", None),
        ] {
            let url = GitUrl::parse(text).unwrap();
            assert_eq!((url.text(), url.login()), (shown, login), "{text}");
        }
    }

    #[test]
    fn what_would_run_a_program_or_be_an_option_is_refused() {
        for (text, why) in [
            ("--upload-pack=touch", "begins with a dash"),
            ("-oProxyCommand=x:y", "begins with a dash"),
            ("ext::sh", "would run a program"),
            ("fd::17", "would run a program"),
            ("ssh://-oProxyCommand=x/y", "host begins with a dash"),
            ("ssh://git@-oProxyCommand=x/y", "host begins with a dash"),
            ("git@-oProxyCommand=x:y", "host begins with a dash"),
            ("/srv/repository", "use https:// or ssh://"),
            ("../repository", "use https:// or ssh://"),
            ("plain", "use https:// or ssh://"),
            ("./a:b", "use https:// or ssh://"),
            ("https:///path", "no host"),
            ("javascript://x/y", "use https, ssh, http, git or file"),
            ("ext::sh -c touch", "spaces or control"),
            ("https://host/a b", "spaces or control"),
            ("https://host/a\nb", "spaces or control"),
        ] {
            let error = GitUrl::parse(text).unwrap_err();
            assert_eq!(error.exit, 2, "{text}");
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn passwords_are_told_to_nobody() {
        let text = "fatal: 'https://me:hunter2@git.example/a' and https://x@h/b, http://plain/c";
        let told = redacted(text);
        assert!(!told.contains("hunter2") && told.contains("https://***@git.example/a"), "{told}");
        assert!(told.contains("https://***@h/b") && told.contains("http://plain/c"), "{told}");
    }
}
