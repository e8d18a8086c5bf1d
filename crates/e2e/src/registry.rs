//! The registries that tests run over: one row each, so that a test over all of them is a loop.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::process::http_ok;
use crate::{Running, free_port, portolan, tool, wait_for};

/// The kinds. Each keeps its content in a folder, so it can be stopped and started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistryKind {
    /// Debian's docker-registry 2.8: no referrers API, so the fallback tag.
    DockerRegistry,
    /// olareg: the referrers API, and clean in the conformance suite.
    Olareg,
    /// `portolan registry serve`.
    Embedded,
}

impl RegistryKind {
    pub const ALL: [Self; 3] = [Self::DockerRegistry, Self::Olareg, Self::Embedded];

    /// Whether it answers `GET /v2/<name>/referrers/<digest>`.
    pub fn has_referrers_api(self) -> bool {
        self != Self::DockerRegistry
    }

    /// On loopback, with an empty folder that goes with it.
    pub fn start(self) -> Result<Registry> {
        let dir = tempfile::tempdir().context("make a temporary folder")?;
        let mut registry = self.start_in(dir.path(), Ipv4Addr::LOCALHOST.into())?;
        registry.dir = Some(dir);
        Ok(registry)
    }

    /// On that address, serving what is in `dir`. For pods, listen on
    /// [`Testbed::bridge_address`](crate::Testbed::bridge_address).
    pub fn start_in(self, dir: &Path, address: IpAddr) -> Result<Registry> {
        // Most take a fixed port, and one that was free may be taken when the server comes to it.
        let mut last = None;
        for _ in 0..5 {
            match self.try_start(dir, address) {
                Ok(registry) => return Ok(registry),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("five tries")?.context(format!("start {self:?} on {address}")))
    }

    fn try_start(self, dir: &Path, address: IpAddr) -> Result<Registry> {
        let port = free_port(address)?;
        let (mut command, announces) = self.command(dir, address, port)?;
        let mut process = Running::start(&mut command)?;
        let address = if announces {
            wait_for("the address it listens on", Duration::from_secs(10), || {
                process.check()?;
                first_address(&process.log()).context("no first line yet")
            })?
        } else {
            format!("{address}:{port}")
        };
        wait_for("the registry to answer", Duration::from_secs(10), || {
            process.check()?;
            http_ok(&address, "/v2/")
        })
        .with_context(|| process.log())?;
        Ok(Registry { kind: self, address, process, dir: None })
    }

    /// The command, and whether it prints its address as its first line.
    fn command(self, dir: &Path, address: IpAddr, port: u16) -> Result<(Command, bool)> {
        Ok(match self {
            Self::DockerRegistry => {
                let config = dir.join("config.yaml");
                std::fs::write(&config, docker_config(dir, address, port))
                    .with_context(|| format!("write {}", config.display()))?;
                let mut command = Command::new(tool("docker-registry"));
                command.arg("serve").arg(config);
                (command, false)
            }
            Self::Olareg => {
                let mut command = Command::new(tool("olareg"));
                command.args(["serve", "--api-delete", "--api-blob-delete"]);
                command.arg("--addr").arg(address.to_string());
                command.arg("--port").arg(port.to_string()).arg("--dir").arg(dir);
                (command, false)
            }
            Self::Embedded => {
                let mut command = portolan();
                command.args(["registry", "serve", "--listen", &format!("{address}:0")]);
                command.arg("--root").arg(dir);
                (command, true)
            }
        })
    }
}

fn docker_config(dir: &Path, address: IpAddr, port: u16) -> String {
    format!(
        "version: 0.1\nlog:\n  level: warn\nstorage:\n  filesystem:\n    rootdirectory: \"{}\"\n  \
         delete:\n    enabled: true\nhttp:\n  addr: \"{address}:{port}\"\n",
        dir.join("store").display()
    )
}

/// `HOST:PORT` from the first line of the embedded server, once that line is whole.
fn first_address(log: &str) -> Option<String> {
    let (line, _) = log.split_once('\n')?;
    let address = line.trim().trim_start_matches("http://").trim_start_matches("https://");
    Some(address.trim_end_matches('/').to_owned())
}

/// A registry that runs until this value is dropped.
#[derive(Debug)]
pub struct Registry {
    pub kind: RegistryKind,
    /// `HOST:PORT`, the beginning of every reference to it.
    pub address: String,
    process: Running,
    /// Held, not read: dropped after the process.
    dir: Option<tempfile::TempDir>,
}

impl Registry {
    /// What it has printed so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The folder it serves, if [`RegistryKind::start`] made one.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_ref().map(tempfile::TempDir::path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_counts_when_it_is_whole() {
        assert_eq!(first_address("127.0.0.1:50"), None);
        assert_eq!(first_address("127.0.0.1:5000\nmore\n").as_deref(), Some("127.0.0.1:5000"));
        assert_eq!(first_address("http://127.0.0.1:5000/\n").as_deref(), Some("127.0.0.1:5000"));
    }
}
