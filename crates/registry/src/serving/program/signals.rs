//! Signals that end a program.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A signal that cannot be watched for.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch for {name}")]
pub struct SignalError {
    name: &'static str,
    #[source]
    source: io::Error,
}

/// Ends in order at the first SIGTERM or SIGINT, and at once at the second. Both are watched for when this returns.
///
/// On a thread of its own, as long as the program lives: a runtime that is dropped waits for work that blocks, and that
/// is when somebody asks a second time.
pub fn end_on_signals(ending: CancellationToken) -> Result<(), SignalError> {
    let beside = |source| SignalError { name: "signals", source };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(beside)?;
    let signals = Signals::watched(&runtime)?;
    let watching = move || runtime.block_on(watch(signals, ending));
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(watching);
    thread.map(drop).map_err(beside)
}

async fn watch(mut signals: Signals, ending: CancellationToken) {
    signals.next().await;
    tracing::info!("ending; once more ends at once");
    ending.cancel();
    let code = signals.next().await;
    tracing::warn!("ended at once");
    #[allow(clippy::exit, reason = "whoever asks twice does not want to wait")]
    std::process::exit(code);
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn watched(runtime: &Runtime) -> Result<Self, SignalError> {
        let _here = runtime.enter();
        let watched = |kind, name| signal(kind).map_err(|source| SignalError { name, source });
        Ok(Self {
            terminate: watched(SignalKind::terminate(), "SIGTERM")?,
            interrupt: watched(SignalKind::interrupt(), "SIGINT")?,
        })
    }

    /// The code with which a shell says that a program ended by the signal that came.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.terminate.recv() => 143,
            _ = self.interrupt.recv() => 130,
        }
    }
}
