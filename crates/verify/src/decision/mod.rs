//! From judgements to an answer. Pure: no clock, no network, no files.
//!
//! What must be there is asked of every subject by itself; the index policy puts them together.
//! Nothing here turns a no into a yes for lack of something: an empty list of subjects, votes or
//! statements is a no.

mod answer;
mod documents;
mod quorum;
#[cfg(test)]
mod tests;
mod weaknesses;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use portolan_core::Reference;

pub(crate) use answer::shown;
pub use answer::{
    Answer, Reason, ReasonCode, SignatureAnswer, SubjectAnswer, Undecided, Verdict, Warning,
};
pub use documents::{Finding, findings_in_sbom};
pub use weaknesses::findings_in_weaknesses;

use self::quorum::{Vote, unmet};
use crate::authority::{Accepted, Claim, Judgement};
use crate::collect::{Collected, PassedOver};
use crate::evidence::{Carrier, Evidence, SignatureKind};
use crate::policy::{AttestationRule, IndexPolicy, Requirement, Rule};
use crate::rego::{Input, RegoPolicy, Ruling, SubjectFacts};
use crate::subject::{Kind, Subject};
use crate::subjects::{PlatformNotFound, Subjects, Wanted};

/// What a signer of the policy says of one piece of evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The artifact it came in.
    pub artifact: portolan_core::Digest,
    /// How that was found.
    pub carrier: Carrier,
    /// How it is kept.
    pub kind: SignatureKind,
    /// A name of the policy.
    pub signer: String,
    /// What they say.
    pub judgement: Judgement,
}

/// A subject and all that is known of it.
#[derive(Debug, Clone)]
pub struct Examined {
    /// Which.
    pub subject: Subject,
    /// Every piece of evidence by everybody who reads it.
    pub judged: Vec<Judged>,
    /// Documents that are attached without a signature.
    pub documents: Vec<Evidence>,
    /// What was there and does not count.
    pub passed_over: Vec<PassedOver>,
}

impl Examined {
    /// Asks every signer of `rule` about everything that was found.
    pub fn new(rule: &Rule, subject: Subject, found: Collected, now: Timestamp) -> Self {
        let Collected { evidence, mut passed_over } = found;
        let (mut judged, mut documents) = (Vec::new(), Vec::new());
        for piece in evidence {
            let Some(kind) = piece.content.kind() else {
                documents.push(piece);
                continue;
            };
            let before = judged.len();
            for signer in &rule.signers {
                let judgement = signer.authority.judge(&subject, &piece, now);
                judged.extend(judgement.map(|judgement| Judged {
                    artifact: piece.artifact,
                    carrier: piece.carrier.clone(),
                    kind,
                    signer: signer.name.clone(),
                    judgement,
                }));
            }
            if judged.len() == before {
                let why = "no signer of the policy reads signatures of its kind".to_owned();
                passed_over.push(PassedOver { artifact: piece.artifact, why });
            }
        }
        Self { subject, judged, documents, passed_over }
    }

    /// Everything that a signer accepted.
    fn accepted(&self) -> impl Iterator<Item = (&str, &Accepted)> {
        self.judged.iter().filter_map(|judged| match &judged.judgement {
            Judgement::Accepted(accepted) => Some((judged.signer.as_str(), accepted)),
            Judgement::Refused(_) => None,
        })
    }
}

/// What of `image` has to be examined under `policy`.
pub fn needed(image: &Subjects, policy: IndexPolicy) -> Vec<&Subject> {
    let counts = |subject: &&Subject| match (policy, image.index()) {
        (IndexPolicy::Index, Some(_)) => subject.kind == Kind::Index,
        (IndexPolicy::Platform, _) => subject.kind == Kind::Manifest,
        (IndexPolicy::Both | IndexPolicy::Any | IndexPolicy::Index, _) => true,
    };
    image.iter().filter(counts).collect()
}

/// What is asked, beside the image.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// As it was written.
    pub reference: &'a Reference,
    /// Where it is asked from, for policies that make a difference.
    pub namespace: Option<&'a str>,
    /// What has to hold.
    pub rule: &'a Rule,
    /// The machines it is for.
    pub wanted: &'a Wanted,
    /// When.
    pub now: Timestamp,
}

