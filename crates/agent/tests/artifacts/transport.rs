//! Registries that are down, slow, busy or cut us off.

use std::time::Duration;

use portolan_agent::config::Span;
use portolan_agent::reason::Reason;

use crate::harness::{Yard, check, layer_of, resolved, resolved_at, sized, small};
use crate::support::fault::{Fault, FaultServer};

#[tokio::test]
async fn a_registry_that_is_down_fails_the_start_and_not_what_is_cached() {
    let (cached, wanted) = (small(40), small(41));
    let yard = Yard::new();
    let berth = yard.open();
    let server = FaultServer::holding(&cached);
    berth.acquire("a", &resolved(&server, &cached)).await;
    // Nobody listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = resolved_at(&closed.to_string(), wanted.top.digest);
    berth.refused(&gone, Reason::ImagePullFailed, &["cannot be reached"]).await;
    let counted = "portolan_agent_image_pull_errors_total{reason=\"transport\"}";
    assert_eq!(berth.metric(counted), 1.0);
    let here = resolved_at(&closed.to_string(), cached.top.digest);
    assert!(berth.acquire("b", &here).await.cached);
}

#[tokio::test]
async fn a_registry_that_comes_back_is_asked_again() {
    let image = small(42);
    let server = FaultServer::holding(&image);
    let layer = layer_of(&image);
    // More often than one request is repeated by itself: the pull begins again.
    server.script("GET", format!("/blobs/{layer}"), vec![Fault::status(503); 3]);
    let berth = Yard::new().open();
    berth.acquire("a", &resolved(&server, &image)).await;
    assert_eq!(server.count("GET", &format!("/blobs/{layer}")), 4);
    // What had arrived was not fetched again.
    let others = image.blobs.keys().filter(|blob| **blob != layer);
    for other in others {
        assert_eq!(server.count("GET", &format!("/blobs/{other}")), 1);
    }
}

#[tokio::test]
async fn a_storm_of_429_ends_in_a_failed_pull() {
    let image = small(43);
    let server = FaultServer::holding(&image);
    let manifest = format!("/manifests/{}", image.top.digest);
    server.always("GET", manifest.clone(), Fault::status(429));
    let berth = Yard::new().open();
    berth.refused(&resolved(&server, &image), Reason::ImagePullFailed, &["429"]).await;
    let asked = server.count("GET", &manifest);
    assert!((2..=8).contains(&asked), "{asked}");
}

#[tokio::test]
async fn a_layer_that_is_cut_in_the_middle_goes_on_where_it_ended() {
    let image = sized(44, 60_000);
    let server = FaultServer::holding(&image);
    let layer = layer_of(&image);
    server.script("GET", format!("/blobs/{layer}"), vec![Fault::Cut(20_000)]);
    let yard = Yard::new();
    let berth = yard.open();
    berth.acquire("a", &resolved(&server, &image)).await;
    let ranges = server.seen().iter().filter(|seen| seen.range.is_some()).count();
    assert_eq!(ranges, 1);
    berth.settled().await;
    assert_eq!(check(yard.root()).len(), 1);
    assert!(berth.blob_exists(&layer));
}

#[tokio::test]
async fn a_registry_that_cuts_every_time_fails_the_start() {
    let image = sized(45, 60_000);
    let server = FaultServer::holding(&image);
    let layer = layer_of(&image);
    server.always("GET", format!("/blobs/{layer}"), Fault::Cut(0));
    let berth = Yard::new().open();
    berth.refused(&resolved(&server, &image), Reason::ImagePullFailed, &["layer 0"]).await;
    assert!(!berth.blob_exists(&layer));
}

