//! Does this host fit this image: the whole command beside NFD's, and what is inside it alone.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::idle;
use super::measure::median;
use super::report::{Promise, Report, Row, millis};
use super::server::Server;
use crate::program::PORTOLAN;
use crate::testbed::build::{Missing, ensure as ensure_parts};
use crate::testbed::parts::Use;

/// Commands of one measurement; `--runs` multiplies it.
const COMMANDS: u32 = 20;
/// The share of NFD's time that ours may take.
const SHARE: f64 = 0.2;

/// The same four questions in both languages: a kernel version, an option, a module and a flag of
/// the processor. The answers do not matter for the time.
const SPEC: &str = r#"{"schemaVersion": "0.1.0", "namespaces": {"app": {"plugins": {
  "kernelVersion": {"data": {"range": "[4.0,)"}},
  "kernelConfiguration": {"data": {"CONFIG_NET": "y"}},
  "kernelModules": {"data": {"vfio_pci": {}}},
  "cpu": {"data": {"flags": ["AVX2"]}}}}}}"#;
const RULES: &str = "version: v1alpha1
compatibilities:
- rules:
  - name: app
    matchFeatures:
    - {feature: kernel.version, matchExpressions: {major: {op: Ge, value: ['4']}}}
    - {feature: kernel.config, matchExpressions: {NET: {op: In, value: ['y']}}}
    - {feature: kernel.loadedmodule, matchExpressions: {vfio_pci: {op: Exists}}}
    - {feature: cpu.cpuid, matchExpressions: {AVX2: {op: Exists}}}
";

pub(crate) fn run(runs: usize) -> Result<Report> {
    let tools = ensure_parts(Use::Bench, Missing::Fails)?;
    let scratch = tempfile::tempdir()?;
    let portolan = installed(&PORTOLAN.build(&["--release"])?, scratch.path(), "portolan")?;
    let their_program = installed(&tools["nfd"], scratch.path(), "nfd")?;
    let server = Server::embedded(&portolan, &scratch.path().join("registry"))?;
    let hello = format!("oci:{}:1", crate::root().join("fixtures/images/hello").display());
    let tagged = |name: &str| format!("{}/bench/{name}:1", server.address);
    let mut digest = String::new();
    for (name, file, content) in [("spec", "needs.json", SPEC), ("rules", "rules.yaml", RULES)] {
        let file = scratch.path().join(file);
        std::fs::write(&file, content)?;
        said(Command::new(&portolan).args(["image", "copy", &hello, &tagged(name)]))?;
        // NFD takes an index for the subject, so both are given the manifest itself.
        digest = said(Command::new(&portolan).args(["image", "resolve", &tagged(name)]))?;
        let image = format!("{}/bench/{name}@{}", server.address, digest.trim());
        let mut attach = Command::new(&portolan);
        said(attach.args(["compat", "attach", &image, "--file"]).arg(&file))?;
    }
    let image = |name: &str| format!("{}/bench/{name}@{}", server.address, digest.trim());
    let ours = |name: &str| {
        let mut command = Command::new(&portolan);
        command.args(["compat", "check", "-o", "json", &image(name)]);
        command
    };
    let nfd = || {
        let mut command = Command::new(&their_program);
        command.args(["compat", "validate-node", "--plain-http", "--output-json", "--image"]);
        command.arg(image("rules"));
        command
    };
    let mut report = Report::default();
    let theirs = commands(&mut report, "nfd compat validate-node", runs, &nfd)?;
    let spec = commands(&mut report, "portolan compat check, a spec", runs, &|| ours("spec"))?;
    let rules =
        commands(&mut report, "portolan compat check, NFD's rules", runs, &|| ours("rules"))?;
    let facts = commands(&mut report, "portolan host facts, all of them", runs, &|| {
        let mut command = Command::new(&portolan);
        command.args(["host", "facts", "-o", "json"]);
        command
    })?;
    for (what, own) in [("a spec", spec), ("NFD's rules", rules)] {
        let mut promise = |kind: &str, own: Duration, their: Duration| {
            let measured = own.as_secs_f64() / their.as_secs_f64();
            let what = format!("check of {what} against nfd, {kind}, ratio");
            report.promises.push(Promise { what, measured, at_most: SHARE });
        };
        promise("wall", own.wall, theirs.wall);
        promise("CPU", own.cpu, theirs.cpu);
    }
    let mut at_most = |what: &str, measured: f64, at_most: f64| {
        report.promises.push(Promise { what: what.to_owned(), measured, at_most });
    };
    at_most("anonymous memory of a check, MiB", anonymous_mib(&mut ours("spec"))?, 12.0);
    at_most("all facts of a host, whole command, ms", millis(facts.wall), 30.0);
    let anonymous = anonymous_mib(&mut nfd())?;
    report.notes.push(format!("anonymous memory of nfd: {anonymous:.1} MiB"));
    for (what, measured, bound) in evaluations()? {
        report.promises.push(Promise { what, measured, at_most: bound });
    }
    Ok(report)
}

/// A copy, as an installation makes one. What a linker wrote stays in the page cache in the small
/// pieces in which it was written, and such a program takes a third more CPU to start than the same
/// bytes copied, or read from disk: that would be measured as ours.
fn installed(program: &Path, directory: &Path, name: &str) -> Result<PathBuf> {
    let copy = directory.join(name);
    std::fs::copy(program, &copy).with_context(|| format!("copy {}", program.display()))?;
    Ok(copy)
}