/// The answer over everything that [`needed`] examining. It may take the second that a policy in
/// Rego is given.
pub fn decide(question: &Question<'_>, image: &Subjects, examined: &[Examined]) -> Answer {
    let Question { rule, now, .. } = question;
    let subjects = examined.iter().map(|one| decide_subject(rule, one, *now)).collect();
    combine(question, image, subjects)
}

/// The answer over what came of everything that [`needed`] examining.
pub fn combine(question: &Question<'_>, image: &Subjects, subjects: Vec<SubjectAnswer>) -> Answer {
    let decided = try_combine(question, image, subjects);
    decided.unwrap_or_else(|why| undecided(question, image, &why))
}

/// The same for who tells what will pass from what will not.
pub(crate) fn try_combine(
    question: &Question<'_>,
    image: &Subjects,
    subjects: Vec<SubjectAnswer>,
) -> Result<Answer, Undecided> {
    match &question.rule.rego {
        None => Ok(by_rule(question, image, subjects)),
        Some(rego) => by_rego(question, image, subjects, rego),
    }
}

/// A policy in Rego sees the whole image, and decides for all of it.
fn by_rego(
    question: &Question<'_>,
    image: &Subjects,
    mut subjects: Vec<SubjectAnswer>,
    rego: &RegoPolicy,
) -> Result<Answer, Undecided> {
    // What was not examined does not pass, whoever forgot it.
    let facts = needed(image, question.rule.index_policy).into_iter().map(|subject| {
        let own = |one: &&SubjectAnswer| one.digest == subject.descriptor.digest;
        let facts = subjects.iter().find(own)?.facts.as_deref()?.clone();
        let platform = subject.platform.as_ref().map(ToString::to_string);
        Some(SubjectFacts { kind: subject.kind, platform, ..facts })
    });
    let ruling = match facts.collect::<Option<Vec<_>>>() {
        None => Ruling::Broken("something that had to be looked at was not".to_owned()),
        Some(facts) => rego.decide(&Input::new(
            (question.reference, question.namespace),
            image.top().digest,
            question.wanted.platforms().map(ToString::to_string).collect(),
            question.now,
            facts,
        )),
    };
    let mut warnings = warnings(question, image);
    let reason = |code| move |message: String| Reason::new(code, message);
    let (verdict, reasons): (_, Vec<_>) = match ruling {
        Ruling::Allow(messages) => {
            warnings.extend(messages.into_iter().map(Warning::Policy));
            (Verdict::Verified, Vec::new())
        }
        Ruling::Deny(messages) => {
            let silent = messages.is_empty().then(|| "the policy does not say why".to_owned());
            let messages = messages.into_iter().chain(silent);
            (Verdict::Refused, messages.map(reason(ReasonCode::PolicyDenied)).collect())
        }
        Ruling::Broken(what) => {
            (Verdict::Refused, vec![Reason::new(ReasonCode::PolicyBroken, what)])
        }
        Ruling::Late(what) => return Err(Undecided::Late(what)),
    };
    for subject in &mut subjects {
        subject.verified = verdict == Verdict::Verified;
        subject.facts = None;
    }
    // What is said is said of what the reference names.
    if let Some(top) = subjects.iter_mut().find(|one| one.digest == image.top().digest) {
        top.reasons.clone_from(&reasons);
    }
    let digest = Some(image.top().digest);
    Ok(Answer { digest, subjects, warnings, ..empty(question, verdict, reasons) })
}

