//! Registries that hang, throttle, lie or lock us out: never a yes, and nothing that is kept.

use std::time::{Duration, Instant};

use portolan_verify::sign::Form;

use crate::harness::{ADMISSION, Bench, LONG, SHORT, V1, V2, policy, until};
use crate::support::fault::{Answer, Fault};
use crate::support::image::Image;

fn timeouts(verify: &str) -> String {
    format!("{LONG}\n[timeouts]\nverify = \"{verify}\"\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn case_16_an_index_that_is_not_its_digest_is_a_system_error() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let digest = bench.image.top.digest;
    bench.registry.always("GET", format!("/manifests/{digest}"), Fault::FlipByte(40));
    let verifier = bench.start().await;
    let said = verifier.ask(V1, &[&bench.image(&format!("@{digest}"))]).await;
    let text = said.system_error();
    assert!(text.contains("REGISTRY") && text.contains("digest"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_23_a_tag_that_moves_meanwhile_does_not_mix_two_images() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let top = bench.image.top.digest;
    let slow = Fault::Trickle { bytes: 40, pause: Duration::from_millis(40) };
    bench.registry.script("GET", format!("/referrers/{top}"), vec![slow]);
    let verifier = bench.start().await;
    let key = bench.key_for("amd64");
    let other = Image::multi(&["linux/amd64"], 77);
    let moving = async {
        until(async || bench.registry.count("GET", "/manifests/v1") == 1).await;
        let mut registry = bench.registry.registry();
        registry.repositories.get_mut("team/app").unwrap().hold(&other, "v1");
    };
    let keys = [key.as_str()];
    let (said, ()) = tokio::join!(verifier.ask(V1, &keys), moving);
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    assert_eq!(said.value()["resolvedDigest"], top.to_string());
    assert_eq!(bench.registry.count("GET", "/manifests/v1"), 1, "the tag is asked for once");
    let of_other = |path: &str| other.digests().iter().any(|one| path.ends_with(&one.to_string()));
    assert!(!bench.registry.seen().iter().any(|seen| of_other(&seen.path)));
}

fn throttled(seconds: &str) -> Fault {
    let answer = Answer::error(429, "TOOMANYREQUESTS", "slow down");
    Fault::Answer(answer.header("retry-after", seconds))
}

#[tokio::test(flavor = "multi_thread")]
async fn case_24_a_registry_that_throttles_is_waited_for_while_there_is_time() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.registry.script("GET", "/manifests/v1", vec![throttled("1")]);
    let verifier = bench.start().await;
    let begun = Instant::now();
    let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn case_24_a_registry_that_throttles_for_longer_is_a_system_error() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.registry.always("GET", "/manifests/v1", throttled("600"));
    let verifier = bench.start_with("", &timeouts("2s")).await;
    let begun = Instant::now();
    let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
    assert_eq!(said.status, 503);
    said.system_error();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn case_25_there_is_an_answer_before_gatekeeper_gives_up() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.registry.always("GET", format!("/referrers/{}", bench.image.top.digest), Fault::Hang);
    let times = format!("{}margin = \"500ms\"\n", timeouts("2s"));
    let verifier = bench.start_with("", &times).await;
    for path in [V1, V2] {
        let begun = Instant::now();
        let said = verifier.ask(path, &[&bench.key_for("amd64")]).await;
        assert!(said.system_error().contains("DEADLINE"), "{}", said.body);
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(1400) && took < Duration::from_secs(2), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_was_begun_goes_on_and_is_there_for_who_asks_next() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let top = bench.image.top.digest;
    let slow = Fault::Trickle { bytes: 30, pause: Duration::from_millis(60) };
    bench.registry.script("GET", format!("/referrers/{top}"), vec![slow]);
    let path = format!("/referrers/{top}");
    let before = bench.registry.count("GET", &path);
    let verifier = bench.start_with("", &timeouts("400ms")).await;
    let key = bench.key_for("amd64");
    verifier.ask(V1, &[&key]).await.system_error();
    until(async || verifier.ask(V1, &[&key]).await.status == 200).await;
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    assert_eq!(bench.registry.count("GET", &path), before + 1, "nobody asked twice");
}

/// Everything that may be wrong at a registry for a moment, at each place where it is asked.
#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_down_never_admits_and_is_not_told_as_something_to_keep() {
    let faults = [
        ("500", Fault::status(500)),
        ("401", Fault::status(401)),
        ("403", Fault::status(403)),
        ("429", throttled("600")),
        ("cut", Fault::Cut(5)),
        ("nonsense", Fault::Raw(b"SMTP ready\r\n".to_vec())),
        ("hang", Fault::Hang),
        ("flipped", Fault::FlipByte(1)),
    ];
    for (name, fault) in faults {
        for place in ["tag", "referrers"] {
            let bench = Bench::new();
            bench.sign_amd64().await;
            let path = match place {
                "tag" => "/manifests/v1".to_owned(),
                _ => format!("/referrers/{}", bench.image.top.digest),
            };
            bench.registry.always("GET", path, fault.clone());
            let verifier = bench.start_with("", &timeouts("1s")).await;
            let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
            assert_eq!(said.status, 503, "{name} at {place}: {}", said.body);
            said.system_error();
        }
    }
}

/// It is no list, and that nothing is on it would be a no that whoever asked keeps.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_where_a_list_should_be_is_a_system_error() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let page = Answer::new(200, "<html>").header("content-type", "text/html");
    let path = format!("/referrers/{}", bench.image.top.digest);
    bench.registry.script("GET", path, vec![Fault::Answer(page)]);
    let verifier = bench.start().await;
    let key = bench.key_for("amd64");
    let said = verifier.ask(V1, &[&key]).await;
    assert!(said.system_error().contains("REGISTRY"), "{}", said.body);
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_cannot_be_found_is_a_system_error() {
    let bench = Bench::new();
    let verifier = bench.start_with("", &timeouts("2s")).await;
    for image in ["registry.invalid/team/app:1", "127.0.0.1:1/team/app:1"] {
        let said = verifier.ask(V1, &[image]).await;
        assert!(said.system_error().contains(image), "{}", said.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_of_one_key_is_an_item_where_that_is_configured() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let down = "127.0.0.1:1/team/app:1";
    let key = bench.key_for("amd64");
    let verifier = bench.start_with("transient_errors = \"item\"", &timeouts("2s")).await;
    let said = verifier.ask(V1, &[&key, down]).await;
    assert_eq!(said.status, 200);
    assert_eq!(said.items()[0]["value"]["isSuccess"], true, "{}", said.body);
    let error = said.items()[1]["error"].as_str().unwrap();
    assert!(error.starts_with("REGISTRY: ") || error.starts_with("DEADLINE: "), "{error}");
    // By default the good one is not told either: Gatekeeper would keep it, and ask for neither.
    let verifier = bench.start_with("", &timeouts("2s")).await;
    assert!(verifier.ask(V1, &[&key, down]).await.system_error().contains(down));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_there_is_an_error_of_the_item() {
    let bench = Bench::new();
    let verifier = bench.start().await;
    let said = verifier.ask(V1, &[&bench.image(":gone")]).await;
    assert!(said.error().starts_with("NOT_FOUND: "), "{}", said.body);
}

/// A list that names another image's signature, and one that leaves ours out.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_referrers_that_lies_is_not_believed() {
    let bench = Bench::new();
    bench.sign(&bench.child("amd64"), Form::Bundle).await;
    let (top, child) = (bench.image.top.digest, bench.child("amd64").digest);
    // The child's signature, said to be the index's.
    let listed = bench.registry.registry().repositories["team/app"].manifests.iter().find_map(
        |(digest, (kind, bytes))| {
            let text = String::from_utf8_lossy(bytes);
            let is_signature = text.contains("\"subject\"") && text.contains(&child.to_string());
            is_signature.then(|| portolan_core::Descriptor::new(kind, *digest, bytes.len() as u64))
        },
    );
    let lie = list(portolan_core::Index::new(vec![listed.unwrap()]));
    bench.registry.always("GET", format!("/referrers/{top}"), lie);
    let verifier = bench.start().await;
    let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
    let value = said.value();
    assert_eq!(value["isSuccess"], false, "{value}");
    assert_eq!(value["subjects"][0]["isSuccess"], false);
    assert_eq!(value["subjects"][1]["isSuccess"], true);

    // Signed in full, and it is the list alone that makes the difference.
    let bench = Bench::new();
    bench.sign_amd64().await;
    let child = bench.child("amd64").digest;
    let verifier = bench.start().await;
    assert_eq!(verifier.ask(V1, &[&bench.key_for("amd64")]).await.value()["isSuccess"], true);
    let none = list(portolan_core::Index::new(Vec::new()));
    bench.registry.always("GET", format!("/referrers/{child}"), none);
    let verifier = bench.start().await;
    let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
    let value = said.value();
    assert_eq!(value["isSuccess"], false, "{value}");
    assert_eq!(value["subjects"][0]["isSuccess"], true);
    assert_eq!(value["subjects"][1]["isSuccess"], false);
}

fn list(index: portolan_core::Index) -> Fault {
    let answer = Answer::new(200, String::from_utf8(index.to_vec()).unwrap());
    Fault::Answer(answer.header("content-type", "application/vnd.oci.image.index.v1+json"))
}

#[tokio::test(flavor = "multi_thread")]
async fn as_much_work_is_done_at_once_as_the_limit_says() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.registry.always("GET", "/manifests/v1", Fault::Hang);
    let limits = format!(
        "{SHORT}\n[limits]\nwork = 1\nwork_per_registry = 9\n[timeouts]\nverify = \"1s\"\nwork = \"20s\"\n"
    );
    let verifier = bench.start_with("", &limits).await;
    // The one place is taken by what hangs, so nobody else is even asked.
    verifier.ask(V1, &[&bench.image(":v1")]).await.system_error();
    let other = bench.image(":other");
    verifier.ask(V1, &[&other]).await.system_error();
    assert_eq!(bench.registry.count("GET", "/manifests/other"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_hangs_does_not_stop_what_is_asked_of_others() {
    let (bench, other) = (Bench::new(), Bench::new());
    bench.sign_amd64().await;
    for tag in ["v1", "v2", "v3", "v4"] {
        other.registry.always("GET", format!("/manifests/{tag}"), Fault::Hang);
    }
    let limits = "\n[limits]\nwork = 12\nwork_per_registry = 2\n[timeouts]\nverify = \"1s\"\n";
    let verifier = bench.start_with("", limits).await;
    let hanging = [":v1", ":v2", ":v3", ":v4"].map(|tag| other.image(tag));
    let keys: Vec<&str> = hanging.iter().map(String::as_str).collect();
    verifier.ask(V1, &keys).await.system_error();
    assert_eq!(other.registry.seen().len(), 2, "{:?}", other.registry.seen());
    let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
}

/// As many as somebody likes to name: what the policy names has room all the same, and so have those
/// who only want to know what is known.
#[tokio::test(flavor = "multi_thread")]
async fn many_registries_that_hang_do_not_stop_what_the_policy_names() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let scope = format!(
        "scopes:\n- name: ours\n  match: [\"{}\"]\n  rule: {{require: {{anyOf: [release]}}}}\n",
        bench.registry.host()
    );
    bench.write("policy.yaml", &(policy("") + &scope));
    // As it is by default: a registry may be silent for half a minute.
    bench.write("registries.toml", "");
    let others: Vec<_> = (0..6).map(|_| Bench::new()).collect();
    for other in &others {
        other.registry.always("GET", "/manifests/v1", Fault::Hang);
        other.registry.always("GET", "/manifests/v2", Fault::Hang);
    }
    let limits = "\n[limits]\nwork = 8\nwork_per_registry = 2\n[timeouts]\nverify = \"4s\"\n";
    let verifier = bench.start_with("transient_errors = \"item\"", limits).await;
    let hanging: Vec<_> =
        others.iter().flat_map(|one| [one.image(":v1"), one.image(":v2")]).collect();
    let keys: Vec<&str> = hanging.iter().map(String::as_str).collect();
    // These take the quarter of the places that strangers have, and keep it.
    verifier.ask(V1, &keys[..2]).await;
    // It is known by now that they hang: nobody loses more time with them.
    let begun = Instant::now();
    let said = verifier.ask(V1, &keys[2..]).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    for item in said.items() {
        let error = item["error"].as_str().unwrap();
        assert!(error.contains("not answered yet"), "{}", said.body);
    }
    let asked: usize = others.iter().map(|other| other.registry.seen().len()).sum();
    assert_eq!(asked, 2);
    let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_wait_than_the_limit_says() {
    let bench = Bench::new();
    bench.registry.always("GET", "/manifests/v1", Fault::Hang);
    let limits = "\n[limits]\nwaiting = 1\n[timeouts]\nverify = \"1s\"\n";
    let verifier = bench.start_with("", limits).await;
    assert!(verifier.ask(V1, &[&bench.image(":v1")]).await.system_error().contains("DEADLINE"));
    let begun = Instant::now();
    let said = verifier.ask(V1, &[&bench.image(":v2")]).await;
    assert!(said.system_error().contains("limits.waiting"), "{}", said.body);
    assert!(begun.elapsed() < Duration::from_millis(500), "at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_breakdown_denies_admission_and_says_why() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.registry.always("GET", "/manifests/v1", Fault::Hang);
    let verifier = bench.start_with("", "\n[timeouts]\nmargin = \"500ms\"\n").await;
    let review = serde_json::json!({"request": {
        "uid": "u", "operation": "CREATE",
        "object": {"spec": {"containers": [{"image": bench.image(":v1")}]}},
    }});
    let begun = Instant::now();
    let said = verifier.post(&format!("{ADMISSION}?timeout=2s"), review.to_string()).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "the API server's own limit counts");
    assert_eq!((said.status, &said.body["response"]["allowed"]), (200, &false.into()));
    let message = said.body["response"]["status"]["message"].as_str().unwrap();
    assert!(message.contains("DEADLINE") && message.contains("team/app:v1"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_hangs_up_is_not_counted_for_ever_and_the_body_has_a_time() {
    let bench = Bench::new();
    bench.registry.always("GET", "/manifests/v1", Fault::Hang);
    let verifier = bench.start_with("", &timeouts("3s")).await;
    let in_flight = async || verifier.metric("portolan_verifier_in_flight").await;
    let image = bench.image(":v1");
    let keys = [image.as_str()];
    let begun = Instant::now();
    let impatient = tokio::time::timeout(Duration::from_millis(800), verifier.ask(V1, &keys));
    let seen = until(async || in_flight().await == 1.0);
    let (gone, ()) = tokio::join!(impatient, seen);
    assert!(gone.is_err());
    until(async || in_flight().await == 0.0).await;
    assert!(begun.elapsed() < Duration::from_millis(2900), "not only at the deadline");
    // A body that never ends.
    let silence = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let said = verifier.post(V1, reqwest::Body::wrap_stream(silence)).await;
    assert_eq!(said.status, 408);
    assert!(said.system_error().contains("in time"), "{}", said.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_requests_are_answered_at_once_as_the_limit_says() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.registry.always("GET", "/manifests/v1", Fault::Hang);
    let limits = "\n[limits]\nrequests = 1\n[timeouts]\nverify = \"2s\"\nmutate = \"1s\"\n";
    let verifier = bench.start_with("", limits).await;
    let image = bench.image(":v1");
    let keys = [image.as_str()];
    let pinned = bench.image(&format!("@{}", bench.image.top.digest));
    let second = async {
        until(async || verifier.metric("portolan_verifier_in_flight").await == 1.0).await;
        verifier.ask(crate::harness::MUTATE, &[&pinned]).await
    };
    let (first, second) = tokio::join!(verifier.ask(V1, &keys), second);
    assert!(first.system_error().contains("DEADLINE"), "{}", first.body);
    assert!(second.system_error().contains("limits.requests"), "{}", second.body);
    let after = verifier.ask(crate::harness::MUTATE, &[&pinned]).await;
    assert_eq!(after.value(), &serde_json::json!(pinned));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_evidence_than_the_limit_says_is_no_answer() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let limits = format!("{LONG}\n[limits]\nevidence_bytes = 100\n");
    let verifier = bench.start_with("", &limits).await;
    let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
    assert!(said.error().starts_with("UNUSABLE: "), "{}", said.body);
    assert!(said.error().contains("100"), "{}", said.body);
}

/// What is too large to be read might be what says no.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_larger_than_the_limit_makes_an_image_unusable_where_documents_count() {
    let documents = "  documents: {sbom: {disallowedLicenses: [X], allowUnsigned: true}}\n";
    for (policy, refused) in [(policy(""), false), (policy(documents), true)] {
        let bench = Bench::new();
        bench.sign_amd64().await;
        bench.write("policy.yaml", &policy);
        let sbom = Image::referrer(&bench.child("amd64"), "application/spdx+json", &[b' '; 5000]);
        bench.registry.registry().repositories.get_mut("team/app").unwrap().hold(&sbom, "sbom");
        let limits = format!("{LONG}\n[limits]\ndocument_bytes = 4999\n");
        let verifier = bench.start_with("", &limits).await;
        let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
        if refused {
            assert!(said.error().starts_with("UNUSABLE: "), "{}", said.body);
            assert!(said.error().contains("limits.document_bytes"), "{}", said.body);
        } else {
            assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
        }
    }
}