/// What one command took.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

/// Measures a command that is over in milliseconds: many in a row, each waited for.
fn commands(
    report: &mut Report,
    what: &str,
    runs: usize,
    command: &dyn Fn() -> Command,
) -> Result<Cost> {
    println!("bench: {what}");
    // The first one reads the program from disk.
    once(&mut command())?;
    let idle = idle::wait_for_quiet()?;
    let number = COMMANDS * u32::try_from(runs)?;
    let before = cpu_of_children()?;
    let mut walls = Vec::new();
    for _ in 0..number {
        walls.push(once(&mut command())?);
    }
    let cpu = (cpu_of_children()? - before) / number;
    let runs_ms = walls.iter().map(|wall| millis(*wall)).collect();
    let wall = median(walls);
    let row = |what: String, time: Duration, runs_ms| Row {
        what,
        median_ms: millis(time),
        runs_ms,
        peak_mib: None,
        idle: Some(idle),
    };
    report.rows.push(row(what.to_owned(), wall, runs_ms));
    report.rows.push(row(format!("{what}, CPU (mean)"), cpu, Vec::new()));
    Ok(Cost { wall, cpu })
}

/// One run. "No" and "unknown" are answers too.
fn once(command: &mut Command) -> Result<Duration> {
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    let status = child.wait()?;
    let wall = began.elapsed();
    let mut said = String::new();
    child.stderr.take().context("its words")?.read_to_string(&mut said)?;
    ensure!(matches!(status.code(), Some(0 | 1 | 3)), "{command:?} ended with {status}: {said}");
    Ok(wall)
}

/// What a command that must succeed prints.
fn said(command: &mut Command) -> Result<String> {
    let out =
        command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(out.status.success(), "{command:?} ended with {}: {words}", out.status);
    Ok(String::from_utf8(out.stdout)?)
}

/// What all children that ended have used, to the tick.
fn cpu_of_children() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("read /proc/self/stat")?;
    children(&stat).context("/proc/self/stat has no times")
}

/// Fields 16 and 17, counted after the name in parentheses, which is the second.
fn children(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace().skip(13);
    let mut ticks = || words.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    // A hundred ticks a second, on every architecture that Linux still runs on.
    Some(Duration::from_millis((user + system) * 10))
}

/// The anonymous memory of a command at its end: it writes its answer into a pipe that is full,
/// and so stands still with all it holds.
fn anonymous_mib(command: &mut Command) -> Result<f64> {
    let (mut reader, writer) = std::io::pipe()?;
    let mut filler = writer.try_clone()?;
    let full = std::thread::spawn(move || {
        // As much as a pipe holds; if this one holds less, the rest waits for the reader below.
        let _ = filler.write_all(&vec![b' '; 64 * 1024]);
    });
    std::thread::sleep(Duration::from_millis(50));
    let mut child = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).spawn()?;
    // Our copy of the pipe's end goes, or reading would never come to an end.
    command.stdout(Stdio::null());
    let mut kib = None;
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(10));
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", child.id())) else {
            break;
        };
        let now = field(&status, "RssAnon:");
        // It stands still when the number does.
        if now.is_some() && now == kib && field_text(&status, "State:") == Some("S") {
            break;
        }
        kib = now.or(kib);
    }
    std::io::copy(&mut reader, &mut std::io::sink())?;
    child.wait()?;
    if full.join().is_err() {
        bail!("the thread that fills the pipe broke down");
    }
    #[allow(clippy::cast_precision_loss, reason = "kibibytes of a process fit")]
    kib.map(|kib| kib as f64 / 1024.0).context("the command ended before it was looked at")
}

fn field(status: &str, name: &str) -> Option<u64> {
    field_text(status, name)?.parse().ok()
}

fn field_text<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()
}

/// What `crates/compat/benches/evaluation.rs` measures inside one process: name, milliseconds, bound.
fn evaluations() -> Result<Vec<(String, f64, f64)>> {
    println!("bench: evaluation alone");
    let out = Command::new(env!("CARGO"))
        .args(["bench", "--locked", "--package", "portolan-compat", "--bench", "evaluation"])
        .current_dir(crate::root())
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo bench")?;
    ensure!(out.status.success(), "the evaluation bench ended with {}", out.status);
    let text = String::from_utf8(out.stdout)?;
    let found = results(&text);
    ensure!(found.len() == 2, "the evaluation bench printed {text:?}");
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
    fn times_of_children_are_read_past_a_name_with_spaces() {
        let stat = "1 (a b) c) S 1 1 1 0 -1 4194304 1 2 3 4 11 12 150 50 20 0 1 0 5";
        assert_eq!(children(stat), Some(Duration::from_millis(2_000)));
        assert_eq!(children("1 (x) S 1"), None);
    }

    #[test]
    fn results_are_in_milliseconds() {
        let found = results("noise\n42.5 100 the example\n1 5000 a graph\n");
        assert_eq!(found[0], ("the example, ms".to_owned(), 0.0425, 0.1));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn the_memory_of_a_command_that_waits_for_its_reader_is_seen() {
        let mut command = Command::new("sh");
        let mib = anonymous_mib(command.args(["-c", "echo answer"])).unwrap();
        assert!(mib > 0.0, "{mib}");
    }
}
