//! The whole journey on one machine: the first time with nothing there, and again; and a machine of what came of it.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::commands::installed;
use super::measure::{median, run as measured};
use super::report::{Promise, Report, Row, millis};
use super::{idle, machine};
use crate::program::{PORTOLAN, released};

/// What a person waits for after compilation, in milliseconds: the first time, and again.
const GOALS: [(&str, f64); 2] = [("cold", 3_000.0), ("warm", 1_000.0)];

pub(crate) fn run(runs: usize) -> Result<Report> {
    let scratch = tempfile::tempdir()?;
    let portolan = installed(&released(PORTOLAN)?, scratch.path(), "portolan")?;
    let hello = crate::root().join("examples/hello");
    let ship = |root: &Path| {
        let mut command = Command::new(&portolan);
        command.arg("ship").arg(&hello).arg("--root").arg(root).args(["--progress", "none"]);
        command.args(["--listen", "127.0.0.1:0"]);
        command
    };
    let idle = idle::wait_for_quiet()?;
    let mut walls = [Vec::new(), Vec::new()];
    let mut peak_kib = 0;
    for number in 0..runs {
        let root = scratch.path().join(format!("root-{number}"));
        for wall in &mut walls {
            let one = measured(&mut ship(&root))?;
            wall.push(one.wall);
            peak_kib = peak_kib.max(one.peak_kib);
        }
    }
    let mut report = Report::default();
    for ((kind, goal), walls) in GOALS.into_iter().zip(walls) {
        let what = format!("portolan ship examples/hello, {kind}");
        let runs_ms = walls.iter().map(|wall| millis(*wall)).collect();
        let median_ms = millis(median(walls));
        #[allow(clippy::cast_precision_loss, reason = "kibibytes of a process fit")]
        let peak_mib = Some(peak_kib as f64 / 1024.0);
        let row = Row { what: what.clone(), median_ms, runs_ms, peak_mib, idle: Some(idle) };
        report.rows.push(row);
        let what = format!("{what}, ms");
        report.promises.push(Promise { what, measured: median_ms, at_most: goal });
    }
    let root = scratch.path().join("root-0");
    let shipped = machine::shipped(&mut ship(&root))?;
    machine::run(&mut report, runs, &portolan, (&root, &shipped))?;
    Ok(report)
}
