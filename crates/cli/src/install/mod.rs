//! `portolan install` and `portolan uninstall`: what a cluster gets, printed for `kubectl`.

use std::path::PathBuf;

use portolan_api::install::{self, Action, Component, Gate, InstallError, Namespace, Options};
use portolan_core::Reference;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

mod policy;
pub(crate) mod uninstall;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  until portolan install --image registry.example/portolan:1 --key release.pub |\n    \
    kubectl apply --server-side --force-conflicts -f -; do sleep 2; done\n  \
    portolan install --components build,shims -o table\n  \
    portolan install --upgrade --image registry.example/portolan:2 | kubectl apply --server-side -f -\n  \
    portolan install --crds-only | kubectl apply --server-side -f -\n\n\
    --components names all that the cluster is to have, old and new. The first time kubectl says of some kinds that it does not know them yet: what defines them has just been made. On a \
    cluster that has Portolan already, --upgrade puts nothing back that was filled in since."
)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// The image with all programs of Portolan [default: the published one of this version]
    #[arg(long, value_name = "REF")]
    image: Option<Reference>,
    /// Copies of each program [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    replicas: Option<u16>,
    /// Who signs images here: a public key; several may be given, and each of them will do
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    key: Vec<PathBuf>,
    /// A verification policy: a folder with policy.yaml and the files that it names, or policy.yaml alone
    #[arg(long, value_name = "PATH")]
    policy: Option<PathBuf>,
    /// What Gatekeeper does about images that do not pass [default: dryrun, and on an upgrade what it does now]
    #[arg(long, value_enum)]
    action: Option<ActionFlag>,
    /// Who vouches for Gatekeeper, in PEM: then nobody else may ask the verifier
    #[arg(long, value_name = "FILE")]
    gatekeeper_ca: Option<PathBuf>,
    /// Agents keep pods away from nodes whose image cache has no room, by a taint
    #[arg(long)]
    agent_taint: bool,
    /// Agents publish what nodes are as labels, those of `portolan host facts --node-labels`
    #[arg(long)]
    agent_labels: bool,
    /// Where agents keep images, on nodes
    #[arg(long, value_name = "DIR", default_value = install::AGENT_ROOT)]
    agent_root: String,
    /// The cluster has Portolan already: change nothing that was filled in since (with --server-side)
    #[arg(long)]
    upgrade: bool,
    /// Only the custom resource definitions
    #[arg(long)]
    crds_only: bool,
    /// How to print it; json is one list, table only says what it would be
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Yaml)]
    format: Format,
}

