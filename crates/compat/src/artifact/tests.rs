use std::collections::BTreeMap;

use bytes::Bytes;
use portolan_core::{Descriptor, Digest, Document, Index, Manifest, Target, media_type};
use portolan_registry::images::Place;
use portolan_registry::layout::Layout;

use super::*;

/// A layout with one image in an index.
struct Yard {
    _dir: tempfile::TempDir,
    place: Place,
    image: Image,
    manifest: Descriptor,
}

impl Yard {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Layout(Layout::create(dir.path()).unwrap());
        let config =
            place.push_blob(media_type::OCI_CONFIG, Bytes::from_static(b"{}")).await.unwrap();
        let bytes = Manifest::new(config, Vec::new()).to_vec();
        let manifest =
            place.push_manifest(media_type::OCI_MANIFEST, bytes.into(), None).await.unwrap();
        let bytes = Index::new(vec![manifest.clone()]).to_vec();
        let tag = "1".parse().unwrap();
        let top =
            place.push_manifest(media_type::OCI_INDEX, bytes.into(), Some(&tag)).await.unwrap();
        let image = Image { top: top.digest, manifest: manifest.digest };
        Self { _dir: dir, place, image, manifest }
    }

    async fn attach(&self, spec: &str, created: &str) -> Descriptor {
        attach(&self.place, &self.manifest, &attachment(spec, created)).await.unwrap()
    }

    /// An artifact as another tool might write it.
    async fn push(&self, manifest: &Manifest) -> Digest {
        let bytes = Bytes::from(manifest.to_vec());
        self.place.push_manifest(media_type::OCI_MANIFEST, bytes, None).await.unwrap().digest
    }

    async fn find(&self, subject: Subject, which: &Which) -> Result<Found, FindError> {
        find(&self.place, &self.image, subject, which).await
    }

    async fn best(&self) -> Result<Found, FindError> {
        self.find(Subject::Manifest, &Which::Best).await
    }
}

fn attachment(spec: &str, created: &str) -> Attachment {
    Attachment {
        kind: Kind::Spec,
        spec: Bytes::copy_from_slice(spec.as_bytes()),
        plugins: Vec::new(),
        created: created.parse().unwrap(),
    }
}

fn plugin(name: &str, platform: Option<&str>, program: &'static [u8]) -> PluginFile {
    let platform = platform.map(|text| text.parse().unwrap());
    PluginFile { name: name.to_owned(), platform, program: Bytes::from_static(program) }
}

const DAY: &str = "2026-01-02T03:04:05Z";

#[test]
fn the_manifest_is_of_the_shape_that_others_read() {
    let subject = Descriptor {
        platform: Some("linux/amd64".parse().unwrap()),
        annotations: BTreeMap::from([("of the entry".to_owned(), "in its index".to_owned())]),
        ..Descriptor::of(media_type::OCI_MANIFEST, b"an image")
    };
    let mut attachment = attachment("{}", DAY);
    attachment.plugins =
        vec![plugin("gpu", Some("Linux/x86_64"), b"\x7fELF"), plugin("any", None, b"\0asm1")];
    let json: serde_json::Value =
        serde_json::from_slice(&attachment.manifest(&subject).to_vec()).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.oci.image-compatibility.v1",
            "config": {
                "mediaType": "application/vnd.oci.empty.v1+json",
                "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
                "size": 2,
            },
            "layers": [
                {
                    "mediaType": "application/vnd.oci.image-compatibility.spec.v1+json",
                    "digest": Digest::sha256(b"{}"), "size": 2,
                },
                {
                    "mediaType": "application/vnd.oci.image-compatibility.plugin.v1",
                    "digest": Digest::sha256(b"\x7fELF"), "size": 4,
                    "annotations": {
                        "org.opencontainers.image.title": "gpu",
                        "org.opencontainers.image-compatibility.plugin.platform": "linux/amd64",
                    },
                },
                {
                    "mediaType": "application/vnd.oci.image-compatibility.plugin.v1+wasm",
                    "digest": Digest::sha256(b"\0asm1"), "size": 5,
                    "annotations": {"org.opencontainers.image.title": "any"},
                },
            ],
            "subject": {
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": Digest::sha256(b"an image"), "size": 8,
            },
            "annotations": {"org.opencontainers.image.created": DAY},
        })
    );
    let read = contents(&Document::parse(json.to_string().as_bytes(), None).unwrap()).unwrap();
    assert_eq!((read.kind, read.subject), (Kind::Spec, subject.digest));
    assert_eq!(read.created.unwrap().to_string(), DAY);
    let names: Vec<_> = read.plugins.iter().map(|one| (one.name.as_str(), one.wasm)).collect();
    assert_eq!(names, [("gpu", false), ("any", true)]);
    assert_eq!(read.plugins[0].platform.as_ref().unwrap().to_string(), "linux/amd64");
}

