//! A stream whose peer must keep it moving.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::places::Activity;

/// How long a peer may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// To take what is written to it.
    pub(super) idle: Duration,
    /// To begin its first request.
    pub(super) opening: Duration,
    /// For the head of a request, from its first byte.
    pub(super) head: Duration,
}

/// What a connection of HTTP/2 begins with, and nothing else.
const HTTP2: &[u8; 3] = b"PRI";

/// How many bytes it takes to see which version of HTTP a client speaks: the preface of HTTP/2.
const PREFACE: usize = 24;

/// A stream whose peer must keep it moving where nobody else watches: it must begin to speak, it must
/// end what it begins to ask, and it must take what is written to it. One that does not would otherwise
/// hold its connection and its buffers for ever.
pub(super) struct Guarded<S> {
    stream: S,
    patience: Patience,
    activity: Arc<Activity>,
    /// There while a request of HTTP/1 is begun and not yet understood.
    head: Option<Head>,
    /// As it began.
    first: [u8; HTTP2.len()],
    /// Runs while a write waits.
    stuck: Option<Pin<Box<Sleep>>>,
    /// Runs until the client has said enough for its version to be known; from then on the
    /// limits of that version apply.
    opening: Option<Pin<Box<Sleep>>>,
    received: usize,
}

/// A request of HTTP/1 whose head is coming.
struct Head {
    /// How many requests there were before.
    before: u64,
    /// Runs once there is something to wait for: most heads come as a whole.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, patience: Patience, activity: Arc<Activity>) -> Self {
        let opening = Some(Box::pin(tokio::time::sleep(patience.opening)));
        let (stuck, head, first, received) = (None, None, [0; HTTP2.len()], 0);
        Self { stream, patience, activity, head, first, stuck, opening, received }
    }

    /// Idle connections of HTTP/2 say this and that without asking anything.
    fn is_http1(&self) -> bool {
        self.received >= HTTP2.len() && self.first != *HTTP2
    }

    fn received(&mut self, bytes: &[u8]) {
        let first = self.first.iter_mut().skip(self.received);
        first.zip(bytes).for_each(|(first, byte)| *first = *byte);
        self.received = self.received.saturating_add(bytes.len());
        if self.received >= PREFACE {
            self.opening = None;
        }
        if self.head.as_ref().is_some_and(|head| head.before != self.activity.begun()) {
            self.head = None;
        }
        if self.head.is_none()
            && !bytes.is_empty()
            && self.is_http1()
            && self.activity.idle_since().is_some()
        {
            self.head = Some(Head { before: self.activity.begun(), timer: None });
        }
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
        let idle = self.patience.idle;
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
        self.received(&buffer.filled()[before..]);
        if poll.is_ready() {
            return poll;
        }
        let this = &mut *self;
        let patience = this.patience.head;
        let begin = || Box::pin(tokio::time::sleep(patience));
        let head = this.head.as_mut().map(|head| head.timer.get_or_insert_with(begin));
        for timer in this.opening.as_mut().into_iter().chain(head) {
            if let ended @ Poll::Ready(_) = timed_out(timer, context) {
                return ended;
            }
        }
        Poll::Pending
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
