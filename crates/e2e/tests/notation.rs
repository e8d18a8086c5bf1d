//! Images that the notation command line signs, judged by us; and what we judge, by it.

use std::path::PathBuf;

use jiff::Timestamp;
use portolan_core::{Descriptor, Digest, Document, Reference, Target};
use portolan_e2e::{
    Registry, RegistryKind, digest, hello_reference, ok, ours, peer, portolan, run,
};
use portolan_registry::client::{Client, CredentialStore};
use portolan_registry::images::Place;
use portolan_verify::authority::{Accepted, Authority as _, Judgement, Refusal, RefusalCode};
use portolan_verify::evidence::{Carrier, Content, Evidence};
use portolan_verify::notation::{
    COSE, JWS, MAX_ENVELOPE_BYTES, NotationAuthority, TrustPolicies, TrustStores,
};
use portolan_verify::subject::{Kind, Subject};

const SIGNATURE: &str = "application/vnd.cncf.notary.signature";

/// An image on a registry, and a home with a key and certificate of notation's making.
struct Signed {
    home: tempfile::TempDir,
    registry: Registry,
    repository: String,
    pinned: Reference,
}

impl Signed {
    fn on(kind: RegistryKind) -> Self {
        let registry = kind.start().expect("the registry starts");
        let repository = format!("{}/team/signed", registry.address);
        let tagged = format!("{repository}:1");
        ours(&["image", "copy", &hello_reference(), &tagged]);
        let pinned = format!("{repository}@{}", digest(&tagged)).parse().expect("a reference");
        let home = tempfile::tempdir().expect("a temporary folder");
        let signed = Self { home, registry, repository, pinned };
        signed.notation(&["cert", "generate-test", "--default", "signer.example"]);
        signed
    }

    fn command(&self) -> std::process::Command {
        let mut command = peer("notation", self.home.path());
        command.env("XDG_CONFIG_HOME", self.home.path().join("config"));
        command.env("XDG_CACHE_HOME", self.home.path().join("cache"));
        command
    }

    fn notation(&self, args: &[&str]) {
        ok(self.command().args(args));
    }

    fn reference(&self) -> String {
        format!("{}@{}", self.repository, self.pinned.digest().expect("it is pinned"))
    }

    fn sign(&self, format: &str) {
        self.sign_subject(self.pinned.digest().expect("it is pinned"), format);
    }

    fn sign_subject(&self, digest: &Digest, format: &str) {
        // Left alone, notation writes the fallback tag even where the registry keeps a list of its
        // own; olareg then lists not all of it.
        let tag = format!("--force-referrers-tag={}", !self.registry.kind.has_referrers_api());
        let reference = format!("{}@{digest}", self.repository);
        let form = ["--signature-format", format];
        self.notation(&[&["sign", "--insecure-registry", &tag], &form[..], &[&reference]].concat());
    }

