//! Requests under way are told to their connection's place, until their answers are written.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use futures_util::FutureExt as _;
use futures_util::future::{Join, Map, Ready, join, ready};
use http::{Request, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::Service;

use super::accept::Answers;
use super::places::{Activity, Busy};

/// A service of one connection.
pub(super) struct Counted<S> {
    pub(super) service: S,
    pub(super) activity: Arc<Activity>,
}

/// An answer and what it counts as.
type Told<F> = Join<F, Ready<Busy>>;

impl<S: Answers> Service<Request<Incoming>> for Counted<S> {
    type Response = Response<CountedBody>;
    type Error = Infallible;
    // In so many words, and not in a box: each request would need one.
    type Future = Map<Told<S::Future>, fn(<Told<S::Future> as Future>::Output) -> Answer>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let busy = self.activity.busy();
        let told: fn(_) -> Answer = counted;
        join(self.service.call(request), ready(busy)).map(told)
    }
}

type Answer = Result<Response<CountedBody>, Infallible>;

fn counted((answer, busy): (Result<Response<Body>, Infallible>, Busy)) -> Answer {
    answer.map(|answer| answer.map(|body| CountedBody { body, _busy: busy }))
}

/// An answer that is being written.
pub(super) struct CountedBody {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
