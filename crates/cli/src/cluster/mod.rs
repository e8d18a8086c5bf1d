//! Clusters: which one, how it is asked, and what its refusals mean.
//!
//! No client is made before a command needs one: most commands know no cluster.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::{ClusterResourceScope, NamespaceResourceScope, Resource};
use kube::{Client, Config};
use portolan_build::plan::Objects;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exit::{Exit, Failure};

pub(crate) mod created;
pub(crate) mod follow;
pub(crate) mod logs;
pub(crate) mod screen;
pub(crate) mod tables;
pub(crate) mod wishes;

/// Who is named as the owner of what these commands write.
pub(crate) const FIELD_MANAGER: &str = "portolan-cli";
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);

// Which cluster, as `kubectl` has it. Words of flags that are part of others are no help texts.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Flags {
    /// The kubeconfig; else KUBECONFIG, ~/.kube/config or this pod's own account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; else its current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The namespace; else that of the context
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// How long one answer may take; 0 for as long as it takes
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    request_timeout: portolan_api::Duration,
}

impl Flags {
    /// Whether there is a cluster to ask at all: somebody named one, or this is a pod.
    pub(crate) fn names_one(&self) -> bool {
        let said = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
        self.kubeconfig.is_some()
            || self.context.is_some()
            || said("KUBECONFIG")
            || said("KUBERNETES_SERVICE_HOST")
            || home.is_some_and(|file| file.exists())
    }

    /// The namespace that was named.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

/// A duration as Go writes it: `90s`, `1h30m`.
pub(crate) fn duration(text: &str) -> Result<portolan_api::Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO.into());
    }
    if text.is_empty() || text.starts_with('-') {
        return Err(format!("{text:?} is no time that anything can take"));
    }
    portolan_api::duration::parse(text).map_err(|why| format!("{text:?} {why}"))
}

/// A cluster that can be asked.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    patience: Option<Duration>,
}

impl Cluster {
    pub(crate) async fn connect(flags: &Flags) -> Result<Self, Failure> {
        let mut config = config(flags).await?;
        config.connect_timeout = Some(CONNECT);
        // Logs are followed for as long as nothing is said; each answer has its own limit.
        config.read_timeout = None;
        let namespace = flags.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| refused("use the cluster", error))?;
        let patience = Duration::from(flags.request_timeout);
        Ok(Self { client, namespace, patience: (!patience.is_zero()).then_some(patience) })
    }

    /// Takes the namespace of a file, unless another was named.
    pub(crate) fn prefer(&mut self, named: Option<&str>, file: Option<&str>) {
        if let (None, Some(file)) = (named, file) {
            file.clone_into(&mut self.namespace);
        }
    }

    /// Objects of the namespace.
    pub(crate) fn here<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Objects of the whole cluster.
    pub(crate) fn wide<K>(&self) -> Api<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    /// Waits for one answer. `what` is what was attempted: `cannot {what}`.
    pub(crate) async fn ask<T>(
        &self,
        what: &str,
        answer: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        match self.within(answer).await {
            Ok(answered) => answered.map_err(|error| refused(what, error)),
            Err(patience) => {
                let error = anyhow::anyhow!(
                    "cannot {what}: the cluster has not answered for {} s",
                    patience.as_secs()
                );
                Err(Failure::new(Exit::Transport, error))
            }
        }
    }

    /// An answer as it is, unless it takes too long: then how long was waited.
    pub(crate) async fn within<T>(&self, answer: impl Future<Output = T>) -> Result<T, Duration> {
        match self.patience {
            None => Ok(answer.await),
            Some(patience) => tokio::time::timeout(patience, answer).await.map_err(|_| patience),
        }
    }

    pub(crate) async fn get<K>(&self, api: &Api<K>, name: &str) -> Result<K, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.ask(&format!("get {} {name}", K::kind(&())), api.get(name)).await
    }

    pub(crate) async fn list<K>(
        &self,
        api: &Api<K>,
        labels: Option<&str>,
    ) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let params =
            ListParams { label_selector: labels.map(str::to_owned), ..ListParams::default() };
        let what = format!("list {}", K::plural(&()));
        Ok(self.ask(&what, api.list(&params)).await?.items)
    }

    pub(crate) async fn create<K>(&self, api: &Api<K>, object: &K) -> Result<K, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        let params =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let what = format!("create the {}", K::kind(&()));
        self.ask(&what, api.create(&params, object)).await
    }

    /// All that a run may refer to, but Builds. Classes have the status that their controller
    /// gave them.
    pub(crate) async fn objects(&self) -> Result<Objects, Failure> {
        Ok(Objects {
            builds: Vec::new(),
            strategies: self.list(&self.here(), None).await?,
            cluster_strategies: self.list(&self.wide(), None).await?,
            classes: self.list(&self.wide(), None).await?,
            image_platforms: self.list(&self.wide(), None).await?,
        })
    }
}

