//! Requests of Gatekeeper: every key is answered, in time.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::Request;
use hyper::body::Body;
use jiff::Timestamp;
use portolan_core::Reference;
use tokio::time::{Instant, timeout_at};

use super::body::{self, Coming};
use super::caches::{KeptAnswer, KeptRequest};
use super::config::Mode;
use super::http::{App, Counted, at_once, in_time, json, late, trace};
use super::metrics::{CacheName, Call};
use super::provider::{self, NotAnswered, ProviderResponse, Purpose, Shape, up_to_value};
use super::question::{Asked, Machines, Told};
use super::readers::{Asker, PodLogins};
use super::reports::{self, Manner, Stamp, Value, Written};
use super::trouble::{Code, Trouble};
use crate::contract::{self, Key};
use crate::report::repository;

/// What a route is for, and whether who asks there is believed.
pub(super) type Route = (Shape, Purpose, bool);

/// A request of Gatekeeper, as it begins.
pub(super) struct Begun<B: Body> {
    route: Route,
    counted: Counted,
    trace: String,
    coming: Coming<B>,
}

/// What a request comes to when it is first looked at.
pub(super) enum First<B: Body> {
    Answer(Response),
    Begun(Begun<B>),
}

/// Answers what was answered before, byte for byte the same, while nothing in it is over. Reading it and
/// finding its keys would be most of the work. What has to be looked at is given back.
pub(super) fn first<B>(app: &App, route: Route, request: Request<B>) -> First<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    let call = match route.1 {
        Purpose::Verify => Call::Verify,
        Purpose::Mutate => Call::Mutate,
    };
    let counted = Counted::new(&app.metrics, call);
    let trace = trace(&app.trace_headers, request.headers());
    let coming = Coming::new(request.into_body());
    match coming.whole().and_then(|whole| again(app, route, &trace, whole)) {
        Some(answered) => First::Answer(tell(&trace, &counted, answered)),
        None => First::Begun(Begun { route, counted, trace, coming }),
    }
}

fn again(
    app: &App,
    (shape, purpose, _): Route,
    trace: &str,
    body: &[u8],
) -> Option<ProviderResponse> {
    if purpose != Purpose::Verify {
        return None;
    }
    let kept = app.engine.caches.request(shape, body, &app.engine.ground())?;
    let stamp = Stamp { trace, now: Timestamp::now() };
    let items = kept.items();
    items.iter().for_each(|(_, kept)| count(app, trace, kept));
    let items = items.iter().map(|(head, kept)| (&**head, &*kept.written));
    Some(provider::again(shape, &stamp, items, kept.bytes()))
}

/// Answers the rest, in time.
pub(super) async fn provide<B>(app: &App, begun: Begun<B>) -> Response
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let Begun { route, counted, trace, coming } = begun;
    let (shape, purpose, _) = route;
    let timeout = match purpose {
        Purpose::Verify => app.timeouts.verify.0,
        Purpose::Mutate => app.timeouts.mutate.0,
    };
    let deadline = counted.since + (timeout - app.timeouts.margin.0);
    let came_late = coming.whole().is_none();
    let answered = match body::read(app, coming, deadline).await {
        Err(refused) => Err(refused),
        Ok(held) => {
            let known = came_late.then(|| again(app, route, &trace, &held.bytes)).flatten();
            match known {
                Some(answered) => Ok(answered),
                None => look(app, route, (&trace, deadline), &held.bytes).await,
            }
        }
    };
    let answered = answered.unwrap_or_else(|refused| {
        tracing::warn!(trace, error = refused.message, "a request was not answered");
        provider::system_error(shape, refused)
    });
    tell(&trace, &counted, answered)
}

async fn look(
    app: &App,
    route: Route,
    (trace, until): (&str, Instant),
    body: &[u8],
) -> Result<ProviderResponse, NotAnswered> {
    let keys = provider::read(body, &app.limits)?;
    Ok(answer(app, route, (trace, until), (body, keys)).await)
}

fn tell(trace: &str, counted: &Counted, answered: ProviderResponse) -> Response {
    let milliseconds = u64::try_from(counted.since.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(trace, status = answered.status, milliseconds, "answered");
    json(answered.status, answered.body)
}

async fn answer(
    app: &App,
    (shape, purpose, believed): Route,
    (trace, until): (&str, Instant),
    (body, keys): (&[u8], Vec<Cow<'_, str>>),
) -> ProviderResponse {
    let stamp = Stamp { trace, now: Timestamp::now() };
    let write = |told: Vec<Result<Value, Trouble>>, keys: Vec<_>| {
        let told: Vec<_> = keys.into_iter().zip(told).collect();
        provider::answer(shape, purpose, app.transient, &stamp, &told)
    };
    // Where all is known there is nothing to wait for, and nobody to wait behind.
    if let Some(known) = all_known(app, shape, purpose, &keys) {
        let tell = |kept: &Arc<KeptAnswer>| Ok(retell(app, trace, kept));
        let told = known.iter().map(tell).collect();
        let heads: Vec<_> = keys.iter().map(|key| up_to_value(key)).collect();
        let answered = write(told, keys);
        let kept = KeptRequest::new(heads.into_iter().zip(known).collect());
        // Too long an answer is none.
        if let (200, Some(kept)) = (answered.status, kept) {
            app.engine.caches.keep_request(shape, body, kept);
        }
        return answered;
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
fn all_known(
    app: &App,
    shape: Shape,
    purpose: Purpose,
    keys: &[Cow<'_, str>],
) -> Option<Vec<Arc<KeptAnswer>>> {
    if purpose != Purpose::Verify {
        return None;
    }
    let ground = app.engine.ground();
    keys.iter().map(|key| app.engine.caches.answer(shape, key, &ground)).collect()
}

/// What was told before, counted and logged as if it were new.
fn retell(app: &App, trace: &str, kept: &KeptAnswer) -> Value {
    count(app, trace, kept);
    Value::Report(Arc::clone(&kept.written))
}

fn count(app: &App, trace: &str, kept: &KeptAnswer) {
    app.metrics.cache(CacheName::Answer, true);
    app.metrics.outcome(kept.written.outcome);
    log(trace, &kept.key, &kept.written);
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
    if let Some(kept) = caches.answer(manner.shape, text, &ground) {
        return Ok(retell(app, trace, &kept));
    }
    app.metrics.cache(CacheName::Answer, false);
    let key = read_key(app, text).inspect_err(|trouble| app.metrics.trouble(trouble.code))?;
    let asked = Asked {
        namespace: key.namespace(),
        may_exempt: app.engine.exempt.namespaces_in_keys,
        reference: key.reference(),
        machines: Machines::Named(key.platforms()),
        asker: key.namespace().zip(logins).map(|(namespace, pod)| Asker { namespace, pod }),
    };
    let told = in_time(app, asked, until).await?;
    let written = Arc::new(reports::written(manner, &told, &repository(key.reference()))?);
    log(trace, text, &written);
    if let Told::Answer { kept: Some((until, ground)), .. } = told {
        let written = Arc::clone(&written);
        let key = text.into();
        caches.keep_answer(manner.shape, KeptAnswer { key, written, ground, until });
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
