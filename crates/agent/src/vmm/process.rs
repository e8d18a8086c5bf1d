//! Processes that may not be our children: by number and start time, held by a pidfd.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::files::ProcessName;

/// A process that lived when it was opened. Its number cannot be taken for another's: the kernel
/// object is held, not the number.
#[derive(Debug)]
pub struct Process {
    name: ProcessName,
    handle: AsyncFd<OwnedFd>,
}

impl Process {
    /// The process of this name, or none where it has ended.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn open(name: ProcessName) -> io::Result<Option<Self>> {
        let Some(pid) = Pid::from_raw(name.pid) else { return Ok(None) };
        let handle = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Only now: between a look at the time and the opening the number could change hands.
        if start_time(name.pid)? != Some(name.start) {
            return Ok(None);
        }
        #[expect(
            deprecated,
            reason = "the successor is an unsafe function for types that may close their \
                      descriptor behind the reactor's back; an OwnedFd cannot"
        )]
        let handle = AsyncFd::with_interest(handle, Interest::READABLE)?;
        Ok(Some(Self { name, handle }))
    }

    /// Its name.
    pub fn name(&self) -> ProcessName {
        self.name
    }

    /// Waits until it has ended.
    pub async fn ended(&self) {
        // A pidfd becomes readable when its process ends, and stays so. Trouble with the reactor
        // only comes with its end, when nobody waits any more.
        let _ = self.handle.readable().await;
    }

    /// Sends a signal; one that has ended has got them all.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(self.handle.get_ref(), signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The name of a process that is known to live, such as a child that nobody has waited for.
pub fn name_of(pid: u32) -> io::Result<ProcessName> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, "the process has ended");
    let pid = i32::try_from(pid).map_err(|_| gone())?;
    Ok(ProcessName { pid, start: start_time(pid)?.ok_or_else(gone)? })
}

/// When a process began; none where there is none, or only its remains.
fn start_time(pid: i32) -> io::Result<Option<u64>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => Ok(parse_stat(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // Between opening and reading it ended.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Field 22 of `/proc/PID/stat`. The second field is the program's name, which may hold anything,
/// so counting begins behind its last parenthesis. A zombie has ended.
fn parse_stat(text: &str) -> Option<u64> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_hides_nothing() {
        let tail = "1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 98765 0 0";
        assert_eq!(parse_stat(&format!("7 (a) b (c) S {tail}")), Some(98765));
        assert_eq!(parse_stat(&format!("7 (a) Z {tail}")), None);
        assert_eq!(parse_stat("7 (a"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[tokio::test]
    async fn another_process_with_the_number_is_not_taken_for_it() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let name = name_of(child.id()).unwrap();
        let process = Process::open(name).unwrap().unwrap();
        assert!(Process::open(ProcessName { start: name.start + 1, ..name }).unwrap().is_none());
        process.signal(Signal::KILL).unwrap();
        process.ended().await;
        child.wait().unwrap();
        process.signal(Signal::KILL).unwrap();
        assert!(Process::open(name).unwrap().is_none());
    }
}
