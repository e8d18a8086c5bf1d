//! `portolan compat show FILE` and `portolan compat show IMAGE`

use std::path::Path;

use portolan_compat::artifact::Kind;
use portolan_compat::document::{Mode, read};
use portolan_compat::nfd;
use portolan_compat::report::{Graph, outline};
use portolan_compat::requirements::Requirements;
use portolan_core::Reference;

use super::hosts::Machine;
use super::images::{ArtifactArgs, Looked};
use super::read_spec;
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan compat show needs.json\n  \
    portolan compat show needs.json --graph svg > needs.svg\n  \
    portolan compat show 127.0.0.1:5000/app:1 --platform linux/amd64/v3 --raw")]
pub(crate) struct Args {
    /// A compatibility spec or rules of NFD; or, where there is no such file, an image
    #[arg(value_name = "FILE|IMAGE")]
    what: String,
    #[command(flatten)]
    artifact: ArtifactArgs,
    /// Draw the graph instead of a tree of text
    #[arg(long, value_enum)]
    graph: Option<Drawing>,
    /// Print what was attached, byte for byte
    #[arg(long, conflicts_with = "graph")]
    raw: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Drawing {
    /// A picture
    Svg,
    /// For Graphviz
    Dot,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<Exit, Failure> {
    let file = Path::new(&args.what);
    let (bytes, kind) = if file.exists() {
        let bytes = read_spec(file)?;
        let kind = if nfd::looks_like_rules(&bytes) { Kind::Nfd } else { Kind::Spec };
        (bytes, kind)
    } else if names_a_file(&args.what) {
        let error = anyhow::anyhow!("there is no file {}", args.what);
        return Err(Failure::new(Exit::NotFound, error));
    } else {
        context::wait(attached(args, global))?
    };
    if args.raw {
        format::write_raw(&bytes)?;
        return Ok(Exit::Ok);
    }
    if kind == Kind::Nfd {
        if args.graph.is_some() {
            let error = anyhow::anyhow!("rules of NFD are no graph; leave --graph out");
            return Err(Failure::usage(error));
        }
        let read = Requirements::read(kind, &bytes).map_err(Failure::usage)?;
        for warning in read.warnings {
            format::tell(&format!("{}: warning: {warning}", args.what));
        }
        // They are a list, and as readable as it gets.
        format::write(&format::printable(&String::from_utf8_lossy(&bytes)))?;
        return Ok(Exit::Ok);
    }
    let found = read(&bytes, Mode::Lenient);
    for one in &found.diagnostics {
        format::tell(&format!("{}:{one}", args.what));
    }
    let Some(spec) = found.spec else {
        let error = anyhow::anyhow!("{} is not a valid compatibility spec", args.what);
        return Err(Failure::usage(error));
    };
    format::write(&match args.graph {
        None => outline(&spec),
        Some(Drawing::Svg) => Graph::of_spec(&spec).svg(),
        Some(Drawing::Dot) => Graph::of_spec(&spec).dot(),
    })?;
    Ok(Exit::Ok)
}

/// Whether somebody who writes this means a file, and no image: images of such names have a tag.
fn names_a_file(what: &str) -> bool {
    let is_path = ["/", "./", "../"].iter().any(|start| what.starts_with(start));
    let ends = [".json", ".yaml", ".yml"].iter().any(|end| what.ends_with(end));
    is_path || (ends && !what.contains([':', '@']))
}

/// What an image's artifact holds, said on stderr so that what is printed is the spec alone.
async fn attached(args: &Args, global: &Global) -> Result<(Vec<u8>, Kind), Failure> {
    let reference: Reference = args.what.parse().map_err(|error| {
        let error = anyhow::Error::new(error);
        Failure::new(Exit::NotFound, error.context(format!("there is no file {}", args.what)))
    })?;
    let mut looked = Looked::up(&reference, &args.artifact, &context::client(global)?).await?;
    let host = args.artifact.named().map_or_else(|| Machine::of(None).platform(), Ok)?;
    let selection = looked.select(&host)?;
    let needs = looked.needs(selection.chosen.digest).await?;
    let platform = selection.platform.map(|platform| platform.to_string()).unwrap_or_default();
    format::tell(&format!("{} of {} {platform}", needs.found.digest, needs.found.contents.subject));
    for plugin in &needs.found.contents.plugins {
        let platform = plugin.platform.as_ref().map(ToString::to_string).unwrap_or_default();
        format::tell(&format!("with plugin {} {platform} {}", plugin.name, plugin.layer.digest));
    }
    Ok((needs.found.spec.to_vec(), needs.found.contents.kind))
}
