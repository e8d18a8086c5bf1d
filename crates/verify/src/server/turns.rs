//! What is asked of a policy in Rego about an image, which may take a second of one of few places: whoever
//! names an image chooses what is attached to it, and so how long that takes. Of many who ask the same,
//! one is answered, and the others with them. What else is asked about the image at the same time has half
//! of the places at most. Where there was no time for it, that is told for a moment to all who ask, and
//! nobody tries again.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use moka::future::Cache;
use tokio::sync::{self, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::caches::ImageKey;
use crate::decision::{Answer, Question, Undecided};

/// Images that somebody has a turn at. One more that is forgotten in use only has a second turn.
const MAX_IMAGES: u64 = 10_000;
/// Questions that are asked now, or were a moment ago; likewise.
const MAX_QUESTIONS: u64 = 1_000;
/// So long nobody tries again: an image then has a sixth of its places at most, and a machine that was
/// only busy is asked again soon.
const MOMENT: Duration = Duration::from_secs(5);

/// An image under a policy of this generation.
type TurnKey = (ImageKey, u64);
/// Why there was no decision, and until when that is told.
type Late = Option<(Undecided, Instant)>;

/// All that a policy is told of, so that who asks the same is answered the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Asking {
    image: TurnKey,
    reference: String,
    namespace: Option<String>,
    wanted: Vec<String>,
    /// Until when what came of each subject is believed: what is looked at anew has another time.
    looks: Vec<std::time::Instant>,
}

impl Asking {
    pub(super) fn new(
        question: &Question<'_>,
        image: TurnKey,
        looks: Vec<std::time::Instant>,
    ) -> Self {
        Self {
            image,
            reference: question.reference.to_string(),
            namespace: question.namespace.map(str::to_owned),
            wanted: question.wanted.platforms().map(ToString::to_string).collect(),
            looks,
        }
    }
}

/// Whose turn it is.
pub(super) struct Turns {
    images: Cache<TurnKey, Arc<Image>>,
    questions: Cache<Asking, Arc<sync::Mutex<Option<Answer>>>>,
    /// Of an image at the same time.
    most: usize,
}

struct Image {
    late: Mutex<Late>,
    places: Arc<Semaphore>,
}

/// A turn, which ends when it is dropped.
pub(super) struct Turn {
    image: Arc<Image>,
    _place: OwnedSemaphorePermit,
}

impl Turns {
    /// For as many places as there are processors.
    pub(super) fn new() -> Self {
        let places = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::of((places / 2).max(1))
    }

    fn of(most: usize) -> Self {
        let images = Cache::builder().max_capacity(MAX_IMAGES).time_to_idle(MOMENT * 2);
        // Who asks a moment later and did not find it kept finds it here.
        let questions = Cache::builder().max_capacity(MAX_QUESTIONS).time_to_live(MOMENT * 2);
        Self { images: images.build(), questions: questions.build(), most }
    }

    /// What comes of it, by `work` where nobody did that. Work that was begun goes on to its end, and
    /// who asks next finds it done.
    pub(super) async fn decided<F>(
        &self,
        asking: Asking,
        work: impl FnOnce(Turn) -> F,
    ) -> Result<Answer, Undecided>
    where
        F: Future<Output = Result<Answer, Undecided>> + Send + 'static,
    {
        let image = asking.image.clone();
        let question = self.questions.get_with(asking, async { Arc::default() }).await;
        let mut told = question.lock_owned().await;
        if let Some(answer) = &*told {
            return Ok(answer.clone());
        }
        let work = work(self.take(image).await?);
        let working = tokio::spawn(async move {
            let answer = work.await?;
            *told = Some(answer.clone());
            Ok(answer)
        });
        working.await.unwrap_or_else(|error| Err(Undecided::Failed(error.to_string())))
    }

    /// Waits for the turn; or why nobody has one at the moment.
    async fn take(&self, key: TurnKey) -> Result<Turn, Undecided> {
        let new = async {
            Arc::new(Image { late: Mutex::default(), places: Arc::new(Semaphore::new(self.most)) })
        };
        let image = self.images.get_with(key, new).await;
        image.is_late()?;
        let place = Arc::clone(&image.places).acquire_owned().await.expect("nobody closes it");
        image.is_late()?;
        Ok(Turn { image, _place: place })
    }
}

