//! A registry that wants a login: Debian's docker-registry with one user.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::{Namespace, Running, free_port, portolan, tool, wait_for};

const USER: &str = "tenant";
/// What says that there is no TLS: elsewhere than on loopback that is not taken for granted.
const REGISTRIES: &str = "registries.toml";

/// With an empty folder that goes with it.
#[derive(Debug)]
pub struct PrivateRegistry {
    /// `HOST:PORT`, the beginning of every reference to it.
    pub address: String,
    process: Running,
    /// Dropped after the process.
    dir: tempfile::TempDir,
}

impl PrivateRegistry {
    /// What must be in no log.
    pub const PASSWORD: &'static str = "of the tenant";

    /// On loopback.
    pub fn start() -> Result<Self> {
        Self::start_on(Ipv4Addr::LOCALHOST.into())
    }

    /// On that address. For pods, listen on [`Testbed::bridge_address`](crate::Testbed::bridge_address).
    pub fn start_on(address: IpAddr) -> Result<Self> {
        let dir = tempfile::tempdir().context("make a temporary folder")?;
        let file = |name: &str| dir.path().join(name);
        let address = format!("{address}:{}", free_port(address)?);
        // The least that the algorithm takes: nobody guesses here.
        let hash = bcrypt::hash(Self::PASSWORD, 4)?;
        std::fs::write(file("htpasswd"), format!("{USER}:{hash}\n"))?;
        let config = format!(
            "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {:?}}}}}\n\
             http: {{addr: \"{address}\"}}\nauth: {{htpasswd: {{realm: test, path: {:?}}}}}\n",
            file("store"),
            file("htpasswd"),
        );
        std::fs::write(file("registry.yaml"), config)?;
        let auth = STANDARD.encode(format!("{USER}:{}", Self::PASSWORD));
        let login = json!({"auths": {&address: {"auth": auth}}}).to_string();
        std::fs::write(file("config.json"), login)?;
        let plain = format!("[host.\"{address}\"]\nplain_http = true\n");
        std::fs::write(file(REGISTRIES), plain)?;
        let mut command = Command::new(tool("docker-registry"));
        let process = Running::start(command.arg("serve").arg(file("registry.yaml")))?;
        let mut registry = Self { address, process, dir };
        wait_for("the registry to listen", Duration::from_secs(20), || {
            registry.process.check()?;
            std::net::TcpStream::connect(&registry.address).map(drop).context("not yet")
        })?;
        Ok(registry)
    }

    /// `portolan` of somebody who is logged in there.
    pub fn portolan(&self) -> Command {
        let mut command = portolan();
        command.env("DOCKER_CONFIG", self.dir.path());
        command.env("PORTOLAN_REGISTRIES", self.dir.path().join(REGISTRIES));
        command
    }

    /// Makes the login a Secret, as people do.
    pub fn pull_secret(&self, namespace: &Namespace, name: &str) -> Result<()> {
        self.secret(namespace, name, Self::PASSWORD)
    }

    /// The same with a password that opens nothing.
    pub fn wrong_secret(&self, namespace: &Namespace, name: &str) -> Result<()> {
        self.secret(namespace, name, "of somebody else")
    }

    fn secret(&self, namespace: &Namespace, name: &str, password: &str) -> Result<()> {
        let server = format!("--docker-server={}", self.address);
        let user = format!("--docker-username={USER}");
        let password = format!("--docker-password={password}");
        let create = ["create", "secret", "docker-registry", name, &server, &user, &password];
        namespace.kubectl(&create).map(drop)
    }
}