fn by_rule(question: &Question<'_>, image: &Subjects, subjects: Vec<SubjectAnswer>) -> Answer {
    let rule = question.rule;
    // What was not examined does not pass, whoever forgot it.
    let verified = |subject: &Subject| {
        let own = |one: &&SubjectAnswer| one.digest == subject.descriptor.digest;
        subjects.iter().find(own).is_some_and(|one| one.verified)
    };
    let manifests = !image.manifests().is_empty() && image.manifests().iter().all(verified);
    let pass = match (image.index(), rule.index_policy) {
        (None, _) | (Some(_), IndexPolicy::Platform) => manifests,
        (Some(index), IndexPolicy::Both) => verified(index) && manifests,
        (Some(index), IndexPolicy::Any) => verified(index) || manifests,
        (Some(index), IndexPolicy::Index) => verified(index),
    };
    let mut reasons = Vec::new();
    if !pass {
        reasons.extend(
            image
                .index()
                .filter(|index| !verified(index))
                .filter(|_| rule.index_policy != IndexPolicy::Platform)
                .map(|index| {
                    let message = format!("the index {} does not pass", index.descriptor.digest);
                    Reason::new(ReasonCode::IndexRefused, message)
                }),
        );
        let refused = image.manifests().iter().filter(|subject| !verified(subject));
        let counts = image.index().is_none() || rule.index_policy != IndexPolicy::Index;
        reasons.extend(refused.filter(|_| counts).map(|subject| {
            let digest = subject.descriptor.digest;
            let message = match &subject.platform {
                Some(platform) => format!("the image for {platform}, {digest}, does not pass"),
                None => format!("the image {digest} does not pass"),
            };
            Reason::new(ReasonCode::PlatformRefused, message)
        }));
    }
    let verdict = if pass { Verdict::Verified } else { Verdict::Refused };
    let digest = Some(image.top().digest);
    let warnings = warnings(question, image);
    Answer { digest, subjects, warnings, ..empty(question, verdict, reasons) }
}

/// The answer where the image has nothing for a machine.
pub fn not_found(question: &Question<'_>, refusal: &PlatformNotFound) -> Answer {
    // It says so only where that would change anything: of one machine alone there is nothing to ignore.
    let message = match question.wanted.platforms().count() > refusal.missing.len() {
        true => format!(
            "{refusal}; `missingPlatform: ignore` in the policy leaves such machines out, they could not pull it anyway"
        ),
        false => refusal.to_string(),
    };
    let reason = Reason::new(ReasonCode::PlatformNotFound, message);
    Answer { digest: Some(refusal.top), ..empty(question, Verdict::Refused, vec![reason]) }
}

/// The answer where a policy did not decide, for who asks once.
fn undecided(question: &Question<'_>, image: &Subjects, why: &Undecided) -> Answer {
    let reason = Reason::new(ReasonCode::PolicyBroken, why.to_string());
    let digest = Some(image.top().digest);
    Answer { digest, ..empty(question, Verdict::Refused, vec![reason]) }
}

/// The answer where no policy speaks of the image.
pub fn no_policy(reference: &Reference) -> Answer {
    let message = "no scope of the policy matches, and it has no default".to_owned();
    Answer {
        verdict: Verdict::NoPolicy,
        reference: reference.to_string(),
        digest: None,
        policy: None,
        index_policy: None,
        platforms: Vec::new(),
        subjects: Vec::new(),
        reasons: vec![Reason::new(ReasonCode::NoPolicy, message)],
        warnings: Vec::new(),
    }
}

fn empty(question: &Question<'_>, verdict: Verdict, reasons: Vec<Reason>) -> Answer {
    Answer {
        verdict,
        digest: None,
        policy: Some(question.rule.name.clone()),
        index_policy: Some(question.rule.index_policy),
        platforms: question.wanted.platforms().map(ToString::to_string).collect(),
        reasons,
        ..no_policy(question.reference)
    }
}

fn warnings(question: &Question<'_>, image: &Subjects) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if question.reference.digest().is_none() {
        warnings.push(Warning::Tag { digest: image.top().digest });
    }
    if !image.others().is_empty() && question.rule.index_policy != IndexPolicy::Index {
        warnings.push(Warning::OtherPlatforms(image.others().to_vec()));
    }
    warnings
}

/// What comes of one subject by itself.
pub fn decide_subject(rule: &Rule, examined: &Examined, now: Timestamp) -> SubjectAnswer {
    if rule.rego.is_some() {
        // Not by itself: only together with all others is it decided.
        let facts = Some(Arc::new(SubjectFacts::of(examined)));
        return SubjectAnswer { facts, ..subject_answer(examined, false, Vec::new()) };
    }
    let mut reasons = Vec::new();
    if let Some(require) = &rule.require {
        let signed = examined.accepted().filter(|(_, accepted)| accepted.claim == Claim::Signature);
        reasons.extend(missing_signers(require, signed, examined));
    }
    for attestation in &rule.attestations {
        reasons.extend(missing_attestation(attestation, examined));
    }
    reasons.extend(documents::decide(rule, examined, now));
    subject_answer(examined, reasons.is_empty(), reasons)
}

