//! An answer in the shape that templates for Ratify 1 read, with what they do not know beside it.
//!
//! Yes or no stands in every answer under both names, Ratify 1's and Ratify 2's, whichever shape the
//! rest has: published templates say `== false` of their own, and to Rego a name that is not there is
//! not false. A template of the one generation at the route of the other would admit everything.

use jiff::Timestamp;
use portolan_core::{Digest, Platform, Reference};
use serde::Serialize;

use crate::cosign::SIGNATURE_ARTIFACT;
use crate::decision::{self, Answer, Reason, SignatureAnswer, SubjectAnswer, Verdict};
use crate::evidence::SignatureKind;
use crate::notation::SIGNATURE_ARTIFACT as NOTATION_ARTIFACT;
use crate::sigstore::BUNDLE;
use crate::subject::Kind;

/// The flat reports of Ratify's own policies.
const VERSION: &str = "0.2.0";
/// Who is said to have verified where it is the policy itself.
pub(crate) const POLICY: &str = "policy";

/// Of one text in a report; what strangers signed may be longer.
pub(crate) const MAX_TEXT: usize = 1000;
/// Reports of one answer; how many more there are is told.
pub(crate) const MAX_REPORTS: usize = 64;

/// As templates for Ratify 1 read it, but for trace id and time.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct V1 {
    version: &'static str,
    is_success: bool,
    succeeded: bool,
    verifier_reports: Vec<Report>,
    #[serde(flatten)]
    more: More,
    subjects: Vec<Subject>,
}

/// What Ratify does not tell.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct More {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resolved_digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    pub(crate) platforms: Vec<String>,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) warnings: Vec<String>,
    /// Why nobody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exempt: Option<String>,
    /// What it would have been, where a no is only told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) audit: Option<Audit>,
}

#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the server audits"))]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Audit {
    pub(crate) is_success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    subject: String,
    is_success: bool,
    name: String,
    verifier_name: String,
    /// The same twice, as Ratify has it: which kind of signature.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verifier_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_digest: Option<Digest>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extensions: Option<Extensions>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Extensions {
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicate_type: Option<String>,
    /// Of a signature of the Notary Project, in the words of Ratify's templates: who certified the
    /// signer, and the signer.
    #[serde(rename = "Issuer", skip_serializing_if = "Option::is_none")]
    certificate_issuer: Option<String>,
    #[serde(rename = "SN", skip_serializing_if = "Option::is_none")]
    certificate_subject: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Subject {
    digest: Digest,
    media_type: String,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "decision::shown")]
    platform: Option<Platform>,
    is_success: bool,
    verifier_reports: Vec<Report>,
}

impl V1 {
    /// `answer` is none where nobody looked; the text is the image's repository.
    pub(crate) fn new(is_success: bool, more: More, answer: Option<(&Answer, &str)>) -> Self {
        let mut few = Few::of(answer.map(|(answer, _)| answer));
        let subjects: Vec<_> = answer
            .map(|(answer, repository)| subjects(answer, repository, &mut few))
            .unwrap_or_default();
        let mut verifier_reports: Vec<_> =
            subjects.iter().flat_map(|one| one.verifier_reports.clone()).collect();
        verifier_reports.extend(few.more().map(more_report));
        if let Some((answer, _)) = answer.filter(|_| verifier_reports.is_empty()) {
            verifier_reports.extend(unseen(answer));
        }
        let succeeded = is_success;
        Self { version: VERSION, is_success, succeeded, verifier_reports, more, subjects }
    }

    /// What the verifier would tell of `answer`, but for trace id and time.
    pub(crate) fn of(answer: &Answer, reference: &Reference) -> Self {
        let top = answer.subjects.iter().find(|one| Some(one.digest) == answer.digest);
        let media_type = top.map(|one| one.media_type.clone());
        let more = More::of(answer, media_type, None);
        let is_success = answer.verdict == Verdict::Verified;
        Self::new(is_success, more, Some((answer, &repository(reference))))
    }
}

impl More {
    pub(crate) fn of(answer: &Answer, media_type: Option<String>, audit: Option<Audit>) -> Self {
        let reason = |one: &Reason| Reason { code: one.code, message: cut(&one.message, MAX_TEXT) };
        Self {
            resolved_digest: answer.digest,
            media_type,
            platforms: answer.platforms.clone(),
            reasons: answer.reasons.iter().take(MAX_REPORTS).map(reason).collect(),
            warnings: warnings(answer),
            exempt: None,
            audit,
        }
    }
}

fn warnings(answer: &Answer) -> Vec<String> {
    let told = answer.warnings.iter().take(MAX_REPORTS);
    let mut told: Vec<_> = told.map(|one| cut(&one.to_string(), MAX_TEXT)).collect();
    for (what, all) in [("warnings", answer.warnings.len()), ("reasons", answer.reasons.len())] {
        if all > MAX_REPORTS {
            told.push(format!("and {} more {what}, which are not told here", all - MAX_REPORTS));
        }
    }
    told
}

/// An image's name without tag and digest.
pub(crate) fn repository(reference: &Reference) -> String {
    match reference {
        Reference::Registry(one) => {
            format!("{}/{}", one.registry.as_str(), one.repository.as_str())
        }
        Reference::Layout(_) => reference.to_string(),
    }
}

/// The beginning of a text that is too long, with a mark.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    match text.len() <= bytes {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(bytes - '…'.len_utf8())]),
    }
}

