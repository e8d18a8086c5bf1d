//! A registry or a network that fails: error statuses, silence, cuts, lies about ranges,
//! redirects. Each ends in bounded time with a bounded number of requests.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_registry::ErrorClass::{self, BadInput, Denied, NotFound, Transport};
use portolan_registry::client::{Credential, CredentialStore, Secret};
use portolan_registry::copy::{CopyOptions, copy};
use portolan_registry::progress::Silent;

use support::fault::{Answer, Fault, FaultServer, REPOSITORY};
use support::image::Image;
use support::setup::{Harbour, RETRIES, SETTINGS, chain, client_with, in_layout, plain_copy, tls};

fn image() -> Image {
    Image::multi(&["linux/amd64", "linux/arm64"], 1)
}

/// A server whose largest layer is bent by these faults, with the path of that layer.
fn bent_layer(image: &Image, faults: Vec<Fault>) -> (FaultServer, String) {
    let server = FaultServer::holding(image);
    let path = format!("/blobs/{}", image.largest_blob().0);
    server.script("GET", &path, faults);
    (server, path)
}

/// The status on every request for the tag.
async fn refused_status(status: u16, class: ErrorClass, requests: usize, parts: &[&str]) {
    let server = FaultServer::holding(&image());
    server.always("GET", "/manifests/v1", Fault::status(status));
    let refusal = Harbour::new().await.refused(&server, 20).await;
    let status = status.to_string();
    refusal.expect(class, &[&[status.as_str(), REPOSITORY, "v1"], parts].concat());
    assert_eq!(server.count("GET", "/manifests/v1"), requests);
}

#[tokio::test]
async fn status_401() {
    let server = FaultServer::holding(&image());
    server.demand("Basic nobody-knows");
    let refusal = Harbour::new().await.refused(&server, 20).await;
    refusal.expect(Denied, &["401", "portolan registry login", &server.host()]);
    assert!(server.seen().len() <= 2, "{:?}", server.seen());
}

#[tokio::test]
async fn status_403() {
    refused_status(403, Denied, 1, &["no right", "login"]).await;
}

#[tokio::test]
async fn status_404() {
    refused_status(404, NotFound, 1, &["check the name and the tag"]).await;
}

#[tokio::test]
async fn status_429_forever() {
    refused_status(429, Transport, RETRIES + 1, &["limits how often"]).await;
}

#[tokio::test]
async fn status_500_forever() {
    refused_status(500, Transport, RETRIES + 1, &["try again later"]).await;
}

#[tokio::test]
async fn status_503_forever() {
    refused_status(503, Transport, RETRIES + 1, &["try again later"]).await;
}

#[tokio::test]
async fn an_error_status_once_is_survived() {
    let image = image();
    for status in [429, 500, 503] {
        let (server, path) = bent_layer(&image, vec![Fault::status(status)]);
        server.script("GET", "/manifests/v1", vec![Fault::status(status)]);
        Harbour::new().await.taken(&server, &image, 20).await;
        assert_eq!(server.count("GET", "/manifests/v1"), 2);
        assert_eq!(server.count("GET", &path), 2);
    }
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let image = image();
    let server = FaultServer::holding(&image);
    let wait = Answer::error(429, "TOOMANYREQUESTS", "slowly").header("retry-after", 1);
    server.script("GET", "/manifests/v1", vec![Fault::Answer(wait)]);
    let harbour = Harbour::new().await;
    let start = Instant::now();
    harbour.taken(&server, &image, 20).await;
    assert!(start.elapsed() >= Duration::from_secs(1), "came back after {:?}", start.elapsed());
    assert_eq!(server.count("GET", "/manifests/v1"), 2);
}

#[tokio::test]
async fn a_registry_that_never_answers() {
    let server = FaultServer::holding(&image());
    server.always("GET", "/manifests/v1", Fault::Hang);
    let refusal = Harbour::new().await.refused(&server, 15).await;
    refusal.expect(Transport, &["v1", &server.host(), "timeout"]);
    assert!(server.count("GET", "/manifests/v1") <= RETRIES + 1);
}

#[tokio::test]
async fn a_manifest_that_stops_in_the_middle() {
    let server = FaultServer::holding(&image());
    server.always("GET", "/manifests/v1", Fault::HangAfter(100));
    let refusal = Harbour::new().await.refused(&server, 15).await;
    refusal.expect(Transport, &["v1", &server.host()]);
    assert!(server.count("GET", "/manifests/v1") <= RETRIES + 1);
}

