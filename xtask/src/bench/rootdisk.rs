//! Image to root disk beside the peers and beside the limit: from a registry on loopback to a
//! file system that is fsynced, blobs kept, in one run and in turns.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::idle;
use portolan_core::Platform;

use super::images::{self, Image};
use super::measure::{self, Run, median};
use super::report::{Promise, Report, Row, millis};
use super::server::{Server, push};
use crate::program::{PORTOLAN, XTASK, released};
use crate::testbed::build::{Missing, Toolbox, ensure};
use crate::testbed::parts::Use;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Images with the statistics of real ones, for a machine without root or mirror
    #[arg(long)]
    synthetic: bool,
}

/// One way from an image to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Umoci,
    Flatten,
    Export,
    Ours,
    OursLocal,
    Limit,
}

impl Way {
    const ALL: [Self; 6] =
        [Self::Umoci, Self::Flatten, Self::Export, Self::Ours, Self::OursLocal, Self::Limit];

    fn name(self) -> &'static str {
        match self {
            Self::Umoci => "skopeo + umoci + mke2fs -d",
            Self::Flatten => "skopeo + flatten + tar2ext4",
            Self::Export => "crane export | tar2ext4 (keeps no blobs)",
            Self::Ours => "portolan rootdisk build, blobs kept",
            Self::OursLocal => "portolan rootdisk build, local blobs",
            Self::Limit => "the limit, local blobs",
        }
    }

    /// umoci of Debian knows no zstd.
    fn can(self, image: &Image) -> bool {
        self != Self::Umoci || !image.name.contains("zstd")
    }
}

/// What all ways work with.
struct Bench {
    tools: Toolbox,
    portolan: PathBuf,
    xtask: PathBuf,
    server: Server,
    scratch: tempfile::TempDir,
}

/// What one way did for one image.
#[derive(Debug, Default, Clone)]
struct Measured {
    runs: Vec<Run>,
    idle: Vec<f64>,
    allocated: u64,
    virtual_size: u64,
}

impl Measured {
    fn median(&self) -> Duration {
        median(self.runs.iter().map(|run| run.wall).collect())
    }

    fn peak_mib(&self) -> f64 {
        mib(self.runs.iter().map(|run| run.peak_kib).max().unwrap_or(0) * 1024)
    }
}

pub(crate) fn run(runs: usize, args: &Args) -> Result<Report> {
    let tools = ensure(Use::Bench, Missing::Fails)?;
    let (images, stats) = images::all(&tools, args.synthetic)?;
    let portolan = released(PORTOLAN)?;
    let xtask = released(XTASK)?;
    let cache = images.first().and_then(|image| image.layout.parent()).context("no images")?;
    // Beside the cache and so on the same disk as everything measured; gone when dropped.
    let scratch = tempfile::tempdir_in(cache.parent().context("the cache has a folder")?)?;
    let server = Server::docker_registry(&tools, &scratch.path().join("registry"))?;
    let bench = Bench { tools, portolan, xtask, server, scratch };
    let mut report = Report::default();
    report.notes.push(format!(
        "Images made of Debian {}: {} paths, {:.0} MB of surviving files",
        stats.suite,
        stats.paths,
        megabytes(stats.surviving_bytes)
    ));
    for image in &images {
        push(&bench.tools, &image.layout, &bench.server.reference(image.name))?;
        let measured = bench.image(image, runs)?;
        bench.tell(image, &measured, &mut report);
    }
    Ok(report)
}

/// Makes the images and says what they are.
pub(crate) fn images(args: &Args) -> Result<()> {
    let (images, stats) = images::all(&ensure(Use::Bench, Missing::Fails)?, args.synthetic)?;
    println!("{stats:?}");
    for image in &images {
        println!("{}", describe(image));
    }
    Ok(())
}

fn describe(image: &Image) -> String {
    format!(
        "{} {}: {} layers, {:.0} MB packed, {:.0} MB of tar",
        image.name,
        image.digest,
        image.layers.len(),
        megabytes(image.packed_bytes()),
        megabytes(image.tar_bytes())
    )
}

