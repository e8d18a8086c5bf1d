//! Trust policies of the Notary Project: who is trusted, and which checks decide.

use std::fmt;
use std::str::FromStr;

use super::name::{PatternError, SubjectPattern};

/// What a signature is checked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// It leads to a trusted certificate and identity.
    Authenticity,
    /// The certificates were valid when it was made.
    AuthenticTimestamp,
    /// Its own end has not come.
    Expiry,
    /// No certificate was taken back.
    Revocation,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authenticity => "authenticity",
            Self::AuthenticTimestamp => "authenticTimestamp",
            Self::Expiry => "expiry",
            Self::Revocation => "revocation",
        })
    }
}

/// What comes of a check that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// The signature is refused.
    Enforce,
    /// It is told and does not count.
    Log,
    /// Nobody looks.
    Skip,
}

/// The named sets of actions. The project's others, `audit` and `skip`, do not refuse what somebody
/// else signed, so that anybody would be this signer; they are not known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Every check is enforced.
    #[default]
    Strict,
    /// Integrity and authenticity are enforced, the others told.
    Permissive,
}

/// When the countersignature of a timestamping authority is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum VerifyTimestamp {
    /// Whenever the policy names a tsa store.
    #[default]
    Always,
    /// Only when a certificate of the signer has expired.
    AfterCertExpiry,
}

/// Actions instead of the level's; authenticity is always enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Override {
    /// Instead of the level's.
    pub authentic_timestamp: Option<Action>,
    /// Instead of the level's.
    pub expiry: Option<Action>,
    /// Instead of the level's; the only one that may be skipped.
    pub revocation: Option<Action>,
}

/// What a store of certificates is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreKind {
    /// Roots of signers.
    Ca,
    /// Roots of authorities that sign for others.
    SigningAuthority,
    /// Roots of timestamping authorities.
    Tsa,
}

impl StoreKind {
    /// As policies write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ca => "ca",
            Self::SigningAuthority => "signingAuthority",
            Self::Tsa => "tsa",
        }
    }
}

/// `ca:NAME`, `signingAuthority:NAME` or `tsa:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreName {
    kind: StoreKind,
    name: String,
}

impl StoreName {
    /// The store `name` of a kind; letters, digits, `_`, `.` and `-`.
    pub fn new(kind: StoreKind, name: &str) -> Result<Self, PolicyError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(PolicyError::Store(format!("{}:{name}", kind.as_str())));
        }
        Ok(Self { kind, name: name.to_owned() })
    }

    /// What it is for.
    pub fn kind(&self) -> StoreKind {
        self.kind
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.as_str(), self.name)
    }
}

impl FromStr for StoreName {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let kinds = [StoreKind::Ca, StoreKind::SigningAuthority, StoreKind::Tsa];
        let found = text.split_once(':').and_then(|(kind, name)| {
            kinds.into_iter().find(|known| known.as_str() == kind).map(|kind| (kind, name))
        });
        let (kind, name) = found.ok_or_else(|| PolicyError::Store(text.to_owned()))?;
        Self::new(kind, name)
    }
}

/// Who may sign, of those whose certificates lead to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identities {
    /// `*`
    Any,
    /// Those whose subject fits one of these.
    Subjects(Vec<SubjectPattern>),
}

impl Identities {
    /// Reads `["*"]` or `["x509.subject: C=…, ST=…, O=…", …]`.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, PolicyError> {
        if let [only] = texts
            && only.as_ref() == "*"
        {
            return Ok(Self::Any);
        }
        let mut patterns: Vec<SubjectPattern> = Vec::new();
        for text in texts {
            let text = text.as_ref();
            let subject = text
                .strip_prefix("x509.subject:")
                .ok_or_else(|| PolicyError::Identity(text.to_owned()))?;
            let pattern = SubjectPattern::parse(subject)?;
            let implied =
                |other: &&SubjectPattern| pattern.implies(other) || other.implies(&pattern);
            if let Some(other) = patterns.iter().find(implied) {
                let (one, other) = (other.as_str().to_owned(), pattern.as_str().to_owned());
                return Err(PolicyError::Overlap(one, other));
            }
            patterns.push(pattern);
        }
        if patterns.is_empty() {
            return Err(PolicyError::NoIdentity);
        }
        Ok(Self::Subjects(patterns))
    }
}

