//! Telling others how this host is: a control plane, and the Kubernetes node it is.
//!
//! A report is the whole state, so only the newest matters: while one is on its way or is tried
//! again, changes pile up to one more report and not to a queue.

mod control_plane;
mod node;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use control_plane::ControlPlane;
pub use node::{DEGRADED, Node, NodeError, PRESSURE, TAINT};

use crate::api::StatusReport;
use crate::backoff::backoff;
use crate::endpoint::EndpointError;
use crate::metrics::{Metrics, ReportTarget};
use portolan_core::causes::chain;

/// Changes within this time are one report.
const GATHER: Duration = Duration::from_millis(500);
/// The first wait after a report that failed; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait: whoever was away is told within this time of coming back.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// What an agent that ends waits for whoever it takes something back from.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Where reports come from.
pub trait Source: Send + Sync + 'static {
    /// How this host is now.
    fn report(&self) -> StatusReport;

    /// Changes when something did that is worth telling.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// Somebody who is told.
pub trait Target: Send {
    /// Which.
    const KIND: ReportTarget;

    /// Tells it.
    fn send(
        &mut self,
        report: &StatusReport,
    ) -> impl Future<Output = Result<(), EndpointError>> + Send;

    /// The agent ends in order: takes back what must not stay without it.
    fn end(&mut self) -> impl Future<Output = Result<(), EndpointError>> + Send {
        std::future::ready(Ok(()))
    }
}

/// Tells a target until `shutdown`: now, after each change, and every `interval`.
pub async fn run<T: Target>(
    mut target: T,
    source: Arc<dyn Source>,
    interval: Duration,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) {
    tell(&mut target, &*source, interval, &metrics, &shutdown).await;
    match tokio::time::timeout(LAST_WORDS, target.end()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(target = T::KIND.as_str(), error = chain(&error), "not taken back");
        }
        Err(_) => tracing::warn!(target = T::KIND.as_str(), "no answer to the last words"),
    }
}

async fn tell<T: Target>(
    target: &mut T,
    source: &dyn Source,
    interval: Duration,
    metrics: &Metrics,
    shutdown: &CancellationToken,
) {
    let mut changes = source.changes();
    let mut failures = 0_u32;
    loop {
        changes.mark_unchanged();
        let report = source.report();
        let outcome = tokio::select! {
            outcome = target.send(&report) => outcome,
            () = shutdown.cancelled() => return,
        };
        metrics.reported(T::KIND, outcome.is_ok());
        match outcome {
            Ok(()) => {
                if failures > 0 {
                    tracing::info!(target = T::KIND.as_str(), "reports are taken again");
                }
                failures = 0;
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                let error = chain(&error);
                // Once at this level: a control plane that is away for a night is one line.
                if failures == 1 {
                    tracing::warn!(target = T::KIND.as_str(), error, "a report was not taken");
                } else {
                    tracing::debug!(target = T::KIND.as_str(), error, failures, "still not taken");
                }
            }
        }
        let pause = async {
            if failures > 0 {
                tokio::time::sleep(backoff(FIRST_WAIT, LONGEST_WAIT, failures)).await;
            } else if tokio::time::timeout(interval, changed(&mut changes)).await.is_ok() {
                tokio::time::sleep(GATHER).await;
            }
        };
        tokio::select! {
            () = pause => {}
            () = shutdown.cancelled() => return,
        }
    }
}

/// Ready at the next change; never once nobody can say so any more.
async fn changed(changes: &mut watch::Receiver<u64>) {
    if changes.changed().await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests;
