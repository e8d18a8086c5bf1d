//! Routes, bounds, deadlines, trace ids. What is answered is elsewhere.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use portolan_core::hex;
use portolan_registry::serving::program::OPENMETRICS;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::admit::admit;
use super::config::{Limits, Mode, Tags, Timeouts, TransientErrors};
use super::engine::{AT_ONCE, Engine};
use super::metrics::{Call, Metrics};
use super::question::{Asked, Told};
use super::trouble::{Code, Trouble};

/// What every request may use.
pub(super) struct App {
    pub(super) engine: Engine,
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    pub(super) mode: Mode,
    pub(super) tags: Tags,
    pub(super) transient: TransientErrors,
    pub(super) trace_headers: Vec<HeaderName>,
    pub(super) requests: Semaphore,
    /// Of bodies, over all requests.
    pub(super) body_bytes: Arc<Semaphore>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) ending: CancellationToken,
}

/// Who comes to an address of Gatekeeper and does not ask. What is asked is answered before (`front`).
pub(super) fn provider_router() -> Router {
    let mut router = Router::new();
    for version in ["v1", "v2"] {
        for name in ["verify", "mutate"] {
            let path = format!("/ratify/gatekeeper/{version}/{name}");
            let nothing = || async { StatusCode::METHOD_NOT_ALLOWED };
            router = router.route(&path, post(nothing));
        }
    }
    router
}

/// For API servers.
pub(super) fn admission_router(app: &Arc<App>, believed: bool) -> Router {
    let answer = move |State(app): State<Arc<App>>, request: Request| async move {
        admit(&app, believed, request).await
    };
    Router::new().route("/admission/v1/validate", post(answer)).with_state(Arc::clone(app))
}

/// For kubelets and Prometheus.
pub(super) fn health_router(app: &Arc<App>) -> Router {
    let ready = |State(app): State<Arc<App>>| async move {
        // Policy and certificate were read before anything listened, and what was read stays: a
        // verifier whose new policy cannot be used still answers by the old one, and says so here.
        let waits = app.engine.nodes.as_ref().is_some_and(|nodes| !nodes.is_ready());
        match (app.ending.is_cancelled(), waits) {
            (true, _) => text(StatusCode::SERVICE_UNAVAILABLE, "ending\n".to_owned()),
            (false, true) => {
                let what = "the cluster's nodes have not been listed yet\n";
                text(StatusCode::SERVICE_UNAVAILABLE, what.to_owned())
            }
            (false, false) => {
                let stale = app.engine.watched.stale();
                let stale = stale.iter().map(|input| format!("stale: {}\n", input.word()));
                text(StatusCode::OK, format!("ok\n{}", stale.collect::<String>()))
            }
        }
    };
    let metrics = |State(app): State<Arc<App>>| async move {
        let mut response = text(StatusCode::OK, app.metrics.text());
        let kind = HeaderValue::from_static(OPENMETRICS);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    };
    Router::new()
        .route("/healthz", get(|| async { text(StatusCode::OK, "ok\n".to_owned()) }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::clone(app))
}

fn text(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

pub(super) fn json(status: u16, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Counts a request to its end, also when whoever asked hangs up.
pub(super) struct Counted {
    metrics: Arc<Metrics>,
    call: Call,
    pub(super) since: Instant,
}

impl Counted {
    pub(super) fn new(metrics: &Arc<Metrics>, call: Call) -> Self {
        metrics.begin();
        Self { metrics: Arc::clone(metrics), call, since: Instant::now() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.end(self.call, self.since.elapsed());
    }
}

/// The answer, if there is one in time. What was begun goes on and is there for who asks next.
pub(super) async fn in_time(app: &App, asked: Asked<'_>, until: Instant) -> Result<Told, Trouble> {
    // Who comes too late begins nothing: it would go on without anybody to wait for it.
    if Instant::now() >= until {
        return Err(late(app));
    }
    match timeout_at(until, app.engine.verify(asked)).await {
        Ok(told) => told,
        Err(_) => Err(late(app)),
    }
}

/// What comes of all of these in their order, a few at a time.
pub(super) async fn at_once<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let all: Vec<_> = all.collect();
    stream::iter(all).buffered(AT_ONCE).collect().await
}

pub(super) fn late(app: &App) -> Trouble {
    app.metrics.trouble(Code::Deadline);
    Trouble::deadline()
}

/// Of the first header that has one, else a new one. Strangers choose what is in headers, so not
/// everything is taken into logs.
pub(super) fn trace(names: &[HeaderName], headers: &HeaderMap) -> String {
    let word = |text: &&str| {
        let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.:/".contains(&c);
        (1..=128).contains(&text.len()) && text.bytes().all(plain)
    };
    let given = names.iter().find_map(|name| headers.get(name)?.to_str().ok().filter(word));
    given.map_or_else(new_trace, str::to_owned)
}

/// Another each time, and of no more use to who guesses than any other.
fn new_trace() -> String {
    static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut id = [0; 16];
    for (half, keys) in id.chunks_exact_mut(8).zip(KEYS.iter()) {
        half.copy_from_slice(&keys.hash_one(number).to_be_bytes());
    }
    hex(&id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_request_without_a_trace_has_one_of_its_own() {
        let ids: BTreeSet<_> = (0..1000).map(|_| trace(&[], &HeaderMap::new())).collect();
        assert_eq!(ids.len(), 1000);
        let is_id = |id: &String| id.len() == 32 && id.bytes().all(|c| c.is_ascii_hexdigit());
        assert!(ids.iter().all(is_id), "{:?}", ids.first());
    }
}
