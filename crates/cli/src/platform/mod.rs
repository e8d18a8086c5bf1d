//! `portolan platform …`: how images for a platform are built.

use portolan_api::ResourceExt as _;
use portolan_api::platform::{ImagePlatform, ImagePlatformSpec};

use crate::cluster::tables::{Listing, age, now};
use crate::cluster::{self, Cluster};
use crate::context;
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// List image platforms, and how each is built
    List(Args),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan platform list")]
pub(crate) struct Args {
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    cluster: cluster::Flags,
}

pub(crate) fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => context::wait(list(args)),
    }
}

async fn list(args: Args) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let platforms: Vec<ImagePlatform> = cluster.list(&cluster.wide(), None).await?;
    let now = now();
    let row = |platform: &ImagePlatform| {
        let since = platform.metadata.creation_timestamp.as_ref();
        let name = platform.spec.platform.to_string();
        vec![platform.name_any(), name, how(&platform.spec), age(since, now)]
    };
    args.listing.print(platforms, &["NAME", "PLATFORM", "HOW", "AGE"], "ImagePlatforms", row)
}

/// In short: on nodes of their own, by a runtime, with values for parameters.
fn how(spec: &ImagePlatformSpec) -> String {
    let mut all = Vec::new();
    let labels = spec.node_selector.iter().map(|(key, value)| format!("{key}={value}"));
    let labels: Vec<String> = labels.collect();
    let native = spec.node_selector.get("kubernetes.io/arch") == Some(&spec.platform.arch);
    match (native, labels.is_empty()) {
        (true, _) => all.push("native".to_owned()),
        (false, false) => all.push(format!("nodes {}", labels.join(","))),
        (false, true) => {}
    }
    all.extend(spec.runtime_class.iter().map(|class| format!("runtime {}", class.name)));
    if !spec.param_values.is_empty() {
        let names: Vec<&str> = spec.param_values.iter().map(|param| param.name.as_str()).collect();
        all.push(format!("params {}", names.join(",")));
    }
    if !spec.tolerations.is_empty() {
        let keys = spec.tolerations.iter().map(|t| t.key.as_deref().unwrap_or("*"));
        all.push(format!("tolerates {}", keys.collect::<Vec<_>>().join(",")));
    }
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn how_a_platform_is_built_is_one_line() {
        let platform = json!({ "os": "linux", "arch": "arm64" });
        for (spec, expected) in [
            (
                json!({
                    "platform": platform,
                    "nodeSelector": { "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64" },
                    "tolerations": [{ "key": "t" }],
                }),
                "native; tolerates t",
            ),
            (json!({ "platform": platform, "nodeSelector": { "pool": "big" } }), "nodes pool=big"),
            (
                json!({ "platform": platform, "runtimeClass": { "name": "kata-remote" } }),
                "runtime kata-remote",
            ),
            (
                json!({
                    "platform": platform,
                    "paramValues": [{ "name": "SHP_BUILD_PLATFORM", "value": "linux/arm64" }],
                }),
                "params SHP_BUILD_PLATFORM",
            ),
        ] {
            assert_eq!(how(&serde_json::from_value(spec).unwrap()), expected);
        }
    }
}
