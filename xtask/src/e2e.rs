//! `cargo xtask e2e`: tests on the real cluster, registries and peers, from nothing to nothing.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use portolan_core::Platform;

use crate::program::{AGENT, CONTROLLER, INIT, PORTOLAN, VERIFIER, build_together};
use crate::step_image::{self, Half};
use crate::testbed::process::MARK;
use crate::testbed::state::State;
use crate::testbed::{Cache, Missing, Runtime, Use, ensure, up};
use crate::{image, suite};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the cluster up; the next run finds it (`cargo xtask testbed down` ends it)
    #[arg(long)]
    keep: bool,
    /// Which containerd the node runs on
    #[arg(long, value_enum, default_value_t)]
    containerd: Runtime,
    /// Portolan's image for this platform too, whose programs then run under qemu-user, such as linux/arm64
    #[arg(long, value_name = "PLATFORM")]
    platform: Vec<Platform>,
    /// Only tests whose name contains one of these
    filter: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<()> {
    up::require_root()?;
    let cache = Cache::of_user()?;
    // A second run would find the cluster of the first, and lose it half way.
    let lock = cache.lock("e2e")?;
    let mut phases = Phases::default();
    let mut tools = phases.time("parts", || ensure(Use::E2e, Missing::Fails))?;
    args.containerd.choose(&mut tools)?;
    let programs = phases.time("build programs", || {
        // The verifier has what the library of that name is without in these.
        let [portolan, agent, controller] = build_together([PORTOLAN, AGENT, CONTROLLER], &[])?;
        Ok([
            ("PORTOLAN_BIN", portolan),
            ("PORTOLAN_AGENT_BIN", agent),
            ("PORTOLAN_VERIFIER_BIN", VERIFIER.build(&[])?),
            ("PORTOLAN_CONTROLLER_BIN", controller),
            ("PORTOLAN_INIT_BIN", INIT.build(&["--release"])?),
        ])
    })?;
    // Libraries in C are compiled for musl too.
    let platforms = platforms(&args.platform);
    let halves = phases
        .time("build image", || platforms.iter().map(Half::build).collect::<Result<Vec<_>>>())?;
    phases.time("build tests", || test_command(&["--no-run"]).and_then(succeed))?;
    // From here on there is something to take away, whatever becomes of us.
    let guard = if args.keep { None } else { Some(Guard::start(&lock)?) };
    let state = phases.time("cluster up", || up::up(&cache, &tools))?;
    let [(_, portolan), ..] = &programs;
    let step_image = phases.time("step image", || step_image::push(portolan, &halves, &state))?;
    let outcome = phases.time("tests", || {
        let mut tests = test_command(&["--no-fail-fast"])?;
        tests
            .env("PORTOLAN_TESTBED_STATE", State::file(&state.run_dir))
            .env("PORTOLAN_STEP_IMAGE", &step_image)
            .env("PORTOLAN_STEP_PLATFORMS", words(&platforms))
            .envs(programs)
            // What a test leaves running is found and ended with the cluster.
            .env(MARK, &state.run_dir);
        if !args.filter.is_empty() {
            tests.arg("--").args(&args.filter);
        }
        suite::run(&mut tests)
    })?;
    if let Some(guard) = guard {
        phases.time("cluster down", || guard.finish())?;
    }
    println!("\ncargo xtask e2e:{phases}");
    println!("{}", outcome.closing_line());
    if !outcome.green() {
        let logs = if args.keep { state.logs } else { cache.kept_logs() };
        bail!("cargo xtask e2e failed; the cluster's logs are in {}", logs.display());
    }
    Ok(())
}

/// This machine's, and each of the others once.
fn platforms(others: &[Platform]) -> Vec<Platform> {
    let mut all = vec![image::here()];
    for other in others.iter().map(Platform::normalised) {
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

fn words(platforms: &[Platform]) -> String {
    platforms.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn cargo() -> Command {
    Command::new(env!("CARGO"))
}

fn test_command(flags: &[&str]) -> Result<Command> {
    let mut command = cargo();
    command.args(["test", "--locked", "--package", "portolan-e2e"]).args(flags);
    Ok(command)
}

fn succeed(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed; see above");
    }
    Ok(())
}

/// A process of its own that takes the cluster down when we end, however we end: it waits for the
/// pipe from us to close, which the kernel does even for a killed process.
struct Guard {
    child: Child,
}

impl Guard {
    fn start(lock: &File) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        // By the kernel's name for it: a build meanwhile may have put another file in our place.
        let child = Command::new("/proc/self/exe")
            .args(["testbed", "guard"])
            .stdin(Stdio::piped())
            // It says nothing there; it holds the lock, so that the next run waits for it.
            .stdout(lock.try_clone().context("share the lock")?)
            // Ctrl-C in a terminal reaches the whole group: not this one.
            .process_group(0)
            .spawn()
            .context("start the guard")?;
        Ok(Self { child })
    }

    /// Tells it to go ahead and waits. Its standard input is closed by `wait`.
    fn finish(mut self) -> Result<()> {
        let status = self.child.wait().context("wait for the guard")?;
        if !status.success() {
            bail!("taking the cluster down failed; see above, then `cargo xtask testbed down`");
        }
        Ok(())
    }
}

impl Drop for Guard {
    /// On the way out of a failed phase; after `finish` there is nothing left to wait for.
    fn drop(&mut self) {
        let _ = self.child.wait();
    }
}

#[derive(Debug, Default)]
struct Phases(Vec<(&'static str, Duration)>);

impl Phases {
    fn time<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("== {name}");
        let started = Instant::now();
        let result = work();
        self.0.push((name, started.elapsed()));
        result
    }
}

impl std::fmt::Display for Phases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, took) in &self.0 {
            write!(f, "\n  {name:<15} {:>7.1} s", took.as_secs_f32())?;
        }
        let total: Duration = self.0.iter().map(|(_, took)| *took).sum();
        write!(f, "\n  {:<15} {:>7.1} s", "total", total.as_secs_f32())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_for_this_machine_and_for_others_once() {
        let other = Platform::new("linux", "s390x");
        let all = platforms(&[image::here(), other.clone(), other.clone()]);
        assert_eq!(all, [image::here(), other]);
        assert_eq!(words(&all), format!("{},linux/s390x", image::here()));
    }

    #[test]
    fn phases_add_up() {
        let phases = Phases(vec![("a", Duration::from_secs(1)), ("b", Duration::from_secs(2))]);
        assert!(phases.to_string().ends_with("total               3.0 s"), "{phases}");
    }
}
