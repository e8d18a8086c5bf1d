//! Routes, bounds, deadlines, trace ids. What an answer is made of is elsewhere.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use jiff::{SignedDuration, Timestamp};
use portolan_core::{Reference, hex};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::admission::{self, Ruling};
use super::caches::KeptAnswer;
use super::config::{Limits, Mode, Timeouts, TransientErrors};
use super::engine::{AT_ONCE, Asked, Engine, Machines, Told};
use super::metrics::{CacheName, Call, Metrics};
use super::provider::{self, NotAnswered, ProviderResponse, Purpose, Shape};
use super::reports::{self, Manner, Stamp, Value, Written};
use super::trouble::{Code, Trouble};
use crate::contract::{self, Key};

/// What every request may use.
pub(super) struct App {
    pub(super) engine: Engine,
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    pub(super) mode: Mode,
    pub(super) transient: TransientErrors,
    pub(super) trace_headers: Vec<HeaderName>,
    pub(super) requests: Semaphore,
    pub(super) metrics: Arc<Metrics>,
    pub(super) ending: CancellationToken,
}

/// For Gatekeeper.
pub(super) fn provider_router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for (version, shape) in [("v1", Shape::V1), ("v2", Shape::V2)] {
        for (name, purpose) in [("verify", Purpose::Verify), ("mutate", Purpose::Mutate)] {
            let path = format!("/ratify/gatekeeper/{version}/{name}");
            let answer = move |State(app): State<Arc<App>>, request: Request| async move {
                provide(&app, shape, purpose, request).await
            };
            router = router.route(&path, post(answer));
        }
    }
    router.with_state(Arc::clone(app))
}

/// For API servers.
pub(super) fn admission_router(app: &Arc<App>) -> Router {
    let answer =
        |State(app): State<Arc<App>>, request: Request| async move { admit(&app, request).await };
    Router::new().route("/admission/v1/validate", post(answer)).with_state(Arc::clone(app))
}

