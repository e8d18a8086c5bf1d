//! Sending: authorisation, redirects, deadlines, repetition.

use bytes::BytesMut;
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::{HeaderValue, Method};
use reqwest::Response;

use super::redirect::{MAX_REDIRECTS, next_hop};
use super::stall::{Progress, while_moving};
use super::{Answer, Call, Endpoint, Payload, authority, header};
use crate::client::Shared;
use crate::client::answer::MAX_ERROR_BODY;
use crate::client::auth::Authorization;
use crate::client::error::Failure;
use crate::client::retry::Retries;
use crate::client::room::{Room, Taken};
use crate::client::settings::Limits;
use crate::headers::same_origin;

/// A first answer that asks for credentials, one that says a remembered token is stale, and the real one.
const MAX_ROUNDS: usize = 3;

impl Shared {
    /// Sends a call and reads the answer whole, up to `limit` bytes; repeats it on transient trouble.
    /// Any status that is not transient is an answer.
    pub(in crate::client) async fn exchange(
        &self,
        endpoint: &Endpoint,
        call: &Call<'_>,
        limit: usize,
    ) -> Result<Answer, Failure> {
        let limits = &self.settings.host(&endpoint.host).limits;
        let mut retries = Retries::new(limits);
        loop {
            let failure = match self.exchange_once(endpoint, call, limit, limits).await {
                Ok(answer) if crate::client::retry::is_transient(answer.status) => answer.failure(),
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if !failure.is_transient() || !retries.wait(&failure).await {
                return Err(failure.after_attempts(retries.attempts()));
            }
        }
    }

    /// One attempt of [`Shared::exchange`], within the request's deadline.
    pub(in crate::client) async fn exchange_once(
        &self,
        endpoint: &Endpoint,
        call: &Call<'_>,
        limit: usize,
        limits: &Limits,
    ) -> Result<Answer, Failure> {
        let whole = async {
            let response = self.attempt(endpoint, call).await?;
            read_whole(response, limit, endpoint, self.settings.room()).await
        };
        // An upload may take hours; it is watched for standing still instead.
        if matches!(call.payload, Payload::Blob { .. }) {
            return whole.await;
        }
        within(limits, whole).await
    }

    /// Sends a call once, with credentials if the registry wants them, and returns the answer whose
    /// body is still to be read. Statuses are not judged, but for 401 when there is more to show.
    pub(in crate::client) async fn attempt(
        &self,
        endpoint: &Endpoint,
        call: &Call<'_>,
    ) -> Result<Response, Failure> {
        if let Some(source) = endpoint.fault {
            return Err(Failure::Url { url: endpoint.host.as_str().to_owned(), source });
        }
        let mut shown = self.authorize(endpoint, &call.access).await?;
        for _ in 1..MAX_ROUNDS {
            let response = self.follow(endpoint, call, shown.as_ref()).await?;
            let asked =
                response.status().as_u16() == 401 && same_origin(response.url(), &endpoint.base);
            if !asked {
                return Ok(response);
            }
            let challenges = response.headers().get_all("www-authenticate");
            let challenges: Vec<String> = challenges
                .iter()
                .filter_map(|value| value.to_str().ok().map(str::to_owned))
                .collect();
            match self.answer_challenge(endpoint, &call.access, &challenges, shown.as_ref()).await?
            {
                Some(better) => {
                    // Reading the short refusal lets the connection be used again.
                    let limits = &self.settings.host(&endpoint.host).limits;
                    let _ =
                        within(limits, read_whole(response, MAX_ERROR_BODY, endpoint, None)).await;
                    shown = Some(better);
                }
                None => return Ok(response),
            }
        }
        self.follow(endpoint, call, shown.as_ref()).await
    }

    /// Follows redirects. Credentials stay with the registry: once the way has left its origin they
    /// are not shown again.
    pub(in crate::client) async fn follow(
        &self,
        endpoint: &Endpoint,
        call: &Call<'_>,
        shown: Option<&Authorization>,
    ) -> Result<Response, Failure> {
        let mut url = call.url.clone();
        let mut at_home = true;
        for _ in 0..=MAX_REDIRECTS {
            at_home = at_home && same_origin(&url, &endpoint.base);
            let shown = shown.filter(|_| at_home);
            let response = self.send(endpoint, call, url.clone(), shown).await?;
            let location = header(response.headers(), "location");
            match next_hop(&call.method, response.status().as_u16(), &url, location)? {
                Some(to) => url = to,
                None => return Ok(response),
            }
        }
        Err(Failure::TooManyRedirects { limit: MAX_REDIRECTS, last: authority(&url) })
    }

    /// Sends a call once with what is given to be shown, challenges not answered, and reads the answer whole.
    pub(in crate::client) async fn exchange_with(
        &self,
        endpoint: &Endpoint,
        call: &Call<'_>,
        shown: Option<&Authorization>,
        limit: usize,
    ) -> Result<Answer, Failure> {
        let limits = &self.settings.host(&endpoint.host).limits;
        let whole = async {
            let response = self.follow(endpoint, call, shown).await?;
            read_whole(response, limit, endpoint, self.settings.room()).await
        };
        within(limits, whole).await
    }

    /// Sends a call once to exactly its URL, redirects not followed, and reads the answer whole.
    pub(in crate::client) async fn exchange_here(
        &self,
        endpoint: &Endpoint,
        call: &Call<'_>,
        limit: usize,
    ) -> Result<Answer, Failure> {
        let limits = &self.settings.host(&endpoint.host).limits;
        let whole = async {
            let response = self.send(endpoint, call, call.url.clone(), None).await?;
            read_whole(response, limit, endpoint, self.settings.room()).await
        };
        within(limits, whole).await
    }

    /// One request on the wire, up to the head of its answer, told to whoever wants to know. The
    /// query stays out of the log: upload sessions and signed addresses keep secrets there.
    async fn send(
        &self,
        endpoint: &Endpoint,
        call: &Call<'_>,
        url: url::Url,
        shown: Option<&Authorization>,
    ) -> Result<Response, Failure> {
        let (host, path) = (authority(&url), url.path().to_owned());
        let sent = self.put_on_wire(endpoint, call, url, shown).await;
        if let Some(observer) = &self.observer {
            observer(&host, sent.as_ref().ok().map(|answer| answer.status().as_u16()));
        }
        match &sent {
            Ok(answer) => {
                tracing::debug!(method = %call.method, host, path, status = answer.status().as_u16());
            }
            Err(failure) => tracing::debug!(method = %call.method, host, path, %failure),
        }
        sent
    }

    async fn put_on_wire(
        &self,
        endpoint: &Endpoint,
        call: &Call<'_>,
        url: url::Url,
        shown: Option<&Authorization>,
    ) -> Result<Response, Failure> {
        let limits = &self.settings.host(&endpoint.host).limits;
        let client = self.connections.client(&url)?;
        let host = authority(&url);
        let mut request = client.request(call.method.clone(), url).headers(call.headers.clone());
        if let Some(authorization) = shown {
            request = request.header(AUTHORIZATION, authorization.value()?);
        }
        let connection = |source: reqwest::Error| connection_failure(&host, source);
        match &call.payload {
            Payload::Empty => {
                if !matches!(call.method, Method::GET | Method::HEAD | Method::DELETE) {
                    request = request.header(CONTENT_LENGTH, HeaderValue::from_static("0"));
                }
                let sent = tokio::time::timeout(
                    limits.stall_timeout.max(limits.connect_timeout),
                    request.send(),
                )
                .await;
                let stalled =
                    Failure::Stalled { limit: limits.stall_timeout, moved: 0, attempts: 1 };
                sent.map_err(|_| stalled)?.map_err(connection)
            }
            Payload::Bytes(bytes) => request.body(bytes.clone()).send().await.map_err(connection),
            Payload::Blob { feed, offset, length } => {
                let progress = Progress::default();
                let body =
                    feed.body(*offset, *length, progress.clone()).await.map_err(Failure::Source)?;
                let request = request.header(CONTENT_LENGTH, *length).body(body).send();
                let sent = while_moving(request, &progress, *length, limits).await;
                // What broke the source explains what then happened to the connection.
                if let Some(error) = feed.take_error() {
                    return Err(Failure::Source(error));
                }
                sent?.map_err(connection)
            }
        }
    }
}

/// Bounds a request whose answer is read whole.
async fn within<T>(
    limits: &Limits,
    whole: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(limits.request_timeout, whole)
        .await
        .unwrap_or(Err(Failure::Deadline { limit: limits.request_timeout, attempts: 1 }))
}

/// TLS that cannot work is told apart: trying again does not help, settings do.
pub(in crate::client) fn connection_failure(host: &str, source: reqwest::Error) -> Failure {
    let source = source.without_url();
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&source);
    while let Some(error) = cause {
        if error.is::<rustls::Error>() {
            return Failure::Handshake { host: host.to_owned(), source };
        }
        // An I/O error that wraps another hides it from `source()`.
        cause = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    Failure::Connection { host: host.to_owned(), attempts: 1, source }
}

/// Reads a body up to `limit` bytes, whatever its Content-Length says; of an error answer only as
/// much as is worth showing.
async fn read_whole(
    mut response: Response,
    limit: usize,
    endpoint: &Endpoint,
    room: Option<&Room>,
) -> Result<Answer, Failure> {
    let status = response.status().as_u16();
    let success = response.status().is_success();
    let url = response.url().clone();
    let headers = std::mem::take(response.headers_mut());
    let limit = if success { limit } else { MAX_ERROR_BODY };
    let (mut body, mut taken) = (BytesMut::new(), Taken::default());
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= limit => {
                if let Some(room) = room.filter(|_| success) {
                    room.take(&mut taken, chunk.len())?;
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Some(_)) if success => return Err(Failure::TooLarge { limit }),
            Ok(None) => break,
            Err(error) if success => return Err(connection_failure(&authority(&url), error)),
            // The status is what matters; its explanation is a courtesy.
            Ok(Some(_)) | Err(_) => break,
        }
    }
    Ok(Answer {
        status,
        headers,
        body: taken.by(body.freeze()),
        url,
        login: endpoint.host.as_str().to_owned(),
    })
}

/// Judges the head of an answer whose body is to be streamed: success passes, the rest is read and told.
pub(in crate::client) async fn judge(
    response: Response,
    endpoint: &Endpoint,
    limits: &Limits,
) -> Result<Response, Failure> {
    if response.status().is_success() {
        return Ok(response);
    }
    let answer = within(limits, read_whole(response, MAX_ERROR_BODY, endpoint, None)).await?;
    Err(answer.failure())
}
