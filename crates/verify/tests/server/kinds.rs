//! Signatures of identities and of the Notary Project, asked for as Gatekeeper and API servers do.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use portolan_core::Descriptor;
use portolan_registry::images::Place;
use portolan_verify::cosign::{self, Payload};
use portolan_verify::evidence::Content;
use portolan_verify::notation::{COSE, JWS};
use portolan_verify::sigstore::BUNDLE;
use serde_json::{Value, json};

use crate::harness::{ADMISSION, Bench, SHORT, V1, V2, Verifier, until};
use crate::mint::{Family, Key, Shape, Shapes};
use crate::sigstore::attach::{attach, plain};
use crate::sigstore::fulcio::{Fulcio, Identity, layer, sealed};
use crate::sigstore::{Log, NOON, b64, root_json, simple};
use crate::support::setup;
use crate::token::Token;

const ALICE: &str = "alice@example.com";
const ISSUER: &str = "https://accounts.example.com";
/// The first of January 2025 is the one day of the certificates; before it and after it.
const IN_TIME: &str = "20250101120000Z";
const TOO_EARLY: &str = "20241231120000Z";
const TOO_LATE: &str = "20250103120000Z";
const NOTATION: &str = "application/vnd.cncf.notary.signature";

fn policy(signer: &str) -> String {
    format!("version: 1\nsigners: {{them: {signer}}}\ndefault: {{require: {{allOf: [them]}}}}\n")
}

fn place(bench: &Bench) -> Place {
    Place::open(&bench.registry.reference(""), &setup::client()).unwrap()
}

/// What every front says of the image for amd64: the value of the first, and whether all say yes.
async fn says(bench: &Bench, verifier: &Verifier) -> (Value, bool) {
    let key = bench.key_for("amd64");
    let one = verifier.ask(V1, &[&key]).await.value().clone();
    let two = verifier.ask(V2, &[&key]).await.value()["succeeded"].clone();
    let pod = json!({"spec": {"nodeSelector": {"kubernetes.io/arch": "amd64"},
                              "containers": [{"name": "c", "image": bench.image(":v1")}]}});
    let review = json!({"request": {"uid": "u", "operation": "CREATE", "object": pod}});
    let three = verifier.post(ADMISSION, review.to_string()).await;
    let three = three.body["response"]["allowed"].clone();
    assert!(one["isSuccess"] == two && two == three, "{one} {two} {three}");
    let yes = two == true;
    (one, yes)
}

/// One front after the other sees a new policy.
async fn refused_soon(bench: &Bench, verifier: &Verifier) {
    let key = bench.key_for("amd64");
    until(async || verifier.ask(V2, &[&key]).await.value()["succeeded"] == false).await;
    assert!(!says(bench, verifier).await.1);
}

