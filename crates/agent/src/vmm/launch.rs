//! From a root disk to a started machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use portolan_core::manifest::ImageConfig;
use portolan_registry::durable::{self, DurableError};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::description::MachineDescription;
use super::files::{self, EndReport, Orders, RunningReport, WorkloadEnd};
use super::firecracker::{Firecracker, FirecrackerError, State};
use super::layout::{Prepare, firecracker_args, lay_out};
use super::machine::{CALL, Machine, Socket};
use super::scratch::ScratchDiskError;
use super::{Kind, Vmm, find_program, qemu, shim};
use crate::guest::GuestError;
use crate::guest::cpio::CpioError;
use crate::guest::start::NoProgram;
use crate::id::InstanceId;
use crate::spec::WorkloadSpec;

/// A shim says who runs within milliseconds; on a busy machine within some more.
const SHIM_PATIENCE: Duration = Duration::from_secs(30);

/// What is to be started.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The instance.
    pub id: &'a InstanceId,
    /// Its folder.
    pub dir: &'a Path,
    /// What it asks for.
    pub spec: &'a WorkloadSpec,
    /// How its image is started.
    pub image: &'a ImageConfig,
    /// Its root disk.
    pub root_disk: &'a Path,
    /// Nobody wants it any more.
    pub cancel: &'a CancellationToken,
}

/// Why a machine was not started. Nothing runs then, but for [`LaunchError::Runs`].
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Nobody wants it any more. Nothing runs.
    #[error("the start was cancelled")]
    Cancelled,
    /// There is one already.
    #[error("a machine of this instance runs already")]
    Runs,
    /// Nothing to boot.
    #[error("there is nothing to boot")]
    Guest(#[source] GuestError),
    /// Nothing to run.
    #[error("the workload cannot be started")]
    NoProgram(#[source] NoProgram),
    /// No VMM.
    #[error("there is no {program}; install it, or set vmm.binary in the agent's configuration")]
    NoVmm {
        /// What was looked for.
        program: String,
    },
    /// QEMU's microvm machine is an x86 one.
    #[error("QEMU's microvm machine needs an x86-64 host; set vmm.kind to firecracker")]
    Architecture,
    /// The root disk is not what the cache said.
    #[error("the root disk {} is not usable", path.display())]
    RootDisk {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: io::Error,
    },
    /// No scratch disk.
    #[error("there is no scratch disk")]
    Scratch(#[source] ScratchDiskError),
    /// The initramfs.
    #[error("the initramfs cannot be made")]
    Initramfs(#[source] CpioError),
    /// A file or the shim.
    #[error("cannot {step}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// A file that must be whole.
    #[error("cannot write the machine's orders")]
    Orders(#[source] DurableError),
    /// The shim found no room for its files.
    #[error(
        "there is no room for the machine's own files; free some on the file system of instances/"
    )]
    Full,
    /// The VMM ended at once, or never began.
    #[error("the machine did not start: {0}")]
    Shim(String),
    /// Firecracker refused.
    #[error("Firecracker did not start the machine")]
    Firecracker(#[source] FirecrackerError),
    /// The guest did not start the workload in time.
    #[error(
        "the guest did not start its workload within {} s (vmm.boot_timeout); its console may say \
         why", .0.as_secs()
    )]
    Boot(Duration),
    /// The machine ended before the workload began.
    #[error("the guest ended before its workload began: {0}; its console may say more")]
    Guestless(String),
}

impl LaunchError {
    /// Whether the disk has no room.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full => true,
            Self::Io { source, .. } => durable::is_full(source),
            Self::Scratch(error) => error.is_full(),
            Self::Orders(error) => error.is_full(),
            _ => false,
        }
    }
}

pub(super) fn step(step: &'static str) -> impl FnOnce(io::Error) -> LaunchError {
    move |source| LaunchError::Io { step, source }
}

impl Vmm {
    /// Starts a machine and waits until its workload has begun. A failure leaves no machine, but for
    /// [`LaunchError::Runs`]. To give up, cancel: dropped, it could leave one in the making.
    pub async fn launch(&self, launch: Launch<'_>) -> Result<Machine, LaunchError> {
        let mut retries = self.config().boot_retries;
        loop {
            let machine = self.start(launch).await?;
            match self.boot(machine, launch.cancel).await {
                Err(LaunchError::Boot(patience)) if retries > 0 => {
                    retries -= 1;
                    tracing::warn!(
                        instance_id = %launch.id, seconds = patience.as_secs(),
                        "the guest did not start its workload in time, its machine is started again"
                    );
                }
                outcome => return outcome,
            }
        }
    }

    /// Goes on with a machine that another agent has started. One that was never told to run is
    /// ended: [`LaunchError::Firecracker`] or [`LaunchError::Boot`] is the outcome then.
    pub async fn adopt(
        &self,
        machine: Machine,
        cancel: &CancellationToken,
    ) -> Result<Machine, LaunchError> {
        if machine.booted() {
            return Ok(machine);
        }
        if self.config().kind == Kind::Firecracker {
            let socket = Socket::open(&machine.dir).map_err(step("open the machine's folder"))?;
            let state = Firecracker { socket: &socket.path, patience: CALL }.state().await;
            if !matches!(state, Ok(State::Running)) {
                machine.kill().await.map_err(step("end a machine that was never started"))?;
                return Err(LaunchError::Boot(Duration::ZERO));
            }
        }
        self.boot(machine, cancel).await
    }

