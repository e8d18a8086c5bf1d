//! `os[(version+feature…)]/arch[/variant]`: reading and writing it.

use std::fmt;
use std::str::FromStr;

use super::Platform;
use crate::quote::quote;

/// No platform is written longer; refuse before looking closer.
const MAX_PLATFORM: usize = 1024;

/// What may be called an operating system when it stands alone.
const KNOWN_OS: [&str; 17] = [
    "aix",
    "android",
    "darwin",
    "dragonfly",
    "freebsd",
    "hurd",
    "illumos",
    "ios",
    "js",
    "linux",
    "nacl",
    "netbsd",
    "openbsd",
    "plan9",
    "solaris",
    "windows",
    "zos",
];

/// What may be called an architecture when it stands alone.
const KNOWN_ARCHITECTURES: [&str; 24] = [
    "386",
    "amd64",
    "amd64p32",
    "arm",
    "armbe",
    "arm64",
    "arm64be",
    "ppc64",
    "ppc64le",
    "loong64",
    "mips",
    "mipsle",
    "mips64",
    "mips64le",
    "mips64p32",
    "mips64p32le",
    "ppc",
    "riscv",
    "riscv64",
    "s390",
    "s390x",
    "sparc",
    "sparc64",
    "wasm",
];

/// Why a text names no platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParsePlatformError {
    /// Nothing was written.
    #[error("the platform is empty; write os/architecture, such as linux/arm64")]
    Empty,
    /// Far longer than any platform.
    #[error("the platform has {0} characters, more than {MAX_PLATFORM}")]
    TooLong(usize),
    /// A `*`, which nothing here expands.
    #[error("{0:?} has a wildcard; name one platform, such as linux/arm64")]
    Wildcard(String),
    /// More than three parts.
    #[error("{0:?} has more than three parts; write os/architecture[/variant]")]
    TooManyParts(String),
    /// The first part is no operating system.
    #[error("{0:?} is not an operating system; write linux, or windows(10.0.20348) with a version")]
    Os(String),
    /// A later part has characters that none may have.
    #[error("{0:?} is not an architecture or variant; use letters, digits and _ . -")]
    Part(String),
    /// `%` without two hex digits after it, or bytes that are no text.
    #[error("{0:?} has a broken %XX")]
    Escape(String),
    /// One part alone, and no host was given to take the other from.
    #[error("{0:?} is only half of a platform; write os/architecture, such as linux/arm64")]
    OnePart(String),
    /// One part alone that is neither an operating system nor an architecture.
    #[error(
        "{0:?} is neither a known operating system nor a known architecture; write os/architecture"
    )]
    UnknownWord(String),
}

/// A specifier cut into its parts, each checked.
struct Parts {
    os: String,
    os_version: Option<String>,
    os_features: Vec<String>,
    architecture: Option<String>,
    variant: Option<String>,
}

impl FromStr for Platform {
    type Err = ParsePlatformError;

    /// Reads `os/arch[/variant]`, as written: nothing is normalised, nothing is filled in.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = split(text)?;
        match parts.architecture {
            Some(architecture) => Ok(Self {
                os: parts.os,
                architecture,
                variant: parts.variant,
                os_version: parts.os_version,
                os_features: parts.os_features,
            }),
            None => Err(ParsePlatformError::OnePart(quote(text))),
        }
    }
}

impl Platform {
    /// Reads a platform as a person at `host` means it: `arm64` alone is that architecture on the
    /// host's operating system, `linux` alone is that system on the host's architecture.
    pub fn parse_on(text: &str, host: &Platform) -> Result<Self, ParsePlatformError> {
        let parts = split(text)?;
        if parts.architecture.is_some() {
            return text.parse();
        }
        Ok(match word(text)? {
            Word::Os(alone) => Self {
                architecture: host.architecture.clone(),
                variant: host.variant.clone(),
                os_features: parts.os_features,
                ..alone
            },
            Word::Architecture(alone) => Self { os: host.os.clone(), ..alone },
        })
    }
}

/// What a word that stands alone names; none where it is neither.
pub(super) enum Word {
    Os(Platform),
    Architecture(Platform),
}

