//! A registry with an image for two machines, a key, and a verifier that trusts it.

use std::path::PathBuf;
use std::time::Duration;

use portolan_core::Descriptor;
use portolan_registry::images::Place;
use portolan_verify::key::PrivateKey;
use portolan_verify::server::{self, Config, Running};
use portolan_verify::sign::{Form, sign};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::fault::{FaultServer, REPOSITORY};
use crate::support::image::Image;
use crate::support::setup;

pub(crate) const V1: &str = "/ratify/gatekeeper/v1/verify";
pub(crate) const V2: &str = "/ratify/gatekeeper/v2/verify";
pub(crate) const MUTATE: &str = "/ratify/gatekeeper/v1/mutate";
pub(crate) const ADMISSION: &str = "/admission/v1/validate";

/// Nothing is kept long enough for a test to wait for it, unless it says so.
pub(crate) const SHORT: &str = "\n[cache]\ntag_ttl = \"1ms\"\nimage_idle = \"1ms\"\n\
    verified_ttl = \"1ms\"\nrefused_ttl = \"1ms\"\npolicy_poll = \"50ms\"\n";
/// Everything is kept for as long as a test takes.
pub(crate) const LONG: &str = "\n[cache]\ntag_ttl = \"10m\"\nimage_idle = \"10m\"\n\
    verified_ttl = \"10m\"\nrefused_ttl = \"10m\"\npolicy_poll = \"50ms\"\n";

/// A rule that asks for a signature of the key, with `more` beside it.
pub(crate) fn policy(more: &str) -> String {
    format!(
        "version: 1\nsigners:\n  release: {{keys: {{files: [release.pub]}}}}\n\
         default:\n  require: {{anyOf: [release]}}\n{more}"
    )
}

/// A registry, a key and a directory of files.
pub(crate) struct Bench {
    pub(crate) registry: FaultServer,
    pub(crate) key: PrivateKey,
    pub(crate) image: Image,
    pub(crate) dir: TempDir,
    pub(crate) authority: CertifiedIssuer<'static, KeyPair>,
}

impl Bench {
    /// With an index for amd64 and arm64 under `v1`, of which nothing is signed.
    pub(crate) fn new() -> Self {
        Self::holding(Image::multi(&["linux/amd64", "linux/arm64"], 1))
    }

    pub(crate) fn holding(image: Image) -> Self {
        let bench = Self {
            registry: FaultServer::holding(&image),
            key: PrivateKey::generate().unwrap(),
            image,
            dir: tempfile::tempdir().unwrap(),
            authority: authority(),
        };
        bench.write("release.pub", &bench.key.public().to_pem());
        bench.write("policy.yaml", &policy(""));
        bench.write("registries.toml", setup::SETTINGS);
        bench.write("ca.pem", &bench.authority.pem());
        bench.certify();
        bench
    }

