//! The parts of a reference, each checked when it is made.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use super::{MAX_NAME, MAX_TAG, ParseReferenceError, Target};
use crate::quote::quote;

/// What Docker Hub is called besides `docker.io`.
const DOCKER_HUB: [&str; 3] =
    ["index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"];

/// `host[:port]`, lower case, Docker Hub always spelt `docker.io`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host(String);

/// A repository name: lower-case components joined by `/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository(String);

/// A tag: one to 128 of `[A-Za-z0-9_.-]`, not beginning with `.` or `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(String);

impl Host {
    /// Docker Hub, what a reference without a host means.
    pub fn docker_hub() -> Self {
        Self("docker.io".to_owned())
    }

    /// As written, with the port.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without the port.
    pub fn name(&self) -> &str {
        match self.0.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => &self.0,
        }
    }

    /// The registry under the one spelling that two names of it share: without the port that is
    /// meant anyway, addresses in their shortest form, Docker Hub under its usual name. For comparing;
    /// what is connected to and looked up in settings is the host as written.
    pub fn canonical(&self) -> Cow<'_, str> {
        let name = self.name();
        if name.len() == self.0.len() && !name.starts_with('[') {
            return Cow::Borrowed(&self.0);
        }
        let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let name = match inner.and_then(|inner| inner.parse::<Ipv6Addr>().ok()) {
            None => name.to_owned(),
            Some(address) => match address.to_canonical() {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("[{address}]"),
            },
        };
        let usual = if self.is_loopback() { [443, 80] } else { [443, 443] };
        Cow::Owned(match self.port().filter(|port| !usual.contains(port)) {
            Some(port) => format!("{name}:{port}"),
            None if DOCKER_HUB.contains(&name.as_str()) => Self::docker_hub().0,
            None => name,
        })
    }

    fn port(&self) -> Option<u16> {
        self.0.get(self.name().len() + 1..)?.parse().ok()
    }

    /// Whether it is Docker Hub, whose API lives on another host and whose official images
    /// have an implied `library/`.
    pub fn is_docker_hub(&self) -> bool {
        self.0 == "docker.io"
    }

    /// Whether it is this machine: `localhost`, 127.0.0.0/8 or `[::1]`. Such a registry speaks
    /// plain HTTP unless its settings say otherwise.
    pub fn is_loopback(&self) -> bool {
        let name = self.name();
        let name = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl Repository {
    /// The path below the host.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Tag {
    /// The tag meant when none was written.
    pub fn latest() -> Self {
        Self("latest".to_owned())
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Host {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.to_ascii_lowercase();
        let bad = || ParseReferenceError::Host(quote(text));
        let (name, port) = match lower.strip_prefix('[') {
            Some(rest) => {
                let (address, after) = rest.split_once(']').ok_or_else(bad)?;
                address.parse::<Ipv6Addr>().map_err(|_| bad())?;
                (None, after)
            }
            None => match lower.split_once(':') {
                Some((name, _)) => (Some(name), &lower[name.len()..]),
                None => (Some(lower.as_str()), ""),
            },
        };
        let label = |l: &str| {
            !l.is_empty()
                && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                && !l.starts_with('-')
                && !l.ends_with('-')
        };
        let port_fits = port.is_empty()
            || port.strip_prefix(':').is_some_and(|p| {
                p.bytes().all(|b| b.is_ascii_digit()) && p.parse::<u16>().is_ok_and(|n| n > 0)
            });
        if !port_fits || name.is_some_and(|n| !n.split('.').all(label)) || lower.len() > MAX_NAME {
            return Err(bad());
        }
        Ok(match DOCKER_HUB.contains(&lower.as_str()) {
            true => Self::docker_hub(),
            false => Self(lower),
        })
    }
}

impl FromStr for Repository {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_NAME {
            Err(ParseReferenceError::NameTooLong(text.len()))
        } else if text.split('/').all(is_component) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseReferenceError::Repository(quote(text)))
        }
    }
}

/// Runs of lower-case alphanumerics, joined by `.`, `_`, `__` or any number of `-`.
fn is_component(component: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends_fit = bytes.first().is_some_and(|b| alphanumeric(*b))
        && bytes.last().is_some_and(|b| alphanumeric(*b));
    ends_fit
        && bytes.split(|b| alphanumeric(*b)).all(|joint| {
            matches!(joint, b"" | b"." | b"_" | b"__") || joint.iter().all(|b| *b == b'-')
        })
}

impl FromStr for Tag {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let fits = text.len() <= MAX_TAG
            && text.bytes().next().is_some_and(word)
            && text.bytes().all(|b| word(b) || b == b'.' || b == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err(ParseReferenceError::Tag(quote(text))) }
    }
}

impl FromStr for Target {
    type Err = ParseReferenceError;

    /// A digest has a colon, a tag never.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains(':') {
            Ok(Self::Digest(text.parse()?))
        } else {
            Ok(Self::Tag(text.parse()?))
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => tag.fmt(f),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}
