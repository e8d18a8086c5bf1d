//! The program that becomes the plugin.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use portolan_core::causes::chain;
use rustix::net::RecvFlags;
use rustix::process::Signal;

use super::message::{Control, MessageError};
use super::{ARGUMENT, Layer, Orders, Strictness, Word, files, privileges, syscalls};

/// Why there is no plugin.
#[derive(Debug, thiserror::Error)]
enum HelperError {
    #[error("this command is started by portolan itself, for programs that it does not trust")]
    NotAsked(#[source] MessageError),
    #[error("cannot {step}")]
    Prepare {
        step: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{layer} is not to be had here")]
    Layer {
        layer: Layer,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    #[error("the caller is gone")]
    Orphan,
    #[error("cannot start the plugin")]
    Start(#[source] io::Error),
}

/// Becomes a plugin where the program was started for that, else none. To be called first in
/// `main`, before any thread is there: a thread would keep the rights that this one gives up.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()?.to_str() != Some(ARGUMENT) {
        return None;
    }
    let control = match control() {
        Ok(control) => control,
        Err(error) => {
            complain(&error);
            return Some(ExitCode::from(2));
        }
    };
    let Err(error) = become_plugin(&control);
    let layer = match &error {
        HelperError::Layer { layer, .. } => Some(*layer),
        _ => None,
    };
    if control.send(&Word::Failed { layer, why: chain(&error) }, &[]).is_err() {
        complain(&error);
    }
    Some(ExitCode::from(2))
}

#[allow(clippy::print_stderr, reason = "started by hand, there is nobody else to tell")]
fn complain(error: &HelperError) {
    eprintln!("error: {}", chain(error));
}

/// The socket, away from standard input, where it came in.
fn control() -> Result<Control, HelperError> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
        .map_err(|errno| HelperError::Prepare { step: "keep the socket", source: errno.into() })?;
    Ok(Control::new(socket))
}

fn become_plugin(control: &Control) -> Result<Infallible, HelperError> {
    let orders = control.receive::<Orders>(RecvFlags::empty()).map_err(HelperError::NotAsked)?;
    let Some((orders, descriptors)) = orders else { return Err(HelperError::Orphan) };
    let [program, input] = <[OwnedFd; 2]>::try_from(descriptors)
        .map_err(|_| HelperError::NotAsked(MessageError::Cut))?;
    let prepare =
        |step| move |errno: rustix::io::Errno| HelperError::Prepare { step, source: errno.into() };
    rustix::stdio::dup2_stdin(&input).map_err(prepare("hand the input over"))?;
    drop(input);
    // Away from the caller's terminal; whoever ends the group ends all of it.
    rustix::process::setsid().map_err(prepare("leave the caller's session"))?;
    close_others(&[control_number(control), program.as_raw_fd()])
        .map_err(|source| HelperError::Prepare { step: "close inherited files", source })?;

    let layers = lock_in(&orders)?;
    control.send(&Word::Ready { layers }, &[]).map_err(HelperError::NotAsked)?;
    // The descriptor, not a name: what was hashed is what runs.
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    if let Some((name, arguments)) = orders.arguments.split_first() {
        command.arg0(name).args(arguments);
    }
    command.env_clear().envs(&orders.environment).current_dir("/");
    Err(HelperError::Start(command.exec()))
}

fn control_number(control: &Control) -> i32 {
    use std::os::fd::AsFd as _;
    control.as_fd().as_raw_fd()
}

/// Wishes to be ended as soon as the caller is. After the user was changed, which forgets such a
/// wish, and before the filter, which lets nobody take it back.
fn end_with(caller: u32) -> Result<(), HelperError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| {
        HelperError::Prepare { step: "ask to end with the caller", source: errno.into() }
    })?;
    // Only then the look at who the caller is, so that its end is never missed.
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if u32::try_from(parent) == Ok(caller) { Ok(()) } else { Err(HelperError::Orphan) }
}

/// Every layer that can be had, the ones that take away most last.
fn lock_in(orders: &Orders) -> Result<Vec<Layer>, HelperError> {
    let mut layers = privileges::drop_all();
    end_with(orders.parent)?;
    let mut note = |layer, outcome: Result<bool, Box<dyn std::error::Error + Send + Sync>>| {
        match outcome {
            Ok(true) => layers.push(layer),
            Ok(false) if orders.strictness == Strictness::Required => {
                return Err(HelperError::Layer { layer, source: None });
            }
            Err(source) if orders.strictness == Strictness::Required => {
                return Err(HelperError::Layer { layer, source: Some(source) });
            }
            _ => {}
        }
        Ok(())
    };
    note(Layer::Limits, orders.limits.apply().map(|()| true).map_err(Into::into))?;
    note(Layer::Landlock, files::restrict(&orders.read, &orders.execute).map_err(Into::into))?;
    note(
        Layer::Seccomp,
        syscalls::restrict(std::process::id()).map(|()| true).map_err(Into::into),
    )?;
    layers.sort_unstable();
    let missing = Layer::NEEDED.into_iter().find(|layer| !layers.contains(layer));
    match missing.filter(|_| orders.strictness == Strictness::Required) {
        Some(layer) => Err(HelperError::Layer { layer, source: None }),
        None => Ok(layers),
    }
}

/// Closes whatever the caller's caller left open; our own descriptors close themselves.
fn close_others(keep: &[i32]) -> io::Result<()> {
    let listed: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2 && !keep.contains(number))
        .collect();
    for number in listed {
        // The list's own descriptor is gone by now, and says so.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}