impl Bench {
    /// All ways in turns, each round beginning with another, so that none is always the one
    /// that comes after the heaviest.
    fn image(&self, image: &Image, runs: usize) -> Result<Vec<(Way, Measured)>> {
        let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| way.can(image)).collect();
        let mut all: Vec<_> = ways.iter().map(|way| (*way, Measured::default())).collect();
        // One round that is not counted for what reads: the page cache then has every blob.
        self.once(Way::Ours, image)?;
        self.check(image)?;
        for round in 0..runs {
            for step in 0..ways.len() {
                let (way, measured) = &mut all[(round + step) % ways.len()];
                self.clear()?;
                let idle = idle::wait_for_quiet()?;
                let run = self
                    .once(*way, image)
                    .with_context(|| format!("{}: {}", image.name, way.name()))?;
                println!(
                    "bench: {} {}/{runs} {}: {:.2?} ({idle:.0} % idle before)",
                    image.name,
                    round + 1,
                    way.name(),
                    run.wall
                );
                let meta = fs::metadata(self.disk())?;
                measured.allocated = meta.blocks() * 512;
                measured.virtual_size = meta.len();
                measured.runs.push(run);
                measured.idle.push(idle);
            }
        }
        self.clear()?;
        Ok(all)
    }

    fn out(&self) -> PathBuf {
        self.scratch.path().join("out")
    }

    fn disk(&self) -> PathBuf {
        self.out().join("disk.ext4")
    }

    /// Removes the last result and lets the disk finish, so that no run pays for another's writes.
    fn clear(&self) -> Result<()> {
        crate::testbed::cache::remove_dir(&self.out())?;
        fs::create_dir_all(self.out())?;
        rustix::fs::sync();
        Ok(())
    }

    /// A disk that the file system's own checker does not like is no result at all.
    fn check(&self, image: &Image) -> Result<()> {
        let mut command = Command::new(&self.tools["e2fsck"]);
        measure::run(command.arg("-fn").arg(self.disk()))
            .with_context(|| format!("{}: our disk is not clean", image.name))?;
        Ok(())
    }

    fn once(&self, way: Way, image: &Image) -> Result<Run> {
        fs::create_dir_all(self.out())?;
        let (disk, out) = (self.disk(), self.out());
        let reference = self.server.reference(image.name);
        let tool = |name: &str| Command::new(&self.tools[name]);
        let blobs = format!("oci:{}:bench", out.join("blobs").display());
        let copy = || {
            let mut command = tool("skopeo");
            command.args(["--insecure-policy", "copy", "-q", "--src-tls-verify=false"]);
            command.arg(format!("docker://{reference}")).arg(&blobs);
            command
        };
        match way {
            Way::Umoci => {
                let mut unpack = tool("umoci");
                unpack.args(["unpack", "--image", &blobs["oci:".len()..]]).arg(out.join("bundle"));
                let mut make = tool("mke2fs");
                let tree = out.join("bundle/rootfs");
                make.args(["-q", "-F", "-t", "ext4", "-d"]).arg(tree).arg(&disk);
                // What is in it, half as much again, and room for tables: it must be told.
                make.arg(format!("{}k", image.tar_bytes() * 3 / 2 / 1024 + 65_536));
                chain(&mut [copy(), unpack, make], &disk)
            }
            Way::Flatten => {
                let tar = out.join("flat.tar");
                let mut flatten = tool("flatten");
                flatten.arg(out.join("blobs")).arg(&tar);
                let mut convert = tool("tar2ext4");
                convert.arg("-i").arg(&tar).arg("-o").arg(&disk);
                chain(&mut [copy(), flatten, convert], &disk)
            }
            Way::Export => {
                let mut export = tool("crane");
                export.args(["export", "--insecure", &reference, "-"]);
                let mut convert = tool("tar2ext4");
                convert.arg("-o").arg(&disk);
                piped(&mut export, &mut convert, &disk)
            }
            Way::Ours => {
                let mut ours = self.ours(&reference, &disk);
                ours.arg("--blobs").arg(out.join("blobs"));
                measure::run(&mut ours)
            }
            Way::OursLocal => {
                let layout = format!("oci:{}:bench", image.layout.display());
                measure::run(&mut self.ours(&layout, &disk))
            }
            Way::Limit => {
                let mut limit = Command::new(&self.xtask);
                limit.args(["bench", "limit"]).arg(&disk).arg(image.surviving_bytes.to_string());
                for layer in &image.layers {
                    limit.arg(&layer.path).arg(layer.tar_bytes.to_string());
                }
                measure::run(&mut limit)
            }
        }
    }

    fn ours(&self, reference: &str, disk: &Path) -> Command {
        let mut command = Command::new(&self.portolan);
        let platform = Platform::new("linux", std::env::consts::ARCH).normalised().to_string();
        command.args(["rootdisk", "build", reference, "--platform", &platform]);
        command.arg("--output").arg(disk);
        command
    }

    fn tell(&self, image: &Image, measured: &[(Way, Measured)], report: &mut Report) {
        let name = image.name;
        report.notes.push(describe(image));
        for (way, measured) in measured {
            report.rows.push(Row {
                what: format!("{name}: {}", way.name()),
                median_ms: millis(measured.median()),
                runs_ms: measured.runs.iter().map(|run| millis(run.wall)).collect(),
                peak_mib: Some(measured.peak_mib()),
                idle: measured.idle.iter().copied().reduce(f64::min),
            });
            if *way != Way::Limit {
                report.notes.push(format!(
                    "{name}: {}: {:.0} MB allocated of {:.0} MB virtual",
                    way.name(),
                    megabytes(measured.allocated),
                    megabytes(measured.virtual_size)
                ));
            }
        }
        let of = |way: Way| measured.iter().find(|(found, _)| *found == way).map(|(_, m)| m);
        report.promises.extend(promises(image, of));
    }
}

