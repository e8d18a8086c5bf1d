//! `portolan registry logout HOST`

use portolan_core::Host;

use crate::context::{self, classed};
use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan registry logout registry.example")]
pub(crate) struct Args {
    /// Registry host, with its port if it has one
    #[arg(value_name = "HOST")]
    host: Host,
}

pub(crate) async fn run(args: &Args) -> Result<Exit, Failure> {
    let store = context::credentials();
    let erased = store.erase(&args.host).await.map_err(|error| classed(error.class(), error))?;
    if let Some(file) = &erased.remains_in {
        format::tell(&format!("warning: {} still holds a login for {}", file.display(), args.host));
    }
    if !erased.removed {
        let message = format!("there was no login for {}", args.host);
        return Err(Failure::new(Exit::NotFound, anyhow::Error::msg(message)));
    }
    format::write(&format!("logged out of {}\n", args.host))?;
    Ok(Exit::Ok)
}
