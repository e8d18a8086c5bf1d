//! File systems that are full, at each stage, and get room again.

use std::path::Path;

use portolan_agent::api::GcRequest;
use portolan_agent::artifacts::Purpose;
use portolan_agent::config::{Percent, Size};
use portolan_agent::reason::Reason;
use tokio_util::sync::CancellationToken;

use crate::harness::{Berth, Yard, chain, check, id, resolved, sized, small};
use crate::support::disk::Mount;
use crate::support::fault::FaultServer;
use crate::support::image::{Image, bytes};

const MIB: usize = 1 << 20;

/// Leaves this many bytes free.
fn fill(dir: &Path, leave: u64) -> std::path::PathBuf {
    let stat = rustix::fs::statvfs(dir).unwrap();
    let free = stat.f_bavail * stat.f_frsize;
    let path = dir.join("filler");
    let size = usize::try_from(free.saturating_sub(leave)).unwrap();
    std::fs::write(&path, vec![7; size]).unwrap();
    path
}

fn large(seed: u64) -> Image {
    // Two megabytes of files in layers of a tenth of that: what they need is seen while they are
    // unpacked, not before.
    let file = |n: u64| (format!("f{n}"), bytes(5_000, seed * 1000 + n).repeat(10));
    let files: Vec<(String, Vec<u8>)> = (0..40).map(file).collect();
    let tars: Vec<Vec<u8>> =
        files.iter().map(|(name, content)| crate::harness::tar(&[(name, content)])).collect();
    crate::harness::image_of(&tars, &crate::harness::Twist::default())
}

async fn full(berth: &Berth, server: &FaultServer, image: &Image) {
    let error = berth.try_acquire("full", &resolved(server, image)).await.unwrap_err();
    eprintln!("{}", chain(&error));
    assert_eq!(error.reason(), Reason::DiskFull, "{}", chain(&error));
    assert_eq!(berth.artifacts.pin_of(&id("full")), None);
    berth.settled().await;
}

/// With less and less room a start fails at one stage after the other, never in another way, and
/// works when the room is back, without anybody having done anything else.
#[tokio::test]
async fn a_full_disk_at_each_stage_is_said_to_be_full_and_recovers_by_itself() {
    let Some(disk) = Mount::tmpfs(12 * MIB) else { return };
    let image = large(120);
    let server = FaultServer::holding(&image);
    let mut yard = Yard::at(disk.join("root"));
    yard.config.rootdisk.min_size = Size(4 << 20);
    let berth = yard.open();
    assert!(berth.artifacts.flush());
    let mut degraded = 0;
    for leave in [0, 8 << 10, 64 << 10, 300 << 10, 900 << 10, 1500 << 10, 1900 << 10] {
        let filler = fill(yard.root().parent().unwrap(), leave);
        full(&berth, &server, &image).await;
        let pressure = berth.artifacts.pressure();
        degraded += u32::from(pressure.degraded);
        assert_eq!(pressure.degraded, pressure.message.is_some());
        check(yard.root());
        std::fs::remove_file(filler).unwrap();
        assert!(!berth.artifacts.pressure().degraded, "the room is back");
        berth.artifacts.gc(GcRequest { target_bytes: Some(0), dry_run: false }).await;
    }
    assert!(degraded > 0);
    berth.acquire("a", &resolved(&server, &image)).await;
    assert_eq!(check(yard.root()).len(), 1);
    assert!(berth.artifacts.flush(), "the database works again, too");
    let failures = berth.metric("portolan_agent_rootdisk_build_errors_total{reason=\"disk_full\"}");
    assert!(failures >= 1.0, "{failures}");
}

/// A host that cannot fetch what no instance waits for has room for those that come.
#[tokio::test]
async fn want_of_room_for_what_nobody_starts_is_no_pressure_of_the_host() {
    let Some(disk) = Mount::tmpfs(12 * MIB) else { return };
    let image = large(122);
    let server = FaultServer::holding(&image);
    let mut yard = Yard::at(disk.join("root"));
    yard.config.rootdisk.min_size = Size(4 << 20);
    let berth = yard.open();
    assert!(berth.artifacts.flush());
    let (cancel, wanted) = (CancellationToken::new(), resolved(&server, &image));
    for leave in [0, 64 << 10, 900 << 10, 1900 << 10] {
        let filler = fill(yard.root().parent().unwrap(), leave);
        for purpose in [Purpose::Ahead, Purpose::Request] {
            let error = berth.artifacts.prefetch(&wanted, purpose, &cancel).await.unwrap_err();
            assert_eq!(error.reason(), Reason::DiskFull, "{leave}: {}", chain(&error));
            let pressure = berth.artifacts.pressure();
            assert!(!pressure.degraded, "{leave} for {purpose:?}: {pressure:?}");
        }
        std::fs::remove_file(filler).unwrap();
        berth.artifacts.gc(GcRequest { target_bytes: Some(0), dry_run: false }).await;
    }
    fill(yard.root().parent().unwrap(), 64 << 10);
    full(&berth, &server, &image).await;
    assert!(berth.artifacts.pressure().degraded, "that of an instance is");
}

