//! Health, readiness, metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderValue, StatusCode, header};
use portolan_registry::serving::program::OPENMETRICS;

use crate::metrics::Metrics;

/// How far the controller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It looks at its cluster.
    Starting,
    /// Another copy acts; this one would take over.
    StandingBy,
    /// It acts, and has not listed everything yet.
    Listing,
    /// It acts.
    Leading,
    /// It ends.
    Ending,
}

/// The stage, for all to see.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicU8);

const STAGES: [(Stage, bool, &str); 5] = [
    (Stage::Starting, false, "starting\n"),
    (Stage::StandingBy, true, "standing by: another copy acts\n"),
    (Stage::Listing, false, "not everything has been listed yet\n"),
    (Stage::Leading, true, "leading\n"),
    (Stage::Ending, false, "ending\n"),
];

impl Progress {
    pub(crate) fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Relaxed);
    }

    fn now(&self) -> (bool, &'static str) {
        let (_, ready, text) = STAGES[usize::from(self.0.load(Ordering::Relaxed)) % STAGES.len()];
        (ready, text)
    }
}

/// The routes.
pub(crate) fn router(progress: Arc<Progress>, metrics: Arc<Metrics>) -> Router {
    let ready = move || async move {
        let (ready, told) = progress.now();
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        text(status, told.to_owned(), "text/plain; charset=utf-8")
    };
    let count = move || async move { text(StatusCode::OK, metrics.text(), OPENMETRICS) };
    let health = || async { text(StatusCode::OK, "ok\n".to_owned(), "text/plain; charset=utf-8") };
    Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .route("/metrics", get(count))
}

fn text(status: StatusCode, text: String, kind: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_stands_by_is_ready_and_one_that_ends_is_not() {
        let progress = Progress::default();
        assert!(!progress.now().0, "it has only just started");
        for (stage, ready, _) in STAGES {
            progress.set(stage);
            assert_eq!(progress.now().0, ready, "{stage:?}");
        }
    }
}
