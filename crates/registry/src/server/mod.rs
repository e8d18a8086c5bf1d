//! The embedded registry: the distribution specification v1.1 on OCI layouts.
//!
//! Every repository is an OCI layout of its own below the root, so that what is pushed can be
//! read with `oci:` references, by other tools, and by the next process. There is no other
//! state: index, tags, referrers and even half-finished uploads are found again after a restart.
//!
//! From path to file: `route` says what a path means, `manifests`, `blobs`, `uploads` and
//! `listing` answer, `store` finds the repository, [`crate::layout`] does the rest.

mod auth;
mod blobs;
mod body;
mod config;
mod error;
mod gc;
mod listing;
mod manifests;
mod query;
mod read_only;
mod respond;
mod route;
mod store;
mod upload;
mod uploads;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, Method, header};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use crate::serving::{TlsError, TlsFiles};
pub use auth::HtpasswdError;
pub use config::{Config, GarbageSchedule, Limits, ServeError};
pub use gc::{RepositoryGarbage, collect_garbage};
pub use read_only::{Content, by_digest};
pub use store::layout_dir;

use crate::serving::{self, Listener, Tls};
use auth::Gate;
use body::Buffers;
use error::{ApiError, Code};
use query::Query;
use route::Route;
use store::Store;
use upload::Uploads;

/// Clients of the first hour look for this before they speak to a registry.
const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");

/// A registry that has its address and waits to serve.
#[derive(Debug)]
pub struct Server {
    app: App,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    config: Config,
}

/// What every request may use.
#[derive(Debug, Clone)]
struct App(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<Store>,
    uploads: Arc<Uploads>,
    buffers: Arc<Buffers>,
    gate: Option<Gate>,
    limits: Limits,
    /// Uploads that move bytes right now.
    moving: Arc<Semaphore>,
}

impl App {
    fn new(config: &Config) -> Result<Self, ServeError> {
        let gate = config.htpasswd.as_deref().map(Gate::load).transpose()?;
        crate::durable::create_dir(&config.root).map_err(|e| ServeError::Root(e.into()))?;
        Ok(Self(Arc::new(Shared {
            store: Arc::new(Store::new(config.root.clone())),
            uploads: Arc::new(Uploads::new(config.limits.max_sessions)),
            buffers: Arc::default(),
            gate,
            limits: config.limits.clone(),
            moving: Arc::new(Semaphore::new(config.limits.max_uploads)),
        })))
    }

    fn store(&self) -> Arc<Store> {
        Arc::clone(&self.0.store)
    }

    fn uploads(&self) -> Arc<Uploads> {
        Arc::clone(&self.0.uploads)
    }

    fn buffers(&self) -> Arc<Buffers> {
        Arc::clone(&self.0.buffers)
    }

    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    fn upload_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let moving = Arc::clone(&self.0.moving);
        moving.try_acquire_owned().map_err(|_| {
            let text = "too many uploads at once; try again in a moment";
            ApiError::new(Code::TooManyRequests, text)
                .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
        })
    }
}

impl Server {
    /// Takes the address, reads certificate and passwords, and makes the root directory.
    pub async fn bind(config: Config) -> Result<Self, ServeError> {
        let tls = config.tls.clone().map(Tls::load).transpose()?;
        let app = App::new(&config)?;
        if app.0.gate.is_some() && tls.is_none() && !config.listen.ip().is_loopback() {
            tracing::warn!(listen = %config.listen, "passwords will cross the network unencrypted");
        }
        let bound = async {
            let listener = TcpListener::bind(config.listen).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) =
            bound.await.map_err(|source| ServeError::Listen { address: config.listen, source })?;
        Ok(Self { app, listener, address, tls, config })
    }

    /// The address it got, with the real port where port 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The API as a service, for tests that need no socket and for servers that add their own
    /// routes.
    pub fn router(&self) -> Router {
        router(self.app.clone())
    }

    /// Serves until `shutdown` is ready, then finishes what is under way.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let router = self.router();
        let Self { app, listener, tls, config, .. } = self;
        let upkeep = tokio::spawn(gc::upkeep(app.clone(), config.garbage.clone()));
        let listener = Listener::Tcp(listener, tls);
        serving::run(listener, router, &config.limits.connections(), shutdown).await;
        upkeep.abort();
        Ok(())
    }
}

fn router(app: App) -> Router {
    Router::new().fallback(handle).with_state(app)
}

