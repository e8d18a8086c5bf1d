//! Plugins that are not built in: what the command line says of them, and getting them ready.

use std::path::PathBuf;

use portolan_compat::check::asks_external;
use portolan_compat::external::policy::{DEFAULT_POLICY, LoadPolicyError, load};
use portolan_compat::external::sandbox::Strictness;
use portolan_compat::external::{
    DEFAULT_DIRECTORY, Externals, Https, Origin, Runner, Settings, find,
};
use portolan_compat::plugins::{External, NoExternal};
use portolan_compat::requirements::{Question, Requirements};
use portolan_host::Host;
use portolan_host::facts::Wanted;

use super::hosts::Machine;
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};

// What may run besides what is built in, and how. A doc comment would become the help of each
// command that takes these.
#[derive(Debug, clap::Args)]
pub(crate) struct PluginArgs {
    /// Who may provide plugins that are not built in; none may where this is not there
    /// [default: /etc/oci/image-compatibility/policy.json]
    #[arg(long, value_name = "FILE")]
    plugin_policy: Option<PathBuf>,
    /// Where plugins are installed, and fetched ones kept
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIRECTORY)]
    plugin_dir: PathBuf,
    /// Whether plugins run where a part of their sandbox is missing
    #[arg(long, value_enum, default_value_t = SandboxArg::Required)]
    plugin_sandbox: SandboxArg,
    /// Fetch no plugins
    #[arg(long)]
    offline: bool,
}

/// Whether plugins run where a part of their sandbox is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SandboxArg {
    /// They do not
    Required,
    /// They do; the report says what was there
    BestEffort,
}

impl From<SandboxArg> for Strictness {
    fn from(arg: SandboxArg) -> Self {
        match arg {
            SandboxArg::Required => Self::Required,
            SandboxArg::BestEffort => Self::BestEffort,
        }
    }
}

/// The external plugins of one spec, if it has any.
#[derive(Debug, Default)]
pub(crate) struct Plugins {
    none: NoExternal,
    some: Option<Externals>,
}

impl Plugins {
    /// Finds the programs of the plugins that are not built in, and asks them what they need.
    /// Nothing is looked at for requirements that have none.
    pub(super) async fn of(
        requirements: &Requirements,
        question: &Question<'_>,
        origin: &Origin,
        args: &PluginArgs,
        global: &Global,
    ) -> Result<Self, Failure> {
        let Requirements::Spec(spec) = requirements else { return Ok(Self::default()) };
        if !asks_external(spec, &question.options).map_err(Failure::usage)? {
            return Ok(Self::default());
        }
        let settings = args.settings()?;
        let fetch = Https::new(&settings.policy.clone().unwrap_or_default());
        let client = context::anonymous_client(global)?;
        let found = find(spec, origin, &settings, &fetch, &client).await;
        let some = Some(found.describe(question.options.manner));
        Ok(Self { none: NoExternal, some })
    }

    /// The facts that they want to see.
    pub(super) fn wanted(&self) -> Wanted {
        self.some.as_ref().map(Externals::wanted).unwrap_or_default()
    }

    /// Ready to be asked about a machine.
    pub(super) fn about(&mut self, machine: &Machine) -> &mut dyn External {
        match &mut self.some {
            Some(externals) => {
                // Only this machine's own files can be shown to a plugin.
                externals.about(matches!(machine, Machine::Here(_)).then_some("/"));
                externals
            }
            None => &mut self.none,
        }
    }
}

impl Default for PluginArgs {
    /// As where no flag says anything.
    fn default() -> Self {
        Self {
            plugin_policy: None,
            plugin_dir: DEFAULT_DIRECTORY.into(),
            plugin_sandbox: SandboxArg::Required,
            offline: false,
        }
    }
}

impl PluginArgs {
    fn settings(&self) -> Result<Settings, Failure> {
        let policy_path =
            self.plugin_policy.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_POLICY));
        let policy = load(&policy_path).map_err(policy_failure)?;
        if policy.is_none() && self.plugin_policy.is_some() {
            let error = anyhow::anyhow!("there is no plugin policy {}", policy_path.display());
            return Err(Failure::new(Exit::NotFound, error));
        }
        let here = Host::here().map_err(context::root_failure)?.platform();
        let here = here.map_err(|error| Failure::new(Exit::CannotTell, error))?;
        Ok(Settings {
            policy,
            policy_path,
            directory: self.plugin_dir.clone(),
            offline: self.offline,
            platform: here.platform,
            runner: Runner { strictness: self.plugin_sandbox.into(), ..Runner::default() },
        })
    }
}

fn policy_failure(error: LoadPolicyError) -> Failure {
    match error {
        LoadPolicyError::Read { .. } => Failure::new(Exit::Transport, error),
        _ => Failure::usage(error),
    }
}
