//! `portolan ship DIR`: the whole journey on one machine.
//!
//! `plan` decides which stages there are, `journey` carries them out one after the other, and each
//! calls what the command of its own calls. What is made is kept where `site` says.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use portolan_agent::config::ConfigError;
use portolan_core::{Platform, RegistryReference};

use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::Format;
use crate::{agent, build, image};

mod boot;
mod console;
mod disk;
mod harbour;
mod journey;
mod log;
mod plan;
mod report;
mod signer;
mod site;
mod stages;

/// What an image for everybody is for.
const PLATFORMS: [&str; 2] = ["linux/amd64", "linux/arm64"];

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan ship examples/hello\n  \
    portolan ship examples/hello --boot\n  \
    portolan ship . --platform linux/arm64 --to registry.example/team/app:1 --key release.key -o json\n\n\
    Builds DIR for each platform, pushes source, images and index, signs them, attaches \
    compatibility.json where DIR has one, verifies index and images, checks this host, resolves the image \
    for it and puts its root disk into the agent's cache. What would come out the same is not made again.\n\
    Needs no root and nothing that runs: see docs/ship.md.")]
pub(crate) struct Args {
    /// The directory with the Containerfile
    dir: PathBuf,
    /// For this platform (repeatable); linux/amd64 and linux/arm64 where nothing is said
    #[arg(long = "platform", value_name = "PLATFORM", value_parser = image::wanted::platform)]
    platforms: Vec<Platform>,
    /// The Containerfile, if it is called otherwise or is elsewhere
    #[arg(long, visible_alias = "containerfile", value_name = "FILE")]
    dockerfile: Option<PathBuf>,
    /// Push here instead of to the embedded registry: registry/repository[:tag]
    #[arg(long, value_name = "REF")]
    to: Option<RegistryReference>,
    /// Sign with this key instead of the development key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Where everything is kept; where the agent keeps its own, when not given
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Where the embedded registry listens meanwhile; 127.0.0.1:5000, or a free port where that is taken
    #[arg(long, value_name = "ADDRESS", conflicts_with = "to")]
    listen: Option<SocketAddr>,
    /// The configuration of the agent, for its root, its socket, its kernel and its VMM
    #[arg(long, value_name = "FILE")]
    agent_config: Option<PathBuf>,
    #[command(flatten)]
    agent: agent::Agent,
    #[command(flatten)]
    boot: boot::BootArgs,
    /// How to print what came of it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl Args {
    /// Each once, in its usual spelling.
    fn platforms(&self) -> Result<Vec<Platform>, Failure> {
        match self.platforms.is_empty() {
            true => Ok(PLATFORMS.iter().filter_map(|name| name.parse().ok()).collect()),
            false => {
                self.platforms.iter().for_each(image::wanted::warn);
                build::local::platforms(&self.platforms)
            }
        }
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<Exit, Failure> {
    let ended = context::work(journey::run(args, global));
    if let Err(Failure { exit: Exit::Interrupted, .. }) = ended {
        build::local::tidy_up();
    }
    ended
}

/// Somebody asked to stop.
fn interrupted() -> Failure {
    let error = anyhow::anyhow!("interrupted; nothing is lost: run the same again, and it goes on");
    Failure::new(Exit::Interrupted, error)
}

fn config_failure(error: ConfigError) -> Failure {
    match error {
        ConfigError::Missing { .. } => Failure::new(Exit::NotFound, error),
        _ => Failure::usage(error),
    }
}

/// What a directory is called, as registries call it.
fn repository_of(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let parts: Vec<&str> = name.split(|c| !plain(c)).filter(|part| !part.is_empty()).collect();
    match parts.is_empty() {
        true => "app".to_owned(),
        false => parts.join("-").chars().take(100).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_s_name_makes_a_repository() {
        for (dir, name) in [
            ("examples/hello", "hello"),
            ("/srv/My App_2", "my-app-2"),
            ("/", "app"),
            ("é", "app"),
            ("..x__y", "x-y"),
        ] {
            let repository = repository_of(Path::new(dir));
            assert_eq!(repository, name);
            assert!(format!("127.0.0.1:1/{name}:latest").parse::<RegistryReference>().is_ok());
        }
        let long = repository_of(Path::new(&"x".repeat(1000)));
        assert!(format!("127.0.0.1:1/{long}").parse::<RegistryReference>().is_ok());
    }
}