/// The settings that `kubectl` would use.
async fn config(flags: &Flags) -> Result<Config, Failure> {
    let options =
        KubeConfigOptions { context: flags.context.clone(), ..KubeConfigOptions::default() };
    let read = match &flags.kubeconfig {
        Some(file) => Kubeconfig::read_from(file).map_err(unreadable)?,
        None => match Kubeconfig::read() {
            Ok(read) => read,
            // A pod has no such file, and an account of its own.
            Err(error) if flags.context.is_none() && is_absent(&error) => {
                let missing = "there is no kubeconfig (--kubeconfig, KUBECONFIG, ~/.kube/config), and this is no pod with a service account";
                let own = Config::incluster().context(missing);
                return own.map_err(|error| Failure::new(Exit::Transport, error));
            }
            Err(error) => return Err(unreadable(error)),
        },
    };
    let made = Config::from_custom_kubeconfig(read, &options).await;
    made.map_err(unreadable)
}

fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::ReadConfig(source, _) => source.kind() == std::io::ErrorKind::NotFound,
        KubeconfigError::FindPath => true,
        _ => false,
    }
}

fn unreadable(error: KubeconfigError) -> Failure {
    let exit = if is_absent(&error) { Exit::NotFound } else { Exit::Usage };
    Failure::new(exit, anyhow::Error::new(error).context("the kubeconfig cannot be used"))
}

/// What a cluster's answer means for whoever called.
fn refused(what: &str, error: kube::Error) -> Failure {
    let kube::Error::Api(status) = &error else {
        let hint = format!("cannot {what}: the cluster cannot be reached");
        return Failure::new(Exit::Transport, anyhow::Error::new(error).context(hint));
    };
    let (exit, hint) = judge(status.code, status.details.is_some());
    let message = match status.message.is_empty() {
        true => &status.reason,
        false => &status.message,
    };
    Failure::new(exit, anyhow::anyhow!("cannot {what}: {}{hint}", message.trim()))
}

/// The exit code for an answer, and what to try. `named` is whether the answer speaks of an object
/// and not of the whole kind.
fn judge(code: u16, named: bool) -> (Exit, &'static str) {
    match code {
        404 if named => (Exit::NotFound, ""),
        404 => (
            Exit::NotFound,
            "; if the cluster does not know the kind: portolan crds --roles | kubectl apply --server-side -f -",
        ),
        400 | 409 | 422 => (Exit::Usage, ""),
        401 => (Exit::Transport, "; log in to the cluster first"),
        403 => (Exit::Transport, "; ask for the role that allows it"),
        _ => (Exit::Transport, ""),
    }
}

/// An object without what only the cluster's own books are for.
pub(crate) fn tidy<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_cluster_have_their_exit_codes() {
        for (code, exit) in [
            (400, Exit::Usage),
            (401, Exit::Transport),
            (403, Exit::Transport),
            (404, Exit::NotFound),
            (409, Exit::Usage),
            (422, Exit::Usage),
            (500, Exit::Transport),
            (503, Exit::Transport),
        ] {
            assert_eq!(judge(code, true).0, exit, "{code}");
        }
        assert!(judge(404, false).1.contains("portolan crds"));
    }

    #[test]
    fn durations_are_not_guessed() {
        for (text, seconds) in [("90s", 90), ("1h30m", 5400), ("0", 0)] {
            assert_eq!(Duration::from(duration(text).unwrap()).as_secs(), seconds, "{text}");
        }
        for text in ["", "5", "-5s", "soon"] {
            duration(text).expect_err(text);
        }
    }
}
