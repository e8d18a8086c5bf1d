//! Signatures of identities and of the Notary Project, asked for as Gatekeeper and API servers do.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portolan_core::Descriptor;
use portolan_registry::images::Place;
use portolan_verify::cosign;
use portolan_verify::evidence::Content;
use portolan_verify::notation::{COSE, JWS};
use portolan_verify::sigstore::BUNDLE;
use serde_json::{Value, json};

use crate::harness::{ADMISSION, Bench, SHORT, V1, V2, Verifier, until};
use crate::mint::{Family, Key, Shape, Shapes};
use crate::sigstore::attach::{attach, plain};
use crate::sigstore::fulcio::{Fulcio, layer, sealed};
use crate::sigstore::{Log, NOON, b64, root_json};
use crate::support::setup;
use crate::token::Token;

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
    bench.write("policy.yaml", &signer("alice@example.com"));
    let alice = fulcio.certify("alice@example.com", "https://accounts.example.com", Some(&ct_log));
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
    assert!(yes && said.to_string().contains("alice@example.com"), "{said}");
    // Somebody else of the same authority is nobody.
    bench.write("policy.yaml", &signer("mallory@example.com"));
    refused_soon(&bench, &verifier).await;
}

/// A Sigstore of one's own may have neither log: a timestamp proves when the certificate was good.
#[tokio::test(flavor = "multi_thread")]
async fn an_identity_counts_without_logs_where_the_policy_says_so() {
    let (fulcio, log, ct_log) = (Fulcio::new(), Log::new(), Log::new());
    let (clock_root, clock) = (Key::p384(), Key::p256());
    let lasting = |shape: Shape| shape.valid("2020-01-01T00:00:00Z", "2049-01-01T00:00:00Z");
    let top = lasting(Shape::authority("clock root"));
    let leaf = lasting(Shape::clock("clock")).issue(&clock, &top.subject, &clock_root);
    let chain = vec![leaf, top.issue_itself(&clock_root)];
    let bench = Bench::new();
    let mut root = root_json(&[&log], &[fulcio.in_root()], &[&ct_log]);
    let listed: Vec<_> = chain.iter().map(|one| json!({"rawBytes": b64(one)})).collect();
    root["timestampAuthorities"] = json!([{"certChain": {"certificates": listed}}]);
    bench.write("root.json", &root.to_string());
    let signer = |more: &str| {
        policy(&format!(
            "{{keyless: {{identity: {{exact: alice@example.com}}, issuer: {{exact: \"https://accounts.example.com\"}}, trustedRoot: root.json{more}}}}}"
        ))
    };
    let alice = fulcio.certify("alice@example.com", "https://accounts.example.com", None);
    for subject in [bench.image.top.clone(), bench.child("amd64")] {
        let mut sealed = sealed(&alice, &subject.digest, &log, NOON);
        let signature = &sealed["dsseEnvelope"]["signatures"][0]["sig"];
        let signature = STANDARD.decode(signature.as_str().unwrap()).unwrap();
        // The first of January 2025, the one day of the certificate.
        let token = Token { time: "20250101120000Z", ..Token::new(&clock, chain.clone()) };
        let stamp = json!([{"signedTimestamp": b64(response(&token.over(&signature)))}]);
        let material = sealed["verificationMaterial"].as_object_mut().unwrap();
        material.remove("tlogEntries");
        material
            .insert("timestampVerificationData".to_owned(), json!({"rfc3161Timestamps": stamp}));
        let bundle = serde_json::to_vec(&sealed).unwrap();
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
