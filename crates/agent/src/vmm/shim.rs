//! The process between the agent and a VMM, so that a machine outlives the agent that started it.
//!
//! An agent that ends, crashes or is replaced must not take its machines along, must not lose how
//! they end, and their consoles must stay bounded while no agent is there. So each machine has a
//! small parent of its own: this program, started again with the first argument [`ARGUMENT`] in the
//! instance's folder. It holds the machine's lock, keeps the console, and writes down how it ended.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use jiff::Timestamp;
use portolan_registry::durable::{self, DurableError};
use rustix::fs::{CWD, Mode};

use super::console::{BoundedLog, Scanner, Word};
use super::files::{self, EndReport, Orders, RunningReport, WorkloadEnd};
use super::lock::MachineLock;
use super::process::name_of;

/// The first argument that makes the agent's program a shim; the second is the run.
pub const ARGUMENT: &str = "machine-shim";

/// How a shim ends that found no room for its files: then it could write down nothing else either.
pub(super) const FULL: u8 = 28;

/// The VMM itself has little to say.
const VMM_LOG_BYTES: u64 = 1 << 20;

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("cannot look at the machine's lock")]
    Lock(#[source] io::Error),
    #[error("a machine of this instance runs already")]
    AlreadyRuns,
    #[error("the orders are missing or for another start; a newer agent has changed its mind")]
    NoOrders,
    #[error("cannot prepare {what}")]
    Prepare {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot start {program}; check vmm.binary in the agent's configuration")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot write down who runs")]
    Report(#[source] DurableError),
}

impl ShimError {
    fn is_full(&self) -> bool {
        match self {
            Self::Lock(source) | Self::Prepare { source, .. } => durable::is_full(source),
            Self::Report(error) => error.is_full(),
            Self::AlreadyRuns | Self::NoOrders | Self::Start { .. } => false,
        }
    }
}

/// Does a shim's work where the program was started as one, and tells the exit code; else none. To
/// be called first in `main`, before any thread is there.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()?.to_str() != Some(ARGUMENT) {
        return None;
    }
    let run = args.next().and_then(|run| run.into_string().ok()).unwrap_or_default();
    // Away from the agent's terminal and its signals. Only a group's leader is refused.
    let _ = rustix::process::setsid();
    // Started by way of `/proc/self/exe`, lists of processes would show it as "exe".
    let _ = rustix::thread::set_name(c"portolan-shim");
    let dir = Path::new(".");
    match attend(dir, &run) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            refuse(dir, &run, &error);
            Some(if error.is_full() { ExitCode::from(FULL) } else { ExitCode::FAILURE })
        }
    }
}

/// Tells the agent why there is no machine, unless the place is another's.
fn refuse(dir: &Path, run: &str, error: &ShimError) {
    if matches!(error, ShimError::AlreadyRuns | ShimError::NoOrders) {
        return;
    }
    let vmm = portolan_core::causes::chain(error);
    let report = EndReport { run: run.to_owned(), at: Timestamp::now(), vmm, workload: None };
    // Nobody is left to tell; the agent finds no report and says so.
    let _ = files::write(dir, files::ENDED, &report);
}

fn attend(dir: &Path, run: &str) -> Result<(), ShimError> {
    let lock = MachineLock::take(dir).map_err(ShimError::Lock)?.ok_or(ShimError::AlreadyRuns)?;
    // Only under the lock: whoever has it may change the orders.
    let orders: Orders = files::read(dir, files::ORDERS).ok_or(ShimError::NoOrders)?;
    if orders.run != run {
        return Err(ShimError::NoOrders);
    }
    let prepare = |what| move |source| ShimError::Prepare { what, source };
    let mut console = BoundedLog::create(
        &dir.join(files::CONSOLE),
        &dir.join(files::CONSOLE_OLD),
        orders.console_max_bytes,
    )
    .map_err(prepare("the console's file"))?;
    let log =
        BoundedLog::create(&dir.join(files::VMM_LOG), &dir.join(files::VMM_LOG_OLD), VMM_LOG_BYTES)
            .map_err(prepare("the VMM's log"))?;
    let log = Arc::new(Mutex::new(log));
    let pipe = open_pipe(dir).map_err(prepare("the pipe of the VMM's log"))?;
    let held = lock.leave_to_descendants().map_err(prepare("the lock for the VMM"))?;
    let mut vmm = start(&orders)?;
    // Before there is a report nobody could find the VMM, so it must not live without.
    let report = RunningReport {
        run: orders.run.clone(),
        shim: name_of(std::process::id()).map_err(prepare("this process's name"))?,
        vmm: name_of(vmm.id()).map_err(prepare("the VMM's name"))?,
    };
    if let Err(error) = files::write(dir, files::RUNNING, &report) {
        let _ = vmm.kill().and_then(|()| vmm.wait());
        return Err(ShimError::Report(error));
    }
    keep(pipe, Arc::clone(&log));
    if let Some(errors) = vmm.stderr.take() {
        keep(errors, log);
    }
    let workload = follow(dir, &mut vmm, &mut console, &orders.token);
    let status = vmm.wait();
    let report = EndReport {
        run: orders.run,
        at: Timestamp::now(),
        vmm: status.map_or_else(|error| error.to_string(), in_words),
        workload,
    };
    let written = files::write(dir, files::ENDED, &report).map_err(ShimError::Report);
    drop(held);
    written
}

fn start(orders: &Orders) -> Result<Child, ShimError> {
    Command::new(&orders.program)
        .args(&orders.args)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| ShimError::Start { program: orders.program.clone(), source })
}

/// A named pipe for a VMM that wants a path for its log. Open for writing here, too: so it has no
/// end, whoever opens and closes it.
fn open_pipe(dir: &Path) -> io::Result<File> {
    let path = dir.join(files::VMM_PIPE);
    match rustix::fs::mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    File::options().read(true).write(true).open(path)
}

/// Copies into the log until the end, on a thread that ends with the process.
fn keep(mut from: impl Read + Send + 'static, log: Arc<Mutex<BoundedLog>>) {
    thread::spawn(move || {
        let mut buffer = vec![0; 4096];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            // A full disk loses the log, not the machine.
            let _ = log.lock().unwrap_or_else(PoisonError::into_inner).write(&buffer[..read]);
        }
    });
}

/// Reads the console to its end.
fn follow(
    dir: &Path,
    vmm: &mut Child,
    console: &mut BoundedLog,
    token: &str,
) -> Option<WorkloadEnd> {
    let mut from = vmm.stdout.take()?;
    let mut scanner = Scanner::new(token);
    let mut end = None;
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..read];
        let _ = console.write(bytes);
        scanner.push(bytes, |word| match word {
            Word::Started | Word::Boots => {
                let _ = File::create(dir.join(files::BOOTED));
            }
            Word::Ended(how) => end = Some(how),
        });
    }
    end
}

fn in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (_, Some(signal)) => format!("was killed by signal {signal}"),
        _ => status.to_string(),
    }
}