fn subject_answer(examined: &Examined, verified: bool, reasons: Vec<Reason>) -> SubjectAnswer {
    let Subject { descriptor, kind, platform } = &examined.subject;
    SubjectAnswer {
        digest: descriptor.digest,
        media_type: descriptor.media_type.clone(),
        kind: *kind,
        platform: platform.clone(),
        verified,
        signatures: examined.judged.iter().map(signature_answer).collect(),
        passed_over: examined.passed_over.clone(),
        reasons,
        facts: None,
    }
}

fn votes<'a>(accepted: impl Iterator<Item = (&'a str, &'a Accepted)>) -> Vec<Vote<'a>> {
    accepted.map(vote).collect()
}

fn vote<'a>((signer, accepted): (&'a str, &'a Accepted)) -> Vote<'a> {
    Vote { signer, identity: (&accepted.signer, accepted.issuer.as_deref()) }
}

fn missing_signers<'a>(
    require: &Requirement,
    signed: impl Iterator<Item = (&'a str, &'a Accepted)>,
    examined: &Examined,
) -> Option<Reason> {
    let wanted = unmet(require, &votes(signed))?.shown("signatures");
    let message = match (examined.judged.len(), examined.passed_over.len()) {
        (0, 0) => {
            let message = format!("nothing is attached to it; {wanted}");
            return Some(Reason::new(ReasonCode::NotSigned, message));
        }
        (0, over) => format!("none of the {over} artifacts attached to it counts; {wanted}"),
        _ => wanted,
    };
    Some(Reason::new(ReasonCode::SignerMissing, message))
}

fn missing_attestation(rule: &AttestationRule, examined: &Examined) -> Option<Reason> {
    let mut broken = BTreeMap::new();
    let mut holding = Vec::new();
    for (signer, accepted) in examined.accepted() {
        let Claim::Statement { predicate_type, predicate } = &accepted.claim else { continue };
        if *predicate_type != rule.predicate_type {
            continue;
        }
        match rule.conditions.iter().find_map(|condition| condition.broken(predicate)) {
            None => holding.push((signer, accepted)),
            Some(what) => {
                broken.insert(signer.to_owned(), what);
            }
        }
    }
    let unmet = unmet(&rule.require, &votes(holding.into_iter()))?;
    let needed = unmet.shown(&format!("attestations {}", rule.predicate_type));
    match broken.into_iter().next() {
        None => Some(Reason::new(ReasonCode::AttestationMissing, needed)),
        Some((signer, what)) => {
            let message = format!("{needed}; in that of {signer}, {what}");
            Some(Reason::new(ReasonCode::AttestationCondition, message))
        }
    }
}

fn signature_answer(judged: &Judged) -> SignatureAnswer {
    let tag = match &judged.carrier {
        Carrier::Tag(tag) => Some(tag.to_string()),
        Carrier::Referrer => None,
    };
    let bare = SignatureAnswer {
        artifact: judged.artifact,
        tag,
        kind: judged.kind,
        signer: judged.signer.clone(),
        accepted: false,
        identity: None,
        issuer: None,
        signed_at: None,
        predicate_type: None,
        checks: Vec::new(),
        warnings: Vec::new(),
        code: None,
        message: None,
    };
    match &judged.judgement {
        Judgement::Accepted(accepted) => SignatureAnswer {
            accepted: true,
            identity: Some(accepted.signer.clone()),
            issuer: accepted.issuer.clone(),
            signed_at: accepted.signed_at,
            predicate_type: match &accepted.claim {
                Claim::Statement { predicate_type, .. } => Some(predicate_type.clone()),
                Claim::Signature => None,
            },
            checks: accepted.checks.clone(),
            warnings: accepted.warnings.clone(),
            ..bare
        },
        Judgement::Refused(refusal) => SignatureAnswer {
            code: Some(refusal.code),
            message: Some(refusal.message.clone()),
            ..bare
        },
    }
}
