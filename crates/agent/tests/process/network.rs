//! The API on the network, and the mirror.

use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_agent::api::PrefetchRequest;
use portolan_core::Digest;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::harness::{Home, Registry, from};

/// A certificate authority, a server's files and a client's identity.
struct Certificates {
    ca: String,
    client: String,
    stranger: String,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key, signed by `by`.
fn signed(name: &str, by: &CertifiedIssuer<'static, KeyPair>) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn certificates(dir: impl Fn(&str) -> PathBuf) -> Certificates {
    let (ours, theirs) = (authority(), authority());
    let (certificate, key) = signed("localhost", &ours);
    std::fs::write(dir("cert.pem"), certificate).unwrap();
    std::fs::write(dir("key.pem"), key).unwrap();
    std::fs::write(dir("ca.pem"), ours.pem()).unwrap();
    let identity = |(certificate, key): (String, String)| format!("{certificate}{key}");
    Certificates {
        ca: ours.pem(),
        client: identity(signed("control-plane", &ours)),
        stranger: identity(signed("control-plane", &theirs)),
    }
}

/// One that waits for nobody for ever: a connection that is refused just when its request is handed over was once seen to
/// leave the request without an answer and without an error.
fn patient() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20))
}

fn client(ca: &str, identity: Option<&str>) -> reqwest::Client {
    let ca = reqwest::Certificate::from_pem(ca.as_bytes()).unwrap();
    let mut builder = patient().tls_certs_only([ca]);
    if let Some(pem) = identity {
        builder = builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap());
    }
    builder.build().unwrap()
}

fn toml(path: &Path) -> String {
    toml::Value::String(path.to_str().unwrap().to_owned()).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_on_the_network_only_for_clients_with_a_certificate() {
    let home = Home::new();
    let made = certificates(|name| home.path(name));
    let config = format!(
        "[api]\nlisten = \"127.0.0.1:0\"\ncertificate = {}\nkey = {}\nclient_ca = {}",
        toml(&home.path("cert.pem")),
        toml(&home.path("key.pem")),
        toml(&home.path("ca.pem"))
    );
    let agent = home.start(&config).await;
    let port = agent.listens("the API").port();
    let url = format!("https://localhost:{port}/v1/status");
    let known = client(&made.ca, Some(&made.client)).get(&url).send().await.unwrap();
    assert_eq!(known.status(), 200);
    let status: Value = serde_json::from_slice(&known.bytes().await.unwrap()).unwrap();
    assert_eq!(status["ready"], true);
    for identity in [None, Some(made.stranger.as_str())] {
        assert!(client(&made.ca, identity).get(&url).send().await.is_err(), "{identity:?}");
    }
    let plain = patient().build().unwrap();
    assert!(plain.get(format!("http://localhost:{port}/healthz")).send().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_host_fetches_from_the_first_ones_cache_without_the_registry() {
    let registry = Registry::start(None).await;
    let first = Home::new();
    let agent = first.start("[mirror]\nlisten = \"127.0.0.1:0\"").await;
    let request: PrefetchRequest = from(json!({ "images": [registry.image()] }));
    agent.client.prefetch(&request).await.unwrap();
    let mirror = agent.listens("the mirror");
    let digest: Digest = request.images[0].resolved_digest.as_deref().unwrap().parse().unwrap();
    let http = patient().build().unwrap();
    let get = |path: String| http.get(format!("http://{mirror}{path}")).send();
    let manifest = get(format!("/v2/any/name/manifests/{digest}")).await.unwrap();
    assert_eq!(manifest.status(), 200);
    let bytes = manifest.bytes().await.unwrap();
    assert_eq!(Digest::sha256(&bytes), digest);
    assert_eq!(get("/v2/hello/manifests/1".to_owned()).await.unwrap().status(), 404, "no tags");
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    let layer = document["layers"][0]["digest"].as_str().unwrap().to_owned();
    let blob = http
        .get(format!("http://{mirror}/v2/x/blobs/{layer}"))
        .header("range", "bytes=0-9")
        .send()
        .await
        .unwrap();
    assert_eq!((blob.status().as_u16(), blob.bytes().await.unwrap().len()), (206, 10));

    // The registry is gone; another host has the first one for a mirror.
    let address = registry.address;
    drop(registry);
    let second = Home::new();
    let registries = second.path("registries.toml");
    let settings =
        format!("[[host.\"{address}\".mirror]]\nhost = \"{mirror}\"\npull = \"digest\"\n");
    std::fs::write(&registries, settings).unwrap();
    let agent = second.start(&format!("registries = {}", toml(&registries))).await;
    let got = agent.client.prefetch(&request).await.unwrap().images.remove(0);
    assert_eq!((got.cached, got.reason), (Some(false), None), "{got:?}");
}
