//! An answer in the shapes that templates for Ratify read, with what they do not know beside it.

use std::sync::Arc;

use jiff::Timestamp;
use portolan_core::{Digest, Platform};
use serde::Serialize;

use super::admission::cut;
use super::metrics::Outcome;
use super::provider::{Shape, text};
use super::question::Told;
use super::trouble::{Code, Trouble};
use crate::decision::{self, Answer, Reason, SignatureAnswer, SubjectAnswer};
use crate::subject::Kind;

/// The flat reports of Ratify's own policies.
const VERSION: &str = "0.2.0";
/// Who is said to have verified where it is the policy itself.
const POLICY: &str = "policy";

/// Of one text in a report; what strangers signed may be longer.
const MAX_TEXT: usize = 1000;
/// Reports of one subject; how many more there are is told.
const MAX_REPORTS: usize = 64;

/// The value of an item.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// Of a mutation.
    Text(String),
    Report(Arc<Written>),
}

/// A report as it is written, but for what is another in each answer: trace id and time.
#[derive(Debug)]
pub(super) struct Written {
    /// The members of the object, and its end.
    rest: Box<[u8]>,
    /// What came of it, for who counts.
    pub(super) outcome: Outcome,
    /// Of what is refused: the reference and why, for who logs.
    pub(super) refused: Option<Box<(String, String)>>,
}

/// What is another in each answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp<'a> {
    pub(super) trace: &'a str,
    pub(super) now: Timestamp,
}

impl Stamp<'_> {
    /// The beginning of every report.
    pub(super) fn written(&self) -> Vec<u8> {
        let mut out = b"{\"traceID\":".to_vec();
        text(&mut out, self.trace);
        out.extend_from_slice(format!(",\"timestamp\":\"{}\",", self.now).as_bytes());
        out
    }
}

impl Value {
    /// Appends it; `stamp` is what [`Stamp::written`] wrote.
    pub(super) fn write(&self, stamp: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Text(value) => text(out, value),
            Self::Report(written) => {
                out.extend_from_slice(stamp);
                out.extend_from_slice(&written.rest);
            }
        }
    }

    /// About how many bytes that will be.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(value) => value.len(),
            Self::Report(written) => written.rest.len() + 100,
        }
    }
}

impl Written {
    fn new(
        report: &impl Serialize,
        outcome: Outcome,
        refused: Option<(String, String)>,
    ) -> Option<Self> {
        let whole = serde_json::to_vec(report).ok()?;
        let rest = whole.strip_prefix(b"{")?.into();
        Some(Self { rest, outcome, refused: refused.map(Box::new) })
    }

    /// How many bytes it keeps.
    pub(super) fn bytes(&self) -> usize {
        self.rest.len() + self.refused.as_ref().map_or(0, |texts| texts.0.len() + texts.1.len())
    }
}

/// As templates for Ratify 1 read it, but for trace id and time.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct V1 {
    version: &'static str,
    is_success: bool,
    verifier_reports: Vec<Report>,
    #[serde(flatten)]
    more: More,
    subjects: Vec<Subject>,
}

/// As templates for Ratify 2 read it, but for trace id and time.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct V2 {
    succeeded: bool,
    artifact_reports: Vec<ArtifactReport>,
    #[serde(flatten)]
    more: More,
}

