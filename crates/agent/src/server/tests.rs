//! The API over HTTP semantics alone: a host of plain maps behind it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use axum::body::Body;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::api::{
    CacheReport, GcReport, GcRequest, InstanceStatus, InstanceSummary, KindUse, Phase, PoolStatus,
    PrefetchOutcome, Status, VerifyOutcome, VerifyReport,
};
use crate::id::InstanceId;
use crate::image::ResolvedImage;
use crate::reason::Reason;
use crate::spec::WorkloadSpec;

/// A host of plain maps.
struct Plain {
    instances: Mutex<BTreeMap<InstanceId, InstanceStatus>>,
    console: PathBuf,
    ready: bool,
    full: bool,
}

impl Default for Plain {
    fn default() -> Self {
        let console = PathBuf::from("there/is/no/console");
        Self { instances: Mutex::default(), console, ready: true, full: false }
    }
}

fn made(id: InstanceId, spec: WorkloadSpec) -> InstanceStatus {
    InstanceStatus {
        id,
        phase: Phase::Pending,
        reason: None,
        message: None,
        resolved_digest: spec.image.resolved_digest.clone(),
        spec,
        rootdisk_key: None,
        cached: None,
        progress: None,
        created_at: Timestamp::UNIX_EPOCH,
        started_at: None,
        ended_at: None,
        exit: None,
    }
}

impl Host for Plain {
    fn put(
        &self,
        id: InstanceId,
        spec: WorkloadSpec,
    ) -> BoxFuture<'_, Result<(InstanceStatus, bool), ApiError>> {
        if self.full {
            return async { Err(ApiError::of(Reason::DiskFull, "no room")) }.boxed();
        }
        let mut instances = self.instances.lock().unwrap();
        let new = !instances.contains_key(&id);
        let status = made(id.clone(), spec);
        instances.insert(id, status.clone());
        async move { Ok((status, new)) }.boxed()
    }

    fn get(&self, id: &InstanceId) -> Option<InstanceStatus> {
        self.instances.lock().unwrap().get(id).cloned()
    }

    fn summaries(&self, after: Option<&InstanceId>, limit: usize) -> Vec<InstanceSummary> {
        let instances = self.instances.lock().unwrap();
        let all = instances.values().filter(|status| after.is_none_or(|after| status.id > *after));
        all.take(limit).map(InstanceSummary::from).collect()
    }

    fn delete<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<bool, ApiError>> {
        async move { Ok(self.instances.lock().unwrap().remove(id).is_some()) }.boxed()
    }

    fn console(&self, _: &InstanceId) -> [PathBuf; 2] {
        [self.console.with_added_extension("1"), self.console.clone()]
    }

    fn prefetch<'a>(
        &'a self,
        image: &'a ResolvedImage,
        _: &'a CancellationToken,
    ) -> BoxFuture<'a, PrefetchOutcome> {
        let resolved_digest = Some(image.resolved_digest.to_string());
        let rootdisk_key = Some("a".repeat(64));
        async move {
            PrefetchOutcome {
                resolved_digest,
                rootdisk_key,
                cached: Some(false),
                reason: None,
                message: None,
            }
        }
        .boxed()
    }

    fn cache(&self) -> BoxFuture<'_, Result<CacheReport, ApiError>> {
        async {
            Ok(CacheReport {
                rootdisks: Vec::new(),
                blobs: KindUse::default(),
                temporary: KindUse::default(),
                allocated_bytes: 0,
                target_bytes: None,
                high_water_bytes: None,
                disk: PoolStatus::default(),
            })
        }
        .boxed()
    }

    fn gc(&self, request: GcRequest) -> BoxFuture<'_, Result<GcReport, ApiError>> {
        let remaining_bytes = request.target_bytes.unwrap_or(7);
        async move {
            Ok(GcReport { dry_run: request.dry_run, remaining_bytes, ..GcReport::default() })
        }
        .boxed()
    }

    fn verify<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<VerifyReport>, ApiError>> {
        let found = key.starts_with('a').then(|| VerifyReport {
            key: key.to_owned(),
            outcome: VerifyOutcome::Ok,
            message: None,
        });
        async { Ok(found) }.boxed()
    }

    fn status(&self) -> Status {
        Status {
            version: "0".to_owned(),
            node: "n".to_owned(),
            platform: "linux/amd64".to_owned(),
            rootdisk_format_version: "1".to_owned(),
            started_at: Timestamp::UNIX_EPOCH,
            time: Timestamp::UNIX_EPOCH,
            ready: self.ready,
            degraded: Vec::new(),
            cache_pressure: false,
            prefetch: None,
            pools: BTreeMap::new(),
            instances: BTreeMap::new(),
        }
    }
}

