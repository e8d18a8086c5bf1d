//! Those who are measured: the verifier and Ratify, each alone, and what the kernel says of them.

use std::fmt;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use super::certificates::Certificates;
use super::load::Target;
use crate::bench::process::Process;

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Ours,
    /// Ours with a policy that asks for what Ratify looks at: the index, and no image.
    OursLikeRatify,
    Ratify,
}

/// Whether what was found is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// As long as the bench takes.
    Everything,
    /// What a digest names, which is the same for ever, and nothing else. So does Ratify on its disk.
    Content,
}

/// How connections are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Plain,
    Tls,
    /// The client shows a certificate too.
    Mutual,
}

impl Wire {
    pub(super) const ALL: [Self; 3] = [Self::Plain, Self::Tls, Self::Mutual];
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Tls => "TLS",
            Self::Mutual => "mTLS",
        })
    }
}

/// What both are started with.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) ours: PathBuf,
    /// Unless it is left out.
    pub(super) ratify: Option<PathBuf>,
    /// The public key.
    pub(super) key: PathBuf,
    pub(super) certificates: Certificates,
    pub(super) scratch: PathBuf,
}

/// A running one; ended when dropped.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) process: Process,
    pub(super) target: Target,
    _home: tempfile::TempDir,
}

impl Setup {
    /// Starts one that has never been asked anything.
    pub(super) fn start(&self, who: Who, keeps: Keeps, wire: Wire) -> Result<Verifier> {
        let home = tempfile::tempdir_in(&self.scratch)?;
        // Asked for and given back at once: neither says which port it got.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = match who {
            Who::Ours => self.ours("both", home.path(), address, keeps, wire)?,
            Who::OursLikeRatify => self.ours("index", home.path(), address, keeps, wire)?,
            Who::Ratify => self.ratify(home.path(), address, keeps, wire)?,
        };
        let log = fs::File::create(home.path().join("log"))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {who:?}"))?;
        let tls = self.certificates.client(wire)?;
        let verifier =
            Verifier { process: Process(child), target: Target { address, tls }, _home: home };
        for _ in 0..400 {
            if TcpStream::connect(address).is_ok() {
                return Ok(verifier);
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        let log = fs::read_to_string(verifier._home.path().join("log")).unwrap_or_default();
        bail!("{who:?} does not listen on {address} after 10 s:\n{log}")
    }

    fn ours(
        &self,
        index_policy: &str,
        home: &Path,
        address: SocketAddr,
        keeps: Keeps,
        wire: Wire,
    ) -> Result<Command> {
        let quoted = |path: &Path| format!("{:?}", path.display().to_string());
        let policy = home.join("policy.yaml");
        let key = quoted(&self.key);
        fs::write(
            &policy,
            format!(
                "version: 1\nsigners:\n  release: {{keys: {{files: [{key}]}}}}\ndefault:\n  indexPolicy: {index_policy}\n  require: {{anyOf: [release]}}\n"
            ),
        )?;
        let settings = home.join("registries.toml");
        fs::write(&settings, "")?;
        let time = match keeps {
            Keeps::Everything => "10m",
            Keeps::Content => "1ms",
        };
        let mut config = format!(
            "listen = \"{address}\"\nhost_platform = \"linux/amd64\"\npolicy = {}\nregistries = {}\ncredentials = {}\n\
             [cache]\ntag_ttl = \"{time}\"\nverified_ttl = \"{time}\"\nrefused_ttl = \"{time}\"\n",
            quoted(&policy),
            quoted(&settings),
            quoted(&home.join("credentials.json")),
        );
        if wire != Wire::Plain {
            let file = |name: &str| quoted(&self.certificates.dir.join(name));
            config +=
                &format!("[tls]\ncertificate = {}\nkey = {}\n", file("tls.crt"), file("tls.key"));
            if wire == Wire::Mutual {
                config += &format!("client_ca = {}\n", file("ca.crt"));
            }
        }
        let file = home.join("verifier.toml");
        fs::write(&file, config)?;
        let mut command = Command::new(&self.ours);
        command.arg("--config").arg(file);
        Ok(command)
    }

    fn ratify(
        &self,
        home: &Path,
        address: SocketAddr,
        keeps: Keeps,
        wire: Wire,
    ) -> Result<Command> {
        let kind = "application/vnd.dev.cosign.artifact.sig.v1+json";
        let config = json!({
            "store": {"version": "1.0.0", "plugins": [{
                "name": "oras", "useHttp": true, "cosignEnabled": true,
                "localCachePath": home.join("blobs"),
                "cacheEnabled": keeps == Keeps::Everything, "ttl": 600,
            }]},
            "policy": {"version": "1.0.0", "plugin": {
                "name": "configPolicy", "artifactVerificationPolicies": {kind: "any"},
            }},
            "verifier": {"version": "1.0.0", "plugins": [{
                "name": "cosign", "artifactTypes": kind,
                "trustPolicies": [{
                    "name": "bench", "version": "1.0.0", "scopes": ["*"], "keys": [{"file": self.key}],
                    "tLogVerify": false,
                }],
            }]},
        });
        let file = home.join("config.json");
        fs::write(&file, serde_json::to_vec_pretty(&config)?)?;
        let ratify = self.ratify.as_ref().context("Ratify is left out of this run")?;
        let mut command = Command::new(ratify);
        command.args(["serve", "--http", &address.to_string(), "--config"]).arg(file);
        command.args(["--health-port", "127.0.0.1:0"]);
        if keeps == Keeps::Everything {
            command.args(["--cache-enabled", "--cache-ttl", "10m"]);
        }
        if wire != Wire::Plain {
            command.arg("--cert-dir").arg(&self.certificates.dir);
        }
        if wire == Wire::Mutual {
            command.arg("--ca-cert-file").arg(self.certificates.dir.join("ca.crt"));
        }
        // Each request would be a line of the log otherwise, which ours does not write either.
        command.env("HOME", home).env("RATIFY_CONFIG", home).env("RATIFY_LOG_LEVEL", "error");
        Ok(command)
    }
}