    /// A trust policy for this repository, as notation reads it.
    fn policy(&self) -> String {
        serde_json::json!({
            "version": "1.0",
            "trustPolicies": [{
                "name": "signed",
                "registryScopes": [self.repository],
                "signatureVerification": {"level": "strict"},
                "trustStores": ["ca:signer.example"],
                "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Notary, CN=signer.example"]
            }]
        })
        .to_string()
    }

    fn certificate(&self) -> PathBuf {
        self.home.path().join("config/notation/localkeys/signer.example.crt")
    }

    fn authority(&self) -> NotationAuthority {
        let policies = TrustPolicies::parse(self.policy().as_bytes()).expect("a policy");
        let policy = policies.for_repository(&self.repository).expect("it is in scope").clone();
        let certificate = std::fs::read(self.certificate()).expect("the certificate is there");
        let mut stores = TrustStores::new();
        let store = "ca:signer.example".parse().expect("a store");
        stores.add_certificates(store, &certificate).expect("a certificate");
        NotationAuthority::new(policy, stores).expect("the store is there")
    }

    fn place(&self) -> Place {
        let client =
            Client::new(Default::default(), CredentialStore::anonymous()).expect("a client");
        Place::open(&self.pinned, &client).expect("a place")
    }

    /// What the index lists.
    async fn children(&self) -> Vec<Digest> {
        let digest = *self.pinned.digest().expect("it is pinned");
        let image = self.place().manifest(&Target::Digest(digest)).await.expect("the image");
        let Document::Index(index) = image.document else { panic!("no index") };
        index.manifests.iter().map(|entry| entry.digest).collect()
    }

    /// The subject, and every signature that refers to it.
    async fn fetch(&self) -> (Subject, Vec<(String, bytes::Bytes)>) {
        let place = self.place();
        let digest = *self.pinned.digest().expect("it is pinned");
        let image = place.manifest(&Target::Digest(digest)).await.expect("the image");
        let descriptor =
            Descriptor::new(&image.descriptor.media_type, digest, image.bytes.len() as u64);
        let mut envelopes = Vec::new();
        for found in place.referrers(&digest, Some(SIGNATURE)).await.expect("referrers") {
            let artifact =
                place.manifest(&Target::Digest(found.digest)).await.expect("an artifact");
            let Document::Manifest(manifest) = artifact.document else { panic!("an index") };
            let [layer] = manifest.layers.as_slice() else { panic!("{manifest:?}") };
            let limit = MAX_ENVELOPE_BYTES as u64;
            let envelope = place.read_blob(layer, limit).await.expect("an envelope");
            envelopes.push((layer.media_type.clone(), envelope));
        }
        (Subject { descriptor, kind: Kind::Index, platform: None }, envelopes)
    }
}

fn judge(
    authority: &NotationAuthority,
    subject: &Subject,
    media_type: &str,
    envelope: &[u8],
) -> Result<Accepted, Refusal> {
    let content = Content::Notation {
        media_type: media_type.to_owned(),
        envelope: bytes::Bytes::copy_from_slice(envelope),
    };
    let artifact = Digest::sha256(b"of no matter here");
    let evidence = Evidence { artifact, carrier: Carrier::Referrer, content };
    match authority.judge(subject, &evidence, Timestamp::now()).expect("it is of this kind") {
        Judgement::Accepted(accepted) => Ok(accepted),
        Judgement::Refused(refusal) => Err(refusal),
    }
}

/// The same with one bit of the signature turned: it is the last thing in COSE.
fn tampered(media_type: &str, envelope: &[u8]) -> Vec<u8> {
    let mut changed = envelope.to_vec();
    let at = match media_type {
        COSE => envelope.len() - 1,
        _ => {
            let name = br#""signature":""#;
            let found = envelope.windows(name.len()).position(|window| window == name);
            found.expect("a signature") + name.len() + 9
        }
    };
    changed[at] = match changed[at] {
        b'A' => b'B',
        _ if media_type == JWS => b'A',
        other => other ^ 1,
    };
    changed
}

#[tokio::test]
async fn what_notation_signs_on_any_registry_is_accepted_and_what_was_changed_is_not() {
    for kind in RegistryKind::ALL {
        let signed = Signed::on(kind);
        signed.sign("jws");
        signed.sign("cose");
        let authority = signed.authority();
        let (subject, envelopes) = signed.fetch().await;
        let mut kinds: Vec<_> = envelopes.iter().map(|(kind, _)| kind.as_str()).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, [COSE, JWS], "{kind:?}");
        for (media_type, envelope) in &envelopes {
            let accepted =
                judge(&authority, &subject, media_type, envelope).expect("it is genuine");
            assert!(accepted.signer.starts_with("CN=signer.example,"), "{accepted:?}");
            let mut other = subject.clone();
            other.descriptor.digest = Digest::sha256(b"another image");
            let refusal =
                judge(&authority, &other, media_type, envelope).expect_err("another image");
            assert_eq!(refusal.code, RefusalCode::OtherSubject);
            let changed = tampered(media_type, envelope);
            let refusal = judge(&authority, &subject, media_type, &changed).expect_err("changed");
            assert_eq!(refusal.code, RefusalCode::BadSignature);
        }
    }
}

