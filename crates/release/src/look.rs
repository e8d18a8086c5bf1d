//! What a registry has: the images of each platform, who signed them, and what says what they need.
//!
//! What the reference names is asked for once; from there on only digests are. Every image that is recorded was read, so
//! that nothing is released that cannot be had.

use futures_util::future;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use portolan_api::release::{CompatibilityRecord, MAX_RESOLVED};
use portolan_compat::artifact::{self, FindError, Found, Image, Subject, Which};
use portolan_compat::requirements::Requirements;
use portolan_core::causes::chain;
use portolan_core::platform::HostPlatform;
use portolan_core::select::{Candidates, NoMatch, select};
use portolan_core::{Descriptor, Digest, Document, Platform, Reference, Target};
use portolan_registry::ErrorClass;
use portolan_registry::client::Fetched;
use portolan_registry::images::{ImageError, Place};
use portolan_verify::collect::Limits;
use portolan_verify::decision::{Answer, Question, no_policy};
use portolan_verify::subjects::{Contents, FindSubjectsError, Missing, PlatformNotFound, Subjects};
use portolan_verify::verify::{UnansweredError, verify_subjects};

use crate::policy::Loaded;
use crate::reason;
use crate::request::Request;

/// Images that are looked at at once; each makes a few requests of its own.
const AT_ONCE: usize = 4;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Which image, for what.
    pub request: &'a Request,
    /// The tag, or the digest that it was.
    pub target: &'a Target,
    /// What it has to pass.
    pub policy: Policy<'a>,
    /// Where it is asked from, for policies that make a difference.
    pub namespace: Option<&'a str>,
    /// When.
    pub now: Timestamp,
}

/// What an image has to pass.
#[derive(Debug, Clone, Copy)]
pub enum Policy<'a> {
    /// Nobody says.
    None,
    /// It is said where, and there is nothing that could be used.
    Unusable {
        /// A word of `reason`.
        reason: &'static str,
        /// A sentence.
        message: &'a str,
    },
    /// This.
    Is(&'a Loaded),
}

/// All that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// `registry/repository`.
    pub repository: String,
    /// What the reference named.
    pub top: Digest,
    /// Whether that is an index.
    pub is_index: bool,
    /// What each platform runs, in the order of the index.
    pub images: Vec<ImageFinding>,
    /// Who signed it.
    pub verification: Verification,
}

/// What one platform runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageFinding {
    /// What it runs on.
    pub platform: Platform,
    /// The manifest.
    pub digest: Digest,
    /// Configuration and layers.
    pub size: u64,
    /// What says what it needs.
    pub compatibility: Option<CompatibilityRecord>,
}

/// Whether an image passes.
#[derive(Debug, Clone, PartialEq)]
pub enum Verification {
    /// Nobody says what it has to pass.
    NoPolicy,
    /// It cannot be told: the policy cannot be used, or the registry did not answer.
    Unknown {
        /// A word of `reason`.
        reason: &'static str,
        /// A sentence.
        message: String,
    },
    /// The answer, by this policy.
    Answered {
        /// The ConfigMap, or the file.
        policy: String,
        /// Of the policy with all that it names.
        digest: Digest,
        /// What it says.
        answer: Box<Answer>,
    },
}

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// Of what the reference names.
    #[error("{what} cannot be read")]
    Read {
        /// As it was asked for.
        what: String,
        /// Why.
        #[source]
        source: Box<ImageError>,
    },
    /// It is not known what is in it.
    #[error(transparent)]
    Subjects(Box<FindSubjectsError>),
    /// It has nothing for some platforms.
    #[error(transparent)]
    NoPlatform(Box<PlatformNotFound>),
    /// It has something, and nothing that runs there.
    #[error("nothing in {top} runs on {platform}")]
    NoMatch {
        /// What was looked into.
        top: Digest,
        /// For whom.
        platform: Platform,
        /// Why each entry lost.
        #[source]
        source: Box<NoMatch>,
    },
    /// It has nothing that runs at all.
    #[error(
        "{top} has nothing that runs anywhere: it is an artifact, or its images name no platform"
    )]
    Nothing {
        /// What was looked into.
        top: Digest,
    },
    /// More than is recorded.
    #[error(
        "{top} has images for {found} platforms, at most {MAX_RESOLVED} are recorded; name those that are meant in spec.platforms"
    )]
    TooMany {
        /// What was looked into.
        top: Digest,
        /// How many.
        found: usize,
    },
    /// An image of the index cannot be read.
    #[error("the image {digest} for {platform} cannot be read, which the index lists")]
    Child {
        /// Which.
        digest: Digest,
        /// For what.
        platform: Platform,
        /// Why.
        #[source]
        source: Box<ImageError>,
    },
    /// The index calls something an image that is none.
    #[error("{digest} for {platform} is an index, and is listed as an image")]
    NotAnImage {
        /// Which.
        digest: Digest,
        /// For what.
        platform: Platform,
    },
}

