//! Requests of API servers: every image of a pod is looked at, in time.

use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use jiff::SignedDuration;
use portolan_core::Reference;
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::admission;
use super::body::{self, Coming};
use super::config::Mode;
use super::http::{App, Counted, at_once, in_time, json, trace};
use super::metrics::Call;
use super::provider::NotAnswered;
use super::question::{Asked, Machines};
use super::readers::Asker;
use super::ruling::{self, Ruling};
use super::trouble::{Code, Trouble};

/// Answers an API server, in time.
pub(super) async fn admit(app: &App, believed: bool, request: Request) -> Response {
    let counted = Counted::new(&app.metrics, Call::Admission);
    let timeout = asked_for(request.uri().query())
        .map_or(app.timeouts.admission.0, |asked| asked.min(app.timeouts.admission.0));
    let deadline = counted.since + timeout.saturating_sub(app.timeouts.margin.0);
    let trace = trace(&app.trace_headers, request.headers());
    let read = match body::read(app, Coming::new(request.into_body()), deadline).await {
        Ok(held) => read(app, &held.bytes, deadline).await,
        Err(refused) => Err(refused),
    };
    let (request, _place) = match read {
        Ok(Read::Request(request, place)) => (request, place),
        Ok(Read::NoPlace(uid)) => {
            let what = "too many requests are being answered (limits.requests); try again";
            let ruling = ruling::rule_request(what.to_owned(), app.mode == Mode::Audit);
            return tell(app, &uid, &ruling);
        }
        Err(NotAnswered { status, message }) => {
            tracing::warn!(trace, error = message, "an AdmissionReview was not answered");
            app.metrics.admission("denied");
            let denied = ruling::write("", &Ruling::no(&message));
            return json(status, denied.to_string().into_bytes());
        }
    };
    let ruling = judge(app, (&request, believed), &trace, deadline).await;
    tracing::debug!(trace, uid = request.uid, allowed = ruling.allowed, "answered");
    tell(app, &request.uid, &ruling)
}

/// What is read of a request.
enum Read<'a> {
    /// With the place in which it is answered.
    Request(Box<admission::Request>, SemaphorePermit<'a>),
    /// Its uid; the rest is not read where nobody may answer it.
    NoPlace(String),
}

/// What is read takes more than its bytes, so that has a place first.
async fn read<'a>(app: &'a App, body: &[u8], until: Instant) -> Result<Read<'a>, NotAnswered> {
    match timeout_at(until, app.requests.acquire()).await {
        Ok(Ok(place)) => match admission::read(body) {
            Ok(request) => Ok(Read::Request(Box::new(request), place)),
            Err(message) => Err(NotAnswered::new(400, message)),
        },
        _ => Ok(Read::NoPlace(admission::uid(body).unwrap_or_default())),
    }
}

fn tell(app: &App, uid: &str, ruling: &Ruling) -> Response {
    app.metrics.admission(match (ruling.allowed, ruling.audited) {
        (true, false) => "allowed",
        (true, true) => "audited",
        (false, _) => "denied",
    });
    json(200, ruling::write(uid, ruling).to_string().into_bytes())
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
        Ok(None) => return ruling::rule(Vec::new(), audit),
        Err(error) => return ruling::rule_request(error.to_string(), audit),
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
                let reference = &reference;
                let asked = Asked { namespace, may_exempt: true, reference, machines, asker };
                in_time(app, asked, until).await
            }
        };
        if let Ok(told) = &told
            && !told.is_yes()
        {
            tracing::info!(trace, reference = image, reasons = told.reasons(), "refused");
        }
        let said = ruling::said(image, &told, app.tags);
        if let (Err(_), Some(error)) = (&told, &said.complaint) {
            tracing::warn!(trace, error, "no answer");
        }
        said
    });
    ruling::rule(at_once(looks).await, audit)
}

/// How long the API server waits, as it says itself: `?timeout=10s`.
fn asked_for(query: Option<&str>) -> Option<Duration> {
    let value = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    value.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok())
}
