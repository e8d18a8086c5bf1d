//! An agent that runs until the test ends, and a client for its socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{Running, portolan_agent, portolan_init, tool, wait_for};

/// The configuration of an agent that boots machines with QEMU and the testbed's kernel. `accel` is `auto` (KVM where a
/// guest boots on it, which is tried for ten seconds, else software emulation), `kvm` or `tcg`.
///
/// # Panics
/// When the testbed has no kernel or no QEMU.
pub fn machine_config(accel: &str) -> String {
    let kernel = tool("guest-kernel");
    // Software emulation on a busy machine takes a while.
    format!(
        "[cache]\ntarget_percent = 100\nhigh_water_percent = 100\n\
         [guest]\nkernel = {:?}\nmodules_dir = {:?}\ninit = {:?}\n\
         [vmm]\nkind = \"qemu\"\nbinary = {:?}\naccel = \"{accel}\"\n\
         boot_timeout = \"180s\"\nkvm_probe_timeout = \"10s\"\nstop_timeout = \"60s\"\n",
        kernel.join("vmlinuz"),
        kernel.join("modules"),
        portolan_init(),
        tool("qemu-system-x86_64"),
    )
}

/// An agent's folder. Machines outlive their agent, so a test that fails must end its own.
#[derive(Debug)]
pub struct AgentRoot(pub PathBuf);

impl Drop for AgentRoot {
    fn drop(&mut self) {
        for instance in std::fs::read_dir(self.0.join("instances")).into_iter().flatten().flatten()
        {
            let report = std::fs::read(instance.path().join("running.json")).unwrap_or_default();
            let report: Value = serde_json::from_slice(&report).unwrap_or_default();
            for who in ["vmm", "shim"] {
                let pid = report[who]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
                if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
    }
}

impl std::ops::Deref for AgentRoot {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

/// `portolan-agent` on a folder of its own.
#[derive(Debug)]
pub struct Agent {
    process: Running,
    socket: PathBuf,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    /// The body, which must be JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("not JSON: {self:?}"))
    }
}

impl Agent {
    /// Starts it on the cache in `root` with this configuration, and waits until it is healthy.
    /// Kill it and start another on the same folder for a restart.
    pub fn start(root: &Path, config: &str) -> Result<Self> {
        std::fs::create_dir_all(root)?;
        let file = root.with_extension("toml");
        std::fs::write(&file, config).with_context(|| format!("write {}", file.display()))?;
        // Sockets have short names: not below a long path of a test's folder.
        let socket = tempfile::Builder::new().prefix("agent-").tempdir()?.keep().join("socket");
        let mut command = portolan_agent();
        command.arg("--root").arg(root).arg("--socket").arg(&socket).arg("--config").arg(&file);
        let mut process = Running::start(&mut command)?;
        wait_for("the agent to be healthy", Duration::from_secs(30), || {
            process.check()?;
            let answer = request(&socket, "GET", "/healthz", None)?;
            anyhow::ensure!(answer.status == 200, "{answer:?}");
            Ok(())
        })
        .with_context(|| process.log())?;
        Ok(Self { process, socket })
    }

    /// Asks it; `body` is sent as JSON.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        request(&self.socket, method, path, body).with_context(|| self.process.log())
    }

    /// `GET path`, which must be 200 and JSON.
    pub fn get(&self, path: &str) -> Result<Value> {
        let answer = self.request("GET", path, None)?;
        anyhow::ensure!(answer.status == 200, "GET {path}: {answer:?}");
        answer.json()
    }

    /// The instance, once it is in this phase; software emulation takes a while on a busy machine.
    pub fn reaches(&self, id: &str, phase: &str) -> Result<Value> {
        wait_for(&format!("{id} to be {phase}"), Duration::from_secs(240), || {
            let status = self.get(&format!("/v1/instances/{id}"))?;
            anyhow::ensure!(status["phase"] == phase, "{status}\n{}", self.log());
            Ok(status)
        })
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(dir) = self.socket.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

fn request(socket: &Path, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("connect {}", socket.display()))?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    // HTTP/1.0: the answer ends with the connection and comes in one piece.
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: agent\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).context("read the answer")?;
    answer(&String::from_utf8_lossy(&text))
}

fn answer(text: &str) -> Result<Answer> {
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("half of {text:?}"))?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.with_context(|| format!("no status in {head:?}"))?;
    Ok(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let read = answer("HTTP/1.0 404 Not Found\r\nA: b\r\n\r\n{\"a\":1}").unwrap();
        assert_eq!((read.status, read.json().unwrap()), (404, serde_json::json!({ "a": 1 })));
        assert!(answer("HTTP/1.0 200").is_err());
    }
}
