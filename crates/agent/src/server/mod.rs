//! The host API: JSON over a unix socket, and over the network only to clients with a certificate.
//!
//! `routes` is one table. The router asks it, and the OpenAPI document is written from it, so that
//! the two cannot differ. What a call does is the [`Host`]'s business; this module bounds it,
//! reads it, answers it and counts it.

mod cache;
mod call;
mod console;
mod error;
mod health;
mod host;
mod instances;
pub mod routes;
mod socket;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Method, header};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use error::ApiError;
pub use host::Host;
pub(crate) use socket::way_to;
pub use socket::{SocketError, UnixSocket};

use crate::metrics::Metrics;
use call::Call;
use routes::{Found, Route};

/// Calls at once that have an end; more are told to come back.
const MAX_CALLS: usize = 256;
/// Calls at once that stay open: consoles that are followed, prefetches.
const MAX_STREAMS: usize = 64;
/// A call that has an end has reached it by then.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// What every call may use.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    host: Arc<dyn Host>,
    metrics: Arc<Metrics>,
    calls: Semaphore,
    streams: Arc<Semaphore>,
    shutdown: CancellationToken,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("App")
    }
}

impl App {
    /// `shutdown` ends what would otherwise stay open.
    pub fn new(host: Arc<dyn Host>, metrics: Arc<Metrics>, shutdown: CancellationToken) -> Self {
        Self(Arc::new(Shared {
            host,
            metrics,
            calls: Semaphore::new(MAX_CALLS),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            shutdown,
        }))
    }

    fn host(&self) -> &dyn Host {
        &*self.0.host
    }

    fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }
}

/// The API as a service.
pub fn router(app: App) -> Router {
    Router::new().fallback(handle).with_state(app)
}

/// How the agent is, for whoever asks, and nothing else: for probes and for who scrapes.
pub fn health_router(app: App) -> Router {
    async fn only_health(State(app): State<App>, request: Request) -> Response {
        match request.uri().path() {
            "/healthz" | "/readyz" | "/metrics" => handle(State(app), request).await,
            _ => ApiError::unknown_path().into_response(),
        }
    }
    Router::new().fallback(only_health).with_state(app)
}

/// Every call: what does it want, may it, what came of it.
async fn handle(State(app): State<App>, request: Request) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let (pattern, outcome) = match routes::find(&method, request.uri().path()) {
        Found::Route(route, parameters) => {
            let call = Call::new(request, parameters);
            (route.path, bounded(&app, route, call).await)
        }
        Found::OtherMethod(allow) => ("other", Err(ApiError::method_not_allowed(&allow))),
        Found::Nothing => ("other", Err(ApiError::unknown_path())),
    };
    let mut response = match outcome {
        Ok(response) => response,
        Err(error) => {
            tracing::debug!(%method, route = pattern, error = %error.message(), "refused");
            error.into_response()
        }
    };
    if method == Method::HEAD {
        *response.body_mut() = axum::body::Body::empty();
    }
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    let (status, took) = (response.status(), started.elapsed());
    app.metrics().api_request(pattern, status, took);
    tracing::debug!(
        %method,
        route = pattern,
        status = status.as_u16(),
        milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "call"
    );
    response
}

/// A place among the calls, and an end.
async fn bounded(app: &App, route: &'static Route, call: Call) -> Result<Response, ApiError> {
    if route.patient {
        return (route.handler)(app.clone(), call).await;
    }
    // Health is asked for when everything else is stuck.
    let _place = match app.0.calls.try_acquire() {
        Ok(place) => Some(place),
        Err(_) if route.always => None,
        Err(_) => return Err(ApiError::busy()),
    };
    match tokio::time::timeout(CALL_TIMEOUT, (route.handler)(app.clone(), call)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ApiError::timeout()),
    }
}
