//! Fetching from servers that misbehave.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]

mod support;

use std::fs;
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_core::Digest;
use portolan_shim::node::Quiet;
use portolan_shim::node::fetch::{FetchError, Fetched, Location, Transport, fetch};
use portolan_shim::node::install::{Source, install};
use portolan_shim::report::Reason;
use portolan_shim::resolve::Policy;
use support::server::{Answer, Server};
use support::{Tree, archive, from, ok, program, transport, wanted};

async fn get(
    url: &str,
    digest: Option<Digest>,
    transport: &Transport,
) -> Result<Vec<u8>, FetchError> {
    let temp = tempfile::tempdir().unwrap();
    let location = Location::new(url, digest, Policy::default()).unwrap();
    let result = fetch(&location, transport, temp.path()).await;
    let bytes = result.map(|Fetched { file, digest, bytes, .. }| {
        let mut file = file.file();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "for its owner alone");
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "nothing stays after a kill");
        let mut content = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut content).unwrap();
        assert_eq!(digest, Digest::sha256(&content));
        assert_eq!(bytes, content.len() as u64);
        content
    });
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "nothing stays behind");
    bytes
}

fn content() -> Vec<u8> {
    program(3, 300_000)
}

#[tokio::test]
async fn a_file_is_fetched_and_hashed() {
    let server = Server::file(content());
    let digest = Some(Digest::sha256(&content()));
    assert_eq!(get(&server.url, digest, &transport()).await.unwrap(), content());
    assert_eq!(get(&server.url, None, &transport()).await.unwrap(), content());
}

#[tokio::test]
async fn another_digest_leaves_nothing() {
    let server = Server::file(content());
    let error = get(&server.url, Some(Digest::sha256(b"other")), &transport()).await.unwrap_err();
    assert_eq!(error.reason(), Reason::DigestMismatch);
    assert_eq!(server.count(), 1, "it would be the same again");
}

#[tokio::test]
async fn a_cut_is_taken_up_where_it_was() {
    let server = Server::new(|asked| match asked.number {
        0 => Answer::Cut(content(), 100_000),
        1 => Answer::Stall(content(), 200_000),
        _ => Answer::File(content()),
    });
    assert_eq!(get(&server.url, None, &transport()).await.unwrap(), content());
    let ranges: Vec<_> = server.asked.lock().unwrap().iter().map(|a| a.range.clone()).collect();
    assert_eq!(ranges[0], None);
    assert_eq!(ranges[1].as_deref(), Some("bytes=100000-"));
    assert_eq!(ranges[2].as_deref(), Some("bytes=200000-"));
}

#[tokio::test]
async fn trouble_that_passes_is_waited_for_and_a_no_is_not() {
    let server = Server::new(|asked| match asked.number {
        0 => Answer::Status(503, vec![("retry-after", "1".to_owned())]),
        1 => Answer::Status(429, vec![]),
        2 => Answer::Nothing,
        _ => Answer::File(content()),
    });
    let began = Instant::now();
    assert_eq!(get(&server.url, None, &transport()).await.unwrap(), content());
    assert!(began.elapsed() >= Duration::from_secs(1), "as long as the server asked for");
    for (status, reason) in [
        (404, Reason::NotDownloadable),
        (403, Reason::NotDownloadable),
        (500, Reason::DownloadFailed),
    ] {
        let server = Server::new(move |_| Answer::Status(status, vec![]));
        let few = Transport { retries: 2, ..transport() };
        let error = get(&server.url, None, &few).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert_eq!(server.count(), if status == 500 { 3 } else { 1 }, "{status}");
    }
    let error = get("http://127.0.0.1:1/x", None, &Transport { retries: 1, ..transport() })
        .await
        .unwrap_err();
    assert_eq!(error.reason(), Reason::DownloadFailed);
}