/// Every request: who is it, what does it want, what came of it.
async fn handle(State(app): State<App>, request: Request) -> Response {
    let started = Instant::now();
    let (parts, mut body) = request.into_parts();
    let mut user = None;
    let outcome = async {
        if let Some(gate) = &app.0.gate {
            user = Some(gate.check(&parts.headers).await?);
        }
        dispatch(&app, &parts, &mut body).await
    };
    let mut response = match outcome.await {
        Ok(response) => response,
        Err(error) => {
            body::drain(&mut body).await;
            answer_error(&parts.method, error)
        }
    };
    response.headers_mut().insert(API_VERSION, HeaderValue::from_static("registry/2.0"));
    log(&parts, &response, user.as_deref(), started);
    response
}

/// The access log.
fn log(parts: &http::request::Parts, response: &Response, user: Option<&str>, started: Instant) {
    tracing::info!(
        target: "portolan_registry::access",
        method = %parts.method,
        path = %shortened(parts.uri.path()),
        status = response.status().as_u16(),
        length = response.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()),
        user,
        milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "request"
    );
}

/// A path as the log shows it: nobody reads more of one that is no path of ours.
fn shortened(path: &str) -> &str {
    &path[..path.floor_char_boundary(512)]
}

/// HEAD has no body, but says how long that of GET would be.
fn answer_error(method: &Method, error: ApiError) -> Response {
    let mut response = error.into_response();
    if method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}

async fn dispatch(
    app: &App,
    parts: &http::request::Parts,
    body: &mut Body,
) -> Result<Response, ApiError> {
    let query = Query::parse(parts.uri.query());
    let headers = &parts.headers;
    let method = &parts.method;
    let route = route::parse(parts.uri.path()).map_err(|error| match error.code() {
        // What cannot be a tag is there for nobody; only who pushes it did something wrong.
        Code::TagInvalid if method != Method::PUT => {
            ApiError::new(Code::ManifestUnknown, "no manifest can have this name")
        }
        _ => error,
    })?;
    match (route, method.as_str()) {
        (Route::Base, "GET" | "HEAD") => Ok(base()),
        (Route::Catalog, "GET") => listing::catalog(app, &query).await,
        (Route::Tags(name), "GET") => listing::tags(app, name, &query).await,
        (Route::Referrers(name, subject), "GET") => {
            listing::referrers(app, name, subject, &query).await
        }
        (Route::Manifest(name, target), "GET" | "HEAD") => {
            manifests::read(app, method, name, target, headers).await
        }
        (Route::Manifest(name, target), "PUT") => {
            manifests::write(app, name, target, &query, headers, body).await
        }
        (Route::Manifest(name, target), "DELETE") => manifests::delete(app, name, target).await,
        (Route::Blob(name, digest), "GET" | "HEAD") => {
            blobs::read(app, method, name, digest, headers).await
        }
        (Route::Blob(name, digest), "DELETE") => blobs::delete(app, name, digest).await,
        (Route::Uploads(name), "POST") => uploads::start(app, name, &query, headers, body).await,
        (Route::Upload(name, id), "GET") => uploads::status(app, name, id).await,
        (Route::Upload(name, id), "PATCH") => uploads::patch(app, name, id, headers, body).await,
        (Route::Upload(name, id), "PUT") => {
            uploads::put(app, name, id, &query, headers, body).await
        }
        (Route::Upload(name, id), "DELETE") => uploads::abort(app, name, id).await,
        (route, _) => Err(not_allowed(&route)),
    }
}

fn base() -> Response {
    respond::Reply::new(http::StatusCode::OK)
        .text(header::CONTENT_TYPE, "application/json")
        .body(Body::from("{}"))
}

fn not_allowed(route: &Route) -> ApiError {
    let allow = match route {
        Route::Base => "GET, HEAD",
        Route::Catalog | Route::Tags(_) | Route::Referrers(..) => "GET",
        Route::Manifest(..) => "GET, HEAD, PUT, DELETE",
        Route::Blob(..) => "GET, HEAD, DELETE",
        Route::Uploads(_) => "POST",
        Route::Upload(..) => "GET, PATCH, PUT, DELETE",
    };
    ApiError::new(Code::MethodNotAllowed, format!("this endpoint knows {allow}"))
        .with_header(header::ALLOW, HeaderValue::from_static(allow))
}

/// Runs what waits for the disk where waiting harms nobody.
async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(job).await.map_err(|e| ApiError::task_failed(&e))?
}