/// A bound that holds one disk, which nobody uses any more.
fn with_room_for_one(images: &[Image; 2]) -> (FaultServer, Yard) {
    let server = FaultServer::holding(&images[0]);
    server.registry().repositories.values_mut().next().unwrap().hold(&images[1], "v2");
    let mut yard = Yard::new();
    yard.config.cache.target_bytes = Some(Size(250_000));
    yard.config.cache.keep_blobs = false;
    (server, yard)
}

#[tokio::test]
async fn what_is_fetched_ahead_fills_free_room_and_evicts_nothing() {
    let images = [sized(158, 60_000), sized(159, 60_000)];
    let (server, yard) = with_room_for_one(&images);
    let berth = yard.open();
    let cancel = CancellationToken::new();
    let [first, second] = [0, 1].map(|n| resolved(&server, &images[n]));
    berth.artifacts.prefetch(&first, Purpose::Ahead, &cancel).await.unwrap();
    let error = berth.artifacts.prefetch(&second, Purpose::Ahead, &cancel).await.unwrap_err();
    assert!(error.waits_for_room(), "{}", chain(&error));
    assert!(berth.disk_exists(&images[0].top.digest), "it was not evicted");
    let errors = "portolan_agent_rootdisk_build_errors_total{reason=\"disk_full\"}";
    assert_eq!(berth.metric(errors), 0.0);
    berth.artifacts.prefetch(&second, Purpose::Request, &cancel).await.unwrap();
    assert!(!berth.disk_exists(&images[0].top.digest), "whoever asks for an image gets its room");
}

/// Whoever waited for its room would wait for ever.
#[tokio::test]
async fn what_would_not_fit_into_an_empty_cache_waits_for_no_room() {
    let images = [sized(160, 10_000), sized(161, 60_000)];
    let (server, mut yard) = with_room_for_one(&images);
    yard.config.cache.target_bytes = Some(Size(100_000));
    let berth = yard.open();
    let cancel = CancellationToken::new();
    let [small, large] = [0, 1].map(|n| resolved(&server, &images[n]));
    let refused = async || {
        let error = berth.artifacts.prefetch(&large, Purpose::Ahead, &cancel).await.unwrap_err();
        assert_eq!(error.reason(), Reason::DiskFull, "{}", chain(&error));
        assert!(!error.waits_for_room(), "{}", chain(&error));
    };
    refused().await;
    berth.artifacts.prefetch(&small, Purpose::Ahead, &cancel).await.unwrap();
    refused().await;
    assert!(berth.disk_exists(&images[0].top.digest), "it was not evicted");
}

#[tokio::test]
async fn room_is_made_by_evicting_what_nobody_uses() {
    let Some(disk) = Mount::tmpfs(12 * MIB) else { return };
    let images: Vec<Image> = (0..4).map(|n| large(130 + n)).collect();
    let server = FaultServer::holding(&images[0]);
    for image in &images {
        server.registry().repositories.values_mut().next().unwrap().hold(image, "v");
    }
    let mut yard = Yard::at(disk.join("root"));
    yard.config.rootdisk.min_size = Size(4 << 20);
    let berth = yard.open();
    // Together they need more than there is; each by itself fits.
    for image in &images {
        berth.acquire("a", &resolved(&server, image)).await;
    }
    let disks = check(yard.root());
    assert!(disks.contains_key(&images[3].top.digest) && disks.len() < 4, "{}", disks.len());
    assert!(!berth.artifacts.pressure().degraded);
}

/// So full that not even a manifest fits, by what nobody uses.
#[tokio::test]
async fn room_is_made_also_for_the_manifest() {
    let Some(disk) = Mount::tmpfs(12 * MIB) else { return };
    let (unused, wanted) = (large(136), small(137));
    let server = FaultServer::holding(&unused);
    server.registry().repositories.values_mut().next().unwrap().hold(&wanted, "v2");
    let yard = Yard::at(disk.join("root"));
    let berth = yard.open();
    berth.acquire("a", &resolved(&server, &unused)).await;
    berth.artifacts.release(&id("a"));
    assert!(berth.artifacts.flush());
    fill(yard.root().parent().unwrap(), 0);
    berth.acquire("b", &resolved(&server, &wanted)).await;
    assert!(check(yard.root()).contains_key(&wanted.top.digest));
}

#[tokio::test]
async fn a_copy_of_a_layer_that_does_not_fit_fails_no_build() {
    let Some(disk) = Mount::tmpfs(16 * MIB) else { return };
    let image = large(140);
    let server = FaultServer::holding(&image);
    // What the disk alone takes.
    let mut free = Yard::new();
    free.config.rootdisk.min_size = Size(4 << 20);
    let alone = free.open().acquire("a", &resolved(&server, &image)).await.metadata;
    let mut yard = Yard::at(disk.join("root"));
    yard.config.rootdisk.min_size = Size(4 << 20);
    let berth = yard.open();
    assert!(berth.artifacts.flush());
    // Room for the disk and for half of the layers.
    fill(yard.root().parent().unwrap(), alone.allocated_bytes + (1 << 20));
    let acquired = berth.try_acquire("a", &resolved(&server, &image)).await;
    acquired.unwrap_or_else(|error| panic!("{}", chain(&error)));
    berth.settled().await;
    assert_eq!(check(yard.root()).len(), 1);
}

