//! Connections: accepted within bounds, watched for standstill, ended gracefully.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::counted::Counted;
use super::guard::{Guarded, Patience};
use super::places::{Activity, Place, Places};
use super::tls::Tls;

/// Bounds on connections, whoever is at their other end.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once. Who idles for the longest makes room for more; where all are busy, more
    /// wait to be accepted.
    pub max_connections: usize,
    /// How long a connection may wait for its next request.
    pub header_timeout: Duration,
    /// How long a request's head may take, from its first byte.
    pub head_timeout: Duration,
    /// How long a connection may take to begin its first request.
    pub opening_timeout: Duration,
    /// How long a peer may leave unread what was written to it.
    pub idle_timeout: Duration,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long requests under way may go on after shutdown was asked for.
    pub shutdown_timeout: Duration,
    /// Requests at once on one connection of HTTP/2.
    pub max_streams: u32,
    /// What may be sent on one of them before it is read; on all of a connection, twice that.
    pub window: u32,
    /// What HTTP/1 reads at once, heads and bodies alike.
    pub read_buffer: usize,
    /// Of the head of a request of HTTP/2.
    pub max_head: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            header_timeout: Duration::from_secs(30),
            head_timeout: Duration::from_secs(30),
            opening_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(30),
            max_streams: 128,
            // The default of 64 KiB would throttle uploads.
            window: 4 * 1024 * 1024,
            // As much as uploads are written in.
            read_buffer: 512 * 1024,
            // The longest path, a token of a few kilobytes, a cookie jar.
            max_head: 64 * 1024,
        }
    }
}

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    /// The network, with TLS or without.
    Tcp(TcpListener, Option<Tls>),
    /// This machine.
    Unix(UnixListener),
}

/// A connection as it was accepted.
enum Accepted {
    Tcp(TcpStream, Option<Tls>),
    Unix(UnixStream),
}

impl Accepted {
    fn has_handshake(&self) -> bool {
        matches!(self, Self::Tcp(_, Some(_)))
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener, tls) => {
                listener.accept().await.map(|(stream, _)| Accepted::Tcp(stream, tls.clone()))
            }
            Self::Unix(listener) => {
                listener.accept().await.map(|(stream, _)| Accepted::Unix(stream))
            }
        }
    }
}

/// Whoever answers every request of a connection: each has its own, and none fails.
pub trait Answers:
    Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + 'static
{
}

impl<S> Answers for S where
    S: Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + 'static
{
}

/// How long a connection that idled may take to end after it was told to.
const GOODBYE: Duration = Duration::from_secs(5);

/// Accepts until `shutdown`, then waits for what is under way.
pub async fn run(
    listener: Listener,
    router: Router,
    limits: &Limits,
    shutdown: impl Future<Output = ()> + Send,
) {
    run_service(listener, TowerToHyperService::new(router), limits, shutdown).await;
}

/// The same for who finds its way without a router.
pub async fn run_service<S: Answers>(
    listener: Listener,
    service: S,
    limits: &Limits,
    shutdown: impl Future<Output = ()> + Send,
) {
    let places = Places::new(limits.max_connections);
    let handshakes = Places::new(limits.max_connections);
    let builder = Arc::new(builder(limits));
    let ending = CancellationToken::new();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        while connections.try_join_next().is_some() {}
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                // Out of file handles, or the peer is gone already: others may do better.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Who is silent in a handshake takes nobody's place that is past it.
        let pool = if stream.has_handshake() { &handshakes } else { &places };
        let place = tokio::select! {
            place = pool.take() => place,
            () = &mut shutdown => break,
        };
        let connection = Connection {
            builder: Arc::clone(&builder),
            service: service.clone(),
            places: Arc::clone(&places),
            ending: ending.clone(),
            limits: limits.clone(),
        };
        connections.spawn(connection.serve(stream, place));
    }
    drop(listener);
    ending.cancel();
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.shutdown_timeout, ended).await.is_err() {
        tracing::warn!("requests under way are cut off");
    }
    connections.shutdown().await;
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // Without its own timer, which it would set anew for each request: who is silent is seen by
    // `Guarded` and by who waits for the connection.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(limits.read_buffer);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(limits.max_head)
        .initial_stream_window_size(limits.window)
        .initial_connection_window_size(limits.window.saturating_mul(2))
        .max_concurrent_streams(limits.max_streams)
        .keep_alive_interval(limits.header_timeout)
        .keep_alive_timeout(limits.header_timeout);
    builder
}

struct Connection<S> {
    builder: Arc<Builder<TokioExecutor>>,
    service: S,
    places: Arc<Places>,
    ending: CancellationToken,
    limits: Limits,
}

impl<S: Answers> Connection<S> {
    async fn serve(self, stream: Accepted, place: Place) {
        let (stream, tls) = match stream {
            Accepted::Unix(stream) => return self.speak(stream, place).await,
            Accepted::Tcp(stream, tls) => (stream, tls),
        };
        // Answers are written whole; waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return self.speak(stream, place).await };
        let handshake = async {
            let stream = tls.acceptor().accept(stream).await?;
            // Where all places are busy, it waits here, among those who are not past this.
            io::Result::Ok((stream, self.places.take().await))
        };
        let done = tokio::select! {
            done = tokio::time::timeout(self.limits.handshake_timeout, handshake) => done,
            () = place.activity.gives_way() => return,
            () = self.ending.cancelled() => return,
        };
        drop(place);
        match done {
            Ok(Ok((stream, place))) => self.speak(stream, place).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        }
    }

    /// Until it ends, idles for too long, makes room for another or everything ends.
    async fn speak<T>(self, stream: T, place: Place)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Limits { header_timeout, head_timeout, opening_timeout, idle_timeout, .. } =
            self.limits;
        let patience =
            Patience { idle: idle_timeout, opening: opening_timeout, head: head_timeout };
        let activity = &place.activity;
        let stream = Guarded::new(stream, patience, Arc::clone(activity));
        let service = Counted { service: self.service, activity: Arc::clone(activity) };
        let connection = self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = pin!(connection.into_owned());
        let mut idles = pin!(tokio::time::sleep(header_timeout));
        let (mut ends, mut let_go) = (false, false);
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        // Clients hang up all the time; the access log tells what was answered.
                        tracing::debug!(error, "connection ended early");
                    }
                    return;
                }
                () = self.ending.cancelled(), if !ends => {
                    ends = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = activity.gives_way() => {
                    return tracing::debug!("an idle connection made room for another");
                }
                () = idles.as_mut() => match (longer(activity, header_timeout), let_go) {
                    (Some(longer), _) => idles.as_mut().reset(Instant::now() + longer),
                    (None, true) => return,
                    (None, false) => {
                        let_go = true;
                        connection.as_mut().graceful_shutdown();
                        idles.as_mut().reset(Instant::now() + GOODBYE);
                    }
                },
            }
        }
    }
}

/// How much longer a connection may idle; none where it did for long enough.
fn longer(activity: &Activity, most: Duration) -> Option<Duration> {
    let idle = activity.idle_since().map_or(Duration::ZERO, |since| since.elapsed());
    most.checked_sub(idle).filter(|left| !left.is_zero())
}