/// What Ratify does not tell.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct More {
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    platforms: Vec<String>,
    reasons: Vec<Reason>,
    warnings: Vec<String>,
    /// Why nobody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    exempt: Option<String>,
    /// What it would have been, where a no is only told.
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<Audit>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Audit {
    is_success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    subject: String,
    is_success: bool,
    name: String,
    verifier_name: String,
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
struct Extensions {
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicate_type: Option<String>,
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

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactReport {
    subject: String,
    artifact: String,
    results: Vec<Finding>,
    artifact_reports: Vec<ArtifactReport>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    verifier_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// JSON as a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_reason: Option<String>,
}

/// How answers are given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    pub(super) shape: Shape,
    /// Whether a no is only told.
    pub(super) audit: bool,
}

/// What is told of one key. `repository` is the image's, as in `repository@digest`.
pub(super) fn written(manner: Manner, told: &Told, repository: &str) -> Result<Written, Trouble> {
    let success = told.is_yes();
    let audit = (manner.audit && !success).then_some(Audit { is_success: false, error: None });
    let outcome = told.outcome();
    let (answer, media_type) = match told {
        Told::Answer { answer, media_type, .. } => (answer, media_type),
        Told::Exempt(why) => {
            let more = More { exempt: Some(why.clone()), ..More::default() };
            return put(manner, success, (outcome, None), more, None);
        }
    };
    let reason = |one: &Reason| Reason { code: one.code, message: cut(&one.message, MAX_TEXT) };
    let more = More {
        resolved_digest: answer.digest,
        media_type: media_type.clone(),
        platforms: answer.platforms.clone(),
        reasons: answer.reasons.iter().map(reason).collect(),
        warnings: answer.warnings.iter().map(|one| cut(&one.to_string(), MAX_TEXT)).collect(),
        exempt: None,
        audit,
    };
    let refused = (!success).then(|| (answer.reference.clone(), told.reasons()));
    put(manner, success || manner.audit, (outcome, refused), more, Some((answer, repository)))
}

/// What is told of a key without an answer where a no is only told: it is let in, and says so.
pub(super) fn audited_trouble(manner: Manner, text: &str) -> Result<Written, Trouble> {
    let audit = Some(Audit { is_success: false, error: Some(cut(text, MAX_TEXT)) });
    put(manner, true, (Outcome::Trouble, None), More { audit, ..More::default() }, None)
}

fn put(
    manner: Manner,
    success: bool,
    (outcome, refused): (Outcome, Option<(String, String)>),
    more: More,
    answer: Option<(&Answer, &str)>,
) -> Result<Written, Trouble> {
    let written = match manner.shape {
        Shape::V1 => {
            let subjects: Vec<_> =
                answer.map(|(answer, repository)| subjects(answer, repository)).unwrap_or_default();
            let mut verifier_reports: Vec<_> =
                subjects.iter().flat_map(|one| one.verifier_reports.clone()).collect();
            if let Some((answer, _)) = answer.filter(|_| verifier_reports.is_empty()) {
                verifier_reports.extend(unseen(answer));
            }
            let (version, is_success) = (VERSION, success);
            let report = V1 { version, is_success, verifier_reports, more, subjects };
            Written::new(&report, outcome, refused)
        }
        Shape::V2 => {
            let artifact_reports = answer
                .map(|(answer, repository)| artifact_reports(answer, repository))
                .unwrap_or_default();
            let report = V2 { succeeded: success, artifact_reports, more };
            Written::new(&report, outcome, refused)
        }
    };
    // Nothing written here has a name that is no text, which is all that could fail; half an answer
    // would be worse than one too many lines here.
    written.ok_or_else(|| Trouble::new(Code::Internal, "the answer cannot be written"))
}

/// As many reports as are told, and what is told of the others.
fn few<T>(reports: impl ExactSizeIterator<Item = T>, more: impl FnOnce(String) -> T) -> Vec<T> {
    let all = reports.len();
    let mut told: Vec<_> = reports.take(MAX_REPORTS).collect();
    if all > MAX_REPORTS {
        told.push(more(format!("and {} more, which are not told here", all - MAX_REPORTS)));
    }
    told
}

fn subjects(answer: &Answer, repository: &str) -> Vec<Subject> {
    let subject = |one: &SubjectAnswer| {
        let name = format!("{repository}@{}", one.digest);
        let signed = one.signatures.iter().map(|signature| signature_report(&name, signature));
        let mut reports = few(signed, |message| more_report(&name, message));
        reports.extend(one.reasons.iter().map(|reason| reason_report(&name, answer, reason)));
        Subject {
            digest: one.digest,
            media_type: one.media_type.clone(),
            kind: one.kind,
            platform: one.platform.clone(),
            is_success: one.verified,
            verifier_reports: reports,
        }
    };
    answer.subjects.iter().map(subject).collect()
}

/// Of an image of which nothing was examined: no policy, no such platform.
fn unseen(answer: &Answer) -> impl Iterator<Item = Report> {
    answer.reasons.iter().map(|reason| reason_report(&answer.reference, answer, reason))
}

/// Says nothing of the image, so it is neither a good report nor a bad one of anybody's.
fn more_report(subject: &str, message: String) -> Report {
    Report {
        subject: subject.to_owned(),
        is_success: false,
        name: POLICY.to_owned(),
        verifier_name: POLICY.to_owned(),
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
        reference_digest: None,
        message: cut(&reason.message, MAX_TEXT),
        error_reason: Some(reason.code.to_string()),
        extensions: None,
    }
}

fn signature_report(subject: &str, signature: &SignatureAnswer) -> Report {
    let message = match (&signature.message, signature.accepted) {
        (Some(message), _) => cut(message, MAX_TEXT),
        (None, true) => "the signature counts".to_owned(),
        (None, false) => "the signature does not count".to_owned(),
    };
    Report {
        subject: subject.to_owned(),
        is_success: signature.accepted,
        name: signature.signer.clone(),
        verifier_name: signature.signer.clone(),
        reference_digest: Some(signature.artifact),
        message,
        error_reason: signature.code.map(|code| code.to_string()),
        extensions: signature.accepted.then(|| extensions(signature)),
    }
}

fn extensions(signature: &SignatureAnswer) -> Extensions {
    Extensions {
        identity: short(signature.identity.as_ref()),
        issuer: short(signature.issuer.as_ref()),
        signed_at: signature.signed_at,
        predicate_type: short(signature.predicate_type.as_ref()),
    }
}

fn short(text: Option<&String>) -> Option<String> {
    text.map(|text| cut(text, MAX_TEXT))
}

/// One for each artifact, and one for what a subject lacks.
fn artifact_reports(answer: &Answer, repository: &str) -> Vec<ArtifactReport> {
    let mut reports: Vec<ArtifactReport> = Vec::new();
    for one in &answer.subjects {
        let subject = format!("{repository}@{}", one.digest);
        for signature in one.signatures.iter().take(MAX_REPORTS) {
            let artifact = signature.artifact.to_string();
            let outcome = signature_finding(signature);
            let known = reports
                .iter_mut()
                .find(|report| report.subject == subject && report.artifact == artifact);
            match known {
                Some(report) => report.results.push(outcome),
                None => reports.push(report(subject.clone(), artifact, vec![outcome])),
            }
        }
        if !one.reasons.is_empty() {
            let lacks = one.reasons.iter().map(|reason| reason_finding(answer, reason)).collect();
            reports.push(report(subject, one.digest.to_string(), lacks));
        }
    }
    if reports.is_empty() && !answer.reasons.is_empty() {
        let lacks = answer.reasons.iter().map(|reason| reason_finding(answer, reason)).collect();
        let artifact = answer.digest.map(|digest| digest.to_string()).unwrap_or_default();
        reports.push(report(answer.reference.clone(), artifact, lacks));
    }
    reports
}

fn report(subject: String, artifact: String, results: Vec<Finding>) -> ArtifactReport {
    ArtifactReport { subject, artifact, results, artifact_reports: Vec::new() }
}

fn reason_finding(answer: &Answer, reason: &Reason) -> Finding {
    Finding {
        verifier_name: answer.policy.clone().unwrap_or_else(|| POLICY.to_owned()),
        description: None,
        detail: None,
        error_reason: Some(format!("{}: {}", reason.code, cut(&reason.message, MAX_TEXT))),
    }
}

fn signature_finding(signature: &SignatureAnswer) -> Finding {
    let error = || match (signature.code, &signature.message) {
        (Some(code), Some(message)) => format!("{code}: {}", cut(message, MAX_TEXT)),
        (Some(code), None) => code.to_string(),
        (None, _) => "the signature does not count".to_owned(),
    };
    let detail = serde_json::to_string(&extensions(signature)).ok();
    Finding {
        verifier_name: signature.signer.clone(),
        description: signature.accepted.then(|| "the signature counts".to_owned()),
        detail: detail.filter(|_| signature.accepted),
        error_reason: (!signature.accepted).then(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::{Verdict, Warning};

    fn answer(signatures: usize, message: &str) -> Told {
        let digest = Digest::sha256(b"x");
        let signature = SignatureAnswer {
            artifact: digest,
            tag: None,
            signer: "release".to_owned(),
            accepted: false,
            identity: None,
            issuer: None,
            signed_at: None,
            predicate_type: None,
            checks: Vec::new(),
            warnings: Vec::new(),
            code: None,
            message: Some(message.to_owned()),
        };
        let subject = SubjectAnswer {
            digest,
            media_type: "m".to_owned(),
            kind: Kind::Manifest,
            platform: None,
            verified: false,
            signatures: vec![signature; signatures],
            passed_over: Vec::new(),
            reasons: Vec::new(),
            facts: None,
        };
        let answer = Answer {
            verdict: Verdict::Refused,
            reference: "r".to_owned(),
            digest: Some(digest),
            policy: None,
            index_policy: None,
            platforms: Vec::new(),
            subjects: vec![subject],
            reasons: Vec::new(),
            warnings: vec![Warning::Policy(message.to_owned())],
        };
        Told::Answer { answer: Box::new(answer), media_type: None, kept: None }
    }

    #[test]
    fn what_strangers_say_is_cut_with_a_mark_and_the_rest_is_counted() {
        let long = "é".repeat(MAX_TEXT);
        for shape in [Shape::V1, Shape::V2] {
            let manner = Manner { shape, audit: false };
            let few = written(manner, &answer(1, &long), "r").unwrap();
            let text = String::from_utf8(few.rest.to_vec()).unwrap();
            assert!(text.contains('…') && !text.contains(&long), "{text}");
            // What is told of a thousand signatures is what is told of some dozens.
            let many = written(manner, &answer(1000, &long), "r").unwrap();
            assert!(many.bytes() < 300 * MAX_TEXT, "{}", many.bytes());
        }
        let many = written(Manner { shape: Shape::V1, audit: false }, &answer(1000, "no"), "r");
        let text = String::from_utf8(many.unwrap().rest.to_vec()).unwrap();
        assert!(text.contains("and 936 more"), "{text}");
    }
}
