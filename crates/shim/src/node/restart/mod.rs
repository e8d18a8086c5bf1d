//! The runtime, started again: by its service manager, by a signal where something supervises it, or by a
//! person's own command. Nothing is installed, and no other service is touched.

use std::time::Duration;

use globset::Glob;

use super::exec::{Context, ExecError};
use super::namespace;
use super::preset::{Daemon, Preset, Site, daemons, running_all, running_for};
use super::root::HostRoot;

/// How long a service manager may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Why the runtime was not started again.
#[derive(Debug, thiserror::Error)]
pub enum RestartError {
    /// No service of the right name.
    #[error("no service is known to run it: it should be {wanted}; give --restart-command")]
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
    /// Who knows the services does not say which they are.
    #[error(
        "the service manager cannot be asked which service runs it; if it stays so, give --restart-command"
    )]
    Unasked(#[source] ExecError),
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
pub fn init(root: &HostRoot, preset: &Preset) -> Init {
    let supervised = || services(preset).any(|name| root.has(&format!("{S6_SERVICES}/{name}")));
    match () {
        () if root.has("/run/systemd/system") => Init::Systemd,
        () if root.has("/run/openrc") => Init::OpenRc,
        () if supervised() => Init::S6,
        () => Init::Other,
    }
}

/// Where s6 has what it supervises, in a container's usual layout.
const S6_SERVICES: &str = "/run/service";

/// The services of a kind of node where they are not systemd's.
fn services(preset: &Preset) -> impl Iterator<Item = &'static str> {
    let plain = |unit: &&'static str| unit.strip_suffix(".service").filter(|n| !n.contains('*'));
    preset.units.iter().filter_map(plain)
}

/// The first of them that one of these directories has: those that run before those that could.
fn choose_service(root: &HostRoot, preset: &Preset, dirs: &[&str]) -> Result<String, RestartError> {
    let in_dir = |dir: &&str| services(preset).find(|name| root.has(&format!("{dir}/{name}")));
    let found = dirs.iter().find_map(in_dir);
    let wanted = || services(preset).collect::<Vec<_>>().join(" or ");
    found.map(str::to_owned).ok_or_else(|| RestartError::NoUnit { wanted: wanted() })
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// A person's own command line.
    Command(String),
    /// A unit of systemd.
    Unit(String),
    /// A service of OpenRC.
    OpenRc(String),
    /// A service of s6.
    S6(String),
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
    match init(root, preset) {
        Init::Systemd => {
            let listed = units(context).map_err(RestartError::Unasked)?;
            let own = running_for(&running, preset, &site.config);
            let cgroup = own.and_then(|daemon| Some((unit_of(root, daemon.pid)?, daemon.pid)));
            let own = cgroup
                .map(|(name, pid)| Own { is_main: main_pid(context, &name) == Some(pid), name });
            let unit = choose_unit(preset.units, own.as_ref(), &listed.running)
                .or_else(|| choose_unit(preset.units, own.as_ref(), &listed.troubled));
            let wanted = || preset.units.join(" or ");
            unit.map(Method::Unit).ok_or_else(|| RestartError::NoUnit { wanted: wanted() })
        }
        Init::OpenRc => {
            let dirs = ["/run/openrc/started", "/run/openrc/failed", "/etc/init.d"];
            choose_service(root, preset, &dirs).map(Method::OpenRc)
        }
        Init::S6 => choose_service(root, preset, &[S6_SERVICES]).map(Method::S6),
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

/// The service that the daemon runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Its name.
    pub name: String,
    /// The daemon is what the service is there for, not something that was started from within it.
    pub is_main: bool,
}

/// The service to start again: the one that the daemon runs in, if it is of this kind of node or for the daemon
/// alone; if it is in another, none. Where that is not known, the first wanted one that is listed. Names are
/// matched as a whole.
#[must_use]
pub fn choose_unit(wanted: &[&str], own: Option<&Own>, listed: &[String]) -> Option<String> {
    let matches = |pattern: &str, unit: &str| {
        Glob::new(pattern).is_ok_and(|glob| {
            glob.compile_matcher().is_match(unit)
                && pattern.matches('.').count() == unit.matches('.').count()
        })
    };
    let fits = |unit: &&str| wanted.iter().any(|pattern| matches(pattern, unit));
    if let Some(own) = own {
        return (own.is_main || fits(&own.name.as_str())).then(|| own.name.clone());
    }
    let mut sorted: Vec<_> = listed.iter().collect();
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

/// The process that a service is there for.
fn main_pid(context: &Context, unit: &str) -> Option<u32> {
    let args = ["show", "--property=MainPID", "--value", unit];
    context.run("systemctl", &args, LIMIT).ok()?.trim().parse().ok()
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
        Method::OpenRc(name) => {
            context.run("rc-service", &[name, "restart"], LIMIT)?;
        }
        Method::S6(name) => {
            context.run("s6-svc", &["-r", &format!("{S6_SERVICES}/{name}")], LIMIT)?;
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
    let theirs = namespace::of_host(root.dir(), "pid").map(|namespace| namespace.id);
    if theirs.is_none() || theirs != namespace::own("pid") {
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
        let own = |name: &str, is_main| Own { name: name.to_owned(), is_main };
        let chosen = |name: &str, is_main| choose_unit(k3s, Some(&own(name, is_main)), &listed);
        assert_eq!(chosen("k3s-edge.service", false).as_deref(), Some("k3s-edge.service"));
        assert_eq!(chosen("my-runtime.service", true).as_deref(), Some("my-runtime.service"));
        assert_eq!(chosen("ssh.service", false), None, "it was started from there by hand");
        assert_eq!(
            choose_unit(k3s, None, &units(&["backup-k3s.service", "k3s-x.y.service"])),
            None
        );
        let usual = named("kubeadm").unwrap().units;
        assert_eq!(choose_unit(usual, None, &units(&["not-containerd.service"])), None);
    }

    /// N15 in another place: the service was called containerd, whatever the kind of node.
    #[test]
    fn n15_services_are_those_of_the_kind_of_node() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::open(dir.path()).unwrap();
        let make = |path: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        for path in ["run/openrc/started/k3s-agent", "etc/init.d/k3s", "etc/init.d/containerd"] {
            make(path);
        }
        let (k3s, usual) = (named("k3s").unwrap(), named("default").unwrap());
        let site = |preset: &'static Preset| Site {
            preset,
            config: preset.config.to_owned(),
            daemon: None,
            program: None,
        };
        let choose = |preset| choose(&root, &Context::Here, &site(preset), None);
        assert_eq!(choose(k3s).unwrap(), Method::OpenRc("k3s-agent".to_owned()));
        assert_eq!(choose(usual).unwrap(), Method::OpenRc("containerd".to_owned()));
        let k0s = choose(named("k0s").unwrap()).unwrap_err();
        assert!(matches!(k0s, RestartError::NoUnit { .. }), "{k0s}");
        std::fs::remove_dir_all(dir.path().join("run")).unwrap();
        make("run/service/containerd");
        assert_eq!(choose(usual).unwrap(), Method::S6("containerd".to_owned()));
        assert_eq!(init(&root, k3s), Init::Other);
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
