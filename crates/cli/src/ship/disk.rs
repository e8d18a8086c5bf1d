//! The root disk, in the agent's cache: brought there by the agent, or by this program as the agent
//! would.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use portolan_agent::api::PrefetchRequest;
use portolan_agent::artifacts::{AcquireError, Artifact, Artifacts, OpenError, Purpose};
use portolan_agent::client::{CallError, Client};
use portolan_agent::config::Config;
use portolan_agent::image::ResolvedImage;
use portolan_agent::metrics::Metrics;
use portolan_agent::reason::Reason;
use portolan_agent::spec::ImageSpec;
use portolan_core::platform::HostPlatform;
use portolan_core::select::Selection;
use portolan_core::{Digest, RegistryReference};
use tokio_util::sync::CancellationToken;

use super::log::{Done, short};
use super::report::Product;
use super::site::local;
use crate::agent;
use crate::exit::{Exit, Failure};
use crate::format;

/// A root disk that is there.
pub(super) struct RootDisk {
    pub(super) spec: ImageSpec,
    pub(super) key: String,
    /// Its file, and the cache, which stays ours as long as this lives. None where an agent has it.
    pub(super) own: Option<(Artifact, Artifacts)>,
}

impl RootDisk {
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.own.as_ref().map(|(artifact, _)| artifact.disk.clone())
    }
}

/// The agent of this machine, where one answers.
pub(super) async fn agent(config: &Config) -> Result<Option<Client>, Failure> {
    let client = Client::new(config.socket());
    match client.status().await {
        Ok(_) => Ok(Some(client)),
        Err(CallError::NotRunning { .. }) => Ok(None),
        Err(error) => Err(agent::failure(error)),
    }
}

/// The image as an agent is told of it.
pub(super) fn spec(
    image: &RegistryReference,
    index: Digest,
    selection: &Selection,
) -> Result<ImageSpec, Failure> {
    let image = RegistryReference { digest: Some(selection.chosen.digest), ..image.clone() };
    let platform = selection.platform.as_ref().unwrap_or(&selection.host.platform);
    let spec = agent::prefetch::spec(&image, platform)?;
    Ok(ImageSpec { index_digest: Some(index.to_string()), ..spec })
}

/// By the agent that runs.
pub(super) async fn by_agent(client: &Client, spec: ImageSpec) -> Result<Done<RootDisk>, Failure> {
    let request = PrefetchRequest { images: vec![spec.clone()] };
    let report = client.prefetch(&request).await.map_err(agent::failure)?;
    let one = report.images.into_iter().next();
    let one = one.context("the agent answered nothing").map_err(local)?;
    if let Some(reason) = one.reason {
        let error = anyhow::anyhow!(
            "the agent has no root disk of it ({reason}): {}",
            one.message.unwrap_or_default()
        );
        return Err(Failure::new(exit(reason), error));
    }
    let (key, cached) = (one.rootdisk_key.unwrap_or_default(), one.cached.unwrap_or_default());
    let result = format!("{} in the cache of the agent", key.get(..12).unwrap_or(&key));
    let name = spec.resolved_digest.clone().unwrap_or_default();
    let produced = vec![Product { name: short(&name), digest: key.clone(), existing: cached }];
    let disk = RootDisk { spec, key, own: None };
    Ok(Done::new(disk, result).with(produced).unchanged_if(cached))
}

/// By this program. Nothing is evicted for it, and nothing is pinned: an agent that is started later
/// finds it as one that it had fetched ahead itself.
pub(super) async fn by_ourselves(
    config: &Config,
    host: HostPlatform,
    spec: ImageSpec,
    cancel: &CancellationToken,
) -> Result<Done<RootDisk>, Failure> {
    let image = ResolvedImage::from_spec(&spec).map_err(Failure::usage)?;
    let config = config.clone();
    let open = move || Artifacts::open(&config, Arc::new(Metrics::new()), host);
    let opened = tokio::task::spawn_blocking(open).await;
    let artifacts = opened.context("the cache was not opened").map_err(local)?.map_err(cache)?;
    let artifact = artifacts.prefetch(&image, Purpose::Request, cancel).await.map_err(acquire)?;
    artifacts.flush();
    let metadata = &artifact.metadata;
    let (long, takes) = (format::size(metadata.size_bytes), format::size(metadata.allocated_bytes));
    let result = format!("{} ({long}, takes {takes})", artifact.disk.display());
    let (cached, key) = (artifact.cached, artifact.key.clone());
    let name = artifact.resolved_digest.short();
    let produced = vec![Product { name, digest: metadata.checksum.to_string(), existing: cached }];
    let disk = RootDisk { spec, key, own: Some((artifact, artifacts)) };
    Ok(Done::new(disk, result).with(produced).unchanged_if(cached))
}

fn exit(reason: Reason) -> Exit {
    if agent::is_answer(reason.as_str()) { Exit::No } else { Exit::Transport }
}

fn cache(error: OpenError) -> Failure {
    match error {
        OpenError::Settings(_) | OpenError::Policy(_) => Failure::usage(error),
        OpenError::Store(_) | OpenError::Client(_) => local(error),
    }
}

fn acquire(error: AcquireError) -> Failure {
    match error.is_cancelled() {
        true => super::interrupted(),
        false => Failure::new(exit(error.reason()), error),
    }
}