/// For kubelets and Prometheus.
pub(super) fn health_router(app: &Arc<App>) -> Router {
    let ready = |State(app): State<Arc<App>>| async move {
        // Policy and certificate were read before anything listened, and what was read stays.
        match app.ending.is_cancelled() {
            false => text(StatusCode::OK, "ok\n".to_owned()),
            true => text(StatusCode::SERVICE_UNAVAILABLE, "ending\n".to_owned()),
        }
    };
    let metrics = |State(app): State<Arc<App>>| async move {
        let mut response = text(StatusCode::OK, app.metrics.text());
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
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

fn json(status: u16, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Counts a request to its end, also when whoever asked hangs up.
struct Counted<'a>(&'a Metrics, Call, Instant);

impl<'a> Counted<'a> {
    fn new(metrics: &'a Metrics, call: Call) -> Self {
        metrics.begin();
        Self(metrics, call, Instant::now())
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.end(self.1, self.2.elapsed());
    }
}

/// Answers a request of Gatekeeper, in time.
async fn provide(app: &App, shape: Shape, purpose: Purpose, request: Request) -> Response {
    let (call, timeout) = match purpose {
        Purpose::Verify => (Call::Verify, app.timeouts.verify.0),
        Purpose::Mutate => (Call::Mutate, app.timeouts.mutate.0),
    };
    let counted = Counted::new(&app.metrics, call);
    let deadline = counted.2 + (timeout - app.timeouts.margin.0);
    let trace = trace(&app.trace_headers, request.headers());
    let answered = match body(request.into_body(), app.limits.body_bytes, deadline).await {
        Err(refused) => Err(refused),
        Ok(bytes) => match provider::read(&bytes, &app.limits) {
            Err(refused) => Err(refused),
            Ok(keys) => Ok(answer(app, shape, purpose, (&trace, deadline), keys).await),
        },
    };
    let answered = answered.unwrap_or_else(|refused| {
        tracing::warn!(trace, error = refused.message, "a request was not answered");
        provider::system_error(shape, refused)
    });
    let milliseconds = u64::try_from(counted.2.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(trace, ?purpose, status = answered.status, milliseconds, "answered");
    json(answered.status, answered.body)
}

async fn body(body: Body, limit: usize, until: Instant) -> Result<Bytes, NotAnswered> {
    let late = |_| NotAnswered::new(408, "the body did not come in time");
    match timeout_at(until, Limited::new(body, limit).collect()).await.map_err(late)? {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let what = format!("the body has more than {limit} bytes (limits.body_bytes)");
            Err(NotAnswered::new(413, what))
        }
        Err(error) => Err(NotAnswered::new(400, format!("the body broke off: {error}"))),
    }
}

async fn answer(
    app: &App,
    shape: Shape,
    purpose: Purpose,
    (trace, until): (&str, Instant),
    keys: Vec<Cow<'_, str>>,
) -> ProviderResponse {
    let stamp = Stamp { trace, now: Timestamp::now() };
    let write = |told: Vec<Result<Value, Trouble>>, keys: Vec<_>| {
        let told: Vec<_> = keys.into_iter().zip(told).collect();
        provider::answer(shape, purpose, app.transient, &stamp, &told)
    };
    // Where all is known there is nothing to wait for, and nobody to wait behind.
    if let Some(told) = all_known(app, shape, purpose, trace, &keys).await {
        return write(told, keys);
    }
    let Ok(Ok(_place)) = timeout_at(until, app.requests.acquire()).await else {
        let what = "too many requests are being answered (limits.requests); ask again";
        return provider::system_error(shape, NotAnswered::new(503, what));
    };
    let manner = Manner { shape, audit: app.mode == Mode::Audit };
    let answers = keys.iter().map(|key| async move {
        let told = match purpose {
            Purpose::Verify => verify(app, manner, key, (trace, until)).await,
            Purpose::Mutate => mutate(app, key, until).await,
        };
        if let Err(trouble) = &told {
            tracing::warn!(trace, key = key.as_ref(), error = trouble.text(), "no answer");
        }
        match told {
            Err(trouble) if manner.audit && purpose == Purpose::Verify => {
                let written = reports::audited_trouble(manner, &trouble.text())?;
                Ok(Value::Report(Arc::new(written)))
            }
            told => told,
        }
    });
    let told = at_once(answers).await;
    write(told, keys)
}

/// What is told of every key, if all of it is known.
async fn all_known(
    app: &App,
    shape: Shape,
    purpose: Purpose,
    trace: &str,
    keys: &[Cow<'_, str>],
) -> Option<Vec<Result<Value, Trouble>>> {
    if purpose != Purpose::Verify {
        return None;
    }
    let generation = app.engine.watched.now().generation;
    let mut known = Vec::with_capacity(keys.len());
    for key in keys {
        known.push(app.engine.caches.answer(shape, key, generation).await?);
    }
    let tell = |(key, kept): (&Cow<'_, str>, Arc<KeptAnswer>)| Ok(retell(app, trace, key, &kept));
    Some(keys.iter().zip(known).map(tell).collect())
}

/// What was told before, counted and logged as if it were new.
fn retell(app: &App, trace: &str, key: &str, kept: &KeptAnswer) -> Value {
    app.metrics.cache(CacheName::Answer, true);
    app.metrics.outcome(kept.written.outcome);
    log(trace, key, &kept.written);
    Value::Report(Arc::clone(&kept.written))
}

fn log(trace: &str, key: &str, written: &Written) {
    match &written.refused {
        Some(refused) => {
            let (reference, reasons) = &**refused;
            tracing::info!(trace, reference, reasons, "refused");
        }
        None => tracing::debug!(trace, key, outcome = ?written.outcome, "let in"),
    }
}

fn read_key(app: &App, key: &str) -> Result<Key, Trouble> {
    let most = app.limits.key_bytes;
    if key.len() > most {
        let what = format!("the key has {} bytes, at most {most} are read", key.len());
        return Err(Trouble::new(Code::BadKey, what));
    }
    contract::parse(key).map_err(|error| Trouble::new(Code::BadKey, error.to_string()))
}

async fn verify(
    app: &App,
    manner: Manner,
    text: &str,
    (trace, until): (&str, Instant),
) -> Result<Value, Trouble> {
    let (caches, generation) = (&app.engine.caches, app.engine.watched.now().generation);
    if let Some(kept) = caches.answer(manner.shape, text, generation).await {
        return Ok(retell(app, trace, text, &kept));
    }
    app.metrics.cache(CacheName::Answer, false);
    let key = read_key(app, text).inspect_err(|trouble| app.metrics.trouble(trouble.code))?;
    let asked = Asked {
        namespace: key.namespace(),
        reference: key.reference(),
        machines: Machines::Named(key.platforms()),
    };
    let told = in_time(app, asked, until).await?;
    let written = Arc::new(reports::written(manner, &told, &repository(key.reference()))?);
    log(trace, text, &written);
    if let Told::Answer { kept: Some((until, generation)), .. } = told {
        let written = Arc::clone(&written);
        caches.keep_answer(manner.shape, text, KeptAnswer { written, generation, until }).await;
    }
    Ok(Value::Report(written))
}

async fn mutate(app: &App, key: &str, until: Instant) -> Result<Value, Trouble> {
    let key = read_key(app, key).inspect_err(|trouble| app.metrics.trouble(trouble.code))?;
    if Instant::now() >= until {
        return Err(late(app));
    }
    match timeout_at(until, app.engine.pin(key.reference())).await {
        Ok(pinned) => pinned.map(Value::Text),
        Err(_) => Err(late(app)),
    }
}

/// The answer, if there is one in time. What was begun goes on and is there for who asks next.
async fn in_time(app: &App, asked: Asked<'_>, until: Instant) -> Result<Told, Trouble> {
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
async fn at_once<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let all: Vec<_> = all.collect();
    stream::iter(all).buffered(AT_ONCE).collect().await
}

fn late(app: &App) -> Trouble {
    app.metrics.trouble(Code::Deadline);
    Trouble::deadline()
}

fn repository(reference: &Reference) -> String {
    match reference {
        Reference::Registry(one) => {
            format!("{}/{}", one.registry.as_str(), one.repository.as_str())
        }
        Reference::Layout(_) => reference.to_string(),
    }
}

/// Answers an API server, in time.
async fn admit(app: &App, request: Request) -> Response {
    let counted = Counted::new(&app.metrics, Call::Admission);
    let timeout = asked_for(request.uri().query())
        .map_or(app.timeouts.admission.0, |asked| asked.min(app.timeouts.admission.0));
    let deadline = counted.2 + timeout.saturating_sub(app.timeouts.margin.0);
    let trace = trace(&app.trace_headers, request.headers());
    let read = body(request.into_body(), app.limits.body_bytes, deadline).await;
    let read = read
        .and_then(|body| admission::read(&body).map_err(|message| NotAnswered::new(400, message)));
    let request = match read {
        Ok(request) => request,
        Err(NotAnswered { status, message }) => {
            tracing::warn!(trace, error = message, "an AdmissionReview was not answered");
            app.metrics.admission("denied");
            let ruling = Ruling { allowed: false, message: Some(message), warnings: Vec::new() };
            return json(status, admission::write("", &ruling).to_string().into_bytes());
        }
    };
    let ruling = judge(app, &request, &trace, deadline).await;
    let audited = ruling.allowed && !ruling.warnings.is_empty();
    app.metrics.admission(match (ruling.allowed, audited) {
        (true, false) => "allowed",
        (true, true) => "audited",
        (false, _) => "denied",
    });
    tracing::debug!(trace, uid = request.uid, allowed = ruling.allowed, "answered");
    json(200, admission::write(&request.uid, &ruling).to_string().into_bytes())
}

/// Every image of the pod, for every machine that it might run on.
async fn judge(app: &App, request: &admission::Request, trace: &str, until: Instant) -> Ruling {
    let audit = app.mode == Mode::Audit;
    let to_look_at = match admission::to_look_at(request) {
        Ok(Some(to_look_at)) => to_look_at,
        Ok(None) => return admission::rule(Vec::new(), audit),
        Err(error) => return admission::rule(vec![error.to_string()], audit),
    };
    let Ok(Ok(_place)) = timeout_at(until, app.requests.acquire()).await else {
        let what = "too many requests are being answered (limits.requests); try again";
        return admission::rule(vec![what.to_owned()], audit);
    };
    let pod = &to_look_at.pod;
    let looks = to_look_at.images.iter().map(|image| async move {
        let told = match image.parse::<Reference>() {
            Err(error) => {
                app.metrics.trouble(Code::BadKey);
                Err(Trouble::new(Code::BadKey, error.to_string()))
            }
            Ok(reference) => {
                let namespace = request.namespace.as_deref();
                let machines = Machines::Pod(pod);
                let asked = Asked { namespace, reference: &reference, machines };
                in_time(app, asked, until).await
            }
        };
        if let Ok(told) = &told
            && !told.is_yes()
        {
            tracing::info!(trace, reference = image, reasons = told.reasons(), "refused");
        }
        let complaint = admission::complaint(image, &told);
        if let (Err(_), Some(error)) = (&told, &complaint) {
            tracing::warn!(trace, error, "no answer");
        }
        complaint
    });
    let complaints = at_once(looks).await.into_iter().flatten().collect();
    admission::rule(complaints, audit)
}

/// How long the API server waits, as it says itself: `?timeout=10s`.
fn asked_for(query: Option<&str>) -> Option<Duration> {
    let value = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    value.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok())
}

/// Of the first header that has one, else a new one. Strangers choose what is in headers, so not
/// everything is taken into logs.
fn trace(names: &[HeaderName], headers: &HeaderMap) -> String {
    let word = |text: &&str| {
        let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.:/".contains(&c);
        (1..=128).contains(&text.len()) && text.bytes().all(plain)
    };
    let given = names.iter().find_map(|name| headers.get(name)?.to_str().ok().filter(word));
    given.map(str::to_owned).unwrap_or_else(|| {
        let mut bytes = [0; 16];
        // Without randomness all ids are the same, which does no harm but to who reads logs.
        let _ = aws_lc_rs::rand::fill(&mut bytes);
        hex(&bytes)
    })
}
