//! Debian packages: installed only when something is missing, and never started as services.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::cache::Cache;

/// Asked by Debian's service scripts before they start anything; 101 means "not allowed".
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Why packages cannot be installed here, if so.
pub(crate) fn obstacle() -> Option<&'static str> {
    if !Path::new("/usr/bin/apt-get").exists() {
        Some("this machine has no apt-get: install it by hand and put it in PATH")
    } else if !rustix::process::geteuid().is_root() {
        Some("apt-get needs root: run this as root, or install it by hand")
    } else {
        None
    }
}

/// Installs these packages with one `apt-get update` and one `apt-get install`.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if let Some(obstacle) = obstacle() {
        bail!("cannot install {}: {obstacle}", packages.join(" "));
    }
    let _lock = one_at_a_time()?;
    println!("testbed: apt-get install {}", packages.join(" "));
    // On a machine with an init system the packages of etcd, containerd and docker-registry
    // would start system services on well-known ports; the testbed starts its own.
    let _policy = NoServices::put()?;
    apt(&["update", "-qq"])?;
    let mut args = vec!["install", "-y", "-qq", "--no-install-recommends"];
    args.extend(packages);
    apt(&args)
}

/// Fetches the lists of what the machine's mirrors hold.
pub(crate) fn update() -> Result<()> {
    if let Some(obstacle) = obstacle() {
        bail!("cannot fetch the lists of packages: {obstacle}");
    }
    let _lock = one_at_a_time()?;
    apt(&["update", "-qq"])
}

/// Of two at once apt-get lets one fail over the lists of packages, and one would take the other's policy away.
fn one_at_a_time() -> Result<fs::File> {
    Cache::of_user()?.lock("apt")
}

fn apt(args: &[&str]) -> Result<()> {
    let out = Command::new("apt-get")
        .args(["-o", "DPkg::Lock::Timeout=120"])
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .context("start apt-get")?;
    if !out.status.success() {
        bail!(
            "apt-get {} failed ({}):\n{}{}",
            args.join(" "),
            out.status,
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    }
    Ok(())
}

/// The policy file, ours only if there was none.
struct NoServices {
    ours: bool,
}

impl NoServices {
    fn put() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        if Path::new(POLICY).exists() {
            return Ok(Self { ours: false });
        }
        fs::write(POLICY, "#!/bin/sh\nexit 101\n").with_context(|| format!("write {POLICY}"))?;
        let put = Self { ours: true };
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
        Ok(put)
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(POLICY)
        {
            eprintln!("testbed: remove {POLICY} by hand: {error}");
        }
    }
}
