//! `portolan node …`: a runtime binary on one node. The Jobs of a Shim run these; so can a person.

use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_shim::node::NodeError;
use portolan_shim::node::install::{INSTALL_DIR, Node, Outcome, Restart};
use portolan_shim::node::preset::Overrides;
use portolan_shim::node::request::host_path;
use portolan_shim::report::{Reason, Report, room};

use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

mod fetch;
mod install;
mod source;
mod uninstall;
mod verify;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
#[allow(clippy::large_enum_variant, reason = "one per run")]
pub(crate) enum Command {
    /// Fetch a shim and check it, without any privilege
    Fetch(fetch::Args),
    /// Put a shim on a node and make containerd know it
    Install(install::Args),
    /// Take a shim off a node, as if it had never been there
    Uninstall(uninstall::Args),
    /// Is a shim still as it was installed?
    Verify(verify::Args),
}

// What every operation on a node takes. No documentation: clap would give it to the commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Where {
    /// The host's root directory
    #[arg(long, value_name = "DIR", env = "HOST_ROOT", default_value = "/")]
    host_root: PathBuf,
    /// Where shims are kept on the host
    #[arg(long, value_name = "PATH", default_value = INSTALL_DIR, value_parser = host_path)]
    install_dir: String,
    /// containerd's configuration, as the host names it; found out where nothing is said
    #[arg(long, value_name = "PATH", value_parser = host_path)]
    config: Option<String>,
    /// The kind of node: default, kubeadm, k3s, rke2, k0s, microk8s, minikube, kind, custom
    #[arg(long, value_name = "PRESET")]
    distro: Option<String>,
}

// How the runtime is started again. No documentation, as above.
#[derive(Debug, clap::Args)]
pub(crate) struct Restarting {
    /// Leave containerd running with what it has read
    #[arg(long)]
    no_restart: bool,
    /// How to start containerd again, as a line for the host's shell
    #[arg(long, value_name = "COMMAND", conflicts_with = "no_restart")]
    restart_command: Option<String>,
    /// How long containerd may take until it answers as it should, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 90)]
    ready_timeout: u64,
    /// How long to wait for another installer on this node, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    lock_timeout: u64,
}

// Where the outcome is told. No documentation, as above.
#[derive(Debug, clap::Args)]
pub(crate) struct Telling {
    /// The file that gets the report; where it is there, /dev/termination-log
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// How to print it
    #[arg(short = 'o', long = "format", value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What a kubelet reads when a container has ended.
const TERMINATION_LOG: &str = "/dev/termination-log";

impl Where {
    fn node(&self, restarting: Option<&Restarting>) -> Node {
        let restart = restarting.map_or_else(Restart::default, |wish| Restart {
            off: wish.no_restart,
            command: wish.restart_command.clone(),
            patience: Duration::from_secs(wish.ready_timeout),
        });
        Node {
            root: self.host_root.clone(),
            install_dir: self.install_dir.clone(),
            overrides: Overrides { config: self.config.clone(), distro: self.distro.clone() },
            restart,
            lock: Duration::from_secs(restarting.map_or(60, |wish| wish.lock_timeout)),
        }
    }
}

pub(crate) fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Fetch(args) => context::wait(fetch::run(args)),
        Command::Install(args) => context::wait(install::run(args)),
        Command::Uninstall(args) => context::wait(uninstall::run(args)),
        Command::Verify(args) => context::wait(verify::run(args)),
    }
}

impl Telling {
    /// Tells an outcome to whoever waits for it, and makes an exit code of it. A pod that installs so many shims has
    /// little room for the words of each of its containers.
    fn finish(&self, outcome: Outcome, shims: usize) -> Result<Exit, Failure> {
        let Outcome { report, error } = outcome;
        let log = Path::new(TERMINATION_LOG);
        let file = self.report.as_deref().or_else(|| log.is_file().then_some(log));
        if let Some(file) = file {
            // In place: what a kubelet mounts there is a file, and a rename would only cover it.
            if let Err(untold) = std::fs::write(file, report.to_message(limit(file, shims))) {
                format::tell(&format!("warning: {} cannot be written: {untold}", file.display()));
            }
        }
        if self.format == Format::Table {
            for warning in &report.warnings {
                format::tell(&format!("warning: {warning}"));
            }
        }
        if error.is_none() || self.format != Format::Table {
            self.format.print(&report, draw)?;
        }
        match error {
            None => Ok(Exit::Ok),
            Some(error) => Err(Failure::new(exit(&error), error)),
        }
    }

