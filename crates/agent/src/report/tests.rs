//! Reports against servers that speak the protocol, over loopback.

use std::collections::BTreeMap;
use std::sync::Mutex;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::api::{Degradation, Status};
use crate::api_server::ApiServer;
use crate::config::{NodeConfig, ReportConfig};
use crate::reason::Reason;

/// A report of a host that is well, or has no room.
pub(super) fn report(full: Option<&str>) -> StatusReport {
    let degraded =
        full.map(|message| Degradation { reason: Reason::DiskFull, message: message.to_owned() });
    StatusReport {
        status: Status {
            version: "0".to_owned(),
            node: "node-1".to_owned(),
            platform: "linux/amd64".to_owned(),
            rootdisk_format_version: "1".to_owned(),
            started_at: Timestamp::UNIX_EPOCH,
            time: Timestamp::UNIX_EPOCH,
            ready: true,
            degraded: degraded.into_iter().collect(),
            cache_pressure: false,
            prefetch: None,
            pools: BTreeMap::new(),
            instances: BTreeMap::new(),
        },
        instances: Vec::new(),
    }
}

/// A source whose state a test sets.
struct Set {
    full: Mutex<Option<&'static str>>,
    changes: watch::Sender<u64>,
}

impl Set {
    fn new() -> Arc<Self> {
        Arc::new(Self { full: Mutex::default(), changes: watch::Sender::new(0) })
    }

    fn set(&self, full: Option<&'static str>) {
        *self.full.lock().unwrap() = full;
        self.changes.send_modify(|n| *n += 1);
    }
}

impl Source for Set {
    fn report(&self) -> StatusReport {
        report(*self.full.lock().unwrap())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// What a server was asked.
#[derive(Debug)]
struct Asked {
    line: String,
    token: Option<String>,
    kind: Option<String>,
    body: Value,
}

type Answer = Arc<dyn Fn(&Asked) -> (u16, Value) + Send + Sync>;

/// A server on loopback that tells what it was asked.
async fn server(answer: Answer) -> (String, mpsc::UnboundedReceiver<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::unbounded_channel();
    let router = Router::new().fallback(asked).with_state((answer, sender));
    tokio::spawn(async move {
        let listener = portolan_registry::serving::Listener::Tcp(listener, None);
        let limits = portolan_registry::serving::Limits::default();
        portolan_registry::serving::run(listener, router, &limits, std::future::pending()).await;
    });
    (url, receiver)
}

async fn asked(
    State((answer, sender)): State<(Answer, mpsc::UnboundedSender<Asked>)>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| parts.headers.get(name).map(|v| v.to_str().unwrap().to_owned());
    let asked = Asked {
        line: format!("{} {}", parts.method, parts.uri.path()),
        token: header("authorization"),
        kind: header("content-type"),
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    };
    let (status, body) = answer(&asked);
    let _ = sender.send(asked);
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    response
}

fn node(config: &NodeConfig) -> Node {
    let server = ApiServer::new(config, |_| None).unwrap();
    Node::new(&server, config, "node-1", None).unwrap()
}

/// A token and a certificate, as a pod has them.
fn account(dir: &std::path::Path, server: &str) -> NodeConfig {
    let (token_file, ca_file) = (dir.join("token"), dir.join("ca.crt"));
    std::fs::write(&token_file, "t").unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&ca_file, made.cert.pem()).unwrap();
    NodeConfig {
        server: Some(server.to_owned()),
        token_file: Some(token_file),
        ca_file: Some(ca_file),
        ..NodeConfig::default()
    }
}

fn start<T: Target + 'static>(
    target: T,
    source: &Arc<Set>,
) -> (Arc<Metrics>, tokio_util::sync::DropGuard) {
    let metrics = Arc::new(Metrics::new());
    let shutdown = CancellationToken::new();
    let source: Arc<dyn Source> = Arc::clone(source) as _;
    let hour = Duration::from_secs(3600);
    tokio::spawn(run(target, source, hour, Arc::clone(&metrics), shutdown.clone()));
    (metrics, shutdown.drop_guard())
}

