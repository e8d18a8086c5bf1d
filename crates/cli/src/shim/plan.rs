//! `portolan shim plan -f SHIM [--nodes NODES]`

use std::path::PathBuf;

use portolan_api::ResourceExt as _;
use portolan_api::k8s_openapi::api::core::v1::Node as ClusterNode;
use portolan_api::shim::Shim;
use portolan_shim::resolve::{self, Admitted, Artifact, Policy, Refusal, Requirement};
use serde::Serialize;

use super::nodes::{self, Node};
use crate::cluster;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan shim plan -f shim.yaml\n  \
    kubectl get nodes -o json | portolan shim plan -f shim.yaml --nodes - -o json\n\n\
    Nodes that the Shim does not select are left out. Exit code 1: at least one node gets nothing.")]
pub(crate) struct Args {
    /// A file of Shims, or - for stdin (repeatable)
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Nodes, as kubectl prints them in YAML or JSON; else those of the cluster
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// Whether every artifact needs a digest, as the controller is told: off, warn or enforce
    #[arg(long, value_name = "HOW", default_value = "warn")]
    require_digest: Requirement,
    /// Whether every artifact needs https: off, warn or enforce
    #[arg(long, value_name = "HOW", default_value = "warn")]
    require_https: Requirement,
    /// How to print the plan
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    cluster: cluster::Flags,
}

/// What one node would get.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    /// Where there is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    shim: Option<String>,
    node: String,
    location: Option<String>,
    sha256: Option<String>,
    error: Option<String>,
    #[serde(skip)]
    platform: String,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let shims = super::read(&args.files)?;
    let nodes = match &args.nodes {
        Some(file) => nodes::read(file)?,
        None => nodes::list(&args.cluster).await?,
    };
    let policy = Policy { require_digest: args.require_digest, require_https: args.require_https };
    let rows: Vec<Row> =
        shims.iter().flat_map(|shim| plan(shim, &nodes, &policy, shims.len() > 1)).collect();
    shims.iter().for_each(|shim| warn(shim, &nodes, &policy));
    args.format.print(&rows, |rows| table(rows))?;
    let refused = rows.iter().any(|row| row.error.is_some());
    Ok(if refused { Exit::No } else { Exit::Ok })
}

fn facts(node: &Node) -> resolve::Node<'_> {
    let info = &node.status.node_info;
    resolve::Node {
        name: &node.metadata.name,
        os: &info.operating_system,
        arch: &info.architecture,
        runtime: &info.container_runtime_version,
    }
}

/// Whether a node would be sent this.
fn admit(shim: &Shim, artifact: &Artifact, policy: &Policy) -> Result<Admitted, Refusal> {
    resolve::sound(&shim.spec)?;
    resolve::admit(artifact, policy)
}

fn plan(shim: &Shim, nodes: &[Node], policy: &Policy, named: bool) -> Vec<Row> {
    let selected = nodes.iter().filter(|node| shim.spec.selects(&node.metadata.labels));
    let row = |node: &Node| {
        let facts = facts(node);
        let found = resolve::resolve(&shim.name_any(), &shim.spec, &facts);
        // As the controller does, so that the two cannot disagree. What is refused is still shown as it was found.
        let (location, sha256, error) = match found {
            Err(refusal) => (None, None, Some(refusal.to_string())),
            Ok(artifact) => match admit(shim, &artifact, policy) {
                Ok(admitted) => (Some(admitted.location), admitted.sha256, None),
                Err(refusal) => {
                    (Some(artifact.location), artifact.sha256, Some(refusal.to_string()))
                }
            },
        };
        Row {
            shim: named.then(|| shim.name_any()),
            node: facts.name.to_owned(),
            location,
            sha256,
            error,
            platform: format!("{}/{}", facts.os, facts.arch),
        }
    };
    selected.map(row).collect()
}

/// The nodes of a cluster that a Shim selects and that get nothing, each with the reason.
pub(crate) fn lacking(shim: &Shim, nodes: &[ClusterNode]) -> Vec<(String, String)> {
    let nodes: Vec<Node> = nodes.iter().cloned().map(Node::from).collect();
    // The controller's own where nobody sets another.
    let rows = plan(shim, &nodes, &Policy::default(), false).into_iter();
    rows.filter_map(|row| Some((row.node, row.error?))).collect()
}

/// What a controller would tell of artifacts that nodes get.
fn warn(shim: &Shim, nodes: &[Node], policy: &Policy) {
    let mut told = Vec::new();
    for node in nodes.iter().filter(|node| shim.spec.selects(&node.metadata.labels)) {
        let found = resolve::resolve(&shim.name_any(), &shim.spec, &facts(node));
        let Ok(admitted) = found.and_then(|artifact| admit(shim, &artifact, policy)) else {
            continue;
        };
        for text in admitted.warnings.iter().map(ToString::to_string) {
            if !told.contains(&text) {
                format::tell(&format!("warning: {}: {text}", shim.name_any()));
                told.push(text);
            }
        }
    }
}

fn table(rows: &[Row]) -> String {
    let named = rows.iter().any(|row| row.shim.is_some());
    let short =
        |digest: &Option<String>| digest.as_deref().unwrap_or("-").chars().take(12).collect();
    let cells = rows.iter().map(|row| {
        let what = row.error.as_ref().or(row.location.as_ref()).cloned().unwrap_or_default();
        let own = [row.node.clone(), row.platform.clone(), short(&row.sha256), what];
        let cells = row.shim.clone().filter(|_| named).into_iter().chain(own);
        cells.map(|cell| format::safe(&cell)).collect()
    });
    let header = ["SHIM", "NODE", "PLATFORM", "SHA256", "ARTIFACT"];
    format::table(if named { &header } else { &header[1..] }, cells.collect())
}
