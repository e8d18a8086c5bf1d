//! `portolan-controller`: what makes builds of a cluster run.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use portolan_controller::Settings;
use portolan_registry::serving::program::{LogFormat, end_on_signals, start_logging};
use tokio_util::sync::CancellationToken;

/// Run the Builds of a cluster: classes, Builds and BuildRuns, on Tekton
#[derive(Debug, Parser)]
#[command(name = "portolan-controller", version, max_term_width = 100)]
#[command(
    after_help = "Example:\n  portolan-controller --step-image registry.example/portolan:1\n\nPORTOLAN_LOG sets what is logged, such as portolan_controller=debug. docs/controller.md says more."
)]
struct Args {
    /// The image with `portolan` that our own steps run, for every platform of the nodes
    #[arg(long, value_name = "IMAGE", env = "PORTOLAN_STEP_IMAGE")]
    step_image: String,
    /// The cluster and who talks to it; the pod's own where this is not set
    #[arg(long, value_name = "FILE", env = "PORTOLAN_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Where the controller runs and keeps its lease [default: that of its account]
    #[arg(long, env = "PORTOLAN_NAMESPACE")]
    namespace: Option<String>,
    /// Who runs pods where a BuildRun names nobody [default: pipeline if it is there, else default]
    #[arg(long, value_name = "NAME", env = "PORTOLAN_SERVICE_ACCOUNT")]
    service_account: Option<String>,
    /// Health, readiness and metrics
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8383", env = "PORTOLAN_LISTEN")]
    listen: SocketAddr,
    /// Begin although another Shipwright controller serves these resources
    #[arg(long, env = "PORTOLAN_TAKEOVER")]
    takeover: bool,
    /// Objects of one kind that are worked on at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..), env = "PORTOLAN_WORKERS")]
    workers: u16,
    /// How a line of the log looks
    #[arg(long, value_enum, default_value_t, env = "PORTOLAN_LOG_FORMAT")]
    log_format: LogFormat,
}

#[allow(clippy::print_stderr, reason = "the last words of a program")]
fn main() -> ExitCode {
    match start(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> anyhow::Result<()> {
    start_logging("portolan_controller", args.log_format)?;
    let settings = Settings {
        kubeconfig: args.kubeconfig,
        step_image: args.step_image,
        namespace: args.namespace,
        service_account: args.service_account,
        listen: args.listen,
        takeover: args.takeover,
        workers: args.workers,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("start the async runtime")?.block_on(async {
        let ending = CancellationToken::new();
        end_on_signals(ending.clone())?;
        Ok(portolan_controller::run(settings, ending).await?)
    })
}