/// Marks that others on the same file system have passed: nothing of ours can help.
#[tokio::test]
async fn above_a_mark_that_evicting_cannot_reach_new_builds_are_refused_until_it_is_over() {
    let Some(disk) = Mount::tmpfs(16 * MIB) else { return };
    let (cached, wanted) = (small(150), small(151));
    let server = FaultServer::holding(&cached);
    server.registry().repositories.values_mut().next().unwrap().hold(&wanted, "v2");
    let mut yard = Yard::at(disk.join("root"));
    yard.config.cache.target_percent = Percent::new(40);
    yard.config.cache.high_water_percent = Percent::new(50);
    let berth = yard.open();
    berth.acquire("a", &resolved(&server, &cached)).await;
    assert!(!berth.artifacts.pressure().degraded);
    let filler = fill(yard.root().parent().unwrap(), 4 << 20);
    let pressure = berth.artifacts.pressure();
    assert!(pressure.degraded && pressure.message.unwrap().contains("high-water"));
    full(&berth, &server, &wanted).await;
    assert!(berth.acquire("b", &resolved(&server, &cached)).await.cached, "what is here starts");
    berth.artifacts.tidy();
    assert_eq!(berth.metric("portolan_agent_disk_pressure{pool=\"cache\"}"), 1.0);
    std::fs::remove_file(filler).unwrap();
    assert!(!berth.artifacts.pressure().degraded);
    berth.acquire("c", &resolved(&server, &wanted)).await;
    berth.artifacts.tidy();
    assert_eq!(berth.metric("portolan_agent_disk_pressure{pool=\"cache\"}"), 0.0);
}

#[tokio::test]
async fn a_bound_in_bytes_that_pinned_disks_fill_refuses_new_builds() {
    let (pinned, wanted) = (sized(152, 60_000), sized(153, 60_000));
    let server = FaultServer::holding(&pinned);
    server.registry().repositories.values_mut().next().unwrap().hold(&wanted, "v2");
    let mut yard = Yard::new();
    yard.config.cache.target_bytes = Some(Size(50_000));
    let berth = yard.open();
    berth.acquire("a", &resolved(&server, &pinned)).await;
    full(&berth, &server, &wanted).await;
    assert!(berth.artifacts.pressure().degraded);
    berth.artifacts.release(&id("a"));
    assert!(!berth.artifacts.pressure().degraded);
    berth.acquire("b", &resolved(&server, &wanted)).await;
}

/// One line of JSON can claim any size; it must not cost others what they have in the cache, nor
/// make the host look full.
#[tokio::test]
async fn a_manifest_that_claims_more_than_there_is_evicts_nothing() {
    let Some(disk) = Mount::tmpfs(16 * MIB) else { return };
    let cached = small(154);
    let server = FaultServer::holding(&cached);
    let yard = Yard::at(disk.join("root"));
    let berth = yard.open();
    berth.acquire("a", &resolved(&server, &cached)).await;
    berth.artifacts.release(&id("a"));
    for claim in [64 * MIB as u64, 1 << 50, u64::MAX >> 1] {
        let mut liar = small(155);
        let bytes = liar.manifests[&liar.top.digest].1.clone();
        let mut manifest: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        manifest["layers"][0]["size"] = claim.into();
        let bytes = manifest.to_string().into_bytes();
        let blobs = liar.blobs.clone();
        liar = Image::of_manifest(portolan_core::media_type::OCI_MANIFEST, &bytes);
        liar.blobs = blobs;
        server.registry().repositories.values_mut().next().unwrap().hold(&liar, "liar");
        let error = berth.try_acquire("b", &resolved(&server, &liar)).await.unwrap_err();
        eprintln!("{claim}: {}", chain(&error));
        assert_eq!(berth.artifacts.cache().rootdisks.len(), 1, "the other disk is still there");
        assert!(berth.blob_exists(&crate::harness::layer_of(&cached)), "and so are its layers");
        let pressure = berth.artifacts.pressure();
        assert!(!pressure.degraded, "{claim}: {pressure:?}");
    }
}

/// The kernel makes a file system read-only when it finds errors in it.
#[tokio::test]
async fn a_root_that_became_read_only_is_degraded_and_says_that_it_is_not_the_image() {
    let Some(disk) = Mount::tmpfs(16 * MIB) else { return };
    let image = small(156);
    let server = FaultServer::holding(&image);
    let yard = Yard::at(disk.join("root"));
    let berth = yard.open();
    assert!(!berth.artifacts.pressure().degraded);
    crate::harness::make_read_only(yard.root());
    let pressure = berth.artifacts.pressure();
    assert!(pressure.degraded && pressure.read_only, "{pressure:?}");
    let error = berth.try_acquire("a", &resolved(&server, &image)).await.unwrap_err();
    let text = chain(&error);
    assert_eq!(error.reason(), Reason::RootfsBuildFailed, "{text}");
    assert!(text.contains("ead-only") && text.contains("the agent's root"), "{text}");
}
