//! `/v1/cache`, `/v1/gc`, `/v1/prefetch`.

use std::sync::Arc;

use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use tokio_util::sync::CancellationToken;

use super::call::{Call, json};
use super::{ApiError, App};
use crate::api::{GcRequest, PrefetchOutcome, PrefetchReport, PrefetchRequest};
use crate::image::ResolvedImage;
use crate::spec::{ImageSpec, SpecError};

/// Images of one prefetch; the schema says the same.
const MAX_IMAGES: usize = 64;

pub(super) async fn report(app: App, call: Call) -> Result<Response, ApiError> {
    call.query([])?;
    json(StatusCode::OK, &app.host().cache().await?)
}

pub(super) async fn gc(app: App, call: Call) -> Result<Response, ApiError> {
    let request: GcRequest = call.json().await?;
    json(StatusCode::OK, &app.host().gc(request).await?)
}

pub(super) async fn verify(app: App, call: Call) -> Result<Response, ApiError> {
    let key = call.parameter().to_owned();
    if key.len() != 64 || !key.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(
            ApiError::invalid("a rootdisk_key is 64 hex digits").hint("GET /v1/cache lists them")
        );
    }
    let _place = stream_place(&app)?;
    let report = app.host().verify(&key).await?.ok_or_else(|| {
        let message = format!("there is no root disk {key} in the cache");
        ApiError::new(StatusCode::NOT_FOUND, "not_found", message).hint("GET /v1/cache lists them")
    })?;
    json(StatusCode::OK, &report)
}

/// Waits for all of them. Who hangs up cancels what nobody else waits for.
pub(super) async fn prefetch(app: App, call: Call) -> Result<Response, ApiError> {
    let _place = stream_place(&app)?;
    let request: PrefetchRequest = call.json().await?;
    if request.images.is_empty() || request.images.len() > MAX_IMAGES {
        return Err(ApiError::invalid(format!("images has 1 to {MAX_IMAGES} entries")));
    }
    let cancel = app.0.shutdown.child_token();
    let _cancelled_with_the_call = cancel.clone().drop_guard();
    let one = |spec: ImageSpec| one(app.clone(), cancel.clone(), spec);
    let images = stream::iter(request.images).map(one).buffered(MAX_IMAGES).collect().await;
    json(StatusCode::OK, &PrefetchReport { images })
}

async fn one(app: App, cancel: CancellationToken, spec: ImageSpec) -> PrefetchOutcome {
    match ResolvedImage::from_spec(&spec) {
        Ok(image) => app.host().prefetch(&image, &cancel).await,
        Err(error) => refused(spec, &error),
    }
}

fn refused(spec: ImageSpec, error: &SpecError) -> PrefetchOutcome {
    PrefetchOutcome {
        resolved_digest: spec.resolved_digest,
        rootdisk_key: None,
        cached: None,
        reason: Some(error.reason()),
        message: Some(portolan_core::causes::chain(error)),
    }
}

/// A place among the calls that may take long.
pub(super) fn stream_place(app: &App) -> Result<tokio::sync::OwnedSemaphorePermit, ApiError> {
    Arc::clone(&app.0.streams).try_acquire_owned().map_err(|_| ApiError::busy())
}