/// The parts of a policy, for [`TrustPolicy::new`].
#[derive(Debug, Clone)]
pub struct PolicyParts {
    /// What reports call it.
    pub name: String,
    /// Which checks decide.
    pub level: Level,
    /// Instead of the level's.
    pub overrides: Override,
    /// When countersignatures are looked at.
    pub verify_timestamp: VerifyTimestamp,
    /// Whose certificates.
    pub stores: Vec<StoreName>,
    /// Who of them.
    pub identities: Identities,
}

/// One statement of a trust policy, in which nothing contradicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustPolicy {
    name: String,
    verify: Verify,
}

/// Checks and trust of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verify {
    authentic_timestamp: Action,
    expiry: Action,
    revocation: Action,
    pub(super) verify_timestamp: VerifyTimestamp,
    pub(super) stores: Vec<StoreName>,
    pub(super) identities: Identities,
}

impl Verify {
    /// What comes of `check` when it fails.
    pub(super) fn action(&self, check: Check) -> Action {
        match check {
            Check::Authenticity => Action::Enforce,
            Check::AuthenticTimestamp => self.authentic_timestamp,
            Check::Expiry => self.expiry,
            Check::Revocation => self.revocation,
        }
    }
}

/// What is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Reports need a name.
    #[error("a trust policy has no name")]
    NoName,
    /// A store that is none.
    #[error(
        "{0:?} is no trust store: ca:NAME, signingAuthority:NAME or tsa:NAME, with letters, digits, `_`, `.` and `-`"
    )]
    Store(String),
    /// An identity of a kind that is not known.
    #[error("{0:?} is no identity: `*` alone, or x509.subject: C=…, ST=…, O=…")]
    Identity(String),
    /// A subject that is none.
    #[error(transparent)]
    Subject(#[from] PatternError),
    /// Of two identities one is enough.
    #[error("the identities {0:?} and {1:?} overlap")]
    Overlap(String, String),
    /// Nobody is trusted.
    #[error("there are no trusted identities")]
    NoIdentity,
    /// No certificate is trusted.
    #[error("there is no trust store for signers (ca or signingAuthority)")]
    NoStore,
    /// Only revocation may be skipped.
    #[error("{0} cannot be skipped; only revocation can")]
    Skipped(Check),
}

impl TrustPolicy {
    /// Puts a policy together, unless its parts contradict each other.
    pub fn new(parts: PolicyParts) -> Result<Self, PolicyError> {
        if parts.name.is_empty() {
            return Err(PolicyError::NoName);
        }
        let others = match parts.level {
            Level::Strict => Action::Enforce,
            Level::Permissive => Action::Log,
        };
        Ok(Self { verify: verify(others, &parts)?, name: parts.name })
    }

    /// What reports call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn verify(&self) -> &Verify {
        &self.verify
    }
}

/// With `others` as the level's action for whatever is not authenticity.
fn verify(others: Action, parts: &PolicyParts) -> Result<Verify, PolicyError> {
    if parts.stores.iter().all(|store| store.kind == StoreKind::Tsa) {
        return Err(PolicyError::NoStore);
    }
    let set = &parts.overrides;
    for (check, action) in
        [(Check::AuthenticTimestamp, set.authentic_timestamp), (Check::Expiry, set.expiry)]
    {
        if action == Some(Action::Skip) {
            return Err(PolicyError::Skipped(check));
        }
    }
    Ok(Verify {
        authentic_timestamp: set.authentic_timestamp.unwrap_or(others),
        expiry: set.expiry.unwrap_or(others),
        revocation: set.revocation.unwrap_or(others),
        verify_timestamp: parts.verify_timestamp,
        stores: parts.stores.clone(),
        identities: parts.identities.clone(),
    })
}
