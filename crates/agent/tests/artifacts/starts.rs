//! Starts that work: once, cached, many at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_agent::artifacts::Purpose;
use portolan_rootdisk::meta::rootdisk_key;
use tokio_util::sync::CancellationToken;

use crate::harness::{Yard, chain, check, id, resolved, small};
use crate::support::fault::{Fault, FaultServer};

#[tokio::test]
async fn an_image_becomes_a_pinned_disk_and_the_second_start_finds_it() {
    let image = small(1);
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    let berth = yard.open();
    let wanted = resolved(&server, &image);

    let first = berth.acquire("a", &wanted).await;
    assert!(!first.cached);
    assert_eq!(first.key, rootdisk_key(&image.top.digest, "1"));
    assert_eq!(first.config.entrypoint, ["/hello"]);
    let name = format!("rootdisks/sha256/{}.ext4", image.top.digest.hex());
    assert_eq!(first.disk, yard.root().join(name));
    assert_eq!(std::fs::metadata(&first.disk).unwrap().len(), first.metadata.size_bytes);
    let disks = check(yard.root());
    assert_eq!(disks[&image.top.digest], first.metadata);
    assert!(image.blobs.keys().all(|blob| berth.blob_exists(blob)), "layers and config are kept");
    berth.settled().await;

    // From here on nobody needs the registry.
    let asked = server.seen().len();
    let second = berth.acquire("b", &wanted).await;
    assert!(second.cached);
    assert_eq!((second.disk, second.metadata), (first.disk, first.metadata));
    assert_eq!(server.seen().len(), asked);
    let report = berth.artifacts.cache();
    assert_eq!((report.rootdisks.len(), report.rootdisks[0].pins), (1, 2));
    assert_eq!(berth.metric("portolan_agent_rootdisk_cache_requests_total{result=\"hit\"}"), 1.0);
    assert_eq!(berth.metric("portolan_agent_rootdisk_cache_requests_total{result=\"miss\"}"), 1.0);
    let layers: usize = image.blobs.values().map(Vec::len).sum();
    let manifest = image.manifests[&image.top.digest].1.len();
    let came = (layers + manifest) as f64;
    assert_eq!(berth.metric("portolan_agent_image_downloaded_bytes_total"), came);

    // The same after the process: pins, times and disks are there.
    let used = report.rootdisks[0].last_used_at;
    drop(berth);
    let again = yard.try_open().unwrap();
    let pinned = again.artifacts.pin_of(&id("a")).unwrap();
    assert_eq!(pinned.resolved_digest, image.top.digest);
    assert_eq!(again.artifacts.cache().rootdisks[0].last_used_at, used);
    assert!(again.acquire("c", &wanted).await.cached);
    again.artifacts.release(&id("a"));
    again.artifacts.release(&id("a"));
    assert_eq!(again.artifacts.cache().rootdisks[0].pins, 2);
}

