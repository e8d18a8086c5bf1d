//! What prefetching asks of the cache, and what it is told.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use portolan_core::Digest;
use tokio_util::sync::CancellationToken;

use crate::image::ResolvedImage;
use crate::reason::Reason;

/// The cache, as prefetching sees it.
pub(crate) trait Cache: Send + Sync + 'static {
    /// Fetches and builds without an instance, into room that is free.
    fn fetch<'a>(
        &'a self,
        image: &'a ResolvedImage,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Fetched, NotFetched>>;

    /// Manifests whose disks are there, of those that are asked for.
    fn cached(&self, of: &mut dyn Iterator<Item = Digest>) -> BTreeSet<Digest>;

    /// There is no room.
    fn is_full(&self) -> bool;
}

/// An image is here.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// It was here already.
    pub(crate) cached: bool,
}

/// An image is not here.
#[derive(Debug)]
pub(crate) struct NotFetched {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// It would be here if what nobody uses were not. What fits in no case is none of that: nobody is to wait for it.
    pub(crate) no_room: bool,
}

impl NotFetched {
    /// What comes of an image whose fetch panicked.
    pub(super) fn crashed() -> Self {
        Self {
            reason: Reason::RootfsBuildFailed,
            message: "the fetch ended without an outcome; the agent's log says why".to_owned(),
            no_room: false,
        }
    }
}
