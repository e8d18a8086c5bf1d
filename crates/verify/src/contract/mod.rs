//! What an admission policy asks with: one text for each question.
//!
//! | form | means |
//! |---|---|
//! | `registry/app:1` | the image, for the machines of the policy's default |
//! | `{"reference":"registry/app:1","os":"linux","arch":"arm64"}` | the image, for these machines |
//! | `[team]…` | either of them, asked from a namespace |
//!
//! Read strictly: what is not understood would be a question that nobody asked. The text itself is
//! kept, byte for byte, because the answer is found by it.

#[cfg(test)]
mod tests;

use portolan_core::platform::PartialPlatform;
use portolan_core::reference::ParseReferenceError;
use portolan_core::{Platform, Reference};
use serde::Deserialize;

use crate::policy::document::given;

/// Longer than any reference with its platforms.
pub const MAX_KEY: usize = 4096;
/// Longer than any part of a platform.
const MAX_PART: usize = 32;
/// Platforms in one question.
pub const MAX_PLATFORMS: usize = 64;

/// A question, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    original: String,
    namespace: Option<String>,
    reference: Reference,
    platforms: Vec<PartialPlatform>,
}

impl Key {
    /// The text as it came, for the answer.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// Where it was asked from.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The image.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The machines; none where the question does not say.
    pub fn platforms(&self) -> &[PartialPlatform] {
        &self.platforms
    }
}

/// Why a text is no question. The answer to it never changes, so it may be kept.
#[derive(Debug, thiserror::Error)]
pub enum BadKey {
    /// Nobody writes that much.
    #[error("the key has {0} bytes, at most {MAX_KEY} are read")]
    TooLong(usize),
    /// `[` without a namespace and `]`.
    #[error(
        "the key begins with [ but not with [namespace]; a namespace has up to 63 of a-z, 0-9 and -"
    )]
    Namespace,
    /// Two namespaces.
    #[error("the key is asked from two namespaces, {0:?} and {1:?}")]
    TwoNamespaces(String, String),
    /// Not the object that it should be.
    #[error("the key is not a question in JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// No image.
    #[error("the key names no image: {0}")]
    Reference(#[source] ParseReferenceError),
    /// A file of this machine.
    #[error("the key names a directory; only images in registries are looked at")]
    Layout,
    /// Two ways to say for which machines.
    #[error("the key has both platforms and os, arch, variant or osVersion; write one of them")]
    TwoWays,
    /// A list without members.
    #[error("platforms has {0} members; write 1 to {MAX_PLATFORMS}, or leave it out")]
    Platforms(usize),
    /// A part that is no part of a platform.
    #[error("{member} is {value:?}, which is no part of a platform; use letters, digits and _ . -")]
    Part {
        /// The member.
        member: &'static str,
        /// As written.
        value: String,
    },
    /// A variant of nothing.
    #[error("{member} needs {needs}")]
    Dangling {
        /// What is there.
        member: &'static str,
        /// What is not.
        needs: &'static str,
    },
}

impl BadKey {
    /// For programs.
    pub const CODE: &str = "BAD_KEY";
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    reference: String,
    #[serde(default, deserialize_with = "given")]
    os: Option<String>,
    #[serde(default, deserialize_with = "given")]
    arch: Option<String>,
    #[serde(default, deserialize_with = "given")]
    variant: Option<String>,
    #[serde(default, deserialize_with = "given")]
    os_version: Option<String>,
    #[serde(default, deserialize_with = "given")]
    platforms: Option<Vec<WrittenPlatform>>,
    #[serde(default, deserialize_with = "given")]
    namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenPlatform {
    #[serde(default, deserialize_with = "given")]
    os: Option<String>,
    #[serde(default, deserialize_with = "given")]
    arch: Option<String>,
    #[serde(default, deserialize_with = "given")]
    variant: Option<String>,
    #[serde(default, deserialize_with = "given")]
    os_version: Option<String>,
}

/// Reads a question.
pub fn parse(text: &str) -> Result<Key, BadKey> {
    if text.len() > MAX_KEY {
        return Err(BadKey::TooLong(text.len()));
    }
    let original = text.to_owned();
    let (namespace, rest) = outer_namespace(text)?;
    if !rest.trim_ascii_start().starts_with('{') {
        let reference = reference(rest)?;
        return Ok(Key { original, namespace, reference, platforms: Vec::new() });
    }
    let mut written: Written = serde_json::from_str(rest).map_err(BadKey::Json)?;
    let namespace = match (namespace, written.namespace.take()) {
        (Some(outer), Some(inner)) if outer != inner => {
            return Err(BadKey::TwoNamespaces(outer, inner));
        }
        (_, Some(inner)) if !is_namespace(&inner) => return Err(BadKey::Namespace),
        (outer, inner) => outer.or(inner),
    };
    let reference = reference(&written.reference)?;
    let platforms = platforms(written)?;
    Ok(Key { original, namespace, reference, platforms })
}

fn outer_namespace(text: &str) -> Result<(Option<String>, &str), BadKey> {
    let Some(inner) = text.trim_ascii_start().strip_prefix('[') else { return Ok((None, text)) };
    match inner.split_once(']') {
        Some((namespace, rest)) if is_namespace(namespace) => {
            Ok((Some(namespace.to_owned()), rest))
        }
        _ => Err(BadKey::Namespace),
    }
}

/// The names that Kubernetes gives namespaces: labels of a host name.
fn is_namespace(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|c| plain(*c) || *c == b'-')
        && bytes.first().is_some_and(|c| plain(*c))
        && bytes.last().is_some_and(|c| plain(*c))
}

fn reference(text: &str) -> Result<Reference, BadKey> {
    match text.parse().map_err(BadKey::Reference)? {
        Reference::Layout(_) => Err(BadKey::Layout),
        reference @ Reference::Registry(_) => Ok(reference),
    }
}

fn platforms(written: Written) -> Result<Vec<PartialPlatform>, BadKey> {
    let Written { os, arch, variant, os_version, platforms, .. } = written;
    let own = WrittenPlatform { os, arch, variant, os_version };
    let says = [&own.os, &own.arch, &own.variant, &own.os_version].into_iter().any(Option::is_some);
    match platforms {
        Some(_) if says => Err(BadKey::TwoWays),
        Some(list) if !(1..=MAX_PLATFORMS).contains(&list.len()) => {
            Err(BadKey::Platforms(list.len()))
        }
        Some(list) => list.into_iter().map(platform).collect(),
        None if says => Ok(vec![platform(own)?]),
        None => Ok(Vec::new()),
    }
}

fn platform(written: WrittenPlatform) -> Result<PartialPlatform, BadKey> {
    let WrittenPlatform { os, arch, variant, os_version } = written;
    for (member, value) in
        [("os", &os), ("arch", &arch), ("variant", &variant), ("osVersion", &os_version)]
    {
        let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-');
        let word = |c: u8| plain(c) || (c == b'.' && member != "os");
        if let Some(value) = value
            && (value.is_empty() || value.len() > MAX_PART || !value.bytes().all(word))
        {
            return Err(BadKey::Part { member, value: value.chars().take(80).collect() });
        }
    }
    if variant.is_some() && arch.is_none() {
        return Err(BadKey::Dangling { member: "variant", needs: "arch" });
    }
    if os_version.is_some() && os.is_none() {
        return Err(BadKey::Dangling { member: "osVersion", needs: "os" });
    }
    let platform = Platform::new(&os.unwrap_or_default(), &arch.unwrap_or_default());
    Ok(PartialPlatform::from(&Platform { variant, os_version, ..platform }))
}
