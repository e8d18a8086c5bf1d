//! A control plane of the bench alone: etcd and the API server on loopback, and a log of who wrote what.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use super::client::{Body, Connection, Server};
use crate::bench::process::Process;
use crate::testbed::build::Toolbox;
use crate::testbed::command::wait;
use crate::testbed::process::tail;

/// Who asks; the log knows them apart.
pub(super) const BENCH: &str = "bench";
pub(super) const MEASURED: &str = "measured";

/// Runs until dropped.
#[derive(Debug)]
pub(super) struct Plane {
    apiserver: Process,
    _etcd: Process,
    pub(super) server: Server,
    dir: tempfile::TempDir,
}

impl Plane {
    pub(super) fn start(tools: &Toolbox) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("portolan-bench-").tempdir()?;
        let at = |name: &str| dir.path().join(name);
        let tls = certificates(dir.path())?;
        let mut tokens = String::new();
        for user in [BENCH, MEASURED] {
            tokens += &format!("token-of-{user},{user},{user},\"system:masters\"\n");
        }
        fs::write(at("tokens.csv"), tokens)?;
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "omitManagedFields": true,
            "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
        });
        fs::write(at("audit-policy.json"), policy.to_string())?;
        let etcd = etcd(tool(tools, "etcd")?, dir.path())?;
        let address = free()?;
        let apiserver = apiserver(tool(tools, "kube-apiserver")?, dir.path(), &etcd.1, address)?;
        let server = Server { address, tls, token: format!("token-of-{BENCH}") };
        for user in [BENCH, MEASURED] {
            let file = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "bench",
                "clusters": [{"name": "bench", "cluster": {
                    "server": format!("https://localhost:{}", address.port()), "certificate-authority": at("ca.crt"),
                }}],
                "users": [{"name": user, "user": {"token": format!("token-of-{user}")}}],
                "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": user}}],
            });
            fs::write(at(&format!("{user}.kubeconfig")), file.to_string())?;
        }
        let mut plane = Self { apiserver, _etcd: etcd.0, server, dir };
        plane.ready()?;
        Ok(plane)
    }

    fn ready(&mut self) -> Result<()> {
        let ready = wait("the API server", Duration::from_secs(120), || {
            if let Some(status) = self.apiserver.0.try_wait()? {
                bail!("it ended with {status}");
            }
            self.connect()?.bytes("GET", "/readyz", Body::None).map(drop)
        });
        ready.with_context(|| tail(&self.dir.path().join("apiserver.log"), 15))
    }

    pub(super) fn connect(&self) -> Result<Connection> {
        Connection::open(&self.server)
    }

    pub(super) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.dir.path().join(format!("{user}.kubeconfig"))
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.dir.path().join("audit.log")
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Applies definitions of resources from a file and waits until they are served.
    pub(super) fn define(&self, file: &Path, served: &str) -> Result<()> {
        let text = fs::read(file).with_context(|| format!("read {}", file.display()))?;
        let name = file.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let object: serde_json::Value = serde_yaml_ng::from_slice(&text)?;
        let named = object["metadata"]["name"].as_str().unwrap_or(name).to_owned();
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{named}?fieldManager=bench&force=true"
        );
        let mut connection = self.connect()?;
        connection.ask("PATCH", &path, Body::Apply(&text))?;
        wait("the definition to be served", Duration::from_secs(30), || {
            self.connect()?.get(served).map(drop)
        })
    }
}

fn tool<'a>(tools: &'a Toolbox, name: &str) -> Result<&'a Path> {
    tools.get(name).map(PathBuf::as_path).with_context(|| format!("no part {name}"))
}

/// Asked for and given back at once: neither says which port it got.
fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn etcd(program: &Path, dir: &Path) -> Result<(Process, String)> {
    let (client, peer) = (format!("http://{}", free()?), format!("http://{}", free()?));
    let args = [
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data live as long as the bench; and no disk is measured.
        "--unsafe-no-fsync".to_owned(),
        "--quota-backend-bytes=4294967296".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    Ok((start(program, &args, &dir.join("etcd.log"))?, client))
}

fn apiserver(program: &Path, dir: &Path, etcd: &str, address: SocketAddr) -> Result<Process> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", dir.join(name).display());
    let args = [
        format!("--etcd-servers={etcd}"),
        format!("--bind-address={}", address.ip()),
        format!("--advertise-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        file("cert-dir", ""),
        file("tls-cert-file", "tls.crt"),
        file("tls-private-key-file", "tls.key"),
        file("token-auth-file", "tokens.csv"),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        file("service-account-key-file", "tls.pub"),
        file("service-account-signing-key-file", "tls.key"),
        "--allow-privileged=true".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        file("audit-policy-file", "audit-policy.json"),
        file("audit-log-path", "audit.log"),
        "--audit-log-maxsize=4096".to_owned(),
    ];
    start(program, &args, &dir.join("apiserver.log"))
}

fn start(program: &Path, args: &[String], log: &Path) -> Result<Process> {
    let out = fs::File::create(log)?;
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    Ok(Process(child))
}

/// An authority, the server's certificate by it, and what a client needs to know.
fn certificates(dir: &Path) -> Result<Arc<rustls::ClientConfig>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    fs::write(dir.join("ca.crt"), authority.pem())?;
    let key = KeyPair::generate()?;
    let params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    fs::write(dir.join("tls.crt"), params.signed_by(&key, &authority)?.pem())?;
    fs::write(dir.join("tls.key"), key.serialize_pem())?;
    fs::write(dir.join("tls.pub"), key.public_key_pem())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("ca.crt"))?)?;
    ensure!(!roots.is_empty(), "an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
