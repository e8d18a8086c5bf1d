//! Programs of the host, run where the host would run them.
//!
//! From a pod, the host's mount namespace is entered first. That needs a process without threads, so this
//! very program is started again and becomes the other one: [`run_if_asked`] is the first thing that `main`
//! does. No shell and no `nsenter` are needed in the image.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::namespace;
use super::root::HostRoot;

/// Set for the process that enters a namespace: which one.
const ENTER: &str = "PORTOLAN_NODE_ENTER";
/// What a process ends with that could not become the program, and how that is told.
const NO_PROGRAM: u8 = 127;
const NOT_STARTED: &str = "exit status: 127";
/// What is kept of what a program says.
const MAX_SAID: usize = 1 << 20;

/// Where programs of the host can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Context {
    /// Here.
    Here,
    /// In this mount namespace.
    Namespace(PathBuf),
    /// Nowhere: a mere tree of files.
    Files,
}

/// Why a program did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// There is only a tree of files.
    #[error("{program} cannot be run: this is a tree of files, not a running host")]
    Files {
        /// The program.
        program: String,
    },
    /// It cannot be started.
    #[error("{program} cannot be started on the host")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It ended badly.
    #[error("{program} failed ({status}): {said}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: String,
        /// Its words, cut.
        said: String,
    },
    /// It did not end.
    #[error("{program} did not end within {} s", limit.as_secs())]
    Late {
        /// The program.
        program: String,
        /// The time it had.
        limit: Duration,
    },
}

impl Context {
    /// What a root is.
    #[must_use]
    pub fn of(root: &HostRoot) -> Self {
        if root.is_here() {
            return Self::Here;
        }
        match (namespace::of_host(root.dir(), "mnt"), namespace::own("mnt")) {
            (Some(there), Some(own)) if there.id != own => Self::Namespace(there.file),
            _ => Self::Files,
        }
    }

    /// Whether there is a host to run programs on.
    #[must_use]
    pub fn is_host(&self) -> bool {
        *self != Self::Files
    }

    /// Runs a program of the host to its end, within `limit`.
    ///
    /// # Errors
    /// It cannot be started, fails, or takes too long.
    pub fn run(&self, program: &str, args: &[&str], limit: Duration) -> Result<String, ExecError> {
        let ran = self.try_run(program, args, limit);
        match self {
            Self::Namespace(_) => ran.map_err(not_started),
            _ => ran,
        }
    }

    fn try_run(&self, program: &str, args: &[&str], limit: Duration) -> Result<String, ExecError> {
        let name = || program.to_owned();
        let command = match self {
            Self::Here => Command::new(program),
            Self::Namespace(namespace) => entering(namespace, program),
            Self::Files => return Err(ExecError::Files { program: name() }),
        };
        run(command, program, args, limit)
    }

    /// Runs a person's command line by the host's shell; on a tree of files by that of this machine.
    ///
    /// # Errors
    /// As [`Context::run`].
    pub fn shell(&self, line: &str, limit: Duration) -> Result<String, ExecError> {
        match self {
            Self::Files => Self::Here.run("sh", &["-c", line], limit),
            // What a line ends with is the line's own word.
            context => context.try_run("sh", &["-c", line], limit),
        }
    }
}

/// A process that could not become the program ends as a shell would where there is none (see [`run_if_asked`]): that is
/// no word of the program's, and will be so the next time.
fn not_started(error: ExecError) -> ExecError {
    match error {
        ExecError::Failed { program, status, said } if status == NOT_STARTED => {
            ExecError::Start { program, source: std::io::Error::other(said) }
        }
        error => error,
    }
}

fn entering(namespace: &Path, program: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.env(ENTER, namespace).arg(program);
    command
}

