//! `portolan-init`: what a microVM runs first, as process 1 of an initramfs.
//!
//! It mounts the root disk read-only, lays the scratch disk over it, becomes that tree and runs the
//! image's program there. It says what it does in lines that the agent reads from the console
//! ([`console`]), and it always ends by switching the machine off: nobody is there to log in.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | what the agent wrote into the initramfs |
//! | `user`, `program`, `signal` | decisions: who runs, what is executed, how it is asked to stop |
//! | `superblock` | which disk is which |
//! | `modules`, `mounts`, `loopback`, `power` | what is asked of the kernel |
//! | `workload` | start, signals, reaping |
//! | `console` | the lines the agent reads |

mod config;
mod console;
mod loopback;
mod modules;
mod mounts;
mod power;
mod program;
mod signal;
mod step;
mod superblock;
mod user;
mod workload;

use config::{Config, End};
use console::Console;
use step::{Failed, Step as _};

/// Where the agent puts what this instance needs.
const CONFIG: &str = "/portolan/config.json";

fn main() {
    if !rustix::process::getpid().is_init() {
        Console::new("").failed(&Failed::new(
            "be process 1",
            "portolan-init is started by a guest's kernel and does nothing elsewhere",
        ));
        return;
    }
    let (end, outcome) = start();
    if let Err((console, failed)) = outcome {
        console.failed(&failed);
    }
    power::off(end);
}

/// Everything from an empty machine to the workload's end. The way to switch off is known once the
/// configuration was read; before that, switching the power off is the best guess.
fn start() -> (End, Result<(), (Console, Failed)>) {
    let config = match mounts::first().and_then(|()| Config::read(CONFIG.as_ref())) {
        Ok(config) => config,
        Err(failed) => return (End::PowerOff, Err((Console::new(""), failed))),
    };
    let console = Console::new(&config.token);
    (config.end, run(&config, &console).map_err(|failed| (console, failed)))
}

fn run(config: &Config, console: &Console) -> Result<(), Failed> {
    modules::load(&config.modules)?;
    if config.probe {
        console.say("this machine boots");
        return Ok(());
    }
    let disks = mounts::find_disks(config)?;
    mounts::compose(&disks)?;
    // What the initramfs held is of no use any more and takes the workload's memory; the
    // configuration also holds its environment, which may be secret.
    for used in ["/portolan", "/modules"] {
        std::fs::remove_dir_all(used).or_else(mounts::missing_is_fine).step("free", used)?;
    }
    mounts::enter()?;
    mounts::furnish(&config.hostname)?;
    if let Err(failed) = loopback::up() {
        // A kernel without networking still runs workloads that do not need it.
        console.say(&failed.to_string());
    }
    workload::run(config, console)
}
