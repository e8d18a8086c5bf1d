//! Programs of other architectures: `RUN` of a build for them needs the kernel to know who runs them.

use std::path::Path;

use portolan_registry::durable;

use super::super::finding::{Finding, missing, ok, wrong};

const DIR: &str = "proc/sys/fs/binfmt_misc";
/// Longer than anything the kernel says of a handler.
const MAX_BYTES: u64 = 64 * 1024;

/// One that the kernel was told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Handler {
    name: String,
    enabled: bool,
    flags: String,
    interpreter: String,
    /// Whether the interpreter's file is there; with the flag F the kernel has it open already.
    there: bool,
}

#[derive(Debug)]
pub(in super::super) struct Facts {
    pub(super) mounted: bool,
    pub(super) handlers: Vec<Handler>,
}

pub(in super::super) fn gather(root: &Path) -> Facts {
    let dir = root.join(DIR);
    let listed = std::fs::read_dir(&dir).into_iter().flatten().flatten();
    let mut handlers: Vec<_> = listed
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            // With --host it is another machine's folder, with whatever is there under such a name.
            let bytes = durable::read_bounded(&entry.path(), MAX_BYTES).ok().flatten()?;
            let mut handler = read(name, &String::from_utf8(bytes).ok()?)?;
            let file = handler.interpreter.trim_start_matches('/').to_owned();
            handler.there = root.join(file).exists();
            Some(handler)
        })
        .collect();
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    Facts { mounted: dir.join("status").exists(), handlers }
}

/// What the kernel says of a handler; none where the file is no handler of emulation.
fn read(name: String, text: &str) -> Option<Handler> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let interpreter = value("interpreter ")?.to_owned();
    let is_ours = name.starts_with("qemu-") || interpreter.contains("qemu-");
    is_ours.then(|| Handler {
        enabled: text.lines().next() == Some("enabled"),
        flags: value("flags:").unwrap_or_default().to_owned(),
        interpreter,
        there: false,
        name,
    })
}

pub(in super::super) fn check(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "emulation";
    const INSTALL: &str = "install qemu-user-static and register it with the flag F, to RUN in builds for other architectures";
    if facts.handlers.is_empty() {
        let found = match facts.mounted {
            true => "the kernel knows no handler for programs of other architectures",
            false => "binfmt_misc is not mounted",
        };
        return vec![missing(CHECK, found, INSTALL)];
    }
    let mut findings = Vec::new();
    for one in &facts.handlers {
        let Handler { name, interpreter, .. } = one;
        let fixed = one.flags.contains('F');
        findings.extend(match (one.enabled, fixed, one.there) {
            (false, ..) => {
                let advice = format!("echo 1 > /{DIR}/{name}");
                Some(wrong(CHECK, format!("{name} is switched off"), advice))
            }
            (true, false, false) => Some(wrong(
                CHECK,
                format!("{name} names {interpreter}, which is not there"),
                INSTALL,
            )),
            (true, false, true) => {
                let found = format!(
                    "{name} is without the flag F: {interpreter} is not found inside of containers"
                );
                Some(wrong(CHECK, found, INSTALL))
            }
            (true, true, _) => None,
        });
    }
    if findings.is_empty() {
        let names: Vec<_> = facts.handlers.iter().map(|one| one.name.as_str()).collect();
        findings.push(ok(CHECK, names.join(", ")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    const GOOD: &str =
        "enabled\ninterpreter /usr/libexec/qemu-aarch64\nflags: POCF\noffset 0\nmagic 7f45\n";

    fn of(text: &str) -> Vec<Finding> {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join(DIR);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("status"), "enabled\n").unwrap();
        std::fs::write(dir.join("register"), "").unwrap();
        if !text.is_empty() {
            std::fs::write(dir.join("qemu-aarch64"), text).unwrap();
        }
        check(&gather(root.path()))
    }

    #[test]
    fn handlers_that_would_not_work_in_a_container_are_seen() {
        for (text, state, word) in [
            (GOOD.to_owned(), State::Ok, "qemu-aarch64"),
            (GOOD.replace("enabled", "disabled"), State::Wrong, "switched off"),
            (GOOD.replace("POCF", "POC"), State::Wrong, "not there"),
            (String::new(), State::Missing, "no handler"),
            ("enabled\n".to_owned(), State::Missing, "no handler"),
        ] {
            let found = of(&text);
            assert_eq!((found.len(), found[0].state), (1, state), "{text}: {found:?}");
            assert!(found[0].found.contains(word), "{found:?}");
        }
        // Nobody waits for who writes into a pipe.
        let piped = tempfile::tempdir().unwrap();
        let dir = piped.path().join(DIR);
        std::fs::create_dir_all(&dir).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let (at, kind) = (rustix::fs::CWD, rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(at, dir.join("qemu-aarch64"), kind, mode, 0).unwrap();
        assert!(gather(piped.path()).handlers.is_empty());
        let empty = tempfile::tempdir().unwrap();
        assert!(check(&gather(empty.path()))[0].found.contains("not mounted"));
    }
}