struct Api {
    app: App,
}

impl Api {
    fn new(host: Plain) -> Self {
        let metrics = Arc::new(Metrics::new());
        Self { app: App::new(Arc::new(host), metrics, CancellationToken::new()) }
    }

    async fn raw(&self, request: http::Request<Body>) -> (StatusCode, http::HeaderMap, Vec<u8>) {
        let service = TowerToHyperService::new(router(self.app.clone()));
        let response = service.call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = http::Request::builder().method(method).uri(path).body(body).unwrap();
        let (status, _, bytes) = self.raw(request).await;
        (status.as_u16(), serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}

fn spec() -> Value {
    json!({ "image": {
        "repository": "registry.example/app",
        "resolved_digest": format!("sha256:{}", "ab".repeat(32)),
        "os": "linux",
        "arch": "amd64",
    }})
}

#[tokio::test]
async fn an_instance_is_put_again_looked_at_listed_and_deleted() {
    let api = Api::new(Plain::default());
    let (status, body) = api.call("PUT", "/v1/instances/web-1", Some(spec())).await;
    assert_eq!((status, &body["phase"]), (201, &json!("pending")), "{body}");
    assert_eq!(body["spec"]["vcpus"], json!(1), "defaults are shown");
    assert_eq!(api.call("PUT", "/v1/instances/web-1", Some(spec())).await.0, 200);
    let (status, body) = api.call("GET", "/v1/instances/web-1", None).await;
    assert_eq!((status, &body["id"]), (200, &json!("web-1")));
    let (_, body) = api.call("GET", "/v1/instances", None).await;
    assert_eq!(body["instances"][0]["id"], json!("web-1"));
    assert!(body.get("next").is_none());
    assert_eq!(api.call("DELETE", "/v1/instances/web-1", None).await.0, 204);
    assert_eq!(api.call("DELETE", "/v1/instances/web-1", None).await.0, 204, "again");
    let (status, body) = api.call("GET", "/v1/instances/web-1", None).await;
    assert_eq!((status, &body["reason"]), (404, &json!("not_found")));
}

#[tokio::test]
async fn health_and_metrics_are_all_that_is_answered_in_the_clear() {
    let app =
        App::new(Arc::new(Plain::default()), Arc::new(Metrics::new()), CancellationToken::new());
    let service = TowerToHyperService::new(health_router(app));
    for (method, path, expected) in [
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/metrics", 200),
        ("POST", "/metrics", 405),
        ("GET", "/v1/status", 404),
        ("GET", "/v1/instances", 404),
        ("PUT", "/v1/instances/a", 404),
        ("POST", "/v1/prefetch", 404),
        ("GET", "/openapi.json", 404),
        ("GET", "/healthz/../v1/status", 404),
        ("GET", "//metrics", 404),
    ] {
        let request = http::Request::builder().method(method).uri(path);
        let response = service.call(request.body(Body::from(spec().to_string())).unwrap()).await;
        assert_eq!(response.unwrap().status().as_u16(), expected, "{method} {path}");
    }
}

#[tokio::test]
async fn refusals_have_a_reason_a_message_and_what_to_try() {
    let api = Api::new(Plain::default());
    let put = |spec: Value| api.call("PUT", "/v1/instances/a", Some(spec));
    let without = |field: &str| {
        let mut spec = spec();
        spec["image"].as_object_mut().unwrap().remove(field);
        spec
    };
    let (status, body) = put(without("resolved_digest")).await;
    assert_eq!((status, &body["reason"]), (422, &json!("resolved_digest_missing")));
    assert!(body["message"].as_str().unwrap().contains("control plane"), "{body}");
    let (status, body) = put(without("arch")).await;
    assert_eq!((status, &body["reason"]), (400, &json!("invalid_request")));
    assert!(body["message"].as_str().unwrap().contains("arch"), "{body}");
    assert!(body["hint"].as_str().unwrap().contains("openapi"), "{body}");
    let mut unknown = spec();
    unknown["memory"] = json!(1);
    let (status, body) = put(unknown).await;
    assert_eq!(status, 400);
    assert!(body["message"].as_str().unwrap().contains("memory"), "{body}");
    let mut tagged = spec();
    tagged["image"]["repository"] = json!("registry.example/app:latest");
    assert_eq!(put(tagged).await.1["reason"], json!("invalid_spec"));
    let mut windows = spec();
    windows["image"]["os"] = json!("windows");
    assert_eq!(put(windows).await.1["reason"], json!("platform_mismatch"));
    let full = Api::new(Plain { full: true, ..Plain::default() });
    let (status, body) = full.call("PUT", "/v1/instances/a", Some(spec())).await;
    assert_eq!((status, &body["reason"]), (507, &json!("disk_full")));
    for (method, path, expected) in [
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/instances/a", 405),
        ("GET", "/v1/instances/UPPER", 400),
        ("GET", "/v1/instances/a%2fb", 400),
        ("GET", "/v1/instances?limit=0", 400),
        ("GET", "/v1/instances?limit=1001", 400),
        ("GET", "/v1/instances?page=2", 400),
        ("GET", "/v1/instances?limit=1&limit=2", 400),
        ("GET", "/v1/instances/a/console?follow=maybe", 400),
        ("GET", "/v1/instances/a/console", 404),
        ("POST", "/v1/cache/zz/verify", 400),
    ] {
        let (status, body) = api.call(method, path, None).await;
        assert_eq!(status, expected, "{method} {path}");
        assert!(body["reason"].is_string() && body["message"].is_string(), "{body}");
    }
    assert_eq!(
        api.call("POST", &format!("/v1/cache/{}/verify", "b".repeat(64)), None).await.0,
        404
    );
}

#[tokio::test]
async fn a_body_is_json_and_bounded() {
    let api = Api::new(Plain::default());
    let put = |kind: &'static str, body: Vec<u8>| {
        let request = http::Request::builder().method("PUT").uri("/v1/instances/a");
        api.raw(request.header("content-type", kind).body(Body::from(body)).unwrap())
    };
    assert_eq!(put("text/plain", spec().to_string().into()).await.0, 415);
    let json = "application/json; charset=utf-8";
    assert_eq!(put(json, spec().to_string().into()).await.0, 201);
    assert_eq!(put(json, vec![b' '; call::MAX_BODY + 1]).await.0, 413);
    assert_eq!(put(json, vec![b'['; 100_000]).await.0, 400, "nesting is bounded");
    assert_eq!(put(json, b"{}".to_vec()).await.0, 400);
}

/// One byte every few seconds is no standstill, and would keep a place for as long as it likes.
#[tokio::test(start_paused = true)]
async fn a_body_that_only_trickles_is_given_up_and_its_place_is_free() {
    let api = Api::new(Plain::default());
    for path in ["/v1/prefetch", "/v1/gc"] {
        let bytes = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Some((Ok::<_, std::convert::Infallible>("{"), ()))
        });
        let request = http::Request::builder().method("POST").uri(path);
        let started = tokio::time::Instant::now();
        let (status, _, _) = api.raw(request.body(Body::from_stream(bytes)).unwrap()).await;
        assert_eq!(status, 408, "{path}");
        assert!(started.elapsed() < Duration::from_secs(30), "{path}");
    }
    assert_eq!(api.app.0.streams.available_permits(), MAX_STREAMS);
    assert_eq!(api.app.0.calls.available_permits(), MAX_CALLS);
}

