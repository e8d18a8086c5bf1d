//! From a reference to what has to be signed, resolved once.

use std::collections::BTreeSet;
use std::fmt;

use portolan_core::platform::PartialPlatform;
use portolan_core::select::{Candidates, may_run_on};
use portolan_core::{Descriptor, Digest, Document, Platform, Target};
use portolan_registry::ErrorClass;
use portolan_registry::client::Fetched;
use portolan_registry::images::{Place, ResolveError, candidates};

use crate::subject::{Kind, Subject};

/// More manifests than this no image has for the machines of one question; each costs requests.
pub const MAX_SUBJECTS: usize = 128;

/// Entries of an index and of those inside it, of whatever kind. What is known of each is kept.
pub const MAX_ENTRIES: usize = 1000;

/// Bytes of one word of a platform, and features of one. Real ones have less than half of that.
const MAX_WORD: usize = 64;
const MAX_FEATURES: usize = 64;

/// The machines that an image is to run on. Never none: then nothing would have to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted(BTreeSet<PartialPlatform>);

impl Wanted {
    /// Every machine that the image has something for.
    pub fn all() -> Self {
        Self(BTreeSet::from([PartialPlatform::any()]))
    }

    /// These machines; none where there are none.
    pub fn of(platforms: impl IntoIterator<Item = PartialPlatform>) -> Option<Self> {
        let platforms: BTreeSet<_> = platforms.into_iter().collect();
        (!platforms.is_empty()).then_some(Self(platforms))
    }

    /// In order.
    pub fn platforms(&self) -> impl Iterator<Item = &PartialPlatform> {
        self.0.iter()
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&shown.join(", "))
    }
}

/// What to do about a machine that the image has nothing for, while it has something for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// Refuse.
    #[default]
    Refuse,
    /// Leave it out: it could not pull anything.
    Ignore,
}

/// What has to be signed of one image. There is always something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subjects {
    /// None where the reference names one image.
    index: Option<Subject>,
    /// Each digest once, at least one.
    manifests: Vec<Subject>,
    /// What else is in the index, for machines that nobody asked about.
    others: Vec<Platform>,
}

impl Subjects {
    /// An index and images of it, or one image; none where there is no image.
    pub fn of(index: Option<Subject>, manifests: Vec<Subject>) -> Option<Self> {
        (!manifests.is_empty()).then_some(Self { index, manifests, others: Vec::new() })
    }

    /// The index, where there is one.
    pub fn index(&self) -> Option<&Subject> {
        self.index.as_ref()
    }

    /// Every image that one of the machines might run.
    pub fn manifests(&self) -> &[Subject] {
        &self.manifests
    }

    /// Index and images.
    pub fn iter(&self) -> impl Iterator<Item = &Subject> {
        self.index.iter().chain(&self.manifests)
    }

    /// What the reference named: pin this.
    pub fn top(&self) -> &Descriptor {
        let first = self.index.as_ref().or_else(|| self.manifests.first());
        &first.expect("there is at least one image").descriptor
    }

    /// For which other machines the index has images.
    pub fn others(&self) -> &[Platform] {
        &self.others
    }
}

/// The image has nothing for these machines. A refusal, not a breakdown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{top} has nothing for {}; it has {}", join(missing), join(has))]
pub struct PlatformNotFound {
    /// The index.
    pub top: Digest,
    /// As asked for.
    pub missing: Vec<PartialPlatform>,
    /// What the index has.
    pub has: Vec<Platform>,
}

fn join(list: &[impl ToString]) -> String {
    match list {
        [] => "nothing that runs".to_owned(),
        list => {
            let shown: Vec<_> = list.iter().take(40).map(ToString::to_string).collect();
            let more = list.len().saturating_sub(40);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            shown.join(", ") + &more
        }
    }
}

/// Why it is not known what has to be signed.
#[derive(Debug, thiserror::Error)]
pub enum FindSubjectsError {
    /// Something that had to be looked at cannot be read.
    #[error(transparent)]
    Read(#[from] ResolveError),
    /// Nobody looks that deep.
    #[error(
        "the index {top} holds the index {inner}, which was not opened: too many or too deep, or inside itself; name the image by its own digest"
    )]
    Unopened {
        /// The outermost.
        top: Digest,
        /// The one inside.
        inner: Digest,
    },
    /// An index that would keep a verifier busy for long.
    #[error(
        "the index {top} has {found} images for these machines, at most {MAX_SUBJECTS} are verified; name fewer platforms"
    )]
    TooMany {
        /// The index.
        top: Digest,
        /// How many.
        found: usize,
    },
    /// An index that would fill a verifier's memory.
    #[error("the index {top} has {found} entries, at most {MAX_ENTRIES} are looked at")]
    TooManyEntries {
        /// The index.
        top: Digest,
        /// How many, with those of the indexes inside it.
        found: usize,
    },
    /// No machine is called that.
    #[error(
        "the platform of {digest} has a word longer than {MAX_WORD} bytes or more than {MAX_FEATURES} features"
    )]
    LongPlatform {
        /// The image.
        digest: Digest,
    },
}

impl FindSubjectsError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Read(error) => error.class().unwrap_or(ErrorClass::BadInput),
            Self::Unopened { .. }
            | Self::TooMany { .. }
            | Self::TooManyEntries { .. }
            | Self::LongPlatform { .. } => ErrorClass::BadInput,
        }
    }
}

/// Resolves `target` once and finds everything in it that has to be signed.
pub async fn find(
    place: &Place,
    target: Option<&Target>,
    wanted: &Wanted,
    missing: Missing,
) -> Result<Result<Subjects, PlatformNotFound>, FindSubjectsError> {
    let top = place.fetch(target).await.map_err(ResolveError::Read)?;
    Contents::of(place, top).await?.subjects(wanted, missing)
}

