//! What is kept, for how long, and who asks when many want the same.
//!
//! | what | under | for |
//! |---|---|---|
//! | what a tag is | repository and tag | a short time |
//! | what a tag was | the same | as long as it is used; it is never believed, only asked whether it is still so |
//! | what is in an image | repository and digest | as long as it is used: it cannot change |
//! | manifests and blobs of signatures | repository and digest | the same |
//! | what came of a subject | repository, descriptor and generation of the policy | longer for a yes than for a no |
//! | an answer as it is written | the key as it was asked, and a generation | no longer than any of what it was made of |
//! | which answers a request is told | its body, and a generation | the same |
//!
//! Lists of what refers to a subject are not kept by themselves: what came of them is.
//!
//! Everything is under its repository: that somebody may read a digest in one does not mean that it
//! is in another, or trusted there. Each is bounded, by entries or by bytes.
//!
//! Of many who want the same, one asks. That one is a task of its own, so the work goes on when
//! whoever began it has run out of time, and the next who asks finds it done.

mod kept;
mod keys;

use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use moka::{future::Cache, sync};
use portolan_core::Digest;

use self::kept::{ENTRY, Until as _, WhenOver, text_bytes, weight};
pub(super) use self::kept::{Kept, KeptAnswer, KeptRequest};
use self::keys::OfRepository;
pub(super) use self::keys::{ImageKey, TagKey, VerdictKey};
use super::config::CacheConfig;
use super::metrics::{CacheName, Metrics};
use super::provider::Shape;
use super::question::Ground;
use super::trouble::{Code, Trouble};
use super::work::{MAX_REGISTRIES, Work, host};
use crate::collect::Carriers;
use crate::decision::SubjectAnswer;
use crate::subjects::Contents;

/// All caches, and the gate before the work that fills them.
pub(super) struct Caches {
    tags: Cache<TagKey, Kept<Digest>>,
    /// Also of tags that signatures are under.
    was: Cache<TagKey, Digest>,
    images: Cache<ImageKey, Arc<Contents>>,
    contents: Cache<ImageKey, Bytes>,
    verdicts: Cache<VerdictKey, Kept<Arc<SubjectAnswer>>>,
    /// One for each shape: an answer is found by nothing but the key as it came.
    answers: [sync::Cache<Arc<str>, Arc<KeptAnswer>>; 2],
    /// Likewise, by the whole body.
    requests: [sync::Cache<Bytes, Arc<KeptRequest>>; 2],
    /// Where what counted was last found at a registry. It decides what is asked for first, and
    /// nothing else.
    carriers: Cache<String, Carriers>,
    times: Times,
    work: Work,
    metrics: Arc<Metrics>,
}

/// For how long what may change is believed.
struct Times {
    tag: Duration,
    verified: Duration,
    refused: Duration,
}

/// Tags of which it is known what they were. Those that are asked for most stay; the others are read
/// again, which costs a registry a fifth more.
const MAX_WAS: u64 = 2_048;
/// An answer that will be gone sooner is not worth keeping.
const SHORTEST: Duration = Duration::from_millis(20);
/// Nor is one piece of content that takes the place of so many others.
const LARGEST: usize = 256 * 1024;

impl Caches {
    pub(super) fn new(config: &CacheConfig, work: Work, metrics: Arc<Metrics>) -> Self {
        let tags = Cache::builder().max_capacity(config.tags).expire_after(WhenOver);
        let was = Cache::builder()
            .max_capacity(config.tags.min(MAX_WAS))
            .time_to_idle(config.image_idle.0);
        let images = Cache::builder()
            .max_capacity(config.image_bytes)
            .weigher(|key: &ImageKey, value: &Arc<Contents>| {
                weight(ENTRY + key.repository.len() + value.bytes())
            })
            .time_to_idle(config.image_idle.0);
        let contents = Cache::builder()
            .max_capacity(config.content_bytes)
            .weigher(|key: &ImageKey, value: &Bytes| {
                weight(ENTRY + key.repository.len() + value.len())
            })
            .time_to_idle(config.image_idle.0);
        let verdicts = Cache::builder()
            .max_capacity(config.verdict_bytes)
            .weigher(|key: &VerdictKey, value: &Kept<Arc<SubjectAnswer>>| {
                let names = key.repository.len() + key.media_type.len();
                weight(ENTRY + names + text_bytes(&value.value))
            })
            .expire_after(WhenOver);
        let answers = || {
            sync::Cache::builder()
                .max_capacity(config.answer_bytes)
                .weigher(|key: &Arc<str>, value: &Arc<KeptAnswer>| {
                    weight(ENTRY + key.len() + value.written.bytes())
                })
                .expire_after(WhenOver)
                .build()
        };
        let requests = || {
            sync::Cache::builder()
                .max_capacity(config.answer_bytes / 4)
                .weigher(|key: &Bytes, value: &Arc<KeptRequest>| {
                    weight(ENTRY + key.len() + value.bytes())
                })
                .expire_after(WhenOver)
                .build()
        };
        Self {
            tags: tags.build(),
            was: was.build(),
            images: images.build(),
            contents: contents.build(),
            verdicts: verdicts.build(),
            answers: [answers(), answers()],
            requests: [requests(), requests()],
            carriers: Cache::new(MAX_REGISTRIES),
            times: Times {
                tag: config.tag_ttl.0,
                verified: config.verified_ttl.0,
                refused: config.refused_ttl.0,
            },
            work,
            metrics,
        }
    }

