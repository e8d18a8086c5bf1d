//! The same nodes and Shims for ours and for runtime-class-manager, each with a control plane of its own: what is
//! written, and what it costs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::at_most;
use super::audit::{Mark, Writes};
use super::controllers::Controller;
use super::kubelets::Kubelets;
use super::objects::{NAMESPACE, SHIMS, create_shims, is_supported, populate};
use super::plane::Plane;
use super::row;
use crate::bench::report::Report;
use crate::testbed::build::Toolbox;

/// An install takes some seconds, and not everywhere the same.
const TAKES: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(27));
/// Longer than anybody needs for all installs: a pass over all nodes for each of them takes its time.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Who has written nothing for so long is done.
const STILL: Duration = Duration::from_secs(6);
/// And who still writes so long after the last install is not waited for.
const RESTLESS: Duration = Duration::from_secs(60);

/// What it took.
#[derive(Debug)]
struct Cost {
    writes: Writes,
    cpu: Duration,
    time: Duration,
    peak: f64,
}

#[allow(clippy::cast_precision_loss, reason = "thousands")]
pub(super) fn run(
    report: &mut Report,
    tools: &Toolbox,
    program: &Path,
    nodes: usize,
) -> Result<()> {
    let definition = crate::root().join("deploy/crds/shims.runtime.spinkube.dev.yaml");
    let ours = measure(tools, &definition, nodes, |plane| Controller::ours(program, plane))?;
    let upstream = tools.get("runtime-class-manager").context("no runtime-class-manager")?;
    let crds = tools.get("runtime-class-manager-crds").context("no definitions of it")?;
    // With its own definition: ours has a status of its own, which it does not write to.
    let definition = crds.join("runtime.spinkube.dev_shims.yaml");
    let peer = measure(tools, &definition, nodes, |plane| Controller::upstream(upstream, plane))?;
    for (who, cost) in [("portolan-controller", &ours), ("runtime-class-manager", &peer)] {
        let what = format!("{nodes} nodes, three Shims, {who}");
        report.rows.push(row(what, cost.time, &[cost.time], Some(cost.peak)));
        report.notes.push(format!(
            "{nodes} nodes, three Shims, {who}: {}, {:.1} s of processor time",
            cost.writes,
            cost.cpu.as_secs_f64()
        ));
    }
    let writes = ours.writes.total() as f64 / peer.writes.total() as f64;
    at_most(report, "writes, in those of runtime-class-manager", writes, 0.2);
    let cpu = ours.cpu.as_secs_f64() / peer.cpu.as_secs_f64();
    at_most(report, "processor time, in that of runtime-class-manager", cpu, 1.0);
    Ok(())
}

fn measure(
    tools: &Toolbox,
    definition: &Path,
    nodes: usize,
    start: impl Fn(&Plane) -> Result<Controller>,
) -> Result<Cost> {
    let plane = Plane::start(tools)?;
    plane.define(definition, "/apis/runtime.spinkube.dev/v1alpha1/shims")?;
    populate(&plane, nodes)?;
    let controller = start(&plane)?;
    let installs = SHIMS.len() * (0..nodes).filter(|number| is_supported(*number)).count();
    println!("bench: {nodes} nodes, three Shims, {installs} installs");
    let mark = Mark::now(&plane)?;
    let kubelets = Kubelets::new(&plane, NAMESPACE, TAKES);
    let began = Instant::now();
    let time = std::thread::scope(|scope| {
        kubelets.start(scope)?;
        let done = create_shims(&plane).and_then(|()| finish(&plane, mark, &kubelets, installs));
        kubelets.stop()?;
        done.map(|last| last.saturating_duration_since(began))
    })?;
    let writes = mark.writes(&plane)?;
    let (cpu, peak) = (controller.process.cpu()?, controller.process.peak_memory()?);
    Ok(Cost { writes, cpu, time, peak })
}

/// Until all installs have ended and nothing more is written; when that was.
fn finish(plane: &Plane, mark: Mark, kubelets: &Kubelets, installs: usize) -> Result<Instant> {
    let end = Instant::now() + PATIENCE;
    let (mut total, mut since) = (0, Instant::now());
    let mut all_ended = None;
    loop {
        let progress = kubelets.progress()?;
        // The log is not read before that: who reads it takes time from who is measured.
        if progress.ended >= installs {
            let now = mark.writes(plane)?.total();
            if now != total {
                (total, since) = (now, Instant::now());
            }
            let ended: &mut Instant = all_ended.get_or_insert_with(Instant::now);
            // What it wrote until now is less than it would have.
            if since.elapsed() > STILL || ended.elapsed() > RESTLESS {
                return Ok(since);
            }
        } else if Instant::now() > end {
            bail!(
                "after {PATIENCE:?} {} installs have begun and {} ended of {installs}",
                progress.made,
                progress.ended
            );
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
