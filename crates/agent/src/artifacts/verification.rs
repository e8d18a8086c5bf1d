//! Who signed what is about to run, checked before each start.
//!
//! The index that the spec names and the very manifest that runs, by the policy of `portolan
//! verify`. What was verified counts for a short while, for this policy and the keys it names, so
//! that starts do not wait for a registry that was asked just before; a no, and what could not be
//! told, is looked at anew each time.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use portolan_core::causes::chain;
use portolan_core::platform::PartialPlatform;
use portolan_core::{Descriptor, Digest, Reference, Target};
use portolan_registry::ErrorClass;
use portolan_registry::client::Client;
use portolan_registry::images::{Place, ResolveError, candidates};
use portolan_release::objections;
use portolan_verify::collect::Limits;
use portolan_verify::decision::{Answer, Question, Verdict};
use portolan_verify::policy::{self, LoadPolicyError, Policy};
use portolan_verify::subject::{Kind, Subject};
use portolan_verify::subjects::{Subjects, Wanted};
use portolan_verify::verify::{UnansweredError, verify_subjects};

use super::gate::{Candidate, Gate, Refusal};
use crate::config::{Config, PullConfig, VerificationMode};
use crate::image::ResolvedImage;
use crate::reason::Reason;

/// So long a yes counts; so long a signer that was dropped elsewhere than in the policy goes unseen.
const FRESH: Duration = Duration::from_secs(60);
/// Images that are remembered; a host starts fewer in a minute.
const MAX_REMEMBERED: usize = 1024;

/// The policy lets this image run.
pub struct VerificationGate {
    mode: VerificationMode,
    policy: PathBuf,
    client: Client,
    retries: u32,
    backoff: Duration,
    verified: Mutex<HashMap<Verified, Instant>>,
}

/// What was verified: these digests, there, by this policy with its keys and roots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Verified {
    repository: String,
    index: Option<Digest>,
    manifest: Digest,
    policy: Digest,
}

/// Why an image is not let in.
#[derive(Debug, thiserror::Error)]
enum Objection {
    /// It does not pass.
    #[error("{0}")]
    Refused(String),
    /// The policy cannot be used.
    #[error("the policy that it would have to pass cannot be used")]
    Policy(#[source] LoadPolicyError),
    /// It cannot be told what the index is.
    #[error("whether {digest} may run cannot be told")]
    Read {
        digest: Digest,
        #[source]
        source: ResolveError,
    },
    /// It cannot be told who signed it, or the policy did not decide.
    #[error("whether {digest} may run cannot be told")]
    Unanswered {
        digest: Digest,
        #[source]
        source: UnansweredError,
    },
}

impl Objection {
    fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Refused(_) | Self::Policy(_) => None,
            Self::Read { source, .. } => source.class(),
            Self::Unanswered { source, .. } => Some(source.class()),
        }
    }

    /// The network or the registry failed, or a policy had no time to decide: the same may work in a
    /// moment.
    fn will_pass(&self) -> bool {
        match self {
            Self::Unanswered { source: UnansweredError::Undecided(_), .. } => true,
            _ => self.class() == Some(ErrorClass::Transport),
        }
    }

    /// A no is kept by who asked, and what will pass is tried again.
    fn reason(&self) -> Reason {
        match self {
            Self::Unanswered { source: UnansweredError::Undecided(_), .. } => {
                Reason::VerificationUndecided
            }
            _ if self.will_pass() => Reason::ImagePullFailed,
            _ => Reason::VerificationFailed,
        }
    }
}