#[tokio::test]
async fn a_layer_that_never_begins() {
    let image = image();
    let server = FaultServer::holding(&image);
    let path = format!("/blobs/{}", image.largest_blob().0);
    server.always("GET", &path, Fault::Hang);
    let refusal = Harbour::new().await.refused(&server, 15).await;
    refusal.expect(Transport, &[&image.largest_blob().0.to_string(), &server.host()]);
    assert!(server.count("GET", &path) <= RETRIES + 1);
}

#[tokio::test]
async fn a_layer_that_stops_in_the_middle_is_taken_up_again() {
    let image = image();
    let (server, path) = bent_layer(&image, vec![Fault::HangAfter(10_000)]);
    Harbour::new().await.taken(&server, &image, 15).await;
    assert_eq!(server.count("GET", &path), 2);
}

#[tokio::test]
async fn a_layer_that_always_stops_in_the_middle() {
    let image = image();
    let server = FaultServer::holding(&image);
    let path = format!("/blobs/{}", image.largest_blob().0);
    // The first attempt brings bytes, later ones nothing: no progress, no endless patience.
    server.script("GET", &path, vec![Fault::HangAfter(10_000)]);
    server.always("GET", &path, Fault::HangAfter(0));
    let refusal = Harbour::new().await.refused(&server, 25).await;
    refusal.expect(Transport, &["no byte moved", "stall_timeout"]);
    assert!(server.count("GET", &path) <= 2 * (RETRIES + 1), "{}", server.count("GET", &path));
}

#[tokio::test]
async fn a_cut_layer_is_taken_up_where_it_ended() {
    let image = image();
    let (server, path) = bent_layer(&image, vec![Fault::Cut(10_000)]);
    Harbour::new().await.taken(&server, &image, 15).await;
    let asked: Vec<_> = server.seen().into_iter().filter(|s| s.path.ends_with(&path)).collect();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].range, None);
    assert_eq!(asked[1].range.as_deref(), Some("bytes=10000-"));
}

#[tokio::test]
async fn a_cut_layer_whose_server_ignores_the_range() {
    let image = image();
    let (server, path) = bent_layer(&image, vec![Fault::Cut(10_000), Fault::IgnoreRange]);
    Harbour::new().await.taken(&server, &image, 15).await;
    assert_eq!(server.count("GET", &path), 2);
}

#[tokio::test]
async fn a_cut_layer_whose_server_answers_another_range() {
    let image = image();
    let server = FaultServer::holding(&image);
    let path = format!("/blobs/{}", image.largest_blob().0);
    server.script("GET", &path, vec![Fault::Cut(10_000)]);
    server.always("GET", &path, Fault::WrongContentRange);
    let refusal = Harbour::new().await.refused(&server, 15).await;
    refusal.expect(BadInput, &["Content-Range", "bytes 10001-29999/30000", "not the range"]);
    assert_eq!(server.count("GET", &path), 2);
}

#[tokio::test]
async fn a_layer_that_is_always_cut_before_its_first_byte() {
    let image = image();
    let server = FaultServer::holding(&image);
    let path = format!("/blobs/{}", image.largest_blob().0);
    server.always("GET", &path, Fault::Cut(0));
    let refusal = Harbour::new().await.refused(&server, 20).await;
    refusal.expect(Transport, &[&image.largest_blob().0.to_string(), "connection"]);
    assert!(server.count("GET", &path) <= 2 * (RETRIES + 1), "{}", server.count("GET", &path));
}

#[tokio::test]
async fn a_slow_trickle_is_slow_but_fine() {
    let image = image();
    let trickle = Fault::Trickle { bytes: 2_000, pause: Duration::from_millis(150) };
    let (server, path) = bent_layer(&image, vec![trickle]);
    let harbour = Harbour::new().await;
    let start = Instant::now();
    harbour.taken(&server, &image, 20).await;
    assert!(start.elapsed() > Duration::from_secs(2), "the whole takes longer than a stall may");
    assert_eq!(server.count("GET", &path), 1);
}

