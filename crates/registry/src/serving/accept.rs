//! Connections: accepted within bounds, watched for standstill, ended gracefully.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Sleep;

use super::tls::Tls;

/// Bounds on connections, whoever is at their other end.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once; more wait to be accepted.
    pub max_connections: usize,
    /// How long a request's head may take, and how long a connection may wait for its next
    /// request.
    pub header_timeout: Duration,
    /// How long a connection may take to begin its first request.
    pub opening_timeout: Duration,
    /// How long a peer may leave unread what was written to it.
    pub idle_timeout: Duration,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long requests under way may go on after shutdown was asked for.
    pub shutdown_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            header_timeout: Duration::from_secs(30),
            opening_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(30),
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

/// An HTTP/2 request's head: the longest path, a token of a few kilobytes, a cookie jar.
const MAX_HEAD: u32 = 64 * 1024;
/// What HTTP/1 reads at once, heads and bodies alike: as much as uploads are written in.
const READ_BUFFER: usize = 512 * 1024;
/// Upload data in flight on one HTTP/2 connection; the default of 64 KiB would throttle it.
const H2_WINDOW: u32 = 4 * 1024 * 1024;

/// Accepts until `shutdown`, then waits for what is under way.
pub async fn run(
    listener: Listener,
    router: Router,
    limits: &Limits,
    shutdown: impl Future<Output = ()> + Send,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.max_connections));
    let builder = Arc::new(builder(limits));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        while connections.try_join_next().is_some() {}
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = &mut shutdown => break,
        };
        let Ok(place) = place else { break };
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
        let connection = Connection {
            builder: Arc::clone(&builder),
            router: router.clone(),
            watcher: graceful.watcher(),
            idle: limits.idle_timeout,
            opening: limits.opening_timeout,
            handshake: limits.handshake_timeout,
        };
        connections.spawn(async move {
            connection.serve(stream).await;
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(limits.shutdown_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests under way are cut off");
    }
    connections.shutdown().await;
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(READ_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD)
        .initial_stream_window_size(H2_WINDOW)
        .initial_connection_window_size(H2_WINDOW * 2)
        .max_concurrent_streams(128)
        .keep_alive_interval(limits.header_timeout)
        .keep_alive_timeout(limits.header_timeout);
    builder
}

struct Connection {
    builder: Arc<Builder<TokioExecutor>>,
    router: Router,
    watcher: Watcher,
    idle: Duration,
    opening: Duration,
    handshake: Duration,
}

impl Connection {
    async fn serve(self, stream: Accepted) {
        let (stream, tls) = match stream {
            Accepted::Unix(stream) => return self.speak(stream).await,
            Accepted::Tcp(stream, tls) => (stream, tls),
        };
        // Answers are written whole; waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return self.speak(stream).await };
        let handshake = tls.acceptor().accept(stream);
        match tokio::time::timeout(self.handshake, handshake).await {
            Ok(Ok(stream)) => self.speak(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        }
    }

    async fn speak<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = Guarded::new(stream, self.idle, self.opening);
        let service = TowerToHyperService::new(self.router);
        let connection =
            self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        if let Err(error) = self.watcher.watch(connection).await {
            // Clients hang up all the time; the access log tells what was answered.
            tracing::debug!(error, "connection ended early");
        }
    }
}

/// How many bytes it takes to see which version of HTTP a client speaks: the preface of HTTP/2.
const PREFACE: usize = 24;

/// A stream whose peer must keep it moving where nobody else watches: it must begin to speak,
/// and it must take what is written to it. One that does neither would otherwise hold its
/// connection and its buffers for ever.
struct Guarded<S> {
    stream: S,
    idle: Duration,
    /// Runs while a write waits.
    stuck: Option<Pin<Box<Sleep>>>,
    /// Runs until the client has said enough for its version to be known; from then on the
    /// limits of that version apply.
    opening: Option<Pin<Box<Sleep>>>,
    received: usize,
}

impl<S> Guarded<S> {
    fn new(stream: S, idle: Duration, opening: Duration) -> Self {
        let opening = Some(Box::pin(tokio::time::sleep(opening)));
        Self { stream, idle, stuck: None, opening, received: 0 }
    }

    fn watch_write<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stuck = None;
            return poll;
        }
        let idle = self.idle;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
        timed_out(stuck, context)
    }
}

/// An error once the time is over.
fn timed_out<T>(timer: &mut Pin<Box<Sleep>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
    match timer.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        Poll::Pending => Poll::Pending,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.opening.is_none() {
            return poll;
        }
        self.received += buffer.filled().len() - before;
        if self.received >= PREFACE {
            self.opening = None;
        }
        match (&mut self.opening, &poll) {
            (Some(opening), Poll::Pending) => timed_out(opening, context),
            _ => poll,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch_write(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch_write(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.watch_write(context, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
