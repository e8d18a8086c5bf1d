//! What a policy objects to, in one sentence: as a Release records it, and as an agent says it that starts nothing.

use portolan_verify::decision::{Answer, SubjectAnswer};
use portolan_verify::subject::Kind;

/// Objections in one sentence.
const MAX: usize = 4;

/// Each subject that does not pass, with its digest and why; where none is named, why there is no answer.
pub fn objections(answer: &Answer) -> String {
    let refused = answer.subjects.iter().filter(|one| !one.verified && !one.reasons.is_empty());
    let mut why: Vec<String> = refused.map(objection).collect();
    if why.is_empty() {
        why.extend(answer.reasons.iter().map(|reason| reason.message.clone()));
    }
    let more = why.len().saturating_sub(MAX);
    why.truncate(MAX);
    if more > 0 {
        why.push(format!("and {more} more"));
    }
    why.join("; ")
}

fn objection(subject: &SubjectAnswer) -> String {
    let reasons: Vec<_> = subject.reasons.iter().map(|reason| reason.message.as_str()).collect();
    let what = match (subject.kind, &subject.platform) {
        (Kind::Index, _) => "the index".to_owned(),
        (Kind::Manifest, Some(platform)) => format!("the image for {platform}"),
        (Kind::Manifest, None) => "the image".to_owned(),
    };
    format!("{what} {}: {}", subject.digest, reasons.join("; "))
}
