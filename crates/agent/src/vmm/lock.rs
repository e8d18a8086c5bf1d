//! The lock that says "a machine of this instance lives".
//!
//! It is taken by the shim, inherited by its VMM, and so free only when both have ended. The agent
//! takes it for a moment to look, and while it prepares or removes a machine.
//!
//! The agent gives it back with an unlock, not by closing alone: a child that another thread has
//! just forked, and which has not executed its program yet, holds a copy of every descriptor, and
//! with a copy the lock would live on. For the same reason a lock that looks held is looked at
//! again for a while before it is believed.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::files;

/// How long a lock is looked at that seems to be held. Forked children execute within
/// milliseconds; on a busy machine within some more.
const PATIENCE: Duration = Duration::from_secs(3);

/// The lock, held.
#[derive(Debug)]
pub struct MachineLock {
    file: Option<File>,
}

impl MachineLock {
    /// Takes the lock in an instance's folder; none where a machine has it. Blocks for seconds at
    /// worst.
    pub fn take(dir: &Path) -> io::Result<Option<Self>> {
        Self::take_within(dir, PATIENCE)
    }

    /// The same with another patience.
    pub fn take_within(dir: &Path, patience: Duration) -> io::Result<Option<Self>> {
        let path = dir.join(files::LOCK);
        let until = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            let opened =
                File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let file = match opened {
                // Nobody can have locked that, and nobody ever could.
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    std::fs::remove_dir_all(&path)?;
                    continue;
                }
                opened => opened?,
            };
            match file.try_lock() {
                // Somebody may have removed and made the folder anew between the two.
                Ok(()) if is_at(&file, &path)? => return Ok(Some(Self { file: Some(file) })),
                Ok(()) => file.unlock()?,
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return Ok(None),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Gives up unlocking: the lock ends with the last descriptor of it, in whichever process.
    pub(super) fn leave_to_descendants(mut self) -> io::Result<File> {
        let file = self.file.take().expect("only taken here and on drop");
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?;
        Ok(file)
    }
}

impl Drop for MachineLock {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // Cannot fail for a descriptor of ours; and if it did, closing would still unlock.
            let _ = file.unlock();
        }
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((held.dev(), held.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = MachineLock::take(dir.path()).unwrap().unwrap();
        // What a forked child has for a moment.
        let copy = lock.file.as_ref().unwrap().try_clone().unwrap();
        assert!(MachineLock::take_within(dir.path(), Duration::ZERO).unwrap().is_none());
        drop(lock);
        assert!(MachineLock::take_within(dir.path(), Duration::ZERO).unwrap().is_some());
        drop(copy);
    }
}
