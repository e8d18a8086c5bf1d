//! The runtime, started again: by its service manager, by a signal where something supervises it, or by a
//! person's own command. Nothing is installed, and no other service is touched.

use std::time::Duration;

use globset::Glob;

use super::exec::{Context, ExecError};
use super::preset::{Daemon, Preset, Site, daemons, running_all, running_for};
use super::root::HostRoot;

/// How long a service manager may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Why the runtime was not started again.
#[derive(Debug, thiserror::Error)]
pub enum RestartError {
    /// No service of the right name.
    #[error("no running service is called {wanted}; give --restart-command")]
    NoUnit {
        /// Which were looked for.
        wanted: String,
    },
    /// Nothing to signal, or too much.
    #[error(
        "{count} containerd processes of this node's configuration run, not one; give --restart-command"
    )]
    Processes {
        /// How many.
        count: usize,
    },
    /// It runs, and nothing of the host can be run from here.
    #[error(
        "the runtime runs, and this host's programs cannot be run from here; run privileged with hostPID, or give --restart-command or --no-restart"
    )]
    Unreachable,
    /// It cannot be signalled from here.
    #[error(
        "process {pid} of the host cannot be signalled from here; run with the host's process numbers (hostPID)"
    )]
    OtherNumbers {
        /// The process.
        pid: u32,
    },
    /// The signal did not go out.
    #[error("process {pid} cannot be signalled")]
    Signal {
        /// The process.
        pid: u32,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The program that does it.
    #[error("the runtime was not started again")]
    Exec(#[from] ExecError),
}

/// Who starts services on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// systemd.
    Systemd,
    /// OpenRC.
    OpenRc,
    /// s6, in a container's usual layout.
    S6,
    /// Nobody that is known; something may supervise the process all the same.
    Other,
}

/// Who starts services here.
#[must_use]
pub fn init(root: &HostRoot) -> Init {
    match () {
        () if root.has("/run/systemd/system") => Init::Systemd,
        () if root.has("/run/openrc") => Init::OpenRc,
        () if root.has("/run/service/containerd") => Init::S6,
        () => Init::Other,
    }
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// A person's own command line.
    Command(String),
    /// A unit of systemd.
    Unit(String),
    /// OpenRC's service.
    OpenRc,
    /// s6's service.
    S6,
    /// The one process that reads this configuration is asked to end; its supervisor starts it again.
    Signal,
    /// There is nothing to start: a tree of files.
    Nothing,
}

/// How the runtime of a site is started again. Decided before its configuration changes: one that did not
/// survive the change is found by nobody.
///
/// # Errors
/// See [`RestartError`].
pub fn choose(
    root: &HostRoot,
    context: &Context,
    site: &Site,
    command: Option<&str>,
) -> Result<Method, RestartError> {
    let preset = site.preset;
    if let Some(line) = command {
        return Ok(Method::Command(line.to_owned()));
    }
    if !context.is_host() {
        return Ok(Method::Nothing);
    }
    let running = daemons(root.dir());
    match init(root) {
        Init::Systemd => {
            let listed = units(context)?;
            let own = running_for(&running, preset, &site.config);
            let cgroup = own.and_then(|daemon| unit_of(root, daemon.pid));
            let unit = choose_unit(preset.units, cgroup.as_deref(), &listed.running)
                .or_else(|| choose_unit(preset.units, None, &listed.troubled));
            let wanted = || preset.units.join(" or ");
            unit.map(Method::Unit).ok_or_else(|| RestartError::NoUnit { wanted: wanted() })
        }
        Init::OpenRc => Ok(Method::OpenRc),
        Init::S6 => Ok(Method::S6),
        Init::Other => choose_process(preset, &site.config, &running).map(|_| Method::Signal),
    }
}

/// The one process to signal. None or several are an error: the wrong one would be somebody else's.
///
/// # Errors
/// [`RestartError::Processes`].
pub fn choose_process(
    preset: &Preset,
    config: &str,
    running: &[Daemon],
) -> Result<u32, RestartError> {
    match running_all(running, preset, config).as_slice() {
        [one] => Ok(one.pid),
        others => Err(RestartError::Processes { count: others.len() }),
    }
}

/// The service to start again: the one that the daemon runs in, if it is of this kind of node, else the
/// first wanted one that runs. Names are matched as a whole.
#[must_use]
pub fn choose_unit(wanted: &[&str], cgroup: Option<&str>, running: &[String]) -> Option<String> {
    let matches = |pattern: &str, unit: &str| {
        Glob::new(pattern).is_ok_and(|glob| {
            glob.compile_matcher().is_match(unit)
                && pattern.matches('.').count() == unit.matches('.').count()
        })
    };
    let fits = |unit: &&str| wanted.iter().any(|pattern| matches(pattern, unit));
    if let Some(unit) = cgroup.filter(fits) {
        return Some(unit.to_owned());
    }
    let mut sorted: Vec<_> = running.iter().collect();
    sorted.sort_unstable();
    wanted
        .iter()
        .find_map(|pattern| sorted.iter().find(|unit| matches(pattern, unit)).map(|u| (*u).clone()))
}

/// The service that a process belongs to.
fn unit_of(root: &HostRoot, pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(root.dir().join(format!("proc/{pid}/cgroup"))).ok()?;
    let part =
        |line: &str| line.rsplit('/').find(|part| part.ends_with(".service")).map(str::to_owned);
    text.lines().find_map(part)
}

/// Services that are meant to run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Units {
    running: Vec<String>,
    /// Failed, or about to start or to end.
    troubled: Vec<String>,
}

