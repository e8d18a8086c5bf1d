//! The images that are asked about: each an index for four platforms, signed by cosign 2 with a key,
//! index and every image alike.
//!
//! What cosign signs names the registry, so that has one address on every machine: one of loopback
//! that nobody else uses. Signed once, the next run finds them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use portolan_core::Index;
use serde_json::json;

use super::registries::Registry;
use crate::layout::{Layer, LayoutWriter};
use crate::testbed::build::Toolbox;
use crate::testbed::cache::{Cache, Recipe};
use crate::testbed::image::{Contents, layer};

/// Where every registry of this bench listens, one after the other.
pub(super) const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 83, 71, 19)), 5871);
/// As many keys as the largest request has.
pub(super) const IMAGES: usize = 50;
pub(super) const PLATFORMS: [&str; 4] = ["amd64", "arm64", "ppc64le", "s390x"];
const FORMAT: &str = "verify images 1";
const PASSWORD: &str = "bench";

/// Folders of OCI layouts, as olareg keeps repositories, and the key they are signed with.
#[derive(Debug)]
pub(super) struct Images {
    pub(super) dir: PathBuf,
}

impl Images {
    /// Those of an earlier run, or new ones.
    pub(super) fn ensure(tools: &Toolbox) -> Result<Self> {
        let recipe = Recipe::default()
            .with("format", FORMAT.as_bytes())
            .with("address", ADDRESS.to_string().as_bytes());
        let dir = Cache::of_user()?.part("verify-images", "1", &recipe, |to| {
            println!("bench: signing {IMAGES} images with cosign 2 once (a minute or two)");
            for number in 0..IMAGES {
                write(&to.join("repositories").join(name(number)), number)?;
            }
            sign(tools, to)
        })?;
        Ok(Self { dir })
    }

    pub(super) fn repositories(&self) -> PathBuf {
        self.dir.join("repositories")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.dir.join("cosign.pub")
    }

    /// So many more repositories in `to`, each with the first image and its signatures.
    pub(super) fn multiply(&self, to: &Path, count: usize) -> Result<()> {
        let from = self.repositories().join(name(0));
        for number in 0..count {
            let dir = to.join(many(number));
            fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
            for file in ["index.json", "oci-layout", "blobs"] {
                symlink(from.join(file), dir.join(file))?;
            }
        }
        Ok(())
    }
}

/// The repository of an image.
pub(super) fn name(number: usize) -> String {
    format!("bench/app-{number:02}")
}

/// One of many repositories.
pub(super) fn many(number: usize) -> String {
    format!("many/app-{number:05}")
}

/// What Ratify is asked, and what we are where an index has images for others too.
pub(super) fn plain(repository: &str) -> String {
    format!("{ADDRESS}/{repository}:v1")
}

/// For one platform, as the templates ask.
pub(super) fn for_one(repository: &str) -> String {
    json!({"arch": PLATFORMS[0], "os": "linux", "reference": plain(repository)}).to_string()
}

/// For all of them.
pub(super) fn for_all(repository: &str) -> String {
    let platforms: Vec<_> =
        PLATFORMS.iter().map(|arch| json!({"os": "linux", "arch": arch})).collect();
    json!({"platforms": platforms, "reference": plain(repository)}).to_string()
}

fn write(to: &Path, number: usize) -> Result<()> {
    let writer = LayoutWriter::new(to)?;
    let mut entries = Vec::new();
    for arch in PLATFORMS {
        let files = vec![(format!("/bin/app-{arch}"), format!("{arch} {number}").into_bytes())];
        let tar = layer(&Contents { files, ..Default::default() })?;
        let tar = Layer::tar(&tar);
        let stored = writer.layer(&tar)?;
        let platform = format!("linux/{arch}").parse()?;
        let mut image = writer.image(&platform, json!({}), &[stored], &[tar.diff_id])?;
        image.platform = Some(platform);
        entries.push(image);
    }
    let index = writer.index(&Index::new(entries))?;
    writer.finish(index, Some("v1"))
}

/// Signs all of them where they are: olareg writes what it is sent beside what it has.
fn sign(tools: &Toolbox, dir: &Path) -> Result<()> {
    let cosign = |args: &[&str]| -> Result<()> {
        let out = Command::new(&tools["cosign2"])
            .args(args)
            .current_dir(dir)
            .env("COSIGN_PASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .output()
            .context("start cosign")?;
        if !out.status.success() {
            bail!("cosign {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(())
    };
    cosign(&["generate-key-pair"])?;
    let _registry = Registry::olareg(tools, &dir.join("repositories"), "dir")?;
    for number in 0..IMAGES {
        let mut args = vec!["sign", "--key", "cosign.key", "--tlog-upload=false", "--recursive"];
        let reference = plain(&name(number));
        args.extend(["--yes", "--allow-http-registry", "--allow-insecure-registry", &reference]);
        cosign(&args)?;
    }
    Ok(())
}
