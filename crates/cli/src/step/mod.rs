//! `portolan step …`: what the pods of a build run. Every step also runs by hand, see `docs/steps.md`.

use std::path::PathBuf;

use portolan_build::steps::{self, Access, Results, StepError};
use portolan_core::{Digest, Reference};
use portolan_registry::client::Client;

use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};

mod assemble;
mod git;
mod image;
mod index;
mod receive;
mod source;
mod upload;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
#[allow(clippy::large_enum_variant, reason = "one per run")]
pub(crate) enum Command {
    /// Clone a repository
    Git(git::Args),
    /// Wait until somebody's files are there, or say that they are
    WaitUpload(upload::Args),
    /// Take a source that somebody sends, and end the wait for it
    ReceiveUpload(receive::Args),
    /// Pack a directory and push it as a source artifact
    SourcePush(source::PushArgs),
    /// Get a source artifact into a directory
    SourcePull(source::PullArgs),
    /// Delete a source artifact; that it cannot be deleted is only a warning
    SourcePrune(source::PruneArgs),
    /// Check, change and push the image that a strategy made
    ImagePush(image::Args),
    /// Make one index of the images of all platforms
    IndexAssemble(index::Args),
    /// Put an image together from a Containerfile that runs nothing
    Assemble(assemble::Args),
}

// Where a step says what went wrong. No documentation: clap would give it to the commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Errors {
    /// The file that gets a sentence about what went wrong
    #[arg(long, value_name = "FILE")]
    result_file_error_message: Option<PathBuf>,
    /// The file that gets a word for what went wrong
    #[arg(long, value_name = "FILE")]
    result_file_error_reason: Option<PathBuf>,
}

// What a step makes, where it goes, and who is told. No documentation, as above.
#[derive(Debug, clap::Args)]
pub(crate) struct Product {
    /// Where it goes
    #[arg(long, value_name = "REF")]
    image: Reference,
    /// The file that gets its digest
    #[arg(long, value_name = "FILE")]
    result_file_image_digest: Option<PathBuf>,
    #[command(flatten)]
    registry: Registry,
    #[command(flatten)]
    errors: Errors,
}

impl Product {
    async fn client(&self, global: &Global) -> Result<Client, Stopped> {
        self.registry.client(&self.image, global).await
    }

    /// The digest, for who asked for it.
    fn results(&self, digest: &Digest) -> Results {
        let mut results = Results::default();
        results.add(self.result_file_image_digest.as_deref(), &digest.to_string());
        results
    }
}

// How a step opens a registry. No documentation, as above.
#[derive(Debug, clap::Args)]
pub(crate) struct Registry {
    /// Also take plain HTTP and certificates that nobody vouches for
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    insecure: bool,
    /// A directory with .dockerconfigjson, or such a file
    #[arg(long, value_name = "PATH")]
    secret_path: Option<PathBuf>,
}

impl Registry {
    async fn client(&self, image: &Reference, global: &Global) -> Result<Client, Stopped> {
        let access = Access { secret: self.secret_path.clone(), insecure: self.insecure };
        let settings = context::settings(global).map_err(Stopped::Other)?;
        Ok(steps::client(image, &access, settings).await?)
    }
}

/// Why a step ended early.
enum Stopped {
    /// The step itself failed, which the BuildRun is told.
    Step(StepError),
    /// Something before it.
    Other(Failure),
}

impl From<StepError> for Stopped {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

/// Where steps work: what the pod says, or the machine's own.
fn temp() -> PathBuf {
    std::env::temp_dir()
}

pub(crate) fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Git(args) => finish(&args.errors, git::run(&args)),
        Command::WaitUpload(args) => finish(&args.errors, upload::run(&args)),
        Command::ReceiveUpload(args) => context::work(receive::run(args)),
        Command::SourcePush(args) => work(&args.product.errors, source::push(&args, global)),
        Command::SourcePull(args) => work(&args.errors, source::pull(&args, global)),
        Command::SourcePrune(args) => work(&Errors::none(), source::prune(&args, global)),
        Command::ImagePush(args) => work(&args.product.errors, image::run(&args, global)),
        Command::IndexAssemble(args) => work(&args.product.errors, index::run(&args, global)),
        Command::Assemble(args) => work(&args.errors, assemble::run(&args, global)),
    }
}

impl Errors {
    fn none() -> Self {
        Self { result_file_error_message: None, result_file_error_reason: None }
    }
}

fn work(
    errors: &Errors,
    step: impl Future<Output = Result<Results, Stopped>>,
) -> Result<Exit, Failure> {
    let outcome = context::work(async { Ok(step.await) })?;
    finish(errors, outcome)
}

/// Writes results, or what went wrong.
fn finish(errors: &Errors, outcome: Result<Results, Stopped>) -> Result<Exit, Failure> {
    let written = outcome.and_then(|results| results.write().map_err(Stopped::Step));
    let error = match written {
        Ok(()) => return Ok(Exit::Ok),
        Err(Stopped::Other(failure)) => return Err(failure),
        Err(Stopped::Step(error)) => error,
    };
    let Errors { result_file_error_message, result_file_error_reason } = errors;
    let told = steps::tell_error(
        &error,
        result_file_error_message.as_deref(),
        result_file_error_reason.as_deref(),
    );
    if let Err(untold) = told {
        crate::format::tell(&format!("warning: {untold}"));
    }
    Err(Failure::new(Exit::Step(error.exit), error))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Only {
        #[command(flatten)]
        registry: Registry,
    }

    /// The controller writes both forms.
    #[test]
    fn insecure_is_a_switch_and_takes_what_tekton_puts_in() {
        let insecure = |args: &[&str]| {
            Only::try_parse_from([&["x"], args].concat()).map(|parsed| parsed.registry.insecure)
        };
        assert!(!insecure(&[]).unwrap());
        assert!(insecure(&["--insecure"]).unwrap());
        assert!(insecure(&["--insecure=true"]).unwrap());
        assert!(!insecure(&["--insecure=false"]).unwrap());
        assert!(insecure(&["--insecure", "--secret-path", "x"]).unwrap());
        assert!(insecure(&["--insecure=perhaps"]).is_err());
    }
}
