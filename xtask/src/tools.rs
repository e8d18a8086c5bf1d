//! Cargo subcommands the chores use, installed once under the user's cache directory.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::testbed::cache::Cache;

/// A cargo subcommand and the version this project was checked with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

pub(crate) const CARGO_FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };
pub(crate) const CARGO_DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

impl Tool {
    /// Where it is, after installing it if need be.
    pub(crate) fn ensure(self) -> Result<PathBuf> {
        let root = Cache::of_user()?.tools().join(format!("{}-{}", self.name, self.version));
        let program = root.join("bin").join(self.name);
        if program.exists() {
            return Ok(program);
        }
        println!("xtask: installing {} {} (once, some minutes)", self.name, self.version);
        let status = Command::new(env!("CARGO"))
            .args(["install", self.name, "--version", self.version, "--locked", "--root"])
            .arg(&root)
            .status()
            .with_context(|| format!("start cargo install {}", self.name))?;
        if !status.success() {
            bail!("cargo install {} {} failed; see above", self.name, self.version);
        }
        Ok(program)
    }
}
