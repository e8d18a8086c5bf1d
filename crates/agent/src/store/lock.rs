//! One agent for one root.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use portolan_registry::durable::DurableError;

/// The lock belongs to the open file, and a process that forks shares its open files until the
/// child calls exec. So a lock whose agent has just ended may be held for another moment by a
/// child that knows nothing of it; only one that stays held is a running agent.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why the root is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent runs.
    #[error(
        "{} belongs to a running agent{}; stop it, or give this one another root",
        path.display(),
        pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
    )]
    Held {
        /// The lock.
        path: PathBuf,
        /// Who wrote it last.
        pid: Option<u32>,
    },
    /// The lock cannot be made or written.
    #[error("the root cannot be locked")]
    File(#[source] DurableError),
}

/// The right to a root, until it is dropped or the process ends.
#[derive(Debug)]
pub struct RootLock(File);

impl RootLock {
    /// Takes the lock at `path`.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        Self::within(path, PATIENCE)
    }

    fn within(path: &Path, patience: Duration) -> Result<Self, LockError> {
        let failed = |step, source| LockError::File(DurableError::io(step, path, source));
        // Closed at exec like every file that std opens.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|e| failed("open", e))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(e)) => return Err(failed("lock", e)),
                Err(TryLockError::WouldBlock) if start.elapsed() >= patience => {
                    return Err(LockError::Held { path: path.to_owned(), pid: pid(&mut file) });
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        // For the message of the next one who comes; the lock itself does not depend on it.
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|e| failed("write", e))?;
        Ok(Self(file))
    }
}

impl Drop for RootLock {
    fn drop(&mut self) {
        // Closing would leave it locked while a child that was just forked has it open, too.
        let _ = self.0.unlock();
    }
}

fn pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_and_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = RootLock::take(&path).unwrap();
        let refused = RootLock::within(&path, Duration::from_millis(30)).unwrap_err();
        assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
        drop(first);
        RootLock::within(&path, Duration::from_millis(30)).unwrap();
    }

    #[test]
    fn a_lock_that_a_child_only_inherited_is_waited_for_and_not_taken_for_an_agent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = RootLock::take(&path).unwrap();
        // What a fork leaves behind: the same open file once more, in other hands.
        let inherited = first.0.try_clone().unwrap();
        std::mem::forget(first);
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(inherited.unlock());
        });
        RootLock::within(&path, Duration::from_secs(20)).unwrap();
        later.join().unwrap();
        // One that is given back is free at once, whoever still has it open.
        let second = RootLock::take(&path).unwrap();
        let _inherited = second.0.try_clone().unwrap();
        drop(second);
        RootLock::within(&path, Duration::ZERO).unwrap();
    }
}
