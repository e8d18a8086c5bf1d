//! `portolan verify …`: is what would run what its makers signed?

use std::path::Path;

use portolan_core::Platform;
use portolan_host::Host;
use portolan_registry::durable;
use portolan_verify::policy::{self, LoadPolicyError, Policy};
use portolan_verify::verify::VerifyError;

use crate::cli::Global;
use crate::context::{self, classed, root_failure};
use crate::exit::{Exit, Failure};

pub(crate) mod image;
mod labels;
mod pod_platforms;
pub(crate) mod signers;
pub(crate) mod table;
mod template;

#[derive(Debug, clap::Subcommand)]
#[allow(clippy::large_enum_variant, reason = "one per run")]
pub(crate) enum Command {
    /// Say whether an image is signed as a policy asks, and why
    Image(image::Args),
    /// Say on which platforms a pod might run
    PodPlatforms(pod_platforms::Args),
    /// Print templates for Gatekeeper, and try them without a cluster
    #[command(subcommand)]
    Template(template::Command),
}

pub(crate) fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Image(args) => context::wait(image::run(args, global)),
        Command::PodPlatforms(args) => pod_platforms::run(&args),
        Command::Template(command) => template::run(&command, global),
    }
}

/// A policy, and what it names.
fn load_policy(file: &Path) -> Result<Policy, Failure> {
    policy::load(file).map_err(policy_failure)
}

/// A policy that cannot be had.
pub(crate) fn policy_failure(error: LoadPolicyError) -> Failure {
    match error {
        LoadPolicyError::NotFound { .. } => Failure::new(Exit::NotFound, error),
        LoadPolicyError::Read { .. } | LoadPolicyError::Content { .. } => Failure::usage(error),
    }
}

/// An image that has no answer: it was not reached, or its policy did not decide.
fn failure(error: VerifyError) -> Failure {
    match error {
        VerifyError::Undecided(_) => Failure::new(Exit::CannotTell, error),
        VerifyError::Subjects(_) | VerifyError::Collect(_) => classed(error.class(), error),
    }
}

/// What this machine is, for what is not said otherwise.
fn this_host() -> Result<Platform, Failure> {
    let host = Host::here().map_err(root_failure)?;
    let host = host.platform().map_err(|error| Failure::new(Exit::CannotTell, error))?;
    Ok(host.platform)
}

/// A file as a whole, up to `limit`.
fn read(file: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    match durable::read_bounded(file, limit) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => {
            let error = anyhow::anyhow!("there is no {}", file.display());
            Err(Failure::new(Exit::NotFound, error))
        }
        Err(error) => Err(Failure::usage(error)),
    }
}

/// An error and the file that it is about.
fn in_file(file: &Path, error: impl Into<anyhow::Error>) -> Failure {
    Failure::usage(error.into().context(file.display().to_string()))
}
