//! What is asked: keys and requests of every kind.

use serde_json::json;

use crate::harness::{Bench, LONG, MUTATE, V1, V2};

#[tokio::test(flavor = "multi_thread")]
async fn case_19_a_key_may_say_where_it_is_asked_from() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let key = format!("[team-a]{}", bench.key_for("amd64"));
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    assert_eq!(said.items()[0]["key"], key);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_20_what_is_no_key_is_an_error_of_that_item_alone() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let long = format!("r.example/{}", "a".repeat(5000));
    let deep = "{\"reference\":".repeat(300);
    let good = bench.key_for("amd64");
    let keys = [
        "{",
        "{\"reference\":\"r.example/a\",\"cpu\":\"arm64\"}",
        "{\"reference\":\"r.example/a\",\"os\":1}",
        "{\"reference\":\"r.example/a\",\"reference\":\"r.example/b\"}",
        "{\"reference\":\"\"}",
        "{\"reference\":\"r.example/a\",\"os\":\"linux\",\"platforms\":[{\"os\":\"linux\"}]}",
        "",
        "[",
        "[UPPER]r.example/a",
        "oci:/etc:1",
        "r.example/a b",
        "../../etc/passwd",
        "r.example/a\u{0}",
        &long,
        &deep,
        &good,
    ];
    let said = verifier.ask(V1, &keys).await;
    assert_eq!((said.status, said.items().len()), (200, keys.len()));
    let (last, bad) = said.items().split_last().unwrap();
    for (item, key) in bad.iter().zip(keys) {
        assert_eq!(item["key"], key);
        assert!(item["error"].as_str().unwrap().starts_with("BAD_KEY: "), "{item}");
        assert!(item.get("value").is_none(), "{item}");
    }
    assert_eq!(last["value"]["isSuccess"], true, "the good one is answered: {last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_21_duplicate_keys_are_each_answered_and_looked_at_once() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let (amd64, arm64) = (bench.key_for("amd64"), bench.key_for("arm64"));
    let keys = [amd64.as_str(), &arm64, &amd64, &amd64, &arm64];
    let said = verifier.ask(V1, &keys).await;
    let answered: Vec<_> = said
        .items()
        .iter()
        .map(|item| (item["key"].as_str().unwrap(), item["value"]["isSuccess"].as_bool().unwrap()))
        .collect();
    let expected: Vec<_> = keys.into_iter().map(|key| (key, key == amd64)).collect();
    assert_eq!(answered, expected, "in the order in which they were asked");
    assert_eq!(bench.registry.count("GET", "/manifests/v1"), 1);
    assert_eq!(verifier.metric("portolan_verifier_subjects_examined_total").await, 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_22_keys_come_back_byte_for_byte() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let image = bench.image(":v1");
    let escaped = image.replace(':', "\\u003a");
    let keys = [
        format!("{{\r\n \"reference\" : \"{image}\"\n}}\n"),
        format!("\t{{\"reference\":\"{escaped}\"}} "),
        format!("  [team]{{\"arch\":\"x86_64\",\"os\":\"Linux\",\"reference\":\"{image}\"}}"),
        "no key\r\nat all \u{1f980}".to_owned(),
    ];
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    // Only a plain reference is pinned.
    for (path, wrong) in [(V1, 1), (V2, 1), (MUTATE, 4)] {
        let said = verifier.ask(path, &keys).await;
        let back: Vec<_> = said.items().iter().map(|item| item["key"].as_str().unwrap()).collect();
        assert_eq!(back, keys, "{path}");
        let errors = said.items().iter().filter(|item| item.get("error").is_some()).count();
        assert_eq!(errors, wrong, "{path}: {}", said.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_gets_an_answer_that_gatekeeper_can_read() {
    let bench = Bench::new();
    let verifier = bench.start_with("", &format!("{LONG}\n[limits]\nbody_bytes = 20000\n")).await;
    for path in [V1, V2, MUTATE] {
        for body in [
            "",
            "{",
            "null",
            "[]",
            "{}",
            "{\"request\":{}}",
            "{\"request\":{\"keys\":\"r.example/a\"}}",
            "{\"request\":{\"keys\":[1]}}",
            "{\"request\":{\"keys\":[null]}}",
            "{\"request\":{\"keys\":[\"\\ud800\"]}}",
        ] {
            let said = verifier.post(path, body).await;
            assert_eq!(said.status, 400, "{path} {body}");
            assert!(said.system_error().contains("ProviderRequest"), "{body}: {}", said.body);
        }
        let said = verifier.post(path, vec![0xff_u8; 100]).await;
        assert_eq!(said.status, 400, "{}", said.body);
        let said = verifier.post(path, vec![b' '; 30_000]).await;
        assert_eq!(said.status, 413);
        assert!(said.system_error().contains("20000"), "{}", said.body);
    }
    assert!(bench.registry.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_keys_are_refused_as_a_whole_and_none_is_fine() {
    let bench = Bench::new();
    let limits = format!("{LONG}\n[limits]\nkeys = 3\nkey_bytes = 100\n");
    let verifier = bench.start_with("", &limits).await;
    let said = verifier.ask(V1, &["a", "b", "c", "d"]).await;
    assert_eq!(said.status, 413);
    assert!(said.system_error().contains("at most 3"), "{}", said.body);
    let said = verifier.ask(V1, &[]).await;
    assert_eq!((said.status, &said.body["response"]["items"]), (200, &json!([])));
    let long = "r.example/".to_owned() + &"a".repeat(91);
    assert!(verifier.ask(V1, &[&long]).await.error().contains("at most 100"));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_paths_and_methods_are_refused() {
    let bench = Bench::new();
    let verifier = bench.start().await;
    let url = format!("https://localhost:{}", verifier.running.provider.port());
    let get = verifier.client.get(format!("{url}{V1}")).send().await.unwrap();
    assert_eq!(get.status().as_u16(), 405);
    let other = verifier.client.post(format!("{url}/ratify/gatekeeper/v3/verify")).send().await;
    assert_eq!(other.unwrap().status().as_u16(), 404);
    let metrics = verifier.client.get(format!("{url}/metrics")).send().await.unwrap();
    assert_eq!(metrics.status().as_u16(), 404, "only where it is asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_id_is_taken_from_the_configured_header_if_it_is_one() {
    let bench = Bench::new();
    let verifier = bench.start_with("trace_headers = [\"x-trace\"]", LONG).await;
    let url = format!("https://localhost:{}{V1}", verifier.running.provider.port());
    let body = json!({"request": {"keys": [bench.key_for("amd64")]}}).to_string();
    for (given, taken) in [("abc-123", true), ("two words", false), ("\"forged\"", false)] {
        let asked = verifier.client.post(&url).header("x-trace", given).body(body.clone());
        let text = asked.send().await.unwrap().text().await.unwrap();
        let said: serde_json::Value = serde_json::from_str(&text).unwrap();
        let trace = said["response"]["items"][0]["value"]["traceID"].as_str().unwrap();
        assert_eq!(trace == given, taken, "{trace}");
    }
}
