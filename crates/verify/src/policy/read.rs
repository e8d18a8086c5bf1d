//! From a policy file, and the files that it names, to a policy.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{SignedDuration, Span, SpanRelativeTo};
use portolan_core::Digest;
use portolan_core::suggest::nearest;
use portolan_core::yaml::{self, MAX_FLOW_DEPTH};
use portolan_registry::durable::{self, DurableError};

use super::document::{self, Document, IndexPolicy, MissingPlatform, Platforms, PlatformsWord};
use super::scope::Pattern;
use super::{
    AttestationRule, Condition, NamedSigner, PlatformDefault, Policy, Requirement, Rule, SbomRule,
    Scope, Threshold, VulnerabilityRule, signer,
};
use crate::authority::Authority;
use crate::notation::MAX_CRL_BYTES;
use crate::rego::{MAX_REGO, RegoPolicy};
use crate::subjects::{Missing, Wanted};

/// A policy is a page, not a book.
const MAX_POLICY: u64 = 1024 * 1024;
/// Of a file that it names: a list of revoked certificates is the largest.
const MAX_FILE: u64 = MAX_CRL_BYTES as u64;
/// Scopes, signers, conditions: more is a mistake.
const MAX_ENTRIES: usize = 1000;

/// Why a policy is not used.
#[derive(Debug, thiserror::Error)]
pub enum LoadPolicyError {
    /// It is not there.
    #[error("there is no policy {}", path.display())]
    NotFound {
        /// Where it should be.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("cannot read the policy {}", path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// The cause.
        #[source]
        source: DurableError,
    },
    /// It is not a policy.
    #[error("the policy {} is wrong", path.display())]
    Content {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: PolicyContentError,
    },
}

/// What is wrong with a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyContentError {
    /// Not YAML, or not the members of a policy.
    #[error("{problem}{}", hint.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Yaml {
        /// With line and column. Not a source: what was meant is told after it.
        problem: serde_yaml_ng::Error,
        /// What was probably meant.
        hint: Option<String>,
    },
    /// Nested deeper than any policy.
    #[error("it nests deeper than {MAX_FLOW_DEPTH} levels")]
    TooDeep,
    /// Of another time.
    #[error("its version is {0}, only 1 is known")]
    Version(u32),
    /// A file that it names.
    #[error("{place}: cannot read {}: {what}", file.display())]
    File {
        /// Who names it.
        place: String,
        /// As named.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// What it says makes no sense.
    #[error("{place}: {what}")]
    Sense {
        /// Where.
        place: String,
        /// What is wrong there.
        what: String,
    },
}

/// Reads what a policy names, relative to it; the error is for people.
pub(super) type ReadFile<'a> = &'a dyn Fn(&Path) -> Result<Vec<u8>, String>;

/// Reads the policy at `path`, and the keys and roots that it names.
pub fn load(path: &Path) -> Result<Policy, LoadPolicyError> {
    load_with_fingerprint(path).1
}

/// The same with a fingerprint of everything that was read, so that whoever reads again sees
/// whether something changed, be it only in a key; none where nothing was read.
pub fn load_with_fingerprint(path: &Path) -> (Option<Digest>, Result<Policy, LoadPolicyError>) {
    let path = path.to_owned();
    let bytes = match durable::read_bounded(&path, MAX_POLICY) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return (None, Err(LoadPolicyError::NotFound { path })),
        Err(source) => return (None, Err(LoadPolicyError::Read { path, source })),
    };
    let beside = path.parent().unwrap_or_else(|| Path::new("")).to_owned();
    let read = |file: &Path| match durable::read_bounded(&beside.join(file), MAX_FILE) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err("it is not there; paths are relative to the policy".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let (fingerprint, policy) = parse_with_fingerprint(&bytes, &read);
    (Some(fingerprint), policy.map_err(|source| LoadPolicyError::Content { path, source }))
}

/// Reads the text of a policy, with a fingerprint of it and of all that `read` gave.
pub fn parse_with_fingerprint(
    bytes: &[u8],
    read: &dyn Fn(&Path) -> Result<Vec<u8>, String>,
) -> (Digest, Result<Policy, PolicyContentError>) {
    let seen = RefCell::new(Digest::sha256(bytes).to_string());
    let read = |file: &Path| {
        let read = read(file);
        if let Ok(bytes) = &read {
            seen.borrow_mut().push_str(&Digest::sha256(bytes).to_string());
        }
        read
    };
    let policy = parse(bytes, &read);
    (Digest::sha256(seen.into_inner().as_bytes()), policy)
}

