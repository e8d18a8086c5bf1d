//! A `portolan-agent` on a root of its own, and a registry beside it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use portolan_agent::client::Client;
use portolan_core::{Document, LayoutReference, Target};
use portolan_registry::server::{Config, Server};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The checked-in image: five platforms, one index, tag `1`.
const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/images/hello");
/// How full the disk of whoever runs the tests is must not matter.
pub(crate) const ROOM: &str = "\n[cache]\ntarget_percent = 100\nhigh_water_percent = 100\n";
/// Nothing here takes that long unless it never ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// A registry with the image `hello`, on loopback until dropped.
pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    _root: TempDir,
    _stop: DropGuard,
}

impl Registry {
    /// With these lines of htpasswd, or open to everyone.
    pub(crate) async fn start(htpasswd: Option<&str>) -> Self {
        let root = tempfile::tempdir().unwrap();
        copy(Path::new(HELLO), &root.path().join("store/hello/_layout"));
        let mut config = Config::new(root.path().join("store"), "127.0.0.1:0".parse().unwrap());
        if let Some(lines) = htpasswd {
            let file = root.path().join("htpasswd");
            std::fs::write(&file, lines).unwrap();
            config.htpasswd = Some(file);
        }
        let server = Server::bind(config).await.unwrap();
        let address = server.local_addr();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move { server.serve(stopped.cancelled()).await });
        Self { address, _root: root, _stop: stop.drop_guard() }
    }

    /// `hello` for the machine the test runs on, as a WorkloadSpec's image.
    pub(crate) fn image(&self) -> Value {
        let platform = portolan_host::Host::here().unwrap().platform().unwrap().platform;
        let digest = hello_for(&platform.architecture);
        json!({
            "repository": format!("{}/hello", self.address),
            "resolved_digest": digest,
            "os": platform.os,
            "arch": platform.architecture,
        })
    }
}

/// The digest of the image without a variant for an architecture.
fn hello_for(architecture: &str) -> String {
    let layout: LayoutReference = format!("{HELLO}:1").parse().unwrap();
    assert!(matches!(layout.target(), Some(Target::Tag(_))));
    let read = |digest: &str| {
        let hex = digest.strip_prefix("sha256:").unwrap();
        std::fs::read(Path::new(HELLO).join("blobs/sha256").join(hex)).unwrap()
    };
    let listed: Value =
        serde_json::from_slice(&std::fs::read(Path::new(HELLO).join("index.json")).unwrap())
            .unwrap();
    let index = read(listed["manifests"][0]["digest"].as_str().unwrap());
    let Document::Index(index) = Document::parse(&index, None).unwrap() else { panic!("no index") };
    let fits = index
        .manifests
        .iter()
        .find(|entry| entry.platform.as_ref().is_some_and(|p| p.architecture == architecture));
    fits.expect("hello is there for this machine").digest.to_string()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// An agent's folder; agents come and go on it.
pub(crate) struct Home {
    dir: TempDir,
}

/// An agent that runs until dropped.
pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) client: Client,
    log: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::Builder::new().prefix("pa-").tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command, with an environment of its own.
    pub(crate) fn command(&self, config: &str) -> Command {
        std::fs::write(self.path("agent.toml"), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_portolan-agent"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PORTOLAN_") {
                command.env_remove(name);
            }
        }
        command
            .args(["--root".into(), self.path("root"), "--socket".into(), self.path("a.sock")])
            .args(["--config".into(), self.path("agent.toml")])
            .env("HOME", self.dir.path())
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("DOCKER_CONFIG", self.path("docker"))
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("REGISTRY_AUTH_FILE")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Starts it and waits until it is ready.
    pub(crate) async fn start(&self, config: &str) -> Agent {
        self.start_with(self.command(&format!("{config}{ROOM}"))).await
    }

    pub(crate) async fn start_with(&self, mut command: Command) -> Agent {
        let log = self.path("agent.log");
        let file = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let mut child = command.stderr(file).spawn().unwrap();
        let client = Client::new(self.path("a.sock"));
        let deadline = Instant::now() + PATIENCE;
        loop {
            if client.status().await.is_ok_and(|status| status.ready) {
                return Agent { child, client, log };
            }
            let ended = child.try_wait().unwrap();
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "{ended:?}\n{}", said());
            assert!(Instant::now() < deadline, "not ready\n{}", said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Agent {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Asks it to end in order, and waits for it.
    pub(crate) async fn stop(mut self) -> std::process::ExitStatus {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap()
    }

    /// The address that a listener got, from the log.
    pub(crate) fn listens(&self, what: &str) -> SocketAddr {
        let log = self.log();
        let line = log.lines().find(|line| line.contains(&format!("listening for {what}")));
        let line = line.unwrap_or_else(|| panic!("{log}"));
        let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
        address.parse().unwrap()
    }
}

/// A text that a WorkloadSpec or an image of one is made of.
pub(crate) fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
