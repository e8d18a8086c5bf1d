//! `/healthz`, `/readyz`, `/metrics`, `/v1/status`, `/openapi.json`.

use axum::response::Response;
use http::StatusCode;
use portolan_registry::serving::program::OPENMETRICS;
use serde_json::json;

use super::call::{Call, json, typed};
use super::{ApiError, App};
use crate::openapi;

/// The process answers.
pub(super) async fn healthz(_: App, _: Call) -> Result<Response, ApiError> {
    json(StatusCode::OK, &json!({ "status": "ok" }))
}

/// Calls are answered with what is true. A degraded agent is ready: it still runs what it has.
pub(super) async fn readyz(app: App, _: Call) -> Result<Response, ApiError> {
    if app.host().status().ready {
        return json(StatusCode::OK, &json!({ "status": "ready" }));
    }
    let message = "the agent is still finding out what runs here";
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message))
}

pub(super) async fn metrics(app: App, _: Call) -> Result<Response, ApiError> {
    Ok(typed(StatusCode::OK, OPENMETRICS, app.metrics().encode()))
}

pub(super) async fn status(app: App, call: Call) -> Result<Response, ApiError> {
    call.query([])?;
    json(StatusCode::OK, &app.host().status())
}

pub(super) async fn document(_: App, _: Call) -> Result<Response, ApiError> {
    json(StatusCode::OK, &openapi::document())
}