/// As many reports as are told of an answer. What is lacking is told before signatures are: strangers
/// choose how many of these there are.
pub(crate) struct Few {
    reasons: usize,
    signatures: usize,
    dropped: usize,
}

impl Few {
    pub(crate) fn of(answer: Option<&Answer>) -> Self {
        let subjects = answer.map(|one| one.subjects.as_slice()).unwrap_or_default();
        let lacking = subjects.iter().map(|one| one.reasons.len()).sum::<usize>();
        let reasons = lacking.min(MAX_REPORTS);
        Self { reasons, signatures: MAX_REPORTS - reasons, dropped: 0 }
    }

    /// Those of a subject that are told.
    pub(crate) fn take<'a>(
        &mut self,
        subject: &'a SubjectAnswer,
    ) -> (&'a [SignatureAnswer], &'a [Reason]) {
        let signatures = subject.signatures.len().min(self.signatures);
        let reasons = subject.reasons.len().min(self.reasons);
        self.signatures -= signatures;
        self.reasons -= reasons;
        self.dropped += subject.signatures.len() - signatures + subject.reasons.len() - reasons;
        (&subject.signatures[..signatures], &subject.reasons[..reasons])
    }

    /// What is told of the others.
    pub(crate) fn more(&self) -> Option<String> {
        let more = || format!("and {} more, which are not told here", self.dropped);
        (self.dropped > 0).then(more)
    }
}

fn subjects(answer: &Answer, repository: &str, few: &mut Few) -> Vec<Subject> {
    let subject = |one: &SubjectAnswer| {
        let name = format!("{repository}@{}", one.digest);
        let (signatures, reasons) = few.take(one);
        let signed = signatures.iter().map(|signature| signature_report(&name, signature));
        let lacks = reasons.iter().map(|reason| reason_report(&name, answer, reason));
        Subject {
            digest: one.digest,
            media_type: one.media_type.clone(),
            kind: one.kind,
            platform: one.platform.clone(),
            is_success: one.verified,
            verifier_reports: signed.chain(lacks).collect(),
        }
    };
    answer.subjects.iter().map(subject).collect()
}

/// Of an image of which nothing was examined: no policy, no such platform.
fn unseen(answer: &Answer) -> impl Iterator<Item = Report> {
    let told = answer.reasons.iter().take(MAX_REPORTS);
    told.map(|reason| reason_report(&answer.reference, answer, reason))
}

/// Says nothing of the image, so it is neither a good report nor a bad one of anybody's.
fn more_report(message: String) -> Report {
    Report {
        subject: String::new(),
        is_success: false,
        name: POLICY.to_owned(),
        verifier_name: POLICY.to_owned(),
        kind: None,
        verifier_type: None,
        artifact_type: None,
        reference_digest: None,
        message,
        error_reason: None,
        extensions: None,
    }
}

fn reason_report(subject: &str, answer: &Answer, reason: &Reason) -> Report {
    let name = answer.policy.clone().unwrap_or_else(|| POLICY.to_owned());
    Report {
        subject: subject.to_owned(),
        is_success: false,
        name: name.clone(),
        verifier_name: name,
        kind: None,
        verifier_type: None,
        artifact_type: None,
        reference_digest: None,
        message: cut(&reason.message, MAX_TEXT),
        error_reason: Some(reason.code.to_string()),
        extensions: None,
    }
}

fn signature_report(subject: &str, signature: &SignatureAnswer) -> Report {
    let message = match (&signature.message, signature.accepted) {
        (Some(message), _) => cut(message, MAX_TEXT),
        (None, true) if signature.predicate_type.is_some() => {
            "the statement is genuine; it is no signature".to_owned()
        }
        (None, true) => "the signature counts".to_owned(),
        (None, false) => "the signature does not count".to_owned(),
    };
    let (verifier_type, artifact_type) = types(signature.kind);
    Report {
        subject: subject.to_owned(),
        is_success: signature.accepted,
        name: signature.signer.clone(),
        verifier_name: signature.signer.clone(),
        kind: Some(verifier_type),
        verifier_type: Some(verifier_type),
        artifact_type: Some(artifact_type),
        reference_digest: Some(signature.artifact),
        message,
        error_reason: signature.code.map(|code| code.to_string()),
        extensions: signature.accepted.then(|| extensions(signature)),
    }
}

/// What Ratify calls the verifier, and the artifact, of a signature.
fn types(kind: SignatureKind) -> (&'static str, &'static str) {
    match kind {
        SignatureKind::Layer => ("cosign", SIGNATURE_ARTIFACT),
        SignatureKind::Bundle => ("cosign", BUNDLE),
        SignatureKind::Notation => ("notation", NOTATION_ARTIFACT),
    }
}

pub(crate) fn extensions(signature: &SignatureAnswer) -> Extensions {
    let certified = |text: &Option<String>| {
        short(text.as_ref()).filter(|_| signature.kind == SignatureKind::Notation)
    };
    Extensions {
        certificate_issuer: certified(&signature.issuer),
        certificate_subject: certified(&signature.identity),
        identity: short(signature.identity.as_ref()),
        issuer: short(signature.issuer.as_ref()),
        signed_at: signature.signed_at,
        predicate_type: short(signature.predicate_type.as_ref()),
    }
}

fn short(text: Option<&String>) -> Option<String> {
    text.map(|text| cut(text, MAX_TEXT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_between_letters() {
        for length in 0..12 {
            let text = "é".repeat(length);
            let short = cut(&text, 10);
            assert!(short.len() <= 10 || short == text, "{short}");
            assert_eq!(short == text, text.len() <= 10);
        }
    }
}
