use portolan_rootdisk::checksum::Checksum;
use portolan_rootdisk::meta::FilesystemType;

use super::*;

fn digest(text: &str) -> Digest {
    Digest::sha256(text.as_bytes())
}

fn id(text: &str) -> DiskId {
    DiskId::new(digest(text), "1")
}

fn disk(id: &DiskId) -> Disk {
    let metadata = Metadata {
        resolved_digest: id.resolved_digest,
        rootdisk_key: id.key(),
        rootdisk_format_version: id.format_version.clone(),
        build_timestamp: jiff::Timestamp::UNIX_EPOCH,
        filesystem_type: FilesystemType::Ext4,
        size_bytes: 4096,
        allocated_bytes: 4096,
        checksum: Checksum::from_bytes([0; 32]),
        layers: 1,
        files: 1,
        inodes: 12,
        verity: None,
    };
    Disk { path: PathBuf::new(), metadata: Arc::new(metadata), allocated_bytes: 4096 }
}

/// Two images, each of a config, a layer of its own and one layer that both have.
fn two_images() -> State {
    let mut state = State { reconciled: true, ..State::default() };
    for image in ["a", "b"] {
        let (config, own) = (digest(&format!("{image}-config")), digest(&format!("{image}-layer")));
        let layers = vec![own, digest("base")];
        for (blob, bytes) in [(config, 10), (own, 20), (digest("base"), 30)] {
            state.insert_blob(blob, bytes);
        }
        let entry = ManifestEntry { allocated_bytes: 5, config, layers };
        state.insert_manifest(digest(image), entry);
        state.insert_disk(id(image), disk(&id(image)));
    }
    state
}

fn named<'a>(all: &'a [Candidate<Item>], item: &Item) -> &'a Candidate<Item> {
    all.iter().find(|c| c.name == *item).unwrap()
}

#[test]
fn what_a_disk_needs_to_start_stays_and_layers_may_go() {
    let mut state = two_images();
    state.pin(&"i".parse().unwrap(), Some(id("a")));
    let all = state.candidates();
    let of = |item: &Item| {
        let found = named(&all, item);
        (found.rank, found.pinned)
    };
    assert_eq!(of(&Item::Disk(id("a"))), (Rank::Disk, true));
    assert_eq!(of(&Item::Disk(id("b"))), (Rank::Disk, false));
    assert_eq!(of(&Item::Blob(digest("a-layer"))), (Rank::BlobOfPinned, false));
    assert_eq!(of(&Item::Blob(digest("base"))), (Rank::BlobOfPinned, false));
    assert_eq!(of(&Item::Blob(digest("b-layer"))), (Rank::Blob, false));
    let free: u64 = all.iter().filter(|c| !c.pinned).map(|c| c.bytes).sum();
    assert_eq!(state.evictable_bytes(), free);
    for kept in [
        Item::Blob(digest("a-config")),
        Item::Blob(digest("b-config")),
        Item::Manifest(digest("a")),
        Item::Manifest(digest("b")),
    ] {
        assert!(of(&kept).1, "{kept:?}");
        assert!(!state.may_go(&kept), "{kept:?}");
    }
    // Without their disk they are nobody's.
    state.remove_disk(&id("b"));
    assert!(state.may_go(&Item::Manifest(digest("b"))));
    assert!(state.may_go(&Item::Blob(digest("b-config"))));
}

#[test]
fn what_is_being_built_stays_with_all_its_layers() {
    let mut state = two_images();
    state.remove_disk(&id("a"));
    state.remove_disk(&id("b"));
    state.hold(&id("b"));
    state.hold(&id("b"));
    state.unhold(&id("b"));
    for kept in ["b-layer", "base", "b-config"] {
        assert!(!state.may_go(&Item::Blob(digest(kept))), "{kept}");
    }
    assert!(state.may_go(&Item::Blob(digest("a-layer"))));
    state.unhold(&id("b"));
    assert!(state.may_go(&Item::Blob(digest("base"))));
}

#[test]
fn before_pins_are_compared_with_instances_no_disk_goes() {
    let mut state = two_images();
    assert!(state.may_go(&Item::Disk(id("b"))));
    state.reconciled = false;
    assert!(!state.may_go(&Item::Disk(id("b"))));
    assert!(state.may_go(&Item::Blob(digest("b-layer"))));
}

#[test]
fn a_pin_that_was_given_back_is_not_confirmed() {
    let mut state = two_images();
    let instance: InstanceId = "i".parse().unwrap();
    assert!(!state.confirm(&instance, &id("a")));
    state.pin(&instance, Some(id("b")));
    assert!(state.confirm(&instance, &id("a")));
    assert_eq!(state.pins.of(&instance), Some(&id("a")));
}

