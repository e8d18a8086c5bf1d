//! `portolan registry serve`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use portolan_registry::layout::GarbageOptions;
use portolan_registry::server::{Config, GarbageSchedule, ServeError, Server, TlsFiles};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan registry serve --listen 127.0.0.1:5000 --root ./data\n  \
    portolan registry serve --listen 0.0.0.0:443 --root /srv/registry --tls-cert c.pem --tls-key k.pem --htpasswd users\n\n\
    The first line printed is the address it got. Each repository is an OCI layout below ROOT.\n\
    htpasswd lines are made with: htpasswd -nB USER"
)]
pub(crate) struct Args {
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5000")]
    listen: SocketAddr,
    /// The directory that holds the images; made when it is not there
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Serve HTTPS with this certificate (PEM, chain included)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let in only the users of this htpasswd file (bcrypt); read again when it changes
    #[arg(long, value_name = "FILE")]
    htpasswd: Option<PathBuf>,
    /// Remove what no image needs every so many hours
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=8760))]
    gc_every: Option<u64>,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let tls = args.tls_cert.zip(args.tls_key);
    let config = Config {
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        htpasswd: args.htpasswd,
        garbage: args.gc_every.map(|hours| GarbageSchedule {
            every: Duration::from_secs(hours * 3600),
            options: GarbageOptions::default(),
        }),
        ..Config::new(args.root, args.listen)
    };
    let server = Server::bind(config).await.map_err(failure)?;
    format::write(&format!("{}\n", server.local_addr()))?;
    server.serve(asked_to_stop()).await.map_err(failure)?;
    Ok(Exit::Ok)
}

fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::Tls(_) | ServeError::Htpasswd(_) => Failure::usage(error),
        ServeError::Listen { .. } | ServeError::Root(_) => Failure::new(Exit::Transport, error),
    }
}

/// Ctrl-C, or the signal that service managers send.
async fn asked_to_stop() {
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            tracing::warn!(%error, "no handler for SIGTERM: it will end requests under way");
            let _ = tokio::signal::ctrl_c().await;
            return;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