#[tokio::test]
async fn something_that_is_not_http() {
    let server = FaultServer::holding(&image());
    server.always("GET", "/manifests/v1", Fault::Raw(b"220 mail.example ESMTP\r\n".to_vec()));
    let refusal = Harbour::new().await.refused(&server, 20).await;
    refusal.expect(Transport, &["v1", &server.host()]);
    assert!(server.count("GET", "/manifests/v1") <= RETRIES + 1);
}

#[tokio::test]
async fn headers_without_end() {
    let server = FaultServer::holding(&image());
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for n in 0..200_000 {
        head.extend_from_slice(format!("x-{n}: {n}\r\n").as_bytes());
    }
    server.always("GET", "/manifests/v1", Fault::Raw(head));
    let refusal = Harbour::new().await.refused(&server, 20).await;
    refusal.expect(Transport, &["v1", &server.host()]);
    assert!(server.count("GET", "/manifests/v1") <= RETRIES + 1);
}

#[tokio::test]
async fn nobody_listens() {
    let harbour = Harbour::new().await;
    let server = FaultServer::holding(&image());
    let from = server.reference(":v1");
    let host = server.host();
    drop(server);
    std::thread::sleep(Duration::from_millis(300));
    let error = plain_copy(&from, &in_layout(&harbour.dir, "v1")).await.unwrap_err();
    assert_eq!(error.class(), Some(Transport));
    assert!(chain(&error).contains(&host), "{}", chain(&error));
}

#[tokio::test]
async fn a_redirect_to_plain_http() {
    let image = image();
    let (server_tls, ca) = tls();
    let secure = FaultServer::start("127.0.0.1", Some(server_tls));
    secure.registry().repositories.entry(REPOSITORY.to_owned()).or_default().hold(&image, "v1");
    let open = FaultServer::holding(&image);
    let digest = image.largest_blob().0;
    let path = format!("/v2/{REPOSITORY}/blobs/{digest}");
    secure.always("GET", &path, Fault::redirect(&format!("http://{}{path}", open.host())));
    let settings =
        format!("{SETTINGS}[host.\"{}\"]\nca = \"{}\"\n", secure.host(), ca.path().display());
    let client = client_with(&settings, CredentialStore::anonymous());
    let options = CopyOptions::default();
    let refusal = Harbour::new().await.refused_with(&secure, 20, &client, &options).await;
    refusal.expect(Transport, &["plain http", &secure.host(), &open.host(), &digest.to_string()]);
    assert_eq!(secure.count("GET", &path), 1);
    assert!(open.seen().is_empty(), "nothing may be asked there: {:?}", open.seen());
}

/// Storage behind a registry is elsewhere and must not learn the registry's credentials.
#[tokio::test]
async fn a_redirect_to_another_host_carries_no_credentials() {
    let image = image();
    let server = FaultServer::holding(&image);
    let storage = FaultServer::start("127.0.0.2", None);
    storage.registry().repositories.entry(REPOSITORY.to_owned()).or_default().hold(&image, "v1");
    let path = format!("/v2/{REPOSITORY}/blobs/{}", image.largest_blob().0);
    server.always("GET", &path, Fault::redirect(&format!("http://{}{path}", storage.host())));
    server.demand("Basic bWU6c2VjcmV0"); // me:secret
    let login = Credential::Basic { username: "me".to_owned(), password: Secret::new("secret") };
    let credentials = CredentialStore::anonymous().with(server.host().parse().unwrap(), login);
    let client = client_with(SETTINGS, credentials);
    let harbour = Harbour::new().await;
    let (from, to) = (server.reference(":v1"), in_layout(&harbour.dir, "v1"));
    let report = copy(&from, &to, &client, &CopyOptions::default(), Arc::new(Silent)).await;
    report.unwrap_or_else(|error| panic!("{}", chain(&error)));
    support::layouts::assert_holds(&harbour.dir, &image);
    let there = storage.seen();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].authorization, None, "the registry's password went to the storage");
    assert!(server.seen().iter().any(|s| s.authorization.is_some()), "the login was used");
}

#[tokio::test]
async fn redirects_in_a_circle() {
    let image = image();
    let server = FaultServer::holding(&image);
    let path = format!("/v2/{REPOSITORY}/blobs/{}", image.largest_blob().0);
    server.always("GET", &path, Fault::redirect(&path));
    let refusal = Harbour::new().await.refused(&server, 20).await;
    refusal.expect(Transport, &["redirects"]);
    assert!(server.count("GET", &path) <= 20, "{}", server.count("GET", &path));
}

