//! Registries that lie about compatibility artifacts. Whatever they say, it is a clear error, and
//! nothing is fetched that was announced as larger than anybody reads.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use portolan_compat::artifact::{
    self, Attachment, ContentsError, FindError, Found, Image, Kind, PLUGIN, Subject, TITLE, Which,
};
use portolan_core::{Descriptor, Digest, Index, Manifest, media_type};
use portolan_registry::client::{Client, CredentialStore};
use portolan_registry::images::Place;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const SPEC: &[u8] = br#"{"schemaVersion": "0.1.0", "namespaces": {"a": {"plugins": {"gpu": {}}}}}"#;

/// A registry that answers each path below `/v2/team/app/` with what it was given, and 404 else.
struct Liar {
    place: Place,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Liar {
    async fn start(answers: HashMap<String, (&'static str, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answers) = (asked.clone(), Arc::new(answers));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (kept, answers) = (kept.clone(), answers.clone());
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    let mut chunk = [0; 4096];
                    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                        match stream.read(&mut chunk).await {
                            Ok(0) | Err(_) => return,
                            Ok(read) => request.extend_from_slice(&chunk[..read]),
                        }
                    }
                    let request = String::from_utf8_lossy(&request).into_owned();
                    let path = request.split([' ', '?']).nth(1).unwrap_or_default();
                    let path = path.strip_prefix("/v2/team/app/").unwrap_or(path).to_owned();
                    let (status, (kind, body)) = match answers.get(&path) {
                        Some((kind, body)) => ("200 OK", (*kind, body.as_slice())),
                        None => ("404 Not Found", ("text/plain", &b""[..])),
                    };
                    kept.lock().unwrap().push(path);
                    let head = format!(
                        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
                         OCI-Filters-Applied: artifactType\r\nConnection: close\r\n\r\n",
                        body.len()
                    );
                    let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        let client = Client::new(Default::default(), CredentialStore::anonymous()).unwrap();
        let place = client.repository(&host.parse().unwrap(), &"team/app".parse().unwrap());
        Self { place: Place::Remote(place), asked }
    }

    fn was_asked_for_blobs(&self) -> bool {
        self.asked.lock().unwrap().iter().any(|path| path.starts_with("blobs/"))
    }
}

/// What a registry says of an image's artifact, all of it true until somebody changes it.
struct Story {
    /// As listed.
    entry: Descriptor,
    manifest: Manifest,
    /// What is sent for the manifest, if not the manifest.
    instead: Option<Vec<u8>>,
    /// What is sent for the spec.
    spec: Vec<u8>,
}

fn image() -> Image {
    let digest = Digest::sha256(b"an image");
    Image { top: digest, manifest: digest }
}

impl Story {
    fn true_one() -> Self {
        let attachment = Attachment {
            kind: Kind::Spec,
            spec: SPEC.into(),
            plugins: Vec::new(),
            created: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        let manifest = attachment.manifest(&Descriptor::of(media_type::OCI_MANIFEST, b"an image"));
        let entry = Descriptor::of(media_type::OCI_MANIFEST, b"");
        Self { entry, manifest, instead: None, spec: SPEC.to_vec() }
    }

    /// Tells it, and what came of believing it.
    async fn told(mut self) -> (Result<Found, FindError>, Liar) {
        let bytes = self.manifest.to_vec();
        let digest = Digest::sha256(&bytes);
        self.entry.digest = digest;
        let spec = self.manifest.layers.first().map_or(digest, |layer| layer.digest);
        let list = Index::new(vec![self.entry]).to_vec();
        let sent = self.instead.unwrap_or(bytes);
        let answers = HashMap::from([
            (format!("referrers/{}", image().manifest), (media_type::OCI_INDEX, list)),
            (format!("manifests/{digest}"), (media_type::OCI_MANIFEST, sent)),
            (format!("blobs/{spec}"), ("application/octet-stream", self.spec)),
        ]);
        let liar = Liar::start(answers).await;
        let found = artifact::find(&liar.place, &image(), Subject::Auto, &Which::Best).await;
        (found, liar)
    }
}

async fn told(change: impl FnOnce(&mut Story)) -> (FindError, Liar) {
    let mut story = Story::true_one();
    change(&mut story);
    let (found, liar) = story.told().await;
    (found.unwrap_err(), liar)
}

#[tokio::test]
async fn a_true_story_is_believed_whatever_size_and_time_the_list_gives_it() {
    let (found, _) = Story::true_one().told().await;
    assert_eq!(&found.unwrap().spec[..], SPEC);
    let mut story = Story::true_one();
    story.entry.size = u64::MAX >> 1;
    story.entry.annotations.insert(artifact::CREATED.to_owned(), "not a time\u{1b}[31m".to_owned());
    let (found, _) = story.told().await;
    assert_eq!(&found.unwrap().spec[..], SPEC);
}

#[tokio::test]
async fn what_is_listed_as_something_else_is_not_believed() {
    let (error, liar) = told(|story| story.manifest.artifact_type = Some("a/b".to_owned())).await;
    let other = |error: &FindError| match error {
        FindError::Contents { source, .. } => matches!(source, ContentsError::OtherKind { .. }),
        _ => false,
    };
    assert!(other(&error) && !liar.was_asked_for_blobs(), "{error:?}");
    // Of another image.
    let (error, liar) = told(|story| {
        story.manifest.subject = Some(Descriptor::of(media_type::OCI_MANIFEST, b"another"));
    })
    .await;
    assert!(matches!(error, FindError::OtherImage { .. }), "{error:?}");
    assert!(!liar.was_asked_for_blobs());
    // Listed as of another type: it does not exist.
    let (error, _) = told(|story| story.entry.artifact_type = Some("a/b".to_owned())).await;
    assert!(matches!(error, FindError::NoArtifact { .. }), "{error:?}");
}

#[tokio::test]
async fn what_is_not_what_its_digest_says_is_not_read() {
    let (error, liar) = told(|story| {
        let mut manifest = story.manifest.clone();
        manifest.annotations.insert("other".to_owned(), "bytes".to_owned());
        story.instead = Some(manifest.to_vec());
    })
    .await;
    assert!(matches!(error, FindError::Read { .. }), "{error:?}");
    assert!(!liar.was_asked_for_blobs());
    for spec in [b"{}".to_vec(), SPEC.to_ascii_uppercase(), vec![b' '; 8 << 20], Vec::new()] {
        let (error, _) = told(|story| story.spec = spec).await;
        assert!(matches!(error, FindError::Read { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn what_is_announced_as_too_large_or_misnamed_is_not_even_asked_for() {
    let plugin = |title: &str, size: u64| {
        let mut layer = Descriptor::of(PLUGIN, b"x");
        layer.annotations.insert(TITLE.to_owned(), title.to_owned());
        layer.size = size;
        layer
    };
    let four = 4 << 30;
    let changes: [&dyn Fn(&mut Story); 5] = [
        &|story| story.manifest.layers[0].size = four,
        &|story| story.manifest.layers.push(plugin("gpu", four)),
        &|story| story.manifest.layers.push(plugin("..", 1)),
        &|story| story.manifest.layers.push(plugin("../../etc/cron.d/x", 1)),
        &|story| story.manifest.layers.extend(vec![plugin("gpu", 1); 257]),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let (error, liar) = told(|story| change(story)).await;
        assert!(matches!(error, FindError::Contents { .. }), "{n}: {error:?}");
        assert!(!liar.was_asked_for_blobs(), "{n}");
    }
    // A spec that says it is short and is not.
    let (error, _) = told(|story| story.manifest.layers[0].size = 10).await;
    assert!(matches!(error, FindError::Read { .. }), "{error:?}");
}
