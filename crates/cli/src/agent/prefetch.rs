//! `portolan agent prefetch REF@DIGEST…`

use portolan_agent::api::{PrefetchReport, PrefetchRequest};
use portolan_agent::spec::ImageSpec;
use portolan_core::{Platform, RegistryReference};

use super::{Agent, failure, is_answer, short};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, safe};
use crate::image::wanted::Wanted;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan agent prefetch registry.example/app@sha256:9f86…\n  portolan agent prefetch registry.example/app@$(portolan image resolve registry.example/app:1)"
)]
pub(crate) struct Args {
    #[command(flatten)]
    agent: Agent,
    /// The images, each with the digest of the manifest for this machine
    #[arg(value_name = "REF@DIGEST", required = true)]
    images: Vec<RegistryReference>,
    #[command(flatten)]
    wanted: Wanted,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let platform = args.wanted.host()?.platform;
    let images = args.images.iter().map(|image| spec(image, &platform));
    let request = PrefetchRequest { images: images.collect::<Result<_, _>>()? };
    let report = args.agent.client().prefetch(&request).await.map_err(failure)?;
    args.format.print(&report, table)?;
    Ok(outcome(&report))
}

pub(crate) fn spec(image: &RegistryReference, platform: &Platform) -> Result<ImageSpec, Failure> {
    let Some(digest) = image.digest else {
        let error = anyhow::anyhow!(
            "{image} has no digest and an agent resolves no tags; write {image}@$(portolan image resolve {image})"
        );
        return Err(Failure::usage(error));
    };
    Ok(ImageSpec {
        repository: format!("{}/{}", image.registry, image.repository),
        index_digest: None,
        resolved_digest: Some(digest.to_string()),
        os: platform.os.clone(),
        arch: platform.architecture.clone(),
        // The digest names one manifest; which level it needs is checked where it is read.
        variant: None,
    })
}

fn table(report: &PrefetchReport) -> String {
    let rows = report.images.iter().map(|one| {
        let result = match (one.reason, one.cached) {
            (Some(reason), _) => reason.as_str(),
            (None, Some(true)) => "was there",
            (None, _) => "built",
        };
        let digest = short(one.resolved_digest.as_deref());
        let message = one.message.as_deref().map_or_else(|| "-".to_owned(), safe);
        vec![digest, result.to_owned(), short(one.rootdisk_key.as_deref()), message]
    });
    format::table(&["DIGEST", "RESULT", "ROOT DISK", "MESSAGE"], rows.collect())
}

/// No when an image does not run here, trouble when one could not be had, else fine.
fn outcome(report: &PrefetchReport) -> Exit {
    let reasons: Vec<_> = report.images.iter().filter_map(|one| one.reason).collect();
    match reasons.first() {
        None => Exit::Ok,
        Some(_) if reasons.iter().all(|reason| is_answer(reason.as_str())) => Exit::No,
        Some(_) => Exit::Transport,
    }
}
