//! The index over what platforms pushed, or no index.

use portolan_build::steps::StepError;
use portolan_build::steps::index::{Assembly, Said, assemble};
use portolan_core::manifest::Document;
use portolan_core::{Descriptor, Digest};
use portolan_registry::layout::Layout;

use crate::{Yard, for_platform, image, index};

impl Yard {
    fn assemble(&self, platforms: &[(&str, Digest)]) -> Result<Descriptor, StepError> {
        let said = |(platform, digest): &(&str, Digest)| Said {
            platform: platform.parse().unwrap(),
            digest: *digest,
        };
        let request = Assembly {
            image: self.reference("1"),
            platforms: platforms.iter().map(said).collect(),
            sources: Vec::new(),
            annotations: [("team".to_owned(), "blue".to_owned())].into(),
        };
        self.block(assemble(&request, &self.client()))
    }
}

#[test]
fn platforms_stand_in_the_order_asked_for_and_a_second_run_changes_nothing() {
    let yard = Yard::new();
    let arm = yard.push("1-linux-arm64", "linux/arm64");
    let amd = yard.push("1-linux-amd64", "linux/amd64");
    let platforms = [("linux/arm64", arm), ("linux/amd64", amd)];
    let first = yard.assemble(&platforms).unwrap();
    assert_eq!(yard.digest("1"), Some(first.digest));
    let Document::Index(found) = yard.document("1") else { panic!() };
    let listed: Vec<String> =
        found.manifests.iter().map(|entry| entry.platform.clone().unwrap().to_string()).collect();
    assert_eq!(listed, ["linux/arm64", "linux/amd64"]);
    assert_eq!(found.annotations["team"], "blue");
    assert_eq!(yard.assemble(&platforms).unwrap().digest, first.digest);
}

#[test]
fn what_an_image_really_is_counts_and_nothing_is_published_otherwise() {
    let yard = Yard::new();
    let amd = yard.push("1-linux-amd64", "linux/amd64");
    let error = yard.assemble(&[("linux/amd64", amd), ("linux/arm64", amd)]).unwrap_err();
    assert_eq!((error.reason, error.exit), ("PlatformMismatch", 1));
    let told = portolan_core::causes::chain(&error);
    assert!(told.contains("linux/amd64 came out where linux/arm64 was asked for"), "{told}");
    assert_eq!(yard.digest("1"), None);
}

#[test]
fn an_image_that_was_never_pushed_fails_and_publishes_nothing() {
    let yard = Yard::new();
    let amd = yard.push("1-linux-amd64", "linux/amd64");
    let nothing = Digest::sha256(b"never pushed");
    let error = yard.assemble(&[("linux/amd64", amd), ("linux/arm64", nothing)]).unwrap_err();
    assert_eq!((error.reason, error.exit), ("ImageIndexAssemblyFailed", 4));
    assert!(error.to_string().contains("linux/arm64"), "{error}");
    assert_eq!(yard.digest("1"), None);
    assert_eq!(yard.assemble(&[]).unwrap_err().reason, "ImageIndexAssemblyFailed");
    let twice = yard.assemble(&[("linux/amd64", amd), ("linux/amd64", amd)]).unwrap_err();
    assert_eq!(twice.reason, "ImageIndexAssemblyFailed");
}

/// As BuildKit pushes one platform: an index with the image and an attestation.
#[test]
fn of_a_child_that_is_an_index_the_image_is_taken_and_indexes_are_never_nested() {
    let yard = Yard::new();
    let layout = Layout::create(&yard.folder("attested")).unwrap();
    let arm = image(&layout, "linux/arm64", "arm");
    let amd = image(&layout, "linux/amd64", "amd");
    let attestation = for_platform("unknown/unknown", image(&layout, "linux/amd64", "words"));
    let child = index(&layout, vec![for_platform("linux/arm64", arm.clone()), attestation.clone()]);
    let child = yard.push_from(&layout, &child, "1-linux-arm64");
    let made = yard.assemble(&[("linux/arm64", child)]).unwrap();
    let Document::Index(found) = yard.document("1") else { panic!() };
    assert_eq!(found.manifests.len(), 1);
    assert_eq!(found.manifests[0].digest, arm.digest);
    assert_eq!(yard.digest("1"), Some(made.digest));
    // Two that would do, and none that does.
    let twin = image(&layout, "linux/arm64", "twin");
    let both = vec![for_platform("linux/arm64", arm), for_platform("linux/arm64", twin)];
    let twins = index(&layout, both);
    let twins = yard.push_from(&layout, &twins, "twins");
    // What the entry says and the configuration does not: the configuration counts.
    let liar = index(&layout, vec![for_platform("linux/arm64", amd)]);
    let liar = yard.push_from(&layout, &liar, "liar");
    let empty = index(&layout, vec![attestation]);
    let empty = yard.push_from(&layout, &empty, "empty");
    for child in [twins, liar, empty] {
        let error = yard.assemble(&[("linux/arm64", child)]).unwrap_err();
        assert_eq!(error.reason, "PlatformMismatch", "{error}");
    }
    assert_eq!(yard.digest("1"), Some(made.digest), "what was published stays as it was");
}
