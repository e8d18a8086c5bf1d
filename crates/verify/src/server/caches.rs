//! What is kept, for how long, and who asks when many want the same.
//!
//! | what | under | for |
//! |---|---|---|
//! | what a tag is | repository and tag | a short time |
//! | what is in an image | repository and digest | as long as it is used: it cannot change |
//! | what came of a subject | repository, descriptor and generation of the policy | longer for a yes than for a no |
//!
//! Everything is under its repository: that somebody may read a digest in one does not mean that it
//! is in another, or trusted there. Each is bounded, by entries or by bytes.
//!
//! Of many who want the same, one asks. That one is a task of its own, so the work goes on when
//! whoever began it has run out of time, and the next who asks finds it done.

use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use moka::Expiry;
use moka::future::Cache;
use portolan_core::{Descriptor, Digest};
use tokio::sync::Semaphore;

use super::config::{CacheConfig, Limits, Timeouts};
use super::metrics::{CacheName, Metrics};
use super::trouble::{Code, Trouble};
use crate::decision::SubjectAnswer;
use crate::subjects::Contents;

/// A tag of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TagKey {
    pub(super) repository: Arc<str>,
    pub(super) tag: String,
}

/// An image in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ImageKey {
    pub(super) repository: Arc<str>,
    pub(super) digest: Digest,
}

/// A subject under a policy. Some kinds of signature also speak of type and size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct VerdictKey {
    pub(super) repository: Arc<str>,
    pub(super) digest: Digest,
    pub(super) media_type: String,
    pub(super) size: u64,
    pub(super) generation: u64,
}

impl VerdictKey {
    pub(super) fn new(repository: &Arc<str>, subject: &Descriptor, generation: u64) -> Self {
        Self {
            repository: Arc::clone(repository),
            digest: subject.digest,
            media_type: subject.media_type.clone(),
            size: subject.size,
            generation,
        }
    }
}

/// All caches, and the gate before the work that fills them.
pub(super) struct Caches {
    tags: Cache<TagKey, Digest>,
    images: Cache<ImageKey, Arc<Contents>>,
    verdicts: Cache<VerdictKey, Arc<SubjectAnswer>>,
    work: Work,
    metrics: Arc<Metrics>,
}

