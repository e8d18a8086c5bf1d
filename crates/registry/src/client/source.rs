//! Where the bytes of an upload come from.

use std::io;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use portolan_core::Descriptor;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::Remote;

/// How much of a file is read at once: large enough that system calls do not show, small enough
/// that several uploads at once stay far below the memory promise.
const READ: usize = 256 * 1024;

/// The bytes of one upload, as they come.
pub type SourceStream = BoxStream<'static, io::Result<Bytes>>;

/// A blob to be uploaded. An upload that breaks is taken up again where the registry stopped, so
/// a source must be able to open itself more than once, at any offset.
pub trait BlobSource: Send + Sync {
    /// The bytes from `offset` to the end.
    fn open(&self, offset: u64) -> BoxFuture<'_, io::Result<SourceStream>>;
}

/// A blob held in memory.
#[derive(Debug, Clone)]
pub struct BytesSource(
    /// The whole blob.
    pub Bytes,
);

impl BlobSource for BytesSource {
    fn open(&self, offset: u64) -> BoxFuture<'_, io::Result<SourceStream>> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let rest = self.0.slice(at..);
        Box::pin(async move { Ok(stream::iter([Ok(rest)]).boxed()) })
    }
}

/// A blob in a file of its own.
#[derive(Debug, Clone)]
pub struct FileSource(
    /// Where the file is.
    pub PathBuf,
);

impl BlobSource for FileSource {
    fn open(&self, offset: u64) -> BoxFuture<'_, io::Result<SourceStream>> {
        Box::pin(async move {
            let mut file = tokio::fs::File::open(&self.0).await?;
            file.seek(io::SeekFrom::Start(offset)).await?;
            file.set_max_buf_size(READ);
            let chunks = stream::try_unfold(file, |mut file| async move {
                let mut buffer = BytesMut::with_capacity(READ);
                let read = file.read_buf(&mut buffer).await?;
                Ok((read > 0).then(|| (buffer.freeze(), file)))
            });
            Ok(chunks.boxed())
        })
    }
}

/// A blob that another repository serves: it streams through this machine without touching the
/// disk. Its size and digest are checked on the way.
#[derive(Debug, Clone)]
pub struct RemoteSource {
    /// Where it comes from.
    pub remote: Remote,
    /// Which blob.
    pub descriptor: Descriptor,
}

impl BlobSource for RemoteSource {
    /// An upload that is taken up in the middle reads the blob from its beginning again: only so
    /// can the digest of the whole be checked.
    fn open(&self, offset: u64) -> BoxFuture<'_, io::Result<SourceStream>> {
        Box::pin(async move {
            let blob = self.remote.blob(&self.descriptor).await.map_err(io::Error::other)?;
            let mut skip = offset;
            let rest = blob.filter_map(move |item| {
                let kept = match item {
                    Ok(bytes) if (bytes.len() as u64) <= skip => {
                        skip -= bytes.len() as u64;
                        None
                    }
                    Ok(mut bytes) => {
                        let at = usize::try_from(skip).expect("less than the chunk's length");
                        skip = 0;
                        Some(Ok(bytes.split_off(at)))
                    }
                    Err(error) => Some(Err(io::Error::other(error))),
                };
                async move { kept }
            });
            Ok(rest.boxed())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(source: &dyn BlobSource, offset: u64) -> Vec<u8> {
        let mut stream = source.open(offset).await.unwrap();
        let mut out = Vec::new();
        while let Some(chunk) = stream.next().await {
            out.extend_from_slice(&chunk.unwrap());
        }
        out
    }

    #[tokio::test]
    async fn memory_and_file_open_at_any_offset() {
        let content: Vec<u8> = (0..600_000u32).map(|n| (n % 251) as u8).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blob");
        std::fs::write(&path, &content).unwrap();
        let memory = BytesSource(Bytes::from(content.clone()));
        let file = FileSource(path);
        for offset in [0usize, 1, 262_144, 599_999, 600_000, 700_000] {
            let expected = &content[offset.min(content.len())..];
            assert_eq!(all(&memory, offset as u64).await, expected, "memory at {offset}");
            assert_eq!(all(&file, offset as u64).await, expected, "file at {offset}");
        }
    }
}
