use portolan_registry::server::{Config, ServeError, Server, TlsFiles};

use crate::support::{Registry, loopback, raw_get};

fn files(root: &std::path::Path) -> (TlsFiles, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = TlsFiles::new(root.join("cert.pem"), root.join("key.pem"));
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    (files, made.cert.pem())
}

#[tokio::test]
async fn https_with_http_1_and_2() {
    let root = tempfile::tempdir().unwrap();
    let (tls, pem) = files(root.path());
    let mut config = Config::new(root.path().join("store"), loopback());
    config.tls = Some(tls);
    let registry = Registry::with(config).await;
    let url = format!("https://localhost:{}/v2/", registry.address.port());
    for (http_1_only, version) in
        [(true, reqwest::Version::HTTP_11), (false, reqwest::Version::HTTP_2)]
    {
        let trusted = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
        let mut client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([trusted])
            .resolve("localhost", registry.address);
        if http_1_only {
            client = client.http1_only();
        }
        let answer = client.build().unwrap().get(&url).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, version));
    }
    // Who does not trust the certificate, or speaks plain HTTP, gets nothing.
    assert!(registry.client.get(&url).send().await.is_err());
    assert!(!raw_get(registry.address, "/v2/").await.contains("200 OK"));
}

#[tokio::test]
async fn a_server_without_usable_files_does_not_start() {
    let root = tempfile::tempdir().unwrap();
    let (tls, _) = files(root.path());
    let start = |tls: &TlsFiles| {
        let mut config = Config::new(root.path().join("store"), loopback());
        config.tls = Some(tls.clone());
        Server::bind(config)
    };
    let absent = TlsFiles { certificate: root.path().join("no"), ..tls.clone() };
    assert!(matches!(start(&absent).await, Err(ServeError::Tls(_))));
    let swapped = TlsFiles::new(&tls.key, &tls.certificate);
    assert!(matches!(start(&swapped).await, Err(ServeError::Tls(_))));
    let other = root.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let (stranger, _) = files(&other);
    let mismatched = TlsFiles { key: stranger.key, ..tls };
    assert!(matches!(start(&mismatched).await, Err(ServeError::Tls(_))));
}
