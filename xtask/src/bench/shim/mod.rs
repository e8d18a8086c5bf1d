//! Shims: thousands of nodes on a real API server, beside a client that only creates the same Jobs and beside
//! runtime-class-manager; and one install on one node.
//!
//! Nodes are objects without a machine, and the bench is their kubelet: it ends Jobs through their status and lets nodes
//! say that they live. No controller manager runs, and nothing like kwok: either would make pods of Jobs and write each
//! of them several times, and two processors would be busy with that and not with what is measured.

mod audit;
mod client;
mod controllers;
mod install;
mod kubelets;
mod objects;
mod peer;
mod plane;
mod scale;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::report::{Promise, Report, Row, millis};
use crate::program::{CONTROLLER, PORTOLAN, released};
use crate::testbed::build::{Missing, Toolbox, ensure_parts};
use crate::testbed::parts;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Nodes of the large cluster
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Nodes of the clusters beside runtime-class-manager
    #[arg(long, default_value_t = 500)]
    peer_nodes: usize,
    /// How long it is watched that nothing is written, in seconds; who watches less than this shows less than is promised
    #[arg(long, default_value_t = scale::PROMISED_REST.as_secs())]
    rest: u64,
    /// Only these (default: all)
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// A controller that is built already
    #[arg(long, value_name = "FILE")]
    controller: Option<PathBuf>,
    /// A `portolan` that is built already
    #[arg(long, value_name = "FILE")]
    portolan: Option<PathBuf>,
    /// Try the bench itself, also as a debug build: its numbers say nothing then
    #[arg(long, hide = true)]
    try_it: bool,
}

impl Args {
    pub(super) fn is_a_try(&self) -> bool {
        self.try_it
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Thousands of nodes
    Scale,
    /// Beside runtime-class-manager
    Peer,
    /// One install on one node
    Install,
}

/// What the clusters are made of.
const TOOLS: [&str; 4] =
    ["etcd", "kube-apiserver", "runtime-class-manager", "runtime-class-manager-crds"];

pub(crate) fn run(runs: usize, args: &Args) -> Result<Report> {
    let mut report = Report::default();
    if cfg!(debug_assertions) {
        report.notes.push("DEBUG BUILD: these numbers say nothing".to_owned());
    }
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    if wanted(Part::Install) {
        let portolan = match &args.portolan {
            Some(path) => path.clone(),
            None => released(PORTOLAN)?,
        };
        install::run(&mut report, runs, &portolan)?;
    }
    if wanted(Part::Scale) || wanted(Part::Peer) {
        let controller = match &args.controller {
            Some(path) => path.clone(),
            None => released(CONTROLLER)?,
        };
        let tools = tools(wanted(Part::Peer))?;
        if wanted(Part::Scale) {
            let rest = Duration::from_secs(args.rest);
            scale::run(&mut report, &tools, &controller, args.nodes, rest)?;
        }
        if wanted(Part::Peer) {
            peer::run(&mut report, &tools, &controller, args.peer_nodes)?;
        }
    }
    Ok(report)
}

fn tools(peer: bool) -> Result<Toolbox> {
    let wanted = if peer { &TOOLS[..] } else { &TOOLS[..2] };
    ensure_parts(&parts::closure(|part| wanted.contains(&part.name)), Missing::Fails)
}

fn at_most(report: &mut Report, what: &str, measured: f64, at_most: f64) {
    report.promises.push(Promise { what: what.to_owned(), measured, at_most });
}

fn row(what: impl Into<String>, middle: Duration, all: &[Duration], peak_mib: Option<f64>) -> Row {
    Row {
        what: what.into(),
        median_ms: millis(middle),
        runs_ms: all.iter().map(|time| millis(*time)).collect(),
        peak_mib,
        idle: None,
    }
}
