//! buildah as a back end: what `RUN` says is run, in a chroot and with storage of the run's own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use portolan_core::manifest::Document;
use portolan_core::{Descriptor, Platform, Reference, Target};
use portolan_registry::ErrorClass;
use portolan_registry::layout::{Layout, LayoutError};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use crate::assemble::{Assembled, Recipe, platform_of};
use crate::containerfile::Outline;
use crate::names::platform_suffix;
use crate::steps::StepError;
use crate::steps::image::take_over;

/// Where the kernel says which foreign programs it can run.
const BINFMT: &str = "/proc/sys/fs/binfmt_misc";
/// So much of what buildah says last is told.
const MAX_TOLD: usize = 800;

/// Why buildah made no image.
#[derive(Debug, thiserror::Error)]
pub(super) enum BuildahError {
    #[error(
        "there is no buildah on this machine, and the Containerfile runs programs; install buildah, or copy in what was built before"
    )]
    Missing,
    #[error(
        "the Containerfile runs programs of {platform}, and this machine cannot: register qemu-user for it (package qemu-user-static, or `podman run --privileged tonistiigi/binfmt`), or build on a cluster with such nodes"
    )]
    NoEmulation { platform: String },
    #[error("cannot run buildah")]
    Io(#[source] io::Error),
    #[error("buildah {what} failed: {said}")]
    Failed { what: &'static str, said: String },
    #[error("what buildah made cannot be read")]
    Layout(#[from] LayoutError),
    #[error("what buildah made cannot be taken over")]
    Take(#[source] StepError),
    #[error("what buildah made is no image")]
    NoImage,
}

impl BuildahError {
    pub(super) fn class(&self) -> Option<ErrorClass> {
        Some(match self {
            Self::NoEmulation { .. } => return None,
            Self::Missing => ErrorClass::NotFound,
            Self::Failed { .. } | Self::NoImage => ErrorClass::BadInput,
            Self::Io(_) | Self::Layout(_) | Self::Take(_) => ErrorClass::Local,
        })
    }
}

/// buildah at work on one recipe.
#[derive(Debug)]
pub(super) struct Buildah {
    recipe: Recipe,
    file: PathBuf,
    outline: Outline,
    staging: Layout,
    work: PathBuf,
}

impl Buildah {
    pub(super) fn new(
        recipe: Recipe,
        file: PathBuf,
        outline: Outline,
        staging: Layout,
        work: PathBuf,
    ) -> Self {
        Self { recipe, file, outline, staging, work }
    }

    pub(super) async fn build(&self, platform: &Platform) -> Result<Assembled, BuildahError> {
        if self.outline.runs && !runs_here(platform, Path::new(BINFMT)) {
            return Err(BuildahError::NoEmulation { platform: platform.to_string() });
        }
        // Platforms are built side by side, and storage has one writer.
        let dir = self.work.join(platform_suffix(platform));
        std::fs::create_dir_all(&dir).map_err(BuildahError::Io)?;
        self.configure(&dir).map_err(BuildahError::Io)?;
        let id = dir.join("id");
        let mut bud = self.command(&dir);
        bud.args(self.arguments(platform)).arg("--iidfile").arg(&id).arg(&self.recipe.dir);
        finished("bud", bud).await?;
        let id = std::fs::read_to_string(&id).map_err(BuildahError::Io)?;
        let out = dir.join("image");
        let mut push = self.command(&dir);
        push.args(["push", "--format=oci", "--quiet"]).arg(id.trim());
        push.arg(format!("oci:{}:latest", out.display()));
        finished("push", push).await?;
        let layout = Layout::open(&out)?;
        let made = layout.resolve(None)?;
        let manifest = take_over(&layout, &made.digest, &self.staging, None);
        let manifest = manifest.map_err(BuildahError::Take)?;
        let assembled = self.describe(manifest)?;
        // Storage without an overlay is large; nothing of it is needed any more.
        let _ = std::fs::remove_dir_all(&dir);
        Ok(assembled)
    }

    fn describe(&self, manifest: Descriptor) -> Result<Assembled, BuildahError> {
        let (_, bytes) = self.staging.manifest(&Target::Digest(manifest.digest))?;
        let Ok(Document::Manifest(read)) = Document::parse(&bytes, None) else {
            return Err(BuildahError::NoImage);
        };
        let size = read.layers.iter().map(|layer| layer.size).sum::<u64>() + read.config.size;
        let platform = platform_of(&self.staging, &manifest).ok().flatten();
        let platform = platform.ok_or(BuildahError::NoImage)?;
        Ok(Assembled { manifest, platform, size })
    }

    /// Every image is taken, and registries of this machine need no TLS, as everywhere here.
    fn configure(&self, dir: &Path) -> io::Result<()> {
        let policy = r#"{"default":[{"type":"insecureAcceptAnything"}]}"#;
        std::fs::write(dir.join("policy.json"), policy)?;
        let mut registries = "unqualified-search-registries = [\"docker.io\"]\n".to_owned();
        for host in self.outline.bases.iter().filter_map(|base| loopback(base)) {
            let section = format!("[[registry]]\nlocation = \"{host}\"\ninsecure = true\n");
            if !registries.contains(&section) {
                registries.push_str(&section);
            }
        }
        std::fs::write(dir.join("registries.conf"), registries)
    }

    fn command(&self, dir: &Path) -> Command {
        let mut command = Command::new("buildah");
        command
            .arg("--root")
            .arg(dir.join("root"))
            .arg("--runroot")
            .arg(dir.join("run"))
            .args(["--storage-driver", "vfs", "--registries-conf"])
            .arg(dir.join("registries.conf"))
            .env("TMPDIR", dir)
            .env("BUILDAH_ISOLATION", "chroot")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    fn arguments(&self, platform: &Platform) -> Vec<String> {
        let Recipe { target, args, epoch, .. } = &self.recipe;
        let mut words: Vec<String> = vec![
            "bud".to_owned(),
            "--quiet".to_owned(),
            "--isolation=chroot".to_owned(),
            "--format=oci".to_owned(),
            "--layers=false".to_owned(),
            format!("--timestamp={epoch}"),
            format!("--platform={platform}"),
            format!("--file={}", self.file.display()),
        ];
        let policy = self.work.join(platform_suffix(platform)).join("policy.json");
        words.push(format!("--signature-policy={}", policy.display()));
        words.extend(target.iter().map(|target| format!("--target={target}")));
        words.extend(args.iter().map(|(key, value)| format!("--build-arg={key}={value}")));
        words
    }
}

/// buildah and what `RUN` started: who stops waiting ends all of them.
struct Group(Option<Pid>);

impl Group {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(first) = self.0 {
            let _ = kill_process_group(first, Signal::KILL);
        }
    }
}

/// The host of a base image, where it is this machine.
fn loopback(base: &str) -> Option<String> {
    match base.parse().ok()? {
        Reference::Registry(found) if found.registry.is_loopback() => {
            Some(found.registry.as_str().to_owned())
        }
        _ => None,
    }
}

async fn finished(what: &'static str, mut command: Command) -> Result<(), BuildahError> {
    let started = command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).spawn();
    let child = started.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => BuildahError::Missing,
        _ => BuildahError::Io(error),
    })?;
    let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let out = child.wait_with_output().await.map_err(BuildahError::Io)?;
    group.ended();
    if out.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&out.stderr);
    let skip = text.chars().count().saturating_sub(MAX_TOLD);
    let said: String = text.chars().skip(skip).collect();
    Err(BuildahError::Failed { what, said: said.trim().to_owned() })
}