// What install and uninstall must be told alike. Of flags that several commands share this would be the help of each.
#[derive(Debug, clap::Args)]
pub(crate) struct What {
    /// Which components, with commas between: build, shims, verify, … [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    components: Vec<Component>,
    /// Where programs run
    #[arg(short, long, value_name = "NAME", default_value = install::NAMESPACE)]
    namespace: Namespace,
    /// Where Jobs run that put runtimes on nodes, as root
    #[arg(long, value_name = "NAME", default_value = install::SHIM_NAMESPACE)]
    shim_namespace: Namespace,
    /// Where agents run, on every node, as root
    #[arg(long, value_name = "NAME", default_value = install::AGENT_NAMESPACE)]
    agent_namespace: Namespace,
    /// Who asks the verifier
    #[arg(long, value_enum, default_value_t = GateFlag::Gatekeeper)]
    gate: GateFlag,
    /// Have Gatekeeper make digests of tags first, so that what is verified is what runs
    #[arg(long)]
    pin: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum GateFlag {
    /// Gatekeeper, which must be there
    Gatekeeper,
    /// The API server itself, by a webhook
    Webhook,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ActionFlag {
    /// Refuse them
    Deny,
    /// Admit them and warn
    Warn,
    /// Admit them and write it down
    Dryrun,
}

impl What {
    fn options(&self) -> Result<Options, Failure> {
        let mut options = Options::new(env!("CARGO_PKG_VERSION"));
        if !self.components.is_empty() {
            options.components = self.components.iter().copied().collect();
        }
        options.namespace = self.namespace.clone();
        options.shim_namespace = self.shim_namespace.clone();
        options.agent.namespace = self.agent_namespace.clone();
        options.trust.gate = match self.gate {
            GateFlag::Gatekeeper => Gate::Gatekeeper,
            GateFlag::Webhook => Gate::Webhook,
        };
        options.trust.pin = self.pin;
        if self.pin && self.gate == GateFlag::Webhook {
            let what = "--pin is done by Gatekeeper, and --gate webhook is without it";
            return Err(Failure::usage(anyhow::anyhow!(what)));
        }
        Ok(options)
    }
}

/// Flags that would change nothing, or another thing than they say, are mistakes.
fn check(args: &Args, options: &Options) -> Result<(), Failure> {
    let wrong = |what: String| Err(Failure::usage(anyhow::anyhow!(what)));
    let said = [
        ("--key", !args.key.is_empty()),
        ("--policy", args.policy.is_some()),
        ("--action", args.action.is_some()),
        ("--gatekeeper-ca", args.gatekeeper_ca.is_some()),
        ("--pin", args.what.pin),
    ];
    let first = said.into_iter().find_map(|(flag, said)| said.then_some(flag));
    if let Some(flag) = first.filter(|_| !options.components.contains(&Component::Verify)) {
        return wrong(format!("{flag} is about the verifier, and --components leaves verify out"));
    }
    let said = [
        ("--agent-taint", args.agent_taint),
        ("--agent-labels", args.agent_labels),
        ("--agent-root", args.agent_root != install::AGENT_ROOT),
    ];
    let first = said.into_iter().find_map(|(flag, said)| said.then_some(flag));
    if let Some(flag) = first.filter(|_| !options.components.contains(&Component::Agent)) {
        return wrong(format!("{flag} is about agents, and --components leaves agent out"));
    }
    if !install::is_agent_root(&args.agent_root) {
        return wrong(
            "--agent-root is a folder of nodes for agents alone, such as /var/lib/portolan or /mnt/images: a path \
             from their root on, without .., and none of the system's own"
                .to_owned(),
        );
    }
    match (args.what.gate, args.action, &args.gatekeeper_ca) {
        (GateFlag::Webhook, Some(_), _) => wrong(
            "--action is what Gatekeeper does; with --gate webhook what does not pass is refused"
                .to_owned(),
        ),
        (GateFlag::Webhook, _, Some(_)) => wrong(
            "--gatekeeper-ca lets nobody but Gatekeeper ask, and with --gate webhook the API server does: \
             every pod would be refused"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut options = args.what.options()?;
    check(args, &options)?;
    if let Some(image) = &args.image {
        options.image = image.to_string();
        if options.image.starts_with("oci:") {
            let what = "--image is pulled by nodes, so it is in a registry, not in a directory";
            return Err(Failure::usage(anyhow::anyhow!(what)));
        }
    }
    options.replicas = args.replicas;
    options.agent.taint = args.agent_taint;
    options.agent.labels = args.agent_labels;
    options.agent.root.clone_from(&args.agent_root);
    options.upgrade = args.upgrade;
    options.trust.action = args.action.map(|action| match action {
        ActionFlag::Deny => Action::Deny,
        ActionFlag::Warn => Action::Warn,
        ActionFlag::Dryrun => Action::Dryrun,
    });
    options.trust.policy = match &args.policy {
        Some(path) => policy::from_path(path)?,
        None if args.key.is_empty() => options.trust.policy,
        None => policy::of_keys(&args.key)?,
    };
    options.trust.gatekeeper_ca =
        args.gatekeeper_ca.as_deref().map(policy::authority).transpose()?;
    let objects = match args.crds_only {
        true => install::crds(&options),
        false => install::objects(&options).map_err(failure)?,
    };
    print(&objects, args.format)?;
    notes(&options, args).iter().for_each(|note| format::tell(&format!("note: {note}")));
    Ok(Exit::Ok)
}

/// What a person should know that the objects do not say.
fn notes(options: &Options, args: &Args) -> Vec<&'static str> {
    let verify = options.components.contains(&Component::Verify) && !args.crds_only;
    let mut notes = Vec::new();
    // The verifier shares nothing but the namespace.
    let sharing = |one: &Component| *one != Component::Verify;
    let named = options.components.iter().any(sharing);
    let all = Component::available();
    if named && all.difference(&options.components).any(sharing) && !args.crds_only {
        notes.push("name all components that the cluster is to have, old and new: the controller serves those that are named, and no others");
    }
    if args.image.is_none() && !args.crds_only {
        notes.push("programs run the image of this version under its usual name, which must have been published and be there for the nodes; --image names the one that you pushed (docs/install.md#the-image)");
    }
    if verify && !options.upgrade && options.trust.policy.is_empty() {
        notes.push("the verifier trusts nobody yet; give --key FILE or --policy PATH");
    }
    if verify
        && options.trust.gate == Gate::Webhook
        && options.trust.policy.is_empty()
        && !options.upgrade
    {
        notes.push("with --gate webhook every pod outside of the system's namespaces will be refused until then");
    }
    if options.upgrade && !args.crds_only {
        notes.push("settings of programs, and a policy that is not given, are left out, as they are there already; a program that is new (controller, verifier, agent) comes without --upgrade (docs/install.md#upgrade)");
        notes.extend(left_to_do(options));
    }
    notes
}

/// What flags say of settings, which an upgrade leaves to the operator.
fn left_to_do(options: &Options) -> impl Iterator<Item = &'static str> {
    let said = [
        (
            options.agent.taint,
            "agent.toml of ConfigMap portolan-agent stays as it is: set `taint = true` below `[report.node]` there, for --agent-taint",
        ),
        (
            options.agent.labels,
            "agent.toml of ConfigMap portolan-agent stays as it is: set `labels = true` below `[report.node]` there, for --agent-labels",
        ),
        (
            options.trust.gatekeeper_ca.is_some(),
            "verifier.toml of ConfigMap portolan-verifier stays as it is: set `client_ca = \"/etc/portolan/gatekeeper/ca.crt\"` below `[tls]` there, for --gatekeeper-ca",
        ),
    ];
    said.into_iter().filter_map(|(said, note)| said.then_some(note))
}

fn failure(error: InstallError) -> Failure {
    Failure::usage(error)
}

/// Prints objects for `kubectl`, or what they are for people.
fn print(objects: &[Value], format: Format) -> Result<(), Failure> {
    let text = match format {
        Format::Table => table(objects),
        Format::Json => {
            format::json(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))?
        }
        Format::Yaml => {
            let documents: Result<Vec<_>, _> = objects.iter().map(format::yaml).collect();
            documents?.join("---\n")
        }
    };
    format::write(&text)
}

fn table(objects: &[Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let rows = objects.iter().map(|one| {
        let metadata = &one["metadata"];
        let of = [&one["kind"], &metadata["namespace"], &metadata["name"], &one["apiVersion"]];
        of.map(text).to_vec()
    });
    format::table(&["KIND", "NAMESPACE", "NAME", "VERSION"], rows.collect())
}
