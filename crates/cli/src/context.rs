//! What commands share: the client with its settings and credentials, and logging.

use anyhow::Context as _;
use portolan_registry::ErrorClass;
use portolan_registry::client::{Client, ClientError, CredentialStore, Settings};
use tracing_subscriber::EnvFilter;

use crate::cli::Global;
use crate::exit::{Exit, Failure};

/// What to log, in the words of tracing's filters.
const LOG: &str = "PORTOLAN_LOG";

/// The client as this person has configured it.
pub(crate) fn client(global: &Global) -> Result<Client, Failure> {
    let settings = match &global.registries {
        Some(file) => Settings::from_file(file),
        None => Settings::load(),
    };
    let settings = settings.map_err(|error| classed(error.class(), error))?;
    Client::new(settings, credentials()).map_err(client_failure)
}

/// The credentials this person has stored.
pub(crate) fn credentials() -> CredentialStore {
    CredentialStore::from_environment()
}

pub(crate) fn client_failure(error: ClientError) -> Failure {
    classed(error.class(), error)
}

/// A failure whose exit code follows from its class.
pub(crate) fn classed(class: ErrorClass, error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(Exit::from(class), error)
}

/// Logs go to stderr. `PORTOLAN_LOG` says what, else the number of `-v`.
pub(crate) fn start_logging(verbose: u8) -> Result<(), Failure> {
    let level = match verbose {
        0 => "warn",
        1 => "portolan=info,portolan_registry=info,portolan_rootdisk=info",
        _ => "portolan=trace,portolan_registry=trace,portolan_rootdisk=trace",
    };
    let wanted = std::env::var(LOG).ok().filter(|value| !value.is_empty());
    let filter = EnvFilter::builder()
        .parse(wanted.as_deref().unwrap_or(level))
        .with_context(|| format!("{LOG} is not a filter such as \"portolan_registry=debug\""))
        .map_err(Failure::usage)?;
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .init();
    Ok(())
}
