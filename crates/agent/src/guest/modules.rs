//! Which modules a guest's kernel needs to see its disks, and in which order they go in.
//!
//! `depmod` has written down who needs whom (`modules.dep`); where it has not run, the modules say so
//! themselves, unless they are compressed. What is in the kernel itself is in `modules.builtin`.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use portolan_registry::durable::{self, DurableError};

/// Debian's full kernel has 600 KiB of it.
const MAX_INDEX_BYTES: u64 = 32 << 20;
/// The largest module of note has 10 MiB, uncompressed.
const MAX_MODULE_BYTES: u64 = 64 << 20;

/// A module that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name, as in `modprobe NAME`.
    pub name: String,
    /// Whether the guest does without it where the kernel does not have it.
    pub optional: bool,
}

/// A module that goes into the initramfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its file's name, which tells whether it is compressed.
    pub file_name: String,
    /// Its content, passed on as it is.
    pub bytes: Vec<u8>,
}

/// Why the modules could not be collected.
#[derive(Debug, thiserror::Error)]
pub enum ModulesError {
    /// An index or a module cannot be read.
    #[error(
        "a file of the guest kernel's modules cannot be read; check guest.modules_dir, which is a \
         folder such as /lib/modules/VERSION in which depmod was run"
    )]
    Read(#[source] DurableError),
    /// A file that must be there is not.
    #[error("{} is missing; check guest.modules_dir, and run depmod there", path.display())]
    Missing {
        /// Which.
        path: PathBuf,
    },
    /// Neither a module nor in the kernel.
    #[error(
        "the guest's kernel has no {name}, neither built in nor as a module; use a kernel that has \
         it, or point guest.modules_dir to the modules of the kernel in guest.kernel"
    )]
    Unknown {
        /// The module's name.
        name: String,
    },
    /// `modules.dep` names a file outside of its folder.
    #[error("modules.dep names {path:?}, which is not a path below guest.modules_dir")]
    Outside {
        /// The path.
        path: String,
    },
}

/// The wanted modules and all they need, each after what it needs.
pub fn collect(dir: &Path, wanted: &[Wanted]) -> Result<Vec<Module>, ModulesError> {
    paths(dir, wanted)?.iter().map(|path| load(dir, path)).collect()
}

/// What [`collect`] would bring, by the names that the kernel has for it.
pub fn names(dir: &Path, wanted: &[Wanted]) -> Result<Vec<String>, ModulesError> {
    Ok(paths(dir, wanted)?.iter().map(|path| name_of(path)).collect())
}

/// The files of the wanted modules and of all they need, in order.
fn paths(dir: &Path, wanted: &[Wanted]) -> Result<Vec<String>, ModulesError> {
    let read = |name: &str| -> Result<Option<String>, ModulesError> {
        let bytes = durable::read_bounded(&dir.join(name), MAX_INDEX_BYTES);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(bytes.map_err(ModulesError::Read)?.map(text))
    };
    let builtin = read("modules.builtin")?
        .ok_or_else(|| ModulesError::Missing { path: dir.join("modules.builtin") })?;
    let known = match read("modules.dep")? {
        Some(text) => from_index(&text),
        // A package that was unpacked and not installed: depmod has not run.
        None => from_files(dir, wanted)?,
    };
    order(&known, &builtin, wanted)
}

/// A module's file below the folder, and the names of what it needs.
type Known = HashMap<String, (String, Vec<String>)>;

fn from_index(modules_dep: &str) -> Known {
    let line = |line: &str| {
        let (path, needs) = line.split_once(':')?;
        let needs = needs.split_whitespace().map(name_of).collect();
        Some((name_of(path), (path.trim().to_owned(), needs)))
    };
    modules_dep.lines().filter_map(line).collect()
}

