//! Disks of another format version: what an upgrade of the agent finds.

use portolan_agent::api::GcRequest;
use portolan_core::Digest;
use portolan_rootdisk::meta::{Metadata, rootdisk_key};

use crate::harness::{Yard, id, list, resolved, small};
use crate::support::fault::FaultServer;

/// Makes a disk of the current version one that an older agent has built.
fn make_old(yard: &Yard, digest: &Digest) -> Vec<u8> {
    let dir = yard.root().join("rootdisks/sha256");
    let path = dir.join(format!("{}.meta.json", digest.hex()));
    let mut metadata = Metadata::read(&path).unwrap();
    metadata.rootdisk_format_version = "0".to_owned();
    metadata.rootdisk_key = rootdisk_key(digest, "0");
    std::fs::write(&path, metadata.to_json()).unwrap();
    std::fs::read(dir.join(format!("{}.ext4", digest.hex()))).unwrap()
}

#[tokio::test]
async fn an_upgrade_keeps_the_disk_of_a_running_instance_and_builds_new_ones_beside_it() {
    let image = small(90);
    let digest = image.top.digest;
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    let wanted = resolved(&server, &image);
    let first = yard.open().acquire("old", &wanted).await;
    let content = make_old(&yard, &digest);
    // The machine has its disk open all the time.
    let running = std::fs::File::open(&first.disk).unwrap();

    let live = [(id("old"), digest, "0".to_owned())];
    let berth = yard.try_open().unwrap();
    berth.artifacts.reconcile_pins(&live);
    let home = yard.root().join("rootdisks/v0/sha256");
    let moved = home.join(format!("{}.ext4", digest.hex()));
    assert_eq!(std::fs::read(&moved).unwrap(), content);
    assert!(!first.disk.exists());
    assert_eq!(running.metadata().unwrap().len(), content.len() as u64);

    // The instance that runs gets the disk that it has; a new one gets one of the new version.
    let again = berth.acquire("old", &wanted).await;
    assert_eq!((again.disk.clone(), again.cached), (moved.clone(), true));
    assert_eq!((again.format_version.as_str(), again.key), ("0", rootdisk_key(&digest, "0")));
    let new = berth.acquire("new", &wanted).await;
    assert_eq!((new.disk, new.format_version.as_str()), (first.disk.clone(), "1"));
    assert_eq!(berth.artifacts.cache().rootdisks.len(), 2);

    // It stays as long as it is pinned, over restarts, and goes with its instance.
    let all = GcRequest { target_bytes: Some(0), dry_run: false };
    berth.artifacts.gc(all).await;
    assert!(moved.exists());
    drop(berth);
    let berth = yard.try_open().unwrap();
    assert_eq!(berth.artifacts.pin_of(&id("old")).unwrap().format_version, "0");
    berth.artifacts.reconcile_pins(&live);
    berth.artifacts.gc(all).await;
    assert!(moved.exists() && !first.disk.exists());
    berth.artifacts.release(&id("old"));
    berth.artifacts.gc(all).await;
    assert!(list(&home).is_empty());
}

/// A crash between the two renames of the move: the next start finishes it.
#[tokio::test]
async fn a_move_that_was_cut_short_is_finished() {
    let image = small(91);
    let digest = image.top.digest;
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    yard.open().acquire("a", &resolved(&server, &image)).await;
    make_old(&yard, &digest);
    let home = yard.root().join("rootdisks/v0/sha256");
    std::fs::create_dir_all(&home).unwrap();
    let name = format!("{}.ext4", digest.hex());
    std::fs::rename(yard.root().join("rootdisks/sha256").join(&name), home.join(&name)).unwrap();
    let berth = yard.open();
    assert_eq!(list(&home).len(), 2);
    let report = berth.artifacts.cache();
    assert_eq!(report.rootdisks[0].format_version, "0");
    assert!(list(&yard.root().join("rootdisks/sha256")).is_empty());
}

/// A downgrade: what a newer agent had moved away comes back.
#[tokio::test]
async fn disks_of_this_version_come_back_to_their_place() {
    let image = small(92);
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    let wanted = resolved(&server, &image);
    let disk = yard.open().acquire("a", &wanted).await.disk;
    let home = yard.root().join("rootdisks/v1/sha256");
    std::fs::create_dir_all(&home).unwrap();
    for path in list(&yard.root().join("rootdisks/sha256")) {
        std::fs::rename(&path, home.join(path.file_name().unwrap())).unwrap();
    }
    let berth = yard.open();
    assert!(disk.exists());
    assert!(berth.acquire("a", &wanted).await.cached);
}

/// An agent cannot build what another version built; it can tell that it is damaged, and stops
/// giving it out.
#[tokio::test]
async fn a_damaged_disk_of_another_version_is_found_and_given_to_nobody() {
    use std::os::unix::fs::FileExt as _;

    use portolan_agent::api::VerifyOutcome;

    let image = small(93);
    let digest = image.top.digest;
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    let wanted = resolved(&server, &image);
    yard.open().acquire("old", &wanted).await;
    make_old(&yard, &digest);
    let berth = yard.try_open().unwrap();
    berth.artifacts.reconcile_pins(&[(id("old"), digest, "0".to_owned())]);
    let key = rootdisk_key(&digest, "0");
    let verify = async || {
        let cancel = tokio_util::sync::CancellationToken::new();
        berth.artifacts.verify(&key, &cancel).await.unwrap()
    };
    assert_eq!(verify().await.outcome, VerifyOutcome::Ok);
    let disk = yard.root().join(format!("rootdisks/v0/sha256/{}.ext4", digest.hex()));
    let file = std::fs::File::options().write(true).open(&disk).unwrap();
    file.write_all_at(b"rot", 1024 + 120).unwrap();
    let report = verify().await;
    assert_eq!(report.outcome, VerifyOutcome::CorruptInUse);
    assert!(report.message.unwrap().contains("format version"));
    assert!(disk.exists(), "a machine may run from it");
    // Its instance gets a sound disk at its next start, and the damaged one is gone then.
    let again = berth.acquire("old", &wanted).await;
    assert_eq!((again.format_version.as_str(), again.cached), ("1", false));
    assert!(!disk.exists());
}
