//! What is recorded of images of all shapes, read from a layout: no registry is needed to know what an index has.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use jiff::Timestamp;
use portolan_api::release::{POLICY_KEY, ReleaseSpec};
use portolan_core::{Descriptor, Digest, Index, Manifest, Platform, Target, media_type};
use portolan_registry::images::Place;
use portolan_registry::layout::Layout;
use portolan_release::look::{Asked, Policy};
use portolan_release::{Findings, LookError, Request, Verification, look};

/// A layout to fill and to look at.
struct Yard {
    _dir: tempfile::TempDir,
    layout: Layout,
}

impl Yard {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::create(dir.path()).unwrap();
        Self { _dir: dir, layout }
    }

    fn put(&self, kind: &str, bytes: &[u8]) -> Descriptor {
        self.layout.put_blob(bytes).unwrap();
        Descriptor::of(kind, bytes)
    }

    /// An image of two layers; its config names the platform, and `salt` makes it another one.
    fn image(&self, platform: &str, salt: &str) -> Descriptor {
        let Platform { os, architecture, variant, .. } = platform.parse().unwrap();
        let config = serde_json::json!({
            "os": os, "architecture": architecture, "variant": variant, "author": salt,
        });
        let config = self.put(media_type::OCI_CONFIG, config.to_string().as_bytes());
        let layers =
            ["one", "three"].map(|text| Descriptor::of("application/x-layer", text.as_bytes()));
        let bytes = Manifest::new(config, layers.into()).to_vec();
        let own = self.put(media_type::OCI_MANIFEST, &bytes);
        Descriptor { platform: Some(platform.parse().unwrap()), ..own }
    }

    fn index(&self, entries: &[Descriptor]) -> Digest {
        self.put(media_type::OCI_INDEX, &Index::new(entries.to_vec()).to_vec()).digest
    }

    async fn look(&self, top: Digest, platforms: &[&str]) -> Result<Findings, LookError> {
        self.look_by(Policy::None, top, platforms).await
    }

    async fn look_by(
        &self,
        policy: Policy<'_>,
        top: Digest,
        platforms: &[&str],
    ) -> Result<Findings, LookError> {
        let spec = ReleaseSpec {
            platforms: platforms.iter().map(|one| (*one).to_owned()).collect(),
            ..ReleaseSpec::new("r.example/app:1")
        };
        let request = Request::of(&spec).unwrap();
        let asked = Asked {
            request: &request,
            target: &Target::Digest(top),
            policy,
            namespace: None,
            now: Timestamp::UNIX_EPOCH,
        };
        look(&Place::Layout(self.layout.clone()), &asked).await
    }
}

fn shown(findings: &Findings) -> Vec<(String, Digest)> {
    findings.images.iter().map(|one| (one.platform.to_string(), one.digest)).collect()
}

fn named(all: &[(&str, &Descriptor)]) -> Vec<(String, Digest)> {
    all.iter().map(|(platform, one)| ((*platform).to_owned(), one.digest)).collect()
}

#[tokio::test]
async fn every_platform_of_an_index_is_recorded_and_nothing_that_runs_nowhere() {
    let yard = Yard::new();
    let (amd, better) = (yard.image("linux/amd64", ""), yard.image("linux/amd64/v3", ""));
    let (arm, again) = (yard.image("linux/arm64", ""), yard.image("linux/arm64", "again"));
    let attestation = yard.image("unknown/unknown", "");
    let artifact = Descriptor {
        artifact_type: Some("application/x-thing".to_owned()),
        ..yard.image("linux/s390x", "")
    };
    let all = [amd.clone(), attestation, better.clone(), arm.clone(), again, artifact];
    let top = yard.index(&all);
    let findings = yard.look(top, &[]).await.unwrap();
    let expected = [("linux/amd64", &amd), ("linux/amd64/v3", &better), ("linux/arm64", &arm)];
    assert_eq!(shown(&findings), named(&expected));
    assert_eq!((findings.top, findings.is_index), (top, true));
    assert_eq!(findings.verification, Verification::NoPolicy);
    // Configuration and both layers.
    let config = findings.images[0].size - "one".len() as u64 - "three".len() as u64;
    assert!(config > 20, "{config}");
}

