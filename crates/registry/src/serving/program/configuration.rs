//! The configuration of a program: one TOML file. An unknown key is refused with its line, and what cannot work is refused
//! when the file is read, not at the first use.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::durable::{self, DurableError};

/// More than any configuration needs.
const MAX_FILE: u64 = 1024 * 1024;
/// The longest time that a configuration may name: a week.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a program is told by a file.
pub trait Configuration: DeserializeOwned {
    /// What to do where the file is not there.
    const ADVICE: &'static str;

    /// Values that do not go together: which, and what would.
    fn contradiction(&self) -> Option<&'static str>;
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is not there.
    #[error("there is no {}; {advice}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What to do.
        advice: &'static str,
    },
    /// The file cannot be read.
    #[error("the configuration cannot be read")]
    Read(#[source] DurableError),
    /// The file is no text.
    #[error("{} is not UTF-8 text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// No TOML, an unknown key, or a value that a key cannot have. The cause names the line.
    #[error("{} cannot be used", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// With line and column.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// Values that do not go together.
    #[error("{}: {problem}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// Which, and what would.
        problem: &'static str,
    },
}

/// Reads a file.
pub fn load<C: Configuration>(path: &Path) -> Result<C, ConfigError> {
    let path = || path.to_owned();
    let bytes = durable::read_bounded(&path(), MAX_FILE).map_err(ConfigError::Read)?;
    let missing = || ConfigError::Missing { path: path(), advice: C::ADVICE };
    let text = String::from_utf8(bytes.ok_or_else(missing)?);
    parse(&text.map_err(|_| ConfigError::NotText { path: path() })?, &path())
}

/// Reads a text; `path` is where it came from, for messages.
pub fn parse<C: Configuration>(text: &str, path: &Path) -> Result<C, ConfigError> {
    let path = || path.to_owned();
    let config: C = toml::from_str(text)
        .map_err(|source| ConfigError::Parse { path: path(), source: Box::new(source) })?;
    match config.contradiction() {
        Some(problem) => Err(ConfigError::Contradiction { path: path(), problem }),
        None => Ok(config),
    }
}

/// A time: whole seconds, or a text such as `"500ms"`, `"30s"`, `"2m"` or `"1h"`; at most a week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "SecondsOrText", into = "String")]
pub struct Span(pub Duration);

#[derive(Deserialize)]
#[serde(untagged)]
enum SecondsOrText {
    Seconds(u64),
    Text(String),
    Neither(IgnoredAny),
}

impl Span {
    /// Of this many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

/// What is said of what is no time.
const NO_TIME: &str = "a time is whole seconds, or a text such as \"500ms\", \"30s\", \"2m\" or \"1h\", at most a week";

impl TryFrom<SecondsOrText> for Span {
    type Error = &'static str;

    fn try_from(value: SecondsOrText) -> Result<Self, Self::Error> {
        match value {
            SecondsOrText::Seconds(seconds) => bounded(Some(Duration::from_secs(seconds))),
            SecondsOrText::Text(text) => text.parse(),
            SecondsOrText::Neither(_) => Err(NO_TIME),
        }
    }
}

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let span = text.trim().parse::<SignedDuration>().ok();
        bounded(span.and_then(|span| Duration::try_from(span).ok()))
    }
}

fn bounded(span: Option<Duration>) -> Result<Span, &'static str> {
    span.filter(|span| *span <= LONGEST).map(Span).ok_or(NO_TIME)
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        format!("{}ms", span.0.as_millis())
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Told {
        every: Span,
    }

    impl Configuration for Told {
        const ADVICE: &'static str = "write one";

        fn contradiction(&self) -> Option<&'static str> {
            self.every.0.is_zero().then_some("every must not be zero")
        }
    }

    #[test]
    fn a_file_is_told_from_none_and_a_mistake_by_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program.toml");
        let error = load::<Told>(&file).unwrap_err().to_string();
        assert!(error.contains("program.toml; write one"), "{error}");
        for (bytes, word) in [
            (&b"\xff"[..], "not UTF-8"),
            (b"every = 0", "every must not be zero"),
            (b"every = 1\nalso = 2", "cannot be used"),
        ] {
            std::fs::write(&file, bytes).unwrap();
            let error = load::<Told>(&file).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            let line = error.source().is_none_or(|cause| cause.to_string().contains("line 2"));
            assert!(line, "{error:?}");
        }
        std::fs::write(&file, "every = \"2m\"").unwrap();
        assert_eq!(load::<Told>(&file).unwrap().every, Span::seconds(120));
    }

    #[test]
    fn times_are_read_or_refused() {
        let milliseconds = |text: &str| {
            let told = toml::from_str::<Told>(&format!("every = {text}"));
            told.ok().map(|told| told.every.0.as_millis())
        };
        assert_eq!(milliseconds("30"), Some(30_000));
        assert_eq!(milliseconds("\"500ms\""), Some(500));
        assert_eq!(milliseconds("\"2 m\""), Some(120_000));
        assert_eq!(milliseconds("\"1h\""), Some(3_600_000));
        assert_eq!(milliseconds("\"1h30m\""), Some(5_400_000));
        for bad in ["-1", "\"\"", "\"s\"", "\"1d\"", "\"-1s\"", "\"99999h\"", "99999999999", "1.5"]
        {
            assert_eq!(milliseconds(bad), None, "{bad}");
        }
        for bad in ["1.5", "\"\"", "true", "[1]", "{a = 1}"] {
            let error = toml::from_str::<Told>(&format!("every = {bad}")).unwrap_err();
            let told = error.to_string();
            assert!(told.contains(NO_TIME) && told.contains("line 1"), "{told}");
        }
    }
}
