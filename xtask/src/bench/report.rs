//! Rows, ratios, and whether each promise about speed holds.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

/// What a bench found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) promises: Vec<Promise>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) median_ms: f64,
    pub(crate) runs_ms: Vec<f64>,
    pub(crate) peak_mib: Option<f64>,
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
        writeln!(f, "{:44} {:>10} {:>10}  runs (ms)", "", "median ms", "peak MiB")?;
        for row in &self.rows {
            let peak = row.peak_mib.map_or_else(|| "-".to_owned(), |mib| format!("{mib:.1}"));
            let runs: Vec<_> = row.runs_ms.iter().map(|ms| format!("{ms:.0}")).collect();
            writeln!(f, "{:44} {:>10.0} {peak:>10}  {}", row.what, row.median_ms, runs.join(" "))?;
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
