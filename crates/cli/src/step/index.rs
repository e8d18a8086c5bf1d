//! `portolan step index-assemble --image REF --platforms PLATFORM=DIGEST…`

use std::path::PathBuf;

use portolan_build::steps::Results;
use portolan_build::steps::index::{self, Assembly, Said};
use portolan_core::Reference;

use super::{Errors, Registry, Stopped};
use crate::cli::Global;
use crate::format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan step index-assemble --image registry.example/app:1 --platforms linux/amd64=sha256:… linux/arm64=sha256:…\n\n\
    Each image must be what its configuration says. The same images give the same index; run twice, nothing is written."
)]
pub(crate) struct Args {
    /// Where the index goes; the images are in the same repository
    #[arg(long, value_name = "REF")]
    image: Reference,
    /// The image of each platform
    #[arg(long, value_name = "PLATFORM=DIGEST", required = true, num_args = 1..)]
    platforms: Vec<Said>,
    /// The source that each platform was built from; they must agree
    #[arg(long, value_name = "PLATFORM=DIGEST", num_args = 1..)]
    sources: Vec<Said>,
    /// An annotation of the index, KEY=VALUE (repeatable)
    #[arg(long = "annotation", value_name = "KEY=VALUE", value_parser = crate::image::key_value)]
    annotations: Vec<(String, String)>,
    /// The file that gets the digest of the index
    #[arg(long, value_name = "FILE")]
    result_file_image_digest: Option<PathBuf>,
    #[command(flatten)]
    registry: Registry,
    #[command(flatten)]
    pub(super) errors: Errors,
}

pub(super) async fn run(args: &Args, global: &Global) -> Result<Results, Stopped> {
    let client = args.registry.client(&args.image, global).await?;
    let request = Assembly {
        image: args.image.clone(),
        platforms: args.platforms.clone(),
        sources: args.sources.clone(),
        annotations: args.annotations.iter().cloned().collect(),
    };
    let index = index::assemble(&request, &client).await?;
    format::tell(&format!("{} {}", args.image, index.digest));
    let mut results = Results::default();
    results.add(args.result_file_image_digest.as_deref(), &index.digest.to_string());
    Ok(results)
}
