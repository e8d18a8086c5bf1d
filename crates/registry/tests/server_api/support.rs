//! A bound server, and the requests that tests make again and again.

use std::net::SocketAddr;
use std::path::Path;

use portolan_core::{Algorithm, Descriptor, Digest, media_type};
use portolan_registry::server::{Config, Server};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server that runs until it is dropped or stopped.
pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    pub(crate) client: reqwest::Client,
    /// None for a server that another process runs.
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

impl Registry {
    pub(crate) async fn start(root: &Path) -> Self {
        Self::with(Config::new(root, loopback())).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let server = Server::bind(config).await.unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            server.serve(shutdown).await.unwrap();
        });
        let mut registry = Self::at(address);
        registry.running = Some((stop, task));
        registry
    }

    /// A server that runs already.
    pub(crate) fn at(address: SocketAddr) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        Self { address, client, running: None }
    }

    /// Asks the server to end and waits until it did.
    pub(crate) async fn stop(mut self) {
        let (stop, task) = self.running.take().unwrap();
        stop.send(()).unwrap();
        task.await.unwrap();
    }

    pub(crate) fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.ask(Method::GET, path).send().await.unwrap()
    }

    pub(crate) async fn head(&self, path: &str) -> Response {
        self.ask(Method::HEAD, path).send().await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str) -> Response {
        self.ask(Method::DELETE, path).send().await.unwrap()
    }

    /// Begins an upload session and returns its path.
    pub(crate) async fn session(&self, name: &str) -> String {
        let begun = self.ask(Method::POST, &format!("/v2/{name}/blobs/uploads/")).send().await;
        let begun = begun.unwrap();
        assert_eq!(begun.status(), 202);
        text(&begun, "location")
    }

    /// Waits until some of an upload's bytes are on disk, which proves that a request writes to
    /// it. The server gathers half a MiB first, so more than that must have been sent.
    pub(crate) async fn wait_until_written(&self, session: &str) {
        for _ in 0..1000 {
            let range = self.get(session).await.headers().get("range").cloned();
            if range.is_some_and(|range| range != "0-0") {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("nothing was ever written to the upload");
    }

    /// Stores a blob in one request.
    pub(crate) async fn push_blob(&self, name: &str, content: &[u8]) -> Digest {
        let digest = Digest::sha256(content);
        self.push_blob_as(name, content, &digest).await;
        digest
    }

    pub(crate) async fn push_blob_as(&self, name: &str, content: &[u8], digest: &Digest) {
        let path = format!("/v2/{name}/blobs/uploads/?digest={digest}");
        let pushed = self.ask(Method::POST, &path).body(content.to_vec()).send().await.unwrap();
        assert_eq!(pushed.status(), 201, "{}", pushed.text().await.unwrap());
    }

    pub(crate) async fn put_manifest(&self, name: &str, reference: &str, text: &str) -> Response {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let declared = value["mediaType"].as_str().unwrap_or(media_type::OCI_MANIFEST);
        self.ask(Method::PUT, &format!("/v2/{name}/manifests/{reference}"))
            .header("content-type", declared)
            .body(text.to_owned())
            .send()
            .await
            .unwrap()
    }

    /// Stores config, layer and manifest of a small image; returns manifest text and digest.
    pub(crate) async fn push_image(
        &self,
        name: &str,
        reference: &str,
        seed: &str,
    ) -> (String, Digest) {
        let manifest = self.push_parts(name, seed).await.to_string();
        let pushed = self.put_manifest(name, reference, &manifest).await;
        assert_eq!(pushed.status(), 201, "{}", pushed.text().await.unwrap());
        let digest = Digest::sha256(manifest.as_bytes());
        (manifest, digest)
    }

    /// Stores the blobs of a small image; returns the manifest that would name them.
    pub(crate) async fn push_parts(&self, name: &str, seed: &str) -> Value {
        let config = format!("{{\"seed\":\"{seed}\"}}");
        let layer = format!("layer of {seed}");
        self.push_blob(name, config.as_bytes()).await;
        self.push_blob(name, layer.as_bytes()).await;
        image(Algorithm::Sha256, config.as_bytes(), layer.as_bytes())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.running {
            task.abort();
        }
    }
}

/// A manifest with one config and one layer.
pub(crate) fn image(algorithm: Algorithm, config: &[u8], layer: &[u8]) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": media_type::OCI_MANIFEST,
        "config": descriptor(algorithm, media_type::OCI_CONFIG, config),
        "layers": [descriptor(algorithm, "application/vnd.oci.image.layer.v1.tar+gzip", layer)],
    })
}

pub(crate) fn descriptor(algorithm: Algorithm, media_type: &str, content: &[u8]) -> Descriptor {
    Descriptor::new(media_type, Digest::of(algorithm, content), content.len() as u64)
}

/// The header `name` as text; empty when it is absent.
pub(crate) fn text(response: &Response, name: &str) -> String {
    response.headers().get(name).map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default()
}

/// The answer as JSON.
pub(crate) async fn json_body(response: Response) -> Value {
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

/// Status and the specification's error code.
pub(crate) async fn refusal(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    assert_eq!(text(&response, "content-type"), "application/json");
    let body: Value = json_body(response).await;
    assert!(body["errors"][0]["message"].as_str().is_some_and(|m| !m.is_empty()), "{body}");
    (status, body["errors"][0]["code"].as_str().unwrap().to_owned())
}

pub(crate) fn code(status: u16, word: &str) -> (u16, String) {
    (status, word.to_owned())
}

/// Sends bytes as they are and returns all that comes back before the server closes.
pub(crate) async fn raw(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// A GET for exactly this path, which a URL library would tidy up.
pub(crate) async fn raw_get(address: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    raw(address, request.as_bytes()).await
}
