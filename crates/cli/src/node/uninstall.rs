//! `portolan node uninstall --host-root DIR --name NAME`

use portolan_shim::node::Quiet;
use portolan_shim::node::request::Name;
use portolan_shim::node::uninstall::uninstall;
use portolan_shim::report::Operation;

use super::{Restarting, Telling, Where};
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan node uninstall --host-root / --name spin-v2\n\n\
    What is not there is no trouble. What runtime-class-manager installed under that name goes, too.")]
pub(crate) struct Args {
    /// The shim's name
    #[arg(long, value_name = "NAME", env = "SHIM_NAME")]
    name: String,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    restarting: Restarting,
    #[command(flatten)]
    telling: Telling,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    match Name::parse("the shim's name", &args.name) {
        Ok(name) => {
            let node = args.place.node(Some(&args.restarting));
            args.telling.finish(uninstall(&node, &name, &Quiet).await, 1)
        }
        Err(error) => args.telling.refuse(Operation::Uninstall, error.into()),
    }
}
