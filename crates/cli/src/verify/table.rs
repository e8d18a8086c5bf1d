//! An answer for people: each subject, who signed it, and why what does not count does not.

use std::fmt::Write as _;

use portolan_verify::decision::{Answer, SignatureAnswer, SubjectAnswer};
use portolan_verify::subject::Kind;

use crate::format::safe;

pub(crate) fn answer(answer: &Answer) -> String {
    let mut text = format!("{}: {}\n", answer.verdict, safe(&answer.reference));
    if let Some(digest) = &answer.digest {
        let _ = writeln!(text, "digest: {digest}");
    }
    if let Some(policy) = &answer.policy {
        let _ = writeln!(text, "policy: {}, for {}", safe(policy), answer.platforms.join(", "));
    }
    for reason in &answer.reasons {
        let _ = writeln!(text, "{}: {}", reason.code, safe(&reason.message));
    }
    for subject in &answer.subjects {
        text.push('\n');
        write_subject(&mut text, subject);
    }
    text
}

fn write_subject(text: &mut String, subject: &SubjectAnswer) {
    let name = match (&subject.platform, subject.kind) {
        (_, Kind::Index) => "index".to_owned(),
        (Some(platform), Kind::Manifest) => platform.to_string(),
        (None, Kind::Manifest) => "image".to_owned(),
    };
    let verdict = if subject.verified { "verified" } else { "refused" };
    let _ = writeln!(text, "{name} {}: {verdict}", subject.digest);
    for reason in &subject.reasons {
        let _ = writeln!(text, "  {}: {}", reason.code, safe(&reason.message));
    }
    // What one signer accepted need not be told of those whose it is not.
    let counted = |one: &SignatureAnswer| {
        subject.signatures.iter().any(|other| other.accepted && other.artifact == one.artifact)
    };
    for one in subject.signatures.iter().filter(|one| one.accepted || !counted(one)) {
        write_signature(text, one);
    }
    for one in &subject.passed_over {
        let _ = writeln!(text, "  passed over {}: {}", one.artifact.short(), safe(&one.why));
    }
}

fn write_signature(text: &mut String, one: &SignatureAnswer) {
    let what = one.predicate_type.as_deref().map_or_else(|| "signature".to_owned(), safe);
    let artifact = one.artifact.short();
    if one.accepted {
        let by = one.identity.as_deref().map(safe).unwrap_or_default();
        let issuer = one.issuer.as_deref().map(|who| format!(", says {}", safe(who)));
        let issuer = issuer.unwrap_or_default();
        let _ = writeln!(text, "  {what} of {} ({by}{issuer}) in {artifact}", safe(&one.signer));
        let _ = writeln!(text, "    {}", one.checks.join("; "));
        for warning in &one.warnings {
            let _ = writeln!(text, "    not enforced: {}", safe(warning));
        }
    } else {
        let code = one.code.map(|code| code.to_string()).unwrap_or_default();
        let message = one.message.as_deref().map(safe).unwrap_or_default();
        let _ = writeln!(text, "  {what} in {artifact} is not of {}: {code}", safe(&one.signer));
        let _ = writeln!(text, "    {message}");
    }
}
