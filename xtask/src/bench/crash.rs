//! Thousands of `kill -9`: the agent's own crash tests, which know what must be true afterwards,
//! for as long as one likes.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::suite;

/// The tests that kill, and look. Both take the number from `PORTOLAN_KILLS`.
const TESTS: [&str; 2] = [
    "crash::five_hundred_kills_lose_no_pinned_disk_and_leave_nothing_half_done",
    "crash::agents_killed_anywhere_lose_nothing_and_leave_nothing",
];

pub(crate) fn run(kills: u64) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["test", "--locked", "--package", "portolan-agent"])
        .args(["--test", "artifacts", "--test", "instances", "--no-fail-fast", "--"])
        .args(TESTS)
        .args(["--exact", "--nocapture"])
        .current_dir(crate::root())
        .env("PORTOLAN_KILLS", kills.to_string());
    let outcome = suite::run(&mut cargo)?;
    println!("\ncargo xtask bench crash: {kills} kills a test in {:.0?}", outcome.took);
    println!("{}", outcome.closing_line());
    // A test that was renamed would be one that nobody runs.
    let all = outcome.green() && outcome.tally.passed == TESTS.len() as u64;
    ensure!(all, "not every crash test passed; see above");
    Ok(())
}
