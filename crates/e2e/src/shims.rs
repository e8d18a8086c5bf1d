//! What tests of shims share: archives, a server for them, and a client that asks a runtime as a kubelet does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{Output, Testbed, run, wait_for};

/// A tar.gz that holds one program under this name.
pub fn shim_archive(name: &str, program: &[u8]) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join(name);
    std::fs::write(&file, program)?;
    ok(Command::new("chmod").arg("755").arg(&file))?;
    let packed = dir.path().join("x.tar.gz");
    ok(Command::new("tar").arg("-czf").arg(&packed).arg("-C").arg(dir.path()).arg(name))?;
    Ok(std::fs::read(packed)?)
}

/// Serves files to whoever asks, as long as the test runs.
#[derive(Debug, Clone)]
pub struct FileServer {
    address: String,
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl FileServer {
    /// On loopback, or for pods on [`Testbed::bridge_address`].
    pub fn start(address: IpAddr) -> Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        let address = listener.local_addr()?.to_string();
        let own = Self { address, files: Arc::default() };
        let served = own.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 4096];
                let have = stream.read(&mut request).unwrap_or_default();
                let request = String::from_utf8_lossy(&request[..have]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let files = served.files.lock().unwrap_or_else(PoisonError::into_inner);
                let (status, bytes) = match files.get(path) {
                    Some(bytes) => ("200 OK", bytes.as_slice()),
                    None => ("404 Not Found", &[][..]),
                };
                let length = bytes.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                let _ = stream.write_all(bytes);
            }
        });
        Ok(own)
    }

    /// Serves one more; returns its URL.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> String {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(format!("/{name}"), bytes);
        format!("http://{}/{name}", self.address)
    }
}

/// A runtime, asked over the interface that kubelets use.
#[derive(Debug)]
pub struct Cri {
    socket: PathBuf,
    dir: tempfile::TempDir,
}

/// A container in a pod of its own.
#[derive(Debug)]
pub struct CriPod<'a> {
    cri: &'a Cri,
    id: String,
    container: String,
}

impl Cri {
    /// The one that answers at this socket.
    pub fn at(socket: &Path) -> Result<Self> {
        let own = Self { socket: socket.to_owned(), dir: tempfile::tempdir()? };
        // Without one it looks for one of the machine.
        std::fs::write(own.dir.path().join("crictl.yaml"), "timeout: 30\n")?;
        Ok(own)
    }

    /// What `crictl ARGS` prints.
    pub fn crictl(&self, args: &[&str]) -> Result<String> {
        let endpoint = format!("unix://{}", self.socket.display());
        let mut command = Command::new(Testbed::get().tool("crictl")?);
        command.arg("--config").arg(self.dir.path().join("crictl.yaml"));
        command.args(["--runtime-endpoint", &endpoint, "--image-endpoint", &endpoint]).args(args);
        Ok(ok(&mut command)?.stdout)
    }

    /// The handlers that it knows.
    pub fn handlers(&self) -> Result<BTreeSet<String>> {
        let info: Value = serde_json::from_str(&self.crictl(&["info"])?)?;
        let runtimes = &info["config"]["containerd"]["runtimes"];
        let names = runtimes.as_object().with_context(|| info.to_string())?.keys();
        Ok(names.cloned().collect())
    }

    /// Runs a line of a shell in the cluster's busybox, with this handler, in the host's network.
    pub fn run(&self, handler: &str, line: &str) -> Result<CriPod<'_>> {
        let image = Testbed::get().image("busybox")?;
        let write = |name: &str, value: Value| -> Result<String> {
            let file = self.dir.path().join(name);
            std::fs::write(&file, value.to_string())?;
            Ok(file.display().to_string())
        };
        let pod = json!({
            "metadata": {"name": handler, "namespace": "default", "uid": handler},
            "log_directory": self.dir.path(),
            "linux": {"security_context": {"namespace_options": {"network": 2}}},
        });
        let container = json!({
            "metadata": {"name": "main"}, "image": {"image": image}, "log_path": "main.log",
            "command": ["/bin/sh", "-c", line], "linux": {},
        });
        let (pod, container) = (write("pod.json", pod)?, write("container.json", container)?);
        self.crictl(&["pull", image])?;
        let id = self.crictl(&["runp", "--runtime", handler, &pod])?.trim().to_owned();
        let mut own = CriPod { cri: self, id, container: String::new() };
        let made = self.crictl(&["create", &own.id, &container, &pod])?;
        made.trim().clone_into(&mut own.container);
        self.crictl(&["start", &own.container])?;
        Ok(own)
    }
}

impl CriPod<'_> {
    /// Waits until it has said this.
    pub fn says(&self, words: &str) -> Result<()> {
        wait_for(&format!("{words:?}"), Duration::from_secs(30), || {
            let log = self.cri.crictl(&["logs", &self.container])?;
            ensure!(log.contains(words), "{log}");
            Ok(())
        })
    }

    /// Ends it, and the pod.
    pub fn remove(self) -> Result<()> {
        self.cri.crictl(&["rmp", "--force", &self.id]).map(drop)
    }
}

impl Drop for CriPod<'_> {
    fn drop(&mut self) {
        let _ = self.cri.crictl(&["rmp", "--force", &self.id]);
    }
}

/// The programs below a directory that processes run.
pub fn programs_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let programs = entries.filter_map(|entry| std::fs::read_link(entry.path().join("exe")).ok());
    programs.filter(|program| program.starts_with(dir)).collect()
}

fn ok(command: &mut Command) -> Result<Output> {
    let output = run(command)?;
    ensure!(output.code == Some(0), "{output}");
    Ok(output)
}
