use portolan_core::{Algorithm, Digest, media_type};
use portolan_registry::headers::next_link;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Registry, code, descriptor, json_body, refusal, text};

async fn start() -> (tempfile::TempDir, Registry) {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::start(root.path()).await;
    (root, registry)
}

async fn names(registry: &Registry, path: &str, field: &str) -> (Vec<String>, Option<String>) {
    let response = registry.get(path).await;
    assert_eq!(response.status(), 200, "{path}");
    let next = next_link(&text(&response, "link"));
    let body: Value = json_body(response).await;
    let list = body[field].as_array().unwrap();
    (list.iter().map(|v| v.as_str().unwrap().to_owned()).collect(), next)
}

#[tokio::test]
async fn tags_are_listed_in_order_and_in_pages() {
    let (_root, registry) = start().await;
    let manifest = registry.push_parts("a", "one").await.to_string();
    for tag in ["test2", "test0", "Test1", "latest", "0.9", "_under"] {
        assert_eq!(registry.put_manifest("a", tag, &manifest).await.status(), 201);
    }
    let sorted = ["0.9", "_under", "latest", "test0", "Test1", "test2"];
    let list = "/v2/a/tags/list";
    let (all, next) = names(&registry, list, "tags").await;
    assert_eq!((all, next), (sorted.map(String::from).to_vec(), None));

    let (page, next) = names(&registry, &format!("{list}?n=4"), "tags").await;
    assert_eq!(page, sorted[..4]);
    let (rest, end) = names(&registry, &next.unwrap(), "tags").await;
    assert_eq!((rest, end), (sorted[4..].iter().map(ToString::to_string).collect(), None));

    assert_eq!(names(&registry, &format!("{list}?n=6"), "tags").await.1, None);
    assert_eq!(names(&registry, &format!("{list}?n=0"), "tags").await, (vec![], None));
    assert_eq!(names(&registry, &format!("{list}?last=latest"), "tags").await.0, sorted[3..]);
    assert_eq!(names(&registry, &format!("{list}?n=1&last=zzz"), "tags").await, (vec![], None));
    let huge = format!("{list}?n=99999999999999999999999999");
    assert_eq!(names(&registry, &huge, "tags").await.0, sorted);
    for bad in ["-1", "x", "1e3"] {
        let refused = registry.get(&format!("{list}?n={bad}")).await;
        assert_eq!(refusal(refused).await.0, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_repository_without_tags_has_an_empty_list() {
    let (_root, registry) = start().await;
    registry.push_blob("a", b"x").await;
    let body: Value = json_body(registry.get("/v2/a/tags/list").await).await;
    assert_eq!(body, json!({"name": "a", "tags": []}));
    assert_eq!(refusal(registry.get("/v2/b/tags/list").await).await, code(404, "NAME_UNKNOWN"));
}

#[tokio::test]
async fn repositories_are_listed_in_pages() {
    let (_root, registry) = start().await;
    for name in ["c", "a/b", "a", "a/blobs/sha256"] {
        registry.push_blob(name, b"x").await;
    }
    let sorted = ["a", "a/b", "a/blobs/sha256", "c"];
    assert_eq!(names(&registry, "/v2/_catalog", "repositories").await.0, sorted);
    let (page, next) = names(&registry, "/v2/_catalog?n=2", "repositories").await;
    assert_eq!(page, sorted[..2]);
    let (rest, end) = names(&registry, &next.unwrap(), "repositories").await;
    assert_eq!((rest, end), (sorted[2..].iter().map(ToString::to_string).collect(), None));
}

/// An artifact that speaks of `subject`.
fn artifact(subject: &Digest, kind: Option<&str>, note: &str) -> Value {
    let empty = descriptor(Algorithm::Sha256, media_type::OCI_EMPTY, b"{}");
    let mut manifest = json!({
        "schemaVersion": 2, "mediaType": media_type::OCI_MANIFEST,
        "config": empty, "layers": [empty],
        "subject": {"mediaType": media_type::OCI_MANIFEST, "digest": subject, "size": 7},
        "annotations": {"note": note},
    });
    if let Some(kind) = kind {
        manifest["artifactType"] = json!(kind);
    }
    manifest
}

async fn referrers(registry: &Registry, subject: &Digest, query: &str) -> (Vec<Value>, String) {
    let response = registry.get(&format!("/v2/a/referrers/{subject}{query}")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(text(&response, "content-type"), media_type::OCI_INDEX);
    let filters = text(&response, "oci-filters-applied");
    let index: Value = json_body(response).await;
    assert_eq!(
        (&index["schemaVersion"], &index["mediaType"]),
        (&json!(2), &json!(media_type::OCI_INDEX))
    );
    (index["manifests"].as_array().unwrap().clone(), filters)
}

async fn push(registry: &Registry, manifest: &Value) -> Digest {
    let manifest = manifest.to_string();
    let digest = Digest::sha256(manifest.as_bytes());
    let pushed = registry.put_manifest("a", &digest.to_string(), &manifest).await;
    assert_eq!(pushed.status(), 201, "{}", pushed.text().await.unwrap());
    digest
}

#[tokio::test]
async fn referrers_are_described_and_filtered() {
    let (_root, registry) = start().await;
    let subject = Digest::sha256(b"not pushed yet");
    assert_eq!(referrers(&registry, &subject, "").await.0, Vec::<Value>::new());
    registry.push_blob("a", b"{}").await;

    // One with a type, one that takes it from its config, an index with and one without a type.
    let typed = artifact(&subject, Some("application/x+one"), "typed").to_string();
    let pushed = registry.put_manifest("a", "typed", &typed).await;
    assert_eq!(pushed.status(), 201);
    assert_eq!(text(&pushed, "oci-subject"), subject.to_string());
    push(&registry, &artifact(&subject, None, "config")).await;
    let index = |kind: Option<&str>, note: &str| {
        let mut index = artifact(&subject, kind, note);
        let object = index.as_object_mut().unwrap();
        object.remove("config");
        object.remove("layers");
        object.insert("manifests".into(), json!([]));
        object.insert("mediaType".into(), json!(media_type::OCI_INDEX));
        index
    };
    push(&registry, &index(Some("application/x+one"), "index")).await;
    push(&registry, &index(None, "plain index")).await;

    let (all, filters) = referrers(&registry, &subject, "").await;
    assert_eq!((all.len(), filters.as_str()), (4, ""));
    for entry in &all {
        let note = entry["annotations"]["note"].as_str().unwrap();
        let kind = match note {
            "typed" | "index" => json!("application/x+one"),
            "config" => json!(media_type::OCI_EMPTY),
            _ => Value::Null,
        };
        assert_eq!(entry["artifactType"], kind, "{note}");
        assert!(entry["size"].as_u64().unwrap() > 100);
    }
    let typed = all.iter().find(|e| e["annotations"]["note"] == "typed").unwrap();
    assert_eq!(typed["mediaType"], media_type::OCI_MANIFEST);

    for query in ["?artifactType=application/x%2Bone", "?artifactType=application/x+one"] {
        let (some, filters) = referrers(&registry, &subject, query).await;
        assert_eq!((some.len(), filters.as_str()), (2, "artifactType"), "{query}");
    }
    let (none, filters) = referrers(&registry, &subject, "?artifactType=a/b").await;
    assert_eq!((none.len(), filters.as_str()), (0, "artifactType"));
}

#[tokio::test]
async fn referrers_of_what_does_not_exist_are_none() {
    let (_root, registry) = start().await;
    let subject = Digest::of(Algorithm::Sha512, b"x");
    assert_eq!(referrers(&registry, &subject, "").await.0, Vec::<Value>::new());
    let bad = registry.get("/v2/a/referrers/sha256:x").await;
    assert_eq!(refusal(bad).await, code(400, "DIGEST_INVALID"));
    let bad = registry.get(&format!("/v2/a/referrers/{subject}?last=x")).await;
    assert_eq!(refusal(bad).await.0, 400);
}

#[tokio::test]
async fn referrers_go_with_their_manifest_and_stay_without_their_subject() {
    let (_root, registry) = start().await;
    registry.push_blob("a", b"{}").await;
    let (_, subject) = registry.push_image("a", "t", "one").await;
    let first = push(&registry, &artifact(&subject, Some("a/b"), "first")).await;
    let second = push(&registry, &artifact(&subject, Some("a/b"), "second")).await;
    assert_eq!(referrers(&registry, &subject, "").await.0.len(), 2);

    assert_eq!(registry.delete(&format!("/v2/a/manifests/{first}")).await.status(), 202);
    let (left, _) = referrers(&registry, &subject, "").await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["digest"], json!(second));

    assert_eq!(registry.delete(&format!("/v2/a/manifests/{subject}")).await.status(), 202);
    assert_eq!(referrers(&registry, &subject, "").await.0.len(), 1);
    // The same bytes may come back.
    push(&registry, &artifact(&subject, Some("a/b"), "first")).await;
    assert_eq!(referrers(&registry, &subject, "").await.0.len(), 2);
}

#[tokio::test]
async fn many_large_referrers_come_in_pages_that_keep_the_filter() {
    let (_root, registry) = start().await;
    registry.push_blob("a", b"{}").await;
    let subject = Digest::sha256(b"subject");
    for n in 0..5 {
        let note = format!("{n}{}", "x".repeat(1_500_000));
        push(&registry, &artifact(&subject, Some("a/b+c"), &note)).await;
    }
    let mut seen = Vec::new();
    let mut path = format!("/v2/a/referrers/{subject}?artifactType=a/b%2Bc");
    for _ in 0..10 {
        let page = registry.ask(Method::GET, &path).send().await.unwrap();
        assert_eq!(text(&page, "oci-filters-applied"), "artifactType");
        let next = next_link(&text(&page, "link"));
        let bytes = page.bytes().await.unwrap();
        assert!(bytes.len() <= 4 * 1024 * 1024);
        let index: Value = serde_json::from_slice(&bytes).unwrap();
        seen.extend(index["manifests"].as_array().unwrap().iter().map(|m| m["digest"].to_string()));
        match next {
            Some(next) => path = next,
            None => break,
        }
    }
    let total = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), total), (5, 5));
}
