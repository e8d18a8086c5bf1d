//! Builds: the plan alone, images beside buildah, indexes beside crane, and the controller in a
//! real cluster.

mod api;
mod cluster;
mod images;

use anyhow::Result;

use super::inner;
use super::report::{Promise, Report};
use crate::program::{CONTROLLER, PORTOLAN, released};
use crate::testbed::build::{Missing, ensure};
use crate::testbed::parts::Use;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the cluster out; everything else needs none
    #[arg(long)]
    no_cluster: bool,
    /// Only the cluster
    #[arg(long, conflicts_with = "no_cluster")]
    only_cluster: bool,
}

pub(crate) fn run(runs: usize, args: &Args) -> Result<Report> {
    let mut report = Report::default();
    let (portolan, controller) = (released(PORTOLAN)?, released(CONTROLLER)?);
    if !args.only_cluster {
        let tools = ensure(Use::Bench, Missing::Fails)?;
        for (what, measured, at_most) in inner::run("portolan-build", "plan", 1)? {
            report.promises.push(Promise { what, measured, at_most });
        }
        images::run(&mut report, runs, &tools, &portolan)?;
    }
    if !args.no_cluster {
        cluster::run(&mut report, &controller)?;
    }
    Ok(report)
}
