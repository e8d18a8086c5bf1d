//! What a controller would record, found out here.

use std::path::Path;

use jiff::Timestamp;
use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::release::Release;
use portolan_registry::images::Place;
use portolan_release::look::{Asked, Policy};
use portolan_release::policy::Loaded;
use portolan_release::status::{self, Refusal};
use portolan_release::{Request, look as look_at};
use portolan_verify::policy;

use crate::cli::Global;
use crate::context;
use crate::exit::Failure;
use crate::verify::policy_failure;

/// Looks at the image with the logins of whoever asks, and records what is found.
pub(super) async fn look(
    mut release: Release,
    policy: Option<&Path>,
    global: &Global,
) -> Result<Release, Failure> {
    // What a cluster would count from.
    release.metadata.generation = Some(1);
    let request = Request::of(&release.spec).map_err(Failure::usage)?;
    let loaded = policy.map(load).transpose()?;
    let client = context::client(global)?;
    let reference = &request.reference;
    let place = Place::Remote(client.repository(&reference.registry, &reference.repository));
    let asked = Asked {
        request: &request,
        target: &request.target(None),
        policy: loaded.as_ref().map_or(Policy::None, Policy::Is),
        namespace: release.metadata.namespace.as_deref(),
        now: Timestamp::now(),
    };
    let found = look_at(&place, &asked).await.map_err(Refusal::Look);
    let now = Timestamp::from_second(asked.now.as_second()).unwrap_or(asked.now);
    release.status = Some(status::after(&release, &found, &Time(now)));
    Ok(release)
}

fn load(file: &Path) -> Result<Loaded, Failure> {
    let (digest, policy) = policy::load_with_fingerprint(file);
    let policy = policy.map_err(policy_failure)?;
    let unread = || Failure::usage(anyhow::anyhow!("the policy {} was not read", file.display()));
    let digest = digest.ok_or_else(unread)?;
    Ok(Loaded { name: file.display().to_string(), digest, policy })
}
