//! Starts the image's program, passes on the wish to end, and outlives it.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Gid, Pid, Signal, Uid, WaitOptions, kill_process, wait};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::config::Config;
use crate::console::Console;
use crate::power;
use crate::step::{Failed, Step as _};
use crate::user::Identity;
use crate::{program, signal, user};

/// `/etc/passwd` and `/etc/group` of an image are foreign bytes; real ones have a few KiB.
const MAX_ACCOUNTS_BYTES: u64 = 4 << 20;

/// Runs the workload and tells how it ended.
pub(crate) fn run(config: &Config, console: &Console) -> Result<(), Failed> {
    let stop = signal::parse(&config.stop_signal).ok_or_else(|| {
        Failed::new("understand the image's stop signal", format!("{:?}", config.stop_signal))
    })?;
    let identity =
        user::resolve(&config.user, &read_accounts("/etc/passwd")?, &read_accounts("/etc/group")?)
            .step("find the user", format_args!("{:?}", config.user))?;
    let command = command(config, &identity)?;
    // Before the workload is there, so that no wish is lost.
    let wishes = listen()?;
    console.say("workload started");
    let pid = spawn(command, identity)?;
    std::thread::spawn(move || pass_on(&wishes, pid, stop));
    console.say(&reap(pid)?);
    Ok(())
}

fn command(config: &Config, identity: &Identity) -> Result<Command, Failed> {
    let cwd = if config.cwd.is_empty() { "/" } else { &config.cwd };
    fs::create_dir_all(cwd)
        .and_then(|()| std::env::set_current_dir(cwd))
        .step("go to the working directory", cwd)?;
    let env = program::environment(&config.env, &identity.home);
    let name = config.argv.first().map_or("", String::as_str);
    let executable = |candidate: &str| {
        fs::metadata(candidate)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let path = env.get("PATH").map_or("", String::as_str);
    let path = program::search(name, path, executable).step("find", "the program")?;
    let mut command = Command::new(path);
    command.arg0(name).args(config.argv.iter().skip(1)).env_clear().envs(env);
    command.stdin(Stdio::null()).process_group(0);
    Ok(command)
}

/// Starts the command under another identity: the kernel keeps identities for each thread, so the
/// one that starts it changes its own and ends, and process 1 stays root.
fn spawn(mut command: Command, identity: Identity) -> Result<Pid, Failed> {
    let program = command.get_program().to_string_lossy().into_owned();
    let starter = std::thread::spawn(move || -> io::Result<u32> {
        let groups: Vec<Gid> = identity.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        Ok(command.spawn()?.id())
    });
    let started = starter.join().map_err(|_| Failed::new("start the workload", "a bug"))?;
    let pid = started.step("execute", &program)?;
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| Failed::new("start the workload", "it has no process id"))
}

/// A stream on which a byte arrives for each wish that the workload should end: Ctrl-Alt-Del (how
/// Firecracker asks, a SIGINT to process 1), SIGTERM, or the power button (QEMU).
fn listen() -> Result<UnixStream, Failed> {
    let (wishes, wish) = UnixStream::pair().step("make", "a socket pair")?;
    for signal in [SIGINT, SIGTERM] {
        let wish = wish.try_clone().step("copy", "a socket")?;
        signal_hook::low_level::pipe::register(signal, wish).step("listen for signal", signal)?;
    }
    // Without this, Ctrl-Alt-Del resets the machine at once.
    let _ = rustix::system::reboot(rustix::system::RebootCommand::CadOff);
    for device in fs::read_dir("/dev/input").into_iter().flatten().flatten() {
        let named_event = device.file_name().to_string_lossy().starts_with("event");
        if let (true, Ok(file), Ok(wish)) =
            (named_event, File::open(device.path()), wish.try_clone())
        {
            std::thread::spawn(move || {
                power::watch_button(file, || {
                    let _ = io::Write::write_all(&mut &wish, b"b");
                });
            });
        }
    }
    Ok(wishes)
}

fn pass_on(mut wishes: &UnixStream, workload: Pid, stop: Signal) {
    let mut byte = [0];
    while wishes.read_exact(&mut byte).is_ok() {
        // It may have ended a moment ago.
        let _ = kill_process(workload, stop);
    }
}

/// Buries every child, also those that others left behind, until the workload itself ended.
fn reap(workload: Pid) -> Result<String, Failed> {
    loop {
        let (pid, status) = match wait(WaitOptions::empty()) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(cause) => return Err(Failed::new("wait for the workload", cause)),
        };
        if pid == workload {
            return Ok(match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("workload exited with status {code}"),
                (_, Some(signal)) => format!("workload was killed by signal {signal}"),
                _ => continue,
            });
        }
    }
}

/// A file that is not there is an empty one; bytes that are no UTF-8 cannot be in a name we look for.
fn read_accounts(path: &str) -> Result<String, Failed> {
    let mut bytes = Vec::new();
    match File::open(path)
        .and_then(|file| file.take(MAX_ACCOUNTS_BYTES + 1).read_to_end(&mut bytes))
    {
        Ok(_) if bytes.len() as u64 > MAX_ACCOUNTS_BYTES => Err(Failed::new(
            format!("read {path}"),
            format!("more than {MAX_ACCOUNTS_BYTES} bytes"),
        )),
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).step("read", path),
    }
}