/// Reads the text of a policy; `read` gets the files that it names.
pub fn parse(
    bytes: &[u8],
    read: &dyn Fn(&Path) -> Result<Vec<u8>, String>,
) -> Result<Policy, PolicyContentError> {
    if yaml::is_too_deep(bytes) {
        return Err(PolicyContentError::TooDeep);
    }
    let document: Document = serde_yaml_ng::from_slice(bytes).map_err(|problem| {
        PolicyContentError::Yaml { hint: hint(&problem.to_string()), problem }
    })?;
    if document.version != 1 {
        return Err(PolicyContentError::Version(document.version));
    }
    let entries = document.signers.len() + document.scopes.len();
    if entries > MAX_ENTRIES {
        return Err(wrong("policy", format!("more than {MAX_ENTRIES} signers and scopes")));
    }
    let mut signers = BTreeMap::new();
    for (name, written) in &document.signers {
        let place = format!("signers.{name}");
        signers.insert(name.clone(), signer::authority(&place, written, read)?);
    }
    let mut seen = BTreeSet::new();
    let mut scopes = Vec::new();
    for document::Scope { name, patterns, rule } in document.scopes {
        let place = format!("scope {name:?}");
        let patterns = patterns_of(&place, &patterns, &mut seen)?;
        let rule = Arc::new(resolve((&place, name), rule, &signers, read)?);
        scopes.push(Scope { patterns, rule });
    }
    let default = document.default;
    let default = default
        .map(|rule| resolve(("default", "default".to_owned()), rule, &signers, read))
        .transpose()?
        .map(Arc::new);
    if scopes.is_empty() && default.is_none() {
        return Err(wrong("policy", "it has neither `scopes` nor a `default`, so it says nothing"));
    }
    Ok(Policy { scopes, default })
}

/// What was probably meant, from serde's words: the wrong name first, then those that are known.
fn hint(message: &str) -> Option<String> {
    let (_, rest) = message
        .split_once("unknown field `")
        .or_else(|| message.split_once("unknown variant `"))?;
    let (found, rest) = rest.split_once('`')?;
    nearest(found, rest.split('`').skip(1).step_by(2)).map(str::to_owned)
}

pub(super) fn wrong(place: &str, what: impl Into<String>) -> PolicyContentError {
    PolicyContentError::Sense { place: place.to_owned(), what: what.into() }
}

/// The same pattern twice would let the order of the file decide which rule counts.
fn patterns_of(
    place: &str,
    written: &[String],
    seen: &mut BTreeSet<String>,
) -> Result<Vec<Pattern>, PolicyContentError> {
    if written.is_empty() {
        return Err(wrong(place, "`match` is empty, so it is for no image"));
    }
    let mut patterns = Vec::new();
    for text in written {
        let pattern = Pattern::parse(text).map_err(|what| wrong(place, what))?;
        if !seen.insert(pattern.to_string()) {
            return Err(wrong(place, format!("{pattern} is matched twice, so neither counts")));
        }
        patterns.push(pattern);
    }
    Ok(patterns)
}

type Signers = BTreeMap<String, Arc<dyn Authority>>;

fn resolve(
    (place, name): (&str, String),
    written: document::Rule,
    signers: &Signers,
    read: ReadFile<'_>,
) -> Result<Rule, PolicyContentError> {
    let rego = written.rego.as_ref().map(|file| rego(place, file, &written, read)).transpose()?;
    let require =
        written.require.map(|require| requirement(place, require, signers)).transpose()?;
    let mut attestations = Vec::new();
    for one in written.attestations {
        attestations.push(attestation(place, one, require.as_ref(), signers)?);
    }
    let document::Documents { sbom, vulnerabilities } = written.documents;
    let asks = require.is_some()
        || !attestations.is_empty()
        || sbom.is_some()
        || vulnerabilities.is_some();
    if !asks && rego.is_none() {
        let what = "it asks for nothing; add `require`, `attestations`, `documents` or `rego`";
        return Err(wrong(place, what));
    }
    let unsigned = |allow: Option<bool>| allow == Some(false) && require.is_none();
    if unsigned(sbom.as_ref().map(|sbom| sbom.allow_unsigned))
        || unsigned(vulnerabilities.as_ref().map(|one| one.allow_unsigned))
    {
        let what = "`documents` that must be signed need `require` to say by whom";
        return Err(wrong(place, what));
    }
    let named: BTreeSet<&String> = require
        .iter()
        .chain(attestations.iter().map(|one| &one.require))
        .flat_map(|requirement| requirement.names())
        // Rego sees what everybody says.
        .chain(signers.keys().filter(|_| rego.is_some()))
        .collect();
    let named = named.into_iter().filter_map(|name| {
        let authority = signers.get(name)?.clone();
        Some(NamedSigner { name: name.clone(), authority })
    });
    Ok(Rule {
        name,
        signers: named.collect(),
        sbom: sbom.map(sbom_rule),
        vulnerabilities: vulnerabilities.map(|one| vulnerability_rule(place, one)).transpose()?,
        index_policy: written.index_policy,
        platforms: platforms(place, written.platforms)?,
        partial: written.partial_platform,
        missing: match written.missing_platform {
            MissingPlatform::Refuse => Missing::Refuse,
            MissingPlatform::Ignore => Missing::Ignore,
        },
        require,
        attestations,
        rego,
    })
}

