//! `portolan platform-class check NAME`

use portolan_api::ResourceExt as _;
use portolan_api::build::Build;
use portolan_api::condition::{self, Status};
use portolan_api::platform::{AVAILABLE, FoundImagePlatform, ImagePlatform, ImagePlatformClass};
use portolan_build::plan::{self, Objects, Refusal};
use portolan_build::request::{self, Wishes};
use portolan_core::Platform;
use serde::Serialize;

use crate::build::plan_settings;
use crate::cluster::{self, Cluster};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan platform-class check default --platform linux/amd64 --platform linux/arm64\n  portolan platform-class check default --build sample-go\n\n\
    Exit code 1: the class cannot be used, lacks a platform, or collides with what the Build says."
)]
pub(crate) struct Args {
    /// Which class
    name: String,
    /// A platform that is needed, as os/arch[/variant] (repeatable, or with commas)
    #[arg(long = "platform", value_name = "PLATFORM", value_delimiter = ',')]
    platforms: Vec<Platform>,
    /// A Build that is to be built by the class
    #[arg(long, value_name = "NAME")]
    build: Option<String>,
    /// How to print the answer
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    cluster: cluster::Flags,
}

/// What is to be said of a class.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    class: String,
    available: bool,
    reason: String,
    message: String,
    image_platforms: Vec<FoundImagePlatform>,
    /// Platforms that were asked for and that it does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    /// What a run of the Build would be refused for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refusals: Vec<Refusal>,
    /// Where the cluster's own answer is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Answer {
    fn good(&self) -> bool {
        self.available && self.missing.is_empty() && self.refusals.is_empty()
    }
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let class: ImagePlatformClass = cluster.get(&cluster.wide(), &args.name).await?;
    let image_platforms: Vec<ImagePlatform> = cluster.list(&cluster.wide(), None).await?;
    let mut answer = judge(&class, &image_platforms, &args.platforms);
    if let Some(build) = &args.build {
        let build: Build = cluster.get(&cluster.here(), build).await?;
        let objects = Objects { image_platforms, ..cluster.objects().await? };
        answer.refusals = refusals(&build, &class, &args.platforms, objects)?;
    }
    args.format.print(&answer, table)?;
    Ok(if answer.good() { Exit::Ok } else { Exit::No })
}

/// Whether a class can be used, worked out here: its controller may be behind, or not be there.
fn judge(class: &ImagePlatformClass, all: &[ImagePlatform], wanted: &[Platform]) -> Answer {
    let status = plan::class_status(class, all);
    let condition = condition::find(&status.conditions, AVAILABLE);
    let (available, reason, message) = match condition {
        Some(found) => (found.status == Status::True, found.reason.clone(), found.message.clone()),
        None => (false, String::new(), String::new()),
    };
    let has = |wanted: &Platform| {
        let wanted = wanted.normalised();
        status.image_platforms.iter().any(|found| found.platform.normalised() == wanted)
    };
    let told = class.status.as_ref();
    let told = told.and_then(|told| condition::find(&told.conditions, AVAILABLE));
    let note = match told {
        None => Some("no controller has looked at the class yet; runs wait for that".to_owned()),
        Some(told) if (told.status == Status::True) != available => {
            Some(format!("the cluster's own answer is older: {}: {}", told.reason, told.message))
        }
        Some(_) => None,
    };
    Answer {
        class: class.name_any(),
        available,
        reason,
        message,
        missing: wanted.iter().filter(|wanted| !has(wanted)).map(ToString::to_string).collect(),
        image_platforms: status.image_platforms,
        refusals: Vec::new(),
        note,
    }
}

/// What a run of the Build by this class would be refused for.
fn refusals(
    build: &Build,
    class: &ImagePlatformClass,
    wanted: &[Platform],
    mut objects: Objects,
) -> Result<Vec<Refusal>, Failure> {
    for known in &mut objects.classes {
        known.status = Some(plan::class_status(known, &objects.image_platforms));
    }
    objects.builds = vec![build.clone()];
    let wishes =
        Wishes { platforms: wanted.to_vec(), class: Some(class.name_any()), ..Wishes::default() };
    let run = request::run(build, Some("check"), &wishes, None).map_err(Failure::usage)?;
    Ok(plan::plan(&run, &objects, &plan_settings()).err().unwrap_or_default())
}