/// What may not go, found by walking through everything.
fn needed(state: &State) -> (HashSet<Digest>, HashSet<Digest>) {
    let (mut manifests, mut kept) = (HashSet::new(), HashSet::new());
    for disk in state.disks.keys().chain(state.pins.pinned()).chain(state.holds.keys()) {
        manifests.insert(disk.resolved_digest);
        kept.extend(state.manifests.get(&disk.resolved_digest).map(|entry| entry.config));
    }
    for disk in state.holds.keys() {
        let entry = state.manifests.get(&disk.resolved_digest);
        kept.extend(entry.iter().flat_map(|entry| &entry.layers));
    }
    (manifests, kept)
}

/// The sums, found by walking through everything: all, and what may go.
fn walked(state: &State) -> (u64, u64) {
    let (manifests, kept) = needed(state);
    let disks = state.disks.iter().map(|(id, d)| (d.allocated_bytes, !state.is_pinned(id)));
    let blobs = state.ledger.blobs().iter().map(|(d, bytes)| (*bytes, !kept.contains(d)));
    let documents = state.manifests.iter();
    let documents = documents.map(|(d, e)| (e.allocated_bytes, !manifests.contains(d)));
    disks.chain(blobs).chain(documents).fold((0, 0), |(all, free), (bytes, may_go)| {
        (all + bytes, free + if may_go { bytes } else { 0 })
    })
}

proptest::proptest! {
    /// Any changes in any order, most of them senseless: the sums are those of a walk, and so is
    /// what each thing may do.
    #[test]
    fn sums_are_those_of_a_walk_whatever_happened(
        steps in proptest::collection::vec((0..11_u8, 0..3_usize, 0..2_usize, 1..1000_u64), 0..120)
    ) {
        let mut state = State::default();
        for (what, image, other, bytes) in steps {
            let name = ["a", "b", "c"][image];
            // Two versions of each disk; configs and layers that images share.
            let disk_id = DiskId::new(digest(name), ["1", "2"][other]);
            let blob = digest(["config", "x", "y"][image]);
            let instance: InstanceId = ["i", "j"][other].parse().unwrap();
            let entry = ManifestEntry {
                allocated_bytes: bytes,
                config: digest(["config", "x"][other]),
                layers: vec![digest("x"), digest("y"), digest("y")],
            };
            match what {
                0 => drop(state.pin(&instance, Some(disk_id))),
                1 => drop(state.pin(&instance, None)),
                2 => state.hold(&disk_id),
                3 => state.unhold(&disk_id),
                4 => {
                    let made = Disk { allocated_bytes: bytes, ..disk(&disk_id) };
                    state.insert_disk(disk_id, made);
                }
                5 => drop(state.remove_disk(&disk_id)),
                6 => state.insert_blob(blob, bytes),
                7 => drop(state.remove_blob(&blob)),
                8 => state.insert_manifest(digest(name), entry),
                9 => state.remove_manifest(&digest(name)),
                _ => state.reconcile([(instance, disk_id)]),
            }
            proptest::prop_assert_eq!((state.bytes(), state.evictable_bytes()), walked(&state));
            let free: u64 =
                state.candidates().iter().filter(|c| !c.pinned).map(|c| c.bytes).sum();
            proptest::prop_assert_eq!(state.evictable_bytes(), free);
        }
        // What is said to go with its disks may go once they are gone.
        let gone: Vec<DiskId> =
            state.disks.keys().filter(|id| !state.is_pinned(id)).cloned().collect();
        let documents = state.documents_without(&gone);
        for id in &gone {
            state.remove_disk(id);
        }
        for document in documents {
            proptest::prop_assert!(state.may_go(&document.name), "{:?}", document.name);
        }
    }
}

#[test]
fn what_a_disk_alone_needs_goes_with_it() {
    let mut state = two_images();
    let named = |all: Vec<Candidate<Item>>| -> HashSet<String> {
        all.iter().map(|c| format!("{:?}", c.name)).collect()
    };
    let all = state.documents_without(&[id("a"), id("b")]);
    assert_eq!(all.len(), 4, "a manifest and a config each");
    let one = named(state.documents_without(&[id("a")]));
    let manifest = Item::Manifest(digest("a"));
    assert_eq!(
        one,
        named(vec![
            state.candidate(manifest, 5),
            state.candidate(Item::Blob(digest("a-config")), 10),
        ])
    );
    state.pin(&"i".parse().unwrap(), Some(id("a")));
    assert!(state.documents_without(&[id("a")]).is_empty(), "somebody pins it");
}

#[test]
fn a_build_that_had_no_room_speaks_for_the_next_ones_for_a_while() {
    let mut state = State::default();
    let now = Instant::now();
    state.miss(7, now);
    assert_eq!(state.shortfall(now + SHORTFALL_COUNTS / 2), Some(7));
    assert_eq!(state.shortfall(now + SHORTFALL_COUNTS), None);
    state.miss_nothing();
    assert_eq!(state.shortfall(now), None);
}