#[tokio::test]
async fn a_registry_that_hangs_is_given_up() {
    let image = small(46);
    let server = FaultServer::holding(&image);
    let layer = layer_of(&image);
    server.always("GET", format!("/blobs/{layer}"), Fault::HangAfter(3000));
    let berth = Yard::new().open();
    let parts = ["no byte moved"];
    let took = berth.refused(&resolved(&server, &image), Reason::ImagePullFailed, &parts).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[tokio::test]
async fn a_pull_that_is_too_slow_as_a_whole_is_ended() {
    let image = sized(47, 60_000);
    let server = FaultServer::holding(&image);
    let layer = layer_of(&image);
    // Never silent for long, and never done.
    let slow = Fault::Trickle { bytes: 10, pause: Duration::from_millis(50) };
    server.always("GET", format!("/blobs/{layer}"), slow);
    let mut yard = Yard::new();
    yard.config.pull.timeout = Span(Duration::from_millis(1200));
    let berth = yard.open();
    let took =
        berth.refused(&resolved(&server, &image), Reason::ImagePullFailed, &["[pull]"]).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    let counted = "portolan_agent_image_pull_errors_total{reason=\"timeout\"}";
    assert_eq!(berth.metric(counted), 1.0);
}

#[tokio::test]
async fn what_the_registry_does_not_have_or_give_is_said_so_and_not_retried() {
    let image = small(48);
    let server = FaultServer::start("127.0.0.1", None);
    let berth = Yard::new().open();
    let wanted = resolved(&server, &image);
    berth.refused(&wanted, Reason::ImagePullFailed, &["404"]).await;
    let manifest = format!("/manifests/{}", image.top.digest);
    assert_eq!(server.count("GET", &manifest), 1);

    let closed = FaultServer::holding(&image);
    closed.demand("Basic c2VjcmV0OnNlY3JldA==");
    berth.refused(&resolved(&closed, &image), Reason::ImagePullFailed, &["401"]).await;
    let counted = "portolan_agent_image_pull_errors_total{reason=\"denied\"}";
    assert_eq!(berth.metric(counted), 1.0);
}

/// Two starts of one digest from two repositories: that one is closed does not stop the other.
#[tokio::test]
async fn a_repository_that_refuses_does_not_fail_another_s_start() {
    let image = small(49);
    let (closed, open) = (FaultServer::start("127.0.0.1", None), FaultServer::holding(&image));
    let slow = Fault::Answer(crate::support::fault::Answer::error(
        404,
        "MANIFEST_UNKNOWN",
        "manifest unknown",
    ));
    closed.always("GET", format!("/manifests/{}", image.top.digest), slow);
    let berth = Yard::new().open();
    let (closed, open) = (resolved(&closed, &image), resolved(&open, &image));
    let (first, second) =
        tokio::join!(berth.try_acquire("a", &closed), berth.try_acquire("b", &open));
    assert_eq!(first.unwrap_err().reason(), Reason::ImagePullFailed);
    second.unwrap();
}

/// An operator logs in, or changes a password, while the agent runs.
#[tokio::test]
async fn credentials_that_change_are_used_without_a_restart() {
    let image = small(52);
    let server = FaultServer::holding(&image);
    // user:correct-horse
    server.demand("Basic dXNlcjpjb3JyZWN0LWhvcnNl");
    let yard = Yard::new();
    let file = yard.config.credentials.clone().unwrap();
    let login = |auth: &str| {
        let auths = serde_json::json!({"auths": {server.host(): {"auth": auth}}});
        std::fs::write(&file, auths.to_string()).unwrap();
    };
    let berth = yard.open();
    let wanted = resolved(&server, &image);
    berth.refused(&wanted, Reason::ImagePullFailed, &["401"]).await;
    // user:wrong
    login("dXNlcjp3cm9uZw==");
    berth.refused(&wanted, Reason::ImagePullFailed, &["401"]).await;
    login("dXNlcjpjb3JyZWN0LWhvcnNl");
    berth.acquire("a", &wanted).await;
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn logs_name_image_and_instance_and_never_a_credential() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let (open, closed) = (small(50), small(51));
    let server = FaultServer::holding(&open);
    // user:correct-horse
    server.demand("Basic dXNlcjpjb3JyZWN0LWhvcnNl");
    let yard = Yard::new();
    let auth = serde_json::json!({"auths": {server.host(): {"auth": "dXNlcjpjb3JyZWN0LWhvcnNl"}}});
    let credentials = yard.config.credentials.as_ref().unwrap();
    std::fs::write(credentials, auth.to_string()).unwrap();
    let berth = yard.open();
    berth.acquire("web-1", &resolved(&server, &open)).await;
    berth.refused(&resolved(&server, &closed), Reason::ImagePullFailed, &["404"]).await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_default();
    for (part, digest, instance) in
        [("root disk is there", &open, "web-1"), ("no root disk", &closed, "refused")]
    {
        let line = line(part);
        assert!(line.contains(&digest.top.digest.to_string()), "{part}: {line}");
        assert!(line.contains(&format!("instance_id={instance}")), "{part}: {line}");
    }
    for secret in ["correct-horse", "dXNlcjpjb3JyZWN0LWhvcnNl"] {
        assert!(!text.contains(secret), "{}", line(secret));
    }
}