#[tokio::test]
async fn a_control_plane_is_told_at_once_and_after_every_change() {
    let (url, mut asked) = server(Arc::new(|_| (200, json!({})))).await;
    let dir = tempfile::tempdir().unwrap();
    let token_file = dir.path().join("token");
    std::fs::write(&token_file, "first\n").unwrap();
    let config = ReportConfig {
        url: Some(format!("{url}/reports")),
        token_file: Some(token_file.clone()),
        ..ReportConfig::default()
    };
    let source = Set::new();
    let (metrics, _guard) = start(ControlPlane::new(&config).unwrap(), &source);
    let first = asked.recv().await.unwrap();
    assert_eq!(first.line, "POST /reports");
    assert_eq!(first.token.as_deref(), Some("Bearer first"));
    assert_eq!(first.body["status"]["degraded"], json!([]));
    std::fs::write(&token_file, "second\n").unwrap();
    source.set(Some("no room"));
    let second = asked.recv().await.unwrap();
    assert_eq!(second.body["status"]["degraded"][0]["reason"], json!("disk_full"));
    assert_eq!(second.token.as_deref(), Some("Bearer second"), "a renewed token is used");
    // The second was sent, so the first was counted.
    let none = "status_reports_total{target=\"control_plane\",result=\"ok\"} 0\n";
    assert!(!metrics.encode().contains(none));
}

#[tokio::test]
async fn a_report_that_is_not_taken_is_sent_again_with_the_newest_state() {
    let tries = Arc::new(Mutex::new(0));
    let answer = {
        let tries = Arc::clone(&tries);
        Arc::new(move |_: &Asked| {
            let mut tries = tries.lock().unwrap();
            *tries += 1;
            if *tries == 1 { (503, json!("later")) } else { (204, Value::Null) }
        })
    };
    let (url, mut asked) = server(answer).await;
    let source = Set::new();
    let config = ReportConfig { url: Some(url), ..ReportConfig::default() };
    let (metrics, _guard) = start(ControlPlane::new(&config).unwrap(), &source);
    asked.recv().await.unwrap();
    source.set(Some("no room"));
    let again = asked.recv().await.unwrap();
    assert_eq!(again.body["status"]["degraded"][0]["message"], json!("no room"));
    let text = metrics.encode();
    assert!(text.contains("target=\"control_plane\",result=\"error\"} 1"), "{text}");
}

