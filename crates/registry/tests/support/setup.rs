//! A client with short deadlines, and a copy into a layout that already holds something.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_core::Reference;
pub use portolan_core::causes::chain;
use portolan_registry::ErrorClass;
use portolan_registry::client::{Client, CredentialStore, Settings};
use portolan_registry::copy::{CopyError, CopyOptions, CopyReport, copy};
use portolan_registry::progress::Silent;
use tempfile::TempDir;

use super::fault::{FaultServer, within};
use super::image::Image;
use super::layouts;

/// How often a request is repeated in these tests; one more is the number of requests seen.
pub const RETRIES: usize = 2;

/// Deadlines that make a test of a hang take a second and not a minute.
pub const SETTINGS: &str = "[defaults]\nconnect_timeout = \"2s\"\nstall_timeout = \"700ms\"\n\
     request_timeout = \"1500ms\"\nretry_deadline = \"20s\"\nretries = 2\n";

/// A client without credentials.
pub fn client() -> Client {
    client_with(SETTINGS, CredentialStore::anonymous())
}

/// A client with settings as in `registries.toml`.
pub fn client_with(settings: &str, credentials: CredentialStore) -> Client {
    let settings = Settings::parse(settings, Path::new("registries.toml")).unwrap();
    Client::new(settings, credentials).unwrap()
}

/// Copies everything, without telling anyone.
pub async fn plain_copy(from: &Reference, to: &Reference) -> Result<CopyReport, CopyError> {
    copy(from, to, &client(), &CopyOptions::default(), Arc::new(Silent)).await
}

/// `oci:DIR:tag`.
pub fn in_layout(dir: &Path, tag: &str) -> Reference {
    format!("oci:{}:{tag}", dir.display()).parse().unwrap()
}

/// A layout that holds an older image under `v1`.
pub struct Harbour {
    _root: TempDir,
    pub dir: PathBuf,
    pub old: Image,
}

/// How a copy was refused.
#[derive(Debug)]
pub struct Refusal {
    pub class: Option<ErrorClass>,
    pub text: String,
    pub took: Duration,
}

impl Harbour {
    pub async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("layout");
        let old = Image::multi(&["linux/amd64"], 9);
        let server = FaultServer::holding(&old);
        plain_copy(&server.reference(":v1"), &in_layout(&dir, "v1")).await.unwrap();
        layouts::assert_holds(&dir, &old);
        Self { _root: root, dir, old }
    }

    /// Copies `v1` of the server over the older image, which must fail within `seconds` and
    /// leave it whole: `index.json` as it was, no temp file, no partial blob.
    pub async fn refused(&self, server: &FaultServer, seconds: u64) -> Refusal {
        self.refused_with(server, seconds, &client(), &CopyOptions::default()).await
    }

    pub async fn refused_with(
        &self,
        server: &FaultServer,
        seconds: u64,
        client: &Client,
        options: &CopyOptions,
    ) -> Refusal {
        let before = layouts::index_json(&self.dir);
        let start = Instant::now();
        let (from, to) = (server.reference(":v1"), in_layout(&self.dir, "v1"));
        let copying = copy(&from, &to, client, options, Arc::new(Silent));
        let error = within(seconds, copying).await.expect_err("the copy must be refused");
        let took = start.elapsed();
        assert_eq!(layouts::index_json(&self.dir), before, "index.json was touched");
        layouts::assert_holds(&self.dir, &self.old);
        let text = chain(&error);
        eprintln!("refused after {took:?} as {:?}: {text}", error.class());
        Refusal { class: error.class(), text, took }
    }

    /// Copies `v1` of the server over the older image, which must succeed and bring all of it.
    pub async fn taken(&self, server: &FaultServer, image: &Image, seconds: u64) -> CopyReport {
        let (from, to) = (server.reference(":v1"), in_layout(&self.dir, "v1"));
        let report = within(seconds, plain_copy(&from, &to)).await.unwrap_or_else(|error| {
            panic!("{}", chain(&error));
        });
        assert_eq!(report.copied.digest, image.top.digest);
        layouts::assert_holds(&self.dir, image);
        report
    }
}

impl Refusal {
    /// Fails unless the class is this and the text has all of these.
    pub fn expect(&self, class: ErrorClass, parts: &[&str]) {
        self.expect_answer(Some(class), parts);
    }

    /// The same for an answer that is no trouble, only "no".
    pub fn expect_answer(&self, class: Option<ErrorClass>, parts: &[&str]) {
        assert_eq!(self.class, class, "{}", self.text);
        for part in parts {
            assert!(self.text.contains(part), "{part:?} is not in: {}", self.text);
        }
    }
}

/// A server's TLS configuration for 127.0.0.1 and the file of the certificate that signs it.
pub fn tls() -> (Arc<rustls::ServerConfig>, tempfile::NamedTempFile) {
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(names).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), cert.pem()).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), file)
}
