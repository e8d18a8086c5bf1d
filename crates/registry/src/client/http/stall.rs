//! A request that stands still.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::client::error::Failure;
use crate::client::settings::Limits;

/// How far an upload is, seen by the one who watches it.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct Progress(Arc<State>);

#[derive(Debug, Default)]
struct State {
    sent: AtomicU64,
    starved: AtomicBool,
}

impl Progress {
    /// Bytes handed to the connection.
    pub(in crate::client) fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    pub(in crate::client) fn add(&self, bytes: u64) {
        self.0.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The connection waits for the source, not the other way round.
    pub(in crate::client) fn set_starved(&self, starved: bool) {
        self.0.starved.store(starved, Ordering::Relaxed);
    }
}

/// Waits for an upload of `total` bytes as long as it moves. While it waits for its own source no
/// time counts: the source has its own deadlines. When all is sent the registry may take as long as
/// for any other request, since it now stores and checks.
pub(super) async fn while_moving<F: Future>(
    request: F,
    progress: &Progress,
    total: u64,
    limits: &Limits,
) -> Result<F::Output, Failure> {
    tokio::pin!(request);
    loop {
        let before = progress.sent();
        let all_sent = before >= total;
        let limit = if all_sent {
            limits.request_timeout.max(limits.stall_timeout)
        } else {
            limits.stall_timeout
        };
        match tokio::time::timeout(limit, &mut request).await {
            Ok(output) => return Ok(output),
            Err(_) if progress.sent() != before || progress.0.starved.load(Ordering::Relaxed) => {}
            Err(_) => return Err(Failure::Stalled { limit, moved: before, attempts: 1 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits() -> Limits {
        Limits {
            stall_timeout: Duration::from_millis(100),
            request_timeout: Duration::from_millis(300),
            ..Limits::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn moving_is_not_stalling() {
        let progress = Progress::default();
        let slow = async {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(60)).await;
                progress.add(1);
            }
            "done"
        };
        assert_eq!(while_moving(slow, &progress, 20, &limits()).await.unwrap(), "done");
    }

    #[tokio::test(start_paused = true)]
    async fn standing_still_is() {
        let progress = Progress::default();
        progress.add(5);
        let error =
            while_moving(std::future::pending::<()>(), &progress, 20, &limits()).await.unwrap_err();
        assert!(matches!(error, Failure::Stalled { moved: 5, .. }), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_source_does_not_count() {
        let progress = Progress::default();
        progress.set_starved(true);
        let fed_late = tokio::time::sleep(Duration::from_secs(5));
        assert!(while_moving(fed_late, &progress, 20, &limits()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_registry_has_longer_to_store() {
        let progress = Progress::default();
        progress.add(20);
        let storing = tokio::time::sleep(Duration::from_millis(250));
        assert!(while_moving(storing, &progress, 20, &limits()).await.is_ok());
        assert!(
            while_moving(std::future::pending::<()>(), &progress, 20, &limits()).await.is_err()
        );
    }
}
