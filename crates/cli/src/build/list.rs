//! `portolan build list`

use portolan_api::ResourceExt as _;
use portolan_api::build::Build;

use crate::cluster::tables::Listing;
use crate::cluster::{self, Cluster};
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan build list -n team")]
pub(crate) struct Args {
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    cluster: cluster::Flags,
}

const HEADER: [&str; 4] = ["NAME", "OUTPUT", "PLATFORMS", "STATUS"];

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let builds: Vec<Build> = cluster.list(&cluster.here(), None).await?;
    let what = format!("Builds in the namespace {}", cluster.namespace);
    args.listing.print(builds, &HEADER, &what, row)
}

fn row(build: &Build) -> Vec<String> {
    let settings = &build.spec.output.settings;
    let platforms = match &settings.multi_arch {
        Some(multi_arch) => &multi_arch.platforms,
        None => &settings.platforms,
    };
    let platforms: Vec<String> = platforms.iter().map(ToString::to_string).collect();
    let status = build.status.clone().unwrap_or_default();
    let status = status.message.or(status.reason).unwrap_or_default();
    vec![build.name_any(), build.spec.output.image.clone(), platforms.join(","), status]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_one_row() {
        let build: Build = serde_json::from_value(serde_json::json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "Build", "metadata": { "name": "app" },
            "spec": {
                "strategy": { "name": "s" },
                "output": { "image": "h.example/a:1", "multiArch": {
                    "imagePlatformClass": "default",
                    "platforms": [
                        { "os": "linux", "arch": "amd64" },
                        { "os": "linux", "arch": "arm", "variant": "v7" },
                    ],
                } },
            },
            "status": { "registered": "True", "message": "all validations succeeded" },
        }))
        .unwrap();
        let expected =
            ["app", "h.example/a:1", "linux/amd64,linux/arm/v7", "all validations succeeded"];
        assert_eq!(row(&build), expected);
    }
}