    /// What the tag is.
    pub(super) async fn tag<F>(
        &self,
        key: TagKey,
        work: impl FnOnce() -> F,
    ) -> Result<Kept<Digest>, Trouble>
    where
        F: Future<Output = Result<Digest, Trouble>> + Send + 'static,
    {
        let time = self.times.tag;
        let kept = || {
            let work = work();
            // From before it was asked: who answers slowly is not believed for longer.
            let until = Instant::now() + time;
            async move { Ok(Kept { value: work.await?, until }) }
        };
        self.get(CacheName::Tag, &self.tags, key, kept).await
    }

    /// What the tag was when it was last asked for.
    pub(super) async fn was(&self, key: &TagKey) -> Option<Digest> {
        self.was.get(key).await
    }

    /// Notes what it is.
    pub(super) async fn note(&self, key: TagKey, digest: Digest) {
        self.was.insert(key, digest).await;
    }

    /// What a digest is does not change; how it is answered may be kept as long as a yes.
    pub(super) fn forever(&self, digest: Digest) -> Kept<Digest> {
        Kept { value: digest, until: Instant::now() + self.times.verified }
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

    /// Whether it is known what is in the image.
    pub(super) fn has_image(&self, key: &ImageKey) -> bool {
        self.images.contains_key(key)
    }

    /// Keeps what is in an image, for who learns it while asking for something else.
    pub(super) async fn keep_image(&self, key: ImageKey, contents: Contents) {
        self.images.insert(key, Arc::new(contents)).await;
    }

    /// What comes of the subject.
    pub(super) async fn verdict<F>(
        &self,
        key: VerdictKey,
        work: impl FnOnce() -> F,
    ) -> Result<Kept<Arc<SubjectAnswer>>, Trouble>
    where
        F: Future<Output = Result<Arc<SubjectAnswer>, Trouble>> + Send + 'static,
    {
        let Times { verified, refused, .. } = self.times;
        let kept = || {
            let work = work();
            let asked = Instant::now();
            async move {
                let value = work.await?;
                // A signature that is missing may be on its way.
                let until = asked + if value.verified { verified } else { refused };
                Ok(Kept { value, until })
            }
        };
        self.get(CacheName::Verdict, &self.verdicts, key, kept).await
    }

    /// A manifest or blob of a signature, if it is kept.
    pub(super) async fn content(&self, key: &ImageKey) -> Option<Bytes> {
        let kept = self.contents.get(key).await;
        self.metrics.cache(CacheName::Content, kept.is_some());
        kept
    }

    /// Keeps one, which has that digest.
    pub(super) async fn keep_content(&self, key: ImageKey, bytes: Bytes) {
        if bytes.len() <= LARGEST {
            // Of its own: what came in may be a part of something larger.
            self.contents.insert(key, Bytes::copy_from_slice(&bytes)).await;
        }
    }

    /// The answer to a key, if it was given under this generation and nothing in it is over.
    pub(super) fn answer(
        &self,
        shape: Shape,
        key: &str,
        ground: &Ground,
    ) -> Option<Arc<KeptAnswer>> {
        let kept = self.answers[shape as usize].get(key);
        kept.filter(|kept| kept.ground == *ground)
    }

    /// Keeps an answer.
    pub(super) fn keep_answer(&self, shape: Shape, answer: KeptAnswer) {
        if is_worth_it(answer.until()) {
            self.answers[shape as usize].insert(Arc::clone(&answer.key), Arc::new(answer));
        }
    }

    /// What is told to a request with this body; likewise.
    pub(super) fn request(
        &self,
        shape: Shape,
        body: &[u8],
        ground: &Ground,
    ) -> Option<Arc<KeptRequest>> {
        let kept = self.requests[shape as usize].get(body);
        let kept = kept.filter(|kept| kept.ground == *ground);
        self.metrics.cache(CacheName::Request, kept.is_some());
        kept
    }

    /// Keeps that.
    pub(super) fn keep_request(&self, shape: Shape, body: &[u8], request: KeptRequest) {
        if is_worth_it(request.until()) {
            // Of its own: what came in may be a part of something larger.
            let body = Bytes::copy_from_slice(body);
            self.requests[shape as usize].insert(body, Arc::new(request));
        }
    }

    /// Where to look first in a repository of this registry.
    pub(super) async fn first(&self, repository: &str) -> Carriers {
        self.carriers.get(host(repository)).await.unwrap_or(Carriers::ALL)
    }

    /// Notes where that was which counted.
    pub(super) async fn found(&self, repository: &str, carriers: Carriers) {
        let host = host(repository);
        if self.carriers.get(host).await != Some(carriers) {
            self.carriers.insert(host.to_owned(), carriers).await;
        }
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
        let waiting = self.work.waiting()?;
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

fn is_worth_it(until: Instant) -> bool {
    until.saturating_duration_since(Instant::now()) >= SHORTEST
}
