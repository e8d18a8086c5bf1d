//! What `source` and `digest` of a plugin mean.
//!
//! | written | means |
//! |---|---|
//! | `https://h/p#sha256:…` | that address, pinned |
//! | `https://h/p` with `"digest": "sha256:…"` | the same |
//! | `https://h/p-{os}-{arch}{variant}` with `"digest": {"linux/amd64": "sha256:…", …}` | the address of this machine's platform |
//! | `oci://registry/repository@sha256:…` | the artifact manifest of that digest; the plugin is its layer for this machine |
//!
//! A checksum from where the program comes from proves nothing, so the pin must be in the spec.

use std::collections::BTreeMap;

use portolan_core::platform::containerd;
use portolan_core::{Algorithm, Digest, Platform, Reference, RegistryReference};
use url::Url;

use crate::document::Plugin;
use crate::json::{Spanned, Value};

/// Addresses are short.
const MAX_SOURCE: usize = 2048;

/// Where a plugin can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    Https {
        /// Without fragment and login.
        url: Url,
        /// What it must be.
        digest: Digest,
    },
    /// A layer of an artifact.
    Oci {
        /// Its manifest, by digest.
        reference: Box<RegistryReference>,
        /// What the layer must be, where the spec says it.
        digest: Option<Digest>,
    },
}

/// Why a source cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Not an address.
    #[error("{text:?} is no address: {why}")]
    Address {
        /// Its beginning.
        text: String,
        /// Why not.
        why: String,
    },
    /// Anybody on the way could change it.
    #[error("a plugin is fetched with https:// or oci:// only, not with {scheme}://")]
    Scheme {
        /// As written.
        scheme: String,
    },
    /// A login in a document that everybody reads.
    #[error("the address holds a user or password")]
    Login,
    /// Nothing says what it must be.
    #[error("it is not pinned; append #sha256:<digest> to the source, or write `digest` beside it")]
    Unpinned,
    /// Two pins that differ.
    #[error("the pin in the address and `digest` differ")]
    TwoPins,
    /// One pin for the programs of many platforms.
    #[error(
        "the address has {{os}}, {{arch}} or {{variant}}, so `digest` must be a map from platform to digest"
    )]
    OnePin,
    /// No digest.
    #[error("{text:?} is no sha256 digest")]
    Digest {
        /// Its beginning.
        text: String,
    },
    /// Neither a text nor a map of texts.
    #[error("`digest` is a text, or a map from platform to text")]
    DigestForm,
    /// A key that is no platform.
    #[error("{text:?} in `digest` is no platform such as linux/amd64")]
    Platform {
        /// Its beginning.
        text: String,
    },
    /// Not made for this machine.
    #[error("`digest` names no program for {platform}")]
    OtherPlatforms {
        /// Of this machine.
        platform: String,
    },
    /// Not one of ours.
    #[error("{{{name}}} in the address is not {{os}}, {{arch}} or {{variant}}")]
    Template {
        /// As written.
        name: String,
    },
}

/// What the spec says a plugin must be, and for which platform it says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pin {
    pub(super) digest: Digest,
    /// None where one digest is for all.
    platform: Option<Platform>,
}

/// The pin of `digest`, which holds for whoever provides the plugin.
pub(super) fn pin(plugin: &Plugin, here: &Platform) -> Result<Option<Pin>, SourceError> {
    let Some(written) = &plugin.digest else { return Ok(None) };
    match &written.value {
        Value::String(text) => Ok(Some(Pin { digest: read_digest(text)?, platform: None })),
        Value::Object(_) => pin_of_map(written, here).map(Some),
        _ => Err(SourceError::DigestForm),
    }
}

fn pin_of_map(written: &Spanned, here: &Platform) -> Result<Pin, SourceError> {
    let Value::Object(members) = &written.value else { return Err(SourceError::DigestForm) };
    let mut platforms = Vec::with_capacity(members.len());
    let mut digests = Vec::with_capacity(members.len());
    for member in members {
        let Value::String(text) = &member.value.value else { return Err(SourceError::DigestForm) };
        let wrong = |_| SourceError::Platform { text: short(&member.key) };
        platforms.push(member.key.parse::<Platform>().map_err(wrong)?);
        digests.push(read_digest(text)?);
    }
    let Some(chosen) = containerd::choose(here, &platforms) else {
        return Err(SourceError::OtherPlatforms { platform: here.to_string() });
    };
    Ok(Pin { digest: digests[chosen], platform: Some(platforms.swap_remove(chosen)) })
}

