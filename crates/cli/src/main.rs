//! `portolan`: the right bits to the right machine, from build to boot.
//!
//! Only a doorway: parse, call the libraries, print, turn the outcome into an exit code.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments here are help texts: [:tag] is no link"
)]

use std::process::ExitCode;

use clap::Parser as _;
use portolan_registry::serving::program::last_words;

use crate::exit::{Exit, Failure};

mod agent;
mod build;
mod buildrun;
mod cli;
mod cluster;
mod compat;
mod completions;
mod context;
mod crds;
mod doctor;
mod exit;
mod format;
mod host;
mod image;
mod install;
mod key;
mod node;
mod platform;
mod platform_class;
mod progress;
mod registry;
mod release;
mod rootdisk;
mod shim;
mod ship;
mod sign;
mod step;
mod strategy;
mod verify;
mod version;

fn main() -> ExitCode {
    // First of all: what becomes a plugin has no threads and no runtime.
    if let Some(code) = portolan_compat::external::sandbox::run_if_asked() {
        return code;
    }
    // So is what becomes a program of a host.
    if let Some(code) = portolan_shim::node::exec::run_if_asked() {
        return code;
    }
    // And the parent of a machine that was booted here.
    if let Some(code) = portolan_agent::vmm::shim::run_if_asked() {
        return code;
    }
    match run(cli::Cli::parse()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            format::tell(&last_words(&*failure.error));
            failure.exit.into()
        }
    }
}

fn run(cli: cli::Cli) -> Result<Exit, Failure> {
    context::start_logging(cli.global.verbose)?;
    cli.run()
}

#[cfg(test)]
use cli::Cli as Args;
#[cfg(test)]
#[path = "../../../xtask/tests/reference/commands.rs"]
mod reference;