#[tokio::test]
async fn what_was_attached_is_found_with_its_plugins() {
    let yard = Yard::new().await;
    assert!(matches!(yard.best().await, Err(FindError::NoArtifact { .. })));
    let mut one = attachment("{\"a\":1}", DAY);
    one.plugins.push(plugin("gpu", Some("linux/amd64"), b"program"));
    let stored = attach(&yard.place, &yard.manifest, &one).await.unwrap();
    let found = yard.best().await.unwrap();
    assert_eq!((found.digest, &found.spec[..]), (stored.digest, &b"{\"a\":1}"[..]));
    let layer = &found.contents.plugins[0].layer;
    assert_eq!(found.place.read_blob(layer, MAX_PLUGIN_BYTES).await.unwrap(), "program");

    yard.place.delete_manifest(&stored.digest).await.unwrap();
    assert!(matches!(yard.best().await, Err(FindError::NoArtifact { .. })));
}

#[tokio::test]
async fn of_several_the_newest_counts_and_the_others_are_named() {
    let yard = Yard::new().await;
    let old = yard.attach("old", "2025-01-01T00:00:00Z").await.digest;
    // Later by the clock although the text sorts before: another offset.
    let new = yard.attach("new", "2026-01-01T00:30:00Z").await.digest;
    let middle = yard.attach("middle", "2026-01-01T01:00:00+01:00").await.digest;
    let undated = {
        let mut manifest = attachment("undated", DAY).manifest(&yard.manifest);
        manifest.annotations.clear();
        yard.place.push_blob(Kind::Spec.spec_type(), Bytes::from_static(b"undated")).await.unwrap();
        yard.push(&manifest).await
    };
    let found = yard.best().await.unwrap();
    assert_eq!((found.digest, &found.spec[..]), (new, &b"new"[..]));
    let skipped: Vec<_> = found.skipped.iter().map(|one| one.digest).collect();
    assert_eq!(skipped, [middle, old, undated]);
    let given = yard.find(Subject::Manifest, &Which::Digest(old)).await.unwrap();
    assert_eq!(&given.spec[..], b"old");
}

#[test]
fn the_choice_is_the_same_for_everybody() {
    let listed = |text: &str, kind, created: Option<&str>| Listed {
        digest: Digest::sha256(text.as_bytes()),
        kind,
        created: created.map(|text| text.parse().unwrap()),
        subject: Digest::sha256(b"image"),
    };
    assert_eq!(choose(Vec::new()), None);
    let (a, b) = (listed("a", Kind::Spec, Some(DAY)), listed("b", Kind::Spec, Some(DAY)));
    let greatest = std::cmp::max_by_key(&a, &b, |one| one.digest.to_string()).digest;
    for list in [vec![a.clone(), b.clone()], vec![b, a.clone()]] {
        assert_eq!(choose(list).unwrap().chosen.digest, greatest);
    }
    // Named twice, with two times: it is not its own elder.
    let again = Listed { created: None, ..a.clone() };
    let choice = choose(vec![again, a.clone()]).unwrap();
    assert_eq!((choice.chosen, choice.skipped), (a.clone(), Vec::new()));
    let undated = listed("c", Kind::Spec, None);
    let nfd = listed("d", Kind::Nfd, Some("2027-01-01T00:00:00Z"));
    let choice = choose(vec![nfd.clone(), undated.clone(), a.clone(), a.clone()]).unwrap();
    assert_eq!((choice.chosen, choice.skipped), (a, vec![undated, nfd]));
}

#[tokio::test]
async fn the_time_is_read_as_the_working_group_misspells_it() {
    let yard = Yard::new().await;
    let mut manifest = attachment("x", DAY).manifest(&yard.manifest);
    let time = manifest.annotations.remove(CREATED).unwrap();
    manifest.annotations.insert("oci.opencontainers.image.created".to_owned(), time);
    yard.push(&manifest).await;
    let listed = list(&yard.place, &yard.image.manifest).await.unwrap();
    assert_eq!(listed[0].created.unwrap().to_string(), DAY);
}

#[tokio::test]
async fn the_index_counts_only_where_it_is_asked_for() {
    let yard = Yard::new().await;
    let index = yard.place.manifest(&Target::Digest(yard.image.top)).await.unwrap().descriptor;
    let whole = attach(&yard.place, &index, &attachment("whole", DAY)).await.unwrap().digest;
    assert!(matches!(yard.best().await, Err(FindError::NoArtifact { .. })));
    for subject in [Subject::Index, Subject::Auto] {
        assert_eq!(yard.find(subject, &Which::Best).await.unwrap().digest, whole);
    }
    let own = yard.attach("own", DAY).await.digest;
    for (subject, expected) in
        [(Subject::Manifest, own), (Subject::Index, whole), (Subject::Auto, own)]
    {
        assert_eq!(yard.find(subject, &Which::Best).await.unwrap().digest, expected);
    }
}

