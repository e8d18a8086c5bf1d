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
use super::config::{Limits, Mode, Tags, Timeouts, TransientErrors};
use super::engine::{AT_ONCE, Engine};
use super::metrics::{CacheName, Call, Metrics};
use super::provider::{self, NotAnswered, ProviderResponse, Purpose, Shape};
use super::question::{Asked, Machines, Told};
use super::readers::{Asker, PodLogins};
use super::reports::{self, Manner, Stamp, Value, Written};
use super::trouble::{Code, Trouble};
use crate::contract::{self, Key};

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
    pub(super) metrics: Arc<Metrics>,
    pub(super) ending: CancellationToken,
}

/// For Gatekeeper. `believed`: who asks here may say in whose name.
pub(super) fn provider_router(app: &Arc<App>, believed: bool) -> Router {
    let mut router = Router::new();
    for (version, shape) in [("v1", Shape::V1), ("v2", Shape::V2)] {
        for (name, purpose) in [("verify", Purpose::Verify), ("mutate", Purpose::Mutate)] {
            let path = format!("/ratify/gatekeeper/{version}/{name}");
            let answer = move |State(app): State<Arc<App>>, request: Request| async move {
                provide(&app, (shape, purpose, believed), request).await
            };
            router = router.route(&path, post(answer));
        }
    }
    router.with_state(Arc::clone(app))
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

/// What a route is for, and whether who asks there is believed.
type Route = (Shape, Purpose, bool);

/// Answers a request of Gatekeeper, in time.
async fn provide(app: &App, asked: Route, request: Request) -> Response {
    let (shape, purpose, _) = asked;
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
            Ok(keys) => Ok(answer(app, asked, (&trace, deadline), keys).await),
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
    (shape, purpose, believed): Route,
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
    // A key tells the namespace alone: what its pods have that name no account.
    let logins = believed.then(PodLogins::default);
    let logins = logins.as_ref();
    let Ok(Ok(_place)) = timeout_at(until, app.requests.acquire()).await else {
        let what = "too many requests are being answered (limits.requests); ask again";
        return provider::system_error(shape, NotAnswered::new(503, what));
    };
    let manner = Manner { shape, audit: app.mode == Mode::Audit };
    let answers = keys.iter().map(|key| async move {
        let told = match purpose {
            Purpose::Verify => verify(app, manner, (key.as_ref(), logins), (trace, until)).await,
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
    let ground = app.engine.ground();
    let mut known = Vec::with_capacity(keys.len());
    for key in keys {
        known.push(app.engine.caches.answer(shape, key, &ground).await?);
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

fn short_enough(app: &App, key: &str) -> Result<(), Trouble> {
    let most = app.limits.key_bytes;
    match key.len() <= most {
        true => Ok(()),
        false => {
            let what = format!("the key has {} bytes, at most {most} are read", key.len());
            Err(Trouble::new(Code::BadKey, what))
        }
    }
}

fn read_key(app: &App, key: &str) -> Result<Key, Trouble> {
    short_enough(app, key)?;
    contract::parse(key).map_err(|error| Trouble::new(Code::BadKey, error.to_string()))
}

async fn verify(
    app: &App,
    manner: Manner,
    (text, logins): (&str, Option<&PodLogins>),
    (trace, until): (&str, Instant),
) -> Result<Value, Trouble> {
    let (caches, ground) = (&app.engine.caches, app.engine.ground());
    if let Some(kept) = caches.answer(manner.shape, text, &ground).await {
        return Ok(retell(app, trace, text, &kept));
    }
    app.metrics.cache(CacheName::Answer, false);
    let key = read_key(app, text).inspect_err(|trouble| app.metrics.trouble(trouble.code))?;
    let asked = Asked {
        namespace: key.namespace().filter(|_| app.engine.exempt.namespaces_in_keys),
        reference: key.reference(),
        machines: Machines::Named(key.platforms()),
        asker: key.namespace().zip(logins).map(|(namespace, pod)| Asker { namespace, pod }),
    };
    let told = in_time(app, asked, until).await?;
    let written = Arc::new(reports::written(manner, &told, &repository(key.reference()))?);
    log(trace, text, &written);
    if let Told::Answer { kept: Some((until, ground)), .. } = told {
        let written = Arc::clone(&written);
        caches.keep_answer(manner.shape, text, KeptAnswer { written, ground, until }).await;
    }
    Ok(Value::Report(written))
}

/// The key is a reference and nothing else: what it comes to is written in the image's place.
async fn mutate(app: &App, key: &str, until: Instant) -> Result<Value, Trouble> {
    let reference = short_enough(app, key).and_then(|()| {
        key.parse::<Reference>().map_err(|error| Trouble::new(Code::BadKey, error.to_string()))
    });
    let reference = reference.inspect_err(|trouble| app.metrics.trouble(trouble.code))?;
    if Instant::now() >= until {
        return Err(late(app));
    }
    match timeout_at(until, app.engine.pin(&reference)).await {
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
async fn admit(app: &App, believed: bool, request: Request) -> Response {
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
            let denied = admission::write("", &Ruling::no(&message));
            return json(status, denied.to_string().into_bytes());
        }
    };
    let ruling = judge(app, (&request, believed), &trace, deadline).await;
    app.metrics.admission(match (ruling.allowed, ruling.audited) {
        (true, false) => "allowed",
        (true, true) => "audited",
        (false, _) => "denied",
    });
    tracing::debug!(trace, uid = request.uid, allowed = ruling.allowed, "answered");
    json(200, admission::write(&request.uid, &ruling).to_string().into_bytes())
}

/// Every image of the pod, for every machine that it might run on.
async fn judge(
    app: &App,
    (request, believed): (&admission::Request, bool),
    trace: &str,
    until: Instant,
) -> Ruling {
    let audit = app.mode == Mode::Audit;
    let to_look_at = match admission::to_look_at(request) {
        Ok(Some(to_look_at)) => to_look_at,
        Ok(None) => return admission::rule(Vec::new(), audit),
        Err(error) => return admission::rule_request(error.to_string(), audit),
    };
    let Ok(Ok(_place)) = timeout_at(until, app.requests.acquire()).await else {
        let what = "too many requests are being answered (limits.requests); try again";
        return admission::rule_request(what.to_owned(), audit);
    };
    let to_look_at = &to_look_at;
    let looks = to_look_at.images.iter().map(|image| async move {
        let told = match image.parse::<Reference>() {
            Err(error) => {
                app.metrics.trouble(Code::BadKey);
                Err(Trouble::new(Code::BadKey, error.to_string()))
            }
            Ok(reference) => {
                let namespace = request.namespace.as_deref();
                let machines = Machines::Pod(&to_look_at.pod);
                let asker = namespace
                    .filter(|_| believed)
                    .map(|namespace| Asker { namespace, pod: &to_look_at.logins });
                let asked = Asked { namespace, reference: &reference, machines, asker };
                in_time(app, asked, until).await
            }
        };
        if let Ok(told) = &told
            && !told.is_yes()
        {
            tracing::info!(trace, reference = image, reasons = told.reasons(), "refused");
        }
        let said = admission::said(image, &told, app.tags);
        if let (Err(_), Some(error)) = (&told, &said.complaint) {
            tracing::warn!(trace, error, "no answer");
        }
        said
    });
    admission::rule(at_once(looks).await, audit)
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