#[tokio::test]
async fn notation_and_we_agree_on_a_policy_that_trusts_somebody_else() {
    let signed = Signed::on(RegistryKind::Embedded);
    signed.sign("jws");
    let policy = signed.home.path().join("policy.json");
    std::fs::write(&policy, signed.policy()).expect("written");
    signed.notation(&["policy", "import", &policy.display().to_string()]);
    let reference = signed.reference();
    signed.notation(&["verify", "--insecure-registry", &reference]);
    let other = signed.policy().replace("O=Notary", "O=Somebody");
    std::fs::write(&policy, &other).expect("written");
    signed.notation(&["policy", "import", "--force", &policy.display().to_string()]);
    let output = run(signed.command().args(["verify", "--insecure-registry", &reference]));
    assert_ne!(output.expect("notation starts").code, Some(0));

    let (subject, envelopes) = signed.fetch().await;
    let (media_type, envelope) = envelopes.first().expect("a signature");
    judge(&signed.authority(), &subject, media_type, envelope).expect("it is genuine");
    let policies = TrustPolicies::parse(other.as_bytes()).expect("a policy");
    let policy = policies.for_repository(&signed.repository).expect("in scope").clone();
    let certificate = std::fs::read(signed.certificate()).expect("the certificate is there");
    let mut stores = TrustStores::new();
    stores
        .add_certificates("ca:signer.example".parse().expect("a store"), &certificate)
        .expect("a root");
    let strangers = NotationAuthority::new(policy, stores).expect("the store is there");
    let refusal = judge(&strangers, &subject, media_type, envelope).expect_err("somebody else");
    assert_eq!(refusal.code, RefusalCode::OtherSigner);
}

/// The whole way: found, judged and decided by a policy, for index and images.
#[tokio::test]
async fn what_notation_signs_passes_a_policy_for_its_signer_and_no_other() {
    for kind in RegistryKind::ALL {
        let signed = Signed::on(kind);
        let policy = signed.home.path().join("policy.yaml");
        let write = |organisation: &str| {
            let text = format!(
                "version: 1\nsigners:\n  notary:\n    notation:\n      \
                 trustStores: {{\"ca:signer.example\": [config/notation/localkeys/signer.example.crt]}}\n      \
                 trustedIdentities: [\"x509.subject: C=US, ST=WA, O={organisation}, CN=signer.example\"]\n\
                 default:\n  require: {{allOf: [notary]}}\n"
            );
            std::fs::write(&policy, text).expect("written");
        };
        let reference = signed.reference();
        let verifies = |subjects: usize, code: i32, verdict: &str| {
            let policy = policy.display().to_string();
            let args =
                ["verify", "image", &reference, "--policy", &policy, "--all-platforms", "-o"];
            let output = run(portolan().args(args).arg("json")).expect("portolan starts");
            assert_eq!(output.code, Some(code), "{kind:?}: {output}");
            let answer: serde_json::Value =
                serde_json::from_str(&output.stdout).expect("an answer in JSON");
            assert_eq!(answer["verdict"], verdict, "{kind:?}: {answer}");
            let found = answer["subjects"].as_array().expect("a list");
            assert_eq!(found.len(), subjects, "{kind:?}: {answer}");
        };
        write("Notary");
        let children = signed.children().await;
        signed.sign("jws");
        verifies(1 + children.len(), 1, "refused");
        for (child, format) in children.iter().zip(["jws", "cose"].into_iter().cycle()) {
            signed.sign_subject(child, format);
        }
        verifies(1 + children.len(), 0, "verified");
        write("Somebody");
        verifies(1 + children.len(), 1, "refused");
    }
}
