//! Signatures of every kind the whole way: found in a registry, judged by a policy file, decided.

use std::path::Path;

use portolan_core::Descriptor;
use portolan_verify::decision::{Answer, Verdict};
use portolan_verify::evidence::Content;
use portolan_verify::notation::{COSE, JWS};
use portolan_verify::policy;
use portolan_verify::sigstore::BUNDLE;
use serde_json::json;

use crate::bench::{Bench, is, of};
use crate::mint::{Family, Shapes};
use crate::sigstore::attach::{attach, plain};
use crate::sigstore::fulcio::{Fulcio, layer, sealed};
use crate::sigstore::{Log, NOON, root_json};

/// What a policy file with this signer, who reads these files, says of the image.
async fn asked(bench: &Bench, signer: &str, files: &[(&str, Vec<u8>)]) -> Answer {
    let text =
        format!("version: 1\nsigners: {{them: {signer}}}\ndefault: {{require: {{allOf: [them]}}}}");
    let read = |file: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == file);
        found.map(|(_, bytes)| bytes.clone()).ok_or_else(|| "no such file".to_owned())
    };
    let policy = policy::parse(text.as_bytes(), &read).unwrap_or_else(|error| panic!("{error}"));
    let rule = policy.rule(&bench.reference()).unwrap();
    bench.ask(&bench.reference(), "linux/amd64", rule).await.unwrap()
}

#[tokio::test]
async fn an_identity_counts_in_both_forms_found_and_decided_by_a_policy_file() {
    let (fulcio, log, ct_log) = (Fulcio::new(), Log::new(), Log::new());
    let root = root_json(&[&log], &[fulcio.in_root()], &[&ct_log]);
    let files = [("root.json", serde_json::to_vec(&root).unwrap())];
    let signer = |who: &str| {
        format!(
            "{{keyless: {{identity: {{exact: {who}}}, issuer: {{regex: \"https://.*\"}}, trustedRoot: root.json}}}}"
        )
    };
    let alice = fulcio.certify("alice@example.com", "https://accounts.example.com", Some(&ct_log));
    let bench = Bench::new(&["linux/amd64"]);
    let (top, child) = (bench.top(), bench.entry(0));
    // The index in the form of cosign 3, the image in that of cosign 2.
    let bundle = serde_json::to_vec(&sealed(&alice, &top.digest, &log, NOON)).unwrap();
    attach(&bench.place(), &top, BUNDLE, plain(BUNDLE, bundle), None).await;
    let answer = asked(&bench, &signer("alice@example.com"), &files).await;
    is(&answer, Verdict::Refused);
    assert!(of(&answer, &top).verified && !of(&answer, &child).verified, "{answer:?}");
    let Content::SimpleSigning { payload, annotations } = layer(&alice, &child.digest, &log, NOON)
    else {
        panic!("cosign 2 keeps layers")
    };
    let kind = portolan_verify::cosign::SIMPLE_SIGNING;
    let described = Descriptor { annotations, ..Descriptor::of(kind, &payload) };
    let tag = portolan_verify::cosign::tag(&child.digest, "sig").to_string();
    attach(&bench.place(), &child, "", (described, payload), Some(&tag)).await;

    let answer = asked(&bench, &signer("alice@example.com"), &files).await;
    is(&answer, Verdict::Verified);
    for subject in [&top, &child] {
        let signature = &of(&answer, subject).signatures[0];
        assert_eq!(signature.identity.as_deref(), Some("alice@example.com"));
        assert_eq!(signature.issuer.as_deref(), Some("https://accounts.example.com"));
    }
    is(&asked(&bench, &signer("mallory@example.com"), &files).await, Verdict::Refused);
}

#[tokio::test]
async fn a_signature_of_the_notary_project_counts_found_and_decided_by_a_policy_file() {
    const NOTATION: &str = "application/vnd.cncf.notary.signature";
    let mut shapes = Shapes::default();
    for shape in [&mut shapes.root, &mut shapes.middle, &mut shapes.leaf] {
        *shape = shape.clone().valid("2020-01-01T00:00:00Z", "2049-01-01T00:00:00Z");
    }
    let family = Family::of(&shapes, crate::mint::Key::p256());
    let pem = pem::encode(&pem::Pem::new("CERTIFICATE", family.root()));
    let files = [("root.crt", pem.into_bytes())];
    let signer = |organisation: &str| {
        format!(
            "{{notation: {{trustStores: {{\"ca:acme\": [root.crt]}}, trustedIdentities: [\"x509.subject: C=US, ST=WA, O={organisation}\"]}}}}"
        )
    };
    let bench = Bench::new(&["linux/amd64"]);
    let (top, child) = (bench.top(), bench.entry(0));
    let draft = |subject: &Descriptor| {
        let mut draft = family.draft();
        draft.payload = json!({"targetArtifact": {"mediaType": subject.media_type,
            "digest": subject.digest.to_string(), "size": subject.size}});
        draft
    };
    attach(&bench.place(), &top, NOTATION, plain(JWS, draft(&top).jws()), None).await;
    // That of the index put at the image does not count.
    attach(&bench.place(), &child, NOTATION, plain(COSE, draft(&top).cose()), None).await;
    let answer = asked(&bench, &signer("Acme"), &files).await;
    is(&answer, Verdict::Refused);
    assert!(of(&answer, &top).verified && !of(&answer, &child).verified, "{answer:?}");
    attach(&bench.place(), &child, NOTATION, plain(COSE, draft(&child).cose()), None).await;
    let answer = asked(&bench, &signer("Acme"), &files).await;
    is(&answer, Verdict::Verified);
    let named = of(&answer, &top).signatures[0].identity.clone().unwrap();
    assert_eq!(named, "CN=build,O=Acme,ST=WA,C=US");
    is(&asked(&bench, &signer("Else"), &files).await, Verdict::Refused);
}
