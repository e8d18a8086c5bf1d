//! The machine itself: another agent, garbage in the root, a damaged database, a wrong clock.

use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use portolan_agent::api::GcRequest;
use portolan_agent::artifacts::OpenError;
use portolan_agent::config::{Size, Span};
use portolan_core::Digest;

use crate::harness::{Yard, chain, check, id, list, make_read_only, resolved, sized, small};
use crate::support::disk::Mount;
use crate::support::fault::FaultServer;

#[tokio::test]
async fn a_second_agent_on_the_same_root_is_refused() {
    let yard = Yard::new();
    let first = yard.open();
    let refused = yard.try_open().err().unwrap();
    assert!(matches!(refused, OpenError::Store(_)));
    let text = chain(&refused);
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    drop(first);
    yard.open();
}

#[tokio::test]
async fn garbage_in_the_root_neither_stops_the_start_nor_is_taken_for_content() {
    let image = small(100);
    let digest = image.top.digest;
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    let wanted = resolved(&server, &image);
    let kept = yard.open().acquire("a", &wanted).await;
    let root = yard.root();
    let other = Digest::sha256(b"other").hex();
    let third = Digest::sha256(b"third").hex();
    let disks = root.join("rootdisks/sha256");
    let write = |path: std::path::PathBuf| std::fs::write(path, b"garbage").unwrap();
    let make = |path: std::path::PathBuf| std::fs::create_dir_all(path.join("x/y")).unwrap();
    // Half of a disk, metadata of nothing, metadata that is none, directories under such names.
    write(disks.join(format!("{other}.ext4")));
    write(disks.join(format!("{third}.meta.json")));
    make(disks.join(format!("{}.meta.json", Digest::sha256(b"fourth").hex())));
    make(disks.join(format!("{}.ext4", Digest::sha256(b"fifth").hex())));
    write(disks.join("README"));
    make(disks.join("lost+found"));
    make(root.join("rootdisks/v7/sha256"));
    make(root.join("rootdisks/v../sha256"));
    symlink("/nowhere", disks.join(format!("{}.ext4", Digest::sha256(b"sixth").hex()))).unwrap();
    make(root.join("oci/blobs/sha256").join(&other));
    write(root.join("oci/blobs/sha256/notes.txt"));
    write(root.join("oci/manifests/sha256").join(&other));
    make(root.join("oci/manifests/sha256").join(&third));
    make(root.join("tmp/dir"));
    write(root.join("tmp/file"));
    symlink(root.join("instances"), root.join("tmp/link")).unwrap();
    make(root.join("instances/web-1"));

    let berth = yard.open();
    assert!(list(&root.join("tmp")).is_empty());
    assert!(root.join("instances/web-1").exists(), "links are not followed");
    assert!(disks.join("README").exists(), "what is called like nothing of ours is left alone");
    let report = berth.artifacts.cache();
    assert_eq!(report.rootdisks.len(), 1);
    assert_eq!(report.rootdisks[0].resolved_digest, digest.to_string());
    assert!(!disks.join(format!("{other}.ext4")).exists());
    assert!(berth.acquire("b", &wanted).await.cached);
    assert!(kept.disk.exists());
}

/// A directory in the very place where the disk, its metadata or a blob must go.
#[tokio::test]
async fn directories_in_the_way_are_cleared() {
    let image = small(101);
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    let berth = yard.open();
    let hex = image.top.digest.hex();
    let layer = crate::harness::layer_of(&image).hex();
    for name in [
        format!("rootdisks/sha256/{hex}.ext4"),
        format!("rootdisks/sha256/{hex}.meta.json"),
        format!("oci/manifests/sha256/{hex}"),
        format!("oci/blobs/sha256/{layer}"),
    ] {
        std::fs::create_dir_all(yard.root().join(name).join("x")).unwrap();
    }
    berth.acquire("a", &resolved(&server, &image)).await;
    berth.settled().await;
    assert_eq!(check(yard.root()).len(), 1);
}

