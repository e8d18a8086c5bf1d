//! How much is done at registries at once, so that neither one that hangs nor many who ask take all
//! there is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use moka::future::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::{Limits, Timeouts};
use super::trouble::{Code, Trouble};

/// How much may be done at registries at once.
pub(super) struct Work {
    /// In all.
    places: Arc<Semaphore>,
    /// At one registry: one that hangs must not stop what is asked of others.
    of_registry: Cache<String, Arc<Semaphore>>,
    per_registry: usize,
    /// How many may wait for something.
    waiting: Arc<Semaphore>,
    patience: Duration,
}

/// Registries whose places are remembered. What is forgotten in use only gets a few more, of those
/// that there are in all.
pub(super) const MAX_REGISTRIES: u64 = 10_000;

impl Work {
    pub(super) fn new(limits: &Limits, timeouts: &Timeouts) -> Self {
        Self {
            places: Arc::new(Semaphore::new(limits.work)),
            of_registry: Cache::builder()
                .max_capacity(MAX_REGISTRIES)
                .time_to_idle(Duration::from_secs(3600))
                .build(),
            per_registry: limits.work_per_registry,
            waiting: Arc::new(Semaphore::new(limits.waiting)),
            patience: timeouts.work.0,
        }
    }

    /// `work` with a place, within its time.
    pub(super) async fn bounded<V>(
        &self,
        repository: &str,
        work: BoxFuture<'static, Result<V, Trouble>>,
    ) -> impl Future<Output = Result<V, Trouble>> + use<V> {
        let host = host(repository).to_owned();
        let per_registry = self.per_registry;
        let new = async move { Arc::new(Semaphore::new(per_registry)) };
        let own = self.of_registry.get_with(host, new).await;
        let (all, patience) = (Arc::clone(&self.places), self.patience);
        async move {
            let bounded = async {
                let _own = own.acquire().await.map_err(|_| ending())?;
                let _place = all.acquire().await.map_err(|_| ending())?;
                work.await
            };
            tokio::time::timeout(patience, bounded).await.map_err(|_| Trouble::deadline())?
        }
    }

    /// A place to wait in.
    pub(super) fn waiting(&self) -> Result<OwnedSemaphorePermit, Trouble> {
        Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| {
            let what = "too many wait for registries already (limits.waiting); ask again";
            Trouble::new(Code::Internal, what)
        })
    }
}

/// The registry of a repository.
pub(super) fn host(repository: &str) -> &str {
    repository.split('/').next().unwrap_or_default()
}

fn ending() -> Trouble {
    Trouble::new(Code::Internal, "the verifier is ending")
}
