//! Running a program in its cage, and never longer, louder or otherwise than allowed.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::malfunction::Malfunction;
use super::policy::Grant;
use super::program::{Program, ProgramError, sealed_text};
use super::sandbox::{self, ARGUMENT, Control, Layer, Limits, Orders, Strictness, Word};

/// An answer is short; this is what a list of many reasons needs.
pub const MAX_STDOUT: usize = 1024 * 1024;
/// What is kept of a plugin's log. More is read and dropped, so that it does not block on it.
pub const MAX_STDERR: usize = 32 * 1024;

/// What a plugin may read of the host where its rule says `files`. Not `/proc` as a whole: it
/// holds other processes, and the kernel's command line, which can hold secrets.
const HOST_FILES: [&str; 18] = [
    "/proc/config.gz",
    "/proc/cpuinfo",
    "/proc/crypto",
    "/proc/devices",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/misc",
    "/proc/modules",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/sys/fs",
    "/proc/sys/net",
    "/proc/version",
    "/sys",
    "/etc/os-release",
    "/etc/machine-info",
    "/usr/lib/os-release",
    "/dev/null",
];

/// What a program that is not static needs before its first line.
const LIBRARIES: [&str; 9] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/nix/store",
    "/etc/ld.so.cache",
];

/// How programs are run.
#[derive(Debug, Clone)]
pub struct Runner {
    /// The program that becomes the plugin: one whose `main` begins with
    /// [`sandbox::run_if_asked`].
    pub helper: PathBuf,
    /// What to do where the kernel lacks a layer.
    pub strictness: Strictness,
    /// How much a plugin may use.
    pub limits: Limits,
}

impl Default for Runner {
    /// This very program as the helper, everything required.
    fn default() -> Self {
        Self {
            // Not its name, which an upgrade may have given to another.
            helper: PathBuf::from("/proc/self/exe"),
            strictness: Strictness::Required,
            limits: Limits::default(),
        }
    }
}

/// A program that ended by itself.
#[derive(Debug)]
pub struct Finished {
    /// What held it.
    pub layers: Vec<Layer>,
    /// Its exit code.
    pub code: i32,
    /// All that it printed.
    pub stdout: Vec<u8>,
    /// The beginning of its log.
    pub stderr: Vec<u8>,
    /// How long it ran.
    pub took: Duration,
}

/// A child that does not outlive this value.
struct Caged {
    child: Child,
    group: Pid,
    ended: bool,
}

impl Caged {
    /// Ends whatever is left of it; how the plugin itself ended, if it did before.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // Before its leader is waited for: after that the number may be another's.
        let _ = kill_process_group(self.group, Signal::KILL);
        // It has no group of its own yet if it is ended early.
        let _ = self.child.kill();
        self.ended = true;
        self.child.wait()
    }
}

impl Drop for Caged {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end();
        }
    }
}

impl Runner {
    /// Runs `program` with one argument and an input, until it ends or must be ended.
    pub fn run(
        &self,
        program: &Program,
        name: &str,
        command: &str,
        input: &[u8],
        grant: &Grant,
    ) -> Result<Finished, Malfunction> {
        program.check_libraries(grant.libraries).map_err(Malfunction::Program)?;
        let started = Instant::now();
        let (mut caged, control) = self.start(program, name, command, input, grant)?;
        let patience = Duration::from_secs(grant.timeout_seconds);
        let heard = listen(&mut caged, &control, started + patience, patience);
        // Whatever was heard: nothing of it is left when this returns.
        let status = caged.end();
        let heard = heard?;
        let status = status.map_err(|source| Malfunction::Io { step: "learn the end", source })?;
        heard.judge(status, started.elapsed())
    }

    fn start(
        &self,
        program: &Program,
        name: &str,
        command: &str,
        input: &[u8],
        grant: &Grant,
    ) -> Result<(Caged, Control), Malfunction> {
        let io = |step| move |source| Malfunction::Io { step, source };
        let input = sealed_text(input).map_err(io("keep the input"))?;
        let (control, theirs) = sandbox::pair().map_err(|error| start_failed(&error))?;
        let child = Command::new(&self.helper)
            .arg(ARGUMENT)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Malfunction::Start {
                why: format!("the helper {} does not start: {error}", self.helper.display()),
            })?;
        let group = Pid::from_child(&child);
        let caged = Caged { child, group, ended: false };
        let orders = self.orders(name, command, grant);
        control
            .send(&orders, &[program.as_fd(), input.as_fd()])
            .map_err(|error| start_failed(&error))?;
        Ok((caged, control))
    }

    fn orders(&self, name: &str, command: &str, grant: &Grant) -> Orders {
        let paths = |list: &[&str]| -> Vec<PathBuf> { list.iter().map(PathBuf::from).collect() };
        Orders {
            strictness: self.strictness,
            parent: std::process::id(),
            arguments: vec![name.to_owned(), command.to_owned()],
            environment: environment(),
            read: if grant.files { host_files(paths(&HOST_FILES)) } else { Vec::new() },
            execute: if grant.libraries { paths(&LIBRARIES) } else { Vec::new() },
            limits: self.limits,
        }
    }
}

