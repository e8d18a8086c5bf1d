//! Requests under way are told to their connection's place, until their answers are written.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use futures_util::future::BoxFuture;
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

impl<S: Answers> Service<Request<Incoming>> for Counted<S> {
    type Response = Response<CountedBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let busy = self.activity.busy();
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|body| CountedBody { body, _busy: busy }))
        })
    }
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