impl LookError {
    fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Read { source, .. } | Self::Child { source, .. } => Some(source.class()),
            Self::Subjects(error) => Some(error.class()),
            Self::NoPlatform(_)
            | Self::NoMatch { .. }
            | Self::Nothing { .. }
            | Self::TooMany { .. }
            | Self::NotAnImage { .. } => None,
        }
    }

    /// Whether the same may work in a moment: nothing was answered, neither yes nor no.
    pub fn will_pass(&self) -> bool {
        matches!(self.class(), Some(ErrorClass::Transport | ErrorClass::Local))
    }

    /// Whether somebody with another login might have been answered.
    pub fn is_denied(&self) -> bool {
        self.class() == Some(ErrorClass::Denied)
    }

    /// In one word.
    pub fn reason(&self) -> &'static str {
        match (self, self.class()) {
            (_, Some(ErrorClass::Transport | ErrorClass::Local)) => reason::REGISTRY_UNAVAILABLE,
            (_, Some(ErrorClass::Denied)) => reason::ACCESS_DENIED,
            (Self::NoPlatform(_) | Self::NoMatch { .. }, _) => reason::PLATFORM_NOT_FOUND,
            (Self::Read { .. }, Some(ErrorClass::NotFound)) => reason::IMAGE_NOT_FOUND,
            (_, Some(ErrorClass::NotFound)) => reason::IMAGE_INCOMPLETE,
            _ => reason::IMAGE_UNUSABLE,
        }
    }
}

