//! `kernel.loadedmodule`, `kernel.builtinmodule`, `kernel.enabledmodule` and
//! `kernel.availablemodule`.

use std::collections::BTreeSet;

use super::super::Feature;
use super::super::feature::OTHERS;
use super::super::machine::{Machine, Outcome, no};
use crate::root::NotRead;

const LOADED: &str = "/proc/modules";

const PRESENT: &str = "/sys/module";

/// Hundreds of lines of a hundred bytes.
const LOADED_LIMIT: u64 = 4 << 20;

/// A distribution's kernel has some 6,000 modules and a megabyte of dependencies between them.
const LISTS_LIMIT: u64 = 16 << 20;

/// What `/proc/modules` tells.
struct Loaded {
    /// Those that are ready. One that is just being loaded may yet fail.
    live: BTreeSet<String>,
    /// All of them.
    any: BTreeSet<String>,
    source: String,
}

/// `name size references users state address`
fn parse_loaded(text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut live = BTreeSet::new();
    let mut any = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        any.insert(name.to_owned());
        // Before 2.6 there was no state.
        if words.nth(3).is_none_or(|state| state == "Live") {
            live.insert(name.to_owned());
        }
    }
    (live, any)
}

/// A kernel that cannot load modules has no such file: there are none, and that is known. But
/// that it is missing proves so only where the kernel itself would have shown it.
fn read_loaded(machine: &Machine<'_>) -> Result<Loaded, String> {
    match machine.root.text(LOADED, LOADED_LIMIT) {
        Ok(text) => {
            let (live, any) = parse_loaded(&text);
            Ok(Loaded { live, any, source: LOADED.to_owned() })
        }
        Err(NotRead::Missing) => {
            let source = without_modules(machine)?;
            Ok(Loaded { live: BTreeSet::new(), any: BTreeSet::new(), source })
        }
        Err(why) => Err(why.about(LOADED)),
    }
}

/// What says that the kernel cannot load modules.
fn without_modules(machine: &Machine<'_>) -> Result<String, String> {
    match machine.config() {
        Some(config) if !config.value.is_on("MODULES") => {
            Ok(format!("{} has no CONFIG_MODULES", config.source))
        }
        _ if machine.root.is_proc("/proc/sys/kernel")
            && machine.root.exists(LOADED) == Some(false) =>
        {
            Ok(no(LOADED))
        }
        _ => Err(NotRead::Missing.about(LOADED)),
    }
}

pub(crate) fn loaded(machine: &Machine<'_>) -> Outcome {
    let loaded = read_loaded(machine)?;
    Ok(Feature::flags(loaded.source, loaded.live))
}

/// The text of a list that belongs to the running release.
fn list(machine: &Machine<'_>, name: &str) -> Result<(String, String), String> {
    let release = machine.kernel.release_in_paths()?;
    // Either may be a link to the other, or be mounted alone.
    let paths =
        [format!("/lib/modules/{release}/{name}"), format!("/usr/lib/modules/{release}/{name}")];
    machine
        .files_are_the_hosts()
        .map_err(|why| format!("{} is not the host's: {why}", paths[0]))?;
    let mut why = NotRead::Missing;
    for path in &paths {
        match machine.root.text(path, LISTS_LIMIT) {
            Ok(text) => return Ok((text, path.clone())),
            Err(NotRead::Missing) => {}
            Err(unreadable) => why = unreadable,
        }
    }
    Err(why.about(&paths[0]))
}

/// `kernel/drivers/net/veth.ko.xz` is `veth`. The name is not changed: it has the dashes that
/// the file has.
fn module(path: &str) -> Option<&str> {
    let file = path.rsplit('/').next()?;
    let file = [".gz", ".xz", ".zst"].iter().find_map(|end| file.strip_suffix(end)).unwrap_or(file);
    file.strip_suffix(".ko").filter(|name| !name.is_empty())
}

fn built_in(machine: &Machine<'_>) -> Result<(BTreeSet<String>, String), String> {
    let (text, source) = list(machine, "modules.builtin")?;
    let names = text.lines().filter_map(|line| module(line.trim())).map(str::to_owned);
    Ok((names.collect(), source))
}

