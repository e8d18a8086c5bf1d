//! `portolan doctor`: what is missing or wrong on this machine and in this cluster, and what to do.
//!
//! Facts are gathered first, then every check is a function of them. The machine's half needs no cluster.

use std::path::PathBuf;

use crate::cli::Global;
use crate::cluster as kubernetes;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

mod cluster;
mod finding;
mod machine;

use finding::Finding;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan doctor\n  portolan doctor --only machine -o json\n  \
    portolan doctor --only cluster\n\n\
    Exit code 1: something is wrong. 3: nothing is known to be wrong, and something cannot be told. What is only missing is \
    needed by some, and told with what it is for."
)]
pub(crate) struct Args {
    /// Only one half; else both, the cluster's where a kubeconfig names one
    #[arg(long, value_enum)]
    only: Option<Half>,
    /// The root of the machine to look at
    #[arg(long, value_name = "ROOT", default_value = "/")]
    host: PathBuf,
    /// The agent's socket; where the agent puts it when it is not told otherwise
    #[arg(long, value_name = "PATH", env = "PORTOLAN_AGENT_SOCKET")]
    socket: Option<PathBuf>,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    cluster: kubernetes::Flags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Half {
    /// This machine
    Machine,
    /// The cluster
    Cluster,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let mut findings = Vec::new();
    if args.only != Some(Half::Cluster) {
        let facts = machine::gather(&args.host, args.socket.clone(), global).await;
        findings.extend(of("machine", machine::check(&facts)));
    }
    if args.only != Some(Half::Machine) {
        let asked = args.only == Some(Half::Cluster);
        findings.extend(of("cluster", cluster::look(&args.cluster, asked).await));
    }
    args.format.print(&findings, |findings| table(findings))?;
    Ok(finding::exit(&findings))
}

fn of(half: &'static str, findings: Vec<Finding>) -> impl Iterator<Item = Finding> {
    findings.into_iter().map(move |finding| Finding { half, ..finding })
}

/// One line for each, and under it what to do.
fn table(findings: &[Finding]) -> String {
    let mut rows = Vec::new();
    for one in findings {
        let cells = [one.half, one.check, one.state.as_str()].map(str::to_owned);
        rows.push(cells.into_iter().chain([format::safe(&one.found)]).collect());
        if let Some(advice) = &one.advice {
            let none = [String::new(), String::new(), String::new()];
            rows.push(none.into_iter().chain([format!("-> {}", format::safe(advice))]).collect());
        }
    }
    format::table(&["WHERE", "WHAT", "STATE", "FOUND"], rows)
}
