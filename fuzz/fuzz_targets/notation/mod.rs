//! What the targets for both forms of envelopes share: whom is trusted, and whose image it is.

use std::sync::LazyLock;

use portolan_core::Descriptor;
use portolan_verify::authority::{Authority as _, Judgement};
use portolan_verify::evidence::{Carrier, Content, Evidence};
use portolan_verify::notation::{NotationAuthority, TrustPolicies, TrustStores};
use portolan_verify::subject::{Kind, Subject};

/// With and without a clock.
const POLICY: &str = r#"{"version": "1.0", "trustPolicies": [
    {"name": "plain", "registryScopes": ["a.example/plain"],
     "signatureVerification": {"level": "strict"}, "trustStores": ["ca:root"],
     "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Portolan Fixtures"]},
    {"name": "clock", "registryScopes": ["a.example/clock"],
     "signatureVerification": {"level": "strict"}, "trustStores": ["ca:root", "tsa:clock"],
     "trustedIdentities": ["*"]}]}"#;

static AUTHORITIES: LazyLock<Vec<NotationAuthority>> = LazyLock::new(|| {
    let mut stores = TrustStores::new();
    for (store, bytes) in [
        ("ca:root", &include_bytes!("../../../fixtures/notation/root.crt")[..]),
        ("tsa:clock", &include_bytes!("../../../fixtures/notation/tsa-root.crt")[..]),
    ] {
        stores.add_certificates(store.parse().expect("a store"), bytes).expect("certificates");
    }
    let policies = TrustPolicies::parse(POLICY.as_bytes()).expect("a policy");
    let authority = |scope| {
        let policy = policies.for_repository(scope).expect("a statement").clone();
        NotationAuthority::new(policy, stores.clone()).expect("the stores are there")
    };
    vec![authority("a.example/plain"), authority("a.example/clock")]
});

static SUBJECT: LazyLock<Subject> = LazyLock::new(|| {
    let recorded = include_bytes!("../../../fixtures/notation/subject.json");
    let descriptor: Descriptor = serde_json::from_slice(recorded).expect("a descriptor");
    Subject { descriptor, kind: Kind::Manifest, platform: None }
});

/// Whether anybody takes the envelope for a signature of the recorded image.
pub fn accepts(media_type: &str, bytes: &[u8]) -> bool {
    let media_type = media_type.to_owned();
    let content = Content::Notation { media_type, envelope: bytes.to_vec().into() };
    let artifact = SUBJECT.descriptor.digest;
    let evidence = Evidence { artifact, carrier: Carrier::Referrer, content };
    let now = "2026-11-17T13:00:00Z".parse().expect("a time");
    AUTHORITIES.iter().any(|authority| {
        matches!(authority.judge(&SUBJECT, &evidence, now), Some(Judgement::Accepted(_)))
    })
}
