//! Work that blocks a thread, and ends with whoever waits for it.
//!
//! Dropping a future ends nothing on the threads that it started, and a runtime that is dropped waits for them: without a
//! word to the work, a run that is out of time would go on to the end of what it is at.

use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

/// Does work that is to give up once its token is cancelled, which it is when nobody waits any more.
///
/// # Errors
/// The work panicked, or was never begun because the runtime ended.
pub async fn blocking<T, W>(work: W) -> Result<T, JoinError>
where
    T: Send + 'static,
    W: FnOnce(&CancellationToken) -> T + Send + 'static,
{
    let halt = CancellationToken::new();
    let _halted = halt.clone().drop_guard();
    tokio::task::spawn_blocking(move || work(&halt)).await
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn work_that_nobody_waits_for_hears_of_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (told, heard) = mpsc::channel();
        runtime.block_on(async {
            let work = blocking(move |halt| {
                begun.send(()).unwrap();
                let end = Instant::now() + Duration::from_secs(60);
                while !halt.is_cancelled() && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(1));
                }
                told.send(halt.is_cancelled()).unwrap();
            });
            tokio::select! {
                biased;
                _ = work => panic!("nobody told it to end"),
                begun = has_begun => begun.unwrap(),
            }
        });
        assert!(heard.recv().unwrap());
    }

    #[test]
    fn work_that_is_waited_for_goes_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(!runtime.block_on(blocking(CancellationToken::is_cancelled)).unwrap());
    }
}
