//! The service account of a run's pods.

use k8s_openapi::api::core::v1::{ObjectReference, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{Patch, PostParams};
use kube::runtime::reflector::ObjectRef;
use portolan_api::build::{BuildRun, BuildSpec};
use portolan_api::keys;
use portolan_build::plan::{GENERATED_ACCOUNT, Plan};
use serde_json::json;

use super::{decide, is_ours};
use crate::context::{Context, ReconcileError};
use crate::write::{self, MANAGER};

/// Whether the account lives and dies with the run.
fn is_generated(run: &BuildRun) -> bool {
    run.spec.service_account.as_deref() == Some(GENERATED_ACCOUNT)
}

/// Makes the run's own account, or gives the one it uses the secret that opens the registry:
/// strategies that push by themselves find it there.
pub(super) async fn provide(
    run: &BuildRun,
    context: &Context,
    plan: &Plan,
    spec: Option<&BuildSpec>,
) -> Result<(), ReconcileError> {
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<ServiceAccount> = write::beside(&context.client, namespace);
    let secret = decide::push_secret(run, spec);
    if is_generated(run) {
        let params =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        return match api.create(&params, &generated(run, secret)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(told)) if told.code == 409 => Ok(()),
            Err(error) => Err(ReconcileError::at("making the service account")(error)),
        };
    }
    let (Some(secret), Some(name)) = (secret, plan.service_account.as_deref()) else {
        return Ok(());
    };
    let known = context.caches.accounts.get(&ObjectRef::new(name).within(namespace));
    if known.is_some_and(|account| has_secret(&account, secret)) {
        return Ok(());
    }
    // By name, so that others who add theirs at this moment lose nothing.
    let patch = Patch::Strategic(json!({ "secrets": [{ "name": secret }] }));
    let done = api.patch(name, &write::params(), &patch).await;
    done.map(drop).map_err(ReconcileError::at("giving the service account its secret"))
}

fn has_secret(account: &ServiceAccount, secret: &str) -> bool {
    account.secrets.iter().flatten().any(|known| known.name.as_deref() == Some(secret))
}

fn generated(run: &BuildRun, secret: Option<&str>) -> ServiceAccount {
    let name = run.metadata.name.clone().unwrap_or_default();
    ServiceAccount {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: run.metadata.namespace.clone(),
            labels: Some([(keys::BUILD_RUN_NAME.to_owned(), name.clone())].into()),
            owner_references: Some(vec![OwnerReference {
                api_version: "shipwright.io/v1beta1".to_owned(),
                kind: "BuildRun".to_owned(),
                name,
                uid: run.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        automount_service_account_token: Some(false),
        secrets: secret.map(|name| {
            vec![ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() }]
        }),
        ..ServiceAccount::default()
    }
}

/// Takes the run's own account away, once it has ended.
pub(super) async fn discard(run: &BuildRun, context: &Context) -> Result<(), ReconcileError> {
    if !is_generated(run) {
        return Ok(());
    }
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    let name = run.metadata.name.as_deref().unwrap_or_default();
    let known = context.caches.accounts.get(&ObjectRef::new(name).within(namespace));
    match known.filter(|account| is_ours(&account.metadata, run)) {
        Some(account) => {
            write::delete(&write::beside(&context.client, namespace), account.as_ref()).await
        }
        None => Ok(()),
    }
}
