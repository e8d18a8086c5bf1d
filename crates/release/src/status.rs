//! From what was found to what is recorded. Pure: no clock, no network.
//!
//! | what was found | Resolved | Verified | Ready |
//! |---|---|---|---|
//! | images, and the policy lets them in | True | True | True |
//! | images, and the policy does not | True | False | False, or True where nobody requires it |
//! | images, and no policy | True | Unknown, `NoPolicy` | False, or True where nobody requires it |
//! | images, and nobody can tell | True | Unknown | False: what was asked for is waited for |
//! | nothing, for good | False | Unknown | False |
//! | nothing, for the moment | Unknown | Unknown | Unknown |
//!
//! A Release that is Ready and follows its tag stays what it was until what comes is Ready too.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::condition::{self, Condition, Status};
use portolan_api::k8s_openapi;
use portolan_api::release::{
    Candidate, MAX_HISTORY, MAX_SIGNERS, Past, PastImage, PolicyRecord, READY, RESOLVED, Release,
    ReleaseStatus, ResolvedImage, Signer, VERIFIED,
};
use portolan_core::causes::chain;
use portolan_verify::decision::{Answer, Verdict};

use crate::look::{Findings, ImageFinding, LookError, Verification, short};
use crate::objections::objections;
use crate::reason;
use crate::request::RequestError;

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The spec cannot be meant.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Of the registry.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The registry does not show it, and logins that might have helped could not be used.
    #[error("{}", notes.join("; "))]
    Denied {
        /// Why each login was passed over.
        notes: Vec<String>,
        /// What the registry says.
        #[source]
        source: LookError,
    },
    /// It took too long.
    #[error("the registry has not answered all that was asked for {seconds} s")]
    Late {
        /// So long.
        seconds: u64,
    },
}

impl Refusal {
    /// Whether the same may work in a moment.
    pub fn will_pass(&self) -> bool {
        match self {
            Self::Request(_) => false,
            Self::Look(error) => error.will_pass(),
            Self::Denied { .. } => false,
            Self::Late { .. } => true,
        }
    }

    /// Says with a login that was not let in which others could not be used.
    #[must_use]
    pub fn with_notes(self, notes: &[String]) -> Self {
        match self {
            Self::Look(source) if source.is_denied() && !notes.is_empty() => {
                Self::Denied { notes: notes.to_vec(), source }
            }
            other => other,
        }
    }

    /// In one word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Request(_) => reason::INVALID_SPEC,
            Self::Look(error) => error.reason(),
            Self::Denied { source, .. } => source.reason(),
            Self::Late { .. } => reason::REGISTRY_UNAVAILABLE,
        }
    }
}

