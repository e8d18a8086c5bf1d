//! Is the machine quiet? A number measured beside a compiler is a number about the compiler.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// Below this much idle time just before a run, its numbers say little.
pub(crate) const QUIET: f64 = 95.0;

/// Waits a little for a quiet machine; the idle percentage it then has.
pub(crate) fn wait_for_quiet() -> Result<f64> {
    let mut best: f64 = 0.0;
    for _ in 0..20 {
        let before = read()?;
        std::thread::sleep(Duration::from_millis(300));
        let now = percent(before, read()?);
        if now >= QUIET {
            return Ok(now);
        }
        best = best.max(now);
    }
    Ok(best)
}

/// Idle and total ticks of all processors since the start.
fn read() -> Result<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    parse(&stat).context("/proc/stat has no line for all processors")
}

fn parse(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; the two after it are counted in user.
    Some((*ticks.get(3)?, ticks.iter().take(8).sum()))
}

#[allow(clippy::cast_precision_loss, reason = "ticks of a fraction of a second")]
fn percent(before: (u64, u64), after: (u64, u64)) -> f64 {
    let total = after.1.saturating_sub(before.1).max(1);
    100.0 * after.0.saturating_sub(before.0) as f64 / total as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_a_share_of_all_ticks_and_guests_are_not_counted_twice() {
        let before = parse("cpu  10 0 10 100 0 0 0 0 5 5\ncpu0 1 2 3 4\n").unwrap();
        let after = parse("cpu  20 0 20 160 10 0 0 10 9 9\n").unwrap();
        assert_eq!((before, after), ((100, 120), (160, 220)));
        assert!((percent(before, after) - 60.0).abs() < 1e-9);
    }
}
