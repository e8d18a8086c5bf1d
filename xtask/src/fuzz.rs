//! `cargo xtask fuzz`: each target for a given time; corpus and log stay in the user's cache.

use std::collections::BTreeSet;
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
    for name in wanted {
        let target = Target { cargo_fuzz: &cargo_fuzz, fuzz: &fuzz, name, dir: kept.join(name) };
        let log = target.dir.join("log");
        let started = Instant::now();
        let verdict = target.run(args.seconds)?;
        let inputs = fs::read_dir(target.corpus())?.count();
        println!(
            "fuzz {name}: {} after {:.0?}, {inputs} inputs kept, log {}",
            match &verdict {
                Verdict::Clean => "clean".to_owned(),
                Verdict::Finding(inputs) => format!("FINDING {}", inputs.join(" ")),
                Verdict::Broken => bail!("fuzz {name} ended without a finding; {}", log.display()),
            },
            started.elapsed(),
            log.display()
        );
        if verdict != Verdict::Clean {
            found.push(name.as_str());
        }
    }
    println!("{} passed, {} failed", wanted.len() - found.len(), found.len());
    if !found.is_empty() {
        bail!("findings in {}; the input is named at the end of each log", found.join(", "));
    }
    Ok(())
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// All inputs were taken well.
    Clean,
    /// These inputs were not.
    Finding(Vec<String>),
    /// It did not run to its end, and no input is to blame.
    Broken,
}

impl Verdict {
    /// Of the program's end, and of the inputs that it left.
    fn of(success: bool, left: Vec<String>) -> Self {
        match (success, left.is_empty()) {
            (_, false) => Self::Finding(left),
            (true, true) => Self::Clean,
            (false, true) => Self::Broken,
        }
    }
}

/// One target and where its corpus, log and findings are.
struct Target<'a> {
    cargo_fuzz: &'a Path,
    fuzz: &'a Path,
    name: &'a str,
    dir: PathBuf,
}

impl Target<'_> {
    fn corpus(&self) -> PathBuf {
        self.dir.join("corpus")
    }

    /// Builds it, which is no finding when it fails, and runs it.
    fn run(&self, seconds: u64) -> Result<Verdict> {
        let (name, corpus) = (self.name, self.corpus());
        fs::create_dir_all(&corpus).with_context(|| format!("create {}", corpus.display()))?;
        let log = self.dir.join("log");
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        println!("fuzz {name}: building, then {seconds} s");
        if !self.cargo("build", &file)?.status().context("start cargo fuzz")?.success() {
            bail!("the fuzz target {name} cannot be built; see {}", log.display());
        }
        let before = findings(&self.dir)?;
        let seeds = self.fuzz.join("seeds").join(name);
        let status = self
            .cargo("run", &file)?
            .arg(&corpus)
            .args(Some(seeds).filter(|seeds| seeds.is_dir()))
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", self.dir.display()))
            // Ten seconds or 2 GiB for one input is a finding, too.
            .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"])
            // Left alone it makes nothing longer than 4 KiB, in which nothing is very deep.
            .arg("-max_len=65536")
            .status()
            .context("start cargo fuzz")?;
        let new = findings(&self.dir)?.difference(&before).cloned().collect();
        Ok(Verdict::of(status.success(), new))
    }

    fn cargo(&self, what: &str, log: &File) -> Result<Command> {
        let mut command = Command::new(self.cargo_fuzz);
        command
            .env("RUSTUP_TOOLCHAIN", TOOLCHAIN)
            .current_dir(crate::root())
            .args(["fuzz", what, self.name])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?);
        Ok(command)
    }
}

/// The inputs that libFuzzer complained about and kept, by the names it gives them.
fn findings(dir: &Path) -> Result<BTreeSet<String>> {
    let kinds = ["crash-", "leak-", "oom-", "timeout-"];
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir).with_context(|| format!("look into {}", dir.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if kinds.iter().any(|kind| name.starts_with(kind)) {
            found.insert(name);
        }
    }
    Ok(found)
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

    #[test]
    fn a_run_that_ended_badly_is_a_finding_only_with_an_input() {
        let input = || vec!["crash-1".to_owned()];
        assert_eq!(Verdict::of(true, vec![]), Verdict::Clean);
        assert_eq!(Verdict::of(false, vec![]), Verdict::Broken);
        assert_eq!(Verdict::of(false, input()), Verdict::Finding(input()));
        let dir = tempfile::tempdir().unwrap();
        for name in ["crash-1", "oom-2", "slow-unit-3", "log"] {
            fs::write(dir.path().join(name), b"").unwrap();
        }
        assert_eq!(
            findings(dir.path()).unwrap().into_iter().collect::<Vec<_>>(),
            ["crash-1", "oom-2"]
        );
    }
}
