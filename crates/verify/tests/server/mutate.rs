//! Tags to digests.

use crate::harness::{Bench, MUTATE};

const V2_MUTATE: &str = "/ratify/gatekeeper/v2/mutate";

#[tokio::test(flavor = "multi_thread")]
async fn case_26_a_tag_becomes_the_digest_of_the_index() {
    let bench = Bench::new();
    let verifier = bench.start().await;
    let top = bench.image.top.digest;
    let pinned = bench.image(&format!("@{top}"));
    let both = bench.image(&format!(":v1@{top}"));
    for path in [MUTATE, V2_MUTATE] {
        let asked = [bench.image(":v1"), pinned.clone(), both.clone()];
        let keys: Vec<&str> = asked.iter().map(String::as_str).collect();
        let said = verifier.ask(path, &keys).await;
        assert_eq!(said.status, 200);
        assert_eq!(said.body["response"]["idempotent"], true);
        assert!(said.body["response"].get("systemError").is_none(), "{}", said.body);
        for (item, key) in said.items().iter().zip(&asked) {
            assert_eq!(
                (item["key"].as_str(), item["value"].as_str()),
                (Some(key.as_str()), Some(pinned.as_str()))
            );
            assert!(item.get("error").is_none());
        }
    }
    assert_eq!(bench.registry.seen().len(), 1, "{:?}", bench.registry.seen());
}

/// What comes back is written in the image's place, so nothing but an image is taken.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_plain_reference_is_pinned() {
    let bench = Bench::new();
    let verifier = bench.start().await;
    for key in [format!("[team]{}", bench.image(":v1")), bench.key_for("amd64"), String::new()] {
        let said = verifier.ask(MUTATE, &[&key]).await;
        let item = &said.items()[0];
        assert_eq!(item["value"], key);
        assert!(item["error"].as_str().unwrap().starts_with("BAD_KEY: "), "{item}");
    }
    assert!(bench.registry.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_is_not_there_is_an_error_of_the_item_and_its_value_stays_a_text() {
    let bench = Bench::new();
    let verifier = bench.start().await;
    let gone = bench.image(":gone");
    let said = verifier.ask(MUTATE, &[&gone]).await;
    let item = &said.items()[0];
    assert_eq!(item["value"], gone, "a reader that overlooks the error finds the image as it was");
    assert!(item["error"].as_str().unwrap().starts_with("NOT_FOUND: "), "{item}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_that_will_pass_is_a_system_error_of_mutations_too() {
    let bench = Bench::new();
    for method in ["HEAD", "GET"] {
        bench.registry.always(method, "/manifests/v1", crate::support::fault::Fault::status(500));
    }
    let verifier = bench.start_with("", "\n[timeouts]\nmutate = \"1s\"\n").await;
    let said = verifier.ask(MUTATE, &[&bench.image(":v1")]).await;
    assert_eq!(said.status, 503);
    said.system_error();
}
