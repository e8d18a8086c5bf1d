//! Ending a clone from outside: with git go the programs that it started.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use rustix::process::{Pid, Signal, kill_process_group};

/// A program that said its last word ends within moments.
const POLL: Duration = Duration::from_millis(2);

/// Ends a clone, whatever it is at.
#[derive(Debug, Clone, Default)]
pub struct Halt(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    halted: bool,
    /// What runs now, the first of a group of its own. As long as it was not waited for, the group is its own.
    running: Option<Child>,
}

impl Halt {
    /// Ends what runs, and begins nothing more.
    pub fn now(&self) {
        let mut state = self.state();
        state.halted = true;
        if let Some(pid) =
            state.running.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed()))
        {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program, and returns the pipes of its output.
    pub(super) fn start(&self, command: &mut Command) -> io::Result<Pipes> {
        let mut state = self.state();
        if state.halted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut child = command.process_group(0).spawn()?;
        let pipes = Pipes { out: child.stdout.take(), err: child.stderr.take() };
        state.running = Some(child);
        Ok(pipes)
    }

    /// Waits for the program that was started, once its output has ended.
    pub(super) fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            let mut state = self.state();
            let Some(child) = &mut state.running else {
                return Err(io::ErrorKind::NotFound.into());
            };
            if let Some(status) = child.try_wait()? {
                state.running = None;
                return Ok(status);
            }
            drop(state);
            thread::sleep(POLL);
        }
    }
}

/// What a program says.
pub(super) struct Pipes {
    pub(super) out: Option<std::process::ChildStdout>,
    pub(super) err: Option<std::process::ChildStderr>,
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_runs_ends_with_all_that_it_started() {
        let halt = Halt::default();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped());
        let pipes = halt.start(&mut command).unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(pipes.out.unwrap()), &mut line)
            .unwrap();
        let grandchild = format!("/proc/{}/stat", line.trim());
        assert!(std::fs::exists(&grandchild).unwrap());
        halt.now();
        assert!(!halt.wait().unwrap().success());
        let end = Instant::now() + Duration::from_secs(10);
        // Whoever takes orphans over may leave it as a zombie for a moment.
        let runs = || std::fs::read_to_string(&grandchild).is_ok_and(|stat| !stat.contains(") Z "));
        while runs() {
            assert!(Instant::now() < end, "it runs");
            thread::sleep(POLL);
        }
        let again = halt.start(&mut Command::new("true"));
        assert!(again.is_err_and(|error| error.kind() == io::ErrorKind::Interrupted));
    }
}
