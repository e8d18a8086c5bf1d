//! Programs that are ended in the middle, and what they leave.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Everything below a folder.
pub(crate) fn below(dir: &Path) -> Vec<PathBuf> {
    let (mut all, mut open) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path.clone());
            }
            all.push(path);
        }
    }
    all
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same of a program at work.
pub(crate) fn while_it_runs(what: &str, child: &mut Child, condition: impl Fn() -> bool) {
    until(what, || {
        let done = condition();
        if let (false, Some(ended)) = (done, child.try_wait().expect("it is a child")) {
            panic!("{what}: it ended: {ended}");
        }
        done
    });
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("it is not 0");
    kill_process(pid, signal).expect("it is a child");
}

/// How it ended, which it must do soon.
pub(crate) fn ended(child: &mut Child) -> Option<i32> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            return status.code();
        }
        if Instant::now() > end {
            child.kill().expect("it is a child");
            child.wait().expect("it is a child");
            panic!("it goes on with what nobody waits for");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
