//! `portolan step index-assemble --image REF --platforms PLATFORM=DIGEST…`

use portolan_build::steps::Results;
use portolan_build::steps::index::{self, Assembly, Said};

use super::{Product, Stopped};
use crate::cli::Global;
use crate::format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan step index-assemble --image registry.example/app:1 --platforms linux/amd64=sha256:… linux/arm64=sha256:…\n\n\
    Each image must be what its configuration says. The same images give the same index; run twice, nothing is written."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) product: Product,
    /// The image of each platform, in the same repository
    #[arg(long, value_name = "PLATFORM=DIGEST", required = true, num_args = 1..)]
    platforms: Vec<Said>,
    /// The source that each platform was built from; they must agree
    #[arg(long, value_name = "PLATFORM=DIGEST", num_args = 1..)]
    sources: Vec<Said>,
    /// An annotation of the index, KEY=VALUE (repeatable)
    #[arg(long = "annotation", value_name = "KEY=VALUE", value_parser = crate::image::key_value)]
    annotations: Vec<(String, String)>,
}

pub(super) async fn run(args: &Args, global: &Global) -> Result<Results, Stopped> {
    let image = &args.product.image;
    let client = args.product.client(global).await?;
    let request = Assembly {
        image: image.clone(),
        platforms: args.platforms.clone(),
        sources: args.sources.clone(),
        annotations: args.annotations.iter().cloned().collect(),
    };
    let index = index::assemble(&request, &client).await?;
    format::tell(&format!("{image} {}", index.digest));
    Ok(args.product.results(&index.digest))
}
