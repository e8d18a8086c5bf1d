//! The way of Gatekeeper's questions past the routes.
//!
//! Where all is known, an answer is a few microseconds of work, and a router takes one of them to
//! find four addresses. What is none of these goes to it.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use futures_util::future::BoxFuture;
use http::{Method, Request};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::http::App;
use super::provide::provide;
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
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Some((shape, purpose)) = asked_for(request.method(), request.uri().path()) else {
            return Box::pin(self.others.call(request));
        };
        let (app, believed) = (Arc::clone(&self.app), self.believed);
        Box::pin(async move { Ok(provide(&app, (shape, purpose, believed), request).await) })
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
