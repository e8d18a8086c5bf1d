//! What commands share: the client with its settings and credentials, and logging.

use std::io::ErrorKind;

use anyhow::Context as _;
use portolan_host::OpenRootError;
use portolan_registry::ErrorClass;
use portolan_registry::client::{Client, ClientError, CredentialStore, Settings};
use portolan_registry::serving::program::{LogFormat, Usual, end_on_signals, start_logging_as};
use tokio_util::sync::CancellationToken;

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

/// Cancelled when this program is asked to end, by Ctrl-C or by SIGTERM; who asks a second time does not wait for its end.
pub(crate) fn asked_to_end() -> Result<CancellationToken, Failure> {
    let asked = CancellationToken::new();
    let watched = end_on_signals(asked.clone());
    watched.map_err(|error| Failure::new(Exit::Transport, error))?;
    Ok(asked)
}

/// Logs go to stderr. `PORTOLAN_LOG` says what, else the number of `-v`.
pub(crate) fn start_logging(verbose: u8) -> Result<(), Failure> {
    let level = match verbose {
        0 => None,
        1 => Some("info"),
        _ => Some("trace"),
    };
    let usual = level.map_or(Usual::Trouble, |level| {
        let ours = ["portolan", "portolan_registry", "portolan_rootdisk", "portolan_compat"];
        Usual::Filter(ours.map(|name| format!("{name}={level}")).join(","))
    });
    start_logging_as("portolan_registry", usual, LogFormat::Text).map_err(Failure::usage)
}
