//! A guest's kernel with its modules, out of Debian's package without installing it: what a
//! microVM boots must not become what the machine boots.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::apt;

/// Fills `to` with `vmlinuz`, `config` and `modules/` (the folder of one kernel version, as it
/// is under `/lib/modules`) of the kernel that the package `meta` stands for today.
pub(crate) fn unpack(meta: &str, to: &Path) -> Result<()> {
    let dir = tempfile::tempdir().context("make a temporary folder")?;
    let package = match download(meta, dir.path()) {
        Ok(package) => package,
        // No lists of packages yet, or lists so old that the mirror has dropped what they name.
        Err(_) => {
            apt::update()?;
            download(meta, dir.path())?
        }
    };
    let tree = dir.path().join("tree");
    run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&tree))?;
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    let boot = tree.join("boot");
    for (prefix, name) in [("vmlinuz-", "vmlinuz"), ("config-", "config")] {
        let from = only(&boot, prefix)?;
        fs::copy(&from, to.join(name)).with_context(|| format!("copy {}", from.display()))?;
    }
    let lib = ["usr/lib/modules", "lib/modules"].map(|path| tree.join(path));
    let modules = lib.iter().find(|path| path.is_dir()).context("the package has no modules")?;
    copy_tree(&only(modules, "")?, &to.join("modules"))
}

/// The .deb that the metapackage depends on, in `dir`.
fn download(meta: &str, dir: &Path) -> Result<PathBuf> {
    let depends = run(Command::new("apt-cache").args(["depends", meta]))?;
    let package = dependency(&depends).with_context(|| format!("{meta} depends on no kernel"))?;
    run(Command::new("apt-get").args(["download", "-qq", package]).current_dir(dir))?;
    only(dir, package)
}

/// The first kernel among the lines of `apt-cache depends`.
fn dependency(lines: &str) -> Option<&str> {
    let names = lines.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::trim).find(|name| name.starts_with("linux-image-"))
}

/// The only entry of a folder with that beginning.
fn only(dir: &Path, prefix: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        many => bail!("{} holds {} entries {prefix}*, not one", dir.display(), many.len()),
    }
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
        }
        // Links (`build`, `source`) lead to packages that are not here.
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("start {command:?}"))?;
    if !out.status.success() {
        bail!("{command:?} failed ({}): {}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_the_package_that_the_metapackage_names() {
        let lines = "linux-image-cloud-amd64\n  Depends: linux-base\n  \
                     Depends: linux-image-6.1.0-1-cloud-amd64\n";
        assert_eq!(dependency(lines), Some("linux-image-6.1.0-1-cloud-amd64"));
        assert_eq!(dependency("linux-image-cloud-amd64\n"), None);
    }

    #[test]
    fn one_entry_is_one_and_two_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("vmlinuz-6"), "").unwrap();
        assert_eq!(only(dir.path(), "vmlinuz-").unwrap(), dir.path().join("vmlinuz-6"));
        fs::write(dir.path().join("vmlinuz-7"), "").unwrap();
        assert!(only(dir.path(), "vmlinuz-").is_err());
    }
}
