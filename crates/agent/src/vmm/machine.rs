//! One machine that runs, whoever started it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use super::files::{self, EndReport, RunningReport};
use super::firecracker::{Firecracker, FirecrackerError};
use super::lock::MachineLock;
use super::process::Process;
use super::qemu::{self, QmpError};
use super::{Kind, Vmm};

/// How long one call of a VMM's API may take.
pub(super) const CALL: Duration = Duration::from_secs(10);
/// What a VMM that was told to end may take before it is killed.
const LAST_GRACE: Duration = Duration::from_secs(2);
/// How long a lock that is held without a report is looked at: its shim is between the two.
const REPORT_PATIENCE: Duration = Duration::from_secs(10);

/// A machine that lived when it was found.
#[derive(Debug)]
pub struct Machine {
    pub(super) dir: PathBuf,
    pub(super) run: String,
    shim: Option<Process>,
    vmm: Option<Process>,
}

/// What is in an instance's folder.
#[derive(Debug)]
pub enum Found {
    /// No machine, and none that could still come up. How the last one ended, if it could tell.
    Nothing(Option<EndReport>),
    /// A machine.
    Running(Machine),
    /// Somebody holds the lock and nobody says who: nothing may be started here.
    Unsure(String),
}

/// Looks for a machine in an instance's folder.
///
/// # Errors
/// When the folder or a process cannot be looked at: then nothing is known, and nothing may be
/// started either.
pub async fn look(dir: &Path) -> io::Result<Found> {
    let until = tokio::time::Instant::now() + REPORT_PATIENCE;
    loop {
        // Without patience: a lock that only seems to be held is looked at again below.
        let owned = dir.to_owned();
        let take = move || MachineLock::take_within(&owned, Duration::ZERO);
        let free = tokio::task::spawn_blocking(take).await.map_err(io::Error::other)??;
        if let Some(lock) = free {
            // A shim that was started and has not come to the lock yet must not begin after this
            // look: without orders it goes again.
            super::layout::remove(&dir.join(files::ORDERS))?;
            let end = files::read(dir, files::ENDED);
            drop(lock);
            return Ok(Found::Nothing(end));
        }
        if let Some(machine) = Machine::open(dir)? {
            return Ok(Found::Running(machine));
        }
        if tokio::time::Instant::now() >= until {
            return Ok(Found::Unsure(format!(
                "{} is locked, and no process that it names lives; find who holds it (fuser), end \
                 it, and the agent goes on by itself",
                dir.join(files::LOCK).display()
            )));
        }
        sleep(Duration::from_millis(50)).await;
    }
}

impl Machine {
    /// The machine that the folder's report names; none where neither shim nor VMM live.
    pub(super) fn open(dir: &Path) -> io::Result<Option<Self>> {
        let Some(report) = files::read::<RunningReport>(dir, files::RUNNING) else {
            return Ok(None);
        };
        let (shim, vmm) = (Process::open(report.shim)?, Process::open(report.vmm)?);
        if shim.is_none() && vmm.is_none() {
            return Ok(None);
        }
        Ok(Some(Self { dir: dir.to_owned(), run: report.run, shim, vmm }))
    }

    /// Which start this is.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Whether the guest has started its workload.
    pub fn booted(&self) -> bool {
        self.dir.join(files::BOOTED).exists()
    }

    /// Waits until the machine is over, VMM and shim, and says how it ended: none where the shim
    /// was killed before it could tell.
    pub async fn ended(&self) -> Option<EndReport> {
        for process in [&self.shim, &self.vmm].into_iter().flatten() {
            process.ended().await;
        }
        files::read::<EndReport>(&self.dir, files::ENDED).filter(|end| end.run == self.run)
    }

    /// Waits until the guest has started its workload; false when the machine ended before.
    pub async fn wait_booted(&self) -> bool {
        let poll = async {
            let mut pause = Duration::from_millis(5);
            while !self.booted() {
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(100));
            }
        };
        tokio::select! {
            () = poll => true,
            _ = self.ended() => self.booted(),
        }
    }

    /// Ends the machine at once.
    pub async fn kill(&self) -> io::Result<()> {
        if let Some(vmm) = &self.vmm {
            vmm.signal(Signal::TERM)?;
            if timeout(LAST_GRACE, vmm.ended()).await.is_err() {
                vmm.signal(Signal::KILL)?;
                vmm.ended().await;
            }
        }
        if let Some(shim) = &self.shim {
            // It writes down the end and goes by itself; a shim that hangs on a full disk or a dead
            // one must not keep the instance from being deleted.
            if timeout(LAST_GRACE * 5, shim.ended()).await.is_err() {
                shim.signal(Signal::KILL)?;
                shim.ended().await;
            }
        }
        Ok(())
    }
}

/// Why a guest could not be asked to end.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Its folder.
    #[error("the machine's folder cannot be opened")]
    Folder(#[source] io::Error),
    /// Firecracker.
    #[error("Firecracker did not pass Ctrl-Alt-Del on")]
    Firecracker(#[source] FirecrackerError),
    /// QEMU.
    #[error("QEMU did not press the power button")]
    Qemu(#[source] QmpError),
}

impl Vmm {
    /// Asks the guest to end, waits as long as configured, then ends the machine.
    pub async fn stop(&self, machine: &Machine) -> io::Result<Option<EndReport>> {
        if let Err(error) = self.ask(machine).await {
            tracing::info!(
                error = %portolan_core::causes::chain(&error), folder = %machine.dir.display(),
                "the guest cannot be asked to end; its machine is switched off"
            );
        } else if let Ok(end) = timeout(self.config().stop_timeout.0, machine.ended()).await {
            return Ok(end);
        }
        machine.kill().await?;
        Ok(machine.ended().await)
    }

    async fn ask(&self, machine: &Machine) -> Result<(), AskError> {
        let socket = Socket::open(&machine.dir).map_err(AskError::Folder)?;
        match self.config().kind {
            Kind::Firecracker => Firecracker { socket: &socket.path, patience: CALL }
                .ctrl_alt_del()
                .await
                .map_err(AskError::Firecracker),
            Kind::Qemu => qemu::power_down(&socket.path, CALL).await.map_err(AskError::Qemu),
        }
    }
}

/// A machine's socket by a short name: a path in an instance's folder may be longer than the 107
/// bytes that a socket's address has.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) path: PathBuf,
    _dir: std::fs::File,
}

impl Socket {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        let dir = std::fs::File::open(dir)?;
        let path = format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), files::SOCKET).into();
        Ok(Self { path, _dir: dir })
    }
}
