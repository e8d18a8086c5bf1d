//! The project's chores, one subcommand each: `cargo xtask --help`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "chores talk to a person")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

mod bench;
mod ci;
mod crds;
mod docs;
mod e2e;
mod fixtures;
mod fuzz;
mod image;
mod layout;
mod program;
mod schemas;
mod step_image;
mod suite;
mod test;
mod testbed;
mod tools;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's chores")]
enum Chore {
    /// Install or build the real parts that tests run against, and start or stop a cluster of them
    Testbed(testbed::Args),
    /// Tests on the real cluster, registries and peers
    E2e(e2e::Args),
    /// Unit and integration tests of the whole workspace, no cluster
    Test(test::Args),
    /// Everything that must be green: fmt, clippy, deny, docs, test, e2e
    Ci(ci::Args),
    /// Fuzz targets, each for a given time
    Fuzz(fuzz::Args),
    /// Ours beside the peers, in one run
    Bench(bench::Args),
    /// Write the checked-in images again
    Fixtures,
    /// Write the checked-in JSON Schemas and the OpenAPI document again
    Schemas,
    /// Build the image of Portolan with all its programs
    Image(image::Args),
    /// Write the checked-in custom resource definitions again, and the chart that holds them
    Crds,
    /// Write the checked-in Helm chart again
    Chart,
    /// Write the checked-in reference of commands, resources and metrics again
    Docs,
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lives in the root").to_owned()
}

fn main() -> ExitCode {
    match run(Chore::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> anyhow::Result<()> {
    match chore {
        Chore::Testbed(args) => testbed::run(args),
        Chore::E2e(args) => e2e::run(args),
        Chore::Test(args) => test::run(&args),
        Chore::Ci(args) => ci::run(&args),
        Chore::Fuzz(args) => fuzz::run(&args),
        Chore::Bench(args) => bench::run(&args),
        Chore::Fixtures => fixtures::run(),
        Chore::Schemas => schemas::run(),
        Chore::Image(args) => image::run(&args),
        Chore::Crds | Chore::Chart => crds::run(),
        Chore::Docs => docs::run(),
    }
}
