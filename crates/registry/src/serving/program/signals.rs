//! Signals that end a program.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A signal that cannot be watched for.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch for {name}")]
pub struct SignalError {
    name: &'static str,
    #[source]
    source: std::io::Error,
}

/// Ends in order at the first SIGTERM or SIGINT, and at once at the second. To be called on a runtime.
pub fn end_on_signals(ending: CancellationToken) -> Result<(), SignalError> {
    let mut signals = Signals {
        terminate: watch(SignalKind::terminate(), "SIGTERM")?,
        interrupt: watch(SignalKind::interrupt(), "SIGINT")?,
    };
    tokio::spawn(async move {
        signals.next().await;
        tracing::info!("ending; once more ends at once");
        ending.cancel();
        let code = signals.next().await;
        tracing::warn!("ended at once");
        #[allow(clippy::exit, reason = "whoever asks twice does not want to wait")]
        std::process::exit(code);
    });
    Ok(())
}

fn watch(kind: SignalKind, name: &'static str) -> Result<Signal, SignalError> {
    signal(kind).map_err(|source| SignalError { name, source })
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// The code with which a shell says that a program ended by the signal that came.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.terminate.recv() => 143,
            _ = self.interrupt.recv() => 130,
        }
    }
}
