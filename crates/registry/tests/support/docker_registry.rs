//! The reference registry as a process of its own.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::part::part;

/// A running `docker-registry` with an empty store; it ends when dropped.
pub struct DockerRegistry {
    process: Child,
    port: u16,
    _root: tempfile::TempDir,
}

impl DockerRegistry {
    /// None, with the skip noted, where there is no docker-registry to be had.
    pub fn start() -> Option<Self> {
        let program = part("docker-registry")?;
        // A port that was free a moment ago may be taken by then; try a few.
        for _ in 0..5 {
            if let Some(running) = Self::try_start(&program) {
                return Some(running);
            }
        }
        panic!("docker-registry did not begin to listen");
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn try_start(program: &Path) -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage:\n  delete: {{enabled: true}}\n  \
             filesystem: {{rootdirectory: {}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n",
            root.path().join("store").display()
        );
        let file = root.path().join("config.yml");
        std::fs::write(&file, config).unwrap();
        let mut process = Command::new(program)
            .arg("serve")
            .arg(&file)
            .env_remove("OTEL_TRACES_EXPORTER")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be run: {error}", program.display()));
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(Self { process, port, _root: root });
            }
            if process.try_wait().unwrap().is_some() {
                let mut said = String::new();
                let _ = process.stderr.take().unwrap().read_to_string(&mut said);
                eprintln!("docker-registry ended: {said}");
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = process.kill();
        let _ = process.wait();
        None
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
