//! How people and machines name an image: `registry/repository[:tag][@digest]`, or
//! `oci:DIR[:tag][@digest]` for a layout on disk.

mod names;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::digest::{Digest, ParseDigestError};
use crate::quote::quote;

pub use names::{Host, Repository, Tag};

/// A repository may be this long with its registry (the limit the distribution project set).
const MAX_NAME: usize = 255;
/// The longest tag the distribution specification allows.
const MAX_TAG: usize = 128;
/// What a reference to a layout begins with.
const LAYOUT_PREFIX: &str = "oci:";
/// Nothing that long is a reference; refuse before looking closer.
const MAX_REFERENCE: usize = 4096;

/// Where an image is and which one it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reference {
    /// In a registry.
    Registry(RegistryReference),
    /// In an OCI layout on this machine.
    Layout(LayoutReference),
}

/// `registry/repository[:tag][@digest]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegistryReference {
    /// Host and optional port.
    pub registry: Host,
    /// The path below the host.
    pub repository: Repository,
    /// The tag, if one was written.
    pub tag: Option<Tag>,
    /// The digest, if one was written. It wins over the tag.
    pub digest: Option<Digest>,
}

/// `oci:DIR[:tag][@digest]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayoutReference {
    /// The directory that holds `oci-layout` and `index.json`.
    pub dir: PathBuf,
    /// The tag (`org.opencontainers.image.ref.name`), if one was written.
    pub tag: Option<Tag>,
    /// The digest, if one was written. It wins over the tag.
    pub digest: Option<Digest>,
}

/// What to ask a repository for: a digest if there is one, else a tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A movable name.
    Tag(Tag),
    /// Content itself.
    Digest(Digest),
}

/// Why a text names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseReferenceError {
    /// Nothing was written.
    #[error("the reference is empty; write registry/repository:tag or oci:DIR:tag")]
    Empty,
    /// More than any registry would take.
    #[error("the reference has {0} characters, more than {MAX_REFERENCE}")]
    TooLong(usize),
    /// The host part cannot be a host.
    #[error("{0:?} is not a registry host; write host or host:port")]
    Host(String),
    /// The repository part breaks the grammar.
    #[error(
        "{0:?} is not a repository name; use lower-case letters, digits and . _ - between them, parts joined by /"
    )]
    Repository(String),
    /// Host and repository together are too long, or the repository alone.
    #[error("registry and repository have {0} characters together, at most {MAX_NAME} are allowed")]
    NameTooLong(usize),
    /// The tag breaks the grammar.
    #[error(
        "{0:?} is not a tag; use 1 to {MAX_TAG} of letters, digits, _ . - and begin with a letter, digit or _"
    )]
    Tag(String),
    /// What follows `@` is no digest.
    #[error("the part after @ is not a digest")]
    Digest(#[from] ParseDigestError),
    /// `oci:` without a directory.
    #[error("oci: needs a directory; write oci:DIR or oci:DIR:tag")]
    NoDirectory,
    /// A repository name that looks like a bare image id.
    #[error("{0:?} is 64 hex digits, which reads as an image id; write repository@sha256:{0}")]
    LooksLikeId(String),
}

impl Reference {
    /// The tag, if one was written.
    pub fn tag(&self) -> Option<&Tag> {
        match self {
            Self::Registry(r) => r.tag.as_ref(),
            Self::Layout(r) => r.tag.as_ref(),
        }
    }

    /// The digest, if one was written.
    pub fn digest(&self) -> Option<&Digest> {
        match self {
            Self::Registry(r) => r.digest.as_ref(),
            Self::Layout(r) => r.digest.as_ref(),
        }
    }

    /// The same place, pinned: the tag is dropped so that nothing can ask for it again.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        match self.clone() {
            Self::Registry(r) => {
                Self::Registry(RegistryReference { tag: None, digest: Some(digest), ..r })
            }
            Self::Layout(r) => {
                Self::Layout(LayoutReference { tag: None, digest: Some(digest), ..r })
            }
        }
    }
}

