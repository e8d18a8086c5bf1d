//! A directory to work in that goes with its process, also one that is killed.
//!
//! A directory is locked as long as its process lives, so what nobody holds a lock on was left by one
//! that is gone: whoever begins next removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What the names of all of them begin with.
const PREFIX: &str = "portolan-work-";
/// What is worked in: layouts lock their own directory, so that is not the one locked here.
const INSIDE: &str = "here";
/// So often another process may be faster to sweep a directory away than its maker locks it.
const TRIES: usize = 16;

/// A directory of one piece of work, gone with the value.
#[derive(Debug)]
pub struct Workshop {
    path: PathBuf,
    // In this order: what is unlocked before it is removed, somebody else could remove, too.
    _dir: tempfile::TempDir,
    _lock: File,
}

impl Workshop {
    /// A new one in `temp`, where those of killed processes are removed first.
    pub fn new(temp: &Path) -> io::Result<Self> {
        sweep(temp);
        for _ in 0..TRIES {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(temp)?;
            if let Some(lock) = locked(dir.path())? {
                let path = dir.path().join(INSIDE);
                fs::create_dir(&path)?;
                return Ok(Self { path, _dir: dir, _lock: lock });
            }
        }
        Err(io::Error::other("others remove new directories as soon as they are made"))
    }

    /// Where to work.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Locks a directory that was just made; none where somebody swept it away before.
fn locked(dir: &Path) -> io::Result<Option<File>> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let lock = match File::open(dir) {
        Err(error) if gone(&error) => return Ok(None),
        opened => opened?,
    };
    lock.lock()?;
    let ours = lock.metadata()?;
    match fs::symlink_metadata(dir) {
        Err(error) if gone(&error) => Ok(None),
        there => {
            let there = there?;
            Ok(((there.dev(), there.ino()) == (ours.dev(), ours.ino())).then_some(lock))
        }
    }
}

/// Removes what processes of this user left in `temp` that are gone. What cannot be removed stays for the
/// next: nobody's work depends on it.
pub fn sweep(temp: &Path) {
    let Ok(entries) = fs::read_dir(temp) else { return };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            let _ = remove_abandoned(&entry.path());
        }
    }
}

fn remove_abandoned(dir: &Path) -> io::Result<()> {
    let flags = rustix::fs::OFlags::DIRECTORY
        | rustix::fs::OFlags::NOFOLLOW
        | rustix::fs::OFlags::CLOEXEC
        | rustix::fs::OFlags::RDONLY;
    let lock = File::from(rustix::fs::open(dir, flags, rustix::fs::Mode::empty())?);
    if lock.metadata()?.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    match lock.try_lock() {
        Ok(()) => fs::remove_dir_all(dir),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let all = fs::read_dir(dir).unwrap();
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_a_dead_process_left_goes_and_what_a_living_one_has_stays() {
        let temp = tempfile::tempdir().unwrap();
        let living = Workshop::new(temp.path()).unwrap();
        fs::write(living.path().join("file"), "at work").unwrap();
        // As a process leaves it that is killed: nobody holds the lock any more.
        let left = temp.path().join(format!("{PREFIX}left"));
        fs::create_dir_all(left.join(INSIDE)).unwrap();
        fs::write(left.join(INSIDE).join("layer"), "half").unwrap();
        let others = temp.path().join("somebody-elses");
        fs::create_dir(&others).unwrap();
        std::os::unix::fs::symlink(&others, temp.path().join(format!("{PREFIX}link"))).unwrap();
        let next = Workshop::new(temp.path()).unwrap();
        assert!(!left.exists(), "{:?}", names(temp.path()));
        assert!(others.exists() && living.path().join("file").exists());
        drop((living, next));
        let mut rest = names(temp.path());
        rest.sort();
        assert_eq!(rest, [format!("{PREFIX}link"), "somebody-elses".to_owned()]);
    }

    #[test]
    fn nobody_loses_a_directory_to_those_who_begin_at_the_same_time() {
        let temp = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let here = Workshop::new(temp.path()).unwrap();
                        let file = here.path().join("file");
                        fs::write(&file, "mine").unwrap();
                        std::thread::yield_now();
                        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
                    }
                });
            }
        });
        assert_eq!(names(temp.path()), Vec::<String>::new());
    }
}
