//! What is kept, and who asks when many want the same.

use std::time::Duration;

use portolan_verify::sign::Form;

use crate::harness::{Bench, LONG, V1, V2, client, policy, until};
use crate::support::fault::Fault;
use crate::support::image::Image;

/// Of what may change nothing is kept.
const SHORT_BUT_CONTENT: &str =
    "\n[cache]\ntag_ttl = \"1ms\"\nverified_ttl = \"1ms\"\nrefused_ttl = \"1ms\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn case_27_a_second_question_makes_no_traffic_and_a_new_policy_makes_it_count_again() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let key = bench.key_for("amd64");
    assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], true);
    let asked = bench.registry.seen().len();
    assert!(asked > 0);
    assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], true);
    assert_eq!(verifier.ask(V2, &[&bench.image(":v1")]).await.value()["succeeded"], true);
    assert_eq!(bench.registry.seen().len(), asked, "nothing was asked");
    // The same words with another key behind them: what was decided does not count any more.
    let other = portolan_verify::key::PrivateKey::generate().unwrap();
    bench.write("release.pub", &other.public().to_pem());
    verifier.generation(2.0).await;
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], false, "{}", said.body);
    assert!(bench.registry.seen().len() > asked, "it was looked at again");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_28_five_hundred_who_ask_the_same_at_once_cause_one_verification() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let top = bench.image.top.digest;
    // Slow enough for all of them to be there before it is known.
    let slow = Fault::Trickle { bytes: 20, pause: Duration::from_millis(200) };
    bench.registry.script("GET", format!("/referrers/{top}"), vec![slow]);
    bench.write("registries.toml", "[defaults]\nrequest_timeout = \"60s\"\n");
    let before = bench.registry.count("GET", &format!("/referrers/{top}"));
    let limits = format!("{LONG}\n[limits]\nrequests = 1000\n[timeouts]\nverify = \"60s\"\n");
    let verifier = bench.start_with("", &limits).await;
    let key = bench.key_for("amd64");
    let url = format!("https://localhost:{}{V1}", verifier.running.provider.port());
    let body = serde_json::json!({"request": {"keys": [key]}}).to_string();
    // Twenty connections, because one carries 32 questions at a time.
    let clients: Vec<_> =
        (0..20).map(|_| client(&bench.authority.pem(), Some(&bench.identity()))).collect();
    for client in &clients {
        // Connected already: otherwise each question would try to be the first.
        assert_eq!(client.get(&url).send().await.unwrap().status().as_u16(), 405);
    }
    let asking = (0..500).map(|n| clients[n % 20].post(&url).body(body.clone()).send());
    let all_are_there =
        until(async || verifier.metric("portolan_verifier_in_flight").await == 500.0);
    let (answers, ()) = tokio::join!(futures_util::future::join_all(asking), all_are_there);
    for answer in answers {
        let said: serde_json::Value =
            serde_json::from_str(&answer.unwrap().text().await.unwrap()).unwrap();
        assert_eq!(said["response"]["items"][0]["value"]["isSuccess"], true, "{said}");
    }
    assert_eq!(verifier.metric("portolan_verifier_subjects_examined_total").await, 2.0);
    assert_eq!(bench.registry.count("GET", "/manifests/v1"), 1);
    assert_eq!(bench.registry.count("GET", &format!("/referrers/{top}")), before + 1);
    assert_eq!(verifier.metric("portolan_verifier_in_flight").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_is_forgotten_sooner_than_a_yes() {
    let bench = Bench::new();
    bench.sign(&bench.image.top, Form::Bundle).await;
    let times = "\n[cache]\ntag_ttl = \"10m\"\nverified_ttl = \"10m\"\nrefused_ttl = \"300ms\"\n";
    let verifier = bench.start_with("", times).await;
    let key = bench.key_for("amd64");
    assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], false);
    bench.sign(&bench.child("amd64"), Form::Bundle).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    let index = format!("/referrers/{}", bench.image.top.digest);
    let before = bench.registry.count("GET", &index);
    assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], true);
    assert_eq!(bench.registry.count("GET", &index), before, "the yes for the index was kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_asked_for_again_after_its_time_and_what_it_holds_is_not() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let times = "\n[cache]\ntag_ttl = \"100ms\"\nverified_ttl = \"10m\"\n";
    let verifier = bench.start_with("", times).await;
    let key = bench.key_for("amd64");
    verifier.ask(V1, &[&key]).await;
    let asked = bench.registry.seen().len();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], true);
    assert_eq!(bench.registry.seen().len(), asked + 1);
    // What it holds is known, so it is only asked whether it is still that.
    let count = |method| bench.registry.count(method, "/manifests/v1");
    assert_eq!((count("GET"), count("HEAD")), (1, 1));
    // It is not.
    let other = Image::multi(&["linux/amd64"], 9);
    bench.registry.registry().repositories.get_mut("team/app").unwrap().hold(&other, "v1");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], false, "{}", said.body);
    assert_eq!(said.value()["resolvedDigest"], other.top.digest.to_string());
    assert_eq!((count("GET"), count("HEAD")), (2, 2));
}

