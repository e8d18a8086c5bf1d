//! A host agent that a bench starts for itself.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// A running agent, killed when dropped.
#[derive(Debug)]
pub(crate) struct Agent {
    child: Child,
    socket: PathBuf,
}

impl Agent {
    /// On this root, once it is ready.
    pub(crate) fn start(program: &Path, root: &Path, settings: &str) -> Result<Self> {
        let socket = root.with_extension("sock");
        let config = root.with_extension("toml");
        fs::write(&config, settings)?;
        let log = fs::File::create(root.with_extension("log"))?;
        let child = Command::new(program)
            .arg("--root")
            .arg(root)
            .arg("--socket")
            .arg(&socket)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start portolan-agent")?;
        let mut agent = Self { child, socket };
        for _ in 0..600 {
            if let Some(status) = agent.child.try_wait()? {
                let log = fs::read_to_string(root.with_extension("log"))?;
                bail!("portolan-agent ended ({status}):\n{log}");
            }
            if agent.call("GET", "/readyz", &Value::Null).is_ok_and(|(status, _)| status == 200) {
                return Ok(agent);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("portolan-agent is not ready after 30 s")
    }

    /// Status and body. HTTP/1.0: the answer ends with the connection.
    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Result<(u16, String)> {
        let mut stream = UnixStream::connect(&self.socket).context("connect to the agent")?;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        // One write: what comes in two pieces would wait for the first to be acknowledged.
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: agent\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        split(&String::from_utf8_lossy(&answer))
    }

    #[allow(clippy::cast_precision_loss, reason = "kibibytes of a process fit")]
    pub(crate) fn resident_mib(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line.context("no VmRSS")?.trim().trim_end_matches(" kB").parse()?;
        Ok(kib as f64 / 1024.0)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body of an answer.
pub(crate) fn split(answer: &str) -> Result<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.with_context(|| format!("no status in {head:?}"))?, body.to_owned()))
}
