//! `wait-upload`: the pod waits until somebody's files are there.
//!
//! A lock file says "not yet". Whoever sends the files removes it when they are done; this is the
//! protocol of Shipwright's waiter. Its clients also call `tar` in the pod, which our image lacks, so they
//! do not work with it; `portolan build upload` does.

use std::path::Path;
use std::time::{Duration, Instant};

use super::StepError;

/// How long is waited where nothing sensible is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// A shorter wait than this cannot be meant.
const SHORTEST: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(100);

/// How long a wait really is, and whether that is not what was said.
pub fn effective_timeout(said: Option<Duration>) -> (Duration, bool) {
    match said {
        None => (DEFAULT_TIMEOUT, false),
        Some(short) if short <= SHORTEST => (DEFAULT_TIMEOUT, true),
        Some(timeout) => (timeout, false),
    }
}

/// Makes the lock file and waits until it is gone.
pub fn wait(lock: &Path, timeout: Duration) -> Result<(), StepError> {
    let reason = "UploadTimeout";
    let pid = std::process::id();
    std::fs::write(lock, pid.to_string()).map_err(|source| {
        StepError::local("UploadFailed", format!("cannot write {}", lock.display()), source)
    })?;
    let end = Instant::now() + timeout;
    while lock.symlink_metadata().is_ok() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let what = format!(
                "no upload was finished within {} s; send the source with `portolan build upload`, or set spec.source.local.timeout",
                timeout.as_secs_f32()
            );
            return Err(StepError::no(reason, what));
        }
        std::thread::sleep(POLL.min(left));
    }
    Ok(())
}

/// Says that the files are there. Twice is as good as once.
pub fn done(lock: &Path) -> Result<(), StepError> {
    match std::fs::remove_file(lock) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => {
            let what = format!("cannot remove {}", lock.display());
            Err(StepError::local("UploadFailed", what, source))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_until_the_lock_is_gone_and_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("waiter.lock");
        let (place, began) = (lock.clone(), Instant::now());
        let sender = std::thread::spawn(move || {
            while !place.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let pid = std::fs::read_to_string(&place).unwrap();
            std::thread::sleep(Duration::from_millis(150));
            done(&place).unwrap();
            done(&place).unwrap();
            pid
        });
        wait(&lock, Duration::from_secs(20)).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(150));
        assert_eq!(sender.join().unwrap(), std::process::id().to_string());
        let error = wait(&lock, Duration::from_millis(30)).unwrap_err();
        assert_eq!((error.reason, error.exit), ("UploadTimeout", 1));
        assert!(wait(&dir.path().join("none/lock"), Duration::from_secs(2)).is_err());
    }

    #[test]
    fn a_timeout_that_cannot_be_meant_is_a_minute() {
        assert_eq!(effective_timeout(None), (DEFAULT_TIMEOUT, false));
        assert_eq!(effective_timeout(Some(Duration::from_secs(1))), (DEFAULT_TIMEOUT, true));
        let long = Duration::from_secs(90);
        assert_eq!(effective_timeout(Some(long)), (long, false));
    }
}
