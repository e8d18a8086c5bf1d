//! Rows as they are printed, and goals as ratios of medians.

use std::fmt::Write as _;
use std::time::Duration;

use super::Measured;
use crate::bench::measure::median;
use crate::bench::report::{Promise, Report, Row, millis};

/// A number and what it may be at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Goal {
    pub(super) measured: f64,
    pub(super) at_most: f64,
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn middle_of(loads: &[Measured], value: impl Fn(&Measured) -> f64) -> f64 {
    middle(loads.iter().map(value).collect())
}

/// Of one process, in MiB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Memory {
    pub(super) idle: f64,
    pub(super) some: f64,
    pub(super) all: f64,
    pub(super) again: f64,
    pub(super) peak: f64,
}

impl Memory {
    pub(super) fn median(runs: &[Self]) -> Self {
        let of = |value: fn(&Self) -> f64| middle(runs.iter().map(value).collect());
        Self {
            idle: of(|one| one.idle),
            some: of(|one| one.some),
            all: of(|one| one.all),
            again: of(|one| one.again),
            peak: of(|one| one.peak),
        }
    }
}

impl Goal {
    fn ratio(ours: f64, theirs: f64, at_most: f64) -> Self {
        Self { measured: ours / theirs, at_most }
    }

    /// So much of their time.
    pub(super) fn times(ours: &[Duration], theirs: &[Duration], at_most: f64) -> Self {
        let middle = |times: &[Duration]| median(times.to_vec()).as_secs_f64();
        Self::ratio(middle(ours), middle(theirs), at_most)
    }

    /// So many times their rate: told as a share of ours, which must not be more than its inverse.
    pub(super) fn rate(ours: &[Measured], theirs: &[Measured], at_least: f64) -> Self {
        let rate = |loads| middle_of(loads, |load| load.rate);
        Self::ratio(rate(theirs), rate(ours), 1.0 / at_least)
    }

    pub(super) fn p99(ours: &[Measured], theirs: &[Measured], at_most: f64) -> Self {
        let p99 = |loads| middle_of(loads, |load| load.p99.as_secs_f64());
        Self::ratio(p99(ours), p99(theirs), at_most)
    }

    pub(super) fn cpu(ours: &[Measured], theirs: &[Measured], at_most: f64) -> Self {
        let cpu = |loads| middle_of(loads, |load| load.cpu.as_secs_f64());
        Self::ratio(cpu(ours), cpu(theirs), at_most)
    }
}

/// All rows so far.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Row>,
    promises: Vec<Promise>,
    loads: String,
    memory: String,
}

impl Table {
    pub(super) fn times(&mut self, what: &str, times: &[Duration]) {
        if times.is_empty() {
            return;
        }
        self.rows.push(Row {
            what: what.to_owned(),
            median_ms: millis(median(times.to_vec())),
            runs_ms: times.iter().map(|time| millis(*time)).collect(),
            peak_mib: None,
            idle: None,
        });
    }

    pub(super) fn loads(&mut self, what: &str, loads: &[Measured]) {
        if loads.is_empty() {
            return;
        }
        let ms = |value: fn(&Measured) -> Duration| {
            middle_of(loads, |load| value(load).as_secs_f64() * 1000.0)
        };
        let rate = middle_of(loads, |load| load.rate);
        let (p50, p99, cpu) = (ms(|load| load.p50), ms(|load| load.p99), ms(|load| load.cpu));
        let cpu = cpu * 1000.0;
        let _ = writeln!(self.loads, "{what:56} {rate:>10.0} {p50:>8.2} {p99:>8.2} {cpu:>8.1}");
    }

    pub(super) fn memory(&mut self, who: &str, values: [f64; 5]) {
        let values = values.map(|value| format!("{value:>8.1}")).join(" ");
        let _ = writeln!(self.memory, "{who:16} {values}");
    }

    pub(super) fn promise(&mut self, what: &str, goal: Goal) {
        let Goal { measured, at_most } = goal;
        // Compared with nobody, it is no goal.
        if !measured.is_finite() {
            return;
        }
        self.promises.push(Promise { what: what.to_owned(), measured, at_most });
    }

    pub(super) fn report(self) -> Report {
        let head = format!(
            "{:56} {:>10} {:>8} {:>8} {:>8}\n",
            "", "requests/s", "p50 ms", "p99 ms", "CPU µs"
        );
        let memory = format!(
            "{:16} {:>8} {:>8} {:>8} {:>8} {:>8}   MiB\n",
            "memory", "idle", "2,000", "10,000", "again", "peak"
        );
        let ratios =
            "Goals are ratios of ours to Ratify's, of rates the inverse; memory is in MiB.";
        Report {
            rows: self.rows,
            promises: self.promises,
            notes: vec![head + &self.loads, memory + &self.memory, ratios.to_owned()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(rate: f64, milliseconds: u64) -> Measured {
        let time = Duration::from_millis(milliseconds);
        Measured { rate, p50: time, p99: time, cpu: time }
    }

    #[test]
    fn goals_are_of_the_medians_and_a_higher_rate_is_a_smaller_number() {
        let theirs = [load(10.0, 4), load(1000.0, 900), load(10.0, 4)];
        let ours = [load(50.0, 1), load(50.0, 1), load(1.0, 77)];
        assert_eq!(Goal::rate(&ours, &theirs, 5.0), Goal { measured: 0.2, at_most: 0.2 });
        assert_eq!(Goal::p99(&ours, &theirs, 0.25), Goal { measured: 0.25, at_most: 0.25 });
        assert_eq!(Goal::cpu(&ours, &theirs, 0.1), Goal { measured: 0.25, at_most: 0.1 });
    }
}