/// The same of the tags that signatures of cosign 2 are under; and a signature that is taken away counts
/// no more.
#[tokio::test(flavor = "multi_thread")]
async fn of_signatures_that_are_known_it_is_only_asked_whether_they_are_still_there() {
    let bench = Bench::new();
    let (top, child) = (bench.image.top.clone(), bench.child("amd64"));
    for subject in [&top, &child] {
        bench.sign(subject, Form::Simple).await;
    }
    let verifier = bench.start_with("", SHORT_BUT_CONTENT).await;
    let key = bench.key_for("amd64");
    let tag = format!("/manifests/{}", portolan_verify::cosign::tag(&top.digest, "sig"));
    let count = |method| bench.registry.count(method, &tag);
    // The first time it is seen, the second time it is kept.
    for _ in 0..2 {
        assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], true);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (got, headed) = (count("GET"), count("HEAD"));
    assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], true);
    assert_eq!((count("GET"), count("HEAD")), (got, headed + 1));
    let name = portolan_verify::cosign::tag(&top.digest, "sig").to_string();
    bench.registry.registry().repositories.get_mut("team/app").unwrap().tags.remove(&name);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], false, "{}", said.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_is_not_kept() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.registry.script("GET", "/manifests/v1", vec![Fault::status(403)]);
    let verifier = bench.start().await;
    let key = bench.key_for("amd64");
    assert!(verifier.ask(V1, &[&key]).await.system_error().contains("DENIED"));
    assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], true);
}

/// A verdict belongs to its repository: the same bytes elsewhere are another question.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_signed_in_one_repository_is_not_signed_in_another() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let image = bench.image.clone();
    bench
        .registry
        .registry()
        .repositories
        .entry("team/copy".to_owned())
        .or_default()
        .hold(&image, "v1");
    let verifier = bench.start().await;
    let key = bench.key_for("amd64");
    assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], true);
    let copy = key.replace("team/app", "team/copy");
    assert_eq!(verifier.ask(V1, &[&copy]).await.value()["isSuccess"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn caches_without_room_only_cost_time() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.write("policy.yaml", &policy("  platforms: all\n"));
    let none = "\n[cache]\ntags = 0\nimage_bytes = 0\nverdict_bytes = 0\n";
    let verifier = bench.start_with("", none).await;
    for _ in 0..2 {
        assert_eq!(verifier.ask(V1, &[&bench.key_for("amd64")]).await.value()["isSuccess"], true);
        assert_eq!(verifier.ask(V1, &[&bench.image(":v1")]).await.value()["isSuccess"], false);
    }
}

/// Nothing is asked for that a yes does not need: signatures are looked for where they were last
/// found, and what cosign signed is known without being fetched.
#[tokio::test(flavor = "multi_thread")]
async fn a_yes_is_looked_for_where_it_was_last_found_and_no_further() {
    let bench = Bench::new();
    for subject in [bench.image.top.clone(), bench.child("amd64"), bench.child("arm64")] {
        bench.sign(&subject, Form::Simple).await;
    }
    let verifier = bench.start().await;
    assert_eq!(verifier.ask(V1, &[&bench.key_for("amd64")]).await.value()["isSuccess"], true);
    let tag = portolan_verify::cosign::tag(&bench.child("arm64").digest, "sig");
    let tag = format!("/manifests/{tag}");
    let (before, of_tag) = (bench.registry.seen().len(), bench.registry.count("GET", &tag));
    assert_eq!(verifier.ask(V1, &[&bench.key_for("arm64")]).await.value()["isSuccess"], true);
    assert_eq!(bench.registry.count("GET", &tag), of_tag + 1);
    assert_eq!(bench.registry.seen().len(), before + 1, "the tag of its signatures, no more");
}

/// Where that is not enough, it is looked for everywhere else: the order never decides.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_found_where_it_was_last_is_found_elsewhere() {
    for forms in [[Form::Simple, Form::Bundle], [Form::Bundle, Form::Simple]] {
        let bench = Bench::new();
        bench.sign(&bench.image.top, forms[0]).await;
        bench.sign(&bench.child("amd64"), forms[0]).await;
        let verifier = bench.start().await;
        assert_eq!(verifier.ask(V1, &[&bench.key_for("amd64")]).await.value()["isSuccess"], true);
        bench.sign(&bench.child("arm64"), forms[1]).await;
        let said = verifier.ask(V1, &[&bench.key_for("arm64")]).await;
        assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
        // And what is signed in neither form is not verified.
        let other = Bench::new();
        let verifier = other.start().await;
        assert_eq!(verifier.ask(V1, &[&other.key_for("arm64")]).await.value()["isSuccess"], false);
    }
}

