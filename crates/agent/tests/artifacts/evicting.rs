//! What goes and what stays.

use std::time::Duration;

use portolan_agent::api::GcRequest;
use portolan_agent::config::{Size, Span};
use portolan_core::Digest;

use crate::harness::{Berth, Yard, check, id, layer_of, resolved, sized, small};
use crate::support::fault::FaultServer;
use crate::support::image::Image;

const EVERYTHING: GcRequest = GcRequest { target_bytes: Some(0), dry_run: false };

fn server_of(images: &[Image]) -> FaultServer {
    let server = FaultServer::holding(&images[0]);
    for (n, image) in images.iter().enumerate() {
        let mut registry = server.registry();
        registry.repositories.values_mut().next().unwrap().hold(image, &format!("v{n}"));
    }
    server
}

fn cached(berth: &Berth) -> Vec<String> {
    let report = berth.artifacts.cache();
    report.rootdisks.into_iter().map(|disk| disk.resolved_digest).collect()
}

fn manifest_exists(yard: &Yard, digest: &Digest) -> bool {
    yard.root().join("oci/manifests/sha256").join(digest.hex()).exists()
}

#[tokio::test]
async fn what_an_instance_pins_is_never_evicted_and_the_rest_goes_on_request() {
    let images = [small(70), small(71)];
    let server = server_of(&images);
    let yard = Yard::new();
    let berth = yard.open();
    let pinned = berth.acquire("a", &resolved(&server, &images[0])).await;
    berth.acquire("b", &resolved(&server, &images[1])).await;
    berth.artifacts.release(&id("b"));

    let dry = berth.artifacts.gc(GcRequest { dry_run: true, ..EVERYTHING }).await;
    assert_eq!((dry.rootdisks.entries, cached(&berth).len()), (1, 2));
    let report = berth.artifacts.gc(EVERYTHING).await;
    assert_eq!((report.rootdisks, report.blobs), (dry.rootdisks, dry.blobs), "as was said");
    assert!(report.blobs.entries >= 4 && !report.reached, "{report:?}");
    assert_eq!(cached(&berth), [images[0].top.digest.to_string()]);
    assert!(pinned.disk.exists());
    assert_eq!(check(yard.root()).len(), 1);
    // A pinned disk starts again without a registry, though its layers are gone.
    drop(server);
    assert!(!berth.blob_exists(&layer_of(&images[0])));
    let wanted = crate::harness::resolved_at("127.0.0.1:1", images[0].top.digest);
    assert!(berth.acquire("c", &wanted).await.cached);
    // What the evicted disk needed to start went with it.
    assert!(!manifest_exists(&yard, &images[1].top.digest));
    assert!(!berth.blob_exists(&images[1].manifest(&images[1].top.digest).config.digest));
    assert!(manifest_exists(&yard, &images[0].top.digest));

    berth.artifacts.release(&id("a"));
    berth.artifacts.release(&id("c"));
    let report = berth.artifacts.gc(EVERYTHING).await;
    assert_eq!((report.rootdisks.entries, cached(&berth).len()), (1, 0));
    assert!(!pinned.disk.exists());
    assert_eq!((report.remaining_bytes, report.reached), (0, true), "nothing at all is left");
    let evicted = "portolan_agent_cache_evictions_total{kind=\"rootdisk\"}";
    assert_eq!(berth.metric(evicted), 2.0);
    berth.settled().await;
}

#[tokio::test]
async fn before_instances_are_known_no_disk_is_evicted() {
    let image = small(72);
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    let disk = yard.open().acquire("a", &resolved(&server, &image)).await.disk;
    // As if a crash had lost the pins.
    std::fs::remove_file(yard.root().join("agent.redb")).unwrap();
    let berth = yard.try_open().unwrap();
    assert_eq!(berth.artifacts.pin_of(&id("a")), None);
    berth.artifacts.gc(EVERYTHING).await;
    assert!(disk.exists());
    berth.artifacts.reconcile_pins(&[(id("a"), image.top.digest, "1".to_owned())]);
    berth.artifacts.gc(EVERYTHING).await;
    assert!(disk.exists());
    berth.artifacts.reconcile_pins(&[]);
    berth.artifacts.gc(EVERYTHING).await;
    assert!(!disk.exists());
}

