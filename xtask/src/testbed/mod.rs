//! `cargo xtask testbed`: the real parts that tests run against, and a cluster made of them.
//!
//! - [`parts`]: the table: what, which version, how, for whom; a new part is a new row
//! - [`build`]: finds ([`find`]), installs ([`apt`]) or makes ([`go`], [`image`], [`gathered`], [`kernel`]) each into the [`cache`]
//! - [`up`]: starts [`daemons`] and [`containerd`] with [`config`] and [`credentials`] on [`net`], then [`tekton`] and [`gatekeeper`]
//! - [`down`]: takes all of it away; [`state`] and the marks of each [`process`] say what that is

use std::io::Read as _;

use anyhow::{Context as _, Result, bail};

mod apt;
mod binfmt;
pub(crate) mod build;
pub(crate) mod cache;
pub(crate) mod command;
mod config;
mod containerd;
mod credentials;
mod daemons;
pub(crate) mod down;
mod find;
mod gatekeeper;
mod gathered;
mod go;
pub(crate) mod image;
mod kernel;
mod net;
pub(crate) mod parts;
pub(crate) mod process;
#[cfg(test)]
mod sample;
pub(crate) mod state;
mod tekton;
pub(crate) mod up;

use crate::program::PORTOLAN;
use crate::step_image::{self, Half};

pub(crate) use build::{Missing, ensure};
pub(crate) use cache::Cache;
pub(crate) use containerd::Runtime;
pub(crate) use parts::Use;
use parts::{PARTS, Part};
use state::State;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Find, install or build parts; without arguments, lists them
    Build {
        /// Names from the list
        parts: Vec<String>,
        /// Every part
        #[arg(long, conflicts_with = "parts")]
        all: bool,
        /// The parts that one chore needs
        #[arg(long = "for", value_name = "CHORE", conflicts_with_all = ["parts", "all"])]
        chore: Option<Use>,
    },
    /// Start the cluster (needs root)
    Up {
        /// Which containerd the node runs on
        #[arg(long, value_enum, default_value_t)]
        containerd: Runtime,
    },
    /// Stop it and take everything away that it made
    Down,
    /// Say what runs
    Status,
    /// Build the image of steps from this source, push it to the cluster that is up, print its name
    StepImage,
    /// Print shell assignments: eval "$(cargo xtask testbed env)"
    Env,
    /// Wait until standard input closes, then `down`: how e2e cleans up even when it is killed
    #[command(hide = true)]
    Guard,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let cache = Cache::of_user()?;
    match args.command {
        Command::Build { parts, all, chore } => build_command(&parts, all, chore),
        Command::Up { containerd } => {
            let mut tools = ensure(Use::E2e, Missing::Fails)?;
            containerd.choose(&mut tools)?;
            let state = up::up(&cache, &tools)?;
            println!("\n{}", environment(&state));
            Ok(())
        }
        Command::Down => {
            down::down(&cache)?;
            println!("testbed: down");
            Ok(())
        }
        Command::Status => status(&cache),
        Command::StepImage => {
            let state = running(&cache)?;
            let portolan = PORTOLAN.build(&[])?;
            let own = Half::build(&crate::image::here())?;
            println!("{}", step_image::push(&portolan, &[own], &state)?);
            Ok(())
        }
        Command::Env => {
            println!("{}", environment(&running(&cache)?));
            Ok(())
        }
        Command::Guard => guard(&cache),
    }
}

/// The environment variable by which a test without a cluster learns where a part is.
pub(crate) fn variable(part: &str) -> String {
    format!("PORTOLAN_PART_{}", part.to_uppercase().replace('-', "_"))
}

fn build_command(names: &[String], all: bool, chore: Option<Use>) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| parts::part(name).is_none()) {
        bail!("no part is called {unknown}; `cargo xtask testbed build` lists them");
    }
    let wanted = |part: &Part| match chore {
        Some(chore) => part.uses.contains(&chore),
        None => all || names.iter().any(|name| name == part.name),
    };
    let rows = parts::closure(wanted);
    if rows.is_empty() {
        for part in PARTS {
            println!("{:<32} {:<10} {:?}", part.name, part.version, part.uses);
        }
        return Ok(());
    }
    for (name, path) in build::ensure_parts(&rows, Missing::Fails)? {
        println!("{name:<32} {}", path.display());
    }
    Ok(())
}

fn running(cache: &Cache) -> Result<State> {
    let state = State::load(&cache.run_dir())?.filter(State::is_running);
    state.context("the testbed is not up: `cargo xtask testbed up`")
}

fn status(cache: &Cache) -> Result<()> {
    let Some(state) = State::load(&cache.run_dir())? else {
        println!("testbed: down");
        return Ok(());
    };
    println!(
        "testbed: {}",
        if state.is_running() { "up" } else { "not whole: run `up` or `down`" }
    );
    for process in &state.processes {
        let word = if process.identity.is_alive() { "runs" } else { "HAS ENDED" };
        println!("  {:<26} pid {:<8} {word}", process.name, process.identity.pid);
    }
    println!("  logs in {}\n\n{}", state.logs.display(), environment(&state));
    Ok(())
}

/// What a shell needs to look around.
fn environment(state: &State) -> String {
    let file = State::file(&state.run_dir);
    format!(
        "export KUBECONFIG='{}'\nexport PORTOLAN_TESTBED_STATE='{}'\n\
         export PORTOLAN_TESTBED_REGISTRY='{}'  # for pods: {}\n\
         export CONTAINERD_ADDRESS='{}'",
        state.kubeconfig.display(),
        file.display(),
        state.registry.loopback,
        state.registry.cluster,
        state.containerd_socket.display(),
    )
}

fn guard(cache: &Cache) -> Result<()> {
    // An error is as good an end as any.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    down::down(cache)
}
