//! Rows, ratios, and whether each promise about speed holds.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

use super::idle::QUIET;

/// What a bench found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) promises: Vec<Promise>,
    /// What else there is to know.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) median_ms: f64,
    pub(crate) runs_ms: Vec<f64>,
    pub(crate) peak_mib: Option<f64>,
    /// How idle the machine was just before each run, the lowest of them, in percent.
    pub(crate) idle: Option<f64>,
}

/// A number that must not be passed.
#[derive(Debug, Serialize)]
pub(crate) struct Promise {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) at_most: f64,
}

impl Promise {
    fn holds(&self) -> bool {
        self.measured <= self.at_most
    }
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl Report {
    /// An error if a promise is broken, so that scripts notice.
    pub(crate) fn verdict(&self) -> Result<()> {
        let broken: Vec<_> =
            self.promises.iter().filter(|p| !p.holds()).map(|p| p.what.as_str()).collect();
        if !broken.is_empty() {
            bail!("not reached: {}", broken.join("; "));
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [what, median, peak, idle] = ["", "median ms", "peak MiB", "idle %"];
        writeln!(f, "{what:48} {median:>10} {peak:>9} {idle:>7}  runs (ms)")?;
        for row in &self.rows {
            let or_dash =
                |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"));
            let (peak, idle) = (or_dash(row.peak_mib), or_dash(row.idle));
            let runs: Vec<_> = row.runs_ms.iter().map(|ms| format!("{ms:.0}")).collect();
            let (what, median) = (&row.what, row.median_ms);
            writeln!(f, "{what:48} {median:>10.1} {peak:>9} {idle:>7}  {}", runs.join(" "))?;
        }
        let least = self.rows.iter().filter_map(|row| row.idle).fold(100.0, f64::min);
        if least < QUIET {
            writeln!(f, "\nNOT QUIET: only {least:.0} % idle before a run; measure again")?;
        }
        for note in &self.notes {
            writeln!(f, "\n{note}")?;
        }
        writeln!(f)?;
        for promise in &self.promises {
            let verdict = if promise.holds() { "ok    " } else { "MISSED" };
            let Promise { what, measured, at_most } = promise;
            writeln!(f, "{verdict} {what}: {measured:.2} (at most {at_most:.2})")?;
        }
        Ok(())
    }
}