#[tokio::test]
async fn bounds_of_size_time_and_redirects_hold() {
    let endless = Server::new(|_| Answer::Endless);
    let small = Transport { max_bytes: 50_000, ..transport() };
    assert_eq!(get(&endless.url, None, &small).await.unwrap_err().reason(), Reason::TooLarge);
    let large = Server::file(content());
    assert_eq!(get(&large.url, None, &small).await.unwrap_err().reason(), Reason::TooLarge);
    let short = Transport {
        timeout: Duration::from_millis(300),
        stall: Duration::from_secs(9),
        ..transport()
    };
    let slow = Server::new(|_| Answer::Stall(content(), 10));
    let error = get(&slow.url, None, &short).await.unwrap_err();
    assert!(matches!(error, FetchError::Deadline { .. }), "{error}");
    let round = Server::new(|_| Answer::Status(302, vec![("location", "/again".to_owned())]));
    assert!(get(&round.url, None, &transport()).await.is_err());
    assert!(round.count() < 20);
    let file =
        Server::new(|_| Answer::Status(302, vec![("location", "file:///etc/passwd".to_owned())]));
    assert_eq!(
        get(&file.url, None, &transport()).await.unwrap_err().reason(),
        Reason::NotDownloadable
    );
    let target = Server::file(content());
    let to = target.url.clone();
    let hop = Server::new(move |_| Answer::Status(307, vec![("location", to.clone())]));
    assert_eq!(get(&hop.url, None, &transport()).await.unwrap(), content());
}

/// An https server that has this file, and the certificate of the authority that vouches for it.
async fn https(bytes: Vec<u8>) -> (String, String) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
    use tokio_rustls::rustls::{ServerConfig, crypto::aws_lc_rs};
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let ca = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![own.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        );
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/x", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4096]).await;
            let head = format!(
                "HTTP/1.1 200 x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                bytes.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), &bytes].concat()).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, ca)
}

#[tokio::test]
async fn a_private_authority_is_trusted_where_it_is_given_and_nowhere_else() {
    let (url, ca) = https(content()).await;
    let (_, stranger) = https(Vec::new()).await;
    let dir = tempfile::tempdir().unwrap();
    let trusting = |name: &str, pem: &str| {
        let file = dir.path().join(name);
        fs::write(&file, pem).unwrap();
        Transport { ca: Some(file), ..transport() }
    };
    let bundle = trusting("bundle", &format!("{stranger}{ca}"));
    assert_eq!(get(&url, None, &bundle).await.unwrap(), content());
    for other in [transport(), trusting("stranger", &stranger)] {
        let error = get(&url, None, &other).await.unwrap_err();
        assert_eq!(error.reason(), Reason::NotDownloadable, "{error}");
        assert!(error.to_string().contains("--ca-bundle or PORTOLAN_CA_BUNDLE"), "{error}");
    }
    // What is no bundle is told, and not passed over.
    for bad in
        [trusting("bad", "no certificate"), Transport { ca: Some("/x".into()), ..transport() }]
    {
        assert!(get(&url, None, &bad).await.unwrap_err().reason().is_permanent());
    }
}

/// A wrong digest, a web page or another architecture leaves the node as it was.
#[tokio::test]
async fn what_is_refused_leaves_the_node_untouched() {
    let tree = Tree::with("version = 2\n");
    let before = tree.snapshot();
    let good = archive("containerd-shim-spin", &program(1, 1000));
    let mut wrong = program(1, 1000);
    wrong[18] = if wrong[18] == 62 { 183 } else { 62 };
    for (bytes, digest, reason) in [
        (good.clone(), Some(Digest::sha256(b"no")), Reason::DigestMismatch),
        (b"<html>no</html>".to_vec(), None, Reason::ArchiveRefused),
        (archive("other", &program(1, 10)), None, Reason::BinaryNotFound),
        (archive("containerd-shim-spin", &wrong), None, Reason::WrongArchitecture),
        (archive("containerd-shim-spin", b"#!/bin/sh\n"), None, Reason::WrongArchitecture),
    ] {
        let server = Server::file(bytes);
        let outcome = portolan_shim::node::install::install(
            &tree.node(),
            &wanted("spin"),
            &from(&server.url, digest),
            &portolan_shim::node::Quiet,
        )
        .await;
        assert_eq!(outcome.report.reason, Some(reason), "{}", outcome.report.message);
        assert_eq!(tree.snapshot(), before);
    }
    let server = Server::file(good.clone());
    let source = from(&server.url, Some(Digest::sha256(&good)));
    let report = ok(portolan_shim::node::install::install(
        &tree.node(),
        &wanted("spin"),
        &source,
        &portolan_shim::node::Quiet,
    )
    .await);
    assert_eq!(report.archive_sha256, Some(Digest::sha256(&good).hex()));
    assert!(report.warnings.iter().any(|w| w.contains("plain http")), "{:?}", report.warnings);
    ok(tree.verify("spin").await);
}

