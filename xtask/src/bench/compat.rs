//! Does this host fit this image: the whole command beside NFD's, and what is inside it alone.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::commands::{commands, installed, said};
use super::inner;
use super::report::{Promise, Report, millis};
use super::server::Server;
use crate::program::{PORTOLAN, released};
use crate::testbed::build::{Missing, ensure as ensure_parts};
use crate::testbed::parts::Use;

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
    let portolan = installed(&released(PORTOLAN)?, scratch.path(), "portolan")?;
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
    for (what, measured, bound) in inner::run("portolan-compat", "evaluation", 2)? {
        report.promises.push(Promise { what, measured, at_most: bound });
    }
    Ok(report)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_command_that_waits_for_its_reader_is_seen() {
        let mut command = Command::new("sh");
        let mib = anonymous_mib(command.args(["-c", "echo answer"])).unwrap();
        assert!(mib > 0.0, "{mib}");
    }
}
