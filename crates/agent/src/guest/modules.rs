//! Which modules a guest's kernel needs to see its disks, and in which order they go in.
//!
//! `depmod` has written down who needs whom (`modules.dep`) and what is in the kernel itself
//! (`modules.builtin`); both are read as they are, nothing is probed.

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
    let read = |name: &str| -> Result<String, ModulesError> {
        let path = dir.join(name);
        let bytes = durable::read_bounded(&path, MAX_INDEX_BYTES).map_err(ModulesError::Read)?;
        let bytes = bytes.ok_or(ModulesError::Missing { path })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let order = order(&read("modules.dep")?, &read("modules.builtin")?, wanted)?;
    order.iter().map(|path| load(dir, path)).collect()
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
fn order(dep: &str, builtin: &str, wanted: &[Wanted]) -> Result<Vec<String>, ModulesError> {
    let needs: HashMap<String, (&str, &str)> = dep
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (name_of(path), (path.trim(), needs)))
        .collect();
    let built_in: HashSet<String> = builtin.lines().map(name_of).collect();
    let mut seen = HashSet::new();
    let mut order = Vec::new();
    for Wanted { name, optional } in wanted {
        let name = name_of(name);
        match needs.contains_key(&name) {
            true => visit(&name, &needs, &mut seen, &mut order),
            false if *optional || built_in.contains(&name) => {}
            false => return Err(ModulesError::Unknown { name }),
        }
    }
    Ok(order)
}

/// Depth first, what is needed before who needs it; a circle, which depmod refuses, ends by itself.
fn visit(
    start: &str,
    needs: &HashMap<String, (&str, &str)>,
    seen: &mut HashSet<String>,
    order: &mut Vec<String>,
) {
    let mut open = vec![(start.to_owned(), false)];
    while let Some((name, children_done)) = open.pop() {
        let Some((path, below)) = needs.get(&name) else { continue };
        if children_done {
            order.push((*path).to_owned());
        } else if seen.insert(name.clone()) {
            open.push((name, true));
            // depmod lists the nearest need first, and the farthest must be loaded first.
            open.extend(below.split_whitespace().map(|path| (name_of(path), false)));
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
        order(DEP, "kernel/fs/ext4/ext4.ko\n", &wanted(wanted_names))
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
}