#[tokio::test]
async fn above_the_high_water_mark_the_least_recently_used_goes_also_after_a_restart() {
    let images: Vec<Image> = (0..4).map(|n| sized(73 + n, 50_000)).collect();
    let server = server_of(&images);
    let mut yard = Yard::new();
    yard.config.cache.keep_blobs = false;
    yard.config.cache.min_age = Span(Duration::ZERO);
    let berth = yard.open();
    for (n, image) in images.iter().enumerate() {
        berth.acquire(&format!("i{n}"), &resolved(&server, image)).await;
    }
    // The first is used again, so that the second is the oldest; the third is pinned.
    berth.acquire("again", &resolved(&server, &images[0])).await;
    for released in ["i0", "again", "i1", "i3"] {
        berth.artifacts.release(&id(released));
    }
    let usage = berth.artifacts.pressure().cache_bytes;
    let one = berth.artifacts.cache().rootdisks[0].allocated_bytes;
    drop(berth);
    // Room for all but a little: one disk must go, and one alone.
    yard.config.cache.target_bytes = Some(Size(usage - one / 2));
    let berth = yard.try_open().unwrap();
    let live = [(id("i2"), images[2].top.digest, "1".to_owned())];
    berth.artifacts.reconcile_pins(&live);
    berth.artifacts.tidy();
    let left = cached(&berth);
    assert_eq!(left.len(), 3);
    assert!(!left.contains(&images[1].top.digest.to_string()), "the oldest went");
    // Between target and mark nothing goes.
    berth.artifacts.tidy();
    assert_eq!(cached(&berth).len(), 3);
}

#[tokio::test]
async fn what_was_used_a_moment_ago_stays_unless_a_start_needs_the_room() {
    let images = [sized(80, 60_000), sized(81, 60_000)];
    let server = server_of(&images);
    let mut yard = Yard::new();
    yard.config.cache.min_age = Span::seconds(3600);
    yard.config.cache.target_bytes = Some(Size(300_000));
    let berth = yard.open();
    berth.acquire("a", &resolved(&server, &images[0])).await;
    berth.artifacts.release(&id("a"));
    berth.artifacts.tidy();
    assert_eq!(cached(&berth).len(), 1, "young");
    berth.acquire("b", &resolved(&server, &images[1])).await;
    assert_eq!(cached(&berth), [images[1].top.digest.to_string()], "a start needed the room");
}

/// Blobs are the first to go, and a disk of nobody before the layers of a pinned one.
#[tokio::test]
async fn layers_go_before_disks() {
    let images = [sized(82, 60_000), sized(83, 60_000)];
    let server = server_of(&images);
    let yard = Yard::new();
    let berth = yard.open();
    berth.acquire("a", &resolved(&server, &images[0])).await;
    berth.acquire("b", &resolved(&server, &images[1])).await;
    berth.artifacts.release(&id("b"));
    let usage = berth.artifacts.pressure().cache_bytes;
    let report =
        berth.artifacts.gc(GcRequest { target_bytes: Some(usage - 1), dry_run: false }).await;
    assert_eq!((report.rootdisks.entries, report.reached), (0, true));
    assert!(!berth.blob_exists(&layer_of(&images[1])) || report.blobs.entries > 0);
    assert!(berth.blob_exists(&layer_of(&images[0])), "a pinned disk's layers go last");
    assert_eq!(cached(&berth).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn starts_and_evictions_at_the_same_time_never_lose_a_pinned_disk() {
    let images: Vec<Image> = (0..4).map(|n| small(84 + n)).collect();
    let server = std::sync::Arc::new(server_of(&images));
    let yard = Yard::new();
    let berth = std::sync::Arc::new(yard.open());
    let starts: Vec<_> = (0..6)
        .map(|worker: usize| {
            let (berth, server) = (std::sync::Arc::clone(&berth), std::sync::Arc::clone(&server));
            let images = images.clone();
            tokio::spawn(async move {
                let name = format!("i{worker}");
                for round in 0..12 {
                    let image = &images[(worker + round) % images.len()];
                    let artifact = berth.acquire(&name, &resolved(&server, image)).await;
                    assert!(artifact.disk.exists(), "pinned and gone");
                    tokio::task::yield_now().await;
                    assert!(artifact.disk.exists(), "pinned and gone");
                    berth.artifacts.release(&id(&name));
                }
            })
        })
        .collect();
    let evicts = {
        let berth = std::sync::Arc::clone(&berth);
        tokio::spawn(async move {
            loop {
                berth.artifacts.gc(EVERYTHING).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    for start in starts {
        start.await.unwrap();
    }
    evicts.abort();
    let _ = evicts.await;
    berth.artifacts.gc(EVERYTHING).await;
    assert!(cached(&berth).is_empty());
    berth.settled().await;
    check(yard.root());
}