#[tokio::test]
async fn a_given_artifact_must_speak_of_the_image() {
    let (yard, other) = (Yard::new().await, Yard::new().await);
    let stored = yard.attach("x", DAY).await;
    let at = Which::At(yard.place.clone(), Target::Digest(stored.digest));
    assert_eq!(other.find(Subject::Manifest, &at).await.unwrap().digest, stored.digest);
    let elsewhere = Image { top: Digest::sha256(b"t"), manifest: Digest::sha256(b"m") };
    let error = find(&other.place, &elsewhere, Subject::Auto, &at).await.unwrap_err();
    assert!(matches!(error, FindError::OtherImage { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&yard.image.manifest.to_string()), "{text}");
    // The image itself is no artifact.
    let image = Which::Digest(yard.image.manifest);
    let error = yard.find(Subject::Manifest, &image).await.unwrap_err();
    assert!(matches!(error, FindError::Contents { .. }), "{error}");
}

#[test]
fn layers_are_known_by_their_type_and_bounded() {
    let subject = Descriptor::of(media_type::OCI_MANIFEST, b"an image");
    let good = attachment("{}", DAY).manifest(&subject);
    let read = |manifest: &Manifest| contents(&Document::Manifest(manifest.clone()));
    let with = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = good.clone();
        change(&mut manifest);
        read(&manifest)
    };
    // Other layers before it and of no kind we know do not matter.
    let first = Descriptor::of("text/plain", b"read me");
    assert_eq!(with(&|m| m.layers.insert(0, first.clone())).unwrap().spec, good.layers[0]);
    let twice = with(&|m| m.layers.push(m.layers[0].clone())).unwrap_err();
    assert!(matches!(twice, ContentsError::SpecLayers { found: 2, .. }), "{twice}");
    let none = with(&|m| m.layers.clear()).unwrap_err();
    assert!(matches!(none, ContentsError::SpecLayers { found: 0, .. }), "{none}");
    let large = with(&|m| m.layers[0].size = MAX_SPEC_BYTES + 1).unwrap_err();
    assert!(matches!(large, ContentsError::TooLarge { .. }), "{large}");
    let declared = with(&|m| m.layers[0].size = 4 << 30).unwrap_err();
    assert!(declared.to_string().contains("4294967296 bytes"), "{declared}");
    let large = with(&|m| {
        let mut layer = plugin("x", None, b"x").layer();
        layer.size = 4 << 30;
        m.layers.push(layer);
    });
    assert!(matches!(large, Err(ContentsError::TooLarge { .. })), "{large:?}");
    let many = with(&|m| {
        let layer = plugin("x", None, b"x").layer();
        m.layers.extend(vec![layer; MAX_PLUGIN_LAYERS + 1]);
    });
    assert!(matches!(many, Err(ContentsError::TooManyPlugins { .. })), "{many:?}");
    assert_eq!(with(&|m| m.subject = None).unwrap_err(), ContentsError::NoSubject);
    for title in ["../../bin/sh", "", "a/b", ".hidden", "a b"] {
        let layer = plugin(title, None, b"x");
        let error = with(&|m| {
            let mut descriptor = Descriptor::of(PLUGIN, &layer.program);
            descriptor.annotations.insert(TITLE.to_owned(), title.to_owned());
            m.layers.push(descriptor);
        });
        assert!(matches!(error, Err(ContentsError::PluginName { .. })), "{title:?}");
    }
}

#[tokio::test]
async fn what_nobody_could_read_is_not_attached() {
    let yard = Yard::new().await;
    let try_with = async |plugins: Vec<PluginFile>| {
        let attachment = Attachment { plugins, ..attachment("{}", DAY) };
        attach(&yard.place, &yard.manifest, &attachment).await.unwrap_err()
    };
    let bad = try_with(vec![plugin("../x", None, b"x")]).await;
    assert!(matches!(bad, AttachError::PluginName { .. }), "{bad}");
    let one = plugin("x", Some("linux/amd64"), b"x");
    let twice = try_with(vec![one.clone(), plugin("x", Some("linux/x86_64"), b"y")]).await;
    assert!(matches!(twice, AttachError::PluginTwice { .. }), "{twice}");
    let many = try_with(vec![one; MAX_PLUGIN_LAYERS + 1]).await;
    assert!(matches!(many, AttachError::TooManyPlugins { .. }), "{many}");
    let huge = Attachment {
        spec: Bytes::from(vec![b' '; usize::try_from(MAX_SPEC_BYTES).unwrap() + 1]),
        ..attachment("", DAY)
    };
    let huge = attach(&yard.place, &yard.manifest, &huge).await.unwrap_err();
    assert!(matches!(huge, AttachError::TooLarge { .. }), "{huge}");
    assert!(matches!(yard.best().await, Err(FindError::NoArtifact { .. })), "nothing was left");
}

#[tokio::test]
async fn rules_of_nfd_count_where_there_is_no_spec() {
    let yard = Yard::new().await;
    let rules = Attachment { kind: Kind::Nfd, ..attachment("version: v1alpha1", DAY) };
    let nfd = attach(&yard.place, &yard.manifest, &rules).await.unwrap().digest;
    let found = yard.best().await.unwrap();
    assert_eq!((found.digest, found.contents.kind), (nfd, Kind::Nfd));
    let own = yard.attach("{}", "2020-01-01T00:00:00Z").await.digest;
    assert_eq!(yard.best().await.unwrap().digest, own);
    assert_eq!(list(&yard.place, &yard.image.manifest).await.unwrap().len(), 2);
}