/// A condition before it is put beside those that were.
type Verdicts = (Status, &'static str, String);

/// The status after a look.
pub fn after(release: &Release, found: &Result<Findings, Refusal>, now: &Time) -> ReleaseStatus {
    let old = release.status.clone().unwrap_or_default();
    let generation = release.metadata.generation;
    let same_spec = old.observed_generation == generation;
    let follows = release.spec.track && is_ready(&old) && same_spec;
    match found {
        Ok(findings) => {
            let new = record(release, &old, findings, now);
            match old.digest == new.digest {
                // The tag is where it was; what is recorded of it stays.
                true if follows => ReleaseStatus { candidate: None, ..old },
                _ if follows && !is_ready(&new) => {
                    let ready = condition::find(&new.conditions, READY).cloned();
                    let (reason, message) =
                        ready.map(|one| (one.reason, one.message)).unwrap_or_default();
                    stay(old, new.digest, &reason, message, now)
                }
                _ => new,
            }
        }
        Err(refusal) if follows => match refusal.will_pass() {
            // What it is stays true while nobody answers.
            true => old,
            false => stay(old, None, refusal.reason(), short(&chain(refusal)), now),
        },
        Err(refusal) => refused(release, &old, refusal, now),
    }
}

/// Whether it may be run.
pub fn is_ready(status: &ReleaseStatus) -> bool {
    condition::holds(&status.conditions, READY)
}

/// Stays what it was, and says why.
fn stay(
    old: ReleaseStatus,
    digest: Option<String>,
    reason: &str,
    message: String,
    now: &Time,
) -> ReleaseStatus {
    let same = |one: &&Candidate| one.digest == digest && one.reason == reason;
    let candidate = match old.candidate.as_ref().filter(same) {
        Some(known) => known.clone(),
        None => Candidate { digest, reason: reason.to_owned(), message, since: Some(now.clone()) },
    };
    ReleaseStatus { candidate: Some(candidate), ..old }
}

/// What was found, as a whole.
fn record(
    release: &Release,
    old: &ReleaseStatus,
    findings: &Findings,
    now: &Time,
) -> ReleaseStatus {
    let top = findings.top.to_string();
    let same = old.digest.as_ref() == Some(&top) && old.image.as_ref() == Some(&release.spec.image);
    let resolved_at = old.resolved_at.clone().filter(|_| same).or_else(|| Some(now.clone()));
    let images = findings.images.len();
    let platforms = if images == 1 { "platform" } else { "platforms" };
    let resolved = format!("{} is {top}, with images for {images} {platforms}", release.spec.image);
    let verified = verified(&findings.verification);
    let ready = ready(&verified, release.spec.require_verification);
    let now_ready = (ready.0 == Status::True).then_some(top.as_str());
    let history = history(old, now_ready, now);
    let verdicts = [
        (RESOLVED, (Status::True, reason::RESOLVED, resolved)),
        (VERIFIED, verified),
        (READY, ready),
    ];
    let (answer, policy) = match &findings.verification {
        Verification::Answered { policy, digest, answer } => {
            let record = PolicyRecord {
                name: policy.clone(),
                digest: digest.to_string(),
                rule: answer.policy.as_deref().map(short),
            };
            (Some(answer.as_ref()), Some(record))
        }
        _ => (None, None),
    };
    let of = |digest: &str| answer.map(|answer| signers(answer, digest)).unwrap_or_default();
    let image = |one: &ImageFinding| ResolvedImage {
        platform: one.platform.to_string(),
        digest: one.digest.to_string(),
        size: i64::try_from(one.size).unwrap_or(i64::MAX),
        verified_by: of(&one.digest.to_string()),
        compatibility: one.compatibility.clone(),
    };
    ReleaseStatus {
        observed_generation: release.metadata.generation,
        conditions: conditions(release, old, verdicts, now),
        image: Some(release.spec.image.clone()),
        repository: Some(findings.repository.clone()),
        digest: Some(top.clone()),
        index_digest: findings.is_index.then(|| top.clone()),
        resolved_at,
        policy,
        verified_by: of(&top),
        resolved: findings.images.iter().map(image).collect(),
        candidate: None,
        history,
    }
}

/// What was Ready and is so no more comes first, the oldest are forgotten; what is Ready once more is no past.
fn history(old: &ReleaseStatus, ready: Option<&str>, now: &Time) -> Vec<Past> {
    let mut history = old.history.clone();
    let was = old.digest.as_ref().zip(old.image.as_ref()).filter(|_| is_ready(old));
    match was {
        Some((digest, image)) if ready != Some(digest) => {
            let past = |one: &ResolvedImage| PastImage {
                platform: one.platform.clone(),
                digest: one.digest.clone(),
            };
            history.insert(
                0,
                Past {
                    image: image.clone(),
                    digest: digest.clone(),
                    resolved_at: old.resolved_at.clone(),
                    replaced_at: Some(now.clone()),
                    resolved: old.resolved.iter().map(past).collect(),
                },
            );
        }
        None if history.first().map(|past| past.digest.as_str()) == ready && ready.is_some() => {
            history.remove(0);
        }
        _ => {}
    }
    // While nothing is Ready, the first may become so once more and leave: the ten stay whole beside it.
    history.truncate(MAX_HISTORY + usize::from(ready.is_none()));
    history
}

fn verified(verification: &Verification) -> Verdicts {
    match verification {
        Verification::NoPolicy => {
            let message = "spec.policy names no policy, so nobody has looked for signatures";
            (Status::Unknown, reason::NO_POLICY, message.to_owned())
        }
        Verification::Unknown { reason, message } => (Status::Unknown, *reason, message.clone()),
        Verification::Answered { policy, answer, .. } => match answer.verdict {
            Verdict::Verified => {
                let rule = answer.policy.as_deref().unwrap_or("default");
                let message = format!("everything that {rule:?} of {policy} asks for is there");
                (Status::True, reason::VERIFIED, message)
            }
            Verdict::Refused => (Status::False, reason::NOT_VERIFIED, short(&objections(answer))),
            Verdict::NoPolicy => (Status::Unknown, reason::NO_POLICY, short(&objections(answer))),
        },
    }
}

/// Everybody whose signature of this very digest counts, each once.
fn signers(answer: &Answer, digest: &str) -> Vec<Signer> {
    let own = answer.subjects.iter().filter(|one| one.digest.to_string() == digest);
    let signed = own.flat_map(|one| &one.signatures).filter(|one| one.accepted);
    let mut signers: Vec<Signer> = Vec::new();
    for one in signed.filter(|one| one.predicate_type.is_none()) {
        let signer = Signer {
            name: short(&one.signer),
            identity: one.identity.as_deref().map(short),
            issuer: one.issuer.as_deref().map(short),
        };
        if signers.len() < MAX_SIGNERS && !signers.contains(&signer) {
            signers.push(signer);
        }
    }
    signers
}

/// Nobody who requires verification runs what is not verified; who does not still waits for a policy that they named.
fn ready(verified: &Verdicts, required: bool) -> Verdicts {
    let (status, why, message) = (verified.0, verified.1, &verified.2);
    match (status, required) {
        (Status::True, _) => (Status::True, reason::READY, "resolved and verified".to_owned()),
        (Status::False, false) => {
            let message = format!("it is not verified, which is not required: {message}");
            (Status::True, reason::VERIFICATION_NOT_REQUIRED, message)
        }
        (Status::Unknown, false) if why == reason::NO_POLICY => {
            let message = format!("it is not verified, which is not required: {message}");
            (Status::True, reason::VERIFICATION_NOT_REQUIRED, message)
        }
        (Status::Unknown, _) if reason::will_pass(why) => (Status::Unknown, why, message.clone()),
        (Status::Unknown, true) if why == reason::NO_POLICY => {
            let hint = "; name one, or set spec.requireVerification to false";
            (Status::False, why, format!("{message}{hint}"))
        }
        (Status::Unknown | Status::False, _) => (Status::False, why, message.clone()),
    }
}

/// Nothing was found. What was resolved before stays recorded: it was asked for once, and is not again. Of another image
/// only the history stays.
fn refused(release: &Release, old: &ReleaseStatus, refusal: &Refusal, now: &Time) -> ReleaseStatus {
    let status = if refusal.will_pass() { Status::Unknown } else { Status::False };
    let (reason, message) = (refusal.reason(), short(&chain(refusal)));
    let waits = "it is not known yet what has to be verified".to_owned();
    let verdicts = [
        (RESOLVED, (status, reason, message.clone())),
        (VERIFIED, (Status::Unknown, reason::NOT_RESOLVED, waits)),
        (READY, (status, reason, message)),
    ];
    let same = old.image.as_ref() == Some(&release.spec.image);
    let kept = if same { old.clone() } else { ReleaseStatus::default() };
    ReleaseStatus {
        observed_generation: release.metadata.generation,
        conditions: conditions(release, old, verdicts, now),
        candidate: None,
        history: history(old, None, now),
        ..kept
    }
}

/// The three of them. A time changes with the status alone; and where a registry fails in ever other words, those of
/// the first time stay, so that nothing is written for it.
fn conditions(
    release: &Release,
    old: &ReleaseStatus,
    verdicts: [(&'static str, Verdicts); 3],
    now: &Time,
) -> Vec<Condition> {
    let generation = release.metadata.generation;
    let condition = |(kind, (status, reason, message)): (&str, Verdicts)| {
        let same = |one: &&Condition| {
            one.status == status
                && one.reason == reason
                && one.observed_generation == generation
                && reason::will_pass(reason)
        };
        let before = condition::find(&old.conditions, kind).filter(same);
        let new = Condition {
            kind: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: before.map_or(message, |one| one.message.clone()),
            last_transition_time: None,
            observed_generation: generation,
        };
        new.since(&old.conditions, now)
    };
    verdicts.map(condition).into()
}

/// Something that people are told once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// Whether something is wrong.
    pub warning: bool,
    /// A word of `reason`.
    pub reason: String,
    /// A sentence.
    pub note: String,
}

/// What is new between two statuses.
pub fn news(old: Option<&ReleaseStatus>, new: &ReleaseStatus) -> Vec<News> {
    let before = old.cloned().unwrap_or_default();
    let mut news = Vec::new();
    let mut tell = |warning, reason: &str, note: String| {
        news.push(News { warning, reason: reason.to_owned(), note });
    };
    if let (Some(was), Some(is)) = (&before.digest, &new.digest)
        && was != is
        && is_ready(&before)
    {
        tell(false, reason::MOVED, format!("it was {was} and is {is} now"));
    }
    for kind in [RESOLVED, VERIFIED, READY] {
        let was = condition::find(&before.conditions, kind);
        let Some(is) = condition::find(&new.conditions, kind) else { continue };
        let same = was.is_some_and(|was| (was.status, &was.reason) == (is.status, &is.reason));
        // What is not known yet is no news, nor is that it is not Ready, which one of the others says with its reason.
        match (kind, is.status) {
            _ if same => {}
            (_, Status::True) => tell(false, &is.reason, is.message.clone()),
            (RESOLVED | VERIFIED, Status::False) => tell(true, &is.reason, is.message.clone()),
            (VERIFIED, Status::Unknown) if is.reason != reason::NOT_RESOLVED => {
                tell(true, &is.reason, is.message.clone());
            }
            _ => {}
        }
    }
    if let Some(candidate) =
        new.candidate.as_ref().filter(|one| Some(*one) != before.candidate.as_ref())
    {
        let where_to = candidate.digest.as_deref().unwrap_or("nothing");
        let note =
            format!("the tag is {where_to} now, which is not followed: {}", candidate.message);
        tell(true, reason::NOT_FOLLOWED, note);
    }
    news
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
