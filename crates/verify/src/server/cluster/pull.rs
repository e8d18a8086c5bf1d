//! The logins for registries of who asks: of the pod's pull secrets, of its service account's, and of
//! Secrets that the operator named.
//!
//! A Secret that a pod names is looked for in the pod's own namespace, as a kubelet does. What
//! is not there, is of another type or cannot be read as logins is told and passed over, as a kubelet
//! does too: with fewer logins fewer images can be read, and none that cannot be read is let in.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use moka::future::Cache;
use portolan_core::RegistryReference;
use portolan_core::causes::chain;
use portolan_registry::client::{self, Logins, LoginsForm};

use super::Cluster;
use crate::server::config::{ClusterConfig, ObjectName, SecretName};
use crate::server::readers::{Asker, Login, LoginId, Reader};
use crate::server::trouble::{Code, Trouble};

/// The account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";
/// Secrets for one question; no pod has more.
const MAX_SECRETS: usize = 16;
/// Logins that are tried for one image.
const MAX_LOGINS: usize = 4;
/// Namespaces times their secrets.
const MAX_KEPT: u64 = 10_000;
/// For tokens, which are had for a client.
const CLIENT_IDLE: Duration = Duration::from_secs(600);

/// A Secret or an account.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    namespace: ObjectName,
    name: ObjectName,
}

/// Looks for logins, and keeps them for a short time.
pub(in crate::server) struct PullSecrets {
    cluster: Cluster,
    base: client::Client,
    more: Vec<SecretName>,
    accounts: Cache<Place, Arc<[String]>>,
    secrets: Cache<Place, Option<Arc<Logins>>>,
    clients: Cache<LoginId, client::Client>,
}

impl PullSecrets {
    pub(in crate::server) fn new(
        cluster: Cluster,
        base: client::Client,
        config: &ClusterConfig,
    ) -> Self {
        let ttl = config.secrets_ttl.0;
        Self {
            cluster,
            base,
            more: config.secrets.clone(),
            accounts: Cache::builder().max_capacity(MAX_KEPT).time_to_live(ttl).build(),
            secrets: Cache::builder().max_capacity(MAX_KEPT).time_to_live(ttl).build(),
            clients: Cache::builder().max_capacity(MAX_KEPT).time_to_idle(CLIENT_IDLE).build(),
        }
    }

    /// In whose names the image may be asked for, the closest first; the operator's own file is none of
    /// them. Where nobody is believed to ask, the Secrets that serve everybody.
    pub(in crate::server) async fn readers(
        &self,
        asker: Option<Asker<'_>>,
        reference: &RegistryReference,
    ) -> Result<Vec<Reader>, Trouble> {
        let places = match asker {
            None => places(None, &[], &[], &self.more),
            Some(asker) => self.places_of(asker).await?,
        };
        let mut logins = Vec::new();
        for place in places {
            if let Some(found) = self.secret(place.clone()).await? {
                let found = found.credential(&reference.registry, &reference.repository);
                match found {
                    Ok(Some(credential)) => {
                        logins.push(Login { host: reference.registry.clone(), credential });
                    }
                    Ok(None) => {}
                    Err(error) => pass_over(&place, &chain(&error)),
                }
            }
        }
        Ok(self.as_readers(logins).await)
    }

    async fn places_of(&self, asker: Asker<'_>) -> Result<Vec<Place>, Trouble> {
        let Ok(namespace) = ObjectName::try_from(asker.namespace.to_owned()) else {
            let what = "the namespace that asks is no name of one";
            return Err(Trouble::new(Code::BadKey, what));
        };
        let account = asker.pod.service_account.as_deref().unwrap_or(DEFAULT_ACCOUNT);
        let account = match ObjectName::try_from(account.to_owned()) {
            Err(_) => Arc::default(),
            Ok(name) => self.account(Place { namespace: namespace.clone(), name }).await?,
        };
        Ok(places(Some(&namespace), &asker.pod.secrets, &account, &self.more))
    }

    /// Each login once; tokens are kept with it.
    async fn as_readers(&self, logins: Vec<Login>) -> Vec<Reader> {
        let mut seen = HashSet::new();
        let mut readers = Vec::new();
        for login in logins {
            let id = login.id();
            if readers.len() < MAX_LOGINS && seen.insert(id) {
                let new = async { login.client(&self.base) };
                let client = self.clients.get_with(id, new).await;
                readers.push(Reader { client, login: Some(id) });
            }
        }
        readers
    }

