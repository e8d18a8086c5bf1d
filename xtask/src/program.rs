//! The program that tests and benches run.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Builds `portolan` with these flags; cargo says where it put it.
pub(crate) fn build(flags: &[&str]) -> Result<PathBuf> {
    let out = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--package", "portolan-cli", "--bin", "portolan"])
        .args(flags)
        .current_dir(crate::root())
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo build")?;
    if !out.status.success() {
        bail!("portolan does not build; see above");
    }
    executable(&String::from_utf8_lossy(&out.stdout)).context("cargo named no program portolan")
}

/// The path of `portolan` in cargo's messages, one JSON object a line.
fn executable(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "portolan")
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_where_cargo_says() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"portolan"},"executable":null}
not json
{"reason":"compiler-artifact","target":{"name":"portolan"},"executable":"/t/debug/portolan"}"#;
        assert_eq!(executable(messages), Some(PathBuf::from("/t/debug/portolan")));
        assert_eq!(executable("{}"), None);
    }
}
