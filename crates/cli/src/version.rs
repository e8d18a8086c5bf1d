//! `portolan version`

use portolan_core::Platform;
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::format::Format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan version -o json")]
pub(crate) struct Args {
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    os: &'static str,
    architecture: String,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        os: std::env::consts::OS,
        architecture: Platform::new(std::env::consts::OS, std::env::consts::ARCH)
            .normalised()
            .architecture,
    };
    args.format
        .print(&version, |v| format!("portolan {} ({}/{})\n", v.version, v.os, v.architecture))?;
    Ok(Exit::Ok)
}
