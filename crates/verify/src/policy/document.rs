//! A policy file as it is written. `read` makes a [`super::Policy`] of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use portolan_core::platform::PartialPlatform;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub use super::notation::Notation;

/// Who must have signed which images, and what else must be known of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Document {
    /// Of the format: 1.
    pub version: u32,
    /// Who may vouch for images, by the names that requirements use.
    #[serde(default, deserialize_with = "unique")]
    pub signers: BTreeMap<String, Signer>,
    /// Which images need what. Of those that match an image the most specific counts, alone.
    #[serde(default)]
    pub scopes: Vec<Scope>,
    /// For images that no scope matches. Without it they are refused.
    #[serde(default, deserialize_with = "given")]
    pub default: Option<Rule>,
}

/// Exactly one of its members.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Signer {
    /// Who holds one of these keys.
    #[serde(default, deserialize_with = "given")]
    pub keys: Option<Keys>,
    /// Whom an identity provider calls so, with a certificate of Sigstore.
    #[serde(default, deserialize_with = "given")]
    pub keyless: Option<Keyless>,
    /// Whom certificates call so, with signatures of the Notary Project.
    #[serde(default, deserialize_with = "given")]
    pub notation: Option<Notation>,
}

/// Public keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Keys {
    /// Files with one public key each, in PEM; relative to the policy.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// Public keys in PEM.
    #[serde(default)]
    pub inline: Vec<String>,
    /// Whether signatures must be in a transparency log.
    #[serde(default)]
    pub log: Log,
    /// The logs that are trusted, as Sigstore's trusted_root.json; relative to the policy.
    #[serde(default, deserialize_with = "given")]
    pub trusted_root: Option<PathBuf>,
}

/// Whether signatures by a key must be in a transparency log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Log {
    /// They must be.
    Required,
    /// Nobody looks.
    #[default]
    Ignored,
}

/// An identity and who vouches for it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Keyless {
    /// Who: an e-mail address, or the URL of a workflow.
    pub identity: Match,
    /// Says who: the URL of the identity provider.
    pub issuer: Match,
    /// Whose certificates, logs and timestamping authorities are trusted, as Sigstore's
    /// trusted_root.json; relative to the policy.
    pub trusted_root: PathBuf,
    /// What must prove when it was signed.
    #[serde(default)]
    pub log: KeylessLog,
    /// Whether the certificate must have been shown to a log of certificates.
    #[serde(default)]
    pub sct: Sct,
}

/// What proves when an identity signed: its certificate is good for minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum KeylessLog {
    /// The transparency log, which must hold the signature.
    #[default]
    Required,
    /// A timestamping authority of the trusted root; a log may, and need not.
    Timestamp,
}

/// Whether a certificate must have been shown to a log of certificates before it was given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Sct {
    /// It must.
    #[default]
    Required,
    /// Nobody looks: an authority of one's own may have no such log.
    Ignored,
}

/// Exactly one of its members.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Match {
    /// This text.
    #[serde(default, deserialize_with = "given")]
    pub exact: Option<String>,
    /// A text that this pattern describes as a whole.
    #[serde(default, deserialize_with = "given")]
    pub regex: Option<String>,
}

/// Some images, and what they need.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scope {
    /// For reports.
    pub name: String,
    /// `host`, `host/repository` or `host/path/*`.
    #[serde(rename = "match")]
    pub patterns: Vec<String>,
    /// What they need.
    pub rule: Rule,
}

/// What images need. At least one of `require`, `attestations` and `documents` is there, or `rego` alone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Rule {
    /// Who must have signed.
    #[serde(default, deserialize_with = "given")]
    pub require: Option<Require>,
    /// What must be attested.
    #[serde(default)]
    pub attestations: Vec<Attestation>,
    /// What lists of parts and of weaknesses may not say.
    #[serde(default)]
    pub documents: Documents,
    /// A policy in Rego that decides instead; relative to the policy.
    #[serde(default, deserialize_with = "given")]
    pub rego: Option<PathBuf>,
    /// What of an image with an index must pass.
    #[serde(default)]
    pub index_policy: IndexPolicy,
    /// For which machines, where a question does not say.
    #[serde(default)]
    pub platforms: Platforms,
    /// What only half a platform means.
    #[serde(default)]
    pub partial_platform: PartialMeaning,
    /// What to do about a machine that the image has nothing for, while it has something for others.
    #[serde(default)]
    pub missing_platform: MissingPlatform,
}

/// `allOf`, `anyOf` or both.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Require {
    /// Each of these signers.
    #[serde(default)]
    pub all_of: Vec<String>,
    /// Some of these signers.
    #[serde(default)]
    pub any_of: Vec<String>,
    /// How many of `anyOf`, each with another key or identity.
    #[serde(default, deserialize_with = "given")]
    pub at_least: Option<usize>,
}

