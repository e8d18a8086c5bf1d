//! `portolan step source-push|source-pull|source-prune`

use std::path::PathBuf;

use portolan_build::steps::{Results, source};
use portolan_core::{Reference, causes};

use super::{Errors, Product, Registry, Stopped};
use crate::cli::Global;
use crate::format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan step source-push --image registry.example/app:1-src --source ./app"
)]
pub(crate) struct PushArgs {
    #[command(flatten)]
    pub(super) product: Product,
    /// The directory
    #[arg(long, value_name = "DIR", default_value = "/workspace/source")]
    source: PathBuf,
}

pub(super) async fn push(args: &PushArgs, global: &Global) -> Result<Results, Stopped> {
    let image = &args.product.image;
    let client = args.product.client(global).await?;
    let pushed = source::push(&args.source, image, &client, &super::temp()).await?;
    for socket in &pushed.skipped {
        format::tell(&format!("note: the socket {} is not part of the source", socket.display()));
    }
    format::tell(&format!("{image} {}", pushed.digest));
    Ok(args.product.results(&pushed.digest))
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan step source-pull --image registry.example/app:1-src --target ./app"
)]
pub(crate) struct PullArgs {
    /// The artifact, best by its digest
    #[arg(long, value_name = "REF")]
    image: Reference,
    /// Where it goes; an empty directory
    #[arg(long, value_name = "DIR", default_value = "/workspace/source")]
    target: PathBuf,
    /// Delete the artifact once it is here
    #[arg(long)]
    prune: bool,
    /// The file that gets the artifact's digest
    #[arg(long, value_name = "FILE")]
    result_file_image_digest: Option<PathBuf>,
    /// The file that gets the time of the newest file, in seconds since 1970
    #[arg(long, value_name = "FILE")]
    result_file_source_timestamp: Option<PathBuf>,
    #[command(flatten)]
    registry: Registry,
    #[command(flatten)]
    pub(super) errors: Errors,
}

pub(super) async fn pull(args: &PullArgs, global: &Global) -> Result<Results, Stopped> {
    let client = args.registry.client(&args.image, global).await?;
    let got = source::pull(&args.image, &args.target, &client, &super::temp()).await?;
    if args.prune {
        // What was asked for by its tag is deleted as what it was.
        let pulled = args.image.with_digest(got.digest);
        if let Err(error) = source::prune(&pulled, &client).await {
            format::tell(&format!("warning: {}", causes::chain(&error)));
        }
    }
    let mut results = Results::default();
    results.add(args.result_file_image_digest.as_deref(), &got.digest.to_string());
    results.add(args.result_file_source_timestamp.as_deref(), &got.newest.to_string());
    Ok(results)
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan step source-prune --image registry.example/app:1-src")]
pub(crate) struct PruneArgs {
    /// The artifact
    #[arg(long, value_name = "REF")]
    image: Reference,
    #[command(flatten)]
    registry: Registry,
}

pub(super) async fn prune(args: &PruneArgs, global: &Global) -> Result<Results, Stopped> {
    let client = match args.registry.client(&args.image, global).await {
        Ok(client) => client,
        Err(Stopped::Step(error)) => return Ok(warned(&error)),
        Err(other) => return Err(other),
    };
    match source::prune(&args.image, &client).await {
        Ok(digest) => format::tell(&format!("deleted {digest}")),
        Err(error) => return Ok(warned(&error)),
    }
    Ok(Results::default())
}

/// What was built from the source is built: that it stays is no reason to fail.
fn warned(error: &portolan_build::steps::StepError) -> Results {
    format::tell(&format!("warning: {}", causes::chain(error)));
    Results::default()
}
