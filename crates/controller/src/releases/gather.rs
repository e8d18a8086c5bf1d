//! The policy and the logins that a Release names: read when they are needed, one by one, in its own namespace. Nothing
//! of them is watched or kept, so the roles allow no more than that.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use portolan_api::release::ReleaseSpec;
use portolan_core::RegistryReference;
use portolan_core::causes::chain;
use portolan_registry::client::{Credential, Logins, LoginsForm};
use portolan_release::look::Policy;
use portolan_release::policy::{self, Loaded};
use portolan_release::reason;

use crate::ask::named;
use crate::context::ReconcileError;
use crate::write;

/// Logins that are tried for one image.
const MAX_LOGINS: usize = 4;

/// The policy of a Release.
#[derive(Debug)]
pub(crate) enum Judge {
    /// It names none.
    Nobody,
    /// It names one that cannot be used.
    Unusable(&'static str, String),
    /// This.
    Is(Box<Loaded>),
}

impl Judge {
    pub(crate) fn policy(&self) -> Policy<'_> {
        match self {
            Self::Nobody => Policy::None,
            Self::Unusable(reason, message) => Policy::Unusable { reason, message },
            Self::Is(loaded) => Policy::Is(loaded),
        }
    }
}

/// Reads the ConfigMap that a Release names.
pub(crate) async fn judge(
    client: &Client,
    namespace: &str,
    spec: &ReleaseSpec,
) -> Result<Judge, ReconcileError> {
    let Some(source) = &spec.policy else { return Ok(Judge::Nobody) };
    let api: Api<ConfigMap> = write::beside(client, namespace);
    let name = source.config_map.as_str();
    let read = match named(name, api.get_opt(name)).await {
        Ok(read) => read,
        Err(error) => return refusal(name, error, "reading the policy"),
    };
    let Some(found) = read else {
        let message = format!("there is no ConfigMap {name} in {namespace}");
        return Ok(Judge::Unusable(reason::POLICY_NOT_FOUND, message));
    };
    Ok(match policy::read(name, &files(found)) {
        Ok(loaded) => Judge::Is(Box::new(loaded)),
        Err(error) => Judge::Unusable(reason::POLICY_INVALID, chain(&error)),
    })
}

/// What the server answers with no it answers again; the rest is tried again.
fn refusal(name: &str, error: kube::Error, step: &'static str) -> Result<Judge, ReconcileError> {
    match error {
        kube::Error::Api(told) if matches!(told.code, 400 | 403 | 422) => {
            let message = format!("the ConfigMap {name} cannot be read: {}", told.message);
            Ok(Judge::Unusable(reason::POLICY_NOT_FOUND, message))
        }
        error => Err(ReconcileError::at(step)(error)),
    }
}

fn files(map: ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let texts = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
    let bytes = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
    texts.chain(bytes).collect()
}

/// Logins for a registry, and what was wrong with those that are none.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// In the order of the spec.
    pub(crate) credentials: Vec<Credential>,
    /// Sentences; no secret is in them.
    pub(crate) passed_over: Vec<String>,
}

/// Reads the Secrets that a Release names. One that is not there, or is no list of logins, is told and passed over, as a
/// kubelet does: with fewer logins fewer images can be read.
pub(crate) async fn logins(
    client: &Client,
    namespace: &str,
    spec: &ReleaseSpec,
    reference: &RegistryReference,
) -> Result<Found, ReconcileError> {
    let api: Api<Secret> = write::beside(client, namespace);
    let mut found = Found::default();
    for secret in &spec.pull_secrets {
        let name = secret.name.as_str();
        let read = match named(name, api.get_opt(name)).await {
            Ok(Some(secret)) => credential(name, &secret, reference),
            Ok(None) => Err(format!("there is no Secret {name} in {namespace}")),
            Err(kube::Error::Api(told)) if matches!(told.code, 400 | 403 | 422) => {
                Err(format!("the Secret {name} cannot be read: {}", told.message))
            }
            Err(error) => return Err(ReconcileError::at("reading a pull secret")(error)),
        };
        found.add(name, read);
    }
    Ok(found)
}

impl Found {
    /// Takes in what a Secret has for the registry; it may have nothing, and nothing is wrong then.
    fn add(&mut self, name: &str, read: Result<Option<Credential>, String>) {
        match read {
            Ok(Some(credential)) if self.credentials.len() < MAX_LOGINS => {
                self.credentials.push(credential);
            }
            Ok(Some(_)) => {
                let why = format!("the login of the Secret {name} is not tried: {MAX_LOGINS} are");
                self.passed_over.push(why);
            }
            Ok(None) => {}
            Err(why) => self.passed_over.push(why),
        }
    }
}

fn credential(
    name: &str,
    secret: &Secret,
    reference: &RegistryReference,
) -> Result<Option<Credential>, String> {
    let Some((form, member)) = LoginsForm::of_secret(secret.type_.as_deref()) else {
        return Err(format!("the Secret {name} is of no type for logins of registries"));
    };
    let Some(bytes) = secret.data.as_ref().and_then(|data| data.get(member)) else {
        return Err(format!("the Secret {name} has no {member}"));
    };
    let place = PathBuf::from(format!("the Secret {name}"));
    let logins = Logins::parse(&bytes.0, form, &place).map_err(|error| chain(&error))?;
    let found = logins.credential(&reference.registry, &reference.repository);
    found.map_err(|error| chain(&error))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn secret(kind: &str, member: &str, text: &str) -> Secret {
        Secret {
            type_: Some(kind.to_owned()),
            data: Some([(member.to_owned(), ByteString(text.as_bytes().to_vec()))].into()),
            ..Secret::default()
        }
    }

    #[test]
    fn what_is_not_tried_of_pull_secrets_is_told() {
        const KIND: &str = "kubernetes.io/dockerconfigjson";
        let login = r#"{"auths": {"r.example": {"username": "u", "password": "hidden"}}}"#;
        let reference: RegistryReference = "r.example/app:1".parse().unwrap();
        let mut found = Found::default();
        for number in 0..=MAX_LOGINS {
            let name = format!("login-{number}");
            let read = credential(&name, &secret(KIND, ".dockerconfigjson", login), &reference);
            found.add(&name, read);
        }
        assert_eq!(found.credentials.len(), MAX_LOGINS);
        for (kind, member, text, word) in [
            (KIND, ".dockerconfigjson", r#"{"auths": {"other.example": {}}}"#, ""),
            ("Opaque", ".dockerconfigjson", login, "no type for logins"),
            (KIND, "config.json", login, "no .dockerconfigjson"),
            (KIND, ".dockerconfigjson", "hidden", "odd"),
        ] {
            let before = found.passed_over.len();
            found.add("odd", credential("odd", &secret(kind, member, text), &reference));
            let told = found.passed_over[before..].join(" ");
            assert!(told.contains(word) && told.is_empty() == word.is_empty(), "{told:?} {word}");
        }
        let told = found.passed_over.join("\n");
        assert!(told.starts_with("the login of the Secret login-4"), "{told}");
        assert!(!told.contains("hidden"), "{told}");
    }
}
