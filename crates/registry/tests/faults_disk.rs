//! Trouble on our own side: a full disk, a read-only layout, a directory that is none, a damaged
//! layout, a copy that is given up half way.

mod support;

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::Digest;
use portolan_registry::ErrorClass::{BadInput, Local, NotFound};
use portolan_registry::copy::{CopyOptions, copy};
use portolan_registry::layout::Layout;
use portolan_registry::progress::Silent;

use support::disk::Mount;
use support::fault::{Fault, FaultServer, within};
use support::image::Image;
use support::layouts;
use support::setup::{Harbour, chain, client, in_layout, plain_copy};

#[tokio::test]
async fn a_disk_that_is_full() {
    let Some(disk) = Mount::tmpfs(1024 * 1024) else { return };
    let small = Image::single("linux/amd64", &[10_000], 1);
    let large = Image::single("linux/amd64", &[5_000, 3_000_000, 2_000_000], 2);
    let (first, second) = (FaultServer::holding(&small), FaultServer::holding(&large));
    let dir = disk.join("layout");
    let to = in_layout(&dir, "v1");
    plain_copy(&first.reference(":v1"), &to).await.unwrap();
    let before = layouts::index_json(&dir);

    let error = within(20, plain_copy(&second.reference(":v1"), &to)).await.unwrap_err();

    assert_eq!(error.class(), Some(Local), "{}", chain(&error));
    assert!(chain(&error).contains("no room to write"), "{}", chain(&error));
    assert!(chain(&error).contains(disk.join("").to_str().unwrap()), "{}", chain(&error));
    assert_eq!(layouts::index_json(&dir), before);
    layouts::assert_holds(&dir, &small);
    // What failed gave its room back: something small fits again.
    let third = Image::single("linux/amd64", &[20_000], 3);
    let server = FaultServer::holding(&third);
    plain_copy(&server.reference(":v1"), &to).await.unwrap();
    layouts::assert_holds(&dir, &third);
}

/// Not everybody stops at the first error: a library that tries on must not get a name for half of it.
#[test]
fn content_that_was_half_written_gets_no_name() {
    use std::io::Write as _;
    let Some(disk) = Mount::tmpfs(1024 * 1024) else { return };
    let dir = disk.join("layout");
    let layout = Layout::create(&dir).unwrap();
    let before = layouts::snapshot(&dir);

    let mut made = layout.new_blob().unwrap();
    assert!(made.write_all(&vec![1; 3_000_000]).is_err());
    assert!(made.write_all(b"").is_ok() && made.write_all(b"on").is_err());
    let error = made.keep().unwrap_err();
    assert_eq!(error.class(), Local, "{error}");
    assert!(error.to_string().contains("no room to write"), "{error}");

    let mut named = layout.blob_writer(Digest::sha256(b""), None).unwrap();
    assert!(named.write(&vec![1; 3_000_000]).is_err());
    assert!(named.commit().is_err(), "none of it was counted, and it is not empty");
    assert_eq!(layouts::snapshot(&dir), before);
}

#[tokio::test]
async fn a_layout_that_is_read_only() {
    let Some(disk) = Mount::tmpfs(1024 * 1024) else { return };
    let (old, new) = (Image::multi(&["linux/amd64"], 1), Image::multi(&["linux/arm64"], 2));
    let (first, second) = (FaultServer::holding(&old), FaultServer::holding(&new));
    let dir = disk.join("layout");
    plain_copy(&first.reference(":v1"), &in_layout(&dir, "v1")).await.unwrap();
    disk.make_read_only();
    let before = layouts::snapshot(&dir);

    let to = in_layout(&dir, "v1");
    let error = within(20, plain_copy(&second.reference(":v1"), &to)).await.unwrap_err();
    assert_eq!(error.class(), Some(Local), "{}", chain(&error));
    assert!(chain(&error).contains("cannot be written"), "{}", chain(&error));
    assert_eq!(layouts::snapshot(&dir), before);

    let fresh = in_layout(&disk.join("fresh"), "v1");
    let error = within(20, plain_copy(&second.reference(":v1"), &fresh)).await.unwrap_err();
    assert_eq!(error.class(), Some(Local), "{}", chain(&error));
    assert!(chain(&error).contains("fresh"), "{}", chain(&error));

    // Reading from it still works.
    let other = tempfile::tempdir().unwrap();
    plain_copy(&to, &in_layout(other.path(), "v1")).await.unwrap();
    layouts::assert_holds(other.path(), &old);
}

#[tokio::test]
async fn a_source_that_is_no_layout() {
    let empty = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (in_layout(empty.path(), "v1"), in_layout(&dir.path().join("new"), "v1"));
    let error = plain_copy(&from, &to).await.unwrap_err();
    assert_eq!(error.class(), Some(NotFound), "{}", chain(&error));
    assert!(chain(&error).contains("not an OCI layout"), "{}", chain(&error));
    assert!(!dir.path().join("new").exists(), "no layout is made for nothing");
}

#[tokio::test]
async fn a_destination_that_is_a_file() {
    let server = FaultServer::holding(&Image::multi(&["linux/amd64"], 1));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, b"precious").unwrap();
    let error = plain_copy(&server.reference(":v1"), &in_layout(&path, "v1")).await.unwrap_err();
    assert_eq!(error.class(), Some(Local), "{}", chain(&error));
    assert!(chain(&error).contains("file"), "{}", chain(&error));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

