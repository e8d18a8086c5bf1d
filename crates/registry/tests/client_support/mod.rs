//! Small servers that speak real HTTP, each scripted by one function.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
pub(crate) use portolan_core::causes::chain;
use portolan_core::{Descriptor, Host, Manifest, Repository, Target, media_type};
use portolan_registry::client::{Client, CredentialStore, Remote, Settings};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;

/// A request as a server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// `GET /v2/…`, for matching on.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The values of one parameter of the query, or of a form.
    pub(crate) fn parameters(text: &str, name: &str) -> Vec<String> {
        url::form_urlencoded::parse(text.as_bytes())
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
            .collect()
    }
}

/// An answer.
pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response {
    let mut builder = Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body.into()).unwrap()
}

/// A running server; it stops with the test's runtime.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) host: Host,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// How many TLS handshakes were begun.
    handshakes: Arc<AtomicUsize>,
}

impl Server {
    /// How many TLS handshakes were begun so far, finished or not.
    pub(crate) fn connections(&self) -> usize {
        self.handshakes.load(Ordering::SeqCst)
    }

    /// Everything it was asked so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// How often it was asked something that begins so.
    pub(crate) fn count(&self, line: &str) -> usize {
        self.seen().iter().filter(|seen| seen.line().starts_with(line)).count()
    }
}

async fn see(request: Request) -> Seen {
    let (parts, body) = request.into_parts();
    Seen {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body: axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default(),
    }
}

fn router(
    seen: Arc<Mutex<Vec<Seen>>>,
    handler: impl Fn(&Seen) -> Response + Clone + Send + Sync + 'static,
) -> Router {
    Router::new().fallback(move |request: Request| async move {
        let request = see(request).await;
        seen.lock().unwrap().push(request.clone());
        handler(&request)
    })
}

/// A plain HTTP server.
pub(crate) async fn serve(
    handler: impl Fn(&Seen) -> Response + Clone + Send + Sync + 'static,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve_on(listener, handler)
}

/// A plain HTTP server whose address was needed before its script.
pub(crate) fn serve_on(
    listener: TcpListener,
    handler: impl Fn(&Seen) -> Response + Clone + Send + Sync + 'static,
) -> Server {
    let host = listener.local_addr().unwrap().to_string().parse().unwrap();
    let seen = Arc::default();
    let app = router(Arc::clone(&seen), handler);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Server { host, seen, handshakes: Arc::default() }
}

/// A certificate authority of one test.
pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

/// A certificate and its key, PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        let certificate = parameters.self_signed(&key).unwrap();
        Self { issuer: rcgen::Issuer::new(parameters, key), certificate }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn issue(&self, name: &str) -> Pair {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// An HTTPS server called `localhost:PORT`; with `clients` it wants to see a certificate of that authority.
pub(crate) async fn serve_tls(
    authority: &Authority,
    clients: Option<&Authority>,
    handler: impl Fn(&Seen) -> Response + Clone + Send + Sync + 'static,
) -> Server {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let pair = authority.issue("localhost");
    let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        Some(clients) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(clients.pem().as_bytes()).unwrap()).unwrap();
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
                Arc::new(roots),
                provider,
            )
            .build()
            .unwrap();
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("localhost:{}", listener.local_addr().unwrap().port()).parse().unwrap();
    let seen = Arc::default();
    let app = router(Arc::clone(&seen), handler);
    let handshakes = Arc::<AtomicUsize>::default();
    let begun = Arc::clone(&handshakes);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            begun.fetch_add(1, Ordering::SeqCst);
            let (acceptor, app) = (acceptor.clone(), app.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper_util::service::TowerToHyperService::new(app);
                let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Server { host, seen, handshakes }
}

/// Settings with short waits, so that tests of trouble are quick.
pub(crate) fn quick() -> Settings {
    let mut settings = Settings::default();
    let limits = &mut settings.defaults_mut().limits;
    limits.connect_timeout = Duration::from_secs(2);
    limits.stall_timeout = Duration::from_secs(2);
    limits.request_timeout = Duration::from_secs(5);
    limits.retries = 2;
    settings
}

pub(crate) fn remote(server: &Server, settings: Settings, credentials: CredentialStore) -> Remote {
    Client::new(settings, credentials).unwrap().repository(&server.host, &repository())
}

pub(crate) fn anonymous(server: &Server) -> Remote {
    remote(server, quick(), CredentialStore::anonymous())
}

pub(crate) fn repository() -> Repository {
    "team/app".parse().unwrap()
}

pub(crate) fn tag(name: &str) -> Target {
    Target::Tag(name.parse().unwrap())
}

/// A small manifest.
pub(crate) fn manifest() -> Vec<u8> {
    let config = Descriptor::of("application/vnd.oci.image.config.v1+json", b"{}");
    Manifest::new(config, vec![]).to_vec()
}

/// The answer that carries it.
pub(crate) fn manifest_reply() -> Response {
    reply(200, &[("content-type", media_type::OCI_MANIFEST)], manifest())
}
