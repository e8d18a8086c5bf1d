//! `portolan platform-class …`: sets of ways to build, one for each platform.

use portolan_api::ResourceExt as _;
use portolan_api::condition::{self, Status};
use portolan_api::platform::{AVAILABLE, ImagePlatformClass};

use crate::cluster::tables::{Listing, age, now};
use crate::cluster::{self, Cluster};
use crate::context;
use crate::exit::{Exit, Failure};

mod check;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// List classes, and for which platforms each can be used
    List(ListArgs),
    /// Can a class be used, and can a Build be built by it?
    Check(check::Args),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan platform-class list")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    cluster: cluster::Flags,
}

pub(crate) fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => context::wait(list(args)),
        Command::Check(args) => context::wait(check::run(args)),
    }
}

async fn list(args: ListArgs) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let classes: Vec<ImagePlatformClass> = cluster.list(&cluster.wide(), None).await?;
    let now = now();
    let header = ["NAME", "AVAILABLE", "PLATFORMS", "REASON", "AGE"];
    args.listing.print(classes, &header, "ImagePlatformClasses", |class| row(class, now))
}

fn row(class: &ImagePlatformClass, now: i64) -> Vec<String> {
    let status = class.status.clone().unwrap_or_default();
    let condition = condition::find(&status.conditions, AVAILABLE);
    let available = condition.map_or("Unknown", |condition| match condition.status {
        Status::True => "True",
        Status::False => "False",
        Status::Unknown => "Unknown",
    });
    let platforms: Vec<String> =
        status.image_platforms.iter().map(|found| found.platform.to_string()).collect();
    vec![
        class.name_any(),
        available.to_owned(),
        platforms.join(","),
        condition.map(|condition| condition.reason.clone()).unwrap_or_default(),
        age(class.metadata.creation_timestamp.as_ref(), now),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_is_one_row_with_its_platforms() {
        let mut class = json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
            "metadata": { "name": "all" }, "spec": { "imagePlatforms": [{ "name": "a" }] },
        });
        let unseen: ImagePlatformClass = serde_json::from_value(class.clone()).unwrap();
        assert_eq!(row(&unseen, 0), ["all", "Unknown", "", "", ""]);
        class["status"] = json!({
            "conditions": [{
                "type": "Available", "status": "True", "reason": "AllImagePlatformsAvailable",
                "message": "",
            }],
            "imagePlatforms": [{ "name": "a", "os": "linux", "arch": "amd64" }],
        });
        let seen: ImagePlatformClass = serde_json::from_value(class).unwrap();
        let expected = ["all", "True", "linux/amd64", "AllImagePlatformsAvailable", ""];
        assert_eq!(row(&seen, 0), expected);
    }
}