#[tokio::test]
async fn a_cached_start_takes_less_than_five_milliseconds() {
    let image = small(2);
    let server = FaultServer::holding(&image);
    let berth = Yard::new().open();
    let wanted = resolved(&server, &image);
    berth.acquire("first", &wanted).await;
    let mut times: Vec<Duration> = Vec::new();
    for n in 0..200 {
        let start = Instant::now();
        assert!(berth.acquire(&format!("i{n}"), &wanted).await.cached);
        times.push(start.elapsed());
    }
    times.sort_unstable();
    eprintln!("cached start: median {:?}, slowest {:?}", times[100], times[199]);
    // The median, since a busy machine may put any one of them to sleep.
    assert!(times[100] < Duration::from_millis(5), "{:?}", times[100]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_starts_at_once_fetch_and_build_once() {
    let image = small(3);
    let server = FaultServer::holding(&image);
    let berth = Arc::new(Yard::new().open());
    let wanted = resolved(&server, &image);
    let starts: Vec<_> = (0..200)
        .map(|n| {
            let (berth, wanted) = (Arc::clone(&berth), wanted.clone());
            tokio::spawn(async move { berth.acquire(&format!("i{n}"), &wanted).await.key })
        })
        .collect();
    for start in starts {
        assert_eq!(start.await.unwrap(), rootdisk_key(&image.top.digest, "1"));
    }
    for blob in image.blobs.keys() {
        assert_eq!(server.count("GET", &format!("/blobs/{blob}")), 1);
    }
    assert_eq!(server.count("GET", &format!("/manifests/{}", image.top.digest)), 1);
    assert_eq!(berth.artifacts.cache().rootdisks[0].pins, 200);
    let built = "portolan_agent_rootdisk_build_duration_seconds_count";
    assert_eq!(berth.metric(built), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_images_that_share_a_layer_fetch_it_once() {
    use crate::harness::{Twist, image_of, tar};
    let base = tar(&[("base", &crate::support::image::bytes(40_000, 8))]);
    let images: Vec<_> = (0..2)
        .map(|n| {
            let top = tar(&[("top", format!("{n}").as_bytes())]);
            image_of(&[base.clone(), top], &Twist::default())
        })
        .collect();
    let server = FaultServer::holding(&images[0]);
    server.registry().repositories.values_mut().next().unwrap().hold(&images[1], "v2");
    let shared = crate::support::image::gzip(&base);
    let shared = portolan_core::Digest::sha256(&shared);
    // Slow enough that the second build comes while the first is fetching.
    let slow = Fault::Trickle { bytes: 4096, pause: Duration::from_millis(20) };
    server.always("GET", format!("/blobs/{shared}"), slow);
    let berth = Arc::new(Yard::new().open());
    let starts: Vec<_> = images
        .iter()
        .enumerate()
        .map(|(n, image)| {
            let (berth, wanted) = (Arc::clone(&berth), resolved(&server, image));
            tokio::spawn(async move { berth.acquire(&format!("i{n}"), &wanted).await.cached })
        })
        .collect();
    for start in starts {
        assert!(!start.await.unwrap());
    }
    assert_eq!(server.count("GET", &format!("/blobs/{shared}")), 1);
}

/// Everybody who waits for a disk is told how far it is, however late he came.
#[tokio::test]
async fn whoever_waits_can_see_how_far_it_is() {
    let image = small(4);
    let server = FaultServer::holding(&image);
    let layer = crate::harness::layer_of(&image);
    server.always("GET", format!("/blobs/{layer}"), Fault::HangAfter(9000));
    let berth = Yard::new().open();
    let digest = image.top.digest;
    let layers = image.manifest(&digest).layers;
    let total: u64 = layers.iter().map(|layer| layer.size).sum();
    assert_eq!(berth.artifacts.progress(&digest), None, "nobody is at it");
    let wanted = resolved(&server, &image);
    let (first, cancel) = (id("a"), CancellationToken::new());
    let start = berth.artifacts.acquire(&first, &wanted, &cancel);
    let looks = async {
        loop {
            let now = berth.artifacts.progress(&digest);
            if let Some(now) = now {
                assert_eq!(now.bytes_total, total);
                assert!(now.bytes_done < total, "{now:?}");
                if now.bytes_done >= 9000 {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(start, looks);
    assert!(outcome.unwrap_err().is_cancelled());
    while berth.artifacts.progress(&digest).is_some() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_prefetched_disk_is_there_and_pinned_by_nobody() {
    let image = small(5);
    let server = FaultServer::holding(&image);
    let berth = Yard::new().open();
    let cancel = CancellationToken::new();
    let wanted = resolved(&server, &image);
    assert!(!berth.artifacts.prefetch(&wanted, Purpose::Request, &cancel).await.unwrap().cached);
    assert_eq!(berth.artifacts.cache().rootdisks[0].pins, 0);
    assert!(berth.artifacts.prefetch(&wanted, Purpose::Request, &cancel).await.unwrap().cached);
    assert!(berth.acquire("a", &wanted).await.cached);
}

/// An instance that is deleted while its disk is being built.
#[tokio::test]
async fn a_start_that_is_cancelled_in_the_middle_leaves_nothing() {
    let image = small(6);
    let server = FaultServer::holding(&image);
    let layer = crate::harness::layer_of(&image);
    server.always("GET", format!("/blobs/{layer}"), Fault::HangAfter(9000));
    let yard = Yard::new();
    let berth = yard.open();
    let wanted = resolved(&server, &image);
    let cancel = CancellationToken::new();
    let instance = id("gone");
    let start = berth.artifacts.acquire(&instance, &wanted, &cancel);
    let deleted = async {
        while server.count("GET", &format!("/blobs/{layer}")) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(berth.artifacts.pin_of(&instance).is_some(), "pinned before it is there");
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(start, deleted);
    assert!(outcome.unwrap_err().is_cancelled());
    assert_eq!(berth.artifacts.pin_of(&instance), None);
    berth.settled().await;
    assert!(check(yard.root()).is_empty());
    assert!(!berth.blob_exists(&layer));
}

#[tokio::test]
async fn one_of_two_may_leave_and_the_other_gets_its_disk() {
    let image = small(7);
    let server = FaultServer::holding(&image);
    let layer = crate::harness::layer_of(&image);
    let slow = Fault::Trickle { bytes: 2000, pause: Duration::from_millis(30) };
    server.always("GET", format!("/blobs/{layer}"), slow);
    let berth = Yard::new().open();
    let wanted = resolved(&server, &image);
    let cancel = CancellationToken::new();
    let (leaver, stayer) = (id("leaves"), id("stays"));
    let leaves = berth.artifacts.acquire(&leaver, &wanted, &cancel);
    let never = CancellationToken::new();
    let stays = berth.artifacts.acquire(&stayer, &wanted, &never);
    let later = async {
        while server.count("GET", &format!("/blobs/{layer}")) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        cancel.cancel();
    };
    let (left, stayed, ()) = tokio::join!(leaves, stays, later);
    assert!(left.unwrap_err().is_cancelled());
    stayed.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert_eq!(server.count("GET", &format!("/blobs/{layer}")), 1);
    assert_eq!(berth.artifacts.pin_of(&leaver), None);
    assert!(berth.artifacts.pin_of(&stayer).is_some());
}

/// A pin that was given back while its disk was being built does not come back.
#[tokio::test]
async fn a_release_during_the_build_wins() {
    let image = small(8);
    let server = FaultServer::holding(&image);
    let layer = crate::harness::layer_of(&image);
    let slow = Fault::Trickle { bytes: 2000, pause: Duration::from_millis(20) };
    server.always("GET", format!("/blobs/{layer}"), slow);
    let berth = Yard::new().open();
    let wanted = resolved(&server, &image);
    let start = berth.try_acquire("a", &wanted);
    let release = async {
        while server.count("GET", &format!("/blobs/{layer}")) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        berth.artifacts.release(&id("a"));
    };
    let (outcome, ()) = tokio::join!(start, release);
    assert!(outcome.unwrap_err().is_cancelled());
    assert_eq!(berth.artifacts.pin_of(&id("a")), None);
}

/// An instance that gets another image keeps the old disk until the new one is there.
#[tokio::test]
async fn another_image_replaces_the_pin_only_when_it_is_there() {
    let (old, new, broken) = (small(9), small(10), small(11));
    let server = FaultServer::holding(&old);
    server.registry().repositories.values_mut().next().unwrap().hold(&new, "v2");
    let berth = Yard::new().open();
    berth.acquire("a", &resolved(&server, &old)).await;
    berth.try_acquire("a", &resolved(&server, &broken)).await.unwrap_err();
    let pinned = |berth: &crate::harness::Berth| berth.artifacts.pin_of(&id("a")).unwrap();
    assert_eq!(pinned(&berth).resolved_digest, old.top.digest);
    berth.acquire("a", &resolved(&server, &new)).await;
    assert_eq!(pinned(&berth).resolved_digest, new.top.digest);
    let report = berth.artifacts.cache();
    let pins = |image: &crate::support::image::Image| {
        let digest = image.top.digest.to_string();
        report.rootdisks.iter().find(|disk| disk.resolved_digest == digest).unwrap().pins
    };
    assert_eq!((pins(&old), pins(&new)), (0, 1));
}
