//! Moving bytes: blobs from the disk to the socket, requests from the socket to memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::BodyExt;
use tokio::task::JoinHandle;

use super::error::{ApiError, Code};

/// Bytes read from the disk at once: large enough that system calls and task switches vanish,
/// small enough that a chunk is still in the processor's cache when the socket takes it.
const CHUNK: usize = 256 * 1024;
/// Chunks read before the socket asks for them.
const AHEAD: usize = 2;
/// Buffers kept for the next chunk: fresh memory costs a page fault for every 4 KiB.
const SPARE_BUFFERS: usize = 64;

/// Buffers that come back when the socket is done with them.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

/// A filled buffer that returns to its pool.
struct Filled {
    buffer: Vec<u8>,
    length: usize,
    pool: Arc<Buffers>,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let mut spare = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_BUFFERS {
            spare.push(std::mem::take(&mut self.buffer));
        }
    }
}

impl Buffers {
    /// Reads `length` bytes at `offset`, all of them or an error.
    fn read(self: &Arc<Self>, file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = spare.unwrap_or_else(|| vec![0; CHUNK]);
        file.read_exact_at(&mut buffer[..length], offset)?;
        Ok(Bytes::from_owner(Filled { buffer, length, pool: Arc::clone(self) }))
    }
}

/// Where a download stands.
struct Reader {
    file: Arc<File>,
    pool: Arc<Buffers>,
    offset: u64,
    end: u64,
    ahead: std::collections::VecDeque<JoinHandle<io::Result<Bytes>>>,
}

impl Reader {
    /// Each chunk is one short job on a blocking thread, so a slow client holds no thread.
    fn read_ahead(&mut self) {
        while self.ahead.len() < AHEAD && self.offset < self.end {
            let length = usize::try_from(self.end - self.offset).map_or(CHUNK, |n| n.min(CHUNK));
            let (file, pool, at) = (Arc::clone(&self.file), Arc::clone(&self.pool), self.offset);
            self.ahead.push_back(tokio::task::spawn_blocking(move || pool.read(&file, at, length)));
            self.offset += length as u64;
        }
    }
}

/// The bytes `start..end` of a file as a response body.
pub(super) fn from_file(file: File, start: u64, end: u64, pool: Arc<Buffers>) -> Body {
    let ahead = std::collections::VecDeque::with_capacity(AHEAD);
    let reader = Reader { file: Arc::new(file), pool, offset: start, end, ahead };
    Body::from_stream(stream::unfold(reader, |mut reader| async move {
        reader.read_ahead();
        let read = reader.ahead.pop_front()?.await;
        reader.read_ahead();
        Some((read.unwrap_or_else(|e| Err(io::Error::other(e))), reader))
    }))
}

/// What came of waiting for the next piece of a request.
pub(super) enum Piece {
    Data(Bytes),
    End,
}

/// The next piece of a request's body; waits at most `idle` for it.
pub(super) async fn next_piece(body: &mut Body, idle: Duration) -> Result<Piece, ApiError> {
    loop {
        match tokio::time::timeout(idle, body.frame()).await {
            Err(_) => {
                return Err(ApiError::new(Code::RequestTimeout, "no data came for too long"));
            }
            Ok(None) => return Ok(Piece::End),
            Ok(Some(Err(error))) => {
                let text = format!("the request ended early: {error}");
                return Err(ApiError::new(Code::BlobUploadInvalid, text));
            }
            Ok(Some(Ok(frame))) => {
                // Trailers carry nothing we use.
                if let Ok(data) = frame.into_data() {
                    return Ok(Piece::Data(data));
                }
            }
        }
    }
}

/// Reads a whole body of at most `limit` bytes; none when there is more.
pub(super) async fn read_bounded(
    body: &mut Body,
    limit: usize,
    idle: Duration,
) -> Result<Option<Bytes>, ApiError> {
    let mut bytes = BytesMut::new();
    while let Piece::Data(data) = next_piece(body, idle).await? {
        if bytes.len() + data.len() > limit {
            return Ok(None);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(bytes.freeze()))
}

/// Reads and drops what is left of a refused request, within bounds.
///
/// A server that answers and closes while the client still sends makes the client's system throw
/// the answer away; most clients finish sending before they read.
pub(super) async fn drain(body: &mut Body) {
    const MOST: usize = 16 * 1024 * 1024;
    const LONGEST: Duration = Duration::from_secs(2);
    let reading = async {
        let mut left = MOST;
        while let Ok(Piece::Data(data)) = next_piece(body, LONGEST).await {
            match left.checked_sub(data.len()) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    // Out of time is as good as drained: the connection closes either way.
    let _ = tokio::time::timeout(LONGEST, reading).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn any_range_of_a_file_is_sent_whole() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..=250).cycle().take(CHUNK * 3 + 17).collect();
        file.write_all(&content).unwrap();
        let pool = Arc::new(Buffers::default());
        for (start, end) in [(0, content.len()), (5, 6), (CHUNK - 1, CHUNK * 2 + 1), (7, 7)] {
            let file = file.try_clone().unwrap();
            let body = from_file(file, start as u64, end as u64, Arc::clone(&pool));
            let sent = body.collect().await.unwrap().to_bytes();
            assert!(sent == content[start..end], "{start}..{end}");
        }
        assert!(!pool.0.lock().unwrap().is_empty(), "buffers came back");
    }

    #[tokio::test]
    async fn a_file_that_shrank_is_an_error_and_no_short_success() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"short").unwrap();
        let body = from_file(file, 0, 100, Arc::default());
        assert!(body.collect().await.is_err());
    }

    #[tokio::test]
    async fn reading_stops_at_the_limit() {
        let idle = Duration::from_secs(1);
        let whole = read_bounded(&mut Body::from("12345"), 5, idle).await.unwrap();
        assert_eq!(whole.unwrap().as_ref(), b"12345");
        assert!(read_bounded(&mut Body::from("123456"), 5, idle).await.unwrap().is_none());
    }
}
