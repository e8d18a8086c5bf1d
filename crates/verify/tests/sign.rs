//! What is signed in an image, and what is left when it is signed twice, on a layout.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use aws_lc_rs::signature::Ed25519KeyPair;
use portolan_core::{Descriptor, Index, Manifest, Platform, Target, media_type};
use portolan_registry::images::{EntryError, Place};
use portolan_registry::layout::Layout;
use portolan_verify::key::PrivateKey;
use portolan_verify::sign::{Form, SignError, Signature, sign, subjects};
use portolan_verify::sigstore::BUNDLE;
use portolan_verify::subject::{Kind, Subject};

/// A layout to fill.
struct Yard {
    dir: tempfile::TempDir,
    place: Place,
}

impl Yard {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Layout(Layout::create(dir.path()).unwrap());
        Self { dir, place }
    }

    async fn image(&self, platform: &str) -> Descriptor {
        let (os, architecture) = platform.split_once('/').unwrap();
        let config = format!(r#"{{"os":"{os}","architecture":"{architecture}"}}"#);
        let config = self.place.push_blob(media_type::OCI_CONFIG, config.into()).await.unwrap();
        let manifest = Manifest::new(config, Vec::new()).to_vec();
        let kind = media_type::OCI_MANIFEST;
        let stored = self.place.push_manifest(kind, manifest.into(), None).await.unwrap();
        let platform: Platform = platform.parse().unwrap();
        Descriptor { platform: Some(platform), ..stored }
    }

    async fn index(&self, entries: &[Descriptor]) -> Descriptor {
        let index = Index::new(entries.to_vec()).to_vec();
        let stored = self.place.push_manifest(media_type::OCI_INDEX, index.into(), None).await;
        stored.unwrap()
    }

    async fn subjects(&self, top: &Descriptor) -> Result<Vec<Subject>, SignError> {
        let top = self.place.manifest(&Target::Digest(top.digest)).await.unwrap();
        subjects(&self.place, &top, true).await
    }

    async fn sign(&self, subject: &Descriptor, key: &PrivateKey, form: Form) -> Signature {
        sign(&self.place, subject, key, form).await.unwrap()
    }

    /// Loses the content of the artifact's first layer.
    async fn lose_layer_of(&self, signature: &Signature) {
        let fetched = self.place.manifest(&Target::Digest(signature.artifact)).await.unwrap();
        let portolan_core::Document::Manifest(manifest) = fetched.document else { panic!() };
        let blob = self.dir.path().join("blobs/sha256").join(manifest.layers[0].digest.hex());
        std::fs::remove_file(blob).unwrap();
    }
}

fn ed25519() -> PrivateKey {
    let pair = Ed25519KeyPair::generate().unwrap();
    PrivateKey::from_pkcs8(pair.to_pkcs8().unwrap().as_ref()).unwrap()
}

#[tokio::test]
async fn indexes_and_images_are_signed_and_what_does_not_run_is_not() {
    let yard = Yard::new();
    let amd64 = yard.image("linux/amd64").await;
    let arm64 = yard.image("linux/arm64").await;
    let nested = yard.index(&[arm64.clone(), amd64.clone()]).await;
    // A mark that runtimes do not look at: whoever verifies asks for its signature, too.
    let mut marked = yard.image("linux/riscv64").await;
    let name = "vnd.docker.reference.type".to_owned();
    marked.annotations.insert(name, "attestation-manifest".to_owned());
    let mut unknown = yard.image("linux/s390x").await;
    unknown.platform = Some("unknown/unknown".parse().unwrap());
    let entries = [amd64.clone(), marked.clone(), nested.clone(), unknown, amd64.clone()];
    let top = yard.index(&entries).await;
    let found = yard.subjects(&top).await.unwrap();
    let found: Vec<_> = found.iter().map(|one| (one.descriptor.digest, one.kind)).collect();
    let expected = [
        (top.digest, Kind::Index),
        (amd64.digest, Kind::Manifest),
        (marked.digest, Kind::Manifest),
        (nested.digest, Kind::Index),
        (arm64.digest, Kind::Manifest),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn an_index_that_lies_or_has_no_end_is_not_signed() {
    let yard = Yard::new();
    let inner = yard.index(&[]).await;
    let lie = Descriptor { media_type: media_type::OCI_MANIFEST.to_owned(), ..inner.clone() };
    let lying = yard.index(&[lie]).await;
    let error = yard.subjects(&lying).await.unwrap_err();
    assert!(matches!(error, SignError::Entry(EntryError::OtherKind { .. })), "{error}");
    let lie = Descriptor { size: inner.size + 1, ..inner.clone() };
    let error = yard.subjects(&yard.index(&[lie]).await).await.unwrap_err();
    assert!(matches!(error, SignError::Entry(EntryError::OtherSize { .. })), "{error}");
    let mut deep = inner;
    for _ in 0..6 {
        deep = yard.index(&[deep]).await;
    }
    let error = yard.subjects(&deep).await.unwrap_err();
    assert!(matches!(error, SignError::TooMany { .. }), "{error}");
}

#[tokio::test]
async fn a_signature_whose_content_is_gone_is_made_again() {
    let yard = Yard::new();
    let image = yard.image("linux/amd64").await;
    let key = PrivateKey::generate().unwrap();
    for form in [Form::Bundle, Form::Simple] {
        let first = yard.sign(&image, &key, form).await;
        assert!(!first.existing);
        assert!(yard.sign(&image, &key, form).await.existing, "{form:?}");
        yard.lose_layer_of(&first).await;
        assert!(!yard.sign(&image, &key, form).await.existing, "{form:?}");
        assert!(yard.sign(&image, &key, form).await.existing, "{form:?}");
    }
}

#[tokio::test]
async fn an_attestation_of_the_same_key_is_no_signature() {
    let yard = Yard::new();
    let image = yard.image("linux/amd64").await;
    let key = PrivateKey::generate().unwrap();
    let said = support::statement(&image.digest, "https://spdx.dev/Document");
    let said = serde_json::to_vec(&said).unwrap();
    let sealed = support::envelope(&said, |message| key.sign(message).unwrap());
    let material = serde_json::json!({"publicKey": {"hint": ""}});
    let sealed = support::bundle(material, ("dsseEnvelope", sealed));
    let sealed = serde_json::to_vec(&sealed).unwrap();
    let empty = yard.place.push_blob(media_type::OCI_EMPTY, "{}".into()).await.unwrap();
    let layer = yard.place.push_blob(BUNDLE, sealed.into()).await.unwrap();
    let artifact = Manifest {
        artifact_type: Some(BUNDLE.to_owned()),
        subject: Some(Descriptor::new(&image.media_type, image.digest, image.size)),
        ..Manifest::new(empty, vec![layer])
    };
    let kind = media_type::OCI_MANIFEST;
    yard.place.push_manifest(kind, artifact.to_vec().into(), None).await.unwrap();
    assert!(!yard.sign(&image, &key, Form::Bundle).await.existing);
}

#[tokio::test]
async fn a_key_that_signs_alike_each_time_makes_the_same_artifact() {
    let (one, two, key) = (Yard::new(), Yard::new(), ed25519());
    for form in [Form::Bundle, Form::Simple] {
        let first = one.sign(&one.image("linux/amd64").await, &key, form).await;
        let second = two.sign(&two.image("linux/amd64").await, &key, form).await;
        assert_eq!(first, second);
    }
}
