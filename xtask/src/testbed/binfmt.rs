//! Programs of other architectures: the kernel is told that qemu runs them, so that RUN works for
//! them too. Taken back by `down`, as everything.

use std::fs;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde::{Deserialize, Serialize};

use super::command::say;

const DIR: &str = "/proc/sys/fs/binfmt_misc";
/// Where the package qemu-user-static keeps what the kernel is to be told; its own hook does that only
/// on a machine with an init system.
const CONFIGURED: &str = "/usr/lib/binfmt.d";
/// The architectures that tests build for beside the machine's own.
const WANTED: [&str; 1] = ["qemu-aarch64"];

/// What `up` changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Binfmt {
    mounted: bool,
    entries: Vec<String>,
}

/// Tells the kernel, where that is possible; where not, tests that need it say so.
pub(super) fn enable() -> Binfmt {
    let mut done = Binfmt::default();
    let register = Path::new(DIR).join("register");
    if !register.exists() {
        let none: Option<&std::ffi::CStr> = None;
        match mount("binfmt_misc", DIR, "binfmt_misc", MountFlags::empty(), none) {
            Ok(()) => done.mounted = true,
            Err(error) => {
                say(&format!("no emulation: {DIR} cannot be mounted: {error}"));
                return done;
            }
        }
    }
    for name in WANTED {
        if Path::new(DIR).join(name).exists() {
            continue;
        }
        let file = Path::new(CONFIGURED).join(format!("{name}.conf"));
        let Some(line) = fs::read_to_string(&file).ok().and_then(|text| line(&text)) else {
            say(&format!("no emulation by {name}: {} says nothing", file.display()));
            continue;
        };
        match fs::write(&register, line) {
            Ok(()) => done.entries.push(name.to_owned()),
            Err(error) => say(&format!("no emulation by {name}: {error}")),
        }
    }
    done
}

/// The line for the kernel in a file of systemd's form.
fn line(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    let found = lines.rfind(|line| line.starts_with(':'))?;
    // F: the interpreter is opened now, so that it need not be in every container.
    found.rsplit(':').next().is_some_and(|flags| flags.contains('F')).then(|| found.to_owned())
}

/// Takes back what [`enable`] did.
pub(super) fn disable(done: &Binfmt) {
    for name in &done.entries {
        let _ = fs::write(Path::new(DIR).join(name), "-1");
    }
    if done.mounted {
        let _ = unmount(DIR, UnmountFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_hears_only_of_interpreters_that_stay_open() {
        let good = r":qemu-aarch64:M::\x7f\x45:\xff\xff:/usr/bin/qemu:OPF";
        assert_eq!(line(&format!("# words\n{good}\n")).as_deref(), Some(good));
        assert_eq!(line(r":qemu-aarch64:M::\x7f:\xff:/usr/bin/qemu:OC"), None);
        assert_eq!(line(""), None);
    }
}
