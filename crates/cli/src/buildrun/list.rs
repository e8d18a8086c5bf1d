//! `portolan buildrun list`

use portolan_api::ResourceExt as _;
use portolan_api::build::{BuildRun, PlatformState, SourceKind};
use portolan_build::request::{pods, progress};

use crate::cluster::tables::{Listing, age, now, span};
use crate::cluster::{self, Cluster};
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan buildrun list --wide")]
pub(crate) struct Args {
    /// Also show what was built, from where and for which platforms
    #[arg(long)]
    wide: bool,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    cluster: cluster::Flags,
}

const HEADER: [&str; 9] = [
    "NAME",
    "STATUS",
    "AGE",
    "SOURCE",
    "OUTPUT-IMAGE",
    "BUILD-NAME",
    "ELAPSED-TIME",
    "SOURCE-ORIGIN",
    "PLATFORMS",
];
/// So many of them where it is not wide.
const NARROW: usize = 3;

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let runs: Vec<BuildRun> = cluster.list(&cluster.here(), None).await?;
    let columns = if args.wide { HEADER.len() } else { NARROW };
    let now = now();
    let what = format!("BuildRuns in the namespace {}", cluster.namespace);
    let row = |run: &BuildRun| row(run, now).into_iter().take(columns).collect();
    args.listing.print(runs, &HEADER[..columns], &what, row)
}

fn row(run: &BuildRun, now: i64) -> Vec<String> {
    let status = run.status.clone().unwrap_or_default();
    let spec = run.spec.build.spec.as_deref().or(status.build_spec.as_deref());
    let reason = progress::succeeded(run).map_or("Unknown", |condition| &condition.reason);
    let own = run.spec.output.as_ref().and_then(|output| output.image.clone());
    let image = own.or_else(|| spec.map(|spec| spec.output.image.clone()));
    let elapsed = status.start_time.as_ref().map(|start| {
        let end = status.completion_time.as_ref().map_or(now, |end| end.0.as_second());
        span(end - start.0.as_second())
    });
    let (source, origin) = source(run);
    vec![
        run.name_any(),
        reason.to_owned(),
        age(run.metadata.creation_timestamp.as_ref(), now),
        source,
        image.unwrap_or_default(),
        run.spec.build.name.clone().unwrap_or_default(),
        elapsed.unwrap_or_default(),
        origin.to_owned(),
        platforms(run),
    ]
}

/// What the source is, and what kind it is of.
fn source(run: &BuildRun) -> (String, &'static str) {
    if run.spec.source.is_some() {
        return (String::new(), "Local");
    }
    let status = run.status.as_ref();
    let spec = run.spec.build.spec.as_deref();
    let spec = spec.or_else(|| status.and_then(|status| status.build_spec.as_deref()));
    let Some(source) = spec.and_then(|spec| spec.source.as_ref()) else {
        return (String::new(), "");
    };
    match source.kind {
        SourceKind::Git => {
            (source.git.as_ref().map(|git| git.url.clone()).unwrap_or_default(), "Git")
        }
        SourceKind::Oci => {
            let image = source.oci_artifact.as_ref().map(|artifact| artifact.image.clone());
            (image.unwrap_or_default(), "OCI")
        }
        SourceKind::Local => (String::new(), "Local"),
    }
}

/// Each platform, with what became of it where that is known.
fn platforms(run: &BuildRun) -> String {
    let status = run.status.as_ref().and_then(|status| status.output.as_ref());
    let rows = status.map(|output| output.platforms.as_slice()).unwrap_or_default();
    let marked = pods::platforms(run).into_iter().enumerate().map(|(at, platform)| {
        let mark = rows.get(at).map_or("", |row| match row.state {
            PlatformState::Failed => "(failed)",
            PlatformState::Canceled => "(canceled)",
            _ => "",
        });
        format!("{platform}{mark}")
    });
    marked.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_one_row_with_its_platforms() {
        let platform = |arch: &str, state: &str| json!({ "os": "linux", "arch": arch, "image": "i", "state": state });
        let run: BuildRun = serde_json::from_value(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
            "metadata": { "name": "r", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "build": { "name": "app" } },
            "status": {
                "conditions": [{
                    "type": "Succeeded", "status": "False", "reason": "Failed", "message": "m",
                }],
                "startTime": "2026-01-01T00:00:05Z", "completionTime": "2026-01-01T00:01:00Z",
                "buildSpec": {
                    "source": { "type": "Git", "git": { "url": "https://git.example/a.git" } },
                    "strategy": { "name": "s" }, "output": { "image": "h.example/a:1" },
                },
                "output": {
                    "platforms": [platform("amd64", "Succeeded"), platform("arm64", "Failed")],
                },
            },
        }))
        .unwrap();
        let now = "2026-01-01T03:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second();
        let expected = [
            "r",
            "Failed",
            "3h",
            "https://git.example/a.git",
            "h.example/a:1",
            "app",
            "55s",
            "Git",
            "linux/amd64,linux/arm64(failed)",
        ];
        assert_eq!(row(&run, now), expected);
        assert_eq!(expected.len(), HEADER.len());
        let fresh: BuildRun = serde_json::from_value(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
            "metadata": { "name": "r" }, "spec": { "build": { "name": "app" } },
        }))
        .unwrap();
        assert_eq!(row(&fresh, now)[..3], ["r", "Unknown", ""]);
    }
}
