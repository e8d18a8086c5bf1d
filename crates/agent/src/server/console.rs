//! `/v1/instances/{id}/console`: what the guest wrote, from any line from the end on, and what it
//! goes on to write.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
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

/// Read at once.
const CHUNK: usize = 64 * 1024;
/// How far back lines are counted: a console without line ends is not read whole.
const MAX_TAIL: u64 = 16 * 1024 * 1024;
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
    let path = app.host().console(&id);
    let offset = match tail {
        None => 0,
        Some(lines) => start_of_tail(path.clone(), lines).await?,
    };
    let reader = Reader { app, id, path, offset, follow, file: None, _place: place };
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
    path: PathBuf,
    offset: u64,
    follow: bool,
    file: Option<File>,
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
        let (path, offset, file) = (self.path.clone(), self.offset, self.file.take());
        let read = tokio::task::spawn_blocking(move || read_at(path, file, offset)).await;
        let (file, offset, bytes) = read.map_err(io::Error::other)??;
        self.file = file;
        self.offset = offset + bytes.len() as u64;
        Ok(bytes)
    }
}

/// What is there from `offset` on; from the beginning when the file got shorter, since then it is
/// a new one.
fn read_at(
    path: PathBuf,
    file: Option<File>,
    offset: u64,
) -> io::Result<(Option<File>, u64, Bytes)> {
    let file = match file.map_or_else(|| File::open(&path), Ok) {
        Ok(file) => file,
        // Nothing has been started yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((None, offset, Bytes::new()));
        }
        Err(error) => return Err(error),
    };
    let offset = if file.metadata()?.len() < offset { 0 } else { offset };
    let mut buffer = vec![0; CHUNK];
    let count = file.read_at(&mut buffer, offset)?;
    buffer.truncate(count);
    // At the end the name is looked up again next time: a restart may have made a new file.
    Ok(((count > 0).then_some(file), offset, buffer.into()))
}

/// Where the last `lines` lines begin.
async fn start_of_tail(path: PathBuf, lines: u64) -> Result<u64, ApiError> {
    let found = tokio::task::spawn_blocking(move || match File::open(&path) {
        Ok(file) => tail_offset(&file, lines),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    });
    let found = found.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    found.map_err(|error| ApiError::internal("read the console", &error))
}

fn tail_offset(file: &File, lines: u64) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let floor = size.saturating_sub(MAX_TAIL);
    if lines == 0 {
        return Ok(size);
    }
    let mut buffer = vec![0; CHUNK];
    let mut end = size;
    let mut seen = 0;
    while end > floor {
        let start = end.saturating_sub(CHUNK as u64).max(floor);
        let length = usize::try_from(end - start).unwrap_or(CHUNK);
        file.read_exact_at(&mut buffer[..length], start)?;
        for (index, byte) in buffer[..length].iter().enumerate().rev() {
            let at = start + index as u64;
            // The end of the last line begins no line after it.
            if *byte == b'\n' && at + 1 < size {
                seen += 1;
                if seen == lines {
                    return Ok(at + 1);
                }
            }
        }
        end = start;
    }
    Ok(floor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_tail_is_whole_lines_from_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one\ntwo\nthree\nfour").unwrap();
        for (lines, offset) in [(0, 18), (1, 14), (2, 8), (3, 4), (4, 0), (100, 0)] {
            assert_eq!(tail_offset(&file, lines).unwrap(), offset, "{lines}");
        }
        file.write_all(b"\n").unwrap();
        assert_eq!(tail_offset(&file, 1).unwrap(), 14, "a line end at the end is no line");
        let mut long = tempfile::tempfile().unwrap();
        long.write_all(&vec![b'x'; CHUNK * 2]).unwrap();
        long.write_all(b"\nlast\n").unwrap();
        assert_eq!(tail_offset(&long, 1).unwrap(), CHUNK as u64 * 2 + 1);
        assert_eq!(tail_offset(&long, 2).unwrap(), 0);
    }

    #[test]
    fn a_console_without_lines_is_not_read_whole() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(MAX_TAIL * 4).unwrap();
        assert_eq!(tail_offset(&file, 10).unwrap(), MAX_TAIL * 3);
    }

    #[test]
    fn a_file_that_got_shorter_is_read_from_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console");
        std::fs::write(&path, "first run, long\n").unwrap();
        let (file, offset, bytes) = read_at(path.clone(), None, 0).unwrap();
        assert_eq!((offset, bytes.as_ref()), (0, b"first run, long\n".as_slice()));
        let (file, _, bytes) = read_at(path.clone(), file, 16).unwrap();
        assert!(bytes.is_empty() && file.is_none());
        std::fs::write(&path, "second\n").unwrap();
        let (_, offset, bytes) = read_at(path, None, 16).unwrap();
        assert_eq!((offset, bytes.as_ref()), (0, b"second\n".as_slice()));
    }
}
