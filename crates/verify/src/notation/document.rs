//! The trust policy document of the Notary Project (`trustpolicy.json`, version 1.0).

use std::collections::BTreeSet;

use portolan_core::Reference;
use serde::Deserialize;

use super::json;
use super::policy::{
    Identities, Level, Override, PolicyError, PolicyParts, TrustPolicy, VerifyTimestamp,
};

/// A policy for a thousand repositories has a hundred kilobytes.
pub const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;

/// All statements of a document; at most one is for a repository.
#[derive(Debug, Clone)]
pub struct TrustPolicies {
    statements: Vec<(Scopes, TrustPolicy)>,
}

#[derive(Debug, Clone)]
enum Scopes {
    /// `*`: what no other statement names.
    Others,
    /// `host/path` of each.
    Repositories(Vec<String>),
}

/// What is wrong with a document.
#[derive(Debug, thiserror::Error)]
pub enum ParsePolicyError {
    /// More than any real one.
    #[error("the trust policy has {0} bytes; {MAX_DOCUMENT_BYTES} are taken")]
    TooLarge(usize),
    /// Not JSON, or not of this form.
    #[error("the trust policy cannot be read")]
    Json(#[from] serde_json::Error),
    /// Another version.
    #[error("the trust policy has version {0:?}; 1.0 is known")]
    Version(String),
    /// No statement at all.
    #[error("the trust policy has no statements (trustPolicies)")]
    Empty,
    /// One statement is wrong.
    #[error("the statement {name:?}")]
    Statement {
        /// Which.
        name: String,
        /// Why.
        #[source]
        source: StatementError,
    },
}

/// What is wrong with a statement of a document.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// By itself.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Another one has its name.
    #[error("another statement has the same name")]
    SameName,
    /// For no repository.
    #[error("it has no registryScopes")]
    NoScope,
    /// `*` and something else.
    #[error("the scope * stands alone")]
    StarWithMore,
    /// Not a repository.
    #[error("the scope {0:?} is not host/path without a tag, digest or scheme")]
    Scope(String),
    /// Another statement, or this one, has it already.
    #[error("the scope {0:?} is there twice")]
    SameScope(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    version: String,
    #[serde(default)]
    trust_policies: Vec<Statement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Statement {
    name: String,
    #[serde(default)]
    registry_scopes: Vec<String>,
    signature_verification: Verification,
    #[serde(default)]
    trust_stores: Vec<String>,
    #[serde(default)]
    trusted_identities: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Verification {
    level: Level,
    #[serde(default, rename = "override")]
    overrides: Override,
    #[serde(default)]
    verify_timestamp: VerifyTimestamp,
}

impl TrustPolicies {
    /// Reads a document. Unknown members are refused: a rule that is not understood may be the
    /// one that was meant to protect.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParsePolicyError> {
        if bytes.len() > MAX_DOCUMENT_BYTES {
            return Err(ParsePolicyError::TooLarge(bytes.len()));
        }
        let written: Written = serde_json::from_value(json::parse(bytes)?)?;
        if written.version != "1.0" {
            return Err(ParsePolicyError::Version(written.version));
        }
        if written.trust_policies.is_empty() {
            return Err(ParsePolicyError::Empty);
        }
        let mut names = BTreeSet::new();
        let mut taken = BTreeSet::new();
        let mut statements = Vec::new();
        for statement in written.trust_policies {
            let name = statement.name.clone();
            let read = if names.insert(name.clone()) {
                read(statement, &mut taken)
            } else {
                Err(StatementError::SameName)
            };
            let wrong = |source| ParsePolicyError::Statement { name, source };
            statements.push(read.map_err(wrong)?);
        }
        Ok(Self { statements })
    }

    /// The statement for a repository (`registry.example:5000/team/app`): the one that names it,
    /// else the one for `*`.
    pub fn for_repository(&self, repository: &str) -> Option<&TrustPolicy> {
        let named = self.statements.iter().find(|(scopes, _)| {
            matches!(scopes, Scopes::Repositories(names) if names.iter().any(|n| n == repository))
        });
        let others = || self.statements.iter().find(|(scopes, _)| matches!(scopes, Scopes::Others));
        named.or_else(others).map(|(_, policy)| policy)
    }
}

fn read(
    statement: Statement,
    taken: &mut BTreeSet<String>,
) -> Result<(Scopes, TrustPolicy), StatementError> {
    let scopes = scopes(statement.registry_scopes, taken)?;
    let stores = statement.trust_stores.iter().map(|text| text.parse());
    let policy = TrustPolicy::new(PolicyParts {
        name: statement.name,
        level: statement.signature_verification.level,
        overrides: statement.signature_verification.overrides,
        verify_timestamp: statement.signature_verification.verify_timestamp,
        stores: stores.collect::<Result<_, _>>()?,
        identities: Identities::parse(&statement.trusted_identities)?,
    })?;
    Ok((scopes, policy))
}

fn scopes(written: Vec<String>, taken: &mut BTreeSet<String>) -> Result<Scopes, StatementError> {
    for scope in &written {
        if !taken.insert(scope.clone()) {
            return Err(StatementError::SameScope(scope.clone()));
        }
    }
    match written.iter().position(|scope| scope == "*") {
        Some(_) if written.len() > 1 => return Err(StatementError::StarWithMore),
        Some(_) => return Ok(Scopes::Others),
        None => {}
    }
    if written.is_empty() {
        return Err(StatementError::NoScope);
    }
    match written.iter().find(|scope| !is_repository(scope)) {
        Some(wrong) => Err(StatementError::Scope(wrong.clone())),
        None => Ok(Scopes::Repositories(written)),
    }
}

/// `host[:port]/path`, spelt as references spell it: a scope that no reference can equal would
/// protect nothing.
fn is_repository(scope: &str) -> bool {
    match scope.parse() {
        Ok(Reference::Registry(read)) => {
            scope == format!("{}/{}", read.registry.as_str(), read.repository.as_str())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::causes::chain;

    use super::*;
    use serde_json::{Value, json};

    fn document(change: impl Fn(&mut Value)) -> Result<TrustPolicies, ParsePolicyError> {
        let mut document = json!({
            "version": "1.0",
            "trustPolicies": [{
                "name": "team",
                "registryScopes": ["registry.example:5000/team/app", "localhost:5000/x"],
                "signatureVerification": {
                    "level": "strict",
                    "override": {"revocation": "skip", "expiry": "log"},
                    "verifyTimestamp": "afterCertExpiry"
                },
                "trustStores": ["ca:acme", "tsa:clock"],
                "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Acme"]
            }, {
                "name": "rest",
                "registryScopes": ["*"],
                "signatureVerification": {"level": "permissive"},
                "trustStores": ["ca:acme"],
                "trustedIdentities": ["*"]
            }]
        });
        change(&mut document);
        TrustPolicies::parse(document.to_string().as_bytes())
    }

    #[test]
    fn the_statement_that_names_a_repository_is_before_the_one_for_all() {
        let policies = document(|_| {}).unwrap();
        let named = |repository| policies.for_repository(repository).map(TrustPolicy::name);
        assert_eq!(named("registry.example:5000/team/app"), Some("team"));
        assert_eq!(named("localhost:5000/x"), Some("team"));
        assert_eq!(named("registry.example:5000/team/app2"), Some("rest"));
        assert_eq!(named("registry.example:5000/team"), Some("rest"));
        let alone = document(|d| drop(d["trustPolicies"].as_array_mut().unwrap().pop())).unwrap();
        assert!(alone.for_repository("other.example/x").is_none());
    }

    #[test]
    fn a_statement_that_says_two_things_or_too_little_is_refused() {
        type Change = fn(&mut Value);
        let cases: &[(Change, &str)] = &[
            (|d| d["version"] = json!("2.0"), "version \"2.0\""),
            (|d| d["trustPolicies"] = json!([]), "no statements"),
            (|d| d["unknown"] = json!(1), "unknown field"),
            (|d| d["trustPolicies"][0]["scope"] = json!([]), "unknown field"),
            (|d| d["trustPolicies"][1]["name"] = json!("team"), "same name"),
            (|d| d["trustPolicies"][0]["name"] = json!(""), "no name"),
            (|d| d["trustPolicies"][0]["registryScopes"] = json!([]), "no registryScopes"),
            (|d| d["trustPolicies"][0]["registryScopes"] = json!(["*"]), "\"*\" is there twice"),
            (|d| d["trustPolicies"][0]["registryScopes"] = json!(["a.b/c", "*"]), "stands alone"),
            (|d| d["trustPolicies"][0]["registryScopes"] = json!(["a.b/c", "a.b/c"]), "twice"),
            (|d| d["trustPolicies"][0]["registryScopes"] = json!(["a.b/c:tag"]), "not host/path"),
            (|d| d["trustPolicies"][0]["registryScopes"] = json!(["a.b/*"]), "not host/path"),
            (|d| d["trustPolicies"][0]["registryScopes"] = json!(["team"]), "not host/path"),
            (|d| d["trustPolicies"][0]["signatureVerification"]["level"] = json!("lax"), "lax"),
            (
                |d| {
                    d["trustPolicies"][0]["signatureVerification"]["override"] =
                        json!({"integrity": "log"});
                },
                "unknown field `integrity`",
            ),
            (
                |d| {
                    d["trustPolicies"][0]["signatureVerification"]["override"] =
                        json!({"authenticity": "log"});
                },
                "unknown field `authenticity`",
            ),
            (|d| d["trustPolicies"][0]["trustStores"] = json!(["acme"]), "no trust store"),
            (|d| d["trustPolicies"][0]["trustStores"] = json!(["ca:../x"]), "no trust store"),
            (|d| d["trustPolicies"][0]["trustStores"] = json!(["tsa:clock"]), "for signers"),
            (|d| d["trustPolicies"][0]["trustStores"] = json!([]), "for signers"),
            (|d| d["trustPolicies"][0]["trustedIdentities"] = json!([]), "no trusted identities"),
            (|d| d["trustPolicies"][0]["trustedIdentities"] = json!(["me"]), "no identity"),
            (|d| d["trustPolicies"][0]["trustedIdentities"] = json!(["*", "*"]), "no identity"),
            (
                |d| {
                    d["trustPolicies"][0]["trustedIdentities"] =
                        json!(["x509.subject: C=US,ST=WA,O=A", "x509.subject:CN=b,C=US,ST=WA,O=A"]);
                },
                "overlap",
            ),
            (
                |d| d["trustPolicies"][0]["signatureVerification"]["level"] = json!("skip"),
                "unknown variant `skip`",
            ),
            (
                |d| d["trustPolicies"][0]["signatureVerification"]["level"] = json!("audit"),
                "unknown variant `audit`",
            ),
        ];
        for (change, why) in cases {
            let error = document(change).unwrap_err();
            assert!(chain(&error).contains(why), "{why}: {}", chain(&error));
        }
    }

    #[test]
    fn a_member_twice_is_refused() {
        let text = br#"{"version":"1.0","version":"1.0","trustPolicies":[]}"#;
        assert!(matches!(TrustPolicies::parse(text), Err(ParsePolicyError::Json(_))));
        let large = vec![b' '; MAX_DOCUMENT_BYTES + 1];
        assert!(matches!(TrustPolicies::parse(&large), Err(ParsePolicyError::TooLarge(_))));
    }
}