/// A statement that must be there, of which all conditions hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Attestation {
    /// Such as `https://slsa.dev/provenance/v1`.
    pub predicate_type: String,
    /// Who must have made it; the same as for the image where it is not said.
    #[serde(default, deserialize_with = "given")]
    pub require: Option<Require>,
    /// What it must say.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// What a place in a predicate must be. All members that are there must hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Condition {
    /// A JSON pointer into the predicate; empty is all of it.
    pub pointer: String,
    /// Exactly this.
    #[serde(default, deserialize_with = "given")]
    pub equals: Option<Value>,
    /// One of these.
    #[serde(default, rename = "in", deserialize_with = "given")]
    pub one_of: Option<Vec<Value>>,
    /// A list that has this.
    #[serde(default, deserialize_with = "given")]
    pub contains: Option<Value>,
    /// Whether there is anything.
    #[serde(default, deserialize_with = "given")]
    pub exists: Option<bool>,
    /// A number that is this or more.
    #[serde(default, deserialize_with = "given")]
    pub at_least: Option<f64>,
    /// A number that is this or less.
    #[serde(default, deserialize_with = "given")]
    pub at_most: Option<f64>,
}

/// Documents that must be there and clean.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Documents {
    /// A list of parts: SPDX or CycloneDX, in JSON.
    #[serde(default, deserialize_with = "given")]
    pub sbom: Option<Sbom>,
    /// A list of weaknesses: SARIF, or Trivy's own JSON.
    #[serde(default, deserialize_with = "given")]
    pub vulnerabilities: Option<Vulnerabilities>,
}

/// What a list of parts may not have. Every one that counts must be clean.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Sbom {
    /// Licences, by their SPDX identifiers.
    #[serde(default)]
    pub disallowed_licenses: Vec<String>,
    /// Packages.
    #[serde(default)]
    pub disallowed_packages: Vec<Package>,
    /// Whether one counts that is attached without a signature, as anybody could who may push.
    #[serde(default)]
    pub allow_unsigned: bool,
}

/// A package, of one version or of all.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Package {
    /// As the list calls it.
    pub name: String,
    /// Exactly this version; every one where it is not said.
    #[serde(default, deserialize_with = "given")]
    pub version: Option<String>,
}

/// What the newest list of weaknesses may not have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Vulnerabilities {
    /// critical, high, medium, low.
    #[serde(default)]
    pub disallowed_severities: Vec<Severity>,
    /// Identifiers, such as CVE-2026-0001.
    #[serde(default)]
    pub denied_ids: Vec<String>,
    /// How old it may be, such as 7d or 36h.
    #[serde(default, deserialize_with = "given")]
    pub maximum_age: Option<String>,
    /// Whether one counts that is attached without a signature, as anybody could who may push.
    #[serde(default)]
    pub allow_unsigned: bool,
}

/// How bad a weakness is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Below all others.
    Low,
    /// In the middle.
    Medium,
    /// Bad.
    High,
    /// The worst.
    Critical,
}

/// What of an image with an index must pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IndexPolicy {
    /// The index and every image that could run.
    #[default]
    Both,
    /// The index, or else every image that could run.
    Any,
    /// The index alone.
    Index,
    /// Every image that could run.
    Platform,
}

/// For which machines.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Platforms {
    /// By a word.
    Word(PlatformsWord),
    /// `os/arch[/variant]`, with `*` for a half that may be any.
    List(#[schemars(with = "Vec<String>")] Vec<PartialPlatform>),
}

impl Default for Platforms {
    fn default() -> Self {
        Self::Word(PlatformsWord::Host)
    }
}

/// For which machines, by a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PlatformsWord {
    /// Those like the one that verifies.
    Host,
    /// Those of the cluster.
    Nodes,
    /// All that the image has something for.
    All,
}

/// What only half a platform means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PartialMeaning {
    /// Every platform with that half.
    #[default]
    Wildcard,
    /// The other half is that of the machine that verifies.
    Host,
}

/// What to do about a machine that the image has nothing for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MissingPlatform {
    /// Refuse.
    #[default]
    Refuse,
    /// Leave it out.
    Ignore,
}

/// A member that may be left out, but not be `null` where that is no value of its own.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A map in which no name is twice: YAML readers keep the last without a word.
pub(super) fn unique<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Unique<T>(std::marker::PhantomData<T>);
    impl<'de, T: DeserializeOwned> Visitor<'de> for Unique<T> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map from names")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<String, T>()? {
                if all.contains_key(&name) {
                    return Err(A::Error::custom(format!("{name:?} is there twice")));
                }
                all.insert(name, value);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_map(Unique(std::marker::PhantomData))
}
