//! Makes the layers of the measured images the way real ones come about: a distribution
//! installed step by step, each step an overlay's upper folder, packed as a tar.
//!
//! Runs in a mount namespace of its own (`images` starts it so), so that nothing stays mounted
//! whatever becomes of it.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};

use super::images::{LAYERS, SINGLE, Stats};
use super::nasty;

/// What each layer between the base and the last installs.
const STEPS: [&[&str]; 4] = [
    &["python3", "python3-pip", "git", "perl"],
    &["build-essential", "cmake"],
    &["default-jdk-headless"],
    &["npm", "webpack", "eslint"],
];

/// Fills `dir` with the layers as tars and with what is to know about them.
pub(crate) fn make(dir: &Path, debootstrap: &Path) -> Result<()> {
    let base = dir.join("0");
    let (mirror, suite) = mirror()?;
    println!("bench: debootstrap of {suite} (a minute)");
    run(Command::new(debootstrap).args(["--variant=minbase", &suite]).arg(&base).arg(mirror))?;
    // Of this machine, and so none of the image's business.
    for file in ["etc/resolv.conf", "etc/hostname"] {
        fs::write(base.join(file), "")?;
    }
    fs::create_dir_all(base.join("usr/sbin"))?;
    let caches = ["var/lib/apt/lists", "var/cache/apt/archives"].map(|path| base.join(path));
    for folder in &caches {
        crate::testbed::cache::remove_dir(folder)?;
        fs::create_dir_all(folder)?;
    }

    let mut lowers = vec![base.clone()];
    for (number, packages) in STEPS.iter().enumerate() {
        println!("bench: layer {}: {}", number + 2, packages.join(" "));
        let upper = Overlay::mount(dir, &(number + 1).to_string(), &lowers)?.install(packages)?;
        lowers.push(upper);
    }
    println!("bench: layer 6: everything that is hard to unpack");
    let overlay = Overlay::mount(dir, "5", &lowers)?;
    nasty::spoil(&overlay.merged)?;
    let mut stats = Stats { suite, ..Stats::default() };
    survey(&overlay.merged, &mut stats)?;
    lowers.push(overlay.unmount()?);

    // The image of one layer: what a small service is made of, in one piece.
    println!("bench: the image of one layer");
    let single = Overlay::mount(dir, "single", &lowers[..1])?;
    single.prepare()?.apt(&["python3"])?;
    pack(&single.merged, &dir.join(SINGLE))?;
    single.unmount()?;

    for (number, tree) in lowers.iter().enumerate() {
        to_layer(tree)?;
        pack(tree, &dir.join(LAYERS[number]))?;
    }
    fs::write(dir.join("stats.json"), serde_json::to_vec(&stats)?)?;
    Ok(())
}

/// The mirror and the release that this machine's own packages come from.
fn mirror() -> Result<(String, String)> {
    let release = fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let suite = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("the release of this machine has no name: use a Debian machine")?
        .trim_matches('"')
        .to_owned();
    let format = "$(CREATED_BY) $(CODENAME) $(COMPONENT) $(REPO_URI)";
    let targets = output(Command::new("apt-get").args(["indextargets", "--format", format]))?;
    let found = targets.lines().find_map(|line| {
        line.strip_prefix("Packages ")?.strip_prefix(&suite)?.strip_prefix(" main ")
    });
    let mirror =
        found.with_context(|| format!("apt knows no mirror of {suite}: apt-get update"))?;
    Ok((mirror.to_owned(), suite))
}

/// A mounted overlay whose upper folder becomes a layer.
struct Overlay {
    merged: PathBuf,
    upper: PathBuf,
}

impl Overlay {
    fn mount(dir: &Path, name: &str, lowers: &[PathBuf]) -> Result<Self> {
        let path = |what: &str| dir.join(format!("{name}{what}"));
        let (upper, work, merged) = (path(""), path(".work"), path(".merged"));
        for folder in [&upper, &work, &merged] {
            fs::create_dir_all(folder)?;
        }
        let lower: Vec<_> = lowers.iter().rev().map(|path| path.display().to_string()).collect();
        let options = format!(
            "redirect_dir=off,metacopy=off,index=off,lowerdir={},upperdir={},workdir={}",
            lower.join(":"),
            upper.display(),
            work.display()
        );
        run(Command::new("mount").args(["-t", "overlay", "-o", &options, "overlay"]).arg(&merged))?;
        Ok(Self { merged, upper })
    }

