//! `cargo xtask fuzz`: each target for a given time; corpus and log stay in the user's cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::testbed::cache::Cache;
use crate::tools::CARGO_FUZZ;

/// The sanitizer needs a nightly compiler; the product itself never does.
const TOOLCHAIN: &str = "nightly";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Targets to run (default: all)
    target: Vec<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let fuzz = crate::root().join("fuzz");
    let known =
        targets(&fs::read_to_string(fuzz.join("Cargo.toml")).context("read fuzz/Cargo.toml")?);
    for target in &args.target {
        if !known.contains(target) {
            bail!("no fuzz target {target}; there are: {}", known.join(", "));
        }
    }
    let wanted = if args.target.is_empty() { &known } else { &args.target };
    let cargo_fuzz = CARGO_FUZZ.ensure()?;
    let kept = Cache::of_user()?.fuzz();

    let mut found = Vec::new();
    for target in wanted {
        let log = kept.join(target).join("log");
        let started = Instant::now();
        let clean = run_one(&cargo_fuzz, &fuzz, target, args.seconds, &kept)?;
        let inputs = fs::read_dir(kept.join(target).join("corpus"))?.count();
        let verdict = if clean { "clean" } else { "FINDING" };
        println!(
            "fuzz {target}: {verdict} after {:.0?}, {inputs} inputs kept, log {}",
            started.elapsed(),
            log.display()
        );
        if !clean {
            found.push(target.as_str());
        }
    }
    println!("{} passed, {} failed", wanted.len() - found.len(), found.len());
    if !found.is_empty() {
        bail!("findings in {}; the input is named at the end of each log", found.join(", "));
    }
    Ok(())
}

fn run_one(
    cargo_fuzz: &Path,
    fuzz: &Path,
    target: &str,
    seconds: u64,
    kept: &Path,
) -> Result<bool> {
    let dir = kept.join(target);
    let corpus = dir.join("corpus");
    fs::create_dir_all(&corpus).with_context(|| format!("create {}", corpus.display()))?;
    let log = File::create(dir.join("log")).with_context(|| format!("log in {}", dir.display()))?;
    println!("fuzz {target}: building, then {seconds} s");
    let seeds: Vec<PathBuf> =
        Some(fuzz.join("seeds").join(target)).into_iter().filter(|dir| dir.is_dir()).collect();
    let status = Command::new(cargo_fuzz)
        .env("RUSTUP_TOOLCHAIN", TOOLCHAIN)
        .current_dir(crate::root())
        .args(["fuzz", "run", target])
        .arg(&corpus)
        .args(&seeds)
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", dir.display()))
        // Ten seconds or 2 GiB for one input is a finding, too.
        .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("start cargo fuzz")?;
    Ok(status.success())
}

/// The `[[bin]]` names of the fuzz crate's manifest.
fn targets(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut in_bin = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_bin = line == "[[bin]]";
        } else if in_bin && let Some(name) = line.strip_prefix("name = ") {
            names.push(name.trim_matches('"').to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bins_are_targets() {
        let manifest = "[package]\nname = \"x\"\n[[bin]]\nname = \"a\"\npath = \"p\"\n\n[[bin]]\nname = \"b\"\n";
        assert_eq!(targets(manifest), ["a", "b"]);
    }
}
