//! `portolan-verifier`: may this image run on those machines?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use portolan_registry::serving::program::{LogFormat, end, end_on_signals, start_logging};
use portolan_verify::server::{self, Config};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

/// Answer Gatekeeper and Kubernetes whether images are signed, index and platform image alike
#[derive(Debug, Parser)]
#[command(name = "portolan-verifier", version, max_term_width = 100)]
#[command(
    after_help = "Example:\n  portolan-verifier --config /etc/portolan/verifier.toml\n\nPORTOLAN_LOG sets what is logged, such as portolan_verify=debug. The configuration is described in\ndocs/verifier.md."
)]
struct Args {
    /// The configuration
    #[arg(long, value_name = "FILE", env = "PORTOLAN_CONFIG")]
    config: PathBuf,
    /// How a line of the log looks
    #[arg(long, value_enum, default_value_t, env = "PORTOLAN_LOG_FORMAT")]
    log_format: LogFormat,
}

fn main() -> ExitCode {
    end(start(&Args::parse()))
}

fn start(args: &Args) -> anyhow::Result<()> {
    start_logging("portolan_verify", args.log_format)?;
    let config = Config::load(&args.config)?;
    runtime(config.limits.threads).context("start the async runtime")?.block_on(async {
        let ending = CancellationToken::new();
        end_on_signals(ending.clone())?;
        Ok(server::start(&config, ending).await?.wait().await?)
    })
}

/// One thread needs nobody to share its work out.
fn runtime(threads: usize) -> std::io::Result<Runtime> {
    match threads {
        1 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    }
}

#[cfg(test)]
#[path = "../../../xtask/tests/reference/commands.rs"]
mod reference;
