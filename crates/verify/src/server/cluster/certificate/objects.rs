//! The objects that say whom to trust: Providers of Gatekeeper and webhooks of Kubernetes.
//!
//! Only those that the operator named are touched, only their `caBundle`, and only where it is
//! another. What is written counts only if the object is still what was read.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::material::certificates;
use crate::server::config::ObjectName;

/// An object with one or more bundles in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    Provider(ObjectName),
    Webhook(ObjectName),
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Provider(name) => write!(f, "Provider {name}"),
            Self::Webhook(name) => write!(f, "ValidatingWebhookConfiguration {name}"),
        }
    }
}

/// What an object says now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) named: Named,
    pub(super) version: Option<String>,
    /// Each bundle, under the name of its webhook; PEM.
    pub(super) bundles: Vec<(String, Vec<u8>)>,
}

impl Read {
    /// Whom all of its bundles trust.
    pub(super) fn trusted(&self) -> BTreeSet<Vec<u8>> {
        let each = self.bundles.iter().map(|(_, bundle)| {
            certificates(bundle).unwrap_or_default().into_iter().collect::<BTreeSet<_>>()
        });
        each.reduce(|all, one| all.intersection(&one).cloned().collect()).unwrap_or_default()
    }

    /// What to write so that it trusts these; none where it does.
    pub(super) fn patch(&self, bundle: &str) -> Option<Value> {
        if self.bundles.iter().all(|(_, now)| now == bundle.as_bytes()) {
            return None;
        }
        let encoded = STANDARD.encode(bundle);
        let metadata = json!({"resourceVersion": self.version});
        Some(match &self.named {
            Named::Provider(_) => json!({"metadata": metadata, "spec": {"caBundle": encoded}}),
            Named::Webhook(_) => {
                let all = self
                    .bundles
                    .iter()
                    .map(|(name, _)| json!({"name": name, "clientConfig": {"caBundle": encoded}}));
                json!({"metadata": metadata, "webhooks": all.collect::<Vec<_>>()})
            }
        })
    }
}

/// Reads and writes them.
#[derive(Clone)]
pub(super) struct Objects {
    providers: Api<DynamicObject>,
    webhooks: Api<ValidatingWebhookConfiguration>,
}

impl Objects {
    pub(super) fn new(client: &Client) -> Self {
        let kind = ApiResource {
            group: "externaldata.gatekeeper.sh".to_owned(),
            version: "v1beta1".to_owned(),
            api_version: "externaldata.gatekeeper.sh/v1beta1".to_owned(),
            kind: "Provider".to_owned(),
            plural: "providers".to_owned(),
        };
        Self { providers: Api::all_with(client.clone(), &kind), webhooks: Api::all(client.clone()) }
    }

    /// None: it is not there (yet).
    pub(super) async fn read(&self, named: &Named) -> Result<Option<Read>, kube::Error> {
        let (version, bundles) = match named {
            Named::Provider(name) => match self.providers.get_opt(name.as_str()).await? {
                None => return Ok(None),
                Some(object) => {
                    let bundle = object.data.pointer("/spec/caBundle").and_then(Value::as_str);
                    let bundle = STANDARD.decode(bundle.unwrap_or_default()).unwrap_or_default();
                    (object.resource_version(), vec![(String::new(), bundle)])
                }
            },
            Named::Webhook(name) => match self.webhooks.get_opt(name.as_str()).await? {
                None => return Ok(None),
                Some(object) => {
                    let all = object.webhooks.iter().flatten().map(|one| {
                        let bundle = one.client_config.ca_bundle.as_ref();
                        (one.name.clone(), bundle.map(|b| b.0.clone()).unwrap_or_default())
                    });
                    (object.resource_version(), all.collect())
                }
            },
        };
        Ok(Some(Read { named: named.clone(), version, bundles }))
    }

    pub(super) async fn write(&self, named: &Named, patch: &Value) -> Result<(), kube::Error> {
        let params = PatchParams::default();
        match named {
            Named::Provider(name) => {
                self.providers.patch(name.as_str(), &params, &Patch::Merge(patch)).await?;
            }
            // By the names of the webhooks; a merge patch would have to repeat all of each.
            Named::Webhook(name) => {
                self.webhooks.patch(name.as_str(), &params, &Patch::Strategic(patch)).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(named: Named, bundles: &[(&str, &str)]) -> Read {
        let bundles =
            bundles.iter().map(|(name, pem)| ((*name).to_owned(), pem.as_bytes().to_vec()));
        Read { named, version: Some("7".to_owned()), bundles: bundles.collect() }
    }

    fn name() -> ObjectName {
        "x".to_owned().try_into().unwrap()
    }

    #[test]
    fn nothing_but_the_bundle_is_written_and_only_where_it_is_another() {
        let provider = read(Named::Provider(name()), &[("", "old")]);
        assert_eq!(provider.patch("old"), None);
        assert_eq!(
            provider.patch("new"),
            Some(json!({"metadata": {"resourceVersion": "7"}, "spec": {"caBundle": "bmV3"}}))
        );
        let webhook = read(Named::Webhook(name()), &[("a.dev", "new"), ("b.dev", "")]);
        assert_eq!(
            webhook.patch("new"),
            Some(json!({"metadata": {"resourceVersion": "7"}, "webhooks": [
                {"name": "a.dev", "clientConfig": {"caBundle": "bmV3"}},
                {"name": "b.dev", "clientConfig": {"caBundle": "bmV3"}},
            ]}))
        );
        assert_eq!(read(Named::Webhook(name()), &[]).patch("new"), None, "there is no webhook");
    }

    #[test]
    fn an_object_trusts_only_whom_all_of_its_bundles_trust() {
        let made =
            |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap().cert.pem();
        let (one, other) = (made("one"), made("other"));
        let both = format!("{one}{other}");
        let trusted =
            |bundles: &[(&str, &str)]| read(Named::Webhook(name()), bundles).trusted().len();
        assert_eq!(trusted(&[("a", &both), ("b", &both)]), 2);
        assert_eq!(trusted(&[("a", &both), ("b", &one)]), 1);
        assert_eq!(trusted(&[("a", &both), ("b", "")]), 0);
        assert_eq!(trusted(&[("a", "-----BEGIN CERTIFICATE-----\nx")]), 0);
    }
}
