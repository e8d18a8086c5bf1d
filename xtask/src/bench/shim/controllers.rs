//! Those who are measured, started beside a control plane of their own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::objects::NAMESPACE;
use super::plane::{MEASURED, Plane};
use crate::bench::process::Process;
use crate::testbed::command::wait;
use crate::testbed::process::tail;

/// A controller that acts.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) process: Process,
    listen: SocketAddr,
}

impl Controller {
    /// Ours, told as a user would who wants all nodes at once.
    pub(super) fn ours(program: &Path, plane: &Plane) -> Result<Self> {
        let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(program);
        command.args([
            "--serve",
            "shims",
            "--shim-max-in-flight",
            "100%",
            "--namespace",
            NAMESPACE,
        ]);
        command.args(["--step-image", "registry.example/portolan:1", "--health"]);
        command.arg(listen.to_string()).arg("--kubeconfig").arg(plane.kubeconfig(MEASURED));
        Self::start(command, listen, "/readyz", "leading", plane)
    }

    pub(super) fn upstream(program: &Path, plane: &Plane) -> Result<Self> {
        let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(program);
        command.args(["--metrics-bind-address", "0", "--health-probe-bind-address"]);
        command.arg(listen.to_string()).arg("--kubeconfig").arg(plane.kubeconfig(MEASURED));
        command.env("CONTROLLER_NAMESPACE", NAMESPACE);
        command.env("SHIM_DOWNLOADER_IMAGE", "registry.example/shim-downloader:1");
        command.env("SHIM_NODE_INSTALLER_IMAGE", "registry.example/node-installer:1");
        Self::start(command, listen, "/readyz", "ok", plane)
    }

    fn start(
        mut command: Command,
        listen: SocketAddr,
        path: &str,
        ready: &str,
        plane: &Plane,
    ) -> Result<Self> {
        let log = plane.dir().join("controller.log");
        let out = std::fs::File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        let mut started = Self { process: Process(child), listen };
        let up = wait("the controller to act", Duration::from_secs(60), || {
            if let Some(status) = started.process.0.try_wait()? {
                bail!("it ended with {status}");
            }
            let told = started.ask(path)?;
            ensure!(told.trim_end().ends_with(ready), "it says {told:?}");
            Ok(())
        });
        up.with_context(|| tail(&log, 15))?;
        Ok(started)
    }

    fn ask(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.listen).context("connect to the controller")?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        Ok(told)
    }

    /// How often a node was looked at, as its metrics say.
    pub(super) fn looks(&self) -> Result<f64> {
        let told = self.ask("/metrics")?;
        let line =
            told.lines().find_map(|line| line.strip_prefix("portolan_shim_node_looks_total "));
        let line = line.context("no portolan_shim_node_looks_total in its metrics")?;
        line.trim().parse().with_context(|| format!("{line:?} is no number"))
    }
}
