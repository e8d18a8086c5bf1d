//! What the targets for signatures of Sigstore's forms share: whom is trusted, and whose image it is.

use std::sync::LazyLock;

use portolan_core::{Descriptor, Digest, media_type};
use portolan_verify::authority::{Authority, Judgement};
use portolan_verify::evidence::{Carrier, Content, Evidence};
use portolan_verify::key::PublicKey;
use portolan_verify::sigstore::{
    KeyAuthority, KeylessAuthority, KeylessOptions, LogPolicy, Match, TrustedRoot,
};
use portolan_verify::subject::{Kind, Subject};

/// No input can be signed by it, so none can be accepted.
const KEY: &[u8] = include_bytes!("../../../crates/verify/tests/data/cosign.pub");
const ROOT: &[u8] = br#"{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","tlogs":[],"certificateAuthorities":[],"ctlogs":[],"timestampAuthorities":[]}"#;

static AUTHORITIES: LazyLock<Vec<Box<dyn Authority>>> = LazyLock::new(|| {
    let keys = || vec![PublicKey::from_pem(KEY).expect("a key")];
    let root = || TrustedRoot::from_json(ROOT).expect("a root");
    vec![
        Box::new(KeyAuthority::new(keys(), LogPolicy::Ignore)),
        Box::new(KeyAuthority::new(keys(), LogPolicy::Require(root()))),
        Box::new(keyless("a", "b", root(), KeylessOptions::default())),
        Box::new(keyless("a", "b", root(), TIMESTAMPS)),
        Box::new(keyless("a", "b", root(), LENIENT)),
    ]
});

/// `log: timestamp`.
pub const TIMESTAMPS: KeylessOptions = KeylessOptions { require_log: false, require_sct: true };
/// `sct: ignored` beside it: the least that a policy can ask for.
pub const LENIENT: KeylessOptions = KeylessOptions { require_log: false, require_sct: false };

/// Trust in one identity.
pub fn keyless(
    who: &str,
    by: &str,
    root: TrustedRoot,
    options: KeylessOptions,
) -> KeylessAuthority {
    let exact = |text: &str| Match::Exact(text.to_owned());
    KeylessAuthority::new(exact(who), exact(by), root, options).expect("plain names")
}

pub fn image() -> Subject {
    subject(Descriptor::of(media_type::OCI_INDEX, b"image"))
}

pub fn subject(descriptor: Descriptor) -> Subject {
    Subject { descriptor, kind: Kind::Index, platform: None }
}

pub fn judge(authority: &dyn Authority, subject: &Subject, content: Content) -> Judgement {
    let artifact = Digest::sha256(b"a");
    let evidence = Evidence { artifact, carrier: Carrier::Referrer, content };
    let now = "2026-11-17T13:00:00Z".parse().expect("a time");
    let judged = authority.judge(subject, &evidence, now).expect("these are its kinds");
    if let Judgement::Refused(refusal) = &judged {
        assert!(!refusal.message.contains(|c: char| c.is_control()), "{refusal:?}");
    }
    judged
}

/// Nobody who is trusted signed it.
pub fn is_refused(content: &Content) {
    for authority in AUTHORITIES.iter() {
        if let Judgement::Accepted(accepted) = judge(&**authority, &image(), content.clone()) {
            panic!("nobody signed this: {accepted:?}");
        }
    }
}
