//! The registries that everybody in this bench asks, one at a time at one address.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::images::{self, ADDRESS, Images};
use crate::bench::measure;
use crate::testbed::build::Toolbox;

/// Ended when dropped.
#[derive(Debug)]
pub(super) struct Registry(Child);

impl Registry {
    /// olareg over a folder of layouts; `store` is `mem` (what is read stays in memory, nothing is
    /// written back) or `dir`.
    pub(super) fn olareg(tools: &Toolbox, dir: &Path, store: &str) -> Result<Self> {
        let mut command = Command::new(&tools["olareg"]);
        command.args(["serve", "--gc-frequency", "-1s", "--store-type", store]);
        command.args(["--addr", &ADDRESS.ip().to_string(), "--port", &ADDRESS.port().to_string()]);
        Self::start(command.arg("--dir").arg(dir), "olareg", ADDRESS)
    }

    /// docker-registry with the first `count` of the images that olareg has, copied once.
    pub(super) fn docker(
        tools: &Toolbox,
        images: &Images,
        count: usize,
        dir: &Path,
    ) -> Result<Self> {
        fs::create_dir_all(dir)?;
        {
            let elsewhere = SocketAddr::new(ADDRESS.ip(), ADDRESS.port() + 1);
            let _from = Self::olareg(tools, &images.repositories(), "mem")?;
            let _to = Self::docker_at(tools, dir, elsewhere)?;
            for number in 0..count {
                let name = images::name(number);
                let mut command = Command::new(&tools["crane"]);
                command.args(["copy", "--insecure", "--all-tags"]);
                command.arg(format!("{ADDRESS}/{name}")).arg(format!("{elsewhere}/{name}"));
                measure::run(&mut command)?;
            }
        }
        Self::docker_at(tools, dir, ADDRESS)
    }

    fn docker_at(tools: &Toolbox, dir: &Path, address: SocketAddr) -> Result<Self> {
        let config = dir.join("config.yml");
        let data = dir.join("data");
        fs::write(
            &config,
            format!(
                "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}, cache: {{blobdescriptor: inmemory}}}}\nhttp: {{addr: {address}}}\n",
                data.display()
            ),
        )?;
        let mut command = Command::new(&tools["docker-registry"]);
        Self::start(command.arg("serve").arg(&config), "docker-registry", address)
    }

    fn start(command: &mut Command, name: &str, address: SocketAddr) -> Result<Self> {
        if TcpStream::connect(address).is_ok() {
            bail!("something listens on {address} already: end it and try again");
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let registry = Self(child.with_context(|| format!("start {name}"))?);
        for _ in 0..200 {
            if TcpStream::connect(address).is_ok() {
                return Ok(registry);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("{name} does not listen on {address} after 10 s")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
