//! What the verifier may ask of a cluster, and the one thing that it keeps there: its certificate.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use portolan_registry::serving::program;
use serde::Deserialize;

use super::Span;

/// `[cluster]`: that there is one, and what is looked at in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// How it is reached; not set: as every pod reaches its own.
    pub kubeconfig: Option<PathBuf>,
    /// Where the verifier itself runs; not set: what its service account or the kubeconfig says.
    pub namespace: Option<ObjectName>,
    /// Watch the nodes, for policies that say `nodes`.
    pub nodes: bool,
    /// Whose logins for registries are used.
    pub pull_secrets: PullSecretsFor,
    /// More Secrets with logins: `name` in the namespace that asks, `namespace/name` for everybody.
    pub secrets: Vec<SecretName>,
    /// How long Secrets and service accounts are kept: `"30s"`.
    pub secrets_ttl: Span,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            namespace: None,
            nodes: false,
            pull_secrets: PullSecretsFor::default(),
            secrets: Vec::new(),
            secrets_ttl: Span::seconds(30),
        }
    }
}

/// Who says in whose name they ask, and is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PullSecretsFor {
    /// Nobody: only the operator's own logins are used.
    #[default]
    Nobody,
    /// Who shows a certificate that `client_ca` vouches for.
    Certified,
    /// Whoever reaches the port.
    Everybody,
}

/// A Secret: in a namespace, or in that which asks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SecretName {
    /// None: in that which asks.
    pub namespace: Option<ObjectName>,
    /// Its name.
    pub name: ObjectName,
}

impl TryFrom<String> for SecretName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.split_once('/') {
            None => Ok(Self { namespace: None, name: text.try_into()? }),
            Some((namespace, name)) => Ok(Self {
                namespace: Some(namespace.to_owned().try_into()?),
                name: name.to_owned().try_into()?,
            }),
        }
    }
}

/// A name as the API server takes it. Names are put into URLs, and some come from strangers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct ObjectName(String);

impl ObjectName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ObjectName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c);
        let outer = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let bytes = text.as_bytes();
        let fits = (1..=253).contains(&bytes.len())
            && bytes.iter().all(|c| inner(*c))
            && bytes.first().is_some_and(outer)
            && bytes.last().is_some_and(outer);
        match fits {
            true => Ok(Self(text)),
            false => Err("a name in a cluster has small letters, digits, '-' and '.' in it"),
        }
    }
}

/// `[tls.generate]`: the verifier makes its certificate, and tells who asks whom to trust.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// The names under which the verifier is asked: `NAME.NAMESPACE`, `NAME.NAMESPACE.svc`.
    pub names: BTreeSet<String>,
    /// The Secret that all copies of the verifier share, in the namespace of the verifier.
    #[serde(default = "secret")]
    pub secret: ObjectName,
    /// Providers of Gatekeeper that get the `caBundle`.
    #[serde(default)]
    pub providers: Vec<ObjectName>,
    /// ValidatingWebhookConfigurations that get it, in each of their webhooks.
    #[serde(default)]
    pub webhooks: Vec<ObjectName>,
    /// For how long a certificate is good: `"30d"`. It is renewed after two thirds.
    #[serde(default = "lifetime")]
    pub lifetime: Lifetime,
    /// The same of the authority that vouches for it: `"365d"`.
    #[serde(default = "ca_lifetime")]
    pub ca_lifetime: Lifetime,
    /// How often Secret and objects are looked at: `"30s"`.
    #[serde(default = "check")]
    pub check: Span,
}

fn secret() -> ObjectName {
    ObjectName("portolan-verifier-tls".to_owned())
}

fn lifetime() -> Lifetime {
    Lifetime(Duration::from_secs(30 * DAY))
}

fn ca_lifetime() -> Lifetime {
    Lifetime(Duration::from_secs(365 * DAY))
}

fn check() -> Span {
    Span::seconds(30)
}

const DAY: u64 = 24 * 3600;

/// A time in days, such as `"30d"`, or up to a day as a [`Span`]; at most ten years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Lifetime(pub Duration);

impl TryFrom<String> for Lifetime {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let wrong = "a lifetime is a text such as \"30d\" or \"12h\", at least 10 seconds and at most 3650 days";
        let span = match text.strip_suffix('d').map(str::parse::<u64>) {
            Some(Ok(days @ 1..=3650)) => Duration::from_secs(days * DAY),
            Some(_) => return Err(wrong),
            None => text.parse::<program::Span>().and_then(Span::try_from).map_err(|_| wrong)?.0,
        };
        (span >= Duration::from_secs(10)).then_some(Self(span)).ok_or(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_lead_elsewhere_are_none() {
        for good in ["a", "team-a", "a.b", "0"] {
            assert!(ObjectName::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "..", "a/../b", "a/b", "A", "-a", "a-", "a?x", "a%2fb", "a b", "é"] {
            assert!(ObjectName::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        assert!(ObjectName::try_from("a".repeat(254)).is_err());
        let both = SecretName::try_from("team/login".to_owned()).unwrap();
        assert_eq!(both.namespace.unwrap().as_str(), "team");
        assert!(SecretName::try_from("a/b/c".to_owned()).is_err());
    }

    #[test]
    fn lifetimes() {
        let parse = |text: &str| Lifetime::try_from(text.to_owned()).map(|one| one.0.as_secs());
        assert_eq!(parse("30d"), Ok(30 * DAY));
        assert_eq!(parse("12h"), Ok(12 * 3600));
        for bad in ["0d", "3651d", "d", "-1d", "9s", "48h", "99999999999999999999d"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
