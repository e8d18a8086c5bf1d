//! `--boot`: the root disk in a microVM, its console, and how long the program took to its first line.

use std::env::consts::ARCH;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::StreamExt as _;
use portolan_agent::api::{InstanceStatus, Phase};
use portolan_agent::client::Client;
use portolan_agent::config::{Config, Span};
use portolan_agent::guest::{GuestConfig, find};
use portolan_agent::id::InstanceId;
use portolan_agent::spec::{ImageSpec, WorkloadSpec};
use portolan_agent::vmm::console_files::Files;
use portolan_agent::vmm::files::{CONSOLE, CONSOLE_OLD, EndReport, WorkloadEnd};
use portolan_agent::vmm::{
    self, AccelChoice, Found, Kind, Launch, LaunchError, Machine, Vmm, VmmConfig,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::console::Console;
use super::log::{Done, Screens};
use super::report::Booted;
use super::site::{Site, local};
use super::{disk, interrupted};
use crate::agent;
use crate::exit::{Exit, Failure};

/// How often the console of a machine is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// A guest that boots on KVM does so in a fraction of this.
const PROBE: Span = Span::seconds(5);

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Booting")]
pub(crate) struct BootArgs {
    /// Start the root disk in a microVM, show its console and tell the time to the first line
    #[arg(long)]
    pub(super) boot: bool,
    /// What runs the machine; Firecracker where it is in PATH and /dev/kvm opens, else QEMU
    #[arg(long, value_enum, requires = "boot")]
    vmm: Option<VmmArg>,
    /// The guest's kernel; the newest of /boot where nothing is said
    #[arg(long, value_name = "FILE", requires = "boot")]
    kernel: Option<PathBuf>,
    /// The folder of its modules; that of the kernel that was found
    #[arg(long, value_name = "DIR", requires = "kernel")]
    modules: Option<PathBuf>,
    /// The static portolan-init; the one beside this program or that cargo built
    #[arg(long, value_name = "FILE", requires = "boot")]
    init: Option<PathBuf>,
    /// Of QEMU: what executes the guest's instructions
    #[arg(long, value_enum, requires = "boot")]
    accel: Option<AccelArg>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum VmmArg {
    Firecracker,
    Qemu,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum AccelArg {
    /// KVM where a guest boots on it, else software emulation
    Auto,
    /// KVM, or nothing
    Kvm,
    /// Software emulation
    Tcg,
}

/// What a machine is started with.
#[derive(Debug)]
pub(super) struct Machinery {
    vmm: VmmConfig,
    guest: GuestConfig,
}

impl BootArgs {
    /// The first flag that only means something where no agent boots.
    pub(super) fn own(&self) -> Option<&'static str> {
        let said = [
            ("--vmm", self.vmm.is_some()),
            ("--kernel", self.kernel.is_some()),
            ("--init", self.init.is_some()),
            ("--accel", self.accel.is_some()),
        ];
        said.into_iter().find_map(|(flag, said)| said.then_some(flag))
    }

    /// Finds everything that a machine needs; what is missing is told before anything is done.
    /// `configured` is whether somebody wrote a configuration, whose words then count.
    pub(super) fn machinery(
        &self,
        config: &Config,
        configured: bool,
    ) -> Result<Machinery, Failure> {
        let path = std::env::var_os("PATH");
        let kind = match (self.vmm, configured) {
            (Some(VmmArg::Firecracker), _) => Kind::Firecracker,
            (Some(VmmArg::Qemu), _) => Kind::Qemu,
            (None, true) => config.vmm.kind,
            (None, false) => found(path.clone(), kvm_opens(), ARCH),
        };
        runs_here(kind, ARCH)?;
        let accel = match self.accel {
            None => config.vmm.accel,
            Some(AccelArg::Auto) => AccelChoice::Auto,
            Some(AccelArg::Kvm) => AccelChoice::Kvm,
            Some(AccelArg::Tcg) => AccelChoice::Tcg,
        };
        let kvm_probe_timeout = if configured { config.vmm.kvm_probe_timeout } else { PROBE };
        // A program that is named is another kind's where that was chosen here.
        let binary = config.vmm.binary.clone().filter(|_| config.vmm.kind == kind);
        if binary.is_none() && !kind.is_in(path) {
            return Err(no_vmm(kind, ARCH));
        }
        if (kind == Kind::Firecracker || accel == AccelChoice::Kvm) && !kvm_opens() {
            return Err(no_kvm(kind, ARCH));
        }
        let named = GuestConfig {
            kernel: self.kernel.clone().or_else(|| config.guest.kernel.clone()),
            modules_dir: match &self.kernel {
                Some(_) => self.modules.clone(),
                None => config.guest.modules_dir.clone(),
            },
            init: self.init.clone().or_else(|| config.guest.init.clone()),
            ..config.guest.clone()
        };
        let own = std::env::current_exe().context("find this program").map_err(local)?;
        let guest = find::complete(&named, kind, Path::new("/"), &own)
            .map_err(|error| Failure::new(Exit::NotFound, error))?;
        let vmm = VmmConfig { kind, accel, kvm_probe_timeout, binary, ..config.vmm.clone() };
        Ok(Machinery { vmm, guest })
    }
}

/// Firecracker does nothing without KVM. Where QEMU is not there either, KVM is what is missing.
fn found(path: Option<OsString>, kvm: bool, architecture: &str) -> Kind {
    match Kind::found_in(path.clone()) {
        _ if !Kind::on(architecture).contains(&Kind::Qemu) => Kind::Firecracker,
        Kind::Firecracker if !kvm && Kind::Qemu.is_in(path) => Kind::Qemu,
        kind => kind,
    }
}

/// Before anything of it is looked for: what cannot run here need not be installed.
fn runs_here(kind: Kind, architecture: &str) -> Result<(), Failure> {
    if Kind::on(architecture).contains(&kind) {
        return Ok(());
    }
    let error = anyhow::anyhow!(
        "QEMU's microvm machine is one of x86-64, and this host is {architecture}; use --vmm firecracker, \
         which boots here with KVM"
    );
    Err(Failure::usage(error))
}

fn kvm_opens() -> bool {
    std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok()
}

fn no_kvm(kind: Kind, architecture: &str) -> Failure {
    let instead = match kind {
        Kind::Firecracker if Kind::on(architecture).contains(&Kind::Qemu) => {
            "use --vmm qemu, which needs none, or ask for access to it"
        }
        Kind::Firecracker => "nothing boots on this architecture without it; ask for access to it",
        Kind::Qemu => "use --accel tcg, which needs none, or ask for access to it",
    };
    let error = anyhow::anyhow!("/dev/kvm is not there or not open to this user; {instead}");
    Failure::new(Exit::NotFound, error)
}

fn no_vmm(kind: Kind, architecture: &str) -> Failure {
    let error = match kind {
        Kind::Firecracker if Kind::on(architecture).contains(&Kind::Qemu) => {
            anyhow::anyhow!("there is no firecracker in PATH; use --vmm qemu")
        }
        Kind::Firecracker => anyhow::anyhow!(
            "there is no firecracker in PATH, and nothing else boots machines on {architecture}; \
             install it (docs/microvm.md)"
        ),
        Kind::Qemu => anyhow::anyhow!(
            "there is no qemu-system-x86_64 in PATH; install it (Debian: qemu-system-x86), or firecracker"
        ),
    };
    Failure::new(Exit::NotFound, error)
}

/// What is said of a machine that ran, and whether its program ended well.
pub(super) type Ran = (Booted, bool);

/// Boots it with a machine of our own.
pub(super) async fn ourselves(
    machinery: Machinery,
    site: &Site,
    disk: &disk::RootDisk,
    cancel: &CancellationToken,
    screens: &Screens,
) -> Result<Done<Ran>, Failure> {
    let (artifact, _) = disk.own.as_ref().context("an agent has the disk").map_err(local)?;
    let dir = site.machine()?;
    settle(&dir).await?;
    let kind = machinery.vmm.kind;
    let vmm = Vmm::new(machinery.vmm, machinery.guest, &dir);
    let (id, spec) = (name(&disk.spec)?, workload(&disk.spec)?);
    let launch = Launch {
        id: &id,
        dir: &dir,
        spec: &spec,
        image: &artifact.config,
        root_disk: &artifact.disk,
        cancel,
    };
    let mut console = Console::new(Instant::now(), screens);
    let paths = [dir.join(CONSOLE_OLD), dir.join(CONSOLE)];
    let mut files = Files::open(paths, None, true).context("read the console").map_err(local)?;
    let ended = match launched(&vmm, launch, &mut files, &mut console).await {
        Ok(machine) => {
            let ended = watched(&machine, &mut files, &mut console, cancel).await;
            if ended.is_err() {
                // However the watching ended, nothing of it runs on.
                machine.kill().await.context("end the machine").map_err(local)?;
            }
            ended
        }
        Err(failure) => Err(failure),
    };
    show(&mut files, &mut console)?;
    console.finish();
    let (end, ok) = told(ended?);
    let vmm = match kind {
        Kind::Firecracker => "Firecracker",
        Kind::Qemu => "QEMU",
    };
    Ok(done(console.booted(vmm, end), ok))
}

/// Starts a machine and shows what it says meanwhile. A failure, of the showing too, leaves no machine: the launch is
/// cancelled and waited for, since one that is dropped could leave a machine in the making.
async fn launched(
    vmm: &Vmm,
    launch: Launch<'_>,
    files: &mut Files,
    console: &mut Console<'_>,
) -> Result<Machine, Failure> {
    let cancel = launch.cancel.child_token();
    let mut shown = Ok(());
    let launched = {
        let mut launching = pin!(vmm.launch(Launch { cancel: &cancel, ..launch }));
        loop {
            tokio::select! {
                launched = &mut launching => break launched,
                () = sleep(LOOK), if shown.is_ok() => {
                    shown = show(files, console);
                    if shown.is_err() {
                        cancel.cancel();
                    }
                }
            }
        }
    };
    match (launched, shown) {
        (Ok(machine), Ok(())) => Ok(machine),
        (Ok(machine), Err(failure)) => {
            machine.kill().await.context("end the machine").map_err(local)?;
            Err(failure)
        }
        (Err(error), Ok(())) => Err(launch_failure(error, launch.dir)),
        (Err(_), Err(failure)) => Err(failure),
    }
}

/// Waits for the end of a machine. Whoever is told of a failure, such as being asked to stop, has to end it.
async fn watched(
    machine: &Machine,
    files: &mut Files,
    console: &mut Console<'_>,
    cancel: &CancellationToken,
) -> Result<Option<EndReport>, Failure> {
    let mut ended = pin!(machine.ended());
    loop {
        tokio::select! {
            end = &mut ended => return Ok(end),
            () = cancel.cancelled() => return Err(interrupted()),
            () = sleep(LOOK) => show(files, console)?,
        }
    }
}

fn show(files: &mut Files, console: &mut Console<'_>) -> Result<(), Failure> {
    loop {
        let bytes = files.read().context("read the console").map_err(local)?;
        if bytes.is_empty() {
            return Ok(());
        }
        console.push(&bytes);
    }
}

/// Ends what a run that was killed left, and removes what it wrote.
async fn settle(dir: &Path) -> Result<(), Failure> {
    match vmm::look(dir).await.context("look for a machine").map_err(local)? {
        Found::Nothing(_) => {}
        Found::Running(machine) => machine.kill().await.context("end a machine").map_err(local)?,
        Found::Unsure(why) => return Err(local(anyhow::anyhow!(why))),
    }
    for name in [CONSOLE, CONSOLE_OLD] {
        let _ = std::fs::remove_file(dir.join(name));
    }
    Ok(())
}

fn launch_failure(error: LaunchError, dir: &Path) -> Failure {
    match error {
        LaunchError::Cancelled => interrupted(),
        LaunchError::NoProgram(_) => Failure::usage(error),
        error => {
            let what = format!("the machine's files are in {}", dir.display());
            local(anyhow::Error::new(error).context(what))
        }
    }
}

fn told(end: Option<EndReport>) -> (String, bool) {
    match end {
        None => ("nobody saw how it ended".to_owned(), false),
        Some(EndReport { workload: Some(workload), .. }) => match workload {
            WorkloadEnd::Exited(status) => (format!("exited with status {status}"), status == 0),
            WorkloadEnd::Killed(signal) => (format!("was killed by signal {signal}"), false),
            WorkloadEnd::Failed(why) => (why, false),
        },
        Some(EndReport { vmm, .. }) => (format!("the VMM {vmm}"), false),
    }
}

/// Boots it with the agent that runs here.
pub(super) async fn by_agent(
    client: &Client,
    spec: &ImageSpec,
    cancel: &CancellationToken,
    screens: &Screens,
) -> Result<Done<Ran>, Failure> {
    let (id, spec) = (name(spec)?, workload(spec)?);
    let ran = tokio::select! {
        ran = asked(client, &id, &spec, screens) => ran,
        () = cancel.cancelled() => Err(interrupted()),
    };
    let gone = client.delete(&id).await.map_err(agent::failure);
    let ran = ran?;
    gone?;
    Ok(ran)
}

async fn asked(
    client: &Client,
    id: &InstanceId,
    spec: &WorkloadSpec,
    screens: &Screens,
) -> Result<Done<Ran>, Failure> {
    // One that ended is not started again by itself, and one that was left is not this one.
    client.delete(id).await.map_err(agent::failure)?;
    let mut console = Console::new(Instant::now(), screens);
    client.put(id, spec).await.map_err(agent::failure)?;
    let mut text = client.console(id, None, true).await.map_err(agent::failure)?;
    while let Some(bytes) = text.next().await {
        console.push(&bytes.map_err(agent::failure)?);
    }
    console.finish();
    let now = client.get(id).await.map_err(agent::failure)?;
    let (end, ok) = outcome(&now)?;
    Ok(done(console.booted("the agent", end), ok))
}

fn outcome(now: &InstanceStatus) -> Result<(String, bool), Failure> {
    match (now.exit.and_then(|exit| exit.code), now.exit.and_then(|exit| exit.signal)) {
        (Some(code), _) => Ok((format!("exited with status {code}"), code == 0)),
        (None, Some(signal)) => Ok((format!("was killed by signal {signal}"), false)),
        (None, None) if now.phase == Phase::Stopped => Ok(("ended".to_owned(), true)),
        (None, None) => {
            let why = now.message.clone().unwrap_or_else(|| format!("it is {}", now.phase));
            Err(local(anyhow::anyhow!("the agent did not boot it: {why}")))
        }
    }
}

fn done(booted: Booted, ok: bool) -> Done<Ran> {
    let line = match (&booted.first_line, booted.seconds_to_first_line) {
        (Some(line), Some(seconds)) => format!("{line:?} after {seconds:.3} s"),
        _ => "the program wrote nothing".to_owned(),
    };
    let result = format!("{line}, {} ({})", booted.end, booted.vmm);
    Done::new((booted, ok), result)
}

fn workload(spec: &ImageSpec) -> Result<WorkloadSpec, Failure> {
    // The other fields are as an agent takes them to be.
    let workload = serde_json::json!({ "image": spec });
    serde_json::from_value(workload).context("make a WorkloadSpec").map_err(local)
}

/// The machine's name: what the image is called.
fn name(spec: &ImageSpec) -> Result<InstanceId, Failure> {
    let last = spec.repository.rsplit('/').next().unwrap_or_default();
    let base: String = last.chars().take(50).collect();
    let named = format!("ship-{base}").trim_end_matches(['-', '_', '.']).parse();
    named.context("the image's name is no name for a machine").map_err(Failure::usage)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn firecracker_is_chosen_only_where_it_can_run_something() {
        let bin = tempfile::tempdir().unwrap();
        let path = || Some(bin.path().as_os_str().to_owned());
        let add = |name: &str| {
            let file = bin.path().join(name);
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        add("firecracker");
        let chosen = |kvm, architecture| found(path(), kvm, architecture);
        assert_eq!(chosen(true, "x86_64"), Kind::Firecracker);
        assert_eq!(chosen(false, "x86_64"), Kind::Firecracker, "there is nothing else");
        add("qemu-system-x86_64");
        assert_eq!(chosen(true, "x86_64"), Kind::Firecracker);
        assert_eq!(chosen(false, "x86_64"), Kind::Qemu);
        assert_eq!(chosen(false, "aarch64"), Kind::Firecracker, "it runs no machine of this kind");
        std::fs::remove_file(bin.path().join("firecracker")).unwrap();
        assert_eq!(chosen(true, "aarch64"), Kind::Firecracker);
        assert_eq!(chosen(true, "x86_64"), Kind::Qemu);
    }

    #[test]
    fn nobody_is_sent_to_what_his_processor_does_not_run() {
        let qemu = runs_here(Kind::Qemu, "aarch64").unwrap_err();
        assert!(qemu.error.to_string().contains("--vmm firecracker"), "{}", qemu.error);
        for kind in [Kind::Firecracker, Kind::Qemu] {
            assert!(runs_here(kind, "x86_64").is_ok());
        }
        for failure in [no_vmm(Kind::Firecracker, "aarch64"), no_kvm(Kind::Firecracker, "aarch64")]
        {
            assert!(!failure.error.to_string().contains("qemu"), "{}", failure.error);
        }
        for failure in [no_vmm(Kind::Firecracker, "x86_64"), no_kvm(Kind::Firecracker, "x86_64")] {
            assert!(failure.error.to_string().contains("--vmm qemu"), "{}", failure.error);
        }
    }
}
