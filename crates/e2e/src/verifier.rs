//! The verifier in the cluster, deployed from `deploy/verifier` as a user would: with a key and a
//! policy of this run's own, a certificate of its own making, and its image from the cluster's registry.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{OnceLock, RwLock};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    Forward, KEY_PASSWORD, Output, Testbed, deploy, portolan, portolan_verifier, program_image,
    run, run_with_input, tool, wait_for,
};

const NAMESPACE: &str = "portolan-system";
const NAME: &str = "portolan-verifier";
/// Where Gatekeeper asks: a port of the shipped Service.
const GATEKEEPER_PORT: u16 = 6001;

/// Who must have signed what: all of it, by this run's key, for machines like the verifier's where
/// a pod says nothing.
pub const POLICY: &str = "\
version: 1
signers:
  release: { keys: { files: [release.pub] } }
default:
  require: { allOf: [release] }
  platforms: host
";

/// The one of this test program. It stays when the program ends, and goes with the cluster.
#[derive(Debug)]
pub struct Verifier {
    dir: PathBuf,
    /// Held for reading by who needs it to answer, for writing by who takes it away.
    pub turn: RwLock<()>,
}

impl Verifier {
    /// Deploys it, once.
    ///
    /// # Panics
    /// When that fails, with the reason.
    pub fn get() -> &'static Self {
        // A failure is kept too, so that the other tests fail at once.
        static VERIFIER: OnceLock<Result<Verifier, String>> = OnceLock::new();
        match VERIFIER.get_or_init(|| Self::deploy().map_err(|error| format!("{error:#}"))) {
            Ok(verifier) => verifier,
            Err(error) => panic!("deploy the verifier: {error}"),
        }
    }

    fn deploy() -> Result<Self> {
        let testbed = Testbed::get();
        let verifier = Self { dir: testbed.scratch("verifier")?, turn: RwLock::new(()) };
        let key = verifier.file("release");
        succeed(
            portolan()
                .args(["key", "generate", "--output", &key])
                .env("COSIGN_PASSWORD", KEY_PASSWORD),
        )?;
        std::fs::write(verifier.policy(), POLICY)?;
        std::fs::write(verifier.registries(), registries(&testbed.registry.cluster))?;
        let image = verifier.push_image()?;
        // An earlier test program may have left one, with other keys.
        let gone = ["delete", "deployment", NAME, "--namespace", NAMESPACE, "--ignore-not-found"];
        testbed.kubectl(&gone)?;
        let manifest = deploy("verifier/verifier.yaml").display().to_string();
        testbed.kubectl(&["apply", "-f", &manifest])?;
        testbed.apply(&json!({
            "apiVersion": "v1", "kind": "List", "items": verifier.settings(&gatekeepers_secret("ca.crt")?)?,
        }))?;
        let registries =
            json!({ "data": { "registries.toml": verifier.read("registries.toml")? } });
        let merge = ["--type=merge", "--patch", &registries.to_string()];
        let settings = ["patch", "configmap", NAME, "--namespace", NAMESPACE];
        testbed.kubectl(&[&settings[..], &merge].concat())?;
        let deployment = format!("deployment/{NAME}");
        let container = format!("verifier={image}");
        testbed.kubectl(&["set", "image", "--namespace", NAMESPACE, &deployment, &container])?;
        Forward::start(testbed.bridge_address, NAMESPACE, NAME, GATEKEEPER_PORT)?;
        // One node has room for both, but two programs that start take longer than one.
        verifier.scale(1)?;
        // It answers, so it has made its certificate.
        let secret = ["get", "secret", "portolan-verifier-tls", "--namespace", NAMESPACE];
        let authority = ["-o", "go-template={{index .data \"ca.crt\" | base64decode}}"];
        let authority = testbed.kubectl(&[&secret[..], &authority].concat())?;
        std::fs::write(verifier.authority(), authority)?;
        Ok(verifier)
    }

    /// Waits until so many, and no more, answer.
    pub fn scale(&self, replicas: u32) -> Result<()> {
        let testbed = Testbed::get();
        let count = format!("--replicas={replicas}");
        testbed.kubectl(&["scale", "--namespace", NAMESPACE, "deployment", NAME, &count])?;
        wait_for("the verifier's pods", Duration::from_secs(90), || {
            let selector = "--selector=app.kubernetes.io/name=portolan-verifier";
            let pods =
                testbed.kubectl_json(&["get", "pods", "--namespace", NAMESPACE, selector])?;
            let pods = pods["items"].as_array().context("a list")?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            ensure!(pods.len() == ready && ready == replicas as usize, "{pods:#?}");
            Ok(())
        })
    }

    /// Changes its policy, and waits until it answers by the new one. To be called with the turn to write.
    pub fn follow(&self, policy: &str) -> Result<()> {
        let data = json!({ "data": { "policy.yaml": policy } }).to_string();
        let object = ["patch", "configmap", "portolan-policy", "--namespace", NAMESPACE];
        let patch = [&object[..], &["--type=merge", "--patch", &data]].concat();
        Testbed::get().kubectl(&patch)?;
        // A pod that is there sees a changed ConfigMap only after a minute or two.
        self.scale(0)?;
        self.scale(1)
    }

    /// The private key that the policy asks for, under [`KEY_PASSWORD`].
    pub fn key(&self) -> String {
        self.file("release.key")
    }

    /// Who signed its certificate.
    pub fn authority(&self) -> String {
        self.file("ca.crt")
    }

    pub fn policy(&self) -> String {
        self.file("policy.yaml")
    }

    /// How the cluster's registry is reached: by plain HTTP.
    pub fn registries(&self) -> String {
        self.file("registries.toml")
    }

    /// Asks it for a page, as Gatekeeper would reach it, with these flags of `openssl s_client`.
    pub fn ask(&self, flags: &[&str]) -> Result<Output> {
        let address = format!("{}:{GATEKEEPER_PORT}", Testbed::get().bridge_address);
        let name = format!("{NAME}.{NAMESPACE}");
        let mut command = Command::new(tool("openssl"));
        command.args(["s_client", "-quiet", "-verify_return_error", "-connect", &address]);
        command.args(["-CAfile", &self.authority(), "-servername", &name]).args(flags);
        let request = format!("GET /nothing HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
        run_with_input(&mut command, request.as_bytes())
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn read(&self, name: &str) -> Result<String> {
        std::fs::read_to_string(self.dir.join(name)).with_context(|| format!("read {name}"))
    }

    /// What the shipped manifest leaves to its user.
    fn settings(&self, gatekeeper: &str) -> Result<Vec<Value>> {
        let object = |name: &str, data: Value| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                    "metadata": { "name": name, "namespace": NAMESPACE } })
        };
        let policy = json!({ "policy.yaml": POLICY, "release.pub": self.read("release.pub")? });
        Ok(vec![
            object("portolan-policy", policy),
            object("gatekeeper-ca", json!({ "ca.crt": gatekeeper })),
        ])
    }

    /// Its image, in the cluster's registry.
    fn push_image(&self) -> Result<String> {
        let place = (self.dir.as_path(), "portolan/verifier");
        // Where the manifest's command is found.
        let to = format!("usr/local/bin/{NAME}");
        program_image(&portolan_verifier(), &to, &[], json!({}), place)
    }
}

/// A file of Gatekeeper's own: `tls.crt` and `tls.key` by which it is known, and `ca.crt`, the
/// authority that it made for itself.
pub fn gatekeepers_secret(file: &str) -> Result<String> {
    let secret =
        ["get", "secret", "gatekeeper-webhook-server-cert", "--namespace=gatekeeper-system"];
    let path = format!("go-template={{{{index .data {file:?} | base64decode}}}}");
    Testbed::get().kubectl(&[&secret[..], &["-o", &path]].concat())
}

fn registries(address: &str) -> String {
    format!("[host.\"{address}\"]\nplain_http = true\n")
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.is_some_and(|all| all.iter().any(ready))
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = run(command)?;
    ensure!(output.code == Some(0), "{output}");
    Ok(())
}