    /// A new certificate for the verifier, of the same authority.
    pub(crate) fn certify(&self) {
        let (certificate, key) = certificate(&self.authority);
        self.write("tls.crt", &certificate);
        self.write("tls.key", &key);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// What the index lists for an architecture.
    pub(crate) fn child(&self, architecture: &str) -> Descriptor {
        let fits = |entry: &Descriptor| {
            entry.platform.as_ref().is_some_and(|one| one.architecture == architecture)
        };
        self.image.as_index().manifests.into_iter().find(fits).unwrap()
    }

    pub(crate) async fn sign(&self, subject: &Descriptor, form: Form) {
        let place = Place::open(&self.registry.reference(""), &setup::client()).unwrap();
        sign(&place, subject, &self.key, form).await.unwrap();
    }

    /// Index and image for amd64.
    pub(crate) async fn sign_amd64(&self) {
        self.sign(&self.image.top, Form::Bundle).await;
        self.sign(&self.child("amd64"), Form::Bundle).await;
    }

    /// `host/team/app` with `suffix`.
    pub(crate) fn image(&self, suffix: &str) -> String {
        format!("{}/{REPOSITORY}{suffix}", self.registry.host())
    }

    /// The question for a machine, as Gatekeeper's engine writes it.
    pub(crate) fn key_for(&self, arch: &str) -> String {
        json!({"arch": arch, "os": "linux", "reference": self.image(":v1")}).to_string()
    }

    /// A configuration: `top` before the first table, `tables` after the last.
    pub(crate) fn config(&self, top: &str, tables: &str) -> String {
        let path = |name: &str| {
            toml::Value::String(self.path(name).to_str().unwrap().to_owned()).to_string()
        };
        format!(
            "listen = \"127.0.0.1:0\"\nhealth = \"127.0.0.1:0\"\nhost_platform = \"linux/amd64\"\n\
             policy = {}\nregistries = {}\ncredentials = {}\n{top}\n\
             [tls]\ncertificate = {}\nkey = {}\nclient_ca = {}\n{tables}",
            path("policy.yaml"),
            path("registries.toml"),
            path("config.json"),
            path("tls.crt"),
            path("tls.key"),
            path("ca.pem"),
        )
    }

    pub(crate) async fn start(&self) -> Verifier {
        self.start_with("", LONG).await
    }

    pub(crate) async fn start_with(&self, top: &str, tables: &str) -> Verifier {
        let config = Config::parse(&self.config(top, tables), &self.path("verifier.toml")).unwrap();
        let ending = CancellationToken::new();
        let running = server::start(&config, ending.clone()).await.unwrap();
        let client = client(&self.authority.pem(), Some(&self.identity()));
        Verifier { running, client, _ending: ending.drop_guard() }
    }

    /// Certificate and key of a client that is let in.
    pub(crate) fn identity(&self) -> String {
        identity(&self.authority)
    }
}

/// A verifier in this process; it ends when dropped.
pub(crate) struct Verifier {
    pub(crate) running: Running,
    pub(crate) client: reqwest::Client,
    _ending: DropGuard,
}

/// An answer: its status and what it says.
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Said {
    pub(crate) fn items(&self) -> &[Value] {
        let items = self.body["response"]["items"].as_array();
        items.unwrap_or_else(|| panic!("no items: {}", self.body))
    }

    /// The value of the only item.
    #[track_caller]
    pub(crate) fn value(&self) -> &Value {
        assert_eq!(self.items().len(), 1, "{}", self.body);
        assert!(self.items()[0].get("error").is_none(), "{}", self.body);
        &self.items()[0]["value"]
    }

    /// The only item's error.
    #[track_caller]
    pub(crate) fn error(&self) -> &str {
        assert_eq!(self.items().len(), 1, "{}", self.body);
        assert!(self.items()[0].get("value").is_none(), "{}", self.body);
        self.items()[0]["error"].as_str().unwrap()
    }

    /// An error for the whole request, with nothing beside it.
    #[track_caller]
    pub(crate) fn system_error(&self) -> &str {
        assert_eq!(self.body["kind"], "ProviderResponse", "{}", self.body);
        assert!(self.body["response"].get("items").is_none(), "{}", self.body);
        assert!(self.status >= 400, "{}", self.body);
        let text = self.body["response"]["systemError"].as_str();
        text.filter(|text| !text.is_empty()).unwrap_or_else(|| panic!("{}", self.body))
    }
}

impl Verifier {
    pub(crate) async fn ask(&self, path: &str, keys: &[&str]) -> Said {
        let body = json!({
            "apiVersion": "externaldata.gatekeeper.sh/v1beta1",
            "kind": "ProviderRequest",
            "request": {"keys": keys},
        });
        self.post(path, body.to_string()).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Said {
        let url = format!("https://localhost:{}{path}", self.running.provider.port());
        let request = self.client.post(url).header("content-type", "application/json");
        let answer = request.body(body).send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?}"));
        Said { status, body }
    }

    pub(crate) async fn health(&self, path: &str) -> (u16, String) {
        health(self.running.health.unwrap(), path).await
    }

    /// A sample of the metrics.
    pub(crate) async fn metric(&self, sample: &str) -> f64 {
        let (_, text) = self.health("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {sample} in\n{text}")).parse().unwrap()
    }

    /// Waits until this many policies were in force.
    pub(crate) async fn generation(&self, wanted: f64) {
        until(async || self.metric("portolan_verifier_policy_generation").await >= wanted).await;
    }
}

/// Asks in the clear.
pub(crate) async fn health(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let answer = client.get(format!("http://{address}{path}")).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// Waits until it holds; what never holds is a failure.
pub(crate) async fn until(holds: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("it did not come to hold within 15 s");
}

pub(crate) fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Two authorities of one name would be told apart by their keys alone.
    let name = format!("authority {:p}", &raw const params);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key for localhost.
fn certificate(by: &CertifiedIssuer<'static, KeyPair>) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.signed_by(&key, by).unwrap().pem(), key.serialize_pem())
}

pub(crate) fn identity(by: &CertifiedIssuer<'static, KeyPair>) -> String {
    let (certificate, key) = certificate(by);
    format!("{certificate}{key}")
}

pub(crate) fn client(ca: &str, identity: Option<&str>) -> reqwest::Client {
    let ca = reqwest::Certificate::from_pem(ca.as_bytes()).unwrap();
    let mut builder = reqwest::Client::builder().no_proxy().tls_certs_only([ca]);
    if let Some(pem) = identity {
        builder = builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap());
    }
    builder.build().unwrap()
}
