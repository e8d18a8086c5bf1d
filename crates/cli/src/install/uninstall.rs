//! `portolan uninstall`

use portolan_api::install::{self, Component};

use super::{What, failure, print};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kubectl delete shims --all\n  portolan uninstall | kubectl delete --ignore-not-found -f -\n  \
    portolan uninstall --crds | kubectl delete --ignore-not-found -f -\n\n\
    The flags are those that it was installed with; without --components everything goes, with it what components that are \
    not named share with them stays. Definitions stay, and with them every Build, Shim and whatever else is \
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
    let others = Component::available();
    let others: Vec<_> =
        others.difference(&options.components).copied().map(Component::as_str).collect();
    if !others.is_empty() {
        let others = others.join(",");
        format::tell(&format!(
            "note: what {others} may share with them stays, so first tell the controller what is left for it (portolan install --upgrade, with --components and the flags of the first time); without --components everything goes"
        ));
    }
    if options.components.contains(&Component::Shims) {
        format::tell(
            "note: delete Shims first and wait for it (kubectl delete shims --all): only a running controller takes them off nodes",
        );
    }
    if options.components.contains(&Component::Agent) {
        let namespace = options.agent.namespace.as_str();
        format::tell(&format!(
            "note: end agents first, while they may take back their taints (kubectl -n {namespace} delete daemonset portolan-agent --cascade=foreground); their labels of nodes, and their folder there, stay"
        ));
    }
    Ok(Exit::Ok)
}