    fn install(self, packages: &[&str]) -> Result<PathBuf> {
        self.prepare()?.apt(packages)?;
        self.unmount()
    }

    /// What a package manager needs that is no part of an image.
    fn prepare(&self) -> Result<&Self> {
        let at = |path: &str| self.merged.join(path);
        run(Command::new("mount").args(["-t", "proc", "proc"]).arg(at("proc")))?;
        for folder in ["tmp", "var/lib/apt/lists", "var/cache/apt"] {
            run(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(at(folder)))?;
        }
        fs::create_dir_all(at("var/cache/apt/archives/partial"))?;
        run(Command::new("mount").args(["--bind", "/etc/resolv.conf"]).arg(at("etc/resolv.conf")))?;
        // How this machine reaches its mirror.
        let settings = output(Command::new("apt-config").arg("dump"))?;
        let proxies: String = settings
            .lines()
            .filter(|line| line.to_ascii_lowercase().contains("::proxy"))
            .map(|line| format!("{line}\n"))
            .collect();
        fs::write(at("tmp/apt.conf"), proxies)?;
        Ok(self)
    }

    fn apt(&self, packages: &[&str]) -> Result<()> {
        for args in
            [&["update"][..], &[&["install", "-y", "--no-install-recommends"], packages].concat()]
        {
            run(Command::new("chroot")
                .arg(&self.merged)
                .args(["apt-get", "-q"])
                .args(args)
                .env("APT_CONFIG", "/tmp/apt.conf")
                .env("DEBIAN_FRONTEND", "noninteractive")
                .env("LC_ALL", "C"))?;
        }
        Ok(())
    }

    fn unmount(self) -> Result<PathBuf> {
        run(Command::new("umount").arg("--recursive").arg(&self.merged))?;
        Ok(self.upper)
    }
}

/// Turns an overlay's own marks for what is gone into those of layers.
fn to_layer(dir: &Path) -> Result<()> {
    let times = |meta: &fs::Metadata| {
        let time = |sec, nsec| Timespec { tv_sec: sec, tv_nsec: nsec };
        Timestamps {
            last_access: time(meta.atime(), meta.atime_nsec()),
            last_modification: time(meta.mtime(), meta.mtime_nsec()),
        }
    };
    let before = times(&fs::symlink_metadata(dir)?);
    let mut value = [0; 1];
    let opaque = rustix::fs::lgetxattr(dir, "trusted.overlay.opaque", &mut value);
    if opaque.is_ok() && value == *b"y" {
        File::create(dir.join(".wh..wh..opq"))?;
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let meta = fs::symlink_metadata(&path)?;
        if meta.file_type().is_char_device() && meta.rdev() == 0 {
            let mut name = std::ffi::OsString::from(".wh.");
            name.push(path.file_name().context("an entry has a name")?);
            fs::remove_file(&path)?;
            File::create(path.with_file_name(name))?;
        } else if meta.is_dir() {
            to_layer(&path)?;
        }
    }
    rustix::fs::utimensat(CWD, dir, &before, AtFlags::SYMLINK_NOFOLLOW)
        .with_context(|| format!("times of {}", dir.display()))
}

/// One tar, by the tool most layers in the world are not made with but every tool can read.
fn pack(tree: &Path, to: &Path) -> Result<()> {
    run(Command::new("tar")
        .args(["--create", "--one-file-system", "--sort=name", "--numeric-owner", "--format=pax"])
        .args(["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"])
        .args(["--xattrs", "--xattrs-include=security.*", "--xattrs-include=user.*"])
        .arg("--file")
        .arg(to)
        .arg("--directory")
        .arg(tree)
        .arg("."))
}

/// Counts what is left when all layers are applied.
fn survey(dir: &Path, stats: &mut Stats) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let meta = fs::symlink_metadata(&path)?;
            stats.paths += 1;
            if meta.is_dir() {
                todo.push(path);
            } else if meta.is_file() && seen.insert(meta.ino()) {
                stats.surviving_bytes += meta.len();
            }
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> Result<String> {
    let out =
        command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    if !out.status.success() {
        let said = [out.stdout, out.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let last: Vec<_> = said.lines().rev().take(20).collect();
        let last: Vec<_> = last.into_iter().rev().collect();
        bail!("{command:?} failed ({}):\n{}", out.status, last.join("\n"));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// An extended attribute, set on the entry itself.
pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .with_context(|| format!("set {name} on {}", path.display()))
}
