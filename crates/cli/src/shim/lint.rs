//! `portolan shim lint FILE…`

use std::path::PathBuf;

use portolan_api::ResourceExt as _;
use portolan_shim::lint::{self, Finding, Severity};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan shim lint shim.yaml\n  portolan shim lint shim.yaml --strict -o json\n\n\
    Exit codes: 0 nothing that cannot work, perhaps with warnings, 2 something that cannot, 4 no such file."
)]
pub(crate) struct Args {
    /// Files of Shims, or - for stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Take warnings for errors
    #[arg(long)]
    strict: bool,
    /// How to print what was found
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Linted {
    shim: String,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let shims = super::read(&args.files)?;
    let all: Vec<Linted> = shims
        .iter()
        .map(|shim| Linted { shim: shim.name_any(), findings: lint::lint(shim) })
        .collect();
    args.format.print(&all, |all| lines(all))?;
    let least = if args.strict { Severity::Warning } else { Severity::Error };
    let bad = all.iter().flat_map(|one| &one.findings).any(|found| found.severity >= least);
    Ok(if bad { Exit::Usage } else { Exit::Ok })
}

fn lines(all: &[Linted]) -> String {
    let mut text = String::new();
    for one in all {
        for found in &one.findings {
            text.push_str(&format!("{}: {found}\n", one.shim));
        }
        if one.findings.is_empty() {
            text.push_str(&format!("{}: nothing to complain about\n", one.shim));
        }
    }
    format::printable(&text)
}
