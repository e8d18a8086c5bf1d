//! Reading blobs from either place.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use portolan_core::{Descriptor, Digest, Hasher};

use super::{ImageError, Place, blocking};
use crate::client::{BlobSource, SourceStream, Taken};
use crate::layout::{Layout, LayoutError};

/// How much of a file is read at once: large enough that neither system calls nor the change of
/// threads show, small enough that many blobs at a time stay far below the memory promise.
const READ: usize = 512 * 1024;

/// The bytes of a blob. The end comes only after size and digest matched; until then the bytes
/// are a stranger's.
pub struct BlobBytes(BoxStream<'static, Result<Bytes, ImageError>>);

impl std::fmt::Debug for BlobBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobBytes").finish_non_exhaustive()
    }
}

impl Stream for BlobBytes {
    type Item = Result<Bytes, ImageError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

pub(super) async fn open(place: &Place, descriptor: &Descriptor) -> Result<BlobBytes, ImageError> {
    match place {
        Place::Remote(remote) => {
            let stream = remote.blob(descriptor).await?;
            Ok(BlobBytes(stream.map_err(ImageError::from).boxed()))
        }
        Place::Layout(layout) => {
            let (file, _) = layout.open_blob(&descriptor.digest)?;
            let stream = verified(file, descriptor.digest, descriptor.size);
            Ok(BlobBytes(stream.map_err(ImageError::from).boxed()))
        }
    }
}

pub(super) async fn read(
    place: &Place,
    descriptor: &Descriptor,
    limit: u64,
) -> Result<Bytes, ImageError> {
    let Descriptor { digest, size, .. } = descriptor;
    if *size > limit {
        return Err(ImageError::TooLarge { digest: *digest, size: *size, limit });
    }
    let room = match place {
        Place::Remote(remote) => remote.room_for(descriptor).await?,
        Place::Layout(_) => Taken::default(),
    };
    let mut stream = open(place, descriptor).await?;
    let mut whole = BytesMut::new();
    while let Some(bytes) = stream.try_next().await? {
        whole.extend_from_slice(&bytes);
    }
    Ok(room.by(whole.freeze()))
}

/// The file's bytes, hashed as they are read. A file is foreign too: another tool may have
/// written it, or the disk may have changed it since.
fn verified(
    file: File,
    digest: Digest,
    size: u64,
) -> impl Stream<Item = Result<Bytes, LayoutError>> + Send + 'static {
    let state = Some((file, Hasher::new(digest.algorithm()), 0_u64));
    stream::try_unfold(state, move |state| async move {
        let Some((file, hasher, written)) = state else { return Ok(None) };
        let (file, hasher, chunk) =
            blocking(move || hash_next(file, hasher)).await.map_err(|source| LayoutError::Io {
                step: "read",
                path: digest.to_string().into(),
                source,
            })?;
        let written = written + chunk.len() as u64;
        match chunk.is_empty() {
            _ if written > size => Err(LayoutError::TooLong { digest, size }),
            false => Ok(Some((chunk, Some((file, hasher, written))))),
            true if written < size => Err(LayoutError::TooShort { digest, size, written }),
            true => match hasher.finish() {
                actual if actual == digest => Ok(None),
                actual => Err(LayoutError::DigestMismatch { expected: digest, actual }),
            },
        }
    })
}

fn hash_next(mut file: File, mut hasher: Hasher) -> std::io::Result<(File, Hasher, Bytes)> {
    let chunk = read_next(&mut file)?;
    hasher.update(&chunk);
    Ok((file, hasher, chunk))
}

fn read_next(file: &mut File) -> std::io::Result<Bytes> {
    let mut chunk = Vec::with_capacity(READ);
    file.take(READ as u64).read_to_end(&mut chunk)?;
    Ok(chunk.into())
}

/// A blob of a layout on its way to a registry, which checks the digest itself before it takes
/// the blob; so a file that was changed on disk is refused there.
#[derive(Debug)]
pub(crate) struct LayoutSource {
    pub(crate) layout: Layout,
    pub(crate) digest: Digest,
}

impl BlobSource for LayoutSource {
    fn open(&self, offset: u64) -> BoxFuture<'_, std::io::Result<SourceStream>> {
        Box::pin(async move {
            let (mut file, _) =
                self.layout.open_blob(&self.digest).map_err(std::io::Error::other)?;
            file.seek(SeekFrom::Start(offset))?;
            let chunks = stream::try_unfold(file, |mut file| async move {
                blocking(move || {
                    let chunk = read_next(&mut file)?;
                    Ok((!chunk.is_empty()).then_some((chunk, file)))
                })
                .await
            });
            Ok(chunks.boxed())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(content: &[u8], named: &Descriptor) -> Result<Bytes, ImageError> {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::create(dir.path()).unwrap();
        std::fs::write(layout.blob_path(&named.digest), content).unwrap();
        read(&Place::Layout(layout), named, 1 << 20).await
    }

    #[tokio::test]
    async fn a_file_is_read_in_parts_and_compared_at_the_end() {
        let content: Vec<u8> = (0..READ + 1000).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let named = Descriptor::of("any", &content);
        assert_eq!(read_all(&content, &named).await.unwrap(), content);

        let mut other = content.clone();
        *other.last_mut().unwrap() ^= 1;
        for (bytes, expected) in [
            (&other[..], "has digest"),
            (&content[..READ], "ends after"),
            (&[content.as_slice(), b"x"].concat(), "goes on after"),
        ] {
            let error = read_all(bytes, &named).await.unwrap_err();
            assert_eq!(error.class(), crate::ErrorClass::BadInput);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn what_should_be_small_is_refused_before_it_is_read() {
        let named = Descriptor::of("any", b"abc");
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Layout(Layout::create(dir.path()).unwrap());
        let error = read(&place, &named, 2).await.unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { size: 3, limit: 2, .. }), "{error}");
    }
}
