//! Processes of a test: short ones that are waited for, long ones that end with the test.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::{IpAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};

/// What a command did. Printed, it shows everything, which is what a failed test should say.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command line.
    pub command: String,
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, code, stdout, stderr } = self;
        write!(f, "{command}\nexit code {code:?}\nstdout: {stdout}\nstderr: {stderr}")
    }
}

/// Runs to the end; a failure of the command itself is an [`Output`] like any other.
pub fn run(command: &mut Command) -> Result<Output> {
    run_with_input(command, b"")
}

/// The same, with something to read.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Result<Output> {
    let shown = format!("{command:?}");
    // A file and not a pipe, so that a command that reads nothing cannot block us.
    let mut stdin = tempfile::tempfile().context("make a temporary file")?;
    stdin.write_all(input)?;
    stdin.rewind()?;
    let out = command.stdin(stdin).output().with_context(|| format!("start {shown}"))?;
    Ok(Output {
        command: shown,
        code: out.status.code(),
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    })
}

/// A process that runs until this value is dropped, with everything it started in its group.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    log: File,
}

impl Running {
    /// Starts it; what it prints, on either stream, is kept for [`Running::log`].
    pub fn start(command: &mut Command) -> Result<Self> {
        let log = tempfile::tempfile().context("make a temporary file")?;
        let name = format!("{command:?}");
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { name, child, log })
    }

    /// Everything it has printed so far.
    pub fn log(&self) -> String {
        let mut bytes = Vec::new();
        // The position is shared with the process that writes, so we read at offsets of our own.
        let mut offset = 0;
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) =
            std::os::unix::fs::FileExt::read_at(&self.log, &mut buffer, offset)
        {
            bytes.extend_from_slice(&buffer[..count]);
            offset += count as u64;
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The process id, while it runs.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error, with its log, if it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => anyhow::bail!("{} ended ({status}):\n{}", self.name, self.log()),
        }
    }

    /// Sends a signal to it and its group.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("pid")?;
        kill_process_group(pid, signal).with_context(|| format!("signal {}", self.name))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Until `wait`, the pid is ours even if it has ended: the kernel cannot give it away.
        let _ = self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Below what Linux gives to whoever asks for any port (from 32,768) and below the ports of nodes (from 30,000): nobody
/// comes to one of these by chance between our look and the server's.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A port that is free on that address, and that is given to nobody else in this program.
pub fn free_port(address: IpAddr) -> Result<u16> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let span = u32::from(PORTS.end - PORTS.start);
    for _ in 0..span {
        // Other programs begin elsewhere.
        let at = std::process::id().wrapping_mul(97).wrapping_add(GIVEN.fetch_add(1, Relaxed));
        let port = PORTS.start + u16::try_from(at % span)?;
        if TcpListener::bind((address, port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port of {PORTS:?} is free on {address}")
}

/// A plain GET, for readiness: an error unless the status is 200.
pub(crate) fn http_ok(address: &str, path: &str) -> Result<()> {
    let mut stream =
        std::net::TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut start = [0; 12];
    stream.read_exact(&mut start).with_context(|| format!("read from {address}"))?;
    anyhow::ensure!(
        start.ends_with(b" 200"),
        "http://{address}{path} answered {:?}",
        String::from_utf8_lossy(&start)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_never_one_that_is_taken() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let first = free_port(loopback).unwrap();
        let _taken = TcpListener::bind((loopback, first + 1));
        let more: Vec<u16> = (0..20).map(|_| free_port(loopback).unwrap()).collect();
        assert!(!more.contains(&first) && !more.contains(&(first + 1)), "{first}: {more:?}");
        let different: std::collections::BTreeSet<_> = more.iter().collect();
        assert_eq!(different.len(), more.len(), "{more:?}");
        assert!(more.iter().all(|port| PORTS.contains(port)), "{more:?}");
    }

    #[test]
    fn a_running_process_and_its_children_end_with_the_value() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 300 & echo $!; wait"]);
        let running = Running::start(&mut command).unwrap();
        let child = crate::wait_for("the child's pid", std::time::Duration::from_secs(5), || {
            running.log().trim().parse::<u32>().context("not yet printed")
        })
        .unwrap();
        drop(running);
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            anyhow::ensure!(stat.is_empty() || stat.contains(") Z "), "runs: {stat}");
            Ok(())
        };
        crate::wait_for("the child to end", std::time::Duration::from_secs(5), gone).unwrap();
    }

    #[test]
    fn a_command_that_fails_is_shown_whole() {
        let out = run(Command::new("sh").args(["-c", "echo said; echo complained >&2; exit 3"]));
        let shown = out.unwrap().to_string();
        for part in ["exit code Some(3)", "said", "complained"] {
            assert!(shown.contains(part), "{shown}");
        }
    }
}
