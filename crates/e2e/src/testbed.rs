//! The cluster that `cargo xtask e2e` brought up, as its state file describes it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::process::{Output, run, run_with_input};

/// The file that says what runs where.
const STATE: &str = "PORTOLAN_TESTBED_STATE";
/// The `portolan` program under test.
const PORTOLAN: &str = "PORTOLAN_BIN";
/// The `portolan-agent` program under test.
const AGENT: &str = "PORTOLAN_AGENT_BIN";
/// The `portolan-verifier` program under test.
const VERIFIER: &str = "PORTOLAN_VERIFIER_BIN";
/// The `portolan-controller` program under test.
const CONTROLLER: &str = "PORTOLAN_CONTROLLER_BIN";
/// The static `portolan-init` for guests.
const INIT: &str = "PORTOLAN_INIT_BIN";

/// What pods of builds run, as they pull it.
const STEP_IMAGE: &str = "PORTOLAN_STEP_IMAGE";
/// The platforms that it is for.
const STEP_PLATFORMS: &str = "PORTOLAN_STEP_PLATFORMS";

/// What tests may rely on; the state file holds more, for `cargo xtask testbed` alone.
#[derive(Debug, Deserialize)]
pub struct Testbed {
    /// A kubeconfig for a cluster administrator.
    pub kubeconfig: PathBuf,
    /// The name of the one node.
    pub node: String,
    /// The host as pods see it: what a test starts for pods must listen here.
    pub bridge_address: IpAddr,
    /// The cluster's own registry (docker-registry 2.8), which keeps what is pushed for the run.
    pub registry: RegistryAddresses,
    /// Reference, as pods pull it, of each image part: `busybox-image`, …
    pub images: BTreeMap<String, String>,
    /// The program of the node's containerd, with its shim beside it.
    pub containerd: PathBuf,
    /// Where it answers.
    pub containerd_socket: PathBuf,
    /// A folder `HOST:PORT/hosts.toml` in here tells the node's containerd how to reach a
    /// registry. It is read at every pull.
    pub registry_hosts: PathBuf,
    /// A log for each process of the cluster.
    pub logs: PathBuf,
    tools: BTreeMap<String, PathBuf>,
}

/// Two ways to one store.
#[derive(Debug, Deserialize)]
pub struct RegistryAddresses {
    /// For programs on the host: they take loopback for plain HTTP without being told.
    pub loopback: String,
    /// For pods and the node; works on the host, too.
    pub cluster: String,
}