#[tokio::test]
async fn a_node_s_condition_is_patched_and_nothing_else() {
    let answer = Arc::new(|asked: &Asked| match asked.line.as_str() {
        "GET /api/v1/nodes/node-1" => (
            200,
            json!({ "kind": "Node", "status": { "conditions": [
                { "type": "Ready", "status": "True" },
                { "type": DEGRADED, "status": "False",
                  "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ]}}),
        ),
        "PATCH /api/v1/nodes/node-1/status" => (200, json!({ "kind": "Node" })),
        _ => (404, json!({ "kind": "Status" })),
    });
    let (url, mut asked) = server(answer).await;
    let dir = tempfile::tempdir().unwrap();
    let config = account(dir.path(), &format!("{url}/"));
    let source = Set::new();
    let (_, _guard) = start(node(&config), &source);
    assert_eq!(asked.recv().await.unwrap().line, "GET /api/v1/nodes/node-1");
    let patch = asked.recv().await.unwrap();
    assert_eq!(patch.line, "PATCH /api/v1/nodes/node-1/status");
    assert_eq!(patch.kind.as_deref(), Some("application/strategic-merge-patch+json"));
    assert_eq!(patch.token.as_deref(), Some("Bearer t"));
    let conditions = patch.body["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 2);
    assert_eq!(
        (&conditions[0]["type"], &conditions[1]["type"]),
        (&json!(DEGRADED), &json!(PRESSURE))
    );
    assert_eq!(conditions[0]["lastTransitionTime"], "2026-01-01T00:00:00Z", "no transition");
    source.set(Some("no room"));
    let patch = asked.recv().await.unwrap();
    assert_eq!(patch.body["status"]["conditions"][0]["status"], "True");
    assert_ne!(patch.body["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
}

/// A node with a taint of somebody else, at a version that the second patch of its spec finds.
fn tainted(version: &str) -> Value {
    json!({
        "kind": "Node",
        "metadata": { "name": "node-1", "resourceVersion": version, "labels": {} },
        "spec": { "taints": [{ "key": "theirs", "effect": "NoExecute", "timeAdded": "x" }] },
    })
}

#[tokio::test]
async fn a_taint_is_set_on_the_list_that_was_read_and_taken_back_at_the_end() {
    let patches = Mutex::new(0);
    let answer = Arc::new(move |asked: &Asked| match asked.line.as_str() {
        "PATCH /api/v1/nodes/node-1" => {
            let mut patches = patches.lock().unwrap();
            *patches += 1;
            // Somebody else was quicker.
            let conflict = json!({ "kind": "Status", "code": 409, "reason": "Conflict" });
            if *patches == 1 { (409, conflict) } else { (200, tainted("3")) }
        }
        "GET /api/v1/nodes/node-1" => (200, tainted("2")),
        _ => (200, tainted("1")),
    });
    let (url, mut asked) = server(answer).await;
    let dir = tempfile::tempdir().unwrap();
    let config = NodeConfig { taint: true, ..account(dir.path(), &url) };
    let mut node = node(&config);
    let mut full = report(Some("no room"));
    full.status.cache_pressure = true;
    node.send(&full).await.unwrap();
    let lines = ["GET ", "PATCH", "PATCH", "GET ", "PATCH"];
    let mut all = Vec::new();
    for line in lines {
        let one = asked.recv().await.unwrap();
        assert!(one.line.starts_with(line), "{one:?}");
        all.push(one);
    }
    for (patch, version) in [(&all[2], "1"), (&all[4], "2")] {
        assert_eq!(patch.line, "PATCH /api/v1/nodes/node-1");
        assert_eq!(patch.kind.as_deref(), Some("application/merge-patch+json"));
        assert_eq!(patch.body["metadata"], json!({ "resourceVersion": version }));
        let taints = patch.body["spec"]["taints"].as_array().unwrap();
        assert_eq!(taints[0], json!({ "key": "theirs", "effect": "NoExecute", "timeAdded": "x" }));
        assert_eq!(taints[1], json!({ "key": TAINT, "effect": "NoSchedule" }));
    }
    // Nothing of ours is on it, so nothing is written at the end.
    node.end().await.unwrap();
    assert_eq!(asked.recv().await.unwrap().line, "GET /api/v1/nodes/node-1");
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn a_node_that_others_write_without_end_is_given_up_for_now() {
    let answer = Arc::new(|asked: &Asked| match asked.line.as_str() {
        "PATCH /api/v1/nodes/node-1" => (409, json!({ "kind": "Status", "code": 409 })),
        _ => (200, tainted("1")),
    });
    let (url, _asked) = server(answer).await;
    let dir = tempfile::tempdir().unwrap();
    let config = NodeConfig { taint: true, ..account(dir.path(), &url) };
    let mut full = report(Some("no room"));
    full.status.cache_pressure = true;
    let error = node(&config).send(&full).await.unwrap_err();
    assert_eq!(error.status(), Some(http::StatusCode::CONFLICT), "{error}");
}

#[tokio::test]
async fn labels_that_another_gives_are_left_out_and_the_rest_is_applied_once() {
    let first = Arc::new(Mutex::new(None::<String>));
    let answer = {
        let first = Arc::clone(&first);
        Arc::new(move |asked: &Asked| {
            let labels = asked.body["metadata"]["labels"].as_object();
            let Some(labels) = labels.filter(|_| asked.line.starts_with("PATCH")) else {
                return (200, tainted("1"));
            };
            let mut first = first.lock().unwrap();
            let Some(taken) = &*first else {
                let name = labels.keys().next().unwrap().clone();
                let field = format!(".metadata.labels.{name}");
                *first = Some(name);
                return (
                    409,
                    json!({ "code": 409, "details": { "causes": [{ "field": field }] } }),
                );
            };
            assert!(!labels.contains_key(taken));
            let mut node = tainted("2");
            node["metadata"]["labels"] = json!(labels);
            (200, node)
        })
    };
    let (url, mut asked) = server(answer).await;
    let dir = tempfile::tempdir().unwrap();
    let config = NodeConfig { labels: true, ..account(dir.path(), &url) };
    node(&config).send(&report(None)).await.unwrap();
    let mut applied = Vec::new();
    while let Ok(one) = asked.try_recv() {
        applied.extend((one.line == "PATCH /api/v1/nodes/node-1").then_some(one));
    }
    assert_eq!(applied.len(), 2);
    for one in &applied {
        assert_eq!(one.kind.as_deref(), Some("application/apply-patch+yaml"));
        assert_eq!(one.body["kind"], "Node");
        assert!(one.body.get("spec").is_none() && one.body.get("status").is_none());
    }
}

#[tokio::test]
async fn a_refusal_says_what_the_server_said_and_never_the_token() {
    let (url, _asked) =
        server(Arc::new(|_| (403, json!({ "message": "nodes is forbidden" })))).await;
    let dir = tempfile::tempdir().unwrap();
    let token_file = dir.path().join("token");
    std::fs::write(&token_file, "hunter2").unwrap();
    let config = ReportConfig {
        url: Some(format!("{url}/in?key=hunter3")),
        token_file: Some(token_file.clone()),
        ..ReportConfig::default()
    };
    let mut target = ControlPlane::new(&config).unwrap();
    let error = chain(&target.send(&report(None)).await.unwrap_err());
    assert!(error.contains("403") && error.contains("forbidden"), "{error}");
    assert!(!error.contains("hunter2") && !format!("{target:?}").contains("hunter2"));
    assert!(error.contains("/in?") && !error.contains("hunter3"), "{error}");
    std::fs::remove_file(&token_file).unwrap();
    let error = chain(&target.send(&report(None)).await.unwrap_err());
    assert!(error.contains("token"), "{error}");
}