/// Why it cannot be told who signed an image, or what it needs.
#[derive(Debug, thiserror::Error)]
enum ExamineError {
    #[error("it cannot be told who signed it")]
    Verify(#[source] Box<UnansweredError>),
    #[error("it cannot be told what it needs of its host")]
    Compatibility(#[source] Box<FindError>),
}

impl ExamineError {
    fn reason(&self) -> &'static str {
        let class = match self {
            Self::Verify(error) if matches!(**error, UnansweredError::Undecided(_)) => {
                return reason::POLICY_UNDECIDED;
            }
            Self::Verify(error) => Some(error.class()),
            Self::Compatibility(error) => error.class(),
        };
        match class {
            Some(ErrorClass::Transport | ErrorClass::Local) => reason::REGISTRY_UNAVAILABLE,
            Some(ErrorClass::Denied) => reason::ACCESS_DENIED,
            _ => reason::IMAGE_UNUSABLE,
        }
    }
}

/// Looks at an image in `place`. What the reference names is asked for once, and once that and its images are known it
/// is recorded, whatever comes of the rest.
pub async fn look(place: &Place, asked: &Asked<'_>) -> Result<Findings, LookError> {
    let top = place.fetch(Some(asked.target)).await.map_err(|source| LookError::Read {
        what: match asked.target {
            Target::Tag(tag) => format!("{place}:{tag}"),
            Target::Digest(digest) => format!("{place}@{digest}"),
        },
        source: Box::new(source),
    })?;
    let own = top.clone();
    let contents =
        Contents::of(place, top).await.map_err(|error| LookError::Subjects(error.into()))?;
    let found = contents.subjects(&asked.request.wanted(), Missing::Refuse);
    let subjects = found
        .map_err(|error| LookError::Subjects(error.into()))?
        .map_err(|refusal| LookError::NoPlatform(refusal.into()))?;
    let digest = own.descriptor.digest;
    let chosen = choose(digest, contents.candidates(), &asked.request.platforms)?;
    let index = contents.is_index().then_some(digest);
    let mut images = sizes(place, &own, &chosen).await?;
    let examined =
        future::try_join(needs(place, index, &chosen), verify(place, asked, &subjects)).await;
    let verification = match examined {
        Ok((needs, verification)) => {
            for (image, needs) in images.iter_mut().zip(needs) {
                image.compatibility = needs;
            }
            verification
        }
        Err(error) => {
            Verification::Unknown { reason: error.reason(), message: short(&chain(&error)) }
        }
    };
    let (repository, is_index) = (asked.request.repository(), contents.is_index());
    Ok(Findings { repository, top: digest, is_index, images, verification })
}

/// Which images are recorded: for each platform that was asked for the one that runs there, else for each that the
/// image names. An attestation or an artifact runs nowhere.
fn choose(
    top: Digest,
    found: &Candidates,
    wanted: &[Platform],
) -> Result<Vec<(Platform, Descriptor)>, LookError> {
    let mut chosen: Vec<(Platform, Descriptor)> = Vec::new();
    let mut add = |platform: Option<Platform>, descriptor: Descriptor, asked: &Platform| {
        if chosen.iter().all(|(_, known)| known.digest != descriptor.digest) {
            chosen.push((platform.unwrap_or_else(|| asked.clone()).normalised(), descriptor));
        }
    };
    for platform in wanted {
        let selection = select(found, &HostPlatform::named(platform))
            .map_err(|source| LookError::NoMatch { top, platform: platform.clone(), source })?;
        add(selection.platform, selection.chosen, platform);
    }
    if wanted.is_empty() {
        let named: Vec<Platform> =
            found.manifests().filter_map(|(_, platform)| platform.cloned()).collect();
        for platform in named {
            if let Ok(selection) = select(found, &HostPlatform::named(&platform)) {
                add(selection.platform, selection.chosen, &platform);
            }
        }
    }
    match chosen.len() {
        0 => Err(LookError::Nothing { top }),
        few if few <= MAX_RESOLVED => Ok(chosen),
        found => Err(LookError::TooMany { top, found }),
    }
}

async fn sizes(
    place: &Place,
    top: &Fetched,
    chosen: &[(Platform, Descriptor)],
) -> Result<Vec<ImageFinding>, LookError> {
    let read = chosen.iter().map(|(platform, descriptor)| async move {
        let (digest, platform) = (descriptor.digest, platform.clone());
        let fetched = match digest == top.descriptor.digest {
            true => top.clone(),
            false => {
                let read = place.manifest(&Target::Digest(digest)).await;
                read.map_err(|source| LookError::Child {
                    digest,
                    platform: platform.clone(),
                    source: Box::new(source),
                })?
            }
        };
        let Document::Manifest(manifest) = &fetched.document else {
            return Err(LookError::NotAnImage { digest, platform });
        };
        let layers = manifest.layers.iter().map(|layer| layer.size);
        let size = layers.fold(manifest.config.size, u64::saturating_add);
        Ok(ImageFinding { platform, digest, size, compatibility: None })
    });
    stream::iter(read.collect::<Vec<_>>()).buffered(AT_ONCE).try_collect().await
}

/// What says what each image needs. One that nothing speaks of takes what speaks of the index, as agents do.
async fn needs(
    place: &Place,
    index: Option<Digest>,
    chosen: &[(Platform, Descriptor)],
) -> Result<Vec<Option<CompatibilityRecord>>, ExamineError> {
    let own = chosen.iter().map(|(_, descriptor)| needed(place, descriptor.digest));
    let mut found: Vec<_> =
        stream::iter(own.collect::<Vec<_>>()).buffered(AT_ONCE).try_collect().await?;
    if let (Some(index), true) = (index, found.iter().any(Option::is_none)) {
        let shared = needed(place, index).await?;
        for one in found.iter_mut().filter(|one| one.is_none()) {
            one.clone_from(&shared);
        }
    }
    Ok(found)
}

async fn needed(place: &Place, of: Digest) -> Result<Option<CompatibilityRecord>, ExamineError> {
    let image = Image { top: of, manifest: of };
    match artifact::find(place, &image, Subject::Manifest, &Which::Best).await {
        Ok(found) => Ok(Some(record(&found))),
        Err(FindError::NoArtifact { .. }) => Ok(None),
        Err(error) => match error.class() {
            // It is there, and no agent could use it: told in the record, for who attached it.
            Some(ErrorClass::BadInput) => Ok(Some(CompatibilityRecord {
                problem: Some(short(&chain(&error))),
                ..CompatibilityRecord::default()
            })),
            _ => Err(ExamineError::Compatibility(error.into())),
        },
    }
}

fn record(found: &Found) -> CompatibilityRecord {
    let read = Requirements::read(found.contents.kind, &found.spec);
    CompatibilityRecord {
        digest: Some(found.digest.to_string()),
        artifact_type: Some(found.contents.kind.artifact_type().to_owned()),
        problem: read.err().map(|error| short(&chain(&error))),
    }
}

async fn verify(
    place: &Place,
    asked: &Asked<'_>,
    subjects: &Subjects,
) -> Result<Verification, ExamineError> {
    let loaded = match asked.policy {
        Policy::None => return Ok(Verification::NoPolicy),
        Policy::Unusable { reason, message } => {
            return Ok(Verification::Unknown { reason, message: message.to_owned() });
        }
        Policy::Is(loaded) => loaded,
    };
    let reference = Reference::Registry(asked.request.reference.clone());
    let answer = match loaded.policy.rule(&reference) {
        None => no_policy(&reference),
        Some(rule) => {
            let wanted = asked.request.wanted();
            let Asked { namespace, now, .. } = *asked;
            let question =
                Question { reference: &reference, namespace, rule, wanted: &wanted, now };
            let answer = verify_subjects(place, &question, subjects, &Limits::default()).await;
            answer.map_err(|error| ExamineError::Verify(error.into()))?
        }
    };
    let (policy, digest) = (loaded.name.clone(), loaded.digest);
    Ok(Verification::Answered { policy, digest, answer: Box::new(answer) })
}

/// Of what strangers wrote, what a record has room for.
pub(crate) fn short(text: &str) -> String {
    const MOST: usize = 1000;
    match text.len() <= MOST {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(MOST - '…'.len_utf8())]),
    }
}