/// Reads a word that stands alone, under its usual name: the half that it does not name is empty.
pub(super) fn word(text: &str) -> Result<Word, ParsePlatformError> {
    let parts = split(text)?;
    let alone = Platform::new(&parts.os, &parts.os).normalised();
    if parts.architecture.is_none() && KNOWN_OS.contains(&alone.os.as_str()) {
        let os = Platform { os_version: parts.os_version, ..Platform::new(&alone.os, "") };
        return Ok(Word::Os(os));
    }
    // `arm64(10.0)` says a version of an architecture, which means nothing.
    let bare = parts.os_version.is_none() && parts.os_features.is_empty();
    if bare
        && parts.architecture.is_none()
        && KNOWN_ARCHITECTURES.contains(&alone.architecture.as_str())
    {
        return Ok(Word::Architecture(Platform { os: String::new(), ..alone }));
    }
    Err(ParsePlatformError::UnknownWord(quote(text)))
}

fn split(text: &str) -> Result<Parts, ParsePlatformError> {
    match text.len() {
        0 => return Err(ParsePlatformError::Empty),
        n if n > MAX_PLATFORM => return Err(ParsePlatformError::TooLong(n)),
        _ => {}
    }
    if text.contains('*') {
        return Err(ParsePlatformError::Wildcard(quote(text)));
    }
    let mut parts = text.split('/');
    let (os, os_version, os_features) = split_os(parts.next().unwrap_or_default())?;
    let mut part = || match parts.next() {
        Some(part) if is_part(part) => Ok(Some(part.to_owned())),
        Some(part) => Err(ParsePlatformError::Part(quote(part))),
        None => Ok(None),
    };
    let (architecture, variant) = (part()?, part()?);
    if parts.next().is_some() {
        return Err(ParsePlatformError::TooManyParts(quote(text)));
    }
    Ok(Parts { os, os_version, os_features, architecture, variant })
}

/// `os`, `os(version)`, `os(version+feature+feature)`, `os(+feature)`.
fn split_os(text: &str) -> Result<(String, Option<String>, Vec<String>), ParsePlatformError> {
    let bad = || ParsePlatformError::Os(quote(text));
    let (name, options) = match text.split_once('(') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(')').ok_or_else(bad)?)),
        None => (text, None),
    };
    if name.is_empty() || !name.bytes().all(|b| is_word(b) && b != b'.') {
        return Err(bad());
    }
    let mut options = options.unwrap_or_default().split('+');
    let version = option(options.next().unwrap_or_default(), text)?;
    let mut features = Vec::new();
    for feature in options {
        match option(feature, text)? {
            Some(feature) => features.push(feature),
            None => return Err(bad()),
        }
    }
    features.sort_unstable();
    features.dedup();
    Ok((name.to_owned(), version, features))
}

/// One value between parentheses, `%XX` decoded; none where nothing is written.
fn option(text: &str, whole: &str) -> Result<Option<String>, ParsePlatformError> {
    if !text.bytes().all(|b| is_word(b) || b == b'%') {
        return Err(ParsePlatformError::Os(quote(whole)));
    }
    let broken = || ParsePlatformError::Escape(quote(text));
    let digit = |b: Option<u8>| {
        b.and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok())
    };
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let high = digit(bytes.next()).ok_or_else(broken)?;
                high << 4 | digit(bytes.next()).ok_or_else(broken)?
            }
            _ => byte,
        });
    }
    let out = String::from_utf8(out).map_err(|_| broken())?;
    Ok(Some(out).filter(|text| !text.is_empty()))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

fn is_part(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_word)
}

/// Writes `text` with everything but plain word characters as `%XX`: an index may come from
/// anywhere and its platform ends up on a terminal, and inside parentheses the parser undoes it.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if is_word(byte) {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

/// One part of a platform as it may be shown, whoever wrote it.
pub(super) fn shown(text: &str) -> String {
    Escaped(&quote(text)).to_string()
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(&self.os))?;
        let version = self.os_version.as_deref().unwrap_or_default();
        let mut features: Vec<_> = self.os_features.iter().filter(|f| !f.is_empty()).collect();
        features.sort_unstable();
        features.dedup();
        if !version.is_empty() || !features.is_empty() {
            write!(f, "({}", Escaped(version))?;
            for feature in features {
                write!(f, "+{}", Escaped(feature))?;
            }
            f.write_str(")")?;
        }
        write!(f, "/{}", Escaped(&self.architecture))?;
        match self.variant.as_deref() {
            None | Some("") => Ok(()),
            Some(variant) => write!(f, "/{}", Escaped(variant)),
        }
    }
}
