//! Where content comes from: a place, or what somebody keeps of it.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use portolan_core::{Descriptor, Digest, Target};
use portolan_registry::client::Fetched;
use portolan_registry::images::{ImageError, Place};

/// Whoever answers is as good as a [`Place`]: bounded, and what a digest names has that digest.
pub trait Source: Send + Sync {
    /// The repository, as in a reference.
    fn name(&self) -> String;

    /// Digests of what refers to `subject`; where there are more than `limit`, not all.
    fn referring<'a>(
        &'a self,
        subject: &'a Digest,
        limit: usize,
    ) -> BoxFuture<'a, Result<BTreeSet<Digest>, ImageError>>;

    /// A manifest or index.
    fn manifest<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Fetched, ImageError>>;

    /// A small blob as a whole.
    fn blob<'a>(
        &'a self,
        descriptor: &'a Descriptor,
        limit: u64,
    ) -> BoxFuture<'a, Result<Bytes, ImageError>>;
}

impl Source for Place {
    fn name(&self) -> String {
        self.to_string()
    }

    fn referring<'a>(
        &'a self,
        subject: &'a Digest,
        limit: usize,
    ) -> BoxFuture<'a, Result<BTreeSet<Digest>, ImageError>> {
        Box::pin(Place::referring(self, subject, limit))
    }

    fn manifest<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Fetched, ImageError>> {
        Box::pin(Place::manifest(self, target))
    }

    fn blob<'a>(
        &'a self,
        descriptor: &'a Descriptor,
        limit: u64,
    ) -> BoxFuture<'a, Result<Bytes, ImageError>> {
        Box::pin(self.read_blob(descriptor, limit))
    }
}
