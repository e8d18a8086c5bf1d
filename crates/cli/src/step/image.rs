//! `portolan step image-push --image REF`

use std::path::PathBuf;

use portolan_build::steps::Results;
use portolan_build::steps::image::{self, Push, Timestamp};
use portolan_core::{Platform, Reference};

use super::{Errors, Registry, Stopped};
use crate::cli::Global;
use crate::format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan step image-push --push ./output-image --image registry.example/app:1-linux-arm64 --platform linux/arm64\n\n\
    Without --push the image is the one that a strategy pushed itself. Exit code 1: it is for another platform."
)]
pub(crate) struct Args {
    /// Where the image goes, or where a strategy put it
    #[arg(long, value_name = "REF")]
    image: Reference,
    /// An OCI layout, or a directory with one tarball
    #[arg(long, value_name = "DIR")]
    push: Option<PathBuf>,
    /// What the image must be for
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<Platform>,
    /// An annotation, KEY=VALUE (repeatable)
    #[arg(long = "annotation", value_name = "KEY=VALUE", value_parser = crate::image::key_value)]
    annotations: Vec<(String, String)>,
    /// A label, KEY=VALUE (repeatable)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = crate::image::key_value)]
    labels: Vec<(String, String)>,
    /// When the image says it was made, in seconds since 1970
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    image_timestamp: Option<i64>,
    /// A file with that number
    #[arg(long, value_name = "FILE", conflicts_with = "image_timestamp")]
    image_timestamp_file: Option<PathBuf>,
    /// The file that gets the image's digest
    #[arg(long, value_name = "FILE")]
    result_file_image_digest: Option<PathBuf>,
    /// The file that gets the size of configuration and layers
    #[arg(long, value_name = "FILE")]
    result_file_image_size: Option<PathBuf>,
    /// Never written: no scan is made, and none must look as if it had found nothing
    #[arg(long, value_name = "FILE")]
    result_file_image_vulnerabilities: Option<PathBuf>,
    #[command(flatten)]
    registry: Registry,
    #[command(flatten)]
    pub(super) errors: Errors,
}

pub(super) async fn run(args: &Args, global: &Global) -> Result<Results, Stopped> {
    let client = args.registry.client(&args.image, global).await?;
    let request = Push {
        image: args.image.clone(),
        dir: args.push.clone(),
        platform: args.platform.clone(),
        annotations: args.annotations.iter().cloned().collect(),
        labels: args.labels.iter().cloned().collect(),
        timestamp: match (args.image_timestamp, &args.image_timestamp_file) {
            (Some(seconds), _) => Timestamp::At(seconds),
            (None, Some(file)) => Timestamp::InFile(file.clone()),
            (None, None) => Timestamp::Untouched,
        },
    };
    let pushed = image::push(&request, &client, &super::temp()).await?;
    let done = if pushed.written { "pushed" } else { "is there already:" };
    format::tell(&format!("{done} {} {}", args.image, pushed.digest));
    let mut results = Results::default();
    results.add(args.result_file_image_digest.as_deref(), &pushed.digest.to_string());
    if let Some(size) = pushed.size {
        results.add(args.result_file_image_size.as_deref(), &size.to_string());
    }
    Ok(results)
}
