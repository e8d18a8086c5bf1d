//! What lists of parts and of weaknesses say, and whether they may.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::answer::{Reason, ReasonCode};
use super::quorum::{Vote, unmet};
use super::weaknesses::findings_in_weaknesses;
use super::{Examined, vote, votes};
use crate::authority::{Accepted, Claim};
use crate::collect::{CYCLONEDX, SARIF, SPDX};
use crate::evidence::Content;
use crate::policy::{Requirement, Rule, SbomRule, VulnerabilityRule};

/// Statements that are a list of parts, and of weaknesses. What follows is a version.
const SBOM_PREDICATES: [&str; 2] = ["https://spdx.dev/Document", "https://cyclonedx.org/bom"];
const VULNERABILITY_PREDICATES: [&str; 1] = ["https://cosign.sigstore.dev/attestation/vuln"];
/// Things in a document that are told; the rest is counted.
const MAX_TOLD: usize = 5;
/// How deep components of CycloneDX may lie inside each other.
const MAX_DEPTH: usize = 16;

/// Something that a document may not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding(pub String);

/// A document that counts.
struct Counted<'a> {
    value: Option<Value>,
    time: Option<Timestamp>,
    /// Who vouches for it; none where nobody does.
    vote: Option<Vote<'a>>,
}

/// Why the documents that `rule` asks for do not do.
pub(super) fn decide(rule: &Rule, examined: &Examined, now: Timestamp) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if let Some(sbom) = &rule.sbom {
        let types = |t: &str| SPDX.contains(&t) || t == CYCLONEDX;
        let counted = counted(rule, examined, sbom.allow_unsigned, &SBOM_PREDICATES, types);
        reasons.extend(counted.and_then(|all| clean_sboms(sbom, &all)).err());
    }
    if let Some(weaknesses) = &rule.vulnerabilities {
        let types = |t: &str| t == SARIF;
        let allow = weaknesses.allow_unsigned;
        let counted = counted(rule, examined, allow, &VULNERABILITY_PREDICATES, types);
        let require = rule.require.as_ref().filter(|_| !allow);
        reasons.extend(counted.and_then(|all| clean_newest(weaknesses, require, &all, now)).err());
    }
    reasons
}

/// The documents of one kind that count: those in statements of the signers that the rule requires,
/// and where it allows them those that are attached without a signature. Who is named for another
/// statement only does not speak here. Where nobody is required and anybody may speak, all do.
fn counted<'a>(
    rule: &Rule,
    examined: &'a Examined,
    allow_unsigned: bool,
    predicates: &[&str],
    is_type: impl Fn(&str) -> bool,
) -> Result<Vec<Counted<'a>>, Reason> {
    let is_required = |signer: &str| match &rule.require {
        Some(require) => require.names().any(|name| name == signer),
        None => allow_unsigned,
    };
    let signed = examined.accepted().filter(|(signer, accepted)| match &accepted.claim {
        Claim::Statement { predicate_type, .. } => {
            is_required(signer) && predicates.iter().any(|known| predicate_type.starts_with(known))
        }
        Claim::Signature => false,
    });
    let signed: Vec<_> = signed.collect();
    let by_all = rule
        .require
        .as_ref()
        .is_some_and(|require| unmet(require, &votes(signed.iter().copied())).is_none());
    let mut all: Vec<_> = signed.iter().copied().map(of_statement).collect();
    if !allow_unsigned && !by_all {
        let kinds = predicates.join(" or ");
        let message = format!("no statement {kinds} by the signers that are required");
        return Err(Reason::new(ReasonCode::DocumentMissing, message));
    }
    if allow_unsigned {
        all.extend(examined.documents.iter().filter_map(|piece| match &piece.content {
            Content::Document { artifact_type, media_type, created, bytes }
                if is_type(media_type) || is_type(artifact_type) =>
            {
                let time = created.as_deref().and_then(|text| text.parse().ok());
                Some(Counted { value: serde_json::from_slice(bytes).ok(), time, vote: None })
            }
            _ => None,
        }));
    }
    match all.is_empty() {
        true => {
            let kinds = predicates.join(" or ");
            let message = format!("no document of the kind {kinds} is attached");
            Err(Reason::new(ReasonCode::DocumentMissing, message))
        }
        false => Ok(all),
    }
}

