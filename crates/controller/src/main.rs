//! `portolan-controller`: what makes builds of a cluster run, brings shims to its nodes and records releases.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use portolan_controller::Settings;
use portolan_controller::releases::Settings as ReleaseSettings;
use portolan_controller::shims::{Amount, Settings as ShimSettings};
use portolan_registry::serving::program::{LogFormat, end_on_signals, start_logging};
use portolan_shim::node::request::host_path;
use portolan_shim::resolve::{Policy, Requirement};
use tokio_util::sync::CancellationToken;

/// Run the Builds of a cluster on Tekton, bring Shims to its nodes, record its Releases
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
    /// What is served, and must be possible [default: all, each where the cluster has what it needs]
    #[arg(long, value_enum, value_delimiter = ',', env = "PORTOLAN_SERVE")]
    serve: Vec<Serve>,
    #[command(flatten)]
    shims: ShimArgs,
    #[command(flatten)]
    releases: ReleaseArgs,
}

/// What a controller does in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Serve {
    /// Builds on Tekton
    Builds,
    /// Shims on nodes
    Shims,
    /// Releases of images
    Releases,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Releases")]
struct ReleaseArgs {
    /// How registries of Releases are spoken to: mirrors, certificates, plain HTTP, deadlines
    #[arg(long, value_name = "FILE", env = "PORTOLAN_REGISTRIES")]
    registries: Option<PathBuf>,
    /// How often tags are asked for that a Release follows, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..), env = "PORTOLAN_RELEASE_POLL")]
    release_poll: u64,
    /// How long one look at an image may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..), env = "PORTOLAN_RELEASE_DEADLINE")]
    release_deadline: u64,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Shims")]
struct ShimArgs {
    /// Where the Jobs of shims run; pods there may be privileged [default: --namespace]
    #[arg(long, value_name = "NAME", env = "PORTOLAN_SHIM_NAMESPACE")]
    shim_namespace: Option<String>,
    /// The image with `portolan` that Jobs on nodes run [default: --step-image]
    #[arg(long, value_name = "IMAGE", env = "PORTOLAN_SHIM_IMAGE")]
    shim_image: Option<String>,
    /// Who runs them; it needs no rights and gets no token
    #[arg(
        long,
        value_name = "NAME",
        default_value = "portolan-node-installer",
        env = "PORTOLAN_SHIM_SERVICE_ACCOUNT"
    )]
    shim_service_account: String,
    /// A ConfigMap of variables for downloads, such as proxies and retries
    #[arg(long, value_name = "NAME", env = "PORTOLAN_SHIM_CONFIG_MAP")]
    shim_config_map: Option<String>,
    /// Where shims are kept on nodes [default: /opt/rcm]. To be changed while no Shim is there
    #[arg(long, value_name = "PATH", value_parser = host_path, env = "PORTOLAN_SHIM_INSTALL_DIR")]
    shim_install_dir: Option<String>,
    /// How containerd is started again on nodes, as a line for their shell, where the installer cannot find out
    #[arg(long, value_name = "COMMAND", env = "PORTOLAN_SHIM_RESTART_COMMAND")]
    shim_restart_command: Option<String>,
    /// How long a Job may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(i64).range(30..), env = "PORTOLAN_SHIM_DEADLINE")]
    shim_deadline: i64,
    /// How long a Job stays when it is over, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(i32).range(30..), env = "PORTOLAN_SHIM_JOB_TTL")]
    shim_job_ttl: i32,
    /// Nodes that are worked on at once, over all Shims: a number or a share such as 10%
    #[arg(long, value_name = "AMOUNT", default_value = "50", env = "PORTOLAN_SHIM_MAX_IN_FLIGHT")]
    shim_max_in_flight: Amount,
    /// So many failed nodes hold up the rest of a rolling Shim
    #[arg(long, value_name = "AMOUNT", default_value = "10%", env = "PORTOLAN_SHIM_MAX_FAILED")]
    shim_max_failed: Amount,
    /// Whether every artifact needs a digest: off, warn or enforce
    #[arg(long, value_name = "HOW", default_value = "warn", env = "PORTOLAN_REQUIRE_DIGEST")]
    require_digest: Requirement,
    /// Whether every artifact needs https: off, warn or enforce
    #[arg(long, value_name = "HOW", default_value = "warn", env = "PORTOLAN_REQUIRE_HTTPS")]
    require_https: Requirement,
    /// Label nodes only under runtime.spinkube.dev/, and not also as upstream does
    #[arg(long, env = "PORTOLAN_NO_BARE_LABELS")]
    no_bare_labels: bool,
    /// Begin although runtime-class-manager serves Shims
    #[arg(long, env = "PORTOLAN_SHIM_TAKEOVER")]
    shim_takeover: bool,
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
    let serves = |what| args.serve.is_empty() || args.serve.contains(&what);
    let (builds, shims) = (serves(Serve::Builds), serves(Serve::Shims));
    let releases = serves(Serve::Releases).then(|| ReleaseSettings {
        registries: args.releases.registries,
        poll: Duration::from_secs(args.releases.release_poll),
        deadline: Duration::from_secs(args.releases.release_deadline),
        workers: args.workers,
    });
    let shims = shims.then(|| ShimSettings {
        namespace: args.shims.shim_namespace.or_else(|| args.namespace.clone()),
        image: args.shims.shim_image.unwrap_or_else(|| args.step_image.clone()),
        service_account: args.shims.shim_service_account,
        config_map: args.shims.shim_config_map,
        install_dir: args.shims.shim_install_dir,
        restart_command: args.shims.shim_restart_command,
        deadline_seconds: args.shims.shim_deadline,
        ttl_seconds: args.shims.shim_job_ttl,
        max_in_flight: args.shims.shim_max_in_flight,
        max_failed: args.shims.shim_max_failed,
        policy: Policy {
            require_digest: args.shims.require_digest,
            require_https: args.shims.require_https,
        },
        bare_labels: !args.shims.no_bare_labels,
        takeover: args.shims.shim_takeover,
        workers: args.workers,
    });
    let settings = Settings {
        builds,
        optional: args.serve.is_empty(),
        shims,
        releases,
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

#[cfg(test)]
#[path = "../../../xtask/tests/reference/commands.rs"]
mod commands;
#[cfg(test)]
#[path = "../../../xtask/tests/reference/page.rs"]
mod page;

#[cfg(test)]
mod tests {
    #[test]
    fn the_checked_in_reference_is_what_the_controller_parses() {
        crate::commands::check(<crate::Args as clap::CommandFactory>::command());
    }
}