#[tokio::test]
async fn no_name_of_an_instance_leads_out_of_its_folder() {
    let api = Api::new(Plain::default());
    for id in ["..", ".", "a%2f..%2fb", "%2e%2e", "a%00", "a..", "-", "A", &"a".repeat(300)] {
        let path = format!("/v1/instances/{id}");
        for method in ["GET", "PUT", "DELETE"] {
            let (status, body) = api.call(method, &path, Some(spec())).await;
            assert_eq!(status, 400, "{method} {path}: {body}");
        }
        assert_eq!(api.call("GET", &format!("{path}/console"), None).await.0, 400, "{path}");
    }
    for path in ["/v1/instances/a/../b", "/v1/instances//a", "/v1/instances/a/b/c"] {
        assert_eq!(api.call("PUT", path, Some(spec())).await.0, 404, "{path}");
    }
    assert!(api.app.host().summaries(None, 10).is_empty());
}

#[tokio::test]
async fn ten_thousand_instances_come_in_pages_and_fast() {
    let api = Api::new(Plain::default());
    let spec: WorkloadSpec = serde_json::from_value(spec()).unwrap();
    for number in 0..10_000 {
        let id = format!("i-{number:05}").parse().unwrap();
        api.app.host().put(id, spec.clone()).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut path = "/v1/instances?limit=1000".to_owned();
    loop {
        let (status, page) = api.call("GET", &path, None).await;
        assert_eq!(status, 200);
        let ids = page["instances"].as_array().unwrap();
        seen.extend(ids.iter().map(|i| i["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/instances?limit=1000&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 10_000);
    assert!(seen.is_sorted());
}

#[tokio::test]
async fn every_route_of_the_table_is_answered() {
    let api = Api::new(Plain::default());
    for route in &routes::ALL {
        api.call("PUT", "/v1/instances/a", Some(spec())).await;
        let path = route.path.replace("{id}", "a").replace("{key}", &"a".repeat(64));
        let body = match route.name {
            "putInstance" => Some(spec()),
            "prefetch" => Some(json!({ "images": [spec()["image"]] })),
            _ => None,
        };
        let (status, _) = api.call(route.method.as_str(), &path, body).await;
        assert!(route.answers.iter().any(|(code, _)| *code == status), "{} {status}", route.name);
    }
}

#[tokio::test]
async fn a_prefetch_says_what_came_of_each() {
    let api = Api::new(Plain::default());
    let mut missing = spec()["image"].clone();
    missing.as_object_mut().unwrap().remove("resolved_digest");
    let body = json!({ "images": [spec()["image"], missing] });
    let (status, report) = api.call("POST", "/v1/prefetch", Some(body)).await;
    assert_eq!(status, 200);
    assert_eq!(report["images"][0]["cached"], json!(false));
    assert_eq!(report["images"][1]["reason"], json!("resolved_digest_missing"));
    for bad in [json!({ "images": [] }), json!({ "images": vec![spec()["image"].clone(); 65] })] {
        assert_eq!(api.call("POST", "/v1/prefetch", Some(bad)).await.0, 400);
    }
}

#[tokio::test]
async fn ready_is_more_than_alive() {
    let api = Api::new(Plain { ready: false, ..Plain::default() });
    assert_eq!(api.call("GET", "/healthz", None).await.0, 200);
    let (status, body) = api.call("GET", "/readyz", None).await;
    assert_eq!((status, &body["reason"]), (503, &json!("not_ready")));
    let api = Api::new(Plain::default());
    assert_eq!(api.call("GET", "/readyz", None).await.0, 200);
    assert_eq!(api.call("HEAD", "/readyz", None).await, (200, Value::Null));
}

#[tokio::test]
async fn calls_are_counted_by_route_and_never_by_path() {
    let api = Api::new(Plain::default());
    api.call("GET", "/v1/instances/some-name", None).await;
    api.call("GET", "/some/strange/path", None).await;
    let request = http::Request::get("/metrics").body(Body::empty()).unwrap();
    let (_, headers, text) = api.raw(request).await;
    let text = String::from_utf8(text).unwrap();
    assert!(headers["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    assert!(text.contains("route=\"/v1/instances/{id}\",code=\"404\"} 1"), "{text}");
    assert!(text.contains("route=\"other\",code=\"404\"} 1"), "{text}");
    assert!(!text.contains("strange") && !text.contains("some-name"));
}

#[tokio::test]
async fn when_there_are_too_many_calls_health_is_still_answered() {
    let api = Api::new(Plain::default());
    let _all = api.app.0.calls.acquire_many(u32::try_from(MAX_CALLS).unwrap()).await.unwrap();
    let request = http::Request::get("/v1/instances").body(Body::empty()).unwrap();
    let (status, headers, _) = api.raw(request).await;
    assert_eq!((status.as_u16(), headers["retry-after"].to_str().unwrap()), (503, "1"));
    assert_eq!(api.call("GET", "/healthz", None).await.0, 200);
}

#[tokio::test]
async fn a_console_is_read_from_its_tail_and_followed_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let console = dir.path().join("console.log");
    let api = Api::new(Plain { console: console.clone(), ..Plain::default() });
    api.call("PUT", "/v1/instances/a", Some(spec())).await;
    let get = |query: &str| {
        let uri = format!("/v1/instances/a/console{query}");
        api.raw(http::Request::get(uri).body(Body::empty()).unwrap())
    };
    assert_eq!(get("").await.2, b"", "nothing was started yet");
    std::fs::write(&console, "one\ntwo\n").unwrap();
    assert_eq!(get("").await.2, b"one\ntwo\n");
    assert_eq!(get("?tail=1").await.2, b"two\n");
    let older = console.with_added_extension("1");
    std::fs::write(&older, "zero\n").unwrap();
    assert_eq!(get("").await.2, b"zero\none\ntwo\n", "both halves");
    assert_eq!(get("?tail=3").await.2, b"zero\none\ntwo\n");
    std::fs::remove_file(&older).unwrap();
    // The last words are written before the phase says that it is over.
    let follow = get("?tail=1&follow=true");
    let guest = async {
        use std::io::Write as _;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut file = std::fs::File::options().append(true).open(&console).unwrap();
        file.write_all(b"three\n").unwrap();
        let host = api.app.host();
        host.delete(&"a".parse().unwrap()).await.unwrap();
    };
    let ((_, _, text), ()) = tokio::join!(follow, guest);
    assert_eq!(text, b"two\nthree\n");
}