fn run(
    mut command: Command,
    program: &str,
    args: &[&str],
    limit: Duration,
) -> Result<String, ExecError> {
    let start = |source| ExecError::Start { program: program.to_owned(), source };
    // Files, not pipes: whatever it leaves running in the background must not keep us waiting.
    let (out, err) = (temp_file().map_err(start)?, temp_file().map_err(start)?);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(start)?)
        .stderr(err.try_clone().map_err(start)?);
    let mut child = command.spawn().map_err(start)?;
    let began = Instant::now();
    let mut pause = Duration::from_millis(2);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(start)? {
            break status;
        }
        if began.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            return Err(ExecError::Late { program: program.to_owned(), limit });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    };
    let output = Output { status, stdout: read_back(out), stderr: read_back(err) };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = [text(&output.stderr), text(&output.stdout)].join(" ");
    let said = said.trim().chars().take(400).collect();
    Err(ExecError::Failed { program: program.to_owned(), status: output.status.to_string(), said })
}

/// A file without a name.
fn temp_file() -> std::io::Result<std::fs::File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("portolan-node", flags)?.into())
}

fn read_back(mut file: std::fs::File) -> Vec<u8> {
    use std::io::{Read as _, Seek as _};
    let mut bytes = Vec::new();
    let _ = file.rewind();
    let _ = file.take(MAX_SAID as u64).read_to_end(&mut bytes);
    bytes
}

/// Becomes a program of another mount namespace, if that is what this process was started for.
///
/// To be called first in `main`, before there are threads.
#[must_use]
pub fn run_if_asked() -> Option<ExitCode> {
    let namespace = std::env::var_os(ENTER)?;
    let mut args = std::env::args_os().skip(1);
    let program = args.next()?;
    let entered = std::fs::File::open(&namespace).and_then(|file| {
        let mount = Some(LinkNameSpaceType::Mount);
        Ok(move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), mount)?)
    });
    let failed = entered.err().unwrap_or_else(|| {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        Command::new(&program)
            .args(args)
            .env_remove(ENTER)
            .env("PATH", path)
            .current_dir("/")
            .exec()
    });
    tracing::error!(%failed, "the host's program cannot be run");
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{failed}");
    Some(ExitCode::from(NO_PROGRAM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_bounded_in_time_and_heard() {
        let here = Context::Here;
        assert_eq!(here.run("echo", &["a b"], Duration::from_secs(5)).unwrap(), "a b");
        let failed = here.shell("echo no >&2; exit 3", Duration::from_secs(5)).unwrap_err();
        assert!(failed.to_string().contains("no"), "{failed}");
        let late = here.run("sleep", &["20"], Duration::from_millis(50)).unwrap_err();
        assert!(matches!(late, ExecError::Late { .. }));
        // Somebody who stays behind keeps nobody waiting, however busy the machine is.
        let began = Instant::now();
        let stays = here.shell("sleep 300 & echo $!", Duration::from_secs(120)).unwrap();
        assert!(began.elapsed() < Duration::from_secs(120));
        here.shell(&format!("kill {stays}"), Duration::from_secs(120)).unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_is_not_one_that_fails() {
        let here = Context::Here;
        let start = here.run("no-such-program", &[], Duration::from_secs(5)).unwrap_err();
        assert!(matches!(start, ExecError::Start { .. }), "{start}");
        let ended = |line: &str| here.shell(line, Duration::from_secs(5)).unwrap_err();
        let entered = not_started(ended(&format!("echo none >&2; exit {NO_PROGRAM}")));
        let ExecError::Start { program, source } = &entered else { panic!("{entered}") };
        assert_eq!((program.as_str(), source.to_string().as_str()), ("sh", "none"));
        let failed = not_started(ended("exit 1"));
        assert!(matches!(failed, ExecError::Failed { .. }), "{failed}");
    }

    #[test]
    fn a_tree_of_files_runs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::open(dir.path()).unwrap();
        assert_eq!(Context::of(&root), Context::Files);
        assert!(Context::Files.run("true", &[], Duration::from_secs(1)).is_err());
    }
}
