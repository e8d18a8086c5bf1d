//! `portolan verify template render`

use std::path::PathBuf;

use portolan_core::Platform;
use portolan_verify::pod::{Default, Settings};
use portolan_verify::template::parameters::Parameters;
use portolan_verify::template::render::{self, Options};
use serde_json::json;

use super::super::labels::{LabelArgs, listed};
use super::super::read;
use crate::exit::{Exit, Failure};
use crate::format;

/// Certificates of one's own authorities are a page.
const MAX_AUTHORITY: u64 = 1024 * 1024;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan verify template render --ca ca.crt | kubectl apply -f -\n  \
    portolan verify template render --default linux/amd64,linux/arm64 > gatekeeper.yaml\n  \
    portolan verify template render --default host --host linux/amd64 --action dryrun\n\n\
    Rego sees no nodes. With --default policy a pod that says nothing of its platform is asked about \
    without one, and `platforms` of the verifier's policy (host, nodes, all or a list) decides."
)]
pub(crate) struct Args {
    /// The Provider that is asked
    #[arg(long, value_name = "NAME", default_value = "portolan-verifier")]
    provider: String,
    /// Where the verifier is, instead of the shipped address
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Who signed the verifier's certificate, in PEM; without it caBundle stays empty, for you to fill
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// For a pod that says nothing: policy, host, all, or platforms with commas between
    #[arg(long, value_name = "DEFAULT", default_value = "policy")]
    default: String,
    /// What the machines that verify are, for --default host and --partial host
    #[arg(long, value_name = "PLATFORM")]
    host: Option<Platform>,
    /// Also make digests of tags, so that what is verified is what runs
    #[arg(long)]
    pin: bool,
    /// Tell the provider the namespace of each request, for pull secrets and for policies that ask
    #[arg(long)]
    send_namespace: bool,
    /// What Gatekeeper does about a violation
    #[arg(long, value_enum, default_value_t = Action::Deny)]
    action: Action,
    #[command(flatten)]
    labels: LabelArgs,
    /// How to print them
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Yaml)]
    format: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Refuse the object
    Deny,
    /// Admit it and warn
    Warn,
    /// Admit it and write it down
    Dryrun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// With comments
    Yaml,
    /// As one List
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let authority = args.ca.as_ref().map(|file| read(file, MAX_AUTHORITY)).transpose()?;
    let action = match args.action {
        Action::Deny => "deny",
        Action::Warn => "warn",
        Action::Dryrun => "dryrun",
    };
    let options = Options {
        parameters: Parameters::new(&args.provider, &settings(args)?)
            .sending_namespace(args.send_namespace),
        url: args.url.clone(),
        authority,
        action: action.to_owned(),
        pin: args.pin,
    };
    let text = match args.format {
        Output::Yaml => render::yaml(&options).map_err(Failure::usage)?,
        Output::Json => {
            let items = render::objects(&options).map_err(Failure::usage)?;
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            serde_json::to_string_pretty(&list).map_err(Failure::usage)? + "\n"
        }
    };
    if args.ca.is_none() {
        format::tell(
            "note: caBundle of the provider is empty, and Gatekeeper takes none such; give --ca FILE",
        );
    }
    format::write(&text)?;
    Ok(Exit::Ok)
}

fn settings(args: &Args) -> Result<Settings, Failure> {
    let default = match args.default.as_str() {
        "policy" => Default::Nodes,
        "host" => Default::Host,
        "all" => Default::All,
        "nodes" => {
            let what = "Rego sees no nodes; give --default policy, and `platforms: nodes` in the \
                        verifier's policy";
            return Err(Failure::usage(anyhow::anyhow!(what)));
        }
        list => Default::List(listed(list, "policy, host, all")?),
    };
    // This machine is hardly the one that verifies, so it is not asked.
    if args.host.is_none() && (default == Default::Host || args.labels.fills_from_host()) {
        let what = "--default host and --partial host need --host: what the verifier runs on, such \
                    as linux/amd64";
        return Err(Failure::usage(anyhow::anyhow!(what)));
    }
    let host = args.host.clone().unwrap_or_else(|| Platform::new("", ""));
    let mut settings = Settings::new(default, host);
    args.labels.add_to(&mut settings)?;
    Ok(settings)
}
