//! `portolan buildrun …`: single runs of Builds.

use portolan_api::ResourceExt as _;
use portolan_api::build::BuildRun;
use portolan_api::keys;

use crate::cli::Global;
use crate::cluster::Cluster;
use crate::context;
use crate::exit::{Exit, Failure};

pub(crate) mod cancel;
mod create;
mod delete;
mod gather;
mod list;
pub(crate) mod logs;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
#[allow(clippy::large_enum_variant, reason = "one per run")]
pub(crate) enum Command {
    /// Run a Build under a name of your own
    Create(create::Args),
    /// List runs, and how they ended
    List(list::Args),
    /// Print what the pods of a run have written
    Logs(logs::Args),
    /// End a run that is at work
    Cancel(cancel::Args),
    /// Delete a run
    Delete(delete::Args),
    /// Collect all that is known of a run, for whoever is to find out what went wrong
    Gather(gather::Args),
}

pub(crate) fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Create(args) => context::wait(create::run(args)),
        Command::List(args) => context::wait(list::run(args)),
        Command::Logs(args) => context::wait(logs::run(args, global)),
        Command::Cancel(args) => context::wait(cancel::run(args)),
        Command::Delete(args) => context::wait(delete::run(args)),
        Command::Gather(args) => context::wait(gather::run(args)),
    }
}

/// The runs of a Build, newest last. A run that was made a moment ago has no labels yet, so what it
/// refers to counts.
pub(crate) async fn of_build(cluster: &Cluster, build: &str) -> Result<Vec<BuildRun>, Failure> {
    let mut runs: Vec<BuildRun> = cluster.list(&cluster.here(), None).await?;
    runs.retain(|run| belongs(run, build));
    runs.sort_by_key(|run| {
        (run.metadata.creation_timestamp.as_ref().map(|time| time.0), run.name_any())
    });
    Ok(runs)
}

fn belongs(run: &BuildRun, build: &str) -> bool {
    match &run.spec.build.name {
        Some(name) => name == build,
        None => run.labels().get(keys::BUILD_NAME).is_some_and(|name| name == build),
    }
}

/// The newest run of a Build.
pub(crate) async fn newest(cluster: &Cluster, build: &str) -> Result<BuildRun, Failure> {
    of_build(cluster, build).await?.pop().ok_or_else(|| {
        let error = anyhow::anyhow!(
            "the Build {build} has no run in the namespace {}; start one: portolan build run {build}",
            cluster.namespace
        );
        Failure::new(Exit::NotFound, error)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_belongs_to_the_build_that_it_names() {
        let run = |build: serde_json::Value, label: Option<&str>| -> BuildRun {
            let labels = label.map(|label| json!({ keys::BUILD_NAME: label }));
            serde_json::from_value(json!({
                "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
                "metadata": { "name": "r", "labels": labels }, "spec": { "build": build },
            }))
            .unwrap()
        };
        assert!(belongs(&run(json!({ "name": "app" }), None), "app"));
        assert!(!belongs(&run(json!({ "name": "other" }), Some("app")), "app"));
        assert!(belongs(&run(json!({}), Some("app")), "app"));
        assert!(!belongs(&run(json!({}), None), "app"));
    }
}