fn subjects(value: &Value) -> Vec<bool> {
    let all = value["subjects"].as_array().unwrap().iter();
    all.map(|one| one["isSuccess"].as_bool().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_counts_in_both_forms() {
    let (fulcio, log, ct_log) = (Fulcio::new(), Log::new(), Log::new());
    let bench = Bench::new();
    let root = root_json(&[&log], &[fulcio.in_root()], &[&ct_log]);
    bench.write("root.json", &root.to_string());
    let signer = |who: &str| {
        policy(&format!(
            "{{keyless: {{identity: {{exact: {who}}}, issuer: {{regex: \"https://.*\"}}, trustedRoot: root.json}}}}"
        ))
    };
    bench.write("policy.yaml", &signer(ALICE));
    let alice = fulcio.certify(ALICE, ISSUER, Some(&ct_log));
    let (top, child) = (bench.image.top.clone(), bench.child("amd64"));
    // The index in the form of cosign 3, the image in that of cosign 2.
    let bundle = serde_json::to_vec(&sealed(&alice, &top.digest, &log, NOON)).unwrap();
    attach(&place(&bench), &top, BUNDLE, plain(BUNDLE, bundle), None).await;
    let verifier = bench.start_with("", SHORT).await;
    let (said, yes) = says(&bench, &verifier).await;
    assert!(!yes && subjects(&said) == [true, false], "{said}");
    let Content::SimpleSigning { payload, annotations } = layer(&alice, &child.digest, &log, NOON)
    else {
        panic!("cosign 2 keeps layers")
    };
    let described = Descriptor { annotations, ..Descriptor::of(cosign::SIMPLE_SIGNING, &payload) };
    let tag = cosign::tag(&child.digest, "sig").to_string();
    attach(&place(&bench), &child, "", (described, payload), Some(&tag)).await;
    let (said, yes) = says(&bench, &verifier).await;
    assert!(yes && said.to_string().contains(ALICE), "{said}");
    // Somebody else of the same authority is nobody.
    bench.write("policy.yaml", &signer("mallory@example.com"));
    refused_soon(&bench, &verifier).await;
}

/// An authority of timestamps.
struct Clock {
    key: Key,
    chain: Vec<Vec<u8>>,
}

impl Clock {
    fn new() -> Self {
        let (root, key) = (Key::p384(), Key::p256());
        let lasting = |shape: Shape| shape.valid("2020-01-01T00:00:00Z", "2049-01-01T00:00:00Z");
        let top = lasting(Shape::authority("clock root"));
        let leaf = lasting(Shape::clock("clock")).issue(&key, &top.subject, &root);
        Self { chain: vec![leaf, top.issue_itself(&root)], key }
    }

    /// What it says of a signature.
    fn stamp(&self, signature: &[u8], time: &'static str) -> String {
        let token = Token { time, ..Token::new(&self.key, self.chain.clone()) };
        b64(response(&token.over(signature)))
    }
}

/// Somebody's signature with a timestamp and in no log, as cosign 3 keeps it.
fn stamped(who: &Identity, of: &Descriptor, (clock, time): (&Clock, &'static str)) -> Vec<u8> {
    let mut sealed = sealed(who, &of.digest, &Log::new(), NOON);
    let signature = sealed["dsseEnvelope"]["signatures"][0]["sig"].as_str().unwrap();
    let stamp = clock.stamp(&STANDARD.decode(signature).unwrap(), time);
    let material = sealed["verificationMaterial"].as_object_mut().unwrap();
    material.remove("tlogEntries");
    let stamps = json!({"rfc3161Timestamps": [{"signedTimestamp": stamp}]});
    material.insert("timestampVerificationData".to_owned(), stamps);
    serde_json::to_vec(&sealed).unwrap()
}

/// The same as cosign 2 keeps it.
fn stamped_layer(
    who: &Identity,
    of: &Descriptor,
    (clock, time): (&Clock, &'static str),
) -> (Descriptor, Bytes) {
    let payload = Payload::new(&of.digest, "registry.example/app").to_vec();
    let signature = who.key.sign(&payload).unwrap();
    let stamp = json!({"SignedRFC3161Timestamp": clock.stamp(&signature, time)}).to_string();
    let more = [(cosign::CERTIFICATE, who.pem()), (cosign::TIMESTAMP, stamp)];
    let Content::SimpleSigning { payload, annotations } = simple(&payload, &signature, &more)
    else {
        panic!("cosign 2 keeps layers")
    };
    (Descriptor { annotations, ..Descriptor::of(cosign::SIMPLE_SIGNING, &payload) }, payload)
}

/// Writes a root without logs of signatures, and gives the policy that trusts Alice by it.
fn trusting_alice(bench: &Bench, fulcio: &Fulcio, clock: &Clock) -> impl Fn(&str) -> String {
    let mut root = root_json(&[&Log::new()], &[fulcio.in_root()], &[&Log::new()]);
    let listed: Vec<_> = clock.chain.iter().map(|one| json!({"rawBytes": b64(one)})).collect();
    root["timestampAuthorities"] = json!([{"certChain": {"certificates": listed}}]);
    bench.write("root.json", &root.to_string());
    |more| {
        policy(&format!(
            "{{keyless: {{identity: {{exact: {ALICE}}}, issuer: {{exact: \"{ISSUER}\"}}, trustedRoot: root.json{more}}}}}"
        ))
    }
}

/// A Sigstore of one's own may have neither log: a timestamp proves when the certificate was good.
#[tokio::test(flavor = "multi_thread")]
async fn an_identity_counts_without_logs_where_the_policy_says_so() {
    let (fulcio, clock, bench) = (Fulcio::new(), Clock::new(), Bench::new());
    let signer = trusting_alice(&bench, &fulcio, &clock);
    let alice = fulcio.certify(ALICE, ISSUER, None);
    for subject in [bench.image.top.clone(), bench.child("amd64")] {
        let bundle = stamped(&alice, &subject, (&clock, IN_TIME));
        attach(&place(&bench), &subject, BUNDLE, plain(BUNDLE, bundle), None).await;
    }
    bench.write("policy.yaml", &signer(", log: timestamp, sct: ignored"));
    let verifier = bench.start_with("", SHORT).await;
    let (said, yes) = says(&bench, &verifier).await;
    assert!(yes, "{said}");
    // Each is asked for where the policy does not say otherwise.
    for (generation, more, why) in [
        (2.0, "", "NOT_LOGGED"),
        (3.0, ", sct: ignored", "NOT_LOGGED"),
        (4.0, ", log: timestamp", "UNTRUSTED_CERTIFICATE"),
    ] {
        bench.write("policy.yaml", &signer(more));
        verifier.generation(generation).await;
        let (said, yes) = says(&bench, &verifier).await;
        assert!(!yes && said.to_string().contains(why), "{more}: {said}");
    }
}

/// A certificate is good for minutes, and the key may be anybody's after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_timestamp_counts_in_both_forms_and_only_in_the_life_of_the_certificate() {
    for (as_layer, time, expected) in [
        (true, IN_TIME, None),
        (true, TOO_LATE, Some("EXPIRED")),
        (false, TOO_LATE, Some("EXPIRED")),
        (true, TOO_EARLY, Some("EXPIRED")),
        (false, TOO_EARLY, Some("EXPIRED")),
    ] {
        let (fulcio, clock, bench) = (Fulcio::new(), Clock::new(), Bench::new());
        let signer = trusting_alice(&bench, &fulcio, &clock);
        bench.write("policy.yaml", &signer(", log: timestamp, sct: ignored"));
        let alice = fulcio.certify(ALICE, ISSUER, None);
        for subject in [bench.image.top.clone(), bench.child("amd64")] {
            if as_layer {
                let layer = stamped_layer(&alice, &subject, (&clock, time));
                let tag = cosign::tag(&subject.digest, "sig").to_string();
                attach(&place(&bench), &subject, "", layer, Some(&tag)).await;
            } else {
                let bundle = stamped(&alice, &subject, (&clock, time));
                attach(&place(&bench), &subject, BUNDLE, plain(BUNDLE, bundle), None).await;
            }
        }
        let verifier = bench.start().await;
        let (said, yes) = says(&bench, &verifier).await;
        assert_eq!(yes, expected.is_none(), "{as_layer} {time}: {said}");
        assert!(expected.is_none_or(|why| said.to_string().contains(why)), "{time}: {said}");
    }
}

/// What an authority answers around its token: granted.
fn response(token: &[u8]) -> Vec<u8> {
    let content = [&[0x30, 3, 2, 1, 0], token].concat();
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[0x30, 0x82], &length[..], &content].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_of_the_notary_project_count_in_both_forms() {
    let mut shapes = Shapes::default();
    for shape in [&mut shapes.root, &mut shapes.middle, &mut shapes.leaf] {
        *shape = shape.clone().valid("2020-01-01T00:00:00Z", "2049-01-01T00:00:00Z");
    }
    let family = Family::of(&shapes, Key::p256());
    let bench = Bench::new();
    bench.write("root.crt", &pem::encode(&pem::Pem::new("CERTIFICATE", family.root())));
    let signer = |organisation: &str| {
        policy(&format!(
            "{{notation: {{trustStores: {{\"ca:acme\": [root.crt]}}, trustedIdentities: [\"x509.subject: C=US, ST=WA, O={organisation}\"]}}}}"
        ))
    };
    bench.write("policy.yaml", &signer("Acme"));
    let (top, child) = (bench.image.top.clone(), bench.child("amd64"));
    let draft = |subject: &Descriptor| {
        let mut draft = family.draft();
        draft.payload = json!({"targetArtifact": {"mediaType": subject.media_type,
            "digest": subject.digest.to_string(), "size": subject.size}});
        draft
    };
    attach(&place(&bench), &top, NOTATION, plain(JWS, draft(&top).jws()), None).await;
    // That of the index put at the image does not count.
    attach(&place(&bench), &child, NOTATION, plain(COSE, draft(&top).cose()), None).await;
    let verifier = bench.start_with("", SHORT).await;
    let (said, yes) = says(&bench, &verifier).await;
    assert!(!yes && subjects(&said) == [true, false], "{said}");
    attach(&place(&bench), &child, NOTATION, plain(COSE, draft(&child).cose()), None).await;
    let (said, yes) = says(&bench, &verifier).await;
    assert!(yes && said.to_string().contains("O=Acme"), "{said}");
    bench.write("policy.yaml", &signer("Else"));
    refused_soon(&bench, &verifier).await;
}
