//! The mirror: the verified cache, read-only and by digest, for other hosts and for containerd.
//!
//! What lies under its final name in `oci/` was verified when it arrived. Nothing else is looked
//! at, and nothing is fetched for whoever asks.

use std::fs::File;
use std::io;
use std::sync::Arc;

use axum::Router;
use portolan_core::Digest;
use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_registry::durable;
use portolan_registry::server::{Content, by_digest};

use crate::paths::Paths;

struct Cache(Paths);

impl Content for Cache {
    fn manifest(&self, digest: &Digest) -> io::Result<Option<Vec<u8>>> {
        let Some(path) = self.0.manifest(digest) else { return Ok(None) };
        durable::read_bounded(&path, MAX_MANIFEST_BYTES as u64).map_err(io::Error::other)
    }

    fn blob(&self, digest: &Digest) -> io::Result<Option<(File, u64)>> {
        let Some(path) = self.0.blob(digest) else { return Ok(None) };
        match durable::open_file(&path) {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The distribution API over the cache below these paths.
pub fn router(paths: Paths) -> Router {
    by_digest(Arc::new(Cache(paths)))
}