/// What an image has, for whichever machines: it depends on its digest alone, so it may be kept.
#[derive(Debug, Clone)]
pub struct Contents {
    top: Descriptor,
    is_index: bool,
    found: Candidates,
}

impl Contents {
    /// Looks into `top`, which came from `place`.
    pub async fn of(place: &Place, top: Fetched) -> Result<Self, FindSubjectsError> {
        let digest = top.descriptor.digest;
        few(digest, top.document.children().len())?;
        let found = candidates(place, &top).await?;
        few(digest, found.listed())?;
        if let Some((entry, _)) = found.platforms().find(|(_, platform)| is_long(platform)) {
            return Err(FindSubjectsError::LongPlatform { digest: entry.digest });
        }
        let is_index = matches!(top.document, Document::Index(_));
        Ok(Self { top: top.descriptor, is_index, found })
    }

    /// What the reference named.
    pub fn top(&self) -> &Descriptor {
        &self.top
    }

    /// Whether that is an index.
    pub fn is_index(&self) -> bool {
        self.is_index
    }

    /// All that can be chosen from.
    pub fn candidates(&self) -> &Candidates {
        &self.found
    }

    /// About how many bytes it takes, for who keeps it.
    pub fn bytes(&self) -> usize {
        let platforms = self.found.platforms().map(|(_, platform)| words(platform).sum::<usize>());
        let entries = self.found.descriptors().map(weight);
        weight(&self.top) + entries.chain(platforms).sum::<usize>()
    }

    /// What of it has to be signed for these machines.
    pub fn subjects(
        &self,
        wanted: &Wanted,
        missing: Missing,
    ) -> Result<Result<Subjects, PlatformNotFound>, FindSubjectsError> {
        match self.is_index {
            false => Ok(Ok(single(self.top.clone(), &self.found))),
            true => choose(self.top.clone(), &self.found, wanted, missing),
        }
    }
}

fn few(top: Digest, found: usize) -> Result<(), FindSubjectsError> {
    match found <= MAX_ENTRIES {
        true => Ok(()),
        false => Err(FindSubjectsError::TooManyEntries { top, found }),
    }
}

/// About how many bytes a descriptor takes. Strangers choose what is in it.
fn weight(entry: &Descriptor) -> usize {
    let texts = [Some(&entry.media_type), entry.artifact_type.as_ref(), entry.data.as_ref()];
    let texts = texts.into_iter().flatten().chain(&entry.urls).map(String::len);
    let annotations = entry.annotations.iter().map(|(name, value)| 64 + name.len() + value.len());
    512 + texts.chain(annotations).sum::<usize>()
}

fn words(platform: &Platform) -> impl Iterator<Item = usize> {
    let Platform { os, architecture, variant, os_version, os_features } = platform;
    let words = [Some(os), Some(architecture), variant.as_ref(), os_version.as_ref()];
    words.into_iter().flatten().chain(os_features).map(|word| 24 + word.len())
}

fn is_long(platform: &Platform) -> bool {
    let Platform { os, architecture, variant, os_version, os_features } = platform;
    let words = [Some(os), Some(architecture), variant.as_ref(), os_version.as_ref()];
    let mut words = words.into_iter().flatten().chain(os_features);
    os_features.len() > MAX_FEATURES || words.any(|word| word.len() > MAX_WORD)
}

/// One image is its own only subject, whatever was asked for: runtimes do not look at its platform
/// either.
fn single(descriptor: Descriptor, found: &Candidates) -> Subjects {
    let platform = found.manifests().find_map(|(_, platform)| platform.cloned());
    let manifest = Subject { descriptor, kind: Kind::Manifest, platform };
    Subjects { index: None, manifests: vec![manifest], others: Vec::new() }
}

fn choose(
    descriptor: Descriptor,
    found: &Candidates,
    wanted: &Wanted,
    missing: Missing,
) -> Result<Result<Subjects, PlatformNotFound>, FindSubjectsError> {
    let top = descriptor.digest;
    if let Some(inner) = found.unopened() {
        return Err(FindSubjectsError::Unopened { top, inner: inner.digest });
    }
    let mut seen = BTreeSet::new();
    let (mut manifests, mut absent) = (Vec::new(), Vec::new());
    for platform in wanted.platforms() {
        let fitting = may_run_on(found, platform);
        if fitting.is_empty() {
            absent.push(platform.clone());
        }
        let new = fitting.into_iter().filter(|(entry, _)| seen.insert(entry.digest));
        manifests.extend(new.map(|(entry, platform)| Subject {
            descriptor: entry.clone(),
            kind: Kind::Manifest,
            platform: platform.cloned(),
        }));
    }
    let runnable = may_run_on(found, &PartialPlatform::any());
    if manifests.is_empty() || (missing == Missing::Refuse && !absent.is_empty()) {
        let has = platforms(runnable.into_iter().filter_map(|(_, platform)| platform));
        return Ok(Err(PlatformNotFound { top, missing: absent, has }));
    }
    if manifests.len() > MAX_SUBJECTS {
        return Err(FindSubjectsError::TooMany { top, found: manifests.len() });
    }
    let others = runnable.into_iter().filter(|(entry, _)| !seen.contains(&entry.digest));
    let others = platforms(others.filter_map(|(_, platform)| platform));
    let index = Subject { descriptor, kind: Kind::Index, platform: None };
    Ok(Ok(Subjects { index: Some(index), manifests, others }))
}

fn platforms<'a>(of: impl Iterator<Item = &'a Platform>) -> Vec<Platform> {
    of.map(Platform::normalised).collect::<BTreeSet<_>>().into_iter().collect()
}