/// The time is the one that somebody else proves, else the one that the signer says.
fn of_statement<'a>((signer, accepted): (&'a str, &'a Accepted)) -> Counted<'a> {
    let vote = Some(vote((signer, accepted)));
    let Claim::Statement { predicate, .. } = &accepted.claim else {
        return Counted { value: None, time: None, vote };
    };
    let said = predicate.pointer("/metadata/scanFinishedOn").and_then(Value::as_str);
    let time = accepted.signed_at.or_else(|| said.and_then(|text| text.parse().ok()));
    let inner = predicate.pointer("/scanner/result").unwrap_or(predicate);
    Counted { value: Some(inner.clone()), time, vote }
}

fn clean_sboms(rule: &SbomRule, all: &[Counted<'_>]) -> Result<(), Reason> {
    for one in all {
        let found = one.value.as_ref().map(|value| findings_in_sbom(rule, value));
        told("the list of parts", found.unwrap_or(Err("it is not JSON")))?;
    }
    Ok(())
}

/// Only the newest lists count, as many of them as it takes for all signers that are required to have
/// vouched: what was found later was not known before, and no one signer of several may hide what the
/// others found behind a newer list. One without a time may be as new as any, and must be clean too.
fn clean_newest(
    rule: &VulnerabilityRule,
    require: Option<&Requirement>,
    all: &[Counted<'_>],
    now: Timestamp,
) -> Result<(), Reason> {
    let oldest = oldest_needed(rule, require, all);
    if let Some(age) = rule.maximum_age {
        let old = oldest.is_none_or(|time| now.duration_since(time) > age);
        let future = all.iter().filter_map(|one| one.time).any(|time| time > now);
        if old || future {
            let when = match (oldest, future) {
                (_, true) => "in the future".to_owned(),
                (Some(time), _) => format!("at {time}"),
                (None, _) => "at a time that nobody says, or not every signer".to_owned(),
            };
            let message =
                format!("the newest list of weaknesses was made {when}, and it may be {age:#} old");
            return Err(Reason::new(ReasonCode::DocumentViolation, message));
        }
    }
    for one in all.iter().filter(|one| one.time.is_none() || one.time >= oldest) {
        let found = one.value.as_ref().map(|value| findings_in_weaknesses(rule, value));
        told("the list of weaknesses", found.unwrap_or(Err("it is not JSON")))?;
    }
    Ok(())
}

/// The time of the oldest list that is still needed: all lists since then together have the signers
/// that are required. Where an age is asked for, a list without a time is nobody's word for it.
fn oldest_needed(
    rule: &VulnerabilityRule,
    require: Option<&Requirement>,
    all: &[Counted<'_>],
) -> Option<Timestamp> {
    let times: BTreeSet<Timestamp> = all.iter().filter_map(|one| one.time).collect();
    let Some(require) = require else { return times.last().copied() };
    times.iter().rev().copied().find(|since| {
        let counts = |one: &&Counted<'_>| match one.time {
            Some(time) => time >= *since,
            None => rule.maximum_age.is_none(),
        };
        let votes: Vec<_> = all.iter().filter(counts).filter_map(|one| one.vote).collect();
        unmet(require, &votes).is_none()
    })
}

fn told(what: &str, found: Result<Vec<Finding>, &'static str>) -> Result<(), Reason> {
    let message = match found {
        Ok(found) if found.is_empty() => return Ok(()),
        Ok(found) => {
            let some: Vec<_> = found.iter().take(MAX_TOLD).map(|one| one.0.as_str()).collect();
            let more = found.len().saturating_sub(MAX_TOLD);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{what} has {}{more}", some.join(", "))
        }
        Err(problem) => format!("{what} cannot be read: {problem}"),
    };
    Err(Reason::new(ReasonCode::DocumentViolation, message))
}

/// What a list of parts, SPDX or CycloneDX, has that it may not; or why it is none.
pub fn findings_in_sbom(rule: &SbomRule, sbom: &Value) -> Result<Vec<Finding>, &'static str> {
    let mut findings = Vec::new();
    if sbom.get("spdxVersion").is_some() {
        for package in objects(sbom, "packages").ok_or("it has no list of packages")? {
            let licenses = ["licenseConcluded", "licenseDeclared"].map(|key| text(package, key));
            let from_files = list(package, "licenseInfoFromFiles").filter_map(Value::as_str);
            let licenses = licenses.into_iter().chain(from_files);
            let version = text(package, "versionInfo");
            part(rule, text(package, "name"), version, licenses, &mut findings);
        }
        Ok(findings)
    } else if text(sbom, "bomFormat") == "CycloneDX" {
        // What all of it is about: it has a licence, too, and may have parts.
        match &sbom["metadata"]["component"] {
            Value::Null => {}
            own @ Value::Object(_) => component(rule, own, MAX_DEPTH, &mut findings)?,
            _ => return Err("what it is about is no component"),
        }
        components(rule, sbom, MAX_DEPTH, &mut findings)?;
        Ok(findings)
    } else {
        Err("it is neither SPDX nor CycloneDX in JSON")
    }
}

fn components(
    rule: &SbomRule,
    of: &Value,
    depth: usize,
    findings: &mut Vec<Finding>,
) -> Result<(), &'static str> {
    if depth == 0 {
        return Err("its components lie too deep inside each other");
    }
    for one in objects(of, "components").ok_or("it has no list of components")? {
        component(rule, one, depth, findings)?;
    }
    Ok(())
}