/// Those that are part of the kernel. Some of them can be seen at work, in `/sys/module`, even
/// where the list is missing; then the others are unknown. Some are in no list: where it cannot
/// be seen what is at work, nothing is known to be absent.
pub(crate) fn builtin(machine: &Machine<'_>) -> Outcome {
    let at_work = at_work(machine);
    let mut feature = match (built_in(machine), &at_work) {
        (Ok((names, source)), AtWork::Hidden(why)) => {
            return Ok(only(Feature::flags(source, names.clone()), names, why.clone()));
        }
        (Ok((names, source)), _) => Feature::flags(source, names),
        (Err(why), AtWork::BuiltIn(names)) if !names.is_empty() => {
            only(Feature::flags(PRESENT, BTreeSet::new()), names.clone(), why)
        }
        (Err(why), _) => return Err(why),
    };
    let flags = feature.flags.get_or_insert_default();
    let listed = |flags: &BTreeSet<String>, name: &str| {
        flags.contains(name) || flags.contains(&name.replace('_', "-"))
    };
    match at_work {
        AtWork::BuiltIn(names) => {
            for name in names.into_iter().filter(|name| !listed(flags, name)).collect::<Vec<_>>() {
                if feature.source != PRESENT {
                    feature.sources.insert(name.clone(), PRESENT.to_owned());
                }
                flags.insert(name);
            }
        }
        AtWork::Either(names, why) => {
            let unsure = names.into_iter().filter(|name| !listed(flags, name));
            feature.unknown.extend(unsure.map(|name| (name, why.clone())));
        }
        AtWork::Hidden(_) => {}
    }
    Ok(feature)
}

/// A feature of which no more than these elements are known, and why.
fn only(mut feature: Feature, names: BTreeSet<String>, why: String) -> Feature {
    feature.only = Some(names);
    feature.unknown.insert(OTHERS.to_owned(), why);
    feature
}

/// What `/sys/module` tells.
enum AtWork {
    /// What is in it and was not loaded is built in, and has parameters or a version.
    BuiltIn(BTreeSet<String>),
    /// These are loaded or built in, and why nobody knows which.
    Either(BTreeSet<String>, String),
    /// It is there and cannot be read.
    Hidden(String),
}

/// A copy without it has nothing at work.
fn at_work(machine: &Machine<'_>) -> AtWork {
    let names = match machine.root.dir(PRESENT).and_then(|dir| dir.names()) {
        Ok(names) => names,
        Err(NotRead::Missing) => return AtWork::BuiltIn(BTreeSet::new()),
        Err(why) => return AtWork::Hidden(why.about(PRESENT)),
    };
    match read_loaded(machine) {
        Ok(loaded) => {
            let names = names.into_iter().filter(|name| !loaded.any.contains(name));
            AtWork::BuiltIn(names.collect())
        }
        Err(why) => AtWork::Either(names.into_iter().collect(), why),
    }
}

/// Loaded or built in. As in NFD it is not known without the list of what is built in.
pub(crate) fn enabled(machine: &Machine<'_>) -> Outcome {
    let loaded = read_loaded(machine)?;
    let (mut names, source) = built_in(machine)?;
    let mut feature = Feature::flags(source, BTreeSet::new());
    for name in loaded.live {
        if !names.contains(&name) {
            feature.sources.insert(name.clone(), LOADED.to_owned());
            names.insert(name);
        }
    }
    feature.flags = Some(names);
    Ok(feature)
}

/// Those that could be loaded: files of the running release.
pub(crate) fn available(machine: &Machine<'_>) -> Outcome {
    match list(machine, "modules.dep") {
        Ok((text, source)) => {
            let paths = text.lines().filter_map(|line| line.split_once(':')).map(|(path, _)| path);
            let names = paths.filter_map(|path| module(path.trim())).map(str::to_owned);
            Ok(Feature::flags(source, names.collect()))
        }
        Err(why) => match without_modules(machine) {
            Ok(source) => Ok(Feature::flags(source, BTreeSet::new())),
            Err(_) => Err(why),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modules_name_is_its_files() {
        for (path, name) in [
            ("kernel/drivers/net/veth.ko", Some("veth")),
            ("kernel/arch/x86/events/amd/amd-uncore.ko", Some("amd-uncore")),
            ("updates/dkms/nvidia.ko.zst", Some("nvidia")),
            ("extra/zfs.ko.xz", Some("zfs")),
            ("veth.ko.gz", Some("veth")),
            ("kernel/README", None),
            ("kernel/.ko", None),
            ("", None),
        ] {
            assert_eq!(module(path), name, "{path}");
        }
    }

    #[test]
    fn only_what_is_live_is_loaded() {
        let text = "nvidia 1 0 - Live 0x0 (POE)\nvfio_pci 1 0 - Loading 0x0\nold 1 0 -\n\
                    going 1 0 - Unloading 0x0\n\n";
        let (live, any) = parse_loaded(text);
        assert_eq!(live.into_iter().collect::<Vec<_>>(), ["nvidia", "old"]);
        assert_eq!(any.len(), 4);
    }
}
