//! Whatever is found beside an image is judged without panicking, and nothing that was not signed
//! by the trusted key counts. The first byte chooses the form.
#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use portolan_core::{Descriptor, Digest, media_type};
use portolan_verify::authority::{Authority, Judgement};
use portolan_verify::cosign::{CERTIFICATE, LOG_ENTRY, SIGNATURE};
use portolan_verify::evidence::{Carrier, Content, Evidence};
use portolan_verify::key::{Password, PrivateKey, PublicKey};
use portolan_verify::sigstore::{
    KeyAuthority, KeylessAuthority, KeylessOptions, LogPolicy, Match, TrustedRoot,
};
use portolan_verify::subject::{Kind, Subject};

/// No input can be signed by it, so none can be accepted.
const KEY: &[u8] = include_bytes!("../../crates/verify/tests/data/cosign.pub");
const ROOT: &[u8] = br#"{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","tlogs":[],"certificateAuthorities":[],"ctlogs":[],"timestampAuthorities":[]}"#;

static AUTHORITIES: LazyLock<Vec<Box<dyn Authority>>> = LazyLock::new(|| {
    let keys = || vec![PublicKey::from_pem(KEY).expect("a key")];
    let root = || TrustedRoot::from_json(ROOT).expect("a root");
    let (who, by) = (Match::Exact("a".to_owned()), Match::Exact("b".to_owned()));
    let keyless = KeylessAuthority::new(who, by, root(), KeylessOptions::default());
    vec![
        Box::new(KeyAuthority::new(keys(), LogPolicy::Ignore)),
        Box::new(KeyAuthority::new(keys(), LogPolicy::Require(root()))),
        Box::new(keyless.expect("plain names")),
    ]
});

fuzz_target!(|bytes: &[u8]| {
    let Some((&form, rest)) = bytes.split_first() else { return };
    let text = || String::from_utf8_lossy(rest).into_owned();
    let payload = br#"{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":"sha256:6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d"},"type":"cosign container image signature"},"optional":null}"#;
    let annotation = |name: &str| BTreeMap::from([(name.to_owned(), text())]);
    let signed = |name: &str| {
        let mut annotations = annotation(name);
        annotations.entry(SIGNATURE.to_owned()).or_insert_with(|| "AAAA".to_owned());
        Content::SimpleSigning { payload: payload.to_vec().into(), annotations }
    };
    let content = match form % 8 {
        0 => Content::Bundle(rest.to_vec().into()),
        1 => Content::Attestation { envelope: rest.to_vec().into(), annotations: BTreeMap::new() },
        2 => {
            let annotations = BTreeMap::from([(SIGNATURE.to_owned(), "AAAA".to_owned())]);
            Content::SimpleSigning { payload: rest.to_vec().into(), annotations }
        }
        3 => signed(SIGNATURE),
        4 => signed(CERTIFICATE),
        5 => signed(LOG_ENTRY),
        6 => {
            let _ = PublicKey::from_pem(rest);
            let _ = PublicKey::from_der(rest);
            // An empty password and cheap parameters: the parser is tried, not the machine.
            let _ = PrivateKey::is_encrypted(rest);
            let cheap = !rest.windows(4).any(|word| word.iter().all(u8::is_ascii_digit));
            if cheap {
                let _ = PrivateKey::from_pem(rest, Some(&Password::new(Vec::new())));
            }
            return;
        }
        _ => {
            let _ = TrustedRoot::from_json(rest);
            return;
        }
    };
    let descriptor = Descriptor::of(media_type::OCI_INDEX, b"image");
    let subject = Subject { descriptor, kind: Kind::Index, platform: None };
    let evidence =
        Evidence { artifact: Digest::sha256(b"a"), carrier: Carrier::Referrer, content };
    for authority in AUTHORITIES.iter() {
        let judged = authority.judge(&subject, &evidence, Default::default());
        match judged.expect("these are its kinds") {
            Judgement::Refused(refusal) => {
                assert!(!refusal.message.contains(|c: char| c.is_control()), "{refusal:?}");
            }
            Judgement::Accepted(accepted) => panic!("nobody signed this: {accepted:?}"),
        }
    }
});
