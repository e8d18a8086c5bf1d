//! What commands share: the client with its settings and credentials, and logging.

use std::io::ErrorKind;

use anyhow::Context as _;
use portolan_host::OpenRootError;
use portolan_registry::ErrorClass;
use portolan_registry::client::{Client, ClientError, CredentialStore, Settings};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::cli::Global;
use crate::exit::{Exit, Failure};

/// Waits for a few answers, on this thread alone: they are here before another one would start.
pub(crate) fn wait<T>(answers: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on(tokio::runtime::Builder::new_current_thread(), answers)
}

/// Waits for work that all processors share.
pub(crate) fn work<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on(tokio::runtime::Builder::new_multi_thread(), work)
}

fn block_on<T>(
    mut runtime: tokio::runtime::Builder,
    future: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = runtime
        .enable_all()
        .build()
        .context("start the async runtime")
        .map_err(|error| Failure::new(Exit::Transport, error))?;
    runtime.block_on(future)
}

/// What to log, in the words of tracing's filters.
const LOG: &str = "PORTOLAN_LOG";

/// The client as this person has configured it.
pub(crate) fn client(global: &Global) -> Result<Client, Failure> {
    client_with(global, credentials())
}

/// The same without any login, for where somebody else decides who is asked.
pub(crate) fn anonymous_client(global: &Global) -> Result<Client, Failure> {
    client_with(global, CredentialStore::anonymous())
}

fn client_with(global: &Global, credentials: CredentialStore) -> Result<Client, Failure> {
    Client::new(settings(global)?, credentials).map_err(client_failure)
}

/// How this person wants registries to be spoken to.
pub(crate) fn settings(global: &Global) -> Result<Settings, Failure> {
    let settings = match &global.registries {
        Some(file) => Settings::from_file(file),
        None => Settings::load(),
    };
    settings.map_err(|error| classed(error.class(), error))
}

/// The credentials this person has stored.
pub(crate) fn credentials() -> CredentialStore {
    CredentialStore::from_environment()
}

pub(crate) fn client_failure(error: ClientError) -> Failure {
    classed(error.class(), error)
}

/// A machine's root that cannot be looked into.
pub(crate) fn root_failure(error: OpenRootError) -> Failure {
    match error.source.kind() {
        ErrorKind::NotFound => Failure::new(Exit::NotFound, error),
        ErrorKind::NotADirectory => Failure::usage(error),
        _ => Failure::new(Exit::Transport, error),
    }
}

/// A failure whose exit code follows from its class.
pub(crate) fn classed(class: ErrorClass, error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(Exit::from(class), error)
}

/// Cancels when this program is asked to end. The handlers are set when this returns.
pub(crate) fn cancel_on_signal(cancel: CancellationToken) -> Result<JoinHandle<()>, Failure> {
    let on = |kind| {
        let set = signal(kind).context("set a signal handler");
        set.map_err(|error| Failure::new(Exit::Transport, error))
    };
    let mut interrupt = on(SignalKind::interrupt())?;
    let mut terminate = on(SignalKind::terminate())?;
    Ok(tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        cancel.cancel();
    }))
}

/// Logs go to stderr. `PORTOLAN_LOG` says what, else the number of `-v`.
pub(crate) fn start_logging(verbose: u8) -> Result<(), Failure> {
    let wanted = std::env::var(LOG).ok().filter(|value| !value.is_empty());
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(colour);
    let wanted = match (wanted, verbose) {
        // The usual case needs no filter to be read, which takes longer than a short command.
        (None, 0) => {
            lines.with_max_level(tracing::Level::WARN).init();
            return Ok(());
        }
        (None, level) => {
            let level = if level == 1 { "info" } else { "trace" };
            let ours = ["portolan", "portolan_registry", "portolan_rootdisk", "portolan_compat"];
            ours.map(|name| format!("{name}={level}")).join(",")
        }
        (Some(wanted), _) => wanted,
    };
    let filter = EnvFilter::builder()
        .parse(wanted)
        .with_context(|| format!("{LOG} is not a filter such as \"portolan_registry=debug\""))
        .map_err(Failure::usage)?;
    lines.with_env_filter(filter).init();
    Ok(())
}