/// How much may be done at registries at once.
struct Work {
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
const MAX_REGISTRIES: u64 = 10_000;

impl Work {
    fn new(limits: &Limits, timeouts: &Timeouts) -> Self {
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
    async fn bounded<V>(
        &self,
        repository: &str,
        work: BoxFuture<'static, Result<V, Trouble>>,
    ) -> impl Future<Output = Result<V, Trouble>> + use<V> {
        let host = repository.split('/').next().unwrap_or_default().to_owned();
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
}

/// What belongs to a repository.
trait OfRepository {
    fn repository(&self) -> &str;
}

impl OfRepository for TagKey {
    fn repository(&self) -> &str {
        &self.repository
    }
}

impl OfRepository for ImageKey {
    fn repository(&self) -> &str {
        &self.repository
    }
}

impl OfRepository for VerdictKey {
    fn repository(&self) -> &str {
        &self.repository
    }
}

/// A yes is kept longer than a no: a signature that is missing may be on its way.
struct ByVerdict {
    verified: Duration,
    refused: Duration,
}

impl Expiry<VerdictKey, Arc<SubjectAnswer>> for ByVerdict {
    fn expire_after_create(
        &self,
        _: &VerdictKey,
        answer: &Arc<SubjectAnswer>,
        _: Instant,
    ) -> Option<Duration> {
        Some(if answer.verified { self.verified } else { self.refused })
    }
}

impl Caches {
    pub(super) fn new(
        config: &CacheConfig,
        limits: &Limits,
        timeouts: &Timeouts,
        metrics: Arc<Metrics>,
    ) -> Self {
        let tags = Cache::builder().max_capacity(config.tags).time_to_live(config.tag_ttl.0);
        let images = Cache::builder()
            .max_capacity(config.image_bytes)
            .weigher(|key: &ImageKey, value: &Arc<Contents>| {
                // A descriptor with its platform, and what the cache needs to find it.
                weight(512 + key.repository.len() + 512 * value.images())
            })
            .time_to_idle(config.image_idle.0);
        let verdicts = Cache::builder()
            .max_capacity(config.verdict_bytes)
            .weigher(|key: &VerdictKey, value: &Arc<SubjectAnswer>| {
                weight(512 + key.repository.len() + text_bytes(value))
            })
            .expire_after(ByVerdict {
                verified: config.verified_ttl.0,
                refused: config.refused_ttl.0,
            });
        Self {
            tags: tags.build(),
            images: images.build(),
            verdicts: verdicts.build(),
            work: Work::new(limits, timeouts),
            metrics,
        }
    }

    /// What the tag is.
    pub(super) async fn tag<F>(
        &self,
        key: TagKey,
        work: impl FnOnce() -> F,
    ) -> Result<Digest, Trouble>
    where
        F: Future<Output = Result<Digest, Trouble>> + Send + 'static,
    {
        self.get(CacheName::Tag, &self.tags, key, work).await
    }

    /// What is in the image.
    pub(super) async fn image<F>(
        &self,
        key: ImageKey,
        work: impl FnOnce() -> F,
    ) -> Result<Arc<Contents>, Trouble>
    where
        F: Future<Output = Result<Arc<Contents>, Trouble>> + Send + 'static,
    {
        self.get(CacheName::Image, &self.images, key, work).await
    }

    /// Keeps what is in an image that was come by in another way.
    pub(super) fn images(&self) -> Cache<ImageKey, Arc<Contents>> {
        self.images.clone()
    }

    /// What comes of the subject.
    pub(super) async fn verdict<F>(
        &self,
        key: VerdictKey,
        work: impl FnOnce() -> F,
    ) -> Result<Arc<SubjectAnswer>, Trouble>
    where
        F: Future<Output = Result<Arc<SubjectAnswer>, Trouble>> + Send + 'static,
    {
        self.get(CacheName::Verdict, &self.verdicts, key, work).await
    }

    async fn get<K, V, F>(
        &self,
        name: CacheName,
        cache: &Cache<K, V>,
        key: K,
        work: impl FnOnce() -> F,
    ) -> Result<V, Trouble>
    where
        K: OfRepository + Hash + Eq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        F: Future<Output = Result<V, Trouble>> + Send + 'static,
    {
        if let Some(value) = cache.get(&key).await {
            self.metrics.cache(name, true);
            return Ok(value);
        }
        self.metrics.cache(name, false);
        let Ok(waiting) = Arc::clone(&self.work.waiting).try_acquire_owned() else {
            let what = "too many wait for registries already (limits.waiting); ask again";
            return Err(Trouble::new(Code::Internal, what));
        };
        // Only who does the work needs a place for it; who waits for them does not.
        // It is large: by its address, so that it is not carried about on the stack.
        let work: BoxFuture<'static, Result<V, Trouble>> = Box::pin(work());
        let bounded = self.work.bounded(key.repository(), work).await;
        let cache = cache.clone();
        let flight = tokio::spawn(async move {
            let _waiting = waiting;
            cache.try_get_with(key, bounded).await
        });
        match flight.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(trouble)) => Err(Arc::unwrap_or_clone(trouble)),
            Err(error) => Err(Trouble::new(Code::Internal, error.to_string())),
        }
    }
}

fn ending() -> Trouble {
    Trouble::new(Code::Internal, "the verifier is ending")
}

fn weight(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// About as many bytes as an answer takes: its text, and what holds the pieces together.
fn text_bytes(answer: &SubjectAnswer) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let signatures = answer.signatures.iter().map(|one| {
        400 + text(&one.tag)
            + one.signer.len()
            + text(&one.identity)
            + text(&one.issuer)
            + text(&one.predicate_type)
            + text(&one.message)
    });
    let over = answer.passed_over.iter().map(|one| 100 + one.why.len());
    let reasons = answer.reasons.iter().map(|one| 50 + one.message.len());
    let facts = answer.facts.iter().map(|facts| facts.bytes());
    signatures.chain(over).chain(reasons).chain(facts).sum()
}
