//! The last layer of the measured image: what real images have now and then, all at once.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::fs::{CWD, FileType, Mode};

use super::maker::set_xattr;

/// Entries of one directory, enough to need an index.
const CROWD: usize = 12_000;
const NOISE_MIB: usize = 40;

/// Changes a tree that is mounted with everything below it read-only.
pub(crate) fn spoil(root: &Path) -> Result<()> {
    deletions(root).context("delete")?;
    let dir = root.join("nasty");
    fs::create_dir(&dir)?;
    swaps(root).context("swap types")?;
    links(&dir).context("links")?;
    modes_and_attributes(&dir).context("modes and attributes")?;
    names(&dir).context("names")?;
    sizes(&dir).context("sizes")
}

/// Several hundred whiteouts, and two directories made anew, which become opaque.
fn deletions(root: &Path) -> Result<()> {
    let mut gone = 0;
    for entry in fs::read_dir(root.join("usr/share/doc"))? {
        let path = entry?.path();
        if fs::symlink_metadata(&path)?.is_dir() {
            fs::remove_dir_all(&path)?;
        } else {
            fs::remove_file(&path)?;
        }
        gone += 1;
        if gone == 600 {
            break;
        }
    }
    for folder in ["usr/share/man", "usr/share/locale"] {
        let path = root.join(folder);
        if path.is_dir() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir(&path)?;
        fs::write(path.join("README"), "anew\n")?;
    }
    Ok(())
}

/// A file that becomes a directory, a directory a link, a link a file.
fn swaps(root: &Path) -> Result<()> {
    fs::remove_file(root.join("etc/issue"))?;
    fs::create_dir(root.join("etc/issue"))?;
    fs::write(root.join("etc/issue/inside"), "a file was here\n")?;
    fs::remove_dir_all(root.join("etc/skel"))?;
    symlink("/usr/share", root.join("etc/skel"))?;
    let os_release = root.join("etc/os-release");
    fs::remove_file(&os_release)?;
    fs::write(&os_release, "ID=nasty\n")?;
    Ok(())
}

fn links(dir: &Path) -> Result<()> {
    fs::write(dir.join("linked"), "one file, three names\n")?;
    fs::create_dir(dir.join("elsewhere"))?;
    fs::hard_link(dir.join("linked"), dir.join("also"))?;
    fs::hard_link(dir.join("linked"), dir.join("elsewhere/again"))?;
    // Around the length up to which ext4 keeps a target in the inode.
    for length in [59, 60, 100, 3000] {
        symlink("t".repeat(length), dir.join(format!("link-{length}")))?;
    }
    symlink("../../../../../etc/shadow", dir.join("escape"))?;
    Ok(())
}

fn modes_and_attributes(dir: &Path) -> Result<()> {
    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2755), ("secret", 0o600)] {
        fs::write(dir.join(name), name)?;
        fs::set_permissions(dir.join(name), Permissions::from_mode(mode))?;
    }
    fs::create_dir(dir.join("sticky"))?;
    fs::set_permissions(dir.join("sticky"), Permissions::from_mode(0o1777))?;
    for (name, size) in [("xattr-small", 20), ("xattr-block", 600), ("xattr-large", 3000)] {
        fs::write(dir.join(name), name)?;
        set_xattr(&dir.join(name), "user.note", &vec![b'x'; size])?;
    }
    fs::write(dir.join("capable"), "")?;
    // Version 2 of the kernel's format: cap_net_raw, permitted and effective.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    set_xattr(&dir.join("capable"), "security.capability", &capability)?;
    let special = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o640), device)
            .with_context(|| name.to_owned())
    };
    special("fifo", FileType::Fifo, 0)?;
    special("char", FileType::CharacterDevice, rustix::fs::makedev(10, 229))?;
    special("block", FileType::BlockDevice, rustix::fs::makedev(7, 300))
}

fn names(dir: &Path) -> Result<()> {
    let mut deep = dir.to_owned();
    for _ in 0..5 {
        deep.push("d".repeat(200));
    }
    fs::create_dir_all(&deep)?;
    fs::write(deep.join("deep"), "deep\n")?;
    fs::write(dir.join("n".repeat(255)), "long\n")?;
    fs::write(dir.join(OsStr::from_bytes(b"not-\xff\xfe-utf8")), "bytes\n")?;
    fs::write(dir.join("new\nline"), "line\n")?;
    Ok(())
}

fn sizes(dir: &Path) -> Result<()> {
    let sparse = File::create(dir.join("sparse"))?;
    sparse.set_len(64 << 20)?;
    let crowd = dir.join("crowd");
    fs::create_dir(&crowd)?;
    for number in 0..CROWD {
        fs::write(crowd.join(format!("file-{number:05}")), format!("{number}\n"))?;
    }
    let mut noise = std::io::BufWriter::new(File::create(dir.join("noise"))?);
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..NOISE_MIB << 17 {
        // xorshift64: no compressor gains on it.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        noise.write_all(&seed.to_le_bytes())?;
    }
    noise.flush().context("write the noise")
}
