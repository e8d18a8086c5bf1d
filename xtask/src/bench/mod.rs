//! `cargo xtask bench`: ours beside the peers in one run, medians and ratios.

use std::path::PathBuf;

use anyhow::Result;

mod fixture;
mod http;
mod measure;
mod registry;
mod report;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    suite: Suite,
    /// How often each row is measured
    #[arg(long, default_value_t = 5, global = true)]
    runs: usize,
    /// Also write the numbers as JSON
    #[arg(long, value_name = "FILE", global = true)]
    output: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Suite {
    /// Registry to layout beside crane and skopeo; the embedded server beside docker-registry
    Registry,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let report = match args.suite {
        Suite::Registry => registry::run(args.runs)?,
    };
    println!("\n{report}");
    let json = serde_json::to_string_pretty(&report)?;
    match &args.output {
        Some(path) => std::fs::write(path, json + "\n")?,
        None => println!("{json}"),
    }
    report.verdict()
}
