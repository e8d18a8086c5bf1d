//! `portolan step assemble --context DIR --output DIR`

use std::path::PathBuf;

use portolan_build::assemble::Recipe;
use portolan_build::steps::{Results, recipe};
use portolan_core::{Host, Platform, Reference};

use super::{Errors, Stopped};
use crate::cli::Global;
use crate::exit::Failure;
use crate::image::wanted;
use crate::{context, format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan step assemble --context . --platform linux/arm64 --output ./output-image\n\n\
    The strategy `portolan`: no program is run and no privilege needed, and the same directory gives the same\n\
    digest as `portolan build run --engine local`."
)]
pub(crate) struct Args {
    /// The directory that is built
    #[arg(long, value_name = "DIR")]
    context: PathBuf,
    /// The Containerfile, from the context; Containerfile or Dockerfile where nothing is said
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<String>,
    /// The stage that becomes the image; the last where nothing is said
    #[arg(long, value_name = "STAGE")]
    target: Option<String>,
    /// A value for an ARG, NAME=VALUE (repeatable, or several at once)
    #[arg(long = "build-arg", value_name = "NAME=VALUE", num_args = 0.., value_parser = crate::image::key_value)]
    build_args: Vec<(String, String)>,
    /// What it is built for; the first that is not empty counts, and this machine where all are
    #[arg(long = "platform", value_name = "PLATFORM")]
    platforms: Vec<String>,
    /// The directory that becomes an OCI layout with the image
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// When everything in the image says it was made, in seconds since 1970
    #[arg(long, value_name = "SECONDS", env = "SOURCE_DATE_EPOCH", default_value_t = 0)]
    source_date_epoch: u32,
    /// A registry of base images that may be reached over plain HTTP (repeatable, or several at once)
    #[arg(long, value_name = "HOST", num_args = 0..)]
    insecure_registry: Vec<Host>,
    /// A directory with .dockerconfigjson, or such a file, for base images in the registry of --image
    #[arg(long, value_name = "PATH", requires = "image")]
    secret_path: Option<PathBuf>,
    /// The image that the build is for
    #[arg(long, value_name = "REF")]
    image: Option<Reference>,
    #[command(flatten)]
    pub(super) errors: Errors,
}

pub(super) async fn run(args: &Args, global: &Global) -> Result<Results, Stopped> {
    let platform =
        platform(&args.platforms).map_err(|error| Stopped::Other(Failure::usage(error)))?;
    let settings = context::settings(global).map_err(Stopped::Other)?;
    let secret = args.image.as_ref().zip(args.secret_path.as_deref());
    let client = recipe::base_client(&args.insecure_registry, secret, settings).await?;
    // Strategies have no way to leave a flag out: what is empty was not said.
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let recipe = Recipe {
        dir: args.context.clone(),
        file: said(&args.file).map(|file| args.context.join(file)),
        target: said(&args.target),
        args: args.build_args.iter().cloned().collect(),
        epoch: args.source_date_epoch,
    };
    let built = recipe::assemble(recipe, &platform, &args.output, &super::temp(), &client).await?;
    format::tell(&format!("{platform} {}", built.manifest.digest));
    Ok(Results::default())
}

/// The platform of a build: two parameters may name it, and on a node of its own none does.
fn platform(said: &[String]) -> anyhow::Result<Platform> {
    match said.iter().map(|text| text.trim()).find(|text| !text.is_empty()) {
        Some(text) => {
            let platform = wanted::platform(text)?;
            wanted::warn(&platform);
            Ok(platform.normalised())
        }
        None => Ok(usual(portolan_host::Host::here()?.platform()?.platform.normalised())),
    }
}

/// What images for machines of this kind say: not the level of this one, which others lack. Only 32-bit
/// ARM goes by its versions.
fn usual(platform: Platform) -> Platform {
    let variant = platform.variant.filter(|_| platform.architecture == "arm");
    Platform { variant, ..platform }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_platform_that_is_said_counts() {
        let of = |said: &[&str]| {
            let said: Vec<String> = said.iter().map(|text| (*text).to_owned()).collect();
            platform(&said).map(|platform| platform.to_string())
        };
        assert_eq!(of(&["", "linux/arm64"]).unwrap(), "linux/arm64");
        assert_eq!(of(&["linux/ppcle64", ""]).unwrap(), "linux/ppc64le");
        assert!(of(&["", ""]).unwrap().starts_with("linux/"));
        let here = |text: &str| usual(text.parse().unwrap()).to_string();
        let found = ["linux/amd64/v4", "linux/arm64/v8.2", "linux/arm/v7"].map(here);
        assert_eq!(found, ["linux/amd64", "linux/arm64", "linux/arm/v7"]);
        assert!(of(&["no such thing"]).is_err());
    }
}
