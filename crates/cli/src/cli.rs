//! The command line: every command, and the flags all of them share.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::exit::{Exit, Failure};
use crate::{agent, build, buildrun, compat, completions, context, crds, doctor, host, install};
use crate::{
    image, key, node, platform, platform_class, progress, registry, release, rootdisk, sign, step,
};
use crate::{shim, ship, strategy, verify, version};

const EXIT_CODES: &str = "\
Exit codes:
  0  ok
  1  the answer is no (no platform match, …)
  2  usage or bad input
  3  cannot tell
  4  not found (image, tag, file)
  5  transport, server or disk trouble
  6  the image has no compatibility artifact, or no policy speaks of it
  130  interrupted";

/// The right bits to the right machine, from build to boot
#[derive(Debug, Parser)]
#[command(name = "portolan", version, propagate_version = true, after_help = EXIT_CODES)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags that every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Say more: -v what is done, -vv every request
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// How to show progress: bars on a terminal and lines elsewhere
    #[arg(long, global = true, value_enum, default_value_t = progress::Mode::Auto)]
    pub(crate) progress: progress::Mode,
    /// Registry settings: mirrors, certificates, plain HTTP, deadlines
    #[arg(long, global = true, value_name = "FILE", env = "PORTOLAN_REGISTRIES")]
    pub(crate) registries: Option<PathBuf>,
}

// Of all commands, only the flags of the one that runs are put together: `defer`, also below.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
#[allow(clippy::large_enum_variant, reason = "one per run")]
enum Command {
    /// The whole journey on one machine, from a directory to a root disk that boots
    Ship(ship::Args),
    /// Look at and move images
    #[command(subcommand)]
    Image(image::Command),
    /// The embedded registry, and credentials for others
    #[command(subcommand)]
    Registry(registry::Command),
    /// Build images for many platforms
    #[command(subcommand)]
    Build(build::Command),
    /// Single runs of Builds in a cluster
    #[command(subcommand)]
    Buildrun(buildrun::Command),
    /// Strategies: how a cluster builds images
    #[command(subcommand)]
    Strategy(strategy::Command),
    /// Image platforms: how a cluster builds for a platform
    #[command(subcommand)]
    Platform(platform::Command),
    /// Image platform classes: sets of ways to build
    #[command(subcommand)]
    PlatformClass(platform_class::Command),
    /// Talk to the portolan-agent of this machine
    #[command(subcommand)]
    Agent(agent::Command),
    /// Does a host meet what an image needs?
    #[command(subcommand)]
    Compat(compat::Command),
    /// Disks that microVMs boot from
    #[command(subcommand)]
    Rootdisk(rootdisk::Command),
    /// Is an image what its makers signed, the index and what would run of it?
    #[command(subcommand)]
    Verify(verify::Command),
    /// Sign an image, and every image in it
    Sign(sign::Args),
    /// Keys that sign images
    #[command(subcommand)]
    Key(key::Command),
    /// Look at this machine
    #[command(subcommand)]
    Host(host::Command),
    /// Runtime binaries on one node: what the Jobs of a Shim run
    #[command(subcommand)]
    Node(node::Command),
    /// Runtime binaries for the nodes of a cluster
    #[command(subcommand)]
    Shim(shim::Command),
    /// Images that were resolved and verified once, and what runs of them
    #[command(subcommand)]
    Release(release::Command),
    /// What the pods of a build run
    #[command(subcommand)]
    Step(step::Command),
    /// Print what a cluster needs to run Portolan, for kubectl apply
    Install(install::Args),
    /// Print what an installation put into a cluster, for kubectl delete
    Uninstall(install::uninstall::Args),
    /// Say what is missing or wrong on this machine and in this cluster, and what to do
    Doctor(doctor::Args),
    /// Print the custom resource definitions of Portolan
    Crds(crds::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Say which version this is and what it was built for
    Version(version::Args),
}

impl Cli {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let global = &self.global;
        match self.command {
            Command::Ship(args) => ship::run(&args, global),
            Command::Image(command) if command.is_brief() => {
                context::wait(image::run(command, global))
            }
            Command::Image(command) => context::work(image::run(command, global)),
            Command::Registry(command) => context::work(registry::run(command, global)),
            Command::Build(command) => build::run(command, global),
            Command::Buildrun(command) => buildrun::run(command, global),
            Command::Strategy(command) => strategy::run(command),
            Command::Platform(command) => platform::run(command),
            Command::PlatformClass(command) => platform_class::run(command),
            Command::Node(command) => node::run(command),
            Command::Shim(command) => shim::run(command),
            Command::Release(command) => release::run(command, global),
            Command::Step(command) => step::run(command, global),
            Command::Agent(command) => context::work(agent::run(command)),
            Command::Compat(command) => compat::run(command, global),
            Command::Rootdisk(command) => context::work(rootdisk::run(command, global)),
            Command::Verify(command) => verify::run(command, global),
            Command::Sign(args) => context::wait(sign::run(args, global)),
            Command::Key(command) => key::run(command),
            Command::Host(command) => host::run(&command),
            Command::Install(args) => install::run(&args),
            Command::Uninstall(args) => install::uninstall::run(&args),
            Command::Doctor(args) => context::wait(doctor::run(args, global)),
            Command::Crds(args) => crds::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Version(args) => version::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Every command that does something, with the words before it.
    fn leaves(command: &clap::Command, path: &str, out: &mut Vec<(String, String)>) {
        let path = format!("{path} {}", command.get_name());
        if command.has_subcommands() {
            let own = command.get_subcommands().filter(|inner| inner.get_name() != "help");
            own.for_each(|inner| leaves(inner, &path, out));
        } else {
            let help = command.get_after_help().map(ToString::to_string);
            out.push((path, help.unwrap_or_default()));
        }
    }

    #[test]
    fn every_command_shows_an_example() {
        let mut commands = Vec::new();
        let mut all = Cli::command();
        all.build();
        leaves(&all, "", &mut commands);
        assert!(commands.len() > 10, "{commands:?}");
        for (path, help) in commands {
            assert!(help.contains("Example"), "{path}: {help:?}");
        }
    }

    /// What a command's flags are made of may have words of its own, and they come later.
    #[test]
    fn every_command_is_told_in_its_own_words() {
        fn told(command: &clap::Command, out: &mut Vec<(String, String)>) {
            for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
                let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
                out.push((inner.get_name().to_owned(), about));
                told(inner, out);
            }
        }
        let (mut listed, mut shown) = (Vec::new(), Vec::new());
        let mut all = Cli::command();
        told(&all, &mut listed);
        all.build();
        told(&all, &mut shown);
        assert_eq!(listed, shown);
    }

    #[test]
    fn the_flags_contradict_nothing() {
        Cli::command().debug_assert();
    }
}