impl Image {
    fn is_late(&self) -> Result<(), Undecided> {
        match &*self.late.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((why, until)) if Instant::now() < *until => Err(why.clone()),
            _ => Ok(()),
        }
    }
}

impl Turn {
    /// Ends it without a decision. What broke here may go well at once; what had no time will not.
    pub(super) fn note(self, why: &Undecided) {
        if matches!(why, Undecided::Late(_)) {
            let mut late = self.image.late.lock().unwrap_or_else(PoisonError::into_inner);
            *late = Some((why.clone(), Instant::now() + MOMENT));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use portolan_core::Digest;

    use super::*;
    use crate::decision::no_policy;

    fn key(image: &str, generation: u64) -> TurnKey {
        let image =
            ImageKey { repository: "r.example/a".into(), digest: Digest::sha256(image.as_bytes()) };
        (image, generation)
    }

    fn asking(namespace: &str) -> Asking {
        Asking {
            image: key("image", 1),
            reference: "r.example/a:1".to_owned(),
            namespace: Some(namespace.to_owned()),
            wanted: Vec::new(),
            looks: Vec::new(),
        }
    }

    fn answer() -> Answer {
        no_policy(&"r.example/a:1".parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn ten_same_questions_at_once_are_one_evaluation() {
        let (turns, done) = (Turns::of(2), Arc::new(AtomicUsize::new(0)));
        let ask = |namespace| {
            let done = Arc::clone(&done);
            turns.decided(asking(namespace), |turn| async move {
                let _turn = turn;
                tokio::time::sleep(Duration::from_millis(300)).await;
                done.fetch_add(1, Ordering::Relaxed);
                Ok(answer())
            })
        };
        let since = Instant::now();
        let all = ["a", "b"].into_iter().flat_map(|name| std::iter::repeat_n(name, 10));
        let told = join_all(all.map(ask)).await;
        assert!(told.into_iter().all(|told| told == Ok(answer())));
        assert_eq!(done.load(Ordering::Relaxed), 2, "each question once");
        assert!(since.elapsed() < Duration::from_millis(600), "and both at once");
        ask("a").await.unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 2, "who comes a moment later finds it done");
        // Who began it has run out of time.
        let short = tokio::time::timeout(Duration::from_millis(100), ask("c")).await;
        assert!(short.is_err());
        ask("c").await.unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 3, "and it goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn what_broke_is_told_to_nobody_else() {
        let turns = Turns::of(1);
        let broken = Undecided::Failed("a panic".to_owned());
        let breaks = || async { Err(Undecided::Failed("a panic".to_owned())) };
        assert_eq!(turns.decided(asking("a"), |_| breaks()).await, Err(broken));
        let works = || async { Ok(answer()) };
        assert_eq!(turns.decided(asking("a"), |_| works()).await, Ok(answer()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_had_no_time_is_told_for_a_moment_and_not_tried_by_each_who_asks() {
        let turns = Turns::of(1);
        let late = Undecided::Late("a second".to_owned());
        let first = turns.take(key("slow", 1)).await.unwrap();
        let waits = turns.take(key("slow", 1));
        tokio::pin!(waits);
        assert!(futures_util::poll!(&mut waits).is_pending(), "no more than have places");
        drop(turns.take(key("other", 1)).await.unwrap());
        first.note(&late);
        assert_eq!(waits.await.err(), Some(late.clone()));
        assert_eq!(turns.take(key("slow", 1)).await.err(), Some(late));
        drop(turns.take(key("slow", 2)).await.expect("another policy may be quicker"));
        tokio::time::advance(MOMENT).await;
        drop(turns.take(key("slow", 1)).await.expect("it is tried again"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_and_what_breaks_leaves_the_turn_to_the_next() {
        let turns = Turns::of(1);
        drop(turns.take(key("image", 1)).await.unwrap());
        let broken = Undecided::Failed("a panic".to_owned());
        turns.take(key("image", 1)).await.unwrap().note(&broken);
        drop(turns.take(key("image", 1)).await.unwrap());
    }
}