/// The goals, as numbers that must not be passed.
fn promises<'a>(image: &Image, of: impl Fn(Way) -> Option<&'a Measured>) -> Vec<Promise> {
    let name = image.name;
    let (Some(ours), Some(local)) = (of(Way::Ours), of(Way::OursLocal)) else { return Vec::new() };
    let ratio = |what: &str, ours: &Measured, theirs: &Measured, at_most: f64| Promise {
        what: format!("{name}: {what}, ratio"),
        measured: ours.median().as_secs_f64() / theirs.median().as_secs_f64(),
        at_most,
    };
    let mut promises = Vec::new();
    let peers = [Way::Umoci, Way::Flatten, Way::Export].into_iter().filter_map(&of);
    // zstd has no goal of its own but must not be slower than gzip's.
    if let Some(best) = peers.min_by_key(|peer| peer.median()) {
        let at_most = if name.contains("zstd") { 1.0 } else { 1.0 / 4.0 };
        promises.push(ratio("against the fastest peer", ours, best, at_most));
    }
    if let (Some(umoci), true) = (of(Way::Umoci), image.layers.len() > 1) {
        promises.push(ratio("against skopeo + umoci + mke2fs", ours, umoci, 1.0 / 15.0));
    }
    if let (Some(limit), true) = (of(Way::Limit), image.layers.len() > 1) {
        promises.push(ratio("local blobs, against the limit", local, limit, 1.25));
    }
    if let Some(tar2ext4) = of(Way::Flatten) {
        promises.push(Promise {
            what: format!("{name}: allocated MB against tar2ext4's"),
            measured: megabytes(ours.allocated),
            at_most: megabytes(tar2ext4.allocated),
        });
    }
    promises.push(Promise {
        what: format!("{name}: peak memory, MiB"),
        measured: ours.peak_mib().max(local.peak_mib()),
        at_most: 160.0,
    });
    promises
}

/// One after the other, then the disk's fsync; memory is that of the largest.
fn chain(commands: &mut [Command], disk: &Path) -> Result<Run> {
    let mut total = Run { wall: Duration::ZERO, peak_kib: 0 };
    for command in commands {
        let run = measure::run(command)?;
        total = Run { wall: total.wall + run.wall, peak_kib: total.peak_kib.max(run.peak_kib) };
    }
    total.wall += fsync(disk)?;
    Ok(total)
}

/// The first into the second, then the disk's fsync.
fn piped(first: &mut Command, second: &mut Command, disk: &Path) -> Result<Run> {
    let started = Instant::now();
    let mut from = first
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("start {first:?}"))?;
    let pipe = from.stdout.take().context("its output")?;
    let done = measure::run_with_input(second, pipe);
    let status = from.wait()?;
    let mut run = done?;
    if !status.success() {
        bail!("{first:?} ended with {status}");
    }
    fsync(disk)?;
    run.wall = started.elapsed();
    Ok(run)
}

fn fsync(disk: &Path) -> Result<Duration> {
    let started = Instant::now();
    File::open(disk)?.sync_all().with_context(|| format!("fsync {}", disk.display()))?;
    Ok(started.elapsed())
}

#[allow(clippy::cast_precision_loss, reason = "sizes of files fit")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[allow(clippy::cast_precision_loss, reason = "sizes of processes fit")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