/// What depmod would have said of the wanted modules and all they need.
fn from_files(dir: &Path, wanted: &[Wanted]) -> Result<Known, ModulesError> {
    let paths = module_files(dir)?;
    let mut known = Known::new();
    let mut open: Vec<String> = wanted.iter().map(|wanted| name_of(&wanted.name)).collect();
    while let Some(name) = open.pop() {
        let Some(path) = paths.get(&name).filter(|_| !known.contains_key(&name)) else { continue };
        if !path.ends_with(".ko") {
            return Err(ModulesError::Missing { path: dir.join("modules.dep") });
        }
        let needs = needs_in(&load(dir, path)?.bytes);
        open.extend(needs.iter().cloned());
        known.insert(name, (path.clone(), needs));
    }
    Ok(known)
}

/// Every module's file below the folder, by the module's name.
fn module_files(dir: &Path) -> Result<HashMap<String, String>, ModulesError> {
    let mut found = HashMap::new();
    let mut open = vec![PathBuf::from("kernel")];
    while let Some(relative) = open.pop() {
        let path = dir.join(&relative);
        let list = |source| ModulesError::Read(DurableError::io("list", &path, source));
        for entry in std::fs::read_dir(&path).map_err(list)? {
            let entry = entry.map_err(list)?;
            let below = relative.join(entry.file_name());
            let kind = entry.file_type().map_err(list)?;
            match below.to_str() {
                Some(_) if kind.is_dir() => open.push(below),
                Some(text) if kind.is_file() && text.contains(".ko") => {
                    found.insert(name_of(text), text.to_owned());
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// The names after `depends=` in a module. Its notes are texts that end with a NUL, one after the
/// other; nothing else in a module looks like this one.
fn needs_in(module: &[u8]) -> Vec<String> {
    const NOTE: &[u8] = b"\0depends=";
    let Some(at) = module.windows(NOTE.len()).position(|window| window == NOTE) else {
        return vec![];
    };
    let rest = &module[at + NOTE.len()..];
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
    let names = String::from_utf8_lossy(&rest[..end]).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(name_of).collect()
}

fn load(dir: &Path, relative: &str) -> Result<Module, ModulesError> {
    let below = Path::new(relative).components().all(|part| matches!(part, Component::Normal(_)));
    let file_name = Path::new(relative).file_name().and_then(|name| name.to_str());
    let (true, Some(file_name)) = (below, file_name) else {
        return Err(ModulesError::Outside { path: relative.to_owned() });
    };
    let path = dir.join(relative);
    let bytes = durable::read_bounded(&path, MAX_MODULE_BYTES).map_err(ModulesError::Read)?;
    let bytes = bytes.ok_or(ModulesError::Missing { path })?;
    Ok(Module { file_name: file_name.to_owned(), bytes })
}

/// The paths of the modules to load, in order. Pure.
fn order(known: &Known, builtin: &str, wanted: &[Wanted]) -> Result<Vec<String>, ModulesError> {
    let built_in: HashSet<String> = builtin.lines().map(name_of).collect();
    let mut seen = HashSet::new();
    let mut order = Vec::new();
    for Wanted { name, optional } in wanted {
        let name = name_of(name);
        match known.contains_key(&name) {
            true => visit(&name, known, &mut seen, &mut order),
            false if *optional || built_in.contains(&name) => {}
            false => return Err(ModulesError::Unknown { name }),
        }
    }
    Ok(order)
}

/// Depth first, what is needed before who needs it; a circle, which depmod refuses, ends by itself.
fn visit(start: &str, known: &Known, seen: &mut HashSet<String>, order: &mut Vec<String>) {
    let mut open = vec![(start.to_owned(), false)];
    while let Some((name, needs_done)) = open.pop() {
        let Some((path, needs)) = known.get(&name) else { continue };
        if needs_done {
            order.push(path.clone());
        } else if seen.insert(name.clone()) {
            open.push((name, true));
            open.extend(needs.iter().map(|name| (name.clone(), false)));
        }
    }
}

/// `kernel/fs/overlayfs/overlay.ko.zst` and `overlay` are the same module; `-` and `_` are, too.
fn name_of(path: &str) -> String {
    let file = path.trim().rsplit('/').next().unwrap_or_default();
    let stem = [".ko.xz", ".ko.zst", ".ko.gz", ".ko"]
        .iter()
        .find_map(|end| file.strip_suffix(end))
        .unwrap_or(file);
    stem.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/drivers/virtio/virtio.ko:\n\
        kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko\n\
        kernel/drivers/virtio/virtio_mmio.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko\n\
        kernel/drivers/block/virtio_blk.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko\n\
        kernel/fs/overlayfs/overlay.ko.zst:\n\
        kernel/a-loop.ko: kernel/b_loop.ko\n\
        kernel/b_loop.ko: kernel/a-loop.ko\n";

    fn wanted(names: &[&str]) -> Vec<Wanted> {
        let one = |name: &&str| Wanted {
            name: name.trim_start_matches('?').to_owned(),
            optional: name.starts_with('?'),
        };
        names.iter().map(one).collect()
    }

    fn names(wanted_names: &[&str]) -> Result<Vec<String>, String> {
        order(&from_index(DEP), "kernel/fs/ext4/ext4.ko\n", &wanted(wanted_names))
            .map(|paths| paths.iter().map(|path| name_of(path)).collect())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let found = names(&["virtio_mmio", "virtio-blk", "ext4", "overlay", "?button"]).unwrap();
        let at = |name: &str| found.iter().position(|known| known == name).unwrap();
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(at("virtio") < at("virtio_ring"));
        assert!(at("virtio_ring") < at("virtio_mmio").min(at("virtio_blk")));
    }

    #[test]
    fn a_circle_ends_and_a_module_that_is_nowhere_is_named() {
        assert_eq!(names(&["a_loop"]).unwrap().len(), 2);
        assert!(names(&["zfs"]).unwrap_err().contains("zfs"));
    }

    #[test]
    fn files_are_passed_on_as_they_are_and_only_from_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("kernel/fs")).unwrap();
        std::fs::write(dir.path().join("kernel/fs/overlay.ko.zst"), b"zipped").unwrap();
        std::fs::write(dir.path().join("modules.dep"), "kernel/fs/overlay.ko.zst:\n../x.ko:\n")
            .unwrap();
        assert!(matches!(collect(dir.path(), &[]), Err(ModulesError::Missing { .. })));
        std::fs::write(dir.path().join("modules.builtin"), "").unwrap();
        let modules = collect(dir.path(), &wanted(&["overlay"])).unwrap();
        assert_eq!(modules[0].file_name, "overlay.ko.zst");
        assert_eq!(modules[0].bytes, b"zipped");
        let outside = collect(dir.path(), &wanted(&["x"]));
        assert!(matches!(outside, Err(ModulesError::Outside { .. })), "{outside:?}");
    }

    #[test]
    fn without_depmod_the_modules_tell_themselves_what_they_need() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, notes: &[u8]| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, notes).unwrap();
        };
        write("modules.builtin", b"");
        write("kernel/a/virtio_blk.ko", b"ELF\0license=GPL\0depends=virtio-ring,virtio\0x=y\0");
        write("kernel/b/virtio_ring.ko", b"ELF\0depends=virtio\0");
        write("kernel/b/virtio.ko", b"ELF\0depends=\0");
        write("kernel/c/overlay.ko.xz", b"");
        let names = |wanted_names: &[&str]| -> Result<Vec<String>, ModulesError> {
            let modules = collect(dir.path(), &wanted(wanted_names))?;
            Ok(modules.into_iter().map(|module| module.file_name).collect())
        };
        assert_eq!(
            names(&["virtio_blk"]).unwrap(),
            ["virtio.ko", "virtio_ring.ko", "virtio_blk.ko"]
        );
        let packed = names(&["overlay"]).unwrap_err().to_string();
        assert!(packed.contains("modules.dep is missing") && packed.contains("depmod"), "{packed}");
    }
}
