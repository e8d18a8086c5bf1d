//! A machine of a cached image: from the WorkloadSpec to the VMM's start, and what each stage has of the time until the
//! program's first line. The agent verifies by a policy, as one in a fleet would.
//!
//! Each moment is the one at which a file of the instance says so, looked for four thousand times a second: nothing in
//! the agent is there for this measurement.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::commands::said;
use super::host::Agent;
use super::idle;
use super::measure::median;
use super::report::{Promise, Report, Row, millis};
use super::server::Server;
use crate::program::{AGENT, INIT, released};
use crate::testbed::build::{Missing, Toolbox, ensure_parts};
use crate::testbed::parts::closure;

/// From the spec to the VMM's start, in milliseconds.
const MOST: f64 = 50.0;
const PARTS: [&str; 2] = ["qemu-system-x86_64", "guest-kernel"];
const LOOK: Duration = Duration::from_micros(250);
/// Software emulation on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// What happens one after the other, each with the file that tells its end.
const STAGES: [(&str, Sign); 5] = [
    ("spec accepted, verified, disk pinned", Sign::Says("state.json", "\"rootdisk_key\"")),
    ("scratch disk, initramfs and orders written", Sign::There("machine.json")),
    ("VMM started", Sign::There("running.json")),
    ("kernel and init, to the program's start", Sign::There("booted")),
    ("program, to its first line", Sign::Says("console.log", "hello from linux/")),
];
/// The stages that end with the VMM's start.
const BEFORE_VMM: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Sign {
    There(&'static str),
    Says(&'static str, &'static str),
}

impl Sign {
    fn is_given(self, dir: &Path) -> bool {
        match self {
            Self::There(file) => dir.join(file).exists(),
            // What a guest writes need not be text.
            Self::Says(file, word) => fs::read(dir.join(file))
                .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(word)),
        }
    }
}

/// Adds its rows; `shipped` is what `portolan ship examples/hello -o json --root ROOT` printed.
pub(crate) fn run(
    report: &mut Report,
    runs: usize,
    portolan: &Path,
    (root, shipped): (&Path, &Value),
) -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        report.notes.push("NOT MEASURED: QEMU's microvm machine needs an x86-64 host".to_owned());
        return Ok(());
    }
    let tools = ensure_parts(&closure(|part| PARTS.contains(&part.name)), Missing::Fails)?;
    let agent = released(AGENT)?;
    let server = Server::embedded(portolan, &root.join("registry"))?;
    let agent = Agent::start(&agent, root, &config(&tools, root, shipped)?)?;
    let bench = Bench { agent, root, spec: spec(&server, shipped)? };
    // The first start reads everything from disk, asks the registry, and tries KVM.
    let accel = bench.start("m-first")?.accel;
    let idle = idle::wait_for_quiet()?;
    let mut all = Vec::new();
    for number in 0..runs {
        all.push(bench.start(&format!("m-{number}"))?.ends);
    }
    add(report, &all, &accel, idle);
    Ok(())
}

/// A row for each stage, the promise, and the shares.
fn add(report: &mut Report, all: &[Ends], accel: &str, idle: f64) {
    let mut row = |what: String, times: Vec<Duration>| {
        let runs_ms = times.iter().map(|time| millis(*time)).collect();
        let median_ms = millis(median(times));
        report.rows.push(Row { what, median_ms, runs_ms, peak_mib: None, idle: Some(idle) });
        median_ms
    };
    let vmm = "WorkloadSpec to the VMM's start, cached";
    let to_vmm = row(vmm.to_owned(), all.iter().map(|ends| ends[BEFORE_VMM - 1]).collect());
    let whole = all.iter().map(|ends| ends[STAGES.len() - 1]).collect();
    let whole = row(format!("WorkloadSpec to the first line, {accel}"), whole);
    let mut shares = Vec::new();
    for (at, (name, _)) in STAGES.iter().enumerate() {
        let before = |ends: &Ends| at.checked_sub(1).map_or(Duration::ZERO, |before| ends[before]);
        let times = all.iter().map(|ends| ends[at].saturating_sub(before(ends))).collect();
        let took = row(format!("  {name}"), times);
        shares.push(format!("{name} {:.1} %", 100.0 * took / whole));
    }
    let shares = shares.join("; ");
    report.notes.push(format!("of {whole:.0} ms to the first line ({accel}): {shares}"));
    let what = format!("{vmm}, ms");
    report.promises.push(Promise { what, measured: to_vmm, at_most: MOST });
}

/// How long after the spec was sent each stage was over.
type Ends = [Duration; STAGES.len()];

struct Started {
    ends: Ends,
    /// What executed the guest's instructions.
    accel: String,
}

struct Bench<'a> {
    agent: Agent,
    root: &'a Path,
    spec: Value,
}