    async fn account(&self, place: Place) -> Result<Arc<[String]>, Trouble> {
        let api: Api<ServiceAccount> =
            Api::namespaced(self.cluster.client.clone(), place.namespace.as_str());
        let read = async {
            let found = look(&place, "service account", api.get_opt(place.name.as_str()).await)?;
            let named = found.into_iter().flat_map(|one| one.image_pull_secrets).flatten();
            Ok(named.map(|one| one.name).collect())
        };
        let kept = self.accounts.try_get_with_by_ref(&place, read).await;
        kept.map_err(|trouble: Arc<Trouble>| Arc::unwrap_or_clone(trouble))
    }

    async fn secret(&self, place: Place) -> Result<Option<Arc<Logins>>, Trouble> {
        let api: Api<Secret> =
            Api::namespaced(self.cluster.client.clone(), place.namespace.as_str());
        let read = async {
            let found = look(&place, "Secret", api.get_opt(place.name.as_str()).await)?;
            Ok(found.and_then(|secret| logins(&place, &secret)).map(Arc::new))
        };
        let kept = self.secrets.try_get_with_by_ref(&place, read).await;
        kept.map_err(|trouble: Arc<Trouble>| Arc::unwrap_or_clone(trouble))
    }
}

/// Which Secrets, in which order, each once. Names without a namespace are of the one that asks.
fn places(
    namespace: Option<&ObjectName>,
    pod: &[String],
    account: &[String],
    more: &[SecretName],
) -> Vec<Place> {
    let own = |name| Some(Place { namespace: namespace?.clone(), name });
    let named = pod.iter().chain(account);
    let named = named.filter_map(|name| ObjectName::try_from(name.clone()).ok()).filter_map(own);
    let more = more.iter().filter_map(|one| {
        let namespace = one.namespace.as_ref().or(namespace)?.clone();
        Some(Place { namespace, name: one.name.clone() })
    });
    let mut seen = BTreeSet::new();
    named.chain(more).filter(|place| seen.insert(place.clone())).take(MAX_SECRETS).collect()
}

/// What is not there, or not for us to see, is passed over. What cannot be asked for is trouble: a
/// login may be there.
fn look<T>(
    place: &Place,
    what: &str,
    answer: Result<Option<T>, kube::Error>,
) -> Result<Option<T>, Trouble> {
    match answer {
        Ok(found) => Ok(found),
        Err(kube::Error::Api(told)) if told.code == 403 => {
            pass_over(place, "the verifier may not read it");
            Ok(None)
        }
        Err(error) => {
            let Place { namespace, name } = place;
            let what = format!("the {what} {namespace}/{name} cannot be read: {}", chain(&error));
            Err(Trouble::new(Code::Internal, what))
        }
    }
}

fn logins(place: &Place, secret: &Secret) -> Option<Logins> {
    let Some((form, member)) = LoginsForm::of_secret(secret.type_.as_deref()) else {
        pass_over(place, "it is of no type for logins of registries");
        return None;
    };
    let Some(bytes) = secret.data.as_ref().and_then(|data| data.get(member)) else {
        pass_over(place, &format!("it has no {member}"));
        return None;
    };
    let Place { namespace, name } = place;
    let told = PathBuf::from(format!("the Secret {namespace}/{name}"));
    match Logins::parse(&bytes.0, form, &told) {
        Ok(logins) => Some(logins),
        Err(error) => {
            pass_over(place, &chain(&error));
            None
        }
    }
}

fn pass_over(place: &Place, why: &str) {
    let Place { namespace, name } = place;
    tracing::warn!(%namespace, %name, why, "a pull secret is passed over");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ObjectName {
        text.to_owned().try_into().unwrap()
    }

    fn shown(pod: &[&str], account: &[&str], more: &[&str]) -> Vec<String> {
        let words = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let more: Vec<_> =
            more.iter().map(|one| SecretName::try_from((*one).to_owned()).unwrap()).collect();
        let places = places(Some(&name("team")), &words(pod), &words(account), &more);
        places.iter().map(|one| format!("{}/{}", one.namespace, one.name)).collect()
    }

    #[test]
    fn the_pods_own_come_first_and_no_name_leads_into_another_namespace() {
        assert_eq!(
            shown(&["b", "a"], &["c", "a"], &["d", "ops/e"]),
            ["team/b", "team/a", "team/c", "team/d", "ops/e"]
        );
        assert_eq!(shown(&["other/secret", "../x", "", "x?a"], &["other/y"], &[]), [""; 0]);
        let many: Vec<_> = (0..100).map(|n| format!("s{n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(shown(&many, &many, &[]).len(), MAX_SECRETS);
    }
}
