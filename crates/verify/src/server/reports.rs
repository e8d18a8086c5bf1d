//! An answer in the shapes that templates for Ratify read, with what they do not know beside it.

use jiff::Timestamp;
use portolan_core::{Digest, Platform};
use serde::Serialize;

use super::engine::Told;
use super::provider::Shape;
use crate::decision::{self, Answer, Reason, SignatureAnswer, SubjectAnswer, Warning};
use crate::subject::Kind;

/// The flat reports of Ratify's own policies.
const VERSION: &str = "0.2.0";
/// Who is said to have verified where it is the policy itself.
const POLICY: &str = "policy";

/// The value of an item.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Value {
    /// Of a mutation.
    Text(String),
    V1(Box<V1>),
    V2(Box<V2>),
}

/// As templates for Ratify 1 read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct V1 {
    version: &'static str,
    is_success: bool,
    #[serde(rename = "traceID")]
    trace_id: String,
    timestamp: Timestamp,
    verifier_reports: Vec<Report>,
    #[serde(flatten)]
    more: More,
    subjects: Vec<Subject>,
}

/// As templates for Ratify 2 read it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct V2 {
    succeeded: bool,
    artifact_reports: Vec<ArtifactReport>,
    #[serde(rename = "traceID")]
    trace_id: String,
    timestamp: Timestamp,
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
    warnings: Vec<Warning>,
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
    results: Vec<Outcome>,
    artifact_reports: Vec<ArtifactReport>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    verifier_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// JSON as a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_reason: Option<String>,
}

/// Of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) shape: Shape,
    pub(super) trace: &'a str,
    pub(super) now: Timestamp,
    /// Whether a no is only told.
    pub(super) audit: bool,
}

/// What is told of one key. `repository` is the image's, as in `repository@digest`.
pub(super) fn value(context: &Context<'_>, told: &Told, repository: &str) -> Value {
    let success = told.is_yes();
    let audit = (context.audit && !success).then_some(Audit { is_success: false, error: None });
    let (answer, media_type) = match told {
        Told::Answer { answer, media_type } => (answer, media_type),
        Told::Exempt(why) => {
            let more = More { exempt: Some(why.clone()), ..More::default() };
            return put(context, success, more, None);
        }
    };
    let more = More {
        resolved_digest: answer.digest,
        media_type: media_type.clone(),
        platforms: answer.platforms.clone(),
        reasons: answer.reasons.clone(),
        warnings: answer.warnings.clone(),
        exempt: None,
        audit,
    };
    put(context, success || context.audit, more, Some((answer, repository)))
}

/// What is told of a key without an answer where a no is only told: it is let in, and says so.
pub(super) fn audited_trouble(context: &Context<'_>, text: String) -> Value {
    let audit = Some(Audit { is_success: false, error: Some(text) });
    put(context, true, More { audit, ..More::default() }, None)
}

fn put(context: &Context<'_>, success: bool, more: More, answer: Option<(&Answer, &str)>) -> Value {
    let (trace_id, timestamp) = (context.trace.to_owned(), context.now);
    match context.shape {
        Shape::V1 => {
            let subjects: Vec<_> =
                answer.map(|(answer, repository)| subjects(answer, repository)).unwrap_or_default();
            let mut verifier_reports: Vec<_> =
                subjects.iter().flat_map(|one| one.verifier_reports.clone()).collect();
            if let Some((answer, _)) = answer.filter(|_| verifier_reports.is_empty()) {
                verifier_reports.extend(unseen(answer));
            }
            Value::V1(Box::new(V1 {
                version: VERSION,
                is_success: success,
                trace_id,
                timestamp,
                verifier_reports,
                more,
                subjects,
            }))
        }
        Shape::V2 => Value::V2(Box::new(V2 {
            succeeded: success,
            artifact_reports: answer
                .map(|(answer, repository)| artifact_reports(answer, repository))
                .unwrap_or_default(),
            trace_id,
            timestamp,
            more,
        })),
    }
}

