//! Where the source of a build on this machine comes from.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use portolan_api::build::{Git, GitResult, SourceStatus};
use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_build::engine::Origin;
use portolan_build::request::{LocalBuild, LocalSource};
use portolan_build::steps::{
    self,
    git::{Clone, Halt, redacted},
};

use super::local::existing;
use super::run::Args;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format;

/// Where the source of a Build is, on this machine. A directory or artifact on the command line
/// takes its place.
pub(super) async fn origin(
    args: &Args,
    local: &LocalBuild,
    empty: &Path,
) -> Result<(Origin, SourceStatus), Failure> {
    let nothing = SourceStatus::default;
    if let Some(source) = &args.here.source {
        return Ok((Origin::Artifact(Box::new(source.clone())), nothing()));
    }
    if let Some(dir) = &args.here.dir {
        return Ok((sent(args, existing(dir)?), nothing()));
    }
    match &local.source {
        LocalSource::Nothing => Ok((Origin::Directory(empty.to_owned()), nothing())),
        LocalSource::Artifact(reference) => Ok((Origin::Artifact(reference.clone()), nothing())),
        LocalSource::Directory => Err(Failure::usage(anyhow::anyhow!(
            "the source of the Build is sent by somebody; say which directory: --dir DIR"
        ))),
        LocalSource::Git(git) => {
            let known = cloned(git, empty).await?;
            Ok((stored(args, empty.to_owned()), known))
        }
    }
}

/// Clones as a pod would; a secret is in a cluster, where only its pods see it.
async fn cloned(git: &Git, to: &Path) -> Result<SourceStatus, Failure> {
    if let Some(secret) = &git.clone_secret {
        let error = anyhow::anyhow!(
            "the source {} needs the secret {secret} of a cluster; clone it and add --dir DIR",
            redacted(&git.url)
        );
        return Err(Failure::usage(error));
    }
    let request = Clone {
        url: git.url.clone(),
        target: to.to_owned(),
        revision: git.revision.clone(),
        // Less than nothing means nothing was meant, as in a cluster.
        depth: git.depth.and_then(|depth| u32::try_from(depth).ok()).unwrap_or(1),
        secret: None,
        rewrite: false,
    };
    let temp = std::env::temp_dir();
    let halt = Halt::default();
    // Whoever stops waiting for git ends it.
    let _halted = HaltOnDrop(halt.clone());
    let work = move || steps::git::clone_until(&request, &temp, &|line| format::tell(line), &halt);
    let cloned = tokio::task::spawn_blocking(work).await;
    let cloned = cloned.context("git was not waited for");
    let cloned = cloned.map_err(|error| Failure::new(Exit::Transport, error))?;
    let cloned = cloned.map_err(|error| context::classed(steps::git::class(&error), error))?;
    let git = GitResult {
        commit_sha: Some(cloned.commit),
        commit_author: Some(cloned.author),
        branch_name: cloned.branch,
    };
    let timestamp = jiff::Timestamp::from_second(cloned.timestamp).ok().map(Time);
    Ok(SourceStatus { git: Some(git), timestamp, ..SourceStatus::default() })
}

struct HaltOnDrop(Halt);

impl Drop for HaltOnDrop {
    fn drop(&mut self) {
        self.0.now();
    }
}

fn stored(args: &Args, root: PathBuf) -> Origin {
    if args.here.no_source { Origin::Directory(root) } else { Origin::StoredDirectory(root) }
}

/// Somebody's own directory: what a cluster would not be sent is not built from here, either.
pub(super) fn sent(args: &Args, root: PathBuf) -> Origin {
    Origin::Sent { root, stored: !args.here.no_source }
}