/// An answer that is written once still has the trace and the time of each request, and the key as
/// it was asked.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_again_is_told_for_this_request() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let key = format!(" {}\n", bench.key_for("amd64"));
    for path in [V1, V2] {
        let first = verifier.ask(path, &[&key]).await;
        let second = verifier.ask(path, &[&key, &key]).await;
        assert_eq!(second.items().len(), 2);
        for item in second.items() {
            assert_eq!(item["key"], key.as_str());
            let mut value = item["value"].clone();
            for name in ["traceID", "timestamp"] {
                assert!(value[name].as_str().is_some_and(|text| !text.is_empty()), "{value}");
                assert_ne!(value[name], first.value()[name], "{name}");
                value[name] = first.value()[name].clone();
            }
            assert_eq!(&value, first.value());
        }
    }
    let hits = "portolan_verifier_cache_requests_total{cache=\"answer\",result=\"hit\"}";
    assert_eq!(verifier.metric(hits).await, 4.0);
    assert_eq!(verifier.metric("portolan_verifier_images_total{outcome=\"verified\"}").await, 6.0);
}

/// A request in the very bytes of one before is not read again, and its answer is the same: with its own
/// trace, for as long as what it was made of, under the policy that made it, and in its own shape.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_asked_before_is_told_the_same_until_something_changes() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let keys = [bench.key_for("amd64"), bench.key_for("arm64"), bench.key_for("amd64")];
    let keys = keys.each_ref().map(String::as_str);
    let hits = "portolan_verifier_cache_requests_total{cache=\"request\",result=\"hit\"}";
    for (path, flag, seen) in [(V1, "isSuccess", 2.0), (V2, "succeeded", 4.0)] {
        // The first is looked at, the second is known by its keys, and then by its bytes.
        let mut told = Vec::new();
        for _ in 0..4 {
            told.push(verifier.ask(path, &keys).await);
        }
        assert_eq!(verifier.metric(hits).await, seen, "{path}");
        let traces: std::collections::BTreeSet<_> =
            told.iter().map(|one| one.items()[0]["value"]["traceID"].to_string()).collect();
        assert_eq!(traces.len(), 4, "each has its own");
        for one in &told {
            let found: Vec<_> = one.items().iter().map(|item| &item["value"][flag]).collect();
            assert_eq!(found, [true, false, true], "{}", one.body);
            assert!(one.items().iter().zip(keys).all(|(item, key)| item["key"] == key));
        }
    }
    // Each of its images is counted, as ever: four requests of three in each shape.
    let images = |outcome| format!("portolan_verifier_images_total{{outcome=\"{outcome}\"}}");
    assert_eq!(verifier.metric(&images("verified")).await, 16.0);
    assert_eq!(verifier.metric(&images("refused")).await, 8.0);
    let other = portolan_verify::key::PrivateKey::generate().unwrap();
    bench.write("release.pub", &other.public().to_pem());
    verifier.generation(2.0).await;
    let said = verifier.ask(V1, &keys).await;
    assert_eq!(said.items()[0]["value"]["isSuccess"], false, "{}", said.body);
}

/// A request is not remembered for longer than the first of its answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_not_known_for_longer_than_any_of_its_answers() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let times = "\n[cache]\ntag_ttl = \"500ms\"\nverified_ttl = \"10m\"\n";
    let verifier = bench.start_with("", times).await;
    let digest = format!("@{}", bench.image.top.digest);
    let keys = [bench.image(&digest), bench.key_for("amd64")];
    let keys = keys.each_ref().map(String::as_str);
    for _ in 0..3 {
        assert_eq!(verifier.ask(V1, &keys).await.items()[1]["value"]["isSuccess"], true);
    }
    let before = bench.registry.count("HEAD", "/manifests/v1");
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(verifier.ask(V1, &keys).await.items()[1]["value"]["isSuccess"], true);
    assert_eq!(bench.registry.count("HEAD", "/manifests/v1"), before + 1, "the tag was asked for");
}

/// An answer goes with the first of what it was made of, here the tag.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_not_kept_for_longer_than_its_tag() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let times = "\n[cache]\ntag_ttl = \"300ms\"\nverified_ttl = \"10m\"\n";
    let verifier = bench.start_with("", times).await;
    let key = bench.key_for("amd64");
    assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], true);
    tokio::time::sleep(Duration::from_millis(400)).await;
    let before = bench.registry.count("HEAD", "/manifests/v1");
    assert_eq!(verifier.ask(V1, &[&key]).await.value()["isSuccess"], true);
    assert_eq!(bench.registry.count("HEAD", "/manifests/v1"), before + 1);
}
