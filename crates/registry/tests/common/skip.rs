//! A test that cannot run here must not look like one that passed.

use std::io::Write as _;

/// Where `cargo xtask test` collects what did not run, to count it as skipped.
const SKIPS: &str = "PORTOLAN_TEST_SKIPS";

/// Notes that the running test cannot run here.
///
/// # Panics
/// Where nobody counts skips: then failing is the only way not to be taken for a success.
#[track_caller]
pub(crate) fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let Some(file) = std::env::var_os(SKIPS) else {
        panic!(
            "{test} cannot run here: {why}; `cargo xtask test` installs what it may and counts the rest as skipped"
        );
    };
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .expect("the list of skipped tests can be written");
    writeln!(file, "{test}: {why}").expect("the list of skipped tests can be written");
}
