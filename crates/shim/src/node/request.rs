//! What is asked for, checked where it comes in: names that are safe in paths and in TOML, digests,
//! options that are single TOML values.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use portolan_core::Digest;
use serde::{Deserialize, Serialize};
use toml_edit::Value;

use crate::report::MAX_PARTS;

/// A name becomes part of a path and of a TOML key.
const MAX_NAME: usize = 128;
/// That of a shim is the value of a label as well, and what is said of several has to fit into a termination message.
const MAX_SHIM: usize = 63;
/// One option's value; more is a file's business.
const MAX_VALUE: usize = 4096;
/// The runtime that containerd has, also where no file says so.
pub(crate) const BUILT_IN: &str = "runc";
/// How every shim's file is called before its name.
pub const BINARY_PREFIX: &str = "containerd-shim-";

/// Why a request makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// A name with something in it that a path or a TOML key must not have.
    #[error(
        "{what} {name:?} is not usable: give letters, digits, `-`, `_` and `.`, beginning with a letter or digit, {most} at most"
    )]
    Name {
        /// What it names.
        what: &'static str,
        /// How long it may be.
        most: usize,
        /// As it was given, cut.
        name: String,
    },
    /// No digest.
    #[error("{text:?} is no SHA-256 digest: give its 64 hexadecimal digits{}", hint(text))]
    Digest {
        /// As it was given, cut.
        text: String,
    },
    /// `RUNTIME_OPTIONS` that is no JSON object of strings.
    #[error("RUNTIME_OPTIONS is no JSON object whose values are strings")]
    Options(#[source] serde_json::Error),
    /// A key that would need quotes.
    #[error("option {key:?} is no plain key: give letters, digits, `-` and `_`")]
    OptionKey {
        /// As it was given, cut.
        key: String,
    },
    /// A value that is no single TOML value.
    #[error(
        "option {key} is {value:?}, which is no single TOML value on one line; write text in quotes: {key}=\"text\""
    )]
    OptionValue {
        /// Its key.
        key: String,
        /// As it was given, cut.
        value: String,
    },
    /// Not KEY=VALUE.
    #[error("{text:?} is no option: give KEY=VALUE")]
    OptionShape {
        /// As it was given, cut.
        text: String,
    },
    /// No description of a shim.
    #[error(
        "{text:?} describes no shim: give a JSON object such as {{\"name\":\"spin-v2\",\"location\":\"https://example.com/spin-v2.tar.gz\"}}"
    )]
    Also {
        /// As it was given, cut.
        text: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A shim, and nothing to take it from.
    #[error("nothing to install for {name:?}: give its location or its assets")]
    NoSource {
        /// Which.
        name: String,
    },
    /// One shim twice, or more than are installed as one.
    #[error("{asked} shims are asked for as one: give {MAX_PARTS} at most, each of them once")]
    Parts {
        /// How many.
        asked: usize,
    },
    /// The runtime's own handler.
    #[error(
        "handler {handler:?} is containerd's own, for every pod without a RuntimeClass; name another"
    )]
    BuiltIn {
        /// Which.
        handler: String,
    },
    /// No path of a host.
    #[error("{path:?} is no absolute path of the host without `..`")]
    Path {
        /// As it was given, cut.
        path: String,
    },
}

fn hint(text: &str) -> &'static str {
    if text.starts_with("sha256:") { ", without `sha256:` before them" } else { "" }
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// A name that may not be usable, as a report can have it.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(MAX_SHIM).map(|c| if is_plain(c) { c } else { '?' }).collect()
}

