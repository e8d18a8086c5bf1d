//! `/v1/instances/{id}/console`: what the guest wrote, from any line from the end on, and what it
//! goes on to write.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use tokio::sync::OwnedSemaphorePermit;

use super::cache::stream_place;
use super::call::{Call, typed};
use super::{ApiError, App};
use crate::api::Phase;
use crate::id::InstanceId;
use crate::vmm::console_files::Files;

/// How often a followed console is looked at.
const LOOK: Duration = Duration::from_millis(150);

pub(super) async fn read(app: App, call: Call) -> Result<Response, ApiError> {
    let id = call.id()?;
    let [tail, follow] = call.query(["tail", "follow"])?;
    let tail = tail.map(|text| text.parse::<u64>()).transpose();
    let tail = tail.map_err(|_| ApiError::invalid("tail is a number of lines"))?;
    let follow = match follow.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(ApiError::invalid("follow is true or false")),
    };
    if app.host().get(&id).is_none() {
        return Err(ApiError::no_instance(&id));
    }
    let place = stream_place(&app)?;
    let paths = app.host().console(&id);
    let opened = tokio::task::spawn_blocking(move || Files::open(paths, tail, follow)).await;
    let files = opened.map_err(io::Error::other).flatten();
    let files = files.map_err(|error| ApiError::internal("read the console", &error))?;
    let reader = Reader { app, id, files: Some(files), follow, _place: place };
    let body = Body::from_stream(stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(bytes)) => Some((Ok(bytes), Some(reader))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    }));
    Ok(typed(StatusCode::OK, "text/plain; charset=utf-8", body))
}

/// Where a console reader stands.
struct Reader {
    app: App,
    id: InstanceId,
    /// Away only while they are read.
    files: Option<Files>,
    follow: bool,
    _place: OwnedSemaphorePermit,
}

impl Reader {
    /// The next bytes; none at the end.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            // Asked before reading: what is written before the end is then surely read.
            let over = !self.follow || self.is_over();
            let bytes = self.read().await?;
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
            if over {
                return Ok(None);
            }
            tokio::select! {
                () = self.app.0.shutdown.cancelled() => return Ok(None),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Nothing will be written any more.
    fn is_over(&self) -> bool {
        let phase = self.app.host().get(&self.id).map(|status| status.phase);
        matches!(phase, None | Some(Phase::Stopped | Phase::Failed))
    }

    async fn read(&mut self) -> io::Result<Bytes> {
        let Some(mut files) = self.files.take() else { return Ok(Bytes::new()) };
        let read = tokio::task::spawn_blocking(move || {
            let bytes = files.read();
            (files, bytes)
        });
        let (files, bytes) = read.await.map_err(io::Error::other)?;
        self.files = Some(files);
        bytes
    }
}
