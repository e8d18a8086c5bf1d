//! Answers as they are written, in the shapes that templates for Ratify read.

use std::cell::Cell;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::fmt::StdIoWrite;
use jiff::fmt::temporal::DateTimePrinter;
use serde::Serialize;

use super::metrics::Outcome;
use super::provider::{Shape, text};
use super::question::Told;
use super::trouble::{Code, Trouble};
use crate::decision::{Answer, Reason, SignatureAnswer};
use crate::report::{Audit, Few, MAX_REPORTS, MAX_TEXT, More, POLICY, V1, cut, extensions};

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
        // As much as both take, so that it does not grow piece by piece.
        let mut out = Vec::with_capacity(80 + self.trace.len());
        out.extend_from_slice(b"{\"traceID\":");
        text(&mut out, self.trace);
        out.extend_from_slice(b",\"timestamp\":\"");
        time(self.now, &mut out);
        out.extend_from_slice(b"\",");
        out
    }
}

/// The time in RFC 3339. Its second, which is most of the work, is the same for thousands of answers.
fn time(now: Timestamp, out: &mut Vec<u8>) {
    /// `2026-11-18T01:02:03`
    const SECOND: usize = 19;
    thread_local! {
        static LAST: Cell<(i64, [u8; SECOND])> = const { Cell::new((i64::MIN, [0; SECOND])) };
    }
    let (second, nanosecond) = (now.as_second(), now.subsec_nanosecond());
    let (last, mut text) = LAST.get();
    if last != second {
        let mut whole = Vec::with_capacity(32);
        let printed = DateTimePrinter::new().print_timestamp(&now, StdIoWrite(&mut whole));
        match (printed, whole.first_chunk()) {
            (Ok(()), Some(found)) if second >= 0 => text = *found,
            // By a clock that stands before 1970: as the library writes it.
            _ => return out.extend_from_slice(&whole),
        }
        LAST.set((second, text));
    }
    out.extend_from_slice(&text);
    let mut digits = [b'0'; 10];
    let mut left = nanosecond.unsigned_abs();
    for digit in digits.iter_mut().rev() {
        *digit += u8::try_from(left % 10).unwrap_or_default();
        left /= 10;
    }
    digits[0] = b'.';
    out.extend_from_slice(&digits);
    out.push(b'Z');
}

impl Value {
    /// Appends it; `stamp` is what [`Stamp::written`] wrote.
    pub(super) fn write(&self, stamp: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Text(value) => text(out, value),
            Self::Report(written) => written.write(stamp, out),
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

    /// Appends it; `stamp` is what [`Stamp::written`] wrote.
    pub(super) fn write(&self, stamp: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(stamp);
        out.extend_from_slice(&self.rest);
    }

    /// How many bytes it keeps.
    pub(super) fn bytes(&self) -> usize {
        self.rest.len() + self.refused.as_ref().map_or(0, |texts| texts.0.len() + texts.1.len())
    }
}

/// As templates for Ratify 2 read it, but for trace id and time.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct V2 {
    succeeded: bool,
    /// The same in Ratify 1's word, see [`crate::report`].
    is_success: bool,
    artifact_reports: Vec<ArtifactReport>,
    #[serde(flatten)]
    more: More,
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
    let more = More::of(answer, media_type.clone(), audit);
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
        Shape::V1 => Written::new(&V1::new(success, more, answer), outcome, refused),
        Shape::V2 => {
            let artifact_reports = answer
                .map(|(answer, repository)| artifact_reports(answer, repository))
                .unwrap_or_default();
            let (succeeded, is_success) = (success, success);
            let report = V2 { succeeded, is_success, artifact_reports, more };
            Written::new(&report, outcome, refused)
        }
    };
    // Nothing written here has a name that is no text, which is all that could fail; half an answer
    // would be worse than one too many lines here.
    written.ok_or_else(|| Trouble::new(Code::Internal, "the answer cannot be written"))
}

