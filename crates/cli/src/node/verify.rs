//! `portolan node verify --host-root DIR --name NAME`

use portolan_shim::node::install::digest;
use portolan_shim::node::request::Name;
use portolan_shim::node::verify::verify;
use portolan_shim::report::Operation;

use super::{Telling, Where};
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan node verify --host-root / --name spin-v2 -o json\n\n\
    Looks at the program, the configuration and what containerd says. Exit code 1: something differs.")]
pub(crate) struct Args {
    /// The shim's name
    #[arg(long, value_name = "NAME", env = "SHIM_NAME")]
    name: String,
    /// What its program must hash to; without it, what was installed
    #[arg(long, value_name = "HEX")]
    binary_sha256: Option<String>,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    telling: Telling,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let asked = Name::parse("the shim's name", &args.name)
        .and_then(|name| Ok((name, digest(args.binary_sha256.as_deref())?)));
    match asked {
        Ok((name, binary)) => {
            let node = args.place.node(None);
            args.telling.finish(verify(&node, &name, binary.as_ref()).await, 1)
        }
        Err(error) => args.telling.refuse(Operation::Verify, error.into()),
    }
}
