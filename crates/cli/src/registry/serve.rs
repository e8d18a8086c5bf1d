//! `portolan registry serve`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_registry::layout::GarbageOptions;
use portolan_registry::server::{Config, GarbageSchedule, ServeError, Server, TlsFiles};

use crate::exit::{Exit, Failure};
use crate::{context, format};

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
    let root = args.root.clone();
    let failure = |error| failure(error, &root);
    let tls = args.tls_cert.zip(args.tls_key);
    let config = Config {
        tls: tls.map(|(certificate, key)| TlsFiles::new(certificate, key)),
        htpasswd: args.htpasswd,
        garbage: args.gc_every.map(|hours| GarbageSchedule {
            every: Duration::from_secs(hours * 3600),
            options: GarbageOptions::default(),
        }),
        ..Config::new(args.root, args.listen)
    };
    if config.htpasswd.is_none() && !config.listen.ip().is_loopback() {
        let listen = config.listen;
        format::tell(&format!(
            "warning: everybody who reaches {listen} may push and delete; --htpasswd asks for passwords"
        ));
    }
    // Before the address is told: whoever reads it may ask us to stop at once.
    let asked = context::asked_to_end()?;
    let server = Server::bind(config).await.map_err(failure)?;
    format::write(&format!("{}\n", server.local_addr()))?;
    server.serve(asked.cancelled_owned()).await.map_err(failure)?;
    Ok(Exit::Ok)
}

pub(crate) fn failure(error: ServeError, root: &Path) -> Failure {
    match error {
        ServeError::Tls(_) | ServeError::Htpasswd(_) => Failure::usage(error),
        ServeError::Listen { .. } => Failure::new(Exit::Transport, error),
        ServeError::Root(_) => {
            let context = format!("serve {}", root.display());
            Failure::new(Exit::Transport, anyhow::Error::new(error).context(context))
        }
    }
}
