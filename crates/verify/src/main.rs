//! `portolan-verifier`: may this image run on those machines?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use portolan_verify::server::{self, Config};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// What to log, in the words of tracing's filters.
const VARIABLE: &str = "PORTOLAN_LOG";
/// When nobody says: what the verifier does, and what goes wrong elsewhere.
const DEFAULT: &str = "warn,portolan_verify=info";

/// Answer Gatekeeper and Kubernetes whether images are signed, index and platform image alike
#[derive(Debug, Parser)]
#[command(name = "portolan-verifier", version, max_term_width = 100)]
#[command(
    after_help = "Example:\n  portolan-verifier --config /etc/portolan/verifier.toml\n\nPORTOLAN_LOG sets what is logged, such as portolan_verify=debug. The configuration is described in\ndocs/verifier.md."
)]
struct Args {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// How a line of the log looks
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

#[allow(clippy::print_stderr, reason = "the last words of a program")]
fn main() -> ExitCode {
    match start(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", portolan_core::causes::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> anyhow::Result<()> {
    log(args.log_format)?;
    let config = Config::load(&args.config)?;
    runtime(config.limits.threads).context("start the async runtime")?.block_on(async {
        let ending = CancellationToken::new();
        watch_signals(ending.clone())?;
        server::start(&config, ending).await?.wait().await;
        Ok(())
    })
}

/// One thread needs nobody to share its work out.
fn runtime(threads: usize) -> std::io::Result<Runtime> {
    match threads {
        1 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    }
}

fn log(format: LogFormat) -> anyhow::Result<()> {
    let wanted = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    let filter = EnvFilter::builder().parse(wanted.as_deref().unwrap_or(DEFAULT));
    let filter = filter
        .with_context(|| format!("{VARIABLE} is not a filter such as \"portolan_verify=debug\""))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

/// The first signal ends in order, the second at once.
fn watch_signals(ending: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("watch for SIGINT")?;
    tokio::spawn(async move {
        let code = tokio::select! {
            _ = terminate.recv() => 143,
            _ = interrupt.recv() => 130,
        };
        tracing::info!("ending; once more ends at once");
        ending.cancel();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        #[allow(clippy::exit, reason = "whoever asks twice does not want to wait")]
        std::process::exit(code);
    });
    Ok(())
}