impl Testbed {
    /// The cluster of this run.
    ///
    /// # Panics
    /// When there is none, as a test that needs it must not pass.
    pub fn get() -> &'static Self {
        static TESTBED: OnceLock<Testbed> = OnceLock::new();
        TESTBED.get_or_init(|| match Self::read() {
            Ok(testbed) => testbed,
            Err(error) => panic!("{error:#}"),
        })
    }

    fn read() -> Result<Self> {
        let file = std::env::var_os(STATE).with_context(|| {
            format!("no testbed ({STATE} is not set): run these tests with `cargo xtask e2e`")
        })?;
        let text = std::fs::read(&file).with_context(|| {
            format!("no testbed in {}: run these tests with `cargo xtask e2e`", file.display())
        })?;
        serde_json::from_slice(&text).with_context(|| format!("parse {}", file.display()))
    }

    /// The path of a part, such as `crane`.
    pub fn tool(&self, name: &str) -> Result<&Path> {
        self.tools.get(name).map(PathBuf::as_path).with_context(|| {
            format!("the testbed has no part {name}: add a row to xtask/src/testbed/parts.rs")
        })
    }

    /// Reference of an image part by its short name, such as `busybox`.
    pub fn image(&self, name: &str) -> Result<&str> {
        let found = self.images.get(&format!("{name}-image")).map(String::as_str);
        found.with_context(|| format!("no image {name} among {:?}", self.images.keys()))
    }

    /// What `kubectl ARGS` prints, as the cluster's administrator.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        succeeded(run(self.kubectl_command()?.args(args))?)
    }

    /// The object that `kubectl ARGS -o json` prints.
    pub fn kubectl_json(&self, args: &[&str]) -> Result<Value> {
        let text = succeeded(run(self.kubectl_command()?.args(args).args(["-o", "json"]))?)?;
        serde_json::from_str(&text).with_context(|| format!("output of kubectl {args:?}"))
    }

    /// Creates or updates one object, or many in a List.
    pub fn apply(&self, object: &Value) -> Result<()> {
        let mut command = self.kubectl_command()?;
        command.args(["apply", "--server-side", "--force-conflicts", "-f", "-"]);
        succeeded(run_with_input(&mut command, object.to_string().as_bytes())?).map(drop)
    }

    /// What the cluster would say to a new object, which it does not keep: all webhooks are asked.
    pub fn try_create(&self, object: &Value) -> Result<Output> {
        let mut command = self.kubectl_command()?;
        command.args(["create", "--dry-run=server", "-o", "json", "-f", "-"]);
        run_with_input(&mut command, object.to_string().as_bytes())
    }

    /// The objects of a manifest, which nobody is told of yet.
    pub fn read_manifest(&self, file: &Path) -> Result<Value> {
        let file = file.display().to_string();
        self.kubectl_json(&["create", "--dry-run=client", "--validate=false", "-f", &file])
    }

    /// A folder that goes with the cluster, empty.
    pub fn scratch(&self, name: &str) -> Result<PathBuf> {
        let dir = self.scratch_dir(name);
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                bail!("remove {}: {error}", dir.display())
            }
            _ => std::fs::create_dir_all(&dir)
                .with_context(|| format!("create {}", dir.display()))
                .map(|()| dir),
        }
    }

    /// The same, as it is.
    pub fn scratch_dir(&self, name: &str) -> PathBuf {
        self.logs.with_file_name(name)
    }

    /// `kubectl` with the cluster's administrator in its environment, to add to.
    pub fn kubectl_command(&self) -> Result<Command> {
        let mut command = Command::new(self.tool("kubectl")?);
        command.env("KUBECONFIG", &self.kubeconfig);
        Ok(command)
    }
}

/// The path of a part of the testbed, for a `Command`.
///
/// # Panics
/// When there is no such part.
pub fn tool(name: &str) -> &'static Path {
    match Testbed::get().tool(name) {
        Ok(path) => path,
        Err(error) => panic!("{error:#}"),
    }
}

/// The `portolan` program under test, to add arguments to.
///
/// # Panics
/// When the run did not say where it is.
pub fn portolan() -> Command {
    Command::new(program(PORTOLAN))
}

/// The `portolan-agent` program under test, to add arguments to.
///
/// # Panics
/// When the run did not say where it is.
pub fn portolan_agent() -> Command {
    Command::new(program(AGENT))
}

/// The file of the `portolan-verifier` under test.
///
/// # Panics
/// When the run did not say where it is.
pub fn portolan_verifier() -> PathBuf {
    program(VERIFIER)
}

/// The file of the `portolan-controller` under test.
///
/// # Panics
/// When the run did not say where it is.
pub fn portolan_controller() -> PathBuf {
    program(CONTROLLER)
}

/// The file of the static `portolan-init`, which an agent puts into guests.
///
/// # Panics
/// When the run did not say where it is.
pub fn portolan_init() -> PathBuf {
    program(INIT)
}

/// The image of steps, built from this source, as pods pull it.
///
/// # Panics
/// When the run did not say which.
pub fn step_image() -> String {
    word(STEP_IMAGE)
}

/// The platforms that it is for: this machine's, and those of `cargo xtask e2e --platform`.
///
/// # Panics
/// When the run did not say which.
pub fn step_platforms() -> Vec<String> {
    word(STEP_PLATFORMS).split(',').map(str::to_owned).collect()
}

fn word(variable: &str) -> String {
    match std::env::var(variable) {
        Ok(word) => word,
        Err(_) => panic!("{variable} is not set: run these tests with `cargo xtask e2e`"),
    }
}

fn program(variable: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => path.into(),
        None => panic!("{variable} is not set: run these tests with `cargo xtask e2e`"),
    }
}

fn succeeded(output: Output) -> Result<String> {
    if output.code != Some(0) {
        bail!("{output}");
    }
    Ok(output.stdout)
}