/// The two stages together do what one does, and the second does not believe what was changed in between.
#[tokio::test]
async fn the_stage_without_privilege_hands_over() {
    let tree = Tree::with("version = 2\n");
    let bytes = archive("bin/containerd-shim-spin", &program(1, 1000));
    let server = Server::file(bytes.clone());
    let assets = tempfile::tempdir().unwrap();
    let location =
        Location::new(&server.url, Some(Digest::sha256(&bytes)), Policy::default()).unwrap();
    ok(portolan_shim::node::install::fetch_stage(
        &wanted("spin"),
        &location,
        &transport(),
        assets.path(),
    )
    .await);
    let source = portolan_shim::node::install::Source::Assets(assets.path().to_owned());
    let report = ok(portolan_shim::node::install::install(
        &tree.node(),
        &wanted("spin"),
        &source,
        &portolan_shim::node::Quiet,
    )
    .await);
    assert_eq!(report.archive_sha256, Some(Digest::sha256(&bytes).hex()));
    fs::write(assets.path().join("containerd-shim-spin"), program(2, 1000)).unwrap();
    let outcome = portolan_shim::node::install::install(
        &tree.node(),
        &wanted("spin"),
        &source,
        &portolan_shim::node::Quiet,
    )
    .await;
    assert_eq!(outcome.report.reason, Some(Reason::DigestMismatch));
}

/// What the stage without privilege leaves is read by root: a link, a pipe or a note that is not there must not
/// lead it anywhere, nor keep it.
#[tokio::test]
async fn what_was_left_is_a_file_with_its_note() {
    let tree = Tree::with("version = 2\n");
    let before = tree.snapshot();
    let spoil: [fn(&Path); 5] = [
        |dir| std::fs::remove_file(dir.join(".portolan-fetched.json")).unwrap(),
        |dir| std::fs::write(dir.join(".portolan-fetched.json"), "{}").unwrap(),
        |dir| {
            let program = dir.join("containerd-shim-spin");
            std::fs::rename(&program, dir.join("x")).unwrap();
            std::os::unix::fs::symlink(dir.join("x"), program).unwrap();
        },
        |dir| {
            let program = dir.join("containerd-shim-spin");
            std::fs::remove_file(&program).unwrap();
            let mode = rustix::fs::Mode::RWXU;
            let pipe = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &program, pipe, mode, 0).unwrap();
        },
        |dir| {
            std::fs::remove_file(dir.join(".portolan-fetched.json")).unwrap();
            std::os::unix::fs::symlink("/dev/zero", dir.join(".portolan-fetched.json")).unwrap();
        },
    ];
    for (index, spoil) in spoil.iter().enumerate() {
        let assets = Tree::assets("spin", &program(1, 1000));
        spoil(assets.path());
        let source = Source::Assets(assets.path().to_owned());
        let outcome = install(&tree.node(), &wanted("spin"), &source, &Quiet).await;
        let message = &outcome.report.message;
        assert_eq!(outcome.report.reason, Some(Reason::BinaryNotFound), "{index} {message}");
        assert_eq!(tree.snapshot(), before, "{index}");
    }
}