/// Why nobody can follow `source` and `digest`, on any of the platforms that they name.
pub(crate) fn lint(plugin: &Plugin) -> Result<(), SourceError> {
    let written = match plugin.digest.as_ref().map(|digest| &digest.value) {
        Some(Value::Object(members)) if !members.is_empty() => members,
        _ => {
            let pin = pin(plugin, &Platform::new("linux", "amd64"))?;
            return resolve(plugin, pin.as_ref()).map(drop);
        }
    };
    for member in written {
        let wrong = |_| SourceError::Platform { text: short(&member.key) };
        let pin = pin(plugin, &member.key.parse::<Platform>().map_err(wrong)?)?;
        resolve(plugin, pin.as_ref())?;
    }
    Ok(())
}

/// Where `source` says that the plugin is; none if it says nothing.
pub(super) fn resolve(plugin: &Plugin, pin: Option<&Pin>) -> Result<Option<Source>, SourceError> {
    let Some(text) = &plugin.source else { return Ok(None) };
    let address = |why: &str| SourceError::Address { text: short(text), why: why.to_owned() };
    if text.len() > MAX_SOURCE {
        return Err(address("it is too long"));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(address("it does not begin with https:// or oci://"));
    };
    match scheme {
        "oci" => oci(rest, pin, &address).map(Some),
        "https" => https(text, pin).map(Some),
        other => Err(SourceError::Scheme { scheme: short(other) }),
    }
}

fn https(text: &str, pin: Option<&Pin>) -> Result<Source, SourceError> {
    let filled = fill(text, pin)?;
    let mut url = Url::parse(&filled)
        .map_err(|error| SourceError::Address { text: short(text), why: error.to_string() })?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(SourceError::Login);
    }
    let in_address = url.fragment().map(read_digest).transpose()?;
    url.set_fragment(None);
    let digest = match (in_address, pin) {
        (None, None) => return Err(SourceError::Unpinned),
        (Some(one), Some(other)) if one != other.digest => return Err(SourceError::TwoPins),
        (Some(digest), _) => digest,
        (None, Some(pin)) => pin.digest,
    };
    Ok(Source::Https { url, digest })
}

fn oci(
    rest: &str,
    pin: Option<&Pin>,
    address: &dyn Fn(&str) -> SourceError,
) -> Result<Source, SourceError> {
    match rest.parse::<Reference>().map_err(|error| address(&error.to_string()))? {
        Reference::Registry(reference) if reference.digest.is_some() => {
            Ok(Source::Oci { reference: Box::new(reference), digest: pin.map(|pin| pin.digest) })
        }
        Reference::Registry(_) => Err(SourceError::Unpinned),
        Reference::Layout(_) => Err(address("it is a directory")),
    }
}

