//! As much of an API server's protocol as the verifier speaks: objects with versions that must be the
//! latest to be written over, lists, watches, and the words for "no".

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// One of them, until it is dropped.
pub(crate) struct Api {
    pub(crate) address: std::net::SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Shared {
    store: Mutex<Store>,
    events: broadcast::Sender<(String, Value)>,
}

#[derive(Default)]
pub(crate) struct Store {
    /// By path.
    objects: BTreeMap<String, Value>,
    version: u64,
    /// What was asked: method and path.
    pub(crate) seen: Vec<(String, String)>,
    /// Paths that begin so are answered with this status.
    pub(crate) refuse: Option<(String, u16)>,
}

impl Store {
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Value> {
        self.objects.get(path)
    }

    pub(crate) fn count(&self, method: &str, path: &str) -> usize {
        self.seen.iter().filter(|(m, p)| m == method && p.starts_with(path)).count()
    }
}

impl Api {
    pub(crate) async fn start() -> Self {
        let (events, _) = broadcast::channel(100);
        let shared = Arc::new(Shared { store: Mutex::default(), events });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self { address, shared, task }
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.shared.store.lock().unwrap()
    }

    /// Creates or changes an object, as somebody else would.
    pub(crate) fn put(&self, path: &str, object: Value) {
        let (list, name) = path.rsplit_once('/').unwrap();
        let mut object = object;
        object["metadata"]["name"] = json!(name);
        let object = self.store().put(path, object);
        // Nobody may be watching.
        let _ = self.shared.events.send((list.to_owned(), object));
    }

    pub(crate) fn remove(&self, path: &str) {
        self.store().objects.remove(path);
    }

    pub(crate) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": format!("http://{}", self.address)}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "own"}}],
            "users": [{"name": "x", "user": {}}],
        })
        .to_string()
    }
}

/// A Secret with a login for a registry.
pub(crate) fn login(host: &str, username: &str, password: &str) -> Value {
    let auths = json!({"auths": {host: {"username": username, "password": password}}});
    json!({
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": STANDARD.encode(auths.to_string())},
    })
}

fn status(code: u16, message: &str) -> Response {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        403 => "Forbidden",
        _ => "InternalError",
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                      "reason": reason, "message": message, "metadata": {}});
    reply(code, &body)
}

fn reply(code: u16, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let body = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    let mut store = shared.store.lock().unwrap();
    store.seen.push((head.method.to_string(), path.clone()));
    if let Some((refused, code)) = &store.refuse
        && path.starts_with(refused)
    {
        return status(*code, "refused");
    }
    let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
    match head.method {
        Method::GET if path.ends_with("/nodes") => nodes(&shared, &store, &path, &query),
        Method::GET => match store.get(&path) {
            Some(object) => reply(200, object),
            None => status(404, "not found"),
        },
        Method::POST => {
            let path = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap());
            match store.get(&path) {
                Some(_) => status(409, "already exists"),
                None => reply(201, &store.put(&path, sent)),
            }
        }
        Method::PUT | Method::PATCH => {
            let Some(before) = store.get(&path).cloned() else { return status(404, "not found") };
            let version = &sent["metadata"]["resourceVersion"];
            if *version != before["metadata"]["resourceVersion"] {
                return status(409, "the object has been modified");
            }
            let mut after = before;
            match head.method == Method::PUT {
                true => after = sent,
                false => merge(&mut after, &sent),
            }
            reply(200, &store.put(&path, after))
        }
        _ => status(405, "no such method"),
    }
}

fn nodes(shared: &Shared, store: &Store, path: &str, query: &str) -> Response {
    if !query.contains("watch=") {
        let prefix = format!("{path}/");
        let items = store.objects.iter().filter(|(name, _)| name.starts_with(&prefix));
        let items: Vec<_> = items.map(|(_, object)| object).collect();
        let list = json!({"kind": "NodeList", "apiVersion": "v1", "items": items,
                          "metadata": {"resourceVersion": store.version.to_string()}});
        return reply(200, &list);
    }
    let (events, path) = (shared.events.subscribe(), path.to_owned());
    let lines = futures_util::stream::unfold(events, |mut events| async {
        let event = events.recv().await.ok()?;
        Some((event, events))
    });
    let lines = lines.filter_map(move |(list, object)| {
        let fits = list == path;
        let line = format!("{}\n", json!({"type": "MODIFIED", "object": object}));
        async move { fits.then(|| Ok::<_, std::io::Error>(Bytes::from(line))) }
    });
    Response::new(Body::from_stream(lines))
}

/// A merge patch; lists of webhooks are merged by name, as API servers merge them.
fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (name, value) in patch {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(patch)) => {
            for value in patch {
                let same = into.iter_mut().find(|one| one["name"] == value["name"]);
                merge(same.expect("a webhook of that name"), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}
