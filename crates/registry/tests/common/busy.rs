//! Commands that a mount refuses while anything in it is open.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A child of another test has our open files too, from its birth until it has executed its own
/// program; on a machine with much to do that takes a while. It ends, so this waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `mount` or `umount`, again while it says that the mount is busy.
pub fn once_not_busy(command: &mut Command) -> Output {
    let started = Instant::now();
    loop {
        let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let busy = String::from_utf8_lossy(&output.stderr).contains("busy");
        if !busy || started.elapsed() > PATIENCE {
            return output;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