/// Puts the platform into `{os}`, `{arch}` and `{variant}`.
fn fill(text: &str, pin: Option<&Pin>) -> Result<String, SourceError> {
    if !text.contains(['{', '}']) {
        return Ok(text.to_owned());
    }
    // The platform that the digest was written for: a host of level v3 may get what is for v1.
    let Some(platform) = pin.and_then(|pin| pin.platform.as_ref()) else {
        return Err(SourceError::OnePin);
    };
    let words: BTreeMap<&str, &str> = [
        ("os", platform.os.as_str()),
        ("arch", platform.architecture.as_str()),
        ("variant", platform.variant.as_deref().unwrap_or_default()),
    ]
    .into();
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let unknown = |name: &str| SourceError::Template { name: short(name) };
        let (name, after) = after.split_once('}').ok_or_else(|| unknown(after))?;
        filled.push_str(before);
        filled.push_str(words.get(name).ok_or_else(|| unknown(name))?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn read_digest(text: &str) -> Result<Digest, SourceError> {
    let wrong = || SourceError::Digest { text: short(text) };
    let digest: Digest = text.parse().map_err(|_| wrong())?;
    if digest.algorithm() == Algorithm::Sha256 { Ok(digest) } else { Err(wrong()) }
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    const A: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn resolved(source: &str, digest: &str) -> Result<Option<Source>, SourceError> {
        let plugin = Plugin {
            name: "x".to_owned(),
            place: json::Place { line: 1, column: 1 },
            source: Some(source.to_owned()),
            digest: (!digest.is_empty()).then(|| json::parse(digest.as_bytes()).unwrap()),
            data: None,
        };
        let here: Platform = "linux/amd64/v3".parse().unwrap();
        let pin = pin(&plugin, &here)?;
        resolve(&plugin, pin.as_ref())
    }

    fn shown(source: &str, digest: &str) -> String {
        match resolved(source, digest) {
            Ok(Some(Source::Https { url, digest })) => format!("{url} {}", &digest.hex()[..1]),
            Ok(Some(Source::Oci { reference, digest })) => {
                format!(
                    "{reference} {}",
                    digest.map_or_else(String::new, |d| d.hex()[..1].to_owned())
                )
            }
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_way_to_write_a_source() {
        let map = format!(r#"{{"linux/amd64": "{A}", "linux/arm64": "{B}"}}"#);
        let levels = format!(r#"{{"linux/amd64": "{A}", "linux/amd64/v3": "{B}"}}"#);
        let arm = format!(r#"{{"linux/arm64": "{B}"}}"#);
        let text = format!("{A:?}");
        let pinned = format!("https://h.example/p#{A}");
        let oci = format!("oci://r.example/a/b@{A}");
        for (source, digest, expected) in [
            (pinned.as_str(), "", "https://h.example/p a"),
            (&pinned, &text, "https://h.example/p a"),
            (&pinned, &format!("{B:?}"), "the pin in the address and `digest` differ"),
            ("https://h.example/p", &text, "https://h.example/p a"),
            ("https://h.example/{os}/{arch}/p{variant}", &map, "https://h.example/linux/amd64/p a"),
            ("https://h.example/p{variant}", &levels, "https://h.example/pv3 b"),
            ("https://h.example/p", &map, "https://h.example/p a"),
            ("https://h.example/p", &arm, "`digest` names no program for linux/amd64/v3"),
            (oci.as_str(), "", &format!("r.example/a/b@{A} ")),
            (oci.as_str(), &format!("{B:?}"), &format!("r.example/a/b@{A} b")),
        ] {
            assert_eq!(shown(source, digest), expected, "{source} {digest}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_told() {
        let text = format!("{A:?}");
        for (source, digest, expected) in [
            ("https://h.example/p", "", "not pinned"),
            ("https://h.example/{arch}", text.as_str(), "must be a map"),
            ("https://h.example/{arch}", "", "must be a map"),
            ("http://h.example/p", &text, "not with http://"),
            ("file:///bin/sh", &text, "not with file://"),
            ("<http-something-to-download-plugin>", "", "no address"),
            ("https://u:p@h.example/", &text, "user or password"),
            ("https://", &text, "no address"),
            ("https://h.example/#sha256:12", "", "no sha256 digest"),
            ("https://h.example/", "\"md5:12\"", "no sha256 digest"),
            ("https://h.example/", "12", "is a text, or a map"),
            ("https://h.example/", r#"{"linux/amd64": 1}"#, "is a text, or a map"),
            ("https://h.example/", r#"{"": "x"}"#, "no platform"),
            ("https://h.example/", "{}", "names no program"),
            ("oci://r.example/a:tag", "", "not pinned"),
            ("oci://r.example/A B", "", "no address"),
        ] {
            let message = shown(source, digest);
            assert!(message.contains(expected), "{source} {digest}: {message}");
        }
        let map = format!(r#"{{"linux/amd64": "{A}"}}"#);
        assert!(shown("https://h.example/{cpu}", &map).contains("{cpu} in the address"));
        assert!(shown("https://h.example/{arch", &map).contains("in the address"));
        let long = format!("https://h.example/{}", "a".repeat(3000));
        assert!(shown(&long, &text).contains("too long"));
    }
}
