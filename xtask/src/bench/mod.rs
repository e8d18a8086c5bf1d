//! `cargo xtask bench`: ours beside the peers in one run, medians and ratios.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::program::{XTASK, released};

mod agent;
mod build;
mod commands;
mod compat;
mod crash;
mod fixture;
mod host;
mod http;
mod idle;
mod images;
mod inner;
mod limit;
mod machine;
mod maker;
mod measure;
mod nasty;
mod process;
mod registry;
mod release;
mod report;
mod rootdisk;
mod server;
mod shim;
mod ship;
mod synthetic;
mod verify;

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
    /// Image to root disk beside skopeo, umoci, mke2fs, crane and tar2ext4, and beside the limit
    Rootdisk(rootdisk::Args),
    /// The host agent with 1,000 cached disks and 10,000 instances: each call, each start, memory
    Agent,
    /// Host against image beside NFD: the whole command, its memory, evaluation alone, all facts
    Compat,
    /// The verifier beside Ratify: cold, warm, in batches, with TLS and mTLS; memory
    Verify(verify::Args),
    /// A Release of four platforms, resolved and verified
    Release,
    /// Builds: the plan alone, beside buildah and crane, and the controller in a real cluster
    Build(build::Args),
    /// Shims: 5,000 nodes on a real API server, beside a bare client and runtime-class-manager; an install on a node
    Shim(shim::Args),
    /// The whole journey of examples/hello on one machine, cold and warm; a machine of it, stage by stage
    Ship,
    /// Kills the agent over and over, anywhere, and looks at what is left
    Crash {
        /// How often, in each test
        #[arg(long, default_value_t = 5_000)]
        kills: u64,
    },
    /// Only make the images that `rootdisk` measures with; the next run finds them
    Images(rootdisk::Args),
    /// The limit itself, in a process of its own: BLOB TAR-BYTES pairs
    #[command(hide = true)]
    Limit { out: PathBuf, surviving: u64, layers: Vec<String> },
    /// The layers of the measured images, in a mount namespace of its own
    #[command(hide = true)]
    MakeLayers { dir: PathBuf, debootstrap: PathBuf },
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let report = match &args.suite {
        Suite::Registry => registry::run(args.runs)?,
        Suite::Rootdisk(images) => rootdisk::run(args.runs, images)?,
        Suite::Agent => agent::run(args.runs)?,
        Suite::Compat => compat::run(args.runs)?,
        Suite::Ship => ship::run(args.runs)?,
        Suite::Build(which) => build::run(args.runs, which)?,
        Suite::Release => release::run(args.runs)?,
        Suite::Verify(_) if cfg!(debug_assertions) => return again_as_release(),
        Suite::Shim(which) if cfg!(debug_assertions) && !which.is_a_try() => {
            return again_as_release();
        }
        Suite::Verify(which) => verify::run(args.runs, which)?,
        Suite::Shim(which) => shim::run(args.runs, which)?,
        Suite::Crash { kills } => return crash::run(*kills),
        Suite::Images(images) => return rootdisk::images(images),
        Suite::Limit { out, surviving, layers } => return limit_alone(out, *surviving, layers),
        Suite::MakeLayers { dir, debootstrap } => return maker::make(dir, debootstrap),
    };
    println!("\n{report}");
    let json = serde_json::to_string_pretty(&report)?;
    match &args.output {
        Some(path) => std::fs::write(path, json + "\n")?,
        None => println!("{json}"),
    }
    report.verdict()
}

/// Builds this very program with optimisations and lets that do it: what a client costs is part of the numbers.
fn again_as_release() -> Result<()> {
    let mut command = Command::new(released(XTASK)?);
    let status = command.args(std::env::args_os().skip(1)).status().context("start the bench")?;
    if !status.success() {
        bail!("the bench ended with {status}; see above");
    }
    Ok(())
}

fn limit_alone(out: &std::path::Path, surviving: u64, words: &[String]) -> Result<()> {
    let mut layers = Vec::new();
    for pair in words.chunks(2) {
        let [blob, size] = pair else { bail!("a blob without its size") };
        layers.push((PathBuf::from(blob), size.parse()?));
    }
    limit::run(&limit::plan(&layers, surviving), out)
}
