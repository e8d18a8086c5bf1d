//! Bodies of requests, read within bounds of size and time.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::http::App;
use super::provider::NotAnswered;

/// Who asks has all of it at hand; who sends it bit by bit holds what others need.
const BODY_TIME: Duration = Duration::from_secs(3);

/// A body, and what of it came with the head. Most came as a whole.
pub(super) struct Coming<B: Body> {
    body: B,
    /// At least so many bytes, before anything came.
    announced: u64,
    /// None: nothing is there yet.
    first: Option<Option<Result<Frame<Bytes>, B::Error>>>,
}

impl<B: Body<Data = Bytes> + Unpin> Coming<B> {
    pub(super) fn new(mut body: B) -> Self {
        let announced = body.size_hint().lower();
        let first = body.frame().now_or_never();
        Self { body, announced, first }
    }

    /// All of it, if it is there. Not to be kept: it may be a part of something larger.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        match &self.first {
            Some(Some(Ok(frame))) if self.body.is_end_stream() => {
                frame.data_ref().map(|all| &**all)
            }
            _ => None,
        }
    }
}

/// A body, and the place that its bytes take.
pub(super) struct Held {
    pub(super) bytes: Bytes,
    _place: Option<OwnedSemaphorePermit>,
}

/// Reads a body. Its bytes are counted as they come, over all requests: what is only announced takes
/// nothing from others.
pub(super) async fn read<B>(
    app: &App,
    coming: Coming<B>,
    until: Instant,
) -> Result<Held, NotAnswered>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let Coming { mut body, announced, first: mut next } = coming;
    let limit = app.limits.body_bytes;
    let too_long = || {
        let what = format!("the body has more than {limit} bytes (limits.body_bytes)");
        NotAnswered::new(413, what)
    };
    if announced > limit as u64 {
        return Err(too_long());
    }
    let until = until.min(Instant::now() + BODY_TIME);
    let (mut bytes, mut place) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
    loop {
        let late = |_| NotAnswered::new(408, "the body did not come in time");
        let frame = match next.take() {
            Some(frame) => frame,
            None if body.is_end_stream() => break,
            // A timer would be made for nothing where it is there.
            None => match body.frame().now_or_never() {
                Some(frame) => frame,
                None => timeout_at(until, body.frame()).await.map_err(late)?,
            },
        };
        let Some(frame) = frame else { break };
        let frame =
            frame.map_err(|error| NotAnswered::new(400, format!("the body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(too_long());
        }
        let taken = room(app, data.len(), until).await?;
        match &mut place {
            Some(place) => place.merge(taken),
            None => place = Some(taken),
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Held { bytes: bytes.freeze(), _place: place })
}

/// Room for so many bytes of a body, when others have left some.
async fn room(
    app: &App,
    bytes: usize,
    until: Instant,
) -> Result<OwnedSemaphorePermit, NotAnswered> {
    let full = || {
        let what = "too much is being sent by others (limits.bodies_bytes); ask again";
        NotAnswered::new(503, what)
    };
    let count = u32::try_from(bytes).map_err(|_| full())?;
    if let Ok(taken) = Arc::clone(&app.body_bytes).try_acquire_many_owned(count) {
        return Ok(taken);
    }
    let taken = Arc::clone(&app.body_bytes).acquire_many_owned(count);
    match timeout_at(until, taken).await {
        Ok(Ok(taken)) => Ok(taken),
        Ok(Err(_)) | Err(_) => Err(full()),
    }
}
