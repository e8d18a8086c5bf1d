//! One Containerfile for two platforms: built, pushed and indexed by us and by buildah; and the
//! index alone, by us and by crane.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::bench::commands::{Cost, commands, installed, said};
use crate::bench::measure::{self, median};
use crate::bench::report::{Promise, Report, Row, millis};
use crate::bench::server::Server;
use crate::bench::{fixture, idle};
use crate::testbed::build::Toolbox;

/// What both platforms copy, and what each has for itself: 200 MB an image.
const SHARED_MIB: usize = 100;
const OWN_MIB: usize = 100;
const PLATFORMS: [&str; 2] = ["amd64", "arm64"];
/// The share of buildah's time that ours may take.
const SHARE: f64 = 0.2;

pub(super) fn run(
    report: &mut Report,
    runs: usize,
    tools: &Toolbox,
    portolan: &Path,
) -> Result<()> {
    // On the disk of the cache, where everything measured is.
    let scratch =
        tempfile::tempdir_in(fixture::image()?.parent().context("the cache has a folder")?)?;
    let at = |name: &str| scratch.path().join(name);
    let portolan = installed(portolan, scratch.path(), "portolan")?;
    context(&at("context"))?;
    let registry = Server::docker_registry(tools, &at("registry"))?;
    // A repository of its own for each run: nothing that an earlier one pushed is there.
    let reference = |who: &str, run: usize| format!("{}/{who}{run}/app:1", registry.address);

    let ours = runs_of(report, "portolan build run, two platforms", runs, |run| {
        let mut build = Command::new(&portolan);
        build.args(["build", "run", "--engine", "local", "--no-source", "-o", "json", "--dir"]);
        build.arg(at("context")).args(["--output", &reference("ours", run)]);
        for arch in PLATFORMS {
            build.args(["--platform", &format!("linux/{arch}")]);
        }
        Ok(vec![build])
    })?;
    let theirs = runs_of(report, "buildah build and manifest push", runs, |run| {
        let storage = at(&format!("buildah{run}"));
        let buildah = || {
            let mut command = Command::new(&tools["buildah"]);
            command.arg("--root").arg(storage.join("root"));
            command.arg("--runroot").arg(storage.join("run"));
            command.args(["--storage-driver", "overlay"]);
            command
        };
        let mut build = buildah();
        let both = PLATFORMS.map(|arch| format!("linux/{arch}")).join(",");
        build.args(["build", "--isolation", "chroot", "--platform", &both, "--manifest", "app"]);
        build.arg("--file").arg(at("context/Containerfile")).arg(at("context"));
        let mut push = buildah();
        push.args(["manifest", "push", "--all", "--tls-verify=false", "app"]);
        push.arg(format!("docker://{}", reference("theirs", run)));
        Ok(vec![build, push])
    })?;
    report.promises.push(promise(
        "image of 200 MB for two platforms against buildah, wall",
        ours,
        theirs,
        SHARE,
    ));

    indexes(report, runs, tools, &portolan, &reference("ours", 0))
}

/// The index over two images that are in the registry.
fn indexes(
    report: &mut Report,
    runs: usize,
    tools: &Toolbox,
    portolan: &Path,
    image: &str,
) -> Result<()> {
    let (repository, _) = image.rsplit_once(':').context("the image has a tag")?;
    let children = PLATFORMS.map(|arch| format!("{image}-linux-{arch}"));
    // Both are given digests, as a pipeline gives them: nothing has to be looked up by tag.
    let (mut digests, mut pinned) = (Vec::new(), Vec::new());
    for (child, arch) in children.iter().zip(PLATFORMS) {
        let resolve = ["image", "resolve", child, "--platform", &format!("linux/{arch}")];
        let digest = said(Command::new(portolan).args(resolve))?.trim().to_owned();
        pinned.push(format!("{repository}@{digest}"));
        digests.push(digest);
    }
    // As the pod's step is called; a tag of its own each time, or there would be nothing to push.
    let count = std::cell::Cell::new(0_u32);
    let ours = commands(report, "portolan step index-assemble", runs, &|| {
        count.set(count.get() + 1);
        let mut command = Command::new(portolan);
        command.args(["step", "index-assemble", "--image"]);
        command.arg(format!("{repository}:index-ours-{}", count.get())).arg("--platforms");
        for (arch, digest) in PLATFORMS.iter().zip(&digests) {
            command.arg(format!("linux/{arch}={digest}"));
        }
        command
    })?;
    let theirs = commands(report, "crane index append", runs, &|| {
        let mut command = Command::new(&tools["crane"]);
        command.args(["index", "append", "--insecure"]);
        command.args(["--tag", &format!("{repository}:index-theirs")]);
        for child in &pinned {
            command.args(["--manifest", child]);
        }
        command
    })?;
    let wall = |cost: Cost| cost.wall;
    report.promises.push(promise("index against crane, wall", wall(ours), wall(theirs), 1.0));
    Ok(())
}

fn promise(what: &str, ours: Duration, theirs: Duration, at_most: f64) -> Promise {
    let measured = ours.as_secs_f64() / theirs.as_secs_f64();
    Promise { what: format!("{what}, ratio"), measured, at_most }
}

/// Measures commands that belong together, one after the other.
fn runs_of(
    report: &mut Report,
    what: &str,
    runs: usize,
    parts: impl Fn(usize) -> Result<Vec<Command>>,
) -> Result<Duration> {
    println!("bench: {what}");
    let (mut walls, mut peak_kib, mut least_idle) = (Vec::new(), 0, 100.0_f64);
    for run in 0..runs {
        least_idle = least_idle.min(idle::wait_for_quiet()?);
        let mut wall = Duration::ZERO;
        for mut command in parts(run)? {
            let one = measure::run(&mut command)?;
            wall += one.wall;
            peak_kib = peak_kib.max(one.peak_kib);
        }
        walls.push(wall);
    }
    let wall = median(walls.clone());
    #[allow(clippy::cast_precision_loss, reason = "kibibytes of a process fit")]
    let peak_mib = Some(peak_kib as f64 / 1024.0);
    report.rows.push(Row {
        what: what.to_owned(),
        median_ms: millis(wall),
        runs_ms: walls.iter().map(|wall| millis(*wall)).collect(),
        peak_mib,
        idle: Some(least_idle),
    });
    Ok(wall)
}

/// A directory with what both platforms have, what each has, and how it is put together.
fn context(dir: &Path) -> Result<()> {
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let mut fill = |folder: &str, mib: usize| -> Result<()> {
        let folder = dir.join(folder);
        fs::create_dir_all(&folder)?;
        for n in 0..mib {
            fs::write(folder.join(n.to_string()), fixture::file(&mut seed))?;
        }
        Ok(())
    };
    fill("shared", SHARED_MIB)?;
    for arch in PLATFORMS {
        fill(arch, OWN_MIB)?;
    }
    let text = "FROM scratch\nARG TARGETARCH\nCOPY shared /shared\nCOPY ${TARGETARCH} /app\n\
                ENTRYPOINT [\"/app/0\"]\n";
    fs::write(dir.join("Containerfile"), text).context("write the Containerfile")
}
