//! One question after the other where a policy in Rego decides about the same image, which may take a
//! second of one of few places: whoever names an image chooses what is attached to it, and so how long
//! that takes. Where there was no time for it, that is told for a moment to all who ask, and nobody
//! tries again.

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

use super::caches::ImageKey;
use crate::decision::Undecided;

/// Images that somebody has a turn at. One more that is forgotten in use only has a second turn.
const MAX_IMAGES: u64 = 10_000;
/// So long nobody tries again: an image then has a sixth of a place at most, and a machine that was
/// only busy is asked again soon.
const MOMENT: Duration = Duration::from_secs(5);

/// An image under a policy of this generation.
pub(super) type TurnKey = (ImageKey, u64);
/// Why there was no decision, and until when that is told.
type Late = Option<(Undecided, Instant)>;

/// Whose turn it is.
pub(super) struct Turns(Cache<TurnKey, Arc<Mutex<Late>>>);

/// A turn, which ends when it is dropped.
pub(super) struct Turn(OwnedMutexGuard<Late>);

impl Turns {
    pub(super) fn new() -> Self {
        let turns = Cache::builder().max_capacity(MAX_IMAGES).time_to_idle(MOMENT * 2);
        Self(turns.build())
    }

    /// Waits for the turn; or why nobody has one at the moment.
    pub(super) async fn take(&self, key: TurnKey) -> Result<Turn, Undecided> {
        let image = self.0.get_with(key, async { Arc::default() }).await;
        let turn = image.lock_owned().await;
        match &*turn {
            Some((why, until)) if Instant::now() < *until => Err(why.clone()),
            _ => Ok(Turn(turn)),
        }
    }
}

impl Turn {
    /// Ends it without a decision. What broke here may go well at once; what had no time will not.
    pub(super) fn note(mut self, why: &Undecided) {
        if matches!(why, Undecided::Late(_)) {
            *self.0 = Some((why.clone(), Instant::now() + MOMENT));
        }
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::Digest;

    use super::*;

    fn key(image: &str, generation: u64) -> TurnKey {
        let image =
            ImageKey { repository: "r.example/a".into(), digest: Digest::sha256(image.as_bytes()) };
        (image, generation)
    }

    #[tokio::test(start_paused = true)]
    async fn what_had_no_time_is_told_for_a_moment_and_not_tried_by_each_who_asks() {
        let turns = Turns::new();
        let late = Undecided::Late("a second".to_owned());
        let first = turns.take(key("slow", 1)).await.unwrap();
        let waits = turns.take(key("slow", 1));
        tokio::pin!(waits);
        assert!(futures_util::poll!(&mut waits).is_pending(), "one at a time");
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
        let turns = Turns::new();
        drop(turns.take(key("image", 1)).await.unwrap());
        let broken = Undecided::Failed("a panic".to_owned());
        turns.take(key("image", 1)).await.unwrap().note(&broken);
        drop(turns.take(key("image", 1)).await.unwrap());
    }
}