/// With the configuration and the modules of the running kernel.
fn host_files(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    let uname = rustix::system::uname();
    if let Ok(release) = uname.release().to_str() {
        files.push(format!("/boot/config-{release}").into());
        files.push(format!("/lib/modules/{release}").into());
    }
    files
}

/// All that a plugin gets: no home, no login, no proxy, nothing of the caller's.
fn environment() -> BTreeMap<String, String> {
    [("PATH", "/nonexistent"), ("LANG", "C.UTF-8"), ("OCI_COMPAT_API", super::protocol::API)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn start_failed(error: &dyn std::error::Error) -> Malfunction {
    let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
    Malfunction::Start { why: format!("{error}{cause}") }
}

/// What was heard from helper and plugin.
struct Heard {
    word: Option<Word>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Reads everything until the process has ended or its time is over.
fn listen(
    caged: &mut Caged,
    control: &Control,
    deadline: Instant,
    patience: Duration,
) -> Result<Heard, Malfunction> {
    let io = |step| move |source| Malfunction::Io { step, source };
    let process = pidfd_open(caged.group, PidfdFlags::empty())
        .map_err(|errno| io("watch the end")(errno.into()))?;
    let mut stdout = Pipe::new(caged.child.stdout.take().map(OwnedFd::from))?;
    let mut stderr = Pipe::new(caged.child.stderr.take().map(OwnedFd::from))?;
    let mut heard = Heard { word: None, stdout: Vec::new(), stderr: Vec::new() };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Malfunction::Timeout { after: patience });
        }
        let ended = wait(&[Some(process.as_fd()), stdout.fd(), stderr.fd()], left)
            .map_err(io("wait for a word"))?;
        if stdout.drain(&mut heard.stdout, MAX_STDOUT).map_err(io("read the answer"))? {
            return Err(Malfunction::Flood { limit: MAX_STDOUT });
        }
        stderr.drain(&mut heard.stderr, MAX_STDERR).map_err(io("read the log"))?;
        if ended {
            break;
        }
    }
    // The last word counts: "ready" is followed by "failed" where the plugin then did not start.
    while let Some((word, _)) =
        control.receive::<Word>(RecvFlags::DONTWAIT).map_err(|error| start_failed(&error))?
    {
        heard.word = Some(word);
    }
    Ok(heard)
}

/// Waits until one of them has something to say; whether the first one has.
fn wait(sources: &[Option<std::os::fd::BorrowedFd<'_>>; 3], left: Duration) -> io::Result<bool> {
    let mut fds: Vec<PollFd<'_>> =
        sources.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let left = Timespec::try_from(left).map_err(io::Error::other)?;
    match poll(&mut fds, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(fds.first().is_some_and(|first| !first.revents().is_empty()))
}

/// The reading end of a pipe, until its writers are gone.
struct Pipe(Option<std::fs::File>);

impl Pipe {
    fn new(end: Option<OwnedFd>) -> Result<Self, Malfunction> {
        if let Some(end) = &end {
            rustix::io::ioctl_fionbio(end, true)
                .map_err(|errno| Malfunction::Io { step: "listen to", source: errno.into() })?;
        }
        Ok(Self(end.map(Into::into)))
    }

    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }

    /// Takes what is there, keeps up to `limit` bytes, and says whether there was more.
    fn drain(&mut self, kept: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
        /// At a time, so that one that writes without end lets us look at the clock.
        const TURNS: usize = 64;
        let mut chunk = [0_u8; 16 * 1024];
        let mut more = false;
        for _ in 0..TURNS {
            let Some(file) = &mut self.0 else { break };
            match file.read(&mut chunk) {
                Ok(0) => self.0 = None,
                Ok(read) => {
                    let room = limit.saturating_sub(kept.len()).min(read);
                    kept.extend_from_slice(&chunk[..room]);
                    more |= room < read;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(more)
    }
}

impl Heard {
    /// From how it ended to what that means.
    fn judge(self, status: ExitStatus, took: Duration) -> Result<Finished, Malfunction> {
        let layers = match self.word {
            Some(Word::Ready { layers }) => layers,
            Some(Word::Failed { layer: Some(layer), why }) => {
                return Err(Malfunction::Sandbox { layer: Some(layer), why });
            }
            Some(Word::Failed { layer: None, why }) => return Err(Malfunction::Start { why }),
            None => {
                let why = "the helper said nothing; does its main begin with run_if_asked()?";
                return Err(Malfunction::Start { why: why.to_owned() });
            }
        };
        match (status.code(), status.signal()) {
            (Some(code), _) => {
                Ok(Finished { layers, code, stdout: self.stdout, stderr: self.stderr, took })
            }
            (None, signal) => Err(Malfunction::Signal { signal: signal.unwrap_or_default() }),
        }
    }
}

impl From<ProgramError> for Malfunction {
    fn from(error: ProgramError) -> Self {
        Self::Program(error)
    }
}
