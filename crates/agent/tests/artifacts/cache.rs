//! Disks compared with their checksums.

use std::os::unix::fs::FileExt as _;

use portolan_agent::api::VerifyOutcome;
use portolan_agent::artifacts::VerifyError;
use tokio_util::sync::CancellationToken;

use crate::harness::{Berth, Yard, check, id, resolved, small};
use crate::support::fault::{Fault, FaultServer};

/// Changes one byte that a file system never looks at: the length and every time stay.
fn damage(path: &std::path::Path) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0_u8];
    file.read_exact_at(&mut byte, 1024 + 120).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 1024 + 120).unwrap();
    file.set_modified(modified).unwrap();
}

async fn verify(berth: &Berth, key: &str) -> VerifyOutcome {
    berth.artifacts.verify(key, &CancellationToken::new()).await.unwrap().outcome
}

#[tokio::test]
async fn a_damaged_disk_is_found_by_its_checksum_and_built_again() {
    let image = small(60);
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    let berth = yard.open();
    let first = berth.acquire("a", &resolved(&server, &image)).await;
    assert_eq!(verify(&berth, &first.key).await, VerifyOutcome::Ok);

    let running = std::fs::File::open(&first.disk).unwrap();
    damage(&first.disk);
    assert_eq!(verify(&berth, &first.key).await, VerifyOutcome::Rebuilt);
    assert_eq!(check(yard.root()).len(), 1);
    let second = berth.acquire("a", &resolved(&server, &image)).await;
    assert!(second.cached);
    assert_eq!(second.metadata.checksum, first.metadata.checksum, "the same bytes again");
    // Who has the old file open still has it.
    assert_eq!(running.metadata().unwrap().len(), first.metadata.size_bytes);
    assert_eq!(verify(&berth, &first.key).await, VerifyOutcome::Ok);
    let corrupt = "portolan_agent_cache_verifications_total{result=\"corrupt\"}";
    assert_eq!(berth.metric(corrupt), 1.0);
}

/// Where it came from outlives the process, so that it can be built again even without layers.
#[tokio::test]
async fn a_damaged_disk_is_fetched_again_after_a_restart() {
    let image = small(61);
    let server = FaultServer::holding(&image);
    let mut yard = Yard::new();
    yard.config.cache.keep_blobs = false;
    let first = yard.open().acquire("a", &resolved(&server, &image)).await;
    damage(&first.disk);
    let berth = yard.open();
    assert!(!berth.blob_exists(&crate::harness::layer_of(&image)));
    assert_eq!(verify(&berth, &first.key).await, VerifyOutcome::Rebuilt);
    assert_eq!(check(yard.root()).len(), 1);
}

#[tokio::test]
async fn a_damaged_disk_that_cannot_be_built_again_is_given_to_nobody() {
    let image = small(62);
    let mut yard = Yard::new();
    yard.config.cache.keep_blobs = false;
    yard.config.pull.retries = 0;
    let berth = yard.open();
    let server = FaultServer::holding(&image);
    let wanted = resolved(&server, &image);
    let first = berth.acquire("a", &wanted).await;
    server.always("GET", "", Fault::status(403));
    damage(&first.disk);
    assert_eq!(verify(&berth, &first.key).await, VerifyOutcome::CorruptInUse);
    assert!(first.disk.exists(), "an instance may be running from it");
    assert!(berth.try_acquire("b", &wanted).await.is_err());
    assert!(berth.artifacts.cache().rootdisks.is_empty());

    // It goes with the last who has it.
    berth.artifacts.release(&id("a"));
    assert!(!first.disk.exists());
}

#[tokio::test]
async fn a_damaged_disk_that_nobody_has_and_nobody_can_build_is_removed() {
    let image = small(64);
    let mut yard = Yard::new();
    yard.config.cache.keep_blobs = false;
    yard.config.pull.retries = 0;
    let berth = yard.open();
    let server = FaultServer::holding(&image);
    let first = berth.acquire("a", &resolved(&server, &image)).await;
    berth.artifacts.release(&id("a"));
    server.always("GET", "", Fault::status(403));
    damage(&first.disk);
    assert_eq!(verify(&berth, &first.key).await, VerifyOutcome::Removed);
    assert!(!first.disk.exists());
}

/// The same when the agent ends before the instance does.
#[tokio::test]
async fn a_damaged_disk_in_use_is_swept_by_the_next_agent() {
    let image = small(63);
    let mut yard = Yard::new();
    yard.config.cache.keep_blobs = false;
    yard.config.pull.retries = 0;
    let berth = yard.open();
    let server = FaultServer::holding(&image);
    let first = berth.acquire("a", &resolved(&server, &image)).await;
    server.always("GET", "", Fault::status(403));
    damage(&first.disk);
    assert_eq!(verify(&berth, &first.key).await, VerifyOutcome::CorruptInUse);
    drop(berth);
    let berth = yard.open();
    assert!(!first.disk.exists());
    let unknown = berth.artifacts.verify(&first.key, &CancellationToken::new()).await;
    assert!(matches!(unknown, Err(VerifyError::Unknown { .. })));
    berth.artifacts.release(&id("a"));
}
