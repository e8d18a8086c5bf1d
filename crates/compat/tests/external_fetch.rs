//! Fetching plugins over HTTPS, from servers on loopback that send what a hostile one would.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use portolan_compat::external::{Fetch as _, FetchError, Https, MAX_PROGRAM, policy};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use url::Url;

/// A server that answers every path with what the test says, and keeps what it was asked.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    dir: tempfile::TempDir,
}

impl Server {
    async fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), made.cert.pem()).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (asked.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, kept, answer) = (acceptor.clone(), kept.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        kept.lock().unwrap().push("no TLS".to_owned());
                        return;
                    };
                    let mut request = Vec::new();
                    let mut chunk = [0; 4096];
                    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                        match stream.read(&mut chunk).await {
                            Ok(0) | Err(_) => return,
                            Ok(read) => request.extend_from_slice(&chunk[..read]),
                        }
                    }
                    let request = String::from_utf8_lossy(&request).into_owned();
                    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                    kept.lock().unwrap().push(request);
                    let _ = stream.write_all(&answer(&path)).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { address, asked, dir }
    }

    fn url(&self, host: &str, path: &str) -> Url {
        Url::parse(&format!("https://{host}:{}{path}", self.address.port())).unwrap()
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// A client with these settings of the policy, which trusts the server.
    fn client(&self, mut http: Value) -> Https {
        http["certificates"] = json!([self.ca()]);
        client(&http)
    }

    fn requests(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn client(http: &Value) -> Https {
    let text = json!({"version": 1, "rules": [], "http": http}).to_string();
    Https::new(&policy::parse(text.as_bytes()).unwrap())
}

fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn redirect(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

const LOOPBACK: &str = "127.0.0.0/8";

#[tokio::test]
async fn a_plugin_is_fetched_from_a_listed_network_without_any_login() {
    let server = Server::start(|_| ok(b"program")).await;
    let client = server.client(json!({"privateNetworks": [LOOPBACK, "::1"]}));
    for host in ["127.0.0.1", "localhost"] {
        let bytes = client.fetch(&server.url(host, "/p")).await.unwrap();
        assert_eq!(bytes, b"program");
    }
    for request in server.requests() {
        let request = request.to_ascii_lowercase();
        assert!(!request.contains("authorization") && !request.contains("cookie"), "{request}");
    }
}

#[tokio::test]
async fn an_address_that_is_not_public_is_not_even_connected_to() {
    let server = Server::start(|_| ok(b"program")).await;
    let client = server.client(json!({}));
    // However it is written.
    for host in ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"] {
        let error = client.fetch(&server.url(host, "/p")).await.unwrap_err();
        assert!(matches!(error, FetchError::Address { .. }), "{host}: {error:?}");
    }
    for url in
        ["https://169.254.169.254/latest/meta-data", "https://[fe80::1]/", "https://10.0.0.1/"]
    {
        let error = client.fetch(&Url::parse(url).unwrap()).await.unwrap_err();
        assert!(matches!(error, FetchError::Address { .. }), "{url}: {error:?}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_redirect_leaves_its_host_only_for_a_listed_one() {
    let server = Server::start(move |path| match path {
        "/same" => redirect("/p"),
        "/other" => redirect("https://localhost:1/p"),
        "/plain" => redirect("http://127.0.0.1/p"),
        "/metadata" => redirect("https://169.254.169.254/"),
        "/round" => redirect("/round"),
        _ => ok(b"program"),
    })
    .await;
    let listed = json!({"privateNetworks": [LOOPBACK], "redirectHosts": ["169.254.169.254"]});
    let client = server.client(listed);
    assert_eq!(client.fetch(&server.url("127.0.0.1", "/same")).await.unwrap(), b"program");
    for path in ["/other", "/plain", "/round"] {
        let error = client.fetch(&server.url("127.0.0.1", path)).await.unwrap_err();
        assert!(matches!(error, FetchError::Redirect { .. }), "{path}: {error:?}");
    }
    // A host that may be redirected to still needs an address that may be connected to.
    let error = client.fetch(&server.url("127.0.0.1", "/metadata")).await.unwrap_err();
    assert!(matches!(error, FetchError::Address { .. }), "{error:?}");
}

#[tokio::test]
async fn too_much_an_error_and_a_strange_certificate_give_no_plugin() {
    let server = Server::start(|path| match path {
        "/announced" => {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_PROGRAM + 1).into_bytes()
        }
        "/cut" => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec(),
        _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
    })
    .await;
    let client = server.client(json!({"privateNetworks": [LOOPBACK]}));
    let fetch = async |path: &str| client.fetch(&server.url("127.0.0.1", path)).await.unwrap_err();
    assert!(matches!(fetch("/announced").await, FetchError::TooLarge { .. }));
    assert!(matches!(fetch("/cut").await, FetchError::Request { .. }));
    assert!(matches!(fetch("/none").await, FetchError::Status { status: 404, .. }));

    let stranger = self::client(&json!({"privateNetworks": [LOOPBACK]}));
    let error = stranger.fetch(&server.url("127.0.0.1", "/p")).await.unwrap_err();
    assert!(matches!(error, FetchError::Request { .. }), "{error:?}");
}

#[tokio::test]
async fn a_body_without_a_length_is_bounded_too() {
    let server = Server::start(|_| {
        let mut answer = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        answer.resize(usize::try_from(MAX_PROGRAM).unwrap() + 1024, b'x');
        answer
    })
    .await;
    let client = server.client(json!({"privateNetworks": [LOOPBACK]}));
    let error = client.fetch(&server.url("127.0.0.1", "/p")).await.unwrap_err();
    assert!(matches!(error, FetchError::TooLarge { .. }), "{error:?}");
}