impl std::fmt::Debug for VerificationGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerificationGate").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl VerificationGate {
    /// A gate as configured; none where there is no policy. A policy that cannot be used is an error
    /// now and not at the first start.
    pub fn new(config: &Config, client: &Client) -> Result<Option<Self>, LoadPolicyError> {
        let Some(policy) = config.verification.policy.clone() else { return Ok(None) };
        policy::load(&policy)?;
        let PullConfig { retries, backoff, .. } = &config.pull;
        Ok(Some(Self {
            mode: config.verification.mode,
            policy,
            client: client.clone(),
            retries: *retries,
            backoff: backoff.0,
            verified: Mutex::default(),
        }))
    }

    async fn verify(&self, image: &ResolvedImage) -> Result<(), Objection> {
        let (fingerprint, policy) = self.policy().await?;
        let key = Verified {
            repository: format!("{}/{}", image.registry, image.repository),
            index: image.index_digest,
            manifest: image.resolved_digest,
            policy: fingerprint,
        };
        if self.remembered().get(&key).is_some_and(|since| since.elapsed() < FRESH) {
            return Ok(());
        }
        let mut attempt = 0;
        loop {
            match self.look(image, &policy).await {
                Err(objection) if objection.will_pass() && attempt < self.retries => {
                    attempt += 1;
                    tokio::time::sleep(self.backoff).await;
                }
                Err(objection) => return Err(objection),
                Ok(()) => break,
            }
        }
        let mut verified = self.remembered();
        verified.retain(|_, since| since.elapsed() < FRESH);
        if verified.len() < MAX_REMEMBERED {
            verified.insert(key, Instant::now());
        }
        Ok(())
    }

    /// The policy as it is now, and what it is called by.
    async fn policy(&self) -> Result<(Digest, Policy), Objection> {
        let path = self.policy.clone();
        let read = tokio::task::spawn_blocking(move || policy::load_with_fingerprint(&path)).await;
        let (fingerprint, policy) =
            read.map_err(|error| Objection::Refused(format!("the policy was not read: {error}")))?;
        let policy = policy.map_err(Objection::Policy)?;
        let unread = || Objection::Refused("the policy was not read".to_owned());
        Ok((fingerprint.ok_or_else(unread)?, policy))
    }

    async fn look(&self, image: &ResolvedImage, policy: &Policy) -> Result<(), Objection> {
        let reference = Reference::Registry(image.reference());
        let Some(rule) = policy.rule(&reference) else {
            let what = format!("no scope of the policy matches {reference}, and it has no default");
            return Err(Objection::Refused(what));
        };
        let place = Place::Remote(self.client.repository(&image.registry, &image.repository));
        let subjects = subjects(&place, image).await?;
        let wanted =
            Wanted::of([PartialPlatform::from(&image.platform)]).unwrap_or_else(Wanted::all);
        let now = Timestamp::now();
        let question =
            Question { reference: &reference, namespace: None, rule, wanted: &wanted, now };
        let digest = image.resolved_digest;
        let answer = verify_subjects(&place, &question, &subjects, &Limits::default()).await;
        let answer = answer.map_err(|source| Objection::Unanswered { digest, source })?;
        match answer.verdict {
            Verdict::Verified => Ok(()),
            Verdict::Refused | Verdict::NoPolicy => Err(Objection::Refused(told(&answer))),
        }
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<Verified, Instant>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The index that the spec names, if it does, and the image that runs, which must be in it.
async fn subjects(place: &Place, image: &ResolvedImage) -> Result<Subjects, Objection> {
    let digest = image.resolved_digest;
    let read = |source| Objection::Read { digest, source: ResolveError::Read(source) };
    let subject = |descriptor: Descriptor, kind, platform| Subject { descriptor, kind, platform };
    let platform = Some(image.platform.clone());
    let (index, manifest) = match image.index_digest {
        None => (None, place.resolve(Some(&Target::Digest(digest))).await.map_err(read)?),
        Some(index) => {
            let top = place.manifest(&Target::Digest(index)).await.map_err(read)?;
            let found = candidates(place, &top).await;
            let found = found.map_err(|source| Objection::Read { digest, source })?;
            let own = found.manifests().find(|(entry, _)| entry.digest == digest);
            let Some((manifest, _)) = own else {
                let what = format!("the index {index} does not list the image {digest}");
                return Err(Objection::Refused(what));
            };
            (Some(subject(top.descriptor, Kind::Index, None)), manifest.clone())
        }
    };
    let manifest = subject(manifest, Kind::Manifest, platform);
    let nothing = || Objection::Refused(format!("there is nothing to verify in {digest}"));
    Subjects::of(index, vec![manifest]).ok_or_else(nothing)
}

fn told(answer: &Answer) -> String {
    format!("{} does not pass the policy: {}", answer.reference, objections(answer))
}

impl Gate for VerificationGate {
    fn check<'a>(&'a self, candidate: Candidate<'a>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Err(objection) = self.verify(candidate.image).await else { return Ok(()) };
            let message = chain(&objection);
            if self.mode == VerificationMode::Enforce {
                return Err(Refusal { reason: objection.reason(), message });
            }
            tracing::warn!(image = %candidate.image.reference(), message, "started all the same");
            Ok(())
        })
    }
}