/// A name that is safe in a path and as a TOML key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Checks `name`, which names `what`.
    ///
    /// # Errors
    /// [`RequestError::Name`].
    pub fn parse(what: &'static str, name: &str) -> Result<Self, RequestError> {
        Self::within(MAX_NAME, what, name)
    }

    fn within(most: usize, what: &'static str, name: &str) -> Result<Self, RequestError> {
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && name.len() <= most && name.chars().all(is_plain) {
            Ok(Self(name.to_owned()))
        } else {
            Err(RequestError::Name { what, most, name: cut(name) })
        }
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path of a host: absolute, and never up.
///
/// # Errors
/// [`RequestError::Path`].
pub fn host_path(path: &str) -> Result<String, RequestError> {
    let plain = !path.split('/').any(|part| part == "..");
    if path.len() > 1 && path.starts_with('/') && plain {
        Ok(path.to_owned())
    } else {
        Err(RequestError::Path { path: cut(path) })
    }
}

/// 64 hexadecimal digits in either case.
///
/// # Errors
/// [`RequestError::Digest`].
pub fn sha256(text: &str) -> Result<Digest, RequestError> {
    let hex = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let bad = || RequestError::Digest { text: cut(text) };
    if !hex {
        return Err(bad());
    }
    format!("sha256:{}", text.to_ascii_lowercase()).parse().map_err(|_| bad())
}

/// What the runtime is told beside the binary, in the order of the keys.
#[derive(Debug, Clone, Default)]
pub struct Options(BTreeMap<String, Value>);

impl Options {
    /// Reads the JSON object that upstream's controller hands over; empty text is none.
    ///
    /// # Errors
    /// It is none, or an option is not usable.
    pub fn from_json(json: &str) -> Result<Self, RequestError> {
        let mut options = Self::default();
        if json.trim().is_empty() {
            return Ok(options);
        }
        // `null` is what a Go program writes for no map at all.
        let read: Option<BTreeMap<String, String>> =
            serde_json::from_str(json).map_err(RequestError::Options)?;
        for (key, value) in read.unwrap_or_default() {
            options.set(&key, &value)?;
        }
        Ok(options)
    }

    /// Reads `KEY=VALUE`, which replaces what was said of that key.
    ///
    /// # Errors
    /// It is no such thing, or not usable.
    pub fn add(&mut self, text: &str) -> Result<(), RequestError> {
        let pair = text.split_once('=');
        let (key, value) = pair.ok_or_else(|| RequestError::OptionShape { text: cut(text) })?;
        self.set(key.trim(), value)
    }

    /// Sets one option from a TOML literal.
    ///
    /// # Errors
    /// The key needs quotes, or the value is no single value on one line.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), RequestError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if key.is_empty() || key.len() > MAX_NAME || !key.chars().all(plain) {
            return Err(RequestError::OptionKey { key: cut(key) });
        }
        let bad = || RequestError::OptionValue { key: key.to_owned(), value: cut(value) };
        if value.len() > MAX_VALUE || value.contains(['\n', '\r']) {
            return Err(bad());
        }
        let mut parsed = Value::from_str(value.trim()).map_err(|_| bad())?;
        // Whatever stood around the value is not the value: a comment would end our line.
        parsed.decor_mut().clear();
        let written = parsed.to_string();
        if written.contains(['\n', '\r']) || Value::from_str(&written).is_err() {
            return Err(bad());
        }
        self.0.insert(key.to_owned(), parsed);
        Ok(())
    }

    /// Keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What a node is to have.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The shim's name.
    pub name: Name,
    /// What the runtime calls it.
    pub handler: Name,
    /// Its file's name, in the archive and on the node.
    pub binary: Name,
    /// What the runtime is told beside the binary.
    pub options: Options,
}

impl Wanted {
    /// A shim whose handler and file are called as usual, unless said otherwise.
    ///
    /// # Errors
    /// A name is not usable.
    pub fn new(
        name: &str,
        handler: Option<&str>,
        binary: Option<&str>,
        options: Options,
    ) -> Result<Self, RequestError> {
        let usual = format!("{BINARY_PREFIX}{name}");
        Ok(Self {
            name: Name::within(MAX_SHIM, "the shim's name", name)?,
            handler: Name::parse("the handler", handler.unwrap_or(name))?,
            binary: Name::parse("the binary's name", binary.unwrap_or(&usual))?,
            options,
        })
    }
}

/// Another shim to be installed with the first, as `--also` describes it: the flags of the first, by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Also {
    /// The shim's name.
    pub name: String,
    /// What pods ask for; the name where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// The file to take out of the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// The archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// What the archive must hash to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Where `portolan node fetch` left it, whatever the location was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assets: Option<PathBuf>,
    /// What the runtime is told, as TOML values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

impl FromStr for Also {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        serde_json::from_str(text).map_err(|source| RequestError::Also { text: cut(text), source })
    }
}

