//! `portolan uninstall`

use portolan_api::install::{self, Component};

use super::{What, failure, print};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kubectl delete shims --all\n  portolan uninstall | kubectl delete --ignore-not-found -f -\n  \
    portolan uninstall --crds | kubectl delete --ignore-not-found -f -\n\n\
    The flags are those that it was installed with. Definitions stay, and with them every Build, Shim and whatever else is \
    of them, unless --crds is given: then all of these objects are deleted."
)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// Also the custom resource definitions, which deletes every object of them
    #[arg(long)]
    crds: bool,
    /// Leave the namespaces, with what else is in them
    #[arg(long)]
    keep_namespaces: bool,
    /// How to print it; json is one list, table only says what would be deleted
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Yaml)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let options = args.what.options()?;
    let gone = install::leavings(&options, args.crds, !args.keep_namespaces).map_err(failure)?;
    print(&gone, args.format)?;
    if options.components.contains(&Component::Shims) {
        format::tell(
            "note: delete Shims first and wait for it (kubectl delete shims --all): only a running controller takes them off nodes",
        );
    }
    Ok(Exit::Ok)
}
