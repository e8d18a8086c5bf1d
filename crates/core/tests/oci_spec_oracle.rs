//! oci-spec reads what we write, to the same values, and we read what it writes.

use std::collections::BTreeMap;

use oci_spec::image as oracle;
use portolan_core::{Descriptor, Digest, Document, Index, Manifest, Platform, media_type};
use proptest::prelude::*;

fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("[a-zA-Z.]{1,12}", "\\PC{0,12}", 0..4)
}

fn platform() -> impl Strategy<Value = Platform> {
    (
        prop::sample::select(vec!["linux", "windows", "unknown"]),
        prop::sample::select(vec!["amd64", "arm64", "unknown", "riscv64"]),
        prop::option::of("v[1-9]"),
    )
        .prop_map(|(os, architecture, variant)| Platform {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant,
            os_version: None,
            os_features: Vec::new(),
        })
}

prop_compose! {
    fn descriptor()(
        media_type in prop::sample::select(vec![media_type::OCI_MANIFEST, media_type::OCI_CONFIG, "application/vnd.example.thing"]),
        content in any::<u64>(),
        size in any::<u64>(),
        urls in prop::collection::vec("https://[a-z]{1,8}/", 0..2),
        annotations in annotations(),
        platform in prop::option::of(platform()),
        artifact_type in prop::option::of("application/[a-z]{1,8}"),
    ) -> Descriptor {
        Descriptor {
            urls, annotations, platform, artifact_type,
            ..Descriptor::new(media_type, Digest::sha256(&content.to_be_bytes()), size)
        }
    }
}

fn same(ours: &Descriptor, theirs: &oracle::Descriptor) {
    assert_eq!(ours.media_type, theirs.media_type().to_string());
    assert_eq!(ours.digest.to_string(), theirs.digest().to_string());
    assert_eq!(ours.size, theirs.size());
    assert_eq!(ours.urls, theirs.urls().clone().unwrap_or_default());
    let sorted: BTreeMap<_, _> =
        theirs.annotations().clone().unwrap_or_default().into_iter().collect();
    assert_eq!(ours.annotations, sorted);
    assert_eq!(ours.artifact_type, theirs.artifact_type().as_ref().map(ToString::to_string));
    match (&ours.platform, theirs.platform()) {
        (Some(ours), Some(theirs)) => {
            assert_eq!(ours.os, theirs.os().to_string());
            assert_eq!(ours.architecture, theirs.architecture().to_string());
            assert_eq!(ours.variant, *theirs.variant());
        }
        (ours, theirs) => assert_eq!(ours.is_some(), theirs.is_some()),
    }
}

proptest! {
    #[test]
    fn an_index_means_the_same_to_both(
        entries in prop::collection::vec(descriptor(), 0..4),
        annotations in annotations(),
        subject in prop::option::of(descriptor()),
    ) {
        let index = Index { annotations, subject, ..Index::new(entries) };
        let theirs = oracle::ImageIndex::from_reader(index.to_vec().as_slice()).unwrap();
        prop_assert_eq!(theirs.media_type().as_ref().unwrap().to_string(), media_type::OCI_INDEX);
        prop_assert_eq!(theirs.manifests().len(), index.manifests.len());
        for (ours, theirs) in index.manifests.iter().zip(theirs.manifests()) {
            same(ours, theirs);
        }
        prop_assert_eq!(index.subject.is_some(), theirs.subject().is_some());
        let back = Document::parse(theirs.to_string().unwrap().as_bytes(), None).unwrap();
        prop_assert_eq!(back, Document::Index(index));
    }

    #[test]
    fn a_manifest_means_the_same_to_both(
        config in descriptor(),
        layers in prop::collection::vec(descriptor(), 0..4),
        annotations in annotations(),
        artifact_type in prop::option::of("application/[a-z]{1,8}"),
    ) {
        let manifest = Manifest { annotations, artifact_type, ..Manifest::new(config, layers) };
        let theirs = oracle::ImageManifest::from_reader(manifest.to_vec().as_slice()).unwrap();
        same(&manifest.config, theirs.config());
        for (ours, theirs) in manifest.layers.iter().zip(theirs.layers()) {
            same(ours, theirs);
        }
        let back = Document::parse(theirs.to_string().unwrap().as_bytes(), None).unwrap();
        prop_assert_eq!(back, Document::Manifest(manifest));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Document::parse(&bytes, None);
    }

    #[test]
    fn no_edit_of_a_real_index_makes_it_panic(at in 0_usize..300, byte in any::<u8>()) {
        let mut bytes = Index::new(vec![Descriptor::of(media_type::OCI_MANIFEST, b"")]).to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = Document::parse(&bytes, None);
    }
}

/// The reason for types of our own: when this fails, oci-spec may have caught up.
#[test]
fn oci_spec_still_loses_the_dotted_names() {
    let text =
        r#"{"architecture":"amd64","os":"windows","os.version":"10.0.1","os.features":["win32k"]}"#;
    let theirs: oracle::Platform = serde_json::from_str(text).unwrap();
    assert_eq!((theirs.os_version(), theirs.os_features()), (&None, &None));
    let ours: Platform = serde_json::from_str(text).unwrap();
    assert_eq!(ours.os_version.as_deref(), Some("10.0.1"));
    assert_eq!(ours.os_features, ["win32k"]);
}