/// What is pushed to a registry that fails in the end: the tag there has not moved.
#[tokio::test]
async fn a_push_that_fails_at_its_last_step_moves_no_tag() {
    let (old, new) = (Image::multi(&["linux/amd64"], 7), image());
    let source = FaultServer::holding(&new);
    let server = FaultServer::holding(&old);
    server.always("PUT", "/manifests/v1", Fault::status(500));
    let error = plain_copy(&source.reference(":v1"), &server.reference(":v1")).await.unwrap_err();
    assert_eq!(error.class(), Some(Transport), "{}", chain(&error));
    assert_eq!(server.count("PUT", "/manifests/v1"), RETRIES + 1);
    assert_eq!(server.registry().repositories[REPOSITORY].tags["v1"], old.top.digest);
}

#[tokio::test]
async fn an_upload_that_fails_once_is_repeated() {
    let new = image();
    let source = FaultServer::holding(&new);
    let server = FaultServer::start("127.0.0.1", None);
    server.script("POST", "/blobs/uploads/", vec![Fault::status(503), Fault::Cut(0)]);
    let child = new.as_index().manifests[0].digest;
    server.script("PUT", format!("/manifests/{child}"), vec![Fault::status(503)]);
    let report = plain_copy(&source.reference(":v1"), &server.reference(":v1")).await;
    report.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let registry = server.registry();
    let repository = &registry.repositories[REPOSITORY];
    assert_eq!(repository.tags["v1"], new.top.digest);
    for (digest, bytes) in &new.blobs {
        assert_eq!(repository.blobs[digest].as_slice(), bytes);
    }
}

/// Images of several platforms are pushed side by side, and share layers.
#[tokio::test]
async fn what_two_pushes_share_is_sent_once() {
    let new = image();
    let source = FaultServer::holding(&new);
    let server = FaultServer::start("127.0.0.1", None);
    // While the first tries again, the second would find nothing there.
    server.script("POST", "/blobs/uploads/", vec![Fault::status(503)]);
    let client = client_with(SETTINGS, CredentialStore::anonymous());
    let (from, one, two) =
        (source.reference(":v1"), server.reference(":v1"), server.reference(":v2"));
    let options = CopyOptions::default();
    let push = |to| copy(&from, to, &client, &options, Arc::new(Silent));
    let (first, second) = tokio::join!(push(&one), push(&two));
    for pushed in [first, second] {
        pushed.unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    assert_eq!(server.count("POST", "/blobs/uploads/"), new.blobs.len() + 1);
    let registry = server.registry();
    let tags = &registry.repositories[REPOSITORY].tags;
    assert_eq!((tags["v1"], tags["v2"]), (new.top.digest, new.top.digest));
}

#[tokio::test]
async fn an_upload_that_is_forbidden() {
    let new = image();
    let source = FaultServer::holding(&new);
    let server = FaultServer::start("127.0.0.1", None);
    server.always("POST", "/blobs/uploads/", Fault::status(403));
    let error = plain_copy(&source.reference(":v1"), &server.reference(":v1")).await.unwrap_err();
    assert_eq!(error.class(), Some(Denied), "{}", chain(&error));
    assert!(chain(&error).contains("403"), "{}", chain(&error));
    assert!(server.count("PUT", "/manifests/v1") == 0);
}

/// A source that breaks in the middle of a registry-to-registry copy: the bytes that came are
/// not completed into a blob.
#[tokio::test]
async fn a_broken_source_gives_no_blob_at_the_destination() {
    let new = image();
    let source = FaultServer::holding(&new);
    let (layer, _) = new.largest_blob();
    source.always("GET", format!("/blobs/{layer}"), Fault::FlipByte(20_000));
    let server = FaultServer::start("127.0.0.1", None);
    let error = plain_copy(&source.reference(":v1"), &server.reference(":v1")).await.unwrap_err();
    assert_eq!(error.class(), Some(BadInput), "{}", chain(&error));
    assert!(chain(&error).contains("has digest"), "{}", chain(&error));
    let registry = server.registry();
    let repository = &registry.repositories[REPOSITORY];
    assert!(!repository.blobs.contains_key(&layer));
    assert!(repository.tags.is_empty());
}
