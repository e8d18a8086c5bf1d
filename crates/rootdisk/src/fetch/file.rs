//! A blob that is a file on this machine.

use std::fs::File;
use std::io::Read;
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::Bytes;
use portolan_core::{Descriptor, Hasher};
use portolan_registry::ErrorClass;

use crate::build::{Chunks, SourceError};

/// How much is read at once.
const READ: usize = 256 * 1024;

/// How many pieces are read ahead.
const AHEAD: usize = 4;

/// A file is foreign too: another tool may have written it, or the disk may have changed it.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("the blob's file cannot be read")]
    Read(#[source] std::io::Error),
    #[error("the blob's file has not {expected} bytes; it was damaged, fetch it again")]
    Size { expected: u64 },
    #[error("the blob's file has digest {actual}; it was damaged, fetch it again")]
    Digest { actual: portolan_core::Digest },
}

/// A file's bytes, read and hashed by a thread of their own, so that inflating need not wait.
#[derive(Debug)]
pub struct FileChunks(Receiver<Result<Bytes, SourceError>>);

impl FileChunks {
    /// Reads `file`, which must be what `descriptor` says.
    pub fn new(file: File, descriptor: &Descriptor) -> Self {
        let (sender, receiver) = sync_channel(AHEAD);
        let descriptor = descriptor.clone();
        std::thread::spawn(move || {
            let outcome = read(file, &descriptor, &mut |bytes| sender.send(Ok(bytes)).is_ok());
            if let Err(error) = outcome {
                // The last word, if anybody still listens.
                let _ = sender.send(Err(error));
            }
        });
        Self(receiver)
    }
}

impl Chunks for FileChunks {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        // The thread hangs up without a last word only when all was right.
        self.0.recv().ok().transpose()
    }
}

fn read(
    mut file: File,
    descriptor: &Descriptor,
    send: &mut dyn FnMut(Bytes) -> bool,
) -> Result<(), SourceError> {
    let expected = descriptor.size;
    let mut hasher = Hasher::new(descriptor.digest.algorithm());
    let mut left = expected;
    loop {
        let mut piece = Vec::with_capacity(READ);
        // One byte more than there should be, so that a longer file is seen.
        let most = left.saturating_add(1).min(READ as u64);
        (&mut file)
            .take(most)
            .read_to_end(&mut piece)
            .map_err(|source| SourceError::new(ErrorClass::Local, FileError::Read(source)))?;
        let length = piece.len() as u64;
        if length > left || (length == 0 && left > 0) {
            return Err(SourceError::new(ErrorClass::BadInput, FileError::Size { expected }));
        }
        if length == 0 {
            break;
        }
        left -= length;
        hasher.update(&piece);
        if !send(piece.into()) {
            return Err(SourceError::cancelled());
        }
    }
    match hasher.finish() {
        actual if actual == descriptor.digest => Ok(()),
        actual => Err(SourceError::new(ErrorClass::BadInput, FileError::Digest { actual })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(content: &[u8], named: &Descriptor) -> Result<Vec<u8>, SourceError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blob");
        std::fs::write(&path, content).unwrap();
        let mut chunks = FileChunks::new(File::open(&path).unwrap(), named);
        let mut all = Vec::new();
        while let Some(bytes) = chunks.next()? {
            assert!(!bytes.is_empty());
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }

    #[test]
    fn the_end_comes_only_when_size_and_digest_are_right() {
        for size in [0, 1, READ - 1, READ, READ + 1, 5 * READ] {
            let content: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let named = Descriptor::of("any", &content);
            assert_eq!(all(&content, &named).unwrap(), content);
            let longer = [&content[..], b"x"].concat();
            assert!(all(&longer, &named).is_err(), "{size} and one more");
            if size > 0 {
                assert!(all(&content[1..], &named).is_err(), "{size} less one");
                let mut other = content.clone();
                other[size / 2] ^= 1;
                let error = all(&other, &named).unwrap_err();
                assert_eq!(error.class, ErrorClass::BadInput);
                let cause = std::error::Error::source(&error).unwrap().to_string();
                assert!(cause.contains("has digest sha256:"), "{cause}");
            }
        }
    }
}