#[tokio::test]
async fn for_a_platform_that_was_asked_for_the_image_that_runs_there_is_recorded() {
    let yard = Yard::new();
    let (amd, better) = (yard.image("linux/amd64", ""), yard.image("linux/amd64/v3", ""));
    let top = yard.index(&[amd.clone(), better.clone()]);
    let findings = yard.look(top, &["linux/amd64/v4", "linux/amd64"]).await.unwrap();
    let expected = [("linux/amd64/v3", &better), ("linux/amd64", &amd)];
    assert_eq!(shown(&findings), named(&expected));
    let missing = yard.look(top, &["linux/amd64", "linux/arm64"]).await.unwrap_err();
    assert_eq!(missing.reason(), "PlatformNotFound");
    assert!(!missing.will_pass() && missing.to_string().contains("linux/arm64"), "{missing}");
}

#[tokio::test]
async fn one_image_without_an_index_is_a_release_too() {
    let yard = Yard::new();
    let arm = yard.image("linux/arm64", "");
    let findings = yard.look(arm.digest, &[]).await.unwrap();
    assert_eq!(shown(&findings), named(&[("linux/arm64", &arm)]));
    assert!(!findings.is_index);
    let other = yard.look(arm.digest, &["linux/amd64"]).await.unwrap_err();
    assert_eq!(other.reason(), "PlatformNotFound", "{other}");
}

#[tokio::test]
async fn what_cannot_be_had_is_not_released() {
    let yard = Yard::new();
    let absent = yard.look(Digest::sha256(b"nothing"), &[]).await.unwrap_err();
    assert_eq!(absent.reason(), "ImageNotFound", "{absent}");
    let lost = Descriptor {
        platform: Some("linux/arm64".parse().unwrap()),
        ..Descriptor::of(media_type::OCI_MANIFEST, b"never pushed")
    };
    let top = yard.index(&[yard.image("linux/amd64", ""), lost]);
    let half = yard.look(top, &[]).await.unwrap_err();
    assert_eq!(half.reason(), "ImageIncomplete", "{half}");
    let nothing = yard.look(yard.index(&[]), &[]).await.unwrap_err();
    assert!(!nothing.will_pass(), "{nothing}");
}

/// Nobody decided: a Release that is told so is looked at again, soon, as with a registry that does not answer.
#[tokio::test]
async fn a_policy_that_had_no_time_to_decide_refuses_nothing() {
    let yard = Yard::new();
    let arm = yard.image("linux/arm64", "");
    let slow = r#"package portolan

digits := [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

decision := {"allow": true} if {
  count(input.subjects) > 0
  count([1 | digits[a]; digits[b]; digits[c]; digits[d]; digits[e]; digits[f]; digits[g]; digits[h]; digits[i]]) > 0
}
"#;
    let own =
        "version: 1\nsigners: {makers: {keys: {files: [maker.pub]}}}\ndefault: {rego: slow.rego}\n";
    let key = include_str!("../../verify/tests/data/cosign.pub");
    let files = [(POLICY_KEY, own), ("maker.pub", key), ("slow.rego", slow)];
    let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    let loaded = portolan_release::policy::read("makers", &files.into()).unwrap();
    let findings = yard.look_by(Policy::Is(&loaded), arm.digest, &[]).await.unwrap();
    let Verification::Unknown { reason, message } = findings.verification else {
        panic!("{:?}", findings.verification)
    };
    assert_eq!(reason, "PolicyUndecided", "{message}");
    assert!(message.contains("the policy broke down"), "{message}");
}