/// The policy in Rego that a rule leaves everything to.
fn rego(
    place: &str,
    file: &Path,
    rule: &document::Rule,
    read: ReadFile<'_>,
) -> Result<Arc<RegoPolicy>, PolicyContentError> {
    let document::Rule { require, attestations, documents, index_policy, .. } = rule;
    let document::Documents { sbom, vulnerabilities } = documents;
    let alone = require.is_none() && attestations.is_empty() && *index_policy == IndexPolicy::Both;
    if !alone || sbom.is_some() || vulnerabilities.is_some() {
        let what = "`rego` decides alone; take away `require`, `attestations`, `documents` and `indexPolicy`";
        return Err(wrong(place, what));
    }
    let not_taken = |what: String| PolicyContentError::File {
        place: place.to_owned(),
        file: file.to_owned(),
        what,
    };
    let bytes = signer::file_of(place, file, read)?;
    if bytes.len() as u64 > MAX_REGO {
        return Err(not_taken(format!(
            "it has {} bytes, at most {MAX_REGO} are read",
            bytes.len()
        )));
    }
    let policy = RegoPolicy::parse(&file.display().to_string(), &bytes);
    policy.map(Arc::new).map_err(|error| not_taken(error.to_string()))
}

fn requirement(
    place: &str,
    written: document::Require,
    signers: &Signers,
) -> Result<Requirement, PolicyContentError> {
    let document::Require { all_of, any_of, at_least } = written;
    for (key, names) in [("allOf", &all_of), ("anyOf", &any_of)] {
        if names.iter().collect::<BTreeSet<_>>().len() != names.len() {
            return Err(wrong(place, format!("`{key}` names a signer twice")));
        }
        if let Some(unknown) = names.iter().find(|name| !signers.contains_key(*name)) {
            let near = nearest(unknown, signers.keys().map(String::as_str));
            let near = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
            return Err(wrong(place, format!("`{key}` names {unknown:?}, who is no signer{near}")));
        }
    }
    if at_least.is_some() && any_of.is_empty() {
        return Err(wrong(place, "`atLeast` needs `anyOf`"));
    }
    let any_of = match any_of.len() {
        0 => None,
        of => {
            let count = at_least.unwrap_or(1);
            let what = || wrong(place, format!("`atLeast` is {count}, and must be from 1 to {of}"));
            Some(Threshold::new(any_of, count).ok_or_else(what)?)
        }
    };
    Requirement::new(all_of, any_of)
        .ok_or_else(|| wrong(place, "`require` names nobody; add `allOf` or `anyOf`"))
}

fn attestation(
    place: &str,
    written: document::Attestation,
    scope: Option<&Requirement>,
    signers: &Signers,
) -> Result<AttestationRule, PolicyContentError> {
    let place = format!("{place}, attestation {:?}", written.predicate_type);
    let require = match written.require {
        Some(require) => requirement(&place, require, signers)?,
        None => scope
            .cloned()
            .ok_or_else(|| wrong(&place, "it needs `require` to say who must have made it"))?,
    };
    if written.conditions.len() > MAX_ENTRIES {
        return Err(wrong(&place, format!("it has more than {MAX_ENTRIES} conditions")));
    }
    let conditions = written.conditions.into_iter().map(Condition::new);
    let conditions = conditions.collect::<Result<_, _>>().map_err(|what| wrong(&place, what))?;
    Ok(AttestationRule { predicate_type: written.predicate_type, require, conditions })
}

fn sbom_rule(written: document::Sbom) -> SbomRule {
    let licenses = written.disallowed_licenses.iter().map(|one| one.to_ascii_lowercase());
    SbomRule {
        licenses: licenses.collect(),
        packages: written.disallowed_packages,
        allow_unsigned: written.allow_unsigned,
    }
}

fn vulnerability_rule(
    place: &str,
    written: document::Vulnerabilities,
) -> Result<VulnerabilityRule, PolicyContentError> {
    let age = |text: String| -> Result<SignedDuration, PolicyContentError> {
        let days = SpanRelativeTo::days_are_24_hours();
        let span = text.parse::<Span>().and_then(|span| span.to_duration(days));
        let span = span.ok().filter(|span| span.is_positive());
        let what = || wrong(place, format!("`maximumAge` is {text:?}; write 7d or 36h"));
        span.ok_or_else(what)
    };
    Ok(VulnerabilityRule {
        severities: written.disallowed_severities,
        ids: written.denied_ids.iter().map(|id| id.to_ascii_uppercase()).collect(),
        maximum_age: written.maximum_age.map(age).transpose()?,
        allow_unsigned: written.allow_unsigned,
    })
}

fn platforms(place: &str, written: Platforms) -> Result<PlatformDefault, PolicyContentError> {
    Ok(match written {
        Platforms::Word(PlatformsWord::Host) => PlatformDefault::Host,
        Platforms::Word(PlatformsWord::Nodes) => PlatformDefault::Nodes,
        Platforms::Word(PlatformsWord::All) => PlatformDefault::All,
        Platforms::List(list) => PlatformDefault::List(Wanted::of(list).ok_or_else(|| {
            wrong(place, "`platforms` is an empty list; write host, nodes, all or platforms")
        })?),
    })
}