/// Whether programs of a platform run here: natively, or because the kernel was told who runs them.
fn runs_here(platform: &Platform, binfmt: &Path) -> bool {
    let here = Platform::new("linux", std::env::consts::ARCH).normalised();
    let wanted = platform.normalised();
    if wanted.os != "linux" {
        return false;
    }
    wanted.architecture == here.architecture
        || std::fs::read_to_string(binfmt.join(format!("qemu-{}", qemu(&wanted.architecture))))
            .is_ok_and(|state| state.starts_with("enabled"))
}

/// What qemu calls an architecture.
fn qemu(architecture: &str) -> &str {
    match architecture {
        "amd64" => "x86_64",
        "386" => "i386",
        "arm64" => "aarch64",
        "mips64le" => "mips64el",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_programs_run_only_where_the_kernel_was_told_how() {
        let dir = tempfile::tempdir().unwrap();
        let runs = |platform: &str| runs_here(&platform.parse().unwrap(), dir.path());
        let here = Platform::new("linux", std::env::consts::ARCH).normalised().to_string();
        assert!(runs(&here) && !runs("linux/s390x") && !runs("windows/amd64"));
        std::fs::write(dir.path().join("qemu-s390x"), "enabled\ninterpreter x\n").unwrap();
        std::fs::write(dir.path().join("qemu-ppc64le"), "disabled\n").unwrap();
        assert!(runs("linux/s390x") && !runs("linux/ppc64le"));
    }

    #[test]
    fn only_registries_of_this_machine_go_without_tls() {
        assert_eq!(loopback("127.0.0.1:5000/a:1").as_deref(), Some("127.0.0.1:5000"));
        assert_eq!(loopback("r.example/a:1"), None);
        assert_eq!(loopback("scratch"), None);
    }
}
