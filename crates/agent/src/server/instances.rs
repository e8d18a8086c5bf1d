//! `/v1/instances`.

use axum::response::Response;
use http::StatusCode;

use super::call::{Call, json, typed};
use super::{ApiError, App};
use crate::api::InstanceList;
use crate::id::InstanceId;
use crate::spec::WorkloadSpec;

/// A page when nobody says how long it should be.
const PAGE: usize = 500;
/// The longest page.
const MAX_PAGE: usize = 1000;

pub(super) async fn put(app: App, call: Call) -> Result<Response, ApiError> {
    let id = call.id()?;
    let spec: WorkloadSpec = call.json().await?;
    spec.check()?;
    let (status, new) = app.host().put(id, spec).await?;
    json(if new { StatusCode::CREATED } else { StatusCode::OK }, &status)
}

pub(super) async fn get(app: App, call: Call) -> Result<Response, ApiError> {
    let id = call.id()?;
    let status = app.host().get(&id).ok_or_else(|| ApiError::no_instance(&id))?;
    json(StatusCode::OK, &status)
}

/// Deleting what is gone is success: whoever asks twice wants the same as before.
pub(super) async fn delete(app: App, call: Call) -> Result<Response, ApiError> {
    let id = call.id()?;
    app.host().delete(&id).await?;
    Ok(typed(StatusCode::NO_CONTENT, "application/json", axum::body::Body::empty()))
}

pub(super) async fn list(app: App, call: Call) -> Result<Response, ApiError> {
    let [after, limit] = call.query(["after", "limit"])?;
    let after: Option<InstanceId> = after
        .map(|text| text.parse().map_err(|e| ApiError::invalid(format!("after: {e}"))))
        .transpose()?;
    let limit = limit.map_or(Ok(PAGE), |text| match text.parse() {
        Ok(limit @ 1..=MAX_PAGE) => Ok(limit),
        _ => Err(ApiError::invalid(format!("limit is 1 to {MAX_PAGE}"))),
    })?;
    // One more than asked for tells whether there is another page.
    let mut instances = app.host().summaries(after.as_ref(), limit + 1);
    let more = instances.len() > limit;
    instances.truncate(limit);
    let next = instances.last().filter(|_| more).map(|last| last.id.clone());
    json(StatusCode::OK, &InstanceList { instances, next })
}
