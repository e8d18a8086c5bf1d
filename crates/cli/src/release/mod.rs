//! `portolan release …`: images that were resolved and verified once, and what runs of them.

use std::path::Path;

use portolan_api::condition::{self, Status};
use portolan_api::document::{self, Resource};
use portolan_api::release::{READY, Release};
use portolan_release::reason;

use crate::build::files;
use crate::cli::Global;
use crate::cluster::{Cluster, Flags};
use crate::context;
use crate::exit::{Exit, Failure};

mod create;
mod local;
mod show;
mod workload;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
#[allow(clippy::large_enum_variant, reason = "one per run")]
pub(crate) enum Command {
    /// Resolve and verify an image once, and record it
    Create(create::Args),
    /// Show what was recorded, and whether it may be run
    Show(show::Args),
    /// Print the WorkloadSpec with which an agent runs it
    Workload(workload::Args),
}

pub(crate) fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Create(args) => context::wait(create::run(args, global)),
        Command::Show(args) => context::wait(show::run(args)),
        Command::Workload(args) => context::wait(workload::run(args)),
    }
}

/// The Release of that name in a cluster, or the one of a file.
async fn find(name: Option<&str>, file: Option<&Path>, flags: &Flags) -> Result<Release, Failure> {
    match (file, name) {
        (Some(file), name) => read(file, name),
        (None, Some(name)) => {
            let cluster = Cluster::connect(flags).await?;
            cluster.get(&cluster.here(), name).await
        }
        (None, None) => {
            Err(Failure::usage(anyhow::anyhow!("name a Release, or a file with -f FILE")))
        }
    }
}

/// The one Release of a file, with its status: that is what the file is for.
fn read(file: &Path, name: Option<&str>) -> Result<Release, Failure> {
    let bytes = files::bytes(file, document::MAX_BYTES as u64)?;
    let resources = document::read_recorded(&bytes).map_err(|error| {
        Failure::usage(anyhow::Error::new(error).context(file.display().to_string()))
    })?;
    let releases = resources.into_iter().filter_map(|resource| match resource {
        Resource::Release(release) => Some(release),
        _ => None,
    });
    let named = |one: &Release| name.is_none_or(|name| one.metadata.name.as_deref() == Some(name));
    let mut found: Vec<Release> = releases.filter(named).collect();
    let shown = file.display();
    match (found.len(), found.pop()) {
        (1, Some(release)) => Ok(release),
        (_, None) => {
            let error = anyhow::anyhow!("{shown} has no such Release");
            Err(Failure::new(Exit::NotFound, error))
        }
        (many, Some(_)) => {
            let what = "name the one that is meant";
            Err(Failure::usage(anyhow::anyhow!("{shown} has {many} Releases; {what}")))
        }
    }
}

/// What the exit code says of a Release.
fn exit(release: &Release) -> Exit {
    let conditions = release.status.as_ref().map(|status| status.conditions.as_slice());
    let Some(ready) = condition::find(conditions.unwrap_or_default(), READY) else {
        return Exit::CannotTell;
    };
    match (ready.status, ready.reason.as_str()) {
        (Status::True, _) => Exit::Ok,
        (_, reason::NO_POLICY) => Exit::NoArtifact,
        (_, reason::IMAGE_NOT_FOUND | reason::POLICY_NOT_FOUND) => Exit::NotFound,
        (_, reason::REGISTRY_UNAVAILABLE | reason::ACCESS_DENIED) => Exit::Transport,
        (
            _,
            reason::INVALID_SPEC
            | reason::IMAGE_UNUSABLE
            | reason::IMAGE_INCOMPLETE
            | reason::POLICY_INVALID,
        ) => Exit::Usage,
        (Status::False, _) => Exit::No,
        (Status::Unknown, _) => Exit::CannotTell,
    }
}

/// Why a Release is not Ready, for people; nothing where it is.
fn tell_why(release: &Release) {
    let status = release.status.as_ref();
    let ready = status.and_then(|status| condition::find(&status.conditions, READY));
    if let Some(ready) = ready.filter(|ready| ready.status != Status::True) {
        crate::format::tell(&format!("error: not Ready: {}: {}", ready.reason, ready.message));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_release_is_has_its_exit_code() {
        for (ready, reason, expected) in [
            ("True", "Ready", Exit::Ok),
            ("True", "VerificationNotRequired", Exit::Ok),
            ("False", "NotVerified", Exit::No),
            ("False", "PlatformNotFound", Exit::No),
            ("False", "NoPolicy", Exit::NoArtifact),
            ("False", "ImageNotFound", Exit::NotFound),
            ("Unknown", "RegistryUnavailable", Exit::Transport),
            ("Unknown", "PolicyUndecided", Exit::CannotTell),
            ("False", "InvalidSpec", Exit::Usage),
            ("Unknown", "Whatever", Exit::CannotTell),
        ] {
            let release = serde_json::from_value(json!({
                "apiVersion": "portolan.dev/v1alpha1", "kind": "Release", "metadata": {"name": "app"},
                "spec": {"image": "r.example/app"},
                "status": {"conditions": [
                    {"type": "Ready", "status": ready, "reason": reason, "message": ""},
                ]},
            }));
            assert_eq!(exit(&release.unwrap()), expected, "{ready} {reason}");
        }
    }
}