impl RegistryReference {
    /// What to ask the registry for. Docker's rule: neither tag nor digest means `latest`.
    pub fn target(&self) -> Target {
        target(self.tag.as_ref(), self.digest.as_ref())
            .unwrap_or_else(|| Target::Tag(Tag::latest()))
    }
}

impl LayoutReference {
    /// What to look up, or none when only a directory was written: a layout with one image
    /// needs no tag, and one with several must not have one chosen silently.
    pub fn target(&self) -> Option<Target> {
        target(self.tag.as_ref(), self.digest.as_ref())
    }
}

fn target(tag: Option<&Tag>, digest: Option<&Digest>) -> Option<Target> {
    digest.map(|d| Target::Digest(*d)).or_else(|| tag.map(|t| Target::Tag(t.clone())))
}

impl FromStr for Reference {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.len() {
            0 => return Err(ParseReferenceError::Empty),
            n if n > MAX_REFERENCE => return Err(ParseReferenceError::TooLong(n)),
            _ => {}
        }
        // In any letters: hosts are folded to lower case, and a host called `OCI` would come back
        // from its printed form as a directory.
        match text.split_at_checked(LAYOUT_PREFIX.len()) {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case(LAYOUT_PREFIX) => {
                rest.parse().map(Self::Layout)
            }
            _ => text.parse().map(Self::Registry),
        }
    }
}

impl FromStr for LayoutReference {
    type Err = ParseReferenceError;

    /// Reads what follows `oci:`. A directory may itself hold `:` or `@`; only a last `@digest`
    /// and then a last `:tag` that contains no `/` are taken off.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rest, digest) = match text.rsplit_once('@') {
            Some((rest, digest)) if digest.contains(':') && !digest.contains('/') => {
                (rest, Some(digest.parse()?))
            }
            _ => (text, None),
        };
        let (dir, tag) = match rest.rsplit_once(':') {
            Some((dir, tag)) if !tag.contains('/') => (dir, Some(tag.parse()?)),
            _ => (rest, None),
        };
        if dir.is_empty() || dir.contains('\0') {
            return Err(ParseReferenceError::NoDirectory);
        }
        Ok(Self { dir: PathBuf::from(dir), tag, digest })
    }
}

impl FromStr for RegistryReference {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse()?)),
            None => (text, None),
        };
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag.parse()?)),
            _ => (rest, None),
        };
        // Docker's rule for where the host ends: the first part is a host only if it could not
        // be a repository component of Docker Hub. Docker also takes `Host/app` for a host, by
        // its capital; hosts are folded to lower case here, and `host/app` would then name an
        // image of Docker Hub, so that spelling is refused.
        let (registry, path) = match name.split_once('/') {
            Some((first, path))
                if first.contains(['.', ':', '[']) || first.eq_ignore_ascii_case("localhost") =>
            {
                (first.parse()?, path)
            }
            _ => (Host::docker_hub(), name),
        };
        if path == name && path.len() == 64 && path.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(ParseReferenceError::LooksLikeId(path.to_owned()));
        }
        let repository: Repository = if registry.is_docker_hub() && !path.contains('/') {
            format!("library/{path}")
                .parse()
                .map_err(|_| ParseReferenceError::Repository(quote(path)))?
        } else {
            path.parse()?
        };
        let length = registry.as_str().len() + 1 + repository.as_str().len();
        if length > MAX_NAME {
            return Err(ParseReferenceError::NameTooLong(length));
        }
        Ok(Self { registry, repository, tag, digest })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(r) => r.fmt(f),
            Self::Layout(r) => r.fmt(f),
        }
    }
}

impl fmt::Display for RegistryReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        suffix(f, self.tag.as_ref(), self.digest.as_ref())
    }
}

impl fmt::Display for LayoutReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oci:{}", Path::display(&self.dir))?;
        suffix(f, self.tag.as_ref(), self.digest.as_ref())
    }
}

fn suffix(f: &mut fmt::Formatter<'_>, tag: Option<&Tag>, digest: Option<&Digest>) -> fmt::Result {
    if let Some(tag) = tag {
        write!(f, ":{tag}")?;
    }
    if let Some(digest) = digest {
        write!(f, "@{digest}")?;
    }
    Ok(())
}
