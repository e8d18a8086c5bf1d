//! `portolan step image-push --image REF`

use std::path::PathBuf;

use portolan_build::steps::Results;
use portolan_build::steps::image::{self as steps, Made, Push, Timestamp};
use portolan_core::{Platform, Reference};

use super::{Product, Stopped};
use crate::cli::Global;
use crate::format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan step image-push --push ./output-image --image registry.example/app:1-linux-arm64 --platform linux/arm64\n\n\
    A strategy that pushes by itself says what with --pushed-digest-file or --pushed; without all three the image is what the tag is now.\n\
    Exit code 1: it is for another platform."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) product: Product,
    /// An OCI layout, or a directory with one tarball
    #[arg(long, value_name = "DIR")]
    push: Option<PathBuf>,
    /// Where a strategy pushed it, a name that no other run uses; it gets the tag of --image
    #[arg(long, value_name = "REF", conflicts_with = "push")]
    pushed: Option<Reference>,
    /// The file in which a strategy left the digest of what it pushed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["push", "pushed"])]
    pushed_digest_file: Option<PathBuf>,
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
    /// The file that gets the size of configuration and layers
    #[arg(long, value_name = "FILE")]
    result_file_image_size: Option<PathBuf>,
    /// Never written: no scan is made, and none must look as if it had found nothing
    #[arg(long, value_name = "FILE")]
    result_file_image_vulnerabilities: Option<PathBuf>,
}

pub(super) async fn run(args: &Args, global: &Global) -> Result<Results, Stopped> {
    let image = &args.product.image;
    let client = args.product.client(global).await?;
    let request = Push {
        image: image.clone(),
        made: made(args),
        platform: args.platform.clone(),
        annotations: args.annotations.iter().cloned().collect(),
        labels: args.labels.iter().cloned().collect(),
        timestamp: match (args.image_timestamp, &args.image_timestamp_file) {
            (Some(seconds), _) => Timestamp::At(seconds),
            (None, Some(file)) => Timestamp::InFile(file.clone()),
            (None, None) => Timestamp::Untouched,
        },
    };
    let pushed = steps::push(&request, &client, &super::temp()).await?;
    let done = if pushed.written { "pushed" } else { "is there already:" };
    format::tell(&format!("{done} {image} {}", pushed.digest));
    let mut results = args.product.results(&pushed.digest);
    if let Some(size) = pushed.size {
        results.add(args.result_file_image_size.as_deref(), &size.to_string());
    }
    Ok(results)
}

fn made(args: &Args) -> Made {
    match (&args.push, &args.pushed_digest_file, &args.pushed) {
        (Some(dir), _, _) => Made::InDirectory(dir.clone()),
        (None, Some(file), _) => Made::ByDigest(file.clone()),
        (None, None, Some(name)) => Made::Under(name.clone()),
        (None, None, None) => Made::AsTagged,
    }
}