    /// The same for what failed before it began.
    fn refuse(
        &self,
        operation: portolan_shim::report::Operation,
        error: NodeError,
    ) -> Result<Exit, Failure> {
        self.finish(Outcome::refused(operation, error), 1)
    }
}

/// How long a report may be. Nobody cuts what is written anywhere but where a kubelet reads it.
fn limit(file: &Path, shims: usize) -> usize {
    if file == Path::new(TERMINATION_LOG) { room(shims) } else { usize::MAX }
}

fn exit(error: &NodeError) -> Exit {
    // The others are there: whoever tries again tries what is not, alone.
    if matches!(error, NodeError::InPart { .. }) {
        return Exit::No;
    }
    if matches!(error, NodeError::Fetch(fetch) if fetch.is_not_found()) {
        return Exit::NotFound;
    }
    exit_of(error.reason())
}

/// 1, 2 and 4 end a Job for good, 3 and 5 are tried again: so what would fail again must be one of the first,
/// and what may pass one of the others.
const fn exit_of(reason: Reason) -> Exit {
    match reason {
        Reason::WrongArchitecture
        | Reason::NodeNotSupported
        | Reason::NotDownloadable
        | Reason::RolledBack
        | Reason::Drifted => Exit::No,
        Reason::BinaryNotFound => Exit::NotFound,
        Reason::LocationNotAllowed
        | Reason::DigestRequired
        | Reason::TooLarge
        | Reason::DigestMismatch
        | Reason::ArchiveRefused
        | Reason::ConfigRefused
        | Reason::BadRequest => Exit::Usage,
        Reason::DownloadFailed | Reason::RuntimeDown | Reason::Locked | Reason::HostTrouble => {
            Exit::Transport
        }
    }
}

fn draw(report: &Report) -> String {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: &str| rows.push(vec![name.to_owned(), value.to_owned()]);
    let word = |flag: bool| if flag { "yes" } else { "no" };
    row("changed", word(report.changed));
    row("restarted", word(report.restarted));
    for (name, value) in [
        ("node", &report.distro),
        ("runtime", &report.runtime_version),
        ("archive sha256", &report.archive_sha256),
        ("binary sha256", &report.binary_sha256),
    ] {
        if let Some(value) = value {
            row(name, value);
        }
    }
    for part in &report.parts {
        let reason = part.reason.map(|reason| format!("{reason:?}"));
        row(&part.name, reason.as_deref().unwrap_or("installed"));
    }
    format::table(&["WHAT", "IS"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_cut_where_a_kubelet_reads_it_and_nowhere_else() {
        assert_eq!(limit(Path::new("/dev/termination-log"), 8), room(8));
        assert_eq!(limit(Path::new("/tmp/report"), 8), usize::MAX);
    }

    #[test]
    fn what_would_fail_again_ends_a_job_and_what_may_pass_does_not() {
        for reason in [
            Reason::LocationNotAllowed,
            Reason::DigestRequired,
            Reason::NotDownloadable,
            Reason::DownloadFailed,
            Reason::TooLarge,
            Reason::DigestMismatch,
            Reason::ArchiveRefused,
            Reason::BinaryNotFound,
            Reason::WrongArchitecture,
            Reason::NodeNotSupported,
            Reason::ConfigRefused,
            Reason::RolledBack,
            Reason::RuntimeDown,
            Reason::Locked,
            Reason::HostTrouble,
            Reason::BadRequest,
        ] {
            // A configuration that the runtime did not take once, it does not take again: every try is two
            // restarts of the node's runtime.
            let ends = reason.is_permanent() || reason == Reason::RolledBack;
            let exit = exit_of(reason);
            let for_good = matches!(exit, Exit::No | Exit::Usage | Exit::NotFound);
            assert_eq!(for_good, ends, "{reason:?} {exit:?}");
        }
    }
}