fn subjects(answer: &Answer, repository: &str) -> Vec<Subject> {
    let subject = |one: &SubjectAnswer| {
        let name = format!("{repository}@{}", one.digest);
        let signed = one.signatures.iter().map(|signature| signature_report(&name, signature));
        let missing = one.reasons.iter().map(|reason| reason_report(&name, answer, reason));
        Subject {
            digest: one.digest,
            media_type: one.media_type.clone(),
            kind: one.kind,
            platform: one.platform.clone(),
            is_success: one.verified,
            verifier_reports: signed.chain(missing).collect(),
        }
    };
    answer.subjects.iter().map(subject).collect()
}

/// Of an image of which nothing was examined: no policy, no such platform.
fn unseen(answer: &Answer) -> impl Iterator<Item = Report> {
    answer.reasons.iter().map(|reason| reason_report(&answer.reference, answer, reason))
}

fn reason_report(subject: &str, answer: &Answer, reason: &Reason) -> Report {
    let name = answer.policy.clone().unwrap_or_else(|| POLICY.to_owned());
    Report {
        subject: subject.to_owned(),
        is_success: false,
        name: name.clone(),
        verifier_name: name,
        reference_digest: None,
        message: reason.message.clone(),
        error_reason: Some(reason.code.to_string()),
        extensions: None,
    }
}

fn signature_report(subject: &str, signature: &SignatureAnswer) -> Report {
    let message = match (&signature.message, signature.accepted) {
        (Some(message), _) => message.clone(),
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
        identity: signature.identity.clone(),
        issuer: signature.issuer.clone(),
        signed_at: signature.signed_at,
        predicate_type: signature.predicate_type.clone(),
    }
}

/// One for each artifact, and one for what a subject lacks.
fn artifact_reports(answer: &Answer, repository: &str) -> Vec<ArtifactReport> {
    let mut reports: Vec<ArtifactReport> = Vec::new();
    for one in &answer.subjects {
        let subject = format!("{repository}@{}", one.digest);
        for signature in &one.signatures {
            let artifact = signature.artifact.to_string();
            let outcome = signature_outcome(signature);
            let known = reports
                .iter_mut()
                .find(|report| report.subject == subject && report.artifact == artifact);
            match known {
                Some(report) => report.results.push(outcome),
                None => reports.push(report(subject.clone(), artifact, vec![outcome])),
            }
        }
        if !one.reasons.is_empty() {
            let lacks = one.reasons.iter().map(|reason| reason_outcome(answer, reason)).collect();
            reports.push(report(subject, one.digest.to_string(), lacks));
        }
    }
    if reports.is_empty() && !answer.reasons.is_empty() {
        let lacks = answer.reasons.iter().map(|reason| reason_outcome(answer, reason)).collect();
        let artifact = answer.digest.map(|digest| digest.to_string()).unwrap_or_default();
        reports.push(report(answer.reference.clone(), artifact, lacks));
    }
    reports
}

fn report(subject: String, artifact: String, results: Vec<Outcome>) -> ArtifactReport {
    ArtifactReport { subject, artifact, results, artifact_reports: Vec::new() }
}

fn reason_outcome(answer: &Answer, reason: &Reason) -> Outcome {
    Outcome {
        verifier_name: answer.policy.clone().unwrap_or_else(|| POLICY.to_owned()),
        description: None,
        detail: None,
        error_reason: Some(format!("{}: {}", reason.code, reason.message)),
    }
}

fn signature_outcome(signature: &SignatureAnswer) -> Outcome {
    let error = || match (signature.code, &signature.message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_string(),
        (None, _) => "the signature does not count".to_owned(),
    };
    let detail = serde_json::to_string(&extensions(signature)).ok();
    Outcome {
        verifier_name: signature.signer.clone(),
        description: signature.accepted.then(|| "the signature counts".to_owned()),
        detail: detail.filter(|_| signature.accepted),
        error_reason: (!signature.accepted).then(error),
    }
}