    async fn boot(
        &self,
        machine: Machine,
        cancel: &CancellationToken,
    ) -> Result<Machine, LaunchError> {
        let patience = self.config().boot_timeout.0;
        let booted = tokio::select! {
            booted = timeout(patience, machine.wait_booted()) => booted.ok(),
            () = cancel.cancelled() => None,
        };
        match booted {
            Some(true) => Ok(machine),
            Some(false) => {
                let end = machine.ended().await;
                Err(LaunchError::Guestless(in_words(end)))
            }
            None => {
                machine.kill().await.map_err(step("end a machine that does not boot"))?;
                let cancelled = cancel.is_cancelled();
                Err(if cancelled { LaunchError::Cancelled } else { LaunchError::Boot(patience) })
            }
        }
    }

    async fn start(&self, launch: Launch<'_>) -> Result<Machine, LaunchError> {
        let kind = self.config().kind;
        let program = self.program()?;
        let ready = async {
            let guest = self.guest().await.map_err(LaunchError::Guest)?;
            let accel = match kind {
                kind if !Kind::on(std::env::consts::ARCH).contains(&kind) => {
                    return Err(LaunchError::Architecture);
                }
                Kind::Firecracker => None,
                Kind::Qemu => Some(self.accel(guest, &program).await),
            };
            Ok((guest, accel))
        };
        let (guest, accel) = tokio::select! {
            ready = ready => ready?,
            () = launch.cancel.cancelled() => return Err(LaunchError::Cancelled),
        };
        let run = durable::random_hex().map_err(step("draw a random name"))?;
        let prepared = Prepare { launch, guest, kind, run: &run }.describe()?;
        let args = match accel {
            None => firecracker_args(launch.id),
            Some(accel) => {
                let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
                qemu::args(launch.id.as_str(), &prepared.machine, accel, qemu::tsc_khz(&cpuinfo))
            }
        };
        let orders = Orders {
            run: run.clone(),
            token: prepared.start.token.clone(),
            program: program.to_string_lossy().into_owned(),
            args,
            console_max_bytes: self.config().console_max_bytes.0,
        };
        let machine = prepared.machine.clone();
        let (dir, size) = (launch.dir.to_owned(), launch.spec.ephemeral_disk_bytes);
        let initramfs = guest.initramfs(prepared.start).map_err(LaunchError::Initramfs)?;
        let uuid = prepared.scratch_uuid;
        tokio::task::spawn_blocking(move || {
            lay_out(&dir, &orders, &machine, &initramfs, (size, uuid))
        })
        .await
        .expect("it does not panic")?;
        if launch.cancel.is_cancelled() {
            return Err(LaunchError::Cancelled);
        }
        let machine = start_shim(&self.inner.shim, launch.dir, &run).await?;
        if kind == Kind::Firecracker
            && let Err(error) = start_firecracker(launch.dir, &prepared.machine).await
        {
            machine.kill().await.map_err(step("end a machine that was refused"))?;
            return Err(LaunchError::Firecracker(error));
        }
        Ok(machine)
    }

    fn program(&self) -> Result<PathBuf, LaunchError> {
        let config = self.config();
        let name = config.binary.clone().unwrap_or_else(|| config.kind.program().into());
        find_program(&name, std::env::var_os("PATH"))
            .ok_or_else(|| LaunchError::NoVmm { program: name.to_string_lossy().into_owned() })
    }
}

async fn start_shim(program: &Path, dir: &Path, run: &str) -> Result<Machine, LaunchError> {
    let mut child = Command::new(program)
        .arg0("portolan-agent")
        .args([shim::ARGUMENT, run])
        .current_dir(dir)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(step("start the machine's shim"))?;
    let found = wait_for_report(dir, run, &mut child).await;
    // Whoever its parent is must take note of its end.
    tokio::spawn(async move { child.wait().await });
    found
}

async fn wait_for_report(dir: &Path, run: &str, shim: &mut Child) -> Result<Machine, LaunchError> {
    let until = Instant::now() + SHIM_PATIENCE;
    loop {
        // First: a shim that ended may have left both reports.
        let ended = shim.try_wait().map_err(step("look at the machine's shim"))?;
        let report = files::read::<RunningReport>(dir, files::RUNNING);
        if report.is_some_and(|report| report.run == run)
            && let Some(machine) = Machine::open(dir).map_err(step("find the machine"))?
        {
            return Ok(machine);
        }
        if let Some(status) = ended {
            if status.code() == Some(shim::FULL.into()) {
                return Err(LaunchError::Full);
            }
            let end = files::read::<EndReport>(dir, files::ENDED).filter(|end| end.run == run);
            return Err(match end {
                Some(end) => LaunchError::Shim(in_words(Some(end))),
                None => LaunchError::Shim("its shim ended without a word".to_owned()),
            });
        }
        if Instant::now() >= until {
            let _ = shim.start_kill();
            return Err(LaunchError::Shim("its shim does not say that it runs".to_owned()));
        }
        sleep(Duration::from_millis(2)).await;
    }
}

async fn start_firecracker(
    dir: &Path,
    machine: &MachineDescription,
) -> Result<(), FirecrackerError> {
    let connect = |source| FirecrackerError::Connect { request: "GET /".to_owned(), source };
    let socket = Socket::open(dir).map_err(connect)?;
    let firecracker = Firecracker { socket: &socket.path, patience: CALL };
    firecracker.ready().await?;
    firecracker.start(machine).await
}

/// How a machine ended, for a message.
fn in_words(end: Option<EndReport>) -> String {
    match end {
        None => "nobody saw how".to_owned(),
        Some(EndReport { workload: Some(WorkloadEnd::Failed(why)), .. }) => why,
        Some(EndReport { vmm, .. }) => format!("the VMM {vmm}"),
    }
}