fn component(
    rule: &SbomRule,
    one: &Value,
    depth: usize,
    findings: &mut Vec<Finding>,
) -> Result<(), &'static str> {
    let licenses = list(one, "licenses").flat_map(|license| {
        let inner = &license["license"];
        [text(inner, "id"), text(inner, "name"), text(license, "expression")]
    });
    part(rule, text(one, "name"), text(one, "version"), licenses, findings);
    match one.get("components") {
        Some(_) => components(rule, one, depth - 1, findings),
        None => Ok(()),
    }
}

/// A licence is found as a word of an expression: `MIT OR GPL-3.0-only` has two.
fn part<'a>(
    rule: &SbomRule,
    name: &str,
    version: &str,
    licenses: impl Iterator<Item = &'a str>,
    findings: &mut Vec<Finding>,
) {
    let shown = |text: &str| text.chars().take(80).collect::<String>();
    for license in licenses {
        let words = license.split(|c: char| c.is_whitespace() || "()".contains(c));
        let bad = words.map(str::to_ascii_lowercase).find(|word| rule.licenses.contains(word));
        let whole = Some(license.to_ascii_lowercase()).filter(|all| rule.licenses.contains(all));
        if let Some(bad) = bad.or(whole) {
            findings.push(Finding(format!("{} under {bad}", shown(name))));
        }
    }
    let is = |package: &&crate::policy::Package| {
        package.name == name && package.version.as_deref().is_none_or(|wanted| wanted == version)
    };
    if rule.packages.iter().any(|package| is(&package)) {
        findings.push(Finding(format!("{} {}", shown(name), shown(version))));
    }
}

/// A list of objects and nothing else; none where it is not that.
pub(super) fn objects<'a>(of: &'a Value, key: &str) -> Option<&'a [Value]> {
    let list = of.get(key)?.as_array()?;
    list.iter().all(Value::is_object).then_some(list)
}

pub(super) fn list<'a>(of: &'a Value, key: &str) -> std::slice::Iter<'a, Value> {
    of.get(key).and_then(Value::as_array).map_or_else(|| [].iter(), |list| list.iter())
}

pub(super) fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of.get(key).and_then(Value::as_str).unwrap_or_default()
}
