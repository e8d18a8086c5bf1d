//! A cluster of a few answers, for tests of what is asked of it. Nothing is in the caches: what is
//! there is what the server says.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::response::IntoResponse as _;
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode, Uri};
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::{Client, Resource};
use serde_json::{Value, json};

use crate::caches::Caches;
use crate::context::Context;
use crate::metrics::Metrics;
use crate::settings::Settings;

/// What the server does with a request.
pub(crate) enum Answer {
    /// It is there, or was done.
    Is(Value),
    /// There is no such object.
    NoObject,
    /// There is no such kind, which servers say without a Status.
    NoKind,
    /// It is not allowed, in these words.
    Forbidden(&'static str),
    /// It accepts, and is silent.
    Silence,
}

/// What was sent: `GET /path`, and the body.
pub(crate) type Sent = Arc<Mutex<Vec<(String, Value)>>>;

/// A client whose requests are answered here.
pub(crate) fn client(
    answer: impl Fn(&str) -> Answer + Clone + Send + Sync + 'static,
) -> (Client, Sent) {
    let sent = Sent::default();
    let kept = Arc::clone(&sent);
    let handle = move |method: Method, uri: Uri, body: Bytes| async move {
        let line = format!("{method} {}", uri.path());
        let answer = answer(&line);
        let body = serde_json::from_slice(&body).unwrap_or_default();
        kept.lock().unwrap_or_else(PoisonError::into_inner).push((line, body));
        let failure = |code: StatusCode, reason: &str, message: &str| {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": reason, "message": message, "code": code.as_u16(),
            });
            (code, status.to_string())
        };
        let (code, text) = match answer {
            Answer::Is(value) => (StatusCode::OK, value.to_string()),
            Answer::NoObject => failure(StatusCode::NOT_FOUND, "NotFound", "not found"),
            Answer::NoKind => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
            Answer::Forbidden(words) => failure(StatusCode::FORBIDDEN, "Forbidden", words),
            Answer::Silence => std::future::pending().await,
        };
        (code, [(CONTENT_TYPE, "application/json")], text).into_response()
    };
    (Client::new(Router::new().fallback(handle), "team"), sent)
}

/// What was sent in requests that begin so.
pub(crate) fn bodies(sent: &Sent, begin: &str) -> Vec<Value> {
    let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
    sent.iter().filter(|(line, _)| line.starts_with(begin)).map(|(_, body)| body.clone()).collect()
}

/// What reconcilers share, with nothing heard yet.
pub(crate) fn context(client: Client) -> Context {
    Context { client, caches: silent(), settings: settings(), metrics: Arc::new(Metrics::new()) }
}

pub(crate) fn settings() -> Settings {
    Settings {
        kubeconfig: None,
        step_image: "registry.example/portolan:1".to_owned(),
        namespace: None,
        service_account: None,
        source_repository: None,
        health: ([127, 0, 0, 1], 0).into(),
        takeover: false,
        workers: 1,
        builds: true,
        optional: false,
        shims: None,
        releases: None,
    }
}

fn silent() -> Caches {
    fn store<K: Resource<DynamicType = ()> + Clone + 'static>() -> Store<K> {
        Writer::new(()).as_reader()
    }
    Caches {
        builds: store(),
        runs: store(),
        strategies: store(),
        cluster_strategies: store(),
        classes: store(),
        platforms: store(),
        tasks: store(),
        pipelines: store(),
        pods: store(),
        secrets: store(),
        accounts: store(),
    }
}
