//! Registries that a bench starts for itself.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::measure;
use crate::testbed::build::Toolbox;

/// Copies the image of a layout to where `reference` says.
pub(crate) fn push(tools: &Toolbox, layout: &Path, reference: &str) -> Result<()> {
    let mut command = Command::new(&tools["skopeo"]);
    command.args(["--insecure-policy", "copy", "-q", "--preserve-digests"]);
    command.arg("--dest-tls-verify=false").arg(format!("oci:{}:bench", layout.display()));
    command.arg(format!("docker://{reference}"));
    measure::run(&mut command).map(drop)
}

/// A registry of ours alone, ended when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: std::process::Child,
}

impl Server {
    pub(crate) fn docker_registry(tools: &Toolbox, dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        // Asked for and given back at once: docker-registry cannot say which port it got.
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = dir.join("config.yml");
        fs::write(
            &config,
            format!(
                "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: {address}}}\n",
                dir.join("data").display()
            ),
        )?;
        let child = Command::new(&tools["docker-registry"])
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start docker-registry")?;
        let server = Self { address, child };
        for _ in 0..100 {
            if std::net::TcpStream::connect(address).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("docker-registry does not listen on {address} after 5 s")
    }

    pub(crate) fn embedded(portolan: &Path, dir: &Path) -> Result<Self> {
        use std::io::BufRead as _;
        let mut child = Command::new(portolan)
            .args(["registry", "serve", "--listen", "127.0.0.1:0", "--root"])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .context("start portolan registry serve")?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("its output")?;
        std::io::BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("its first line {line:?}"))?;
        Ok(Self { address, child })
    }

    /// Where the measured image of a repository is.
    pub(crate) fn reference(&self, repository: &str) -> String {
        format!("{}/{repository}:bench", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