impl Bench<'_> {
    fn start(&self, id: &str) -> Result<Started> {
        let (path, dir) = (format!("/v1/instances/{id}"), self.root.join("instances").join(id));
        let began = Instant::now();
        let seen = std::thread::scope(|scope| {
            let watching = scope.spawn(|| watch(&dir, began));
            let (status, answer) = self.agent.call("PUT", &path, &self.spec)?;
            ensure!(matches!(status, 200..=202), "PUT: {status} {answer}");
            watching.join().expect("it does not panic")
        });
        let seen = seen.with_context(|| self.told(&path))?;
        let until = Instant::now() + PATIENCE;
        while !self.told(&path).contains("\"phase\":\"stopped\"") {
            ensure!(Instant::now() < until, "it does not end: {}", self.told(&path));
            std::thread::sleep(Duration::from_millis(20));
        }
        let (status, answer) = self.agent.call("DELETE", &path, &Value::Null)?;
        ensure!(matches!(status, 200..=204), "DELETE: {status} {answer}");
        Ok(seen)
    }

    fn told(&self, path: &str) -> String {
        match self.agent.call("GET", path, &Value::Null) {
            Ok((_, answer)) => answer,
            Err(error) => format!("{error:#}"),
        }
    }
}

/// Looks until every stage is over.
fn watch(dir: &Path, began: Instant) -> Result<Started> {
    let (mut ends, mut accel) = (Ends::default(), String::new());
    for (at, (name, sign)) in STAGES.into_iter().enumerate() {
        while !sign.is_given(dir) {
            ensure!(began.elapsed() < PATIENCE, "not after {PATIENCE:?}: {name}");
            std::thread::sleep(LOOK);
        }
        ends[at] = began.elapsed();
        if at + 1 == BEFORE_VMM {
            accel = accel_of(&fs::read_to_string(dir.join("machine.json"))?);
        }
    }
    Ok(Started { ends, accel })
}

/// What QEMU was told to use.
fn accel_of(orders: &str) -> String {
    match orders.contains("accel=kvm") {
        true => "KVM".to_owned(),
        false => "software emulation".to_owned(),
    }
}

/// An agent that boots with QEMU, and starts what the shipper signed.
fn config(tools: &Toolbox, root: &Path, shipped: &Value) -> Result<String> {
    let kernel = &tools["guest-kernel"];
    let public = PathBuf::from(text(shipped, "publicKey")?);
    let policy = root.with_extension("policy.yaml");
    let signers = json!({"shipper": {"keys": {"files": [public]}}});
    let default = json!({"require": {"allOf": ["shipper"]}});
    // YAML takes JSON.
    fs::write(&policy, json!({"version": 1, "signers": signers, "default": default}).to_string())?;
    Ok(format!(
        "[cache]\ntarget_percent = 98\nhigh_water_percent = 99\n\
         [guest]\nkernel = {:?}\nmodules_dir = {:?}\ninit = {:?}\n\
         [vmm]\nkind = \"qemu\"\nbinary = {:?}\nboot_timeout = \"180s\"\nkvm_probe_timeout = \"10s\"\n\
         [verification]\npolicy = {policy:?}\n",
        kernel.join("vmlinuz"),
        kernel.join("modules"),
        INIT.build(&["--release"])?,
        tools["qemu-system-x86_64"],
    ))
}

/// What `portolan release workload` would print of it.
fn spec(server: &Server, shipped: &Value) -> Result<Value> {
    let image = text(shipped, "image")?;
    let (_, path) = image.split_once('/').context("an image of a registry")?;
    let name = path.rsplit_once(':').map_or(path, |(name, _)| name);
    Ok(json!({"image": {
        "repository": format!("{}/{name}", server.address),
        "index_digest": text(shipped, "indexDigest")?,
        "resolved_digest": text(shipped, "resolvedDigest")?,
        "os": "linux", "arch": "amd64",
    }}))
}

fn text<'a>(shipped: &'a Value, key: &str) -> Result<&'a str> {
    shipped[key].as_str().with_context(|| format!("no {key} in {shipped}"))
}

/// What `portolan ship` prints for scripts.
pub(crate) fn shipped(ship: &mut Command) -> Result<Value> {
    serde_json::from_str(&said(ship.args(["-o", "json"]))?).context("the report of portolan ship")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_their_share_of_the_whole() {
        let mut report = Report::default();
        let ends = |times: [u64; 5]| times.map(Duration::from_millis);
        add(&mut report, &[ends([10, 15, 40, 90, 100])], "KVM", 99.0);
        let medians: Vec<f64> = report.rows.iter().map(|row| row.median_ms).collect();
        assert_eq!(medians, [40.0, 100.0, 10.0, 5.0, 25.0, 50.0, 10.0]);
        assert!(report.verdict().is_ok());
        let note = &report.notes[0];
        assert!(note.starts_with("of 100 ms to the first line (KVM): "), "{note}");
        assert!(note.contains("VMM started 25.0 %"), "{note}");
        add(&mut report, &[ends([10, 15, 60, 90, 100])], "KVM", 99.0);
        assert!(report.verdict().unwrap_err().to_string().contains("VMM's start"));
    }

    #[test]
    fn what_executed_the_guest_is_in_its_orders() {
        assert_eq!(accel_of("\"microvm,accel=kvm,acpi=on\""), "KVM");
        assert_eq!(accel_of("\"microvm,accel=tcg,acpi=on\""), "software emulation");
    }
}