impl Also {
    /// What is wanted.
    ///
    /// # Errors
    /// A name or an option is not usable.
    pub fn wanted(&self) -> Result<Wanted, RequestError> {
        let mut options = Options::default();
        self.options.iter().try_for_each(|(key, value)| options.set(key, value))?;
        Wanted::new(&self.name, self.handler.as_deref(), self.binary.as_deref(), options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_lead_elsewhere_are_refused() {
        for name in ["spin-v2", "a.b", "A_1", "bin"] {
            assert!(Name::parse("x", name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "-x", "a/b", "a b", "a\"b", "a]\n[b", "ü", &"x".repeat(129)] {
            assert!(Name::parse("x", name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_shim_is_called_by_what_a_label_can_hold_and_its_file_may_be_called_longer() {
        let wanted =
            |letters: usize| Wanted::new(&"x".repeat(letters), None, None, Options::default());
        assert_eq!(wanted(63).unwrap().binary.as_str().len(), 79);
        let told = wanted(64).unwrap_err().to_string();
        assert!(told.contains("63 at most"), "{told}");
        assert_eq!(shown(&"x".repeat(200)).len(), 63);
    }

    #[test]
    fn digests_are_64_digits_in_either_case() {
        let hex = "Ab".repeat(32);
        assert_eq!(sha256(&hex).unwrap().hex(), "ab".repeat(32));
        for bad in ["", "ab", &format!("sha256:{hex}"), &"g".repeat(64), &format!("{hex} ")] {
            assert!(sha256(bad).is_err(), "{bad}");
        }
        let told = sha256(&format!("sha256:{hex}")).unwrap_err().to_string();
        assert!(told.contains("without `sha256:`"), "{told}");
    }

    /// N13: options were written raw, so a value could bring a whole table of its own.
    #[test]
    fn n13_options_cannot_inject_toml() {
        let mut options = Options::default();
        for (key, value) in [
            ("SystemdCgroup", "true"),
            ("BinaryName", "\"/usr/bin/x\""),
            ("n", "3"),
            ("list", "[1, 2]"),
            ("t", "{ a = 1 }"),
        ] {
            options.set(key, value).unwrap();
        }
        for (key, value) in [
            ("a", "true\n[plugins.x]"),
            ("a", "text"),
            ("a", ""),
            ("a", "1 2"),
            ("a", "true, b = 1"),
            ("a", "\"\"\"x\ny\"\"\""),
            ("a b", "1"),
            ("a\"", "1"),
            ("a.b", "1"),
            ("", "1"),
        ] {
            assert!(options.set(key, value).is_err(), "{key} {value}");
        }
        // A comment after the value would swallow what follows; it is not kept.
        match options.set("c", "true # x") {
            Ok(()) => {
                let (_, kept) = options.iter().find(|(key, _)| *key == "c").unwrap();
                assert_eq!(kept.to_string(), "true");
            }
            Err(error) => assert!(matches!(error, RequestError::OptionValue { .. }), "{error}"),
        }
    }

    #[test]
    fn options_are_upstreams_json_and_flags_on_top() {
        let mut options = Options::from_json(r#"{"b":"1","a":"\"x\""}"#).unwrap();
        options.add("b=2").unwrap();
        let read: Vec<_> = options.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(read, ["a=\"x\"", "b=2"]);
        assert!(Options::from_json("").unwrap().is_empty());
        assert!(Options::from_json("null").unwrap().is_empty());
        assert!(Options::from_json("[]").is_err());
        assert!(options.add("nothing").is_err());
    }

    #[test]
    fn another_shim_is_described_by_the_flags_of_the_first() {
        let also: Also =
            r#"{"name":"b","assets":"/x","options":{"SystemdCgroup":"true"}}"#.parse().unwrap();
        let wanted = also.wanted().unwrap();
        assert_eq!((wanted.handler.as_str(), wanted.binary.as_str()), ("b", "containerd-shim-b"));
        assert_eq!(wanted.options.iter().count(), 1);
        for bad in ["", "b", r#"{"handler":"b"}"#, r#"{"name":"b","sha":"1"}"#] {
            let told = bad.parse::<Also>().unwrap_err().to_string();
            assert!(told.contains("describes no shim"), "{told}");
        }
        for bad in [r#"{"name":"../b"}"#, r#"{"name":"b","options":{"a":"true\n[x]"}}"#] {
            assert!(bad.parse::<Also>().unwrap().wanted().is_err(), "{bad}");
        }
    }
}
