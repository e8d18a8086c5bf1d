//! The programs that tests and benches run.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// One of our programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Program {
    package: &'static str,
    name: &'static str,
    /// Built for this target instead of the machine's own.
    target: Option<&'static str>,
}

pub(crate) const PORTOLAN: Program =
    Program { package: "portolan-cli", name: "portolan", target: None };
pub(crate) const AGENT: Program =
    Program { package: "portolan-agent", name: "portolan-agent", target: None };
pub(crate) const VERIFIER: Program =
    Program { package: "portolan-verify", name: "portolan-verifier", target: None };
pub(crate) const CONTROLLER: Program =
    Program { package: "portolan-controller", name: "portolan-controller", target: None };
/// This very program, when it must not be a debug build.
pub(crate) const XTASK: Program = Program { package: "xtask", name: "xtask", target: None };
/// Alone in a guest's first file system, so it cannot need a loader or a library there.
pub(crate) const INIT: Program =
    Program { package: "portolan-init", name: "portolan-init", target: Some(MUSL) };

#[cfg(target_arch = "x86_64")]
const MUSL: &str = "x86_64-unknown-linux-musl";
#[cfg(target_arch = "aarch64")]
const MUSL: &str = "aarch64-unknown-linux-musl";

impl Program {
    /// Builds it with these flags; cargo says where it put it.
    pub(crate) fn build(self, flags: &[&str]) -> Result<PathBuf> {
        let [path] = build_together([self], flags)?;
        Ok(path)
    }
}

/// A program as it is released, built with all that are measured: each alone would have features of libraries of its own, and
/// every suite would compile them again. Whoever builds a release from the workspace has the same.
pub(crate) fn released(program: Program) -> Result<PathBuf> {
    let all = [PORTOLAN, AGENT, CONTROLLER, XTASK];
    let paths = build_together(all, &["--release"])?;
    let found = all.into_iter().zip(paths).find(|(one, _)| *one == program);
    found.map(|(_, path)| path).with_context(|| format!("{} is not among them", program.name))
}

/// What the image of Portolan holds: every program, without a loader or libraries.
pub(crate) fn static_programs(target: &'static str, profile: &str) -> Result<Vec<PathBuf>> {
    static_programs_by(cargo_build, target, profile)
}

/// The same with another compiler's command in the place of `cargo build`.
pub(crate) fn static_programs_by(
    command: impl Fn() -> Command,
    target: &'static str,
    profile: &str,
) -> Result<Vec<PathBuf>> {
    let one = |program: Program| Program { target: Some(target), ..program };
    // At once, so that libraries have one set of features: they are then compiled once.
    let flags = ["--profile", profile];
    let all = [PORTOLAN, AGENT, CONTROLLER, VERIFIER, INIT].map(one);
    build_by(command(), all, &flags).map(Vec::from)
}

fn cargo_build() -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.arg("build");
    command
}

/// Builds programs for one target at once. Each alone would have features of libraries of its own,
/// and so libraries of its own.
pub(crate) fn build_together<const N: usize>(
    programs: [Program; N],
    flags: &[&str],
) -> Result<[PathBuf; N]> {
    build_by(cargo_build(), programs, flags)
}

fn build_by<const N: usize>(
    mut command: Command,
    programs: [Program; N],
    flags: &[&str],
) -> Result<[PathBuf; N]> {
    command.arg("--locked");
    for program in &programs {
        command.args(["--package", program.package, "--bin", program.name]);
    }
    if let Some(target) = programs.iter().find_map(|program| program.target) {
        add_target(target)?;
        command.args(["--target", target]);
    }
    let out = command
        .args(flags)
        .current_dir(crate::root())
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo build")?;
    if !out.status.success() {
        bail!("{} does not build; see above", programs.map(|program| program.name).join(", "));
    }
    let messages = String::from_utf8_lossy(&out.stdout);
    let mut paths = Vec::with_capacity(N);
    for program in &programs {
        let path = executable(&messages, program.name)
            .with_context(|| format!("cargo named no program {}", program.name))?;
        paths.push(path);
    }
    Ok(paths.try_into().expect("one for each"))
}

/// Asks rustup for the target's libraries; at once when they are there. Without rustup they may be
/// there all the same, and cargo will say if not.
fn add_target(target: &str) -> Result<()> {
    let asked = Command::new("rustup")
        .args(["target", "add", target])
        .current_dir(crate::root())
        .stderr(Stdio::piped())
        .output();
    match asked {
        Ok(out) if !out.status.success() => {
            bail!("rustup target add {target}: {}", String::from_utf8_lossy(&out.stderr).trim())
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).context("start rustup"),
    }
}

/// The path of that program in cargo's messages, one JSON object a line.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_where_cargo_says() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"portolan"},"executable":null}
not json
{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/t/debug/other"}
{"reason":"compiler-artifact","target":{"name":"portolan"},"executable":"/t/debug/portolan"}"#;
        assert_eq!(executable(messages, "portolan"), Some(PathBuf::from("/t/debug/portolan")));
        assert_eq!(executable("{}", "portolan"), None);
    }
}
