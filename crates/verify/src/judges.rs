//! Arithmetic that takes long, beside who only waits: as much at once as there are processors for it.

use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Those of this process who read and judge evidence.
#[cfg(feature = "server")]
pub(crate) static JUDGES: LazyLock<Judges> = LazyLock::new(of_processors);
/// Those who evaluate policies in Rego, which may take a second each: apart, so that nobody whose
/// evidence is only to be judged waits for them.
pub(crate) static RULERS: LazyLock<Judges> = LazyLock::new(of_processors);

fn of_processors() -> Judges {
    Judges::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
}

/// Places to work at.
pub(crate) struct Judges(Arc<Semaphore>);

impl Judges {
    fn new(places: usize) -> Self {
        Self(Arc::new(Semaphore::new(places)))
    }

    /// Waits for a place and works there. Work that was begun keeps its place to its end, also where
    /// nobody waits for it any more: it takes the processor all the same.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let place = Arc::clone(&self.0).acquire_owned().await.expect("nobody closes it");
        let working = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        working.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_nobody_waits_for_keeps_its_place_to_its_end() {
        let judges = Judges::new(1);
        let (go_on, held) = std::sync::mpsc::channel();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let first = judges.work(move || {
            begin.send(()).unwrap();
            held.recv().unwrap();
        });
        tokio::select! {
            _ = first => panic!("it is held"),
            begun = begun => begun.unwrap(),
        }
        assert_eq!(judges.0.available_permits(), 0);
        go_on.send(()).unwrap();
        judges.work(|| ()).await.unwrap();
    }

    #[tokio::test]
    async fn work_that_breaks_down_is_an_error_and_gives_its_place_back() {
        let judges = Judges::new(1);
        assert!(judges.work(|| panic!("on purpose")).await.unwrap_err().is_panic());
        judges.work(|| ()).await.unwrap();
    }
}