/// Asked as `list-units`: `is-system-running` says no where one other service failed.
fn units(context: &Context) -> Result<Units, ExecError> {
    let args = ["list-units", "--type=service", "--all", "--plain", "--no-legend", "--no-pager"];
    Ok(read_units(&context.run("systemctl", &args, LIMIT)?))
}

/// Lines of name, load, state and more. One that others only mention is not loaded, and one that somebody
/// stopped is inactive: neither is ours to start.
fn read_units(said: &str) -> Units {
    let mut units = Units::default();
    for line in said.lines() {
        // Some versions put a dot before a failed one.
        let mut words = line.split_whitespace().skip_while(|word| matches!(*word, "●" | "*"));
        let (name, load, state) = (words.next(), words.next(), words.next());
        let Some((name, "loaded")) = name.zip(load) else { continue };
        match state {
            Some("active" | "reloading") => units.running.push(name.to_owned()),
            Some("failed" | "activating" | "deactivating") => units.troubled.push(name.to_owned()),
            _ => {}
        }
    }
    units
}

/// Does it. `back`: the configuration from before is back, and the runtime may be down.
///
/// # Errors
/// See [`RestartError`].
pub fn act(
    root: &HostRoot,
    context: &Context,
    site: &Site,
    method: &Method,
    back: bool,
) -> Result<(), RestartError> {
    match method {
        Method::Nothing => {}
        Method::Command(line) => {
            context.shell(line, LIMIT)?;
        }
        Method::Unit(unit) => {
            // One that failed too often in too short a time is not started otherwise.
            if back && let Err(error) = context.run("systemctl", &["reset-failed", unit], LIMIT) {
                tracing::warn!(%error, unit, "its failures are not forgotten");
            }
            context.run("systemctl", &["restart", unit], LIMIT)?;
        }
        Method::OpenRc => {
            context.run("rc-service", &["containerd", "restart"], LIMIT)?;
        }
        Method::S6 => {
            context.run("s6-svc", &["-r", "/run/service/containerd"], LIMIT)?;
        }
        Method::Signal => {
            match choose_process(site.preset, &site.config, &daemons(root.dir())) {
                Ok(pid) => signal(root, pid)?,
                // It is down: whoever supervises it starts it.
                Err(RestartError::Processes { count: 0 }) if back => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// TERM, which containerd ends cleanly on. It has no signal that makes it read its configuration.
fn signal(root: &HostRoot, pid: u32) -> Result<(), RestartError> {
    let link = |path: std::path::PathBuf| std::fs::read_link(path).ok();
    let theirs = link(root.dir().join("proc/1/ns/pid"));
    if theirs.is_none() || theirs != link("/proc/self/ns/pid".into()) {
        return Err(RestartError::OtherNumbers { pid });
    }
    let raw = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let sent = raw.map(|raw| rustix::process::kill_process(raw, rustix::process::Signal::TERM));
    match sent {
        Some(Ok(())) => Ok(()),
        Some(Err(errno)) => Err(RestartError::Signal { pid, source: errno.into() }),
        None => Err(RestartError::OtherNumbers { pid }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::preset::named;

    /// N15: any unit with `k3s.service` in it was taken, whichever was listed first.
    #[test]
    fn n15_units_are_chosen_by_their_whole_name() {
        let k3s = named("k3s").unwrap().units;
        let units = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let listed =
            units(&["backup-k3s.service", "k3s.service.d", "k3s-edge.service", "k3s.service"]);
        assert_eq!(choose_unit(k3s, None, &listed).as_deref(), Some("k3s.service"));
        assert_eq!(
            choose_unit(k3s, Some("k3s-edge.service"), &listed).as_deref(),
            Some("k3s-edge.service")
        );
        assert_eq!(
            choose_unit(k3s, Some("docker.service"), &listed).as_deref(),
            Some("k3s.service")
        );
        assert_eq!(
            choose_unit(k3s, None, &units(&["backup-k3s.service", "k3s-x.y.service"])),
            None
        );
        let usual = named("kubeadm").unwrap().units;
        assert_eq!(choose_unit(usual, None, &units(&["not-containerd.service"])), None);
    }

    /// The runtime that did not survive a change is the one that has to be started again.
    #[test]
    fn a_failed_service_is_found_and_a_stopped_one_is_not() {
        let said = "k3s.service loaded inactive dead Kubernetes\n\
            ● containerd.service loaded failed failed x\n\
            a.service loaded active running y\n\
            b.service loaded activating auto-restart z\n\
            c.service not-found inactive dead c.service\n";
        let listed = read_units(said);
        assert_eq!(listed.running, ["a.service"]);
        assert_eq!(listed.troubled, ["containerd.service", "b.service"]);
    }

    #[test]
    fn one_process_is_signalled_and_never_a_guess() {
        let daemon = |pid, config: Option<&str>| Daemon {
            pid,
            config: config.map(str::to_owned),
            address: None,
            program: None,
            started: None,
            ticks: None,
        };
        let (usual, config) = (named("default").unwrap(), "/etc/containerd/config.toml");
        let choose = |running: &[Daemon]| choose_process(usual, config, running);
        assert!(matches!(choose(&[]), Err(RestartError::Processes { count: 0 })));
        assert_eq!(choose(&[daemon(7, None)]).unwrap(), 7);
        let two = [daemon(7, None), daemon(8, Some(config))];
        assert!(matches!(choose(&two), Err(RestartError::Processes { count: 2 })));
        let other = [daemon(7, None), daemon(8, Some("/var/lib/rancher/k3s/x.toml"))];
        assert_eq!(choose(&other).unwrap(), 7);
        let k3s = named("k3s").unwrap();
        assert_eq!(choose_process(k3s, k3s.config, &other).unwrap(), 8);
    }
}