/// A blob that rotted on disk is not passed on, neither by link nor by upload.
#[tokio::test]
async fn a_layout_with_a_damaged_blob() {
    let harbour = Harbour::new().await;
    let (layer, bytes) = harbour.old.largest_blob();
    let mut rotten = bytes.to_vec();
    rotten[12_345] ^= 4;
    std::fs::write(harbour.dir.join("blobs/sha256").join(layer.hex()), rotten).unwrap();

    let other = tempfile::tempdir().unwrap();
    let from = in_layout(&harbour.dir, "v1");
    let error = plain_copy(&from, &in_layout(other.path(), "v1")).await.unwrap_err();
    assert_eq!(error.class(), Some(BadInput), "{}", chain(&error));
    assert!(chain(&error).contains(&layer.to_string()), "{}", chain(&error));
    assert!(!layouts::has(other.path(), &layer));
    layouts::assert_nothing_half_written(other.path());

    let server = FaultServer::start("127.0.0.1", None);
    let error = plain_copy(&from, &server.reference(":v1")).await.unwrap_err();
    assert!(chain(&error).contains(&layer.to_string()), "{}", chain(&error));
    let registry = server.registry();
    let repository = registry.repositories.values().next().unwrap();
    assert!(!repository.blobs.contains_key(&layer) && repository.tags.is_empty());
}

/// A blob of the wrong size under its name is damage, and the copy repairs it.
#[tokio::test]
async fn a_truncated_blob_at_the_destination_is_replaced() {
    let image = Image::multi(&["linux/amd64", "linux/arm64"], 4);
    let server = FaultServer::holding(&image);
    let dir = tempfile::tempdir().unwrap();
    let to = in_layout(dir.path(), "v1");
    plain_copy(&server.reference(":v1"), &to).await.unwrap();
    let (layer, bytes) = image.largest_blob();
    let path = dir.path().join("blobs/sha256").join(layer.hex());
    std::fs::write(path, &bytes[..100]).unwrap();
    plain_copy(&server.reference(":v1"), &to).await.unwrap();
    layouts::assert_holds(dir.path(), &image);
}

#[tokio::test]
async fn a_copy_that_is_dropped_leaves_no_file() {
    let image = Image::single("linux/amd64", &[2_000_000, 1_500_000, 900_000], 5);
    let server = FaultServer::holding(&image);
    for layer in image.blobs.keys() {
        // More than a batch, so that files are open and hold bytes, and never all of it.
        server.always("GET", format!("/blobs/{layer}"), Fault::HangAfter(700_000));
    }
    let harbour = Harbour::new().await;
    let before = layouts::index_json(&harbour.dir);
    let (from, to) = (server.reference(":v1"), in_layout(&harbour.dir, "v1"));
    let (client, options) = (client(), CopyOptions::default());
    let copying = copy(&from, &to, &client, &options, Arc::new(Silent));
    let given_up = tokio::time::timeout(Duration::from_millis(250), copying).await;
    assert!(given_up.is_err(), "the copy was to be in the middle");
    // Threads that were writing remove their files when they notice.
    for _ in 0..1000 {
        if std::panic::catch_unwind(|| layouts::assert_nothing_half_written(&harbour.dir)).is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(layouts::index_json(&harbour.dir), before);
    layouts::assert_holds(&harbour.dir, &harbour.old);
    let layers = image.blobs.iter().filter(|(_, bytes)| bytes.len() > 100_000);
    assert!(layers.map(|(layer, _)| layer).all(|layer| !layouts::has(&harbour.dir, layer)));
}

/// What arrived before a failure is not fetched again.
#[tokio::test]
async fn a_second_try_goes_on_where_the_first_ended() {
    let image = Image::multi(&["linux/amd64", "linux/arm64"], 6);
    let server = FaultServer::holding(&image);
    let child = image.as_index().manifests[0].digest;
    // One blob at a time, the largest first: the smallest fails when all others have arrived.
    let last = |(digest, bytes): &(&Digest, &Vec<u8>)| (bytes.len(), Reverse(**digest));
    let (last, bytes) = image.blobs.iter().min_by_key(last).unwrap();
    server.script("GET", format!("/blobs/{last}"), vec![Fault::status(404)]);
    let options = CopyOptions { parallel: 1.try_into().unwrap(), ..CopyOptions::default() };
    let harbour = Harbour::new().await;
    let (from, to) = (server.reference(":v1"), in_layout(&harbour.dir, "v1"));
    let (client, silent) = (client(), Arc::new(Silent));
    copy(&from, &to, &client, &options, silent.clone()).await.unwrap_err();
    let report = copy(&from, &to, &client, &options, silent.clone()).await.unwrap();
    assert_eq!(report.bytes, bytes.len() as u64, "the rest was there");
    let before = server.seen().len();
    let again = copy(&from, &to, &client, &options, silent).await.unwrap();
    assert_eq!(again.bytes, 0);
    let blobs = server.seen()[before..].iter().filter(|s| s.path.contains("/blobs/")).count();
    assert_eq!(blobs, 0, "nothing is fetched twice");
    assert!(layouts::has(&harbour.dir, &child));
}
