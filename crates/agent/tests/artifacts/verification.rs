//! Who signed what is about to run, before anything is built and at every start.

use portolan_agent::config::{VerificationConfig, VerificationMode};
use portolan_agent::image::ResolvedImage;
use portolan_agent::reason::Reason;
use portolan_core::{Descriptor, Index, media_type};
use portolan_registry::images::Place;
use portolan_verify::key::PrivateKey;
use portolan_verify::sign::{Form, sign};
use tempfile::TempDir;

use crate::harness::{Berth, Yard, resolved_at, small};
use crate::support::embedded::Embedded;
use crate::support::fault::{Fault, FaultServer, REPOSITORY};
use crate::support::image::{Image, platform};
use crate::support::scenarios::{client, seed};

/// A key, and a policy that trusts it.
struct Trust {
    key: PrivateKey,
    dir: TempDir,
}

impl Trust {
    fn new() -> Self {
        let trust =
            Self { key: PrivateKey::generate().unwrap(), dir: tempfile::tempdir().unwrap() };
        trust.trusts(&trust.key);
        let text = "version: 1\nsigners: {release: {keys: {files: [release.pub]}}}\ndefault: {require: {anyOf: [release]}}\n";
        std::fs::write(trust.dir.path().join("policy.yaml"), text).unwrap();
        trust
    }

    fn trusts(&self, key: &PrivateKey) {
        std::fs::write(self.dir.path().join("release.pub"), key.public().to_pem()).unwrap();
    }

    fn yard(&self, mode: VerificationMode) -> Yard {
        let mut yard = Yard::new();
        let policy = Some(self.dir.path().join("policy.yaml"));
        yard.config.verification = VerificationConfig { policy, mode };
        yard
    }

    fn open(&self) -> Berth {
        self.yard(VerificationMode::Enforce).open()
    }

    async fn signs(&self, host: &str, subject: &Descriptor) {
        let repository = client().repository(&host.parse().unwrap(), &REPOSITORY.parse().unwrap());
        let subject = Descriptor::new(&subject.media_type, subject.digest, subject.size);
        sign(&Place::Remote(repository), &subject, &self.key, Form::Bundle).await.unwrap();
    }
}

/// An index that lists this image for amd64.
fn index_of(image: &Image) -> Image {
    let entry = Descriptor { platform: Some(platform("linux/amd64")), ..image.top.clone() };
    let mut index = Image::of_manifest(media_type::OCI_INDEX, &Index::new(vec![entry]).to_vec());
    index.absorb(image);
    index
}

fn with_index(mut image: ResolvedImage, index: &Image) -> ResolvedImage {
    image.index_digest = Some(index.top.digest);
    image
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_started_when_it_and_the_index_are_signed() {
    let (server, trust) = (Embedded::start().await, Trust::new());
    let image = small(1);
    let index = index_of(&image);
    seed(&index, &server.host(), &format!("{REPOSITORY}:v1")).await;
    let alone = resolved_at(&server.host(), image.top.digest);
    let wanted = with_index(alone.clone(), &index);
    let berth = trust.open();
    let (own, top) = (image.top.digest.to_string(), index.top.digest.to_string());
    berth.refused(&wanted, Reason::VerificationFailed, &[&own, &top, "nothing is attached"]).await;
    trust.signs(&server.host(), &index.top).await;
    berth.refused(&wanted, Reason::VerificationFailed, &["the image", &own]).await;
    trust.signs(&server.host(), &image.top).await;
    berth.acquire("both", &wanted).await;
    berth.acquire("alone", &alone).await;
    // Signed, both, and yet not one image.
    let other = small(2);
    let stranger = index_of(&other);
    seed(&stranger, &server.host(), &format!("{REPOSITORY}:v2")).await;
    trust.signs(&server.host(), &stranger.top).await;
    let mixed = with_index(alone, &stranger);
    let parts = ["does not list", &own];
    assert!(berth.try_acquire("mixed", &mixed).await.is_err());
    trust.open().refused(&mixed, Reason::VerificationFailed, &parts).await;
}

/// A disk that is cached skips nothing: the policy and its keys are those of now.
#[tokio::test(flavor = "multi_thread")]
async fn a_cached_disk_is_held_to_the_policy_of_now() {
    let (server, trust) = (Embedded::start().await, Trust::new());
    let image = small(1);
    seed(&image, &server.host(), &format!("{REPOSITORY}:v1")).await;
    trust.signs(&server.host(), &image.top).await;
    let wanted = resolved_at(&server.host(), image.top.digest);
    let berth = trust.open();
    berth.acquire("one", &wanted).await;
    berth.acquire("two", &wanted).await;
    trust.trusts(&PrivateKey::generate().unwrap());
    let error = berth.try_acquire("three", &wanted).await.unwrap_err();
    assert_eq!(error.reason(), Reason::VerificationFailed, "{error}");
    std::fs::write(trust.dir.path().join("policy.yaml"), "version: 9\n").unwrap();
    let error = berth.try_acquire("four", &wanted).await.unwrap_err();
    assert_eq!(error.reason(), Reason::VerificationFailed, "{error}");
}

/// What cannot be told is not started, nor called unsigned; and works when the registry does.
#[tokio::test(flavor = "multi_thread")]
async fn trouble_with_the_registry_never_admits() {
    let (image, trust) = (small(1), Trust::new());
    let server = FaultServer::holding(&image);
    trust.signs(&server.host(), &image.top).await;
    let wanted = resolved_at(&server.host(), image.top.digest);
    let berth = trust.open();
    server.always("GET", format!("/referrers/{}", image.top.digest), Fault::status(500));
    let parts = ["cannot be told", &image.top.digest.to_string()];
    berth.refused(&wanted, Reason::ImagePullFailed, &parts).await;
}

/// A busy machine is no reason to call an image refused, which is kept for long; nor to start it.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_had_no_time_to_decide_is_trouble_and_no_refusal() {
    let (image, trust) = (small(1), Trust::new());
    let server = FaultServer::holding(&image);
    let slow = r#"package portolan

digits := [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

decision := {"allow": true} if {
  count(input.subjects) > 0
  count([1 | digits[a]; digits[b]; digits[c]; digits[d]; digits[e]; digits[f]; digits[g]; digits[h]; digits[i]]) > 0
}
"#;
    std::fs::write(trust.dir.path().join("slow.rego"), slow).unwrap();
    let text = "version: 1\nsigners: {release: {keys: {files: [release.pub]}}}\ndefault: {rego: slow.rego}\n";
    std::fs::write(trust.dir.path().join("policy.yaml"), text).unwrap();
    let wanted = resolved_at(&server.host(), image.top.digest);
    let parts = ["cannot be told", &image.top.digest.to_string(), "the policy broke down"];
    trust.open().refused(&wanted, Reason::VerificationUndecided, &parts).await;
    // Asked again before it is given up.
    assert_eq!(server.count("GET", &format!("/referrers/{}", image.top.digest)), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mode_that_only_reports_starts_and_no_policy_asks_nothing() {
    let (server, trust) = (Embedded::start().await, Trust::new());
    let image = small(1);
    seed(&image, &server.host(), &format!("{REPOSITORY}:v1")).await;
    let wanted = resolved_at(&server.host(), image.top.digest);
    trust.yard(VerificationMode::Report).open().acquire("i", &wanted).await;
    Yard::new().open().acquire("i", &wanted).await;
    std::fs::remove_file(trust.dir.path().join("release.pub")).unwrap();
    assert!(trust.yard(VerificationMode::Enforce).try_open().is_err(), "a policy that is broken");
}
