//! What a crate measures inside one process: `cargo bench` of it prints a line
//! `MICROSECONDS BOUND NAME` for each.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Runs such a bench; name, milliseconds and bound of each of its `count` lines.
pub(crate) fn run(package: &str, bench: &str, count: usize) -> Result<Vec<(String, f64, f64)>> {
    println!("bench: {bench} alone");
    let out = Command::new(env!("CARGO"))
        .args(["bench", "--locked", "--package", package, "--bench", bench])
        .current_dir(crate::root())
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo bench")?;
    ensure!(out.status.success(), "the bench {bench} ended with {}", out.status);
    let text = String::from_utf8(out.stdout)?;
    let found = results(&text);
    ensure!(found.len() == count, "the bench {bench} printed {text:?}");
    Ok(found)
}

/// Lines `MICROSECONDS BOUND NAME…`.
fn results(text: &str) -> Vec<(String, f64, f64)> {
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next()?.parse::<f64>().ok();
        let (measured, bound) = (number()?, number()?);
        Some((format!("{}, ms", words.next()?), measured / 1000.0, bound / 1000.0))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_milliseconds() {
        let found = results("noise\n42.5 100 the example\n1 5000 a graph\n");
        assert_eq!(found[0], ("the example, ms".to_owned(), 0.0425, 0.1));
        assert_eq!(found.len(), 2);
    }
}