/// One for each artifact, and one for what a subject lacks.
fn artifact_reports(answer: &Answer, repository: &str) -> Vec<ArtifactReport> {
    let mut reports: Vec<ArtifactReport> = Vec::new();
    let mut few = Few::of(Some(answer));
    for one in &answer.subjects {
        let subject = format!("{repository}@{}", one.digest);
        let (signatures, reasons) = few.take(one);
        for signature in signatures {
            let (artifact, outcome) =
                (signature.artifact.to_string(), signature_finding(signature));
            let known = reports
                .iter_mut()
                .find(|report| report.subject == subject && report.artifact == artifact);
            match known {
                Some(report) => report.results.push(outcome),
                None => reports.push(report(subject.clone(), artifact, vec![outcome])),
            }
        }
        if !reasons.is_empty() {
            let lacks = reasons.iter().map(|reason| reason_finding(answer, reason)).collect();
            reports.push(report(subject, one.digest.to_string(), lacks));
        }
    }
    if let Some(text) = few.more() {
        // Says nothing of the image, so it is said of none of its artifacts.
        reports.push(report(answer.reference.clone(), String::new(), vec![more_finding(text)]));
    }
    if reports.is_empty() && !answer.reasons.is_empty() {
        let told = answer.reasons.iter().take(MAX_REPORTS);
        let lacks = told.map(|reason| reason_finding(answer, reason)).collect();
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

fn more_finding(description: String) -> Finding {
    let verifier_name = POLICY.to_owned();
    Finding { verifier_name, description: Some(description), detail: None, error_reason: None }
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
    use portolan_core::Digest;

    use super::*;
    use crate::decision::{SubjectAnswer, Verdict, Warning};
    use crate::evidence::SignatureKind;
    use crate::subject::Kind;

    fn answer(signatures: usize, message: &str) -> Told {
        let digest = Digest::sha256(b"x");
        let signature = SignatureAnswer {
            artifact: digest,
            tag: None,
            kind: SignatureKind::Layer,
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
    fn times_are_those_of_the_library_to_the_nanosecond() {
        let mut stamp = "2026-11-18T01:02:03.000000004Z".parse::<Timestamp>().unwrap();
        for step in [0, 1, 999_999_990, 1_000_000_000, 61_000_000_007, 86_399_000_000_001] {
            stamp = stamp.checked_add(jiff::SignedDuration::from_nanos(step)).unwrap();
            let mut text = Vec::new();
            time(stamp, &mut text);
            let text = String::from_utf8(text).unwrap();
            assert_eq!(text.parse::<Timestamp>().unwrap(), stamp, "{text}");
            assert_eq!(text.len(), 30, "{text}");
        }
    }

    #[test]
    fn of_many_subjects_as_much_is_told_as_of_one_and_what_is_lacking_before_signatures() {
        let Told::Answer { answer: of_one, .. } = answer(64, "no") else { unreachable!() };
        let mut answer = *of_one;
        let reason =
            Reason { code: crate::decision::ReasonCode::NotSigned, message: "LACKS".to_owned() };
        answer.subjects[0].reasons = vec![reason.clone()];
        answer.subjects = vec![answer.subjects[0].clone(); 40];
        answer.reasons = vec![reason; 100];
        let told = Told::Answer { answer: Box::new(answer), media_type: None, kept: None };
        for shape in [Shape::V1, Shape::V2] {
            let manner = Manner { shape, audit: false };
            let text = written(manner, &told, "r").unwrap().rest;
            let text = String::from_utf8(text.to_vec()).unwrap();
            let whole = format!("{{{text}");
            let value: serde_json::Value = serde_json::from_str(&whole).unwrap();
            let reports = match shape {
                Shape::V1 => value["verifierReports"].as_array().unwrap().len(),
                Shape::V2 => {
                    let all = value["artifactReports"].as_array().unwrap().iter();
                    all.map(|one| one["results"].as_array().unwrap().len()).sum()
                }
            };
            // And the one that counts the others.
            assert_eq!(reports, 65, "{text}");
            let more = format!("and {} more, which", 40 * 65 - 64);
            assert!(text.contains(&more) && text.contains("and 36 more reasons"), "{text}");
            assert!(text.len() < 100_000, "{}", text.len());
        }
    }

    #[test]
    fn yes_and_no_stand_under_both_names_in_either_shape() {
        let Told::Answer { answer: no, .. } = answer(1, "no") else { unreachable!() };
        let yes = Box::new(Answer { verdict: Verdict::Verified, ..(*no).clone() });
        let told = |answer| Told::Answer { answer, media_type: None, kept: None };
        for shape in [Shape::V1, Shape::V2] {
            let manner = |audit| Manner { shape, audit };
            for (one, expected) in [
                (written(manner(false), &told(yes.clone()), "r"), true),
                (written(manner(false), &told(no.clone()), "r"), false),
                (written(manner(true), &told(no.clone()), "r"), true),
                (written(manner(false), &Told::Exempt("mine".to_owned()), "r"), true),
                (audited_trouble(manner(true), "down"), true),
            ] {
                let whole = [b"{", &*one.unwrap().rest].concat();
                let value: serde_json::Value = serde_json::from_slice(&whole).unwrap();
                let flags = [&value["isSuccess"], &value["succeeded"]];
                assert_eq!(flags, [expected, expected], "{shape:?}: {value}");
            }
        }
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
        for shape in [Shape::V1, Shape::V2] {
            let many = written(Manner { shape, audit: false }, &answer(1000, "no"), "r");
            let text = String::from_utf8(many.unwrap().rest.to_vec()).unwrap();
            assert!(text.contains("and 936 more"), "{text}");
        }
    }
}
