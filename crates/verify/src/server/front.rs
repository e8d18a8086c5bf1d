//! The way of Gatekeeper's questions past the routes.
//!
//! Where all is known, an answer is a few microseconds of work, and a router takes one of them to
//! find four addresses. What is none of these goes to it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::response::Response;
use futures_util::future::BoxFuture;
use http::{Method, Request};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::http::App;
use super::provide::{First, Route, first, provide};
use super::provider::{Purpose, Shape};

/// Answers Gatekeeper, and leaves the rest to a router.
#[derive(Clone)]
pub(super) struct Front {
    app: Arc<App>,
    /// Who asks here may say in whose name.
    believed: bool,
    others: TowerToHyperService<Router>,
}

impl Front {
    pub(super) fn new(app: &Arc<App>, believed: bool, others: Router) -> Self {
        Self { app: Arc::clone(app), believed, others: TowerToHyperService::new(others) }
    }
}

impl Service<Request<Incoming>> for Front {
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        match asked_for(request.method(), request.uri().path()) {
            None => Answering::Looking(Box::pin(self.others.call(request))),
            Some((shape, purpose)) => {
                let route = (shape, purpose, self.believed);
                Answering::New(Some((Arc::clone(&self.app), route, request)))
            }
        }
    }
}

/// A request that is being answered. The body is there when it is first polled, so what is known is
/// told then, without a place in memory for what looking would take.
#[allow(clippy::large_enum_variant, reason = "a box for each request is what this does without")]
pub(super) enum Answering {
    New(Option<(Arc<App>, Route, Request<Incoming>)>),
    Looking(BoxFuture<'static, Result<Response, Infallible>>),
}

impl Future for Answering {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Self::New(new) = &mut *self
            && let Some((app, route, request)) = new.take()
        {
            match first(&app, route, request) {
                First::Answer(response) => return Poll::Ready(Ok(response)),
                First::Begun(begun) => {
                    let looking = async move { Ok(provide(&app, begun).await) };
                    *self = Self::Looking(Box::pin(looking));
                }
            }
        }
        match &mut *self {
            Self::Looking(looking) => looking.as_mut().poll(context),
            // It has told its answer, and nobody asks who was told.
            Self::New(_) => Poll::Pending,
        }
    }
}

/// What is asked for by this method at this address; none where it is not Gatekeeper's.
fn asked_for(method: &Method, path: &str) -> Option<(Shape, Purpose)> {
    let asked = match path.strip_prefix("/ratify/gatekeeper/")? {
        "v1/verify" => (Shape::V1, Purpose::Verify),
        "v2/verify" => (Shape::V2, Purpose::Verify),
        "v1/mutate" => (Shape::V1, Purpose::Mutate),
        "v2/mutate" => (Shape::V2, Purpose::Mutate),
        _ => return None,
    };
    (method == Method::POST).then_some(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gatekeepers_own_addresses_go_past_the_router() {
        let at = |path: &str| asked_for(&Method::POST, path);
        assert_eq!(at("/ratify/gatekeeper/v1/verify"), Some((Shape::V1, Purpose::Verify)));
        assert_eq!(at("/ratify/gatekeeper/v2/verify"), Some((Shape::V2, Purpose::Verify)));
        assert_eq!(at("/ratify/gatekeeper/v1/mutate"), Some((Shape::V1, Purpose::Mutate)));
        assert_eq!(at("/ratify/gatekeeper/v2/mutate"), Some((Shape::V2, Purpose::Mutate)));
        for path in
            ["/", "/ratify/gatekeeper/v1/verify/", "/ratify/gatekeeper/v3/verify", "/v1/verify"]
        {
            assert_eq!(at(path), None, "{path}");
        }
        assert_eq!(asked_for(&Method::GET, "/ratify/gatekeeper/v1/verify"), None);
    }
}
