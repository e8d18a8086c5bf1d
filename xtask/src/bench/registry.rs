//! Registry to layout, and serving blobs, beside the peers.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use portolan_core::Descriptor;

use super::measure::{self, Run, median};
use super::report::{Promise, Report, Row, millis};
use super::server::{Server, push};
use super::{fixture, http};
use crate::program::{PORTOLAN, released};
use crate::testbed::build::{Missing, Toolbox, ensure};
use crate::testbed::parts::Use;

const REPOSITORY: &str = "bench/image";

pub(crate) fn run(runs: usize) -> Result<Report> {
    let tools = ensure(Use::Bench, Missing::Fails)?;
    let portolan = released(PORTOLAN)?;
    let layout = fixture::image()?;
    let blobs = fixture::blobs(&layout)?;
    // Beside the cache and so on the same disk as everything measured; gone when dropped.
    let scratch = tempfile::tempdir_in(layout.parent().context("the cache has a folder")?)?;
    let peer = Server::docker_registry(&tools, &scratch.path().join("peer"))?;
    let ours = Server::embedded(&portolan, &scratch.path().join("ours"))?;
    for server in [&peer, &ours] {
        println!("bench: filling {}", server.address);
        push(&tools, &layout, &server.reference(REPOSITORY))?;
    }

    let mut report = Report::default();
    let (fastest_peer, ours_pull, plain, peak) =
        pulls(&mut report, runs, &tools, &portolan, &peer, &blobs, scratch.path())?;
    let (served_peer, served_ours) = serving(&mut report, runs, &peer, &ours, &blobs)?;
    report.promises = vec![
        promise(
            "registry -> layout against the faster of crane and skopeo",
            ours_pull,
            fastest_peer,
            1.0,
        ),
        promise(
            "registry -> layout against plain parallel HTTP and hashing",
            ours_pull,
            plain,
            1.3,
        ),
        promise("embedded server against docker-registry", served_ours, served_peer, 1.0),
        Promise { what: "peak memory of a copy, MiB".to_owned(), measured: peak, at_most: 64.0 },
    ];
    Ok(report)
}

fn promise(what: &str, ours: Duration, theirs: Duration, at_most: f64) -> Promise {
    let measured = ours.as_secs_f64() / theirs.as_secs_f64();
    Promise { what: format!("{what}, ratio"), measured, at_most }
}

#[allow(clippy::too_many_arguments, reason = "one measurement, told in one place")]
fn pulls(
    report: &mut Report,
    runs: usize,
    tools: &Toolbox,
    portolan: &Path,
    peer: &Server,
    blobs: &[Descriptor],
    scratch: &Path,
) -> Result<(Duration, Duration, Duration, f64)> {
    let from = peer.reference(REPOSITORY);
    let out = scratch.join("out");
    let mut crane = Vec::new();
    let mut skopeo = Vec::new();
    let mut ours = Vec::new();
    let mut plain = Vec::new();
    for number in 0..runs {
        println!("bench: pull {}/{runs}", number + 1);
        let timed = |command: &mut Command| -> Result<Run> {
            settle(&out)?;
            measure::run(command)
        };
        let mut command = Command::new(&tools["crane"]);
        crane.push(timed(command.args(["pull", "--insecure", "--format=oci", &from]).arg(&out))?);
        let mut command = Command::new(&tools["skopeo"]);
        command.args(["copy", "-q", "--src-tls-verify=false", &format!("docker://{from}")]);
        skopeo.push(timed(command.arg(format!("oci:{}:bench", out.display())))?);
        let mut command = Command::new(portolan);
        command.args(["image", "copy", "--progress", "none", &from]);
        ours.push(timed(command.arg(format!("oci:{}:bench", out.display())))?);
        settle(&out)?;
        plain.push(http::fetch_all(peer.address, REPOSITORY, blobs, true)?);
    }
    settle(&out)?;
    let peak = ours.iter().map(|run| run.peak_kib).max().unwrap_or(0);
    let crane = add_row(report, "crane pull --format=oci", &crane);
    let skopeo = add_row(report, "skopeo copy", &skopeo);
    let ours = add_row(report, "portolan image copy (fsynced)", &ours);
    let plain = add_times(report, "plain parallel HTTP + sha256, nothing written", plain);
    #[allow(clippy::cast_precision_loss, reason = "kibibytes of a process fit")]
    let peak_mib = peak as f64 / 1024.0;
    Ok((crane.min(skopeo), ours, plain, peak_mib))
}

fn serving(
    report: &mut Report,
    runs: usize,
    peer: &Server,
    ours: &Server,
    blobs: &[Descriptor],
) -> Result<(Duration, Duration)> {
    let mut theirs_times = Vec::new();
    let mut ours_times = Vec::new();
    // One unmeasured round each, so that both read from the page cache.
    for server in [peer, ours] {
        http::fetch_all(server.address, REPOSITORY, blobs, false)?;
    }
    for _ in 0..runs {
        theirs_times.push(http::fetch_all(peer.address, REPOSITORY, blobs, false)?);
        ours_times.push(http::fetch_all(ours.address, REPOSITORY, blobs, false)?);
    }
    let theirs = add_times(report, "serve all blobs: docker-registry", theirs_times);
    let ours = add_times(report, "serve all blobs: portolan registry serve", ours_times);
    Ok((theirs, ours))
}

fn add_row(report: &mut Report, what: &str, runs: &[Run]) -> Duration {
    let median = add_times(report, what, runs.iter().map(|run| run.wall).collect());
    #[allow(clippy::cast_precision_loss, reason = "kibibytes of a process fit")]
    let peak = runs.iter().map(|run| run.peak_kib).max().unwrap_or(0) as f64 / 1024.0;
    if let Some(row) = report.rows.last_mut() {
        row.peak_mib = Some(peak);
    }
    median
}

fn add_times(report: &mut Report, what: &str, times: Vec<Duration>) -> Duration {
    let runs_ms = times.iter().map(|time| millis(*time)).collect();
    let median = median(times);
    report.rows.push(Row {
        what: what.to_owned(),
        median_ms: millis(median),
        runs_ms,
        peak_mib: None,
        idle: None,
    });
    median
}

/// Removes the last result and lets the disk finish, so that no run pays for another's writes.
fn settle(out: &Path) -> Result<()> {
    crate::testbed::cache::remove_dir(out)?;
    rustix::fs::sync();
    Ok(())
}