#[tokio::test]
async fn a_damaged_database_is_rebuilt_from_the_instances() {
    let images = [small(102), small(103)];
    let server = FaultServer::holding(&images[0]);
    server.registry().repositories.values_mut().next().unwrap().hold(&images[1], "v2");
    let yard = Yard::new();
    {
        let berth = yard.open();
        berth.acquire("a", &resolved(&server, &images[0])).await;
        berth.acquire("b", &resolved(&server, &images[1])).await;
    }
    let path = yard.root().join("agent.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.iter_mut().step_by(3).for_each(|byte| *byte ^= 0xa5);
    std::fs::write(&path, bytes).unwrap();

    let berth = yard.try_open().unwrap();
    berth.artifacts.reconcile_pins(&[(id("a"), images[0].top.digest, "1".to_owned())]);
    berth.artifacts.gc(GcRequest { target_bytes: Some(0), dry_run: false }).await;
    assert_eq!(check(yard.root()).into_keys().collect::<Vec<_>>(), [images[0].top.digest]);
    assert!(berth.artifacts.flush());
    drop(berth);
    let berth = yard.try_open().unwrap();
    assert_eq!(berth.artifacts.pin_of(&id("a")).unwrap().resolved_digest, images[0].top.digest);
    assert_eq!(berth.artifacts.pin_of(&id("b")), None);
    let aside = list(yard.root());
    assert!(aside.iter().any(|path| path.to_str().unwrap().contains("damaged")), "{aside:?}");
}

/// Everything was written under a clock that was years ahead; then it was set right.
#[tokio::test]
async fn a_clock_that_went_back_changes_no_order_and_keeps_nothing_young() {
    let images = [sized(104, 40_000), sized(105, 40_000)];
    let server = FaultServer::holding(&images[0]);
    server.registry().repositories.values_mut().next().unwrap().hold(&images[1], "v2");
    let mut yard = Yard::new();
    yard.config.cache.keep_blobs = false;
    yard.config.cache.min_age = Span(Duration::from_millis(1));
    {
        let berth = yard.open();
        for image in &images {
            berth.acquire("a", &resolved(&server, image)).await;
        }
    }
    std::fs::remove_file(yard.root().join("agent.redb")).unwrap();
    let future = SystemTime::now() + Duration::from_secs(400 * 24 * 3600);
    for (n, image) in (0..).zip([&images[1], &images[0]]) {
        let name = format!("rootdisks/sha256/{}.ext4", image.top.digest.hex());
        let file = std::fs::File::open(yard.root().join(name)).unwrap();
        file.set_modified(future + Duration::from_secs(n)).unwrap();
    }
    let berth = yard.open();
    let now = jiff::Timestamp::now();
    let report = berth.artifacts.cache();
    assert!(report.rootdisks.iter().all(|disk| disk.last_used_at <= now));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let usage = berth.artifacts.pressure().cache_bytes;
    drop(berth);
    yard.config.cache.target_bytes = Some(Size(usage - 1));
    let berth = yard.open();
    berth.artifacts.tidy();
    assert_eq!(berth.artifacts.cache().rootdisks.len(), 1, "neither is young for ever");
}

#[tokio::test]
async fn a_root_that_cannot_be_written_is_said_so() {
    let Some(disk) = Mount::tmpfs(8 << 20) else { return };
    let images = [small(106), small(107)];
    let server = FaultServer::holding(&images[0]);
    server.registry().repositories.values_mut().next().unwrap().hold(&images[1], "v2");
    let yard = Yard::at(disk.join("root"));
    let berth = yard.open();
    let first = berth.acquire("a", &resolved(&server, &images[0])).await;
    assert!(berth.artifacts.flush());
    for name in ["tmp", "oci", "rootdisks"] {
        make_read_only(&yard.root().join(name));
    }
    // Cached starts go on; new ones fail and say why; nothing that is there is touched.
    assert!(berth.acquire("b", &resolved(&server, &images[0])).await.cached);
    let error = berth.try_acquire("c", &resolved(&server, &images[1])).await.unwrap_err();
    assert_eq!(error.reason(), portolan_agent::reason::Reason::RootfsBuildFailed);
    assert!(chain(&error).contains("ead-only"), "{}", chain(&error));
    berth.artifacts.release(&id("a"));
    berth.artifacts.release(&id("b"));
    berth.artifacts.gc(GcRequest { target_bytes: Some(0), dry_run: false }).await;
    assert!(first.disk.exists());
    assert_eq!(berth.artifacts.cache().rootdisks.len(), 1);
    drop(berth);
    disk.make_read_only();
    let refused = yard.try_open().err().unwrap();
    assert!(chain(&refused).contains("ead-only"), "{}", chain(&refused));
}
