//! Gathers what a Build or a run is decided by, from the caches or from the server.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Resource};
use portolan_api::build::{Build, BuildRun, BuildSpec, StrategyRef};
use portolan_build::plan::{GENERATED_ACCOUNT, Objects};
use serde::de::DeserializeOwned;

use super::decide::{self, Mounted, USUAL_ACCOUNTS, World};
use crate::ask::named;
use crate::builds::register;
use crate::context::{Context, ReconcileError};
use crate::write;

/// Where it is looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// What was heard: at once, and perhaps a moment old.
    Cache,
    /// What is: before anything is refused.
    Server,
}

/// What a Build is judged by.
pub(crate) async fn of_build(
    context: &Context,
    build: &Build,
    from: From,
) -> Result<World, ReconcileError> {
    let namespace = build.metadata.namespace.as_deref().unwrap_or_default();
    let look = Look { context, namespace, from };
    let mut world = World::default();
    look.strategy(&build.spec.strategy, &mut world.objects).await?;
    world.secrets = look.secrets_of(&build.spec).await?;
    Ok(world)
}

/// What a run is judged by.
pub(crate) async fn of_run(
    context: &Context,
    run: &BuildRun,
    from: From,
) -> Result<World, ReconcileError> {
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let look = Look { context, namespace, from };
    let mut world = World::default();
    if let Some(name) = run.spec.build.name.as_deref() {
        let found = look.beside(&context.caches.builds, name).await?;
        world.objects.builds.extend(found);
    }
    let spec = decide::spec(run, &world).cloned();
    if let Some(spec) = &spec {
        look.strategy(&spec.strategy, &mut world.objects).await?;
        world.secrets = look.secrets_of(spec).await?;
    }
    if let Some(name) = decide::class_name(run, spec.as_ref()) {
        look.class(name, &mut world.objects).await?;
    }
    let own = run.spec.service_account.as_deref().filter(|name| !name.is_empty());
    let wanted = own.or(context.settings.service_account.as_deref());
    let names = match &wanted {
        Some(name) => std::slice::from_ref(name),
        None => &USUAL_ACCOUNTS[..],
    };
    for name in names.iter().filter(|name| **name != GENERATED_ACCOUNT) {
        if look.has_account(name).await? {
            world.accounts.insert((*name).to_owned());
        }
    }
    Ok(world)
}

/// What is to be mounted and is not there, after the server was asked.
pub(crate) async fn missing(
    context: &Context,
    namespace: &str,
    mounted: &Mounted,
) -> Result<Option<String>, ReconcileError> {
    let look = Look { context, namespace, from: From::Server };
    for name in &mounted.secrets {
        let cached = Look { from: From::Cache, ..look };
        if !cached.has_secret(name).await? && !look.has_secret(name).await? {
            return Ok(Some(format!("Secret {name:?} not found")));
        }
    }
    for name in &mounted.config_maps {
        let api: Api<ConfigMap> = write::beside(&context.client, namespace);
        let found = named(name, api.get_metadata_opt(name)).await;
        if found.map_err(ReconcileError::at("looking for a config map"))?.is_none() {
            return Ok(Some(format!("ConfigMap {name:?} not found")));
        }
    }
    Ok(None)
}

#[derive(Clone, Copy)]
struct Look<'a> {
    context: &'a Context,
    namespace: &'a str,
    from: From,
}

impl Look<'_> {
    /// An object of the namespace.
    async fn beside<K>(&self, store: &Store<K>, name: &str) -> Result<Option<K>, ReconcileError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned + 'static,
    {
        let key = ObjectRef::new(name).within(self.namespace);
        self.find(store, &key, &write::beside(&self.context.client, self.namespace), name).await
    }

    /// An object of the cluster.
    async fn above<K>(&self, store: &Store<K>, name: &str) -> Result<Option<K>, ReconcileError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + 'static,
    {
        let api = Api::all(self.context.client.clone());
        self.find(store, &ObjectRef::new(name), &api, name).await
    }

    async fn find<K>(
        &self,
        store: &Store<K>,
        key: &ObjectRef<K>,
        api: &Api<K>,
        name: &str,
    ) -> Result<Option<K>, ReconcileError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + 'static,
    {
        match self.from {
            From::Cache => Ok(store.get(key).map(|found| found.as_ref().clone())),
            From::Server => {
                let found = named(name, api.get_opt(name)).await;
                found.map_err(ReconcileError::at("looking for a resource"))
            }
        }
    }

    async fn strategy(
        &self,
        named: &StrategyRef,
        into: &mut Objects,
    ) -> Result<(), ReconcileError> {
        let caches = &self.context.caches;
        match named.kind.as_deref() {
            None | Some("" | "BuildStrategy") => {
                into.strategies.extend(self.beside(&caches.strategies, &named.name).await?);
            }
            Some("ClusterBuildStrategy") => {
                let found = self.above(&caches.cluster_strategies, &named.name).await?;
                into.cluster_strategies.extend(found);
            }
            Some(_) => {}
        }
        Ok(())
    }

    async fn class(&self, name: &str, into: &mut Objects) -> Result<(), ReconcileError> {
        let caches = &self.context.caches;
        let Some(class) = self.above(&caches.classes, name).await? else { return Ok(()) };
        for reference in &class.spec.image_platforms {
            let found = self.above(&caches.platforms, &reference.name).await?;
            into.image_platforms.extend(found);
        }
        into.classes.push(class);
        Ok(())
    }

    async fn secrets_of(&self, spec: &BuildSpec) -> Result<BTreeSet<String>, ReconcileError> {
        let (source, output) = register::secrets(spec);
        let mut there = BTreeSet::new();
        for name in source.into_iter().chain(output) {
            if self.has_secret(name).await? {
                there.insert(name.to_owned());
            }
        }
        Ok(there)
    }

    async fn has_secret(&self, name: &str) -> Result<bool, ReconcileError> {
        match self.from {
            From::Cache => {
                let key = ObjectRef::new(name).within(self.namespace);
                Ok(self.context.caches.secrets.get(&key).is_some())
            }
            From::Server => {
                let api: Api<Secret> = write::beside(&self.context.client, self.namespace);
                let found = named(name, api.get_metadata_opt(name)).await;
                Ok(found.map_err(ReconcileError::at("looking for a secret"))?.is_some())
            }
        }
    }

    async fn has_account(&self, name: &str) -> Result<bool, ReconcileError> {
        let store: &Store<ServiceAccount> = &self.context.caches.accounts;
        Ok(self.beside(store, name).await?.is_some())
    }
}