fn table(answer: &Answer) -> String {
    let word = if answer.available { "available" } else { "not available" };
    let mut text = format!("{} is {word}: {}: {}\n", answer.class, answer.reason, answer.message);
    for platform in &answer.missing {
        text.push_str(&format!("missing: {platform}\n"));
    }
    for refusal in &answer.refusals {
        text.push_str(&format!("refused: {}: {}\n", refusal.reason.as_str(), refusal.message));
    }
    if let Some(note) = &answer.note {
        text.push_str(&format!("note: {note}\n"));
    }
    let rows = answer
        .image_platforms
        .iter()
        .map(|found| vec![format::safe(&found.platform.to_string()), format::safe(&found.name)]);
    let rows: Vec<_> = rows.collect();
    let text = format::printable(&text);
    match rows.is_empty() {
        true => text,
        false => format!("{text}\n{}", format::table(&["PLATFORM", "IMAGEPLATFORM"], rows)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn platform(name: &str, arch: &str, spec: serde_json::Value) -> ImagePlatform {
        let mut spec = spec;
        spec["platform"] = json!({ "os": "linux", "arch": arch });
        serde_json::from_value(json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform",
            "metadata": { "name": name }, "spec": spec,
        }))
        .unwrap()
    }

    fn class(names: &[&str]) -> ImagePlatformClass {
        let names: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        serde_json::from_value(json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
            "metadata": { "name": "all" }, "spec": { "imagePlatforms": names },
        }))
        .unwrap()
    }

    fn all() -> Vec<ImagePlatform> {
        let native = |arch: &str| json!({ "nodeSelector": { "kubernetes.io/arch": arch } });
        vec![
            platform("amd", "amd64", native("amd64")),
            platform("arm", "arm64", native("arm64")),
            platform("amd-too", "amd64", native("amd64")),
        ]
    }

    #[test]
    fn a_class_is_judged_by_what_is_there() {
        let wanted: Vec<Platform> =
            ["linux/aarch64", "linux/s390x"].map(|p| p.parse().unwrap()).to_vec();
        for (names, wanted, available, reason, missing) in [
            (&["amd", "arm"][..], &[][..], true, "AllImagePlatformsAvailable", &[][..]),
            (&["amd", "gone"], &[], false, "ImagePlatformNotFound", &[]),
            (&["amd", "amd-too"], &[], false, "DuplicatePlatform", &[]),
            (&["amd", "arm"], &wanted, true, "AllImagePlatformsAvailable", &["linux/s390x"]),
        ] {
            let answer = judge(&class(names), &all(), wanted);
            assert_eq!(
                (answer.available, answer.reason.as_str()),
                (available, reason),
                "{names:?}"
            );
            assert_eq!(answer.missing, missing, "{names:?}");
            assert_eq!(answer.good(), available && missing.is_empty());
            assert!(answer.note.is_some(), "no controller has spoken");
        }
    }

    #[test]
    fn collisions_of_a_build_are_found_by_planning() {
        let build = |selector: serde_json::Value| -> Build {
            serde_json::from_value(json!({
                "apiVersion": "shipwright.io/v1beta1", "kind": "Build",
                "metadata": { "name": "app" },
                "spec": {
                    "strategy": { "name": "s", "kind": "ClusterBuildStrategy" },
                    "output": { "image": "h.example/a:1" }, "nodeSelector": selector,
                },
            }))
            .unwrap()
        };
        let strategy = serde_json::from_value(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "ClusterBuildStrategy",
            "metadata": { "name": "s" }, "spec": { "steps": [{ "name": "x", "image": "i" }] },
        }))
        .unwrap();
        let class = class(&["amd", "arm"]);
        let objects = Objects {
            cluster_strategies: vec![strategy],
            classes: vec![class.clone()],
            image_platforms: all(),
            ..Objects::default()
        };
        let wanted = ["linux/arm64".parse().unwrap()];
        let found = |selector: serde_json::Value| {
            let found = refusals(&build(selector), &class, &wanted, objects.clone()).unwrap();
            found.iter().map(|r| r.reason.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(json!({})), [""; 0]);
        assert_eq!(found(json!({ "kubernetes.io/arch": "arm64" })), ["NodeSelectorCollision"]);
    }
}
