//! What a webhook of Kubernetes says: of each image, and to the API server.

use serde_json::{Value, json};

use super::config::Tags;
use super::question::Told;
use super::trouble::Trouble;
use crate::decision::{Answer, Reason, SubjectAnswer, Warning};
use crate::report::cut;

/// Longer warnings are cut by API servers, in the middle of a word.
const MAX_WARNING: usize = 250;
/// A message for people; with many images, the first few tell enough.
const MAX_MESSAGE: usize = 4000;

/// What is said of one image.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// What is wrong with it; none where nothing is.
    pub(super) complaint: Option<String>,
    /// What a yes does not cover.
    pub(super) warnings: Vec<String>,
}

/// What is said of one image, for people.
pub(super) fn said(image: &str, told: &Result<Told, Trouble>, tags: Tags) -> Said {
    let complain = |complaint| Said { complaint: Some(complaint), warnings: Vec::new() };
    let answer = match told {
        Err(trouble) => return complain(format!("{image}: {}", trouble.text())),
        Ok(Told::Exempt(_)) => return Said::default(),
        Ok(told @ Told::Answer { answer, .. }) if !told.is_yes() => {
            return complain(refusal(image, answer));
        }
        Ok(Told::Answer { answer, .. }) => answer,
    };
    let is_tag = answer.warnings.iter().any(|warning| matches!(warning, Warning::Tag { .. }));
    if let (Tags::Refuse, true, Some(digest)) = (tags, is_tag, answer.digest) {
        return complain(format!(
            "{image}: it is named by a tag, which may move before it is pulled; name it by its digest, now {digest} (TAG)"
        ));
    }
    let told = answer.warnings.iter();
    let told = told.filter(|one| tags == Tags::Warn || !matches!(one, Warning::Tag { .. }));
    Said { complaint: None, warnings: told.map(|one| format!("{image}: {one}")).collect() }
}

/// Why an image is refused, for people.
fn refusal(image: &str, answer: &Answer) -> String {
    let silent = |subject: &&SubjectAnswer| subject.verified || subject.reasons.is_empty();
    let refused = answer.subjects.iter().filter(|subject| !silent(subject));
    let mut lines: Vec<String> = refused
        .map(|subject| {
            let what = match &subject.platform {
                Some(platform) => format!("{} for {platform}", subject.digest),
                None => format!("index {}", subject.digest),
            };
            let reason = |one: &Reason| format!("{} ({})", one.message, one.code);
            let reasons: Vec<_> = subject.reasons.iter().map(reason).collect();
            format!("{what}: {}", reasons.join("; "))
        })
        .collect();
    if lines.is_empty() {
        lines.extend(answer.reasons.iter().map(|one| format!("{} ({})", one.message, one.code)));
    }
    let digest = answer.digest.map(|digest| format!(" ({digest})")).unwrap_or_default();
    format!("{image}{digest}: {}", lines.join("; "))
}

/// What is said to the API server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ruling {
    pub(super) allowed: bool,
    /// Whether it is allowed only because nothing is enforced.
    pub(super) audited: bool,
    /// Why not.
    pub(super) message: Option<String>,
    pub(super) warnings: Vec<String>,
}

impl Ruling {
    /// A no.
    pub(super) fn no(message: &str) -> Self {
        let message = Some(cut(message, MAX_MESSAGE));
        Self { allowed: false, audited: false, message, warnings: Vec::new() }
    }
}

/// From what is said of each image to a ruling.
pub(super) fn rule(said: Vec<Said>, audit: bool) -> Ruling {
    let (mut complaints, mut warnings) = (Vec::new(), Vec::new());
    for one in said {
        complaints.extend(one.complaint);
        warnings.extend(one.warnings);
    }
    if !audit && !complaints.is_empty() {
        return Ruling::no(&format!("portolan: {}", complaints.join("\n")));
    }
    let audited = !complaints.is_empty();
    let denied = complaints.into_iter().map(|one| format!("would be denied: {one}"));
    Ruling { allowed: true, audited, message: None, warnings: denied.chain(warnings).collect() }
}

/// The same where there is nothing to say of an image, but something is wrong with the request.
pub(super) fn rule_request(complaint: String, audit: bool) -> Ruling {
    rule(vec![Said { complaint: Some(complaint), warnings: Vec::new() }], audit)
}

/// A ruling as it is written.
pub(super) fn write(uid: &str, ruling: &Ruling) -> Value {
    let mut response = json!({"uid": uid, "allowed": ruling.allowed});
    if let Some(message) = &ruling.message {
        response["status"] =
            json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": message});
    }
    if !ruling.warnings.is_empty() {
        let warnings: Vec<_> = ruling.warnings.iter().map(|one| cut(one, MAX_WARNING)).collect();
        response["warnings"] = json!(warnings);
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_complaint_it_is_allowed_and_with_one_only_in_audit_mode() {
        for audit in [false, true] {
            assert!(rule(Vec::new(), audit).allowed);
            let ruling = rule_request("x".to_owned(), audit);
            assert_eq!((ruling.allowed, ruling.audited), (audit, audit));
            let warned = Said { complaint: None, warnings: vec!["w".to_owned()] };
            let ruling = rule(vec![warned], audit);
            assert_eq!(
                (ruling.allowed, ruling.audited),
                (true, false),
                "a warning is no complaint"
            );
            assert_eq!(ruling.warnings, ["w"]);
        }
    }
}
