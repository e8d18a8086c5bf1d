//! External plugins: other people's programs. Off until the administrator's policy allows them,
//! pinned by digest, run in a cage, and believed only as far as they answer properly: whatever goes
//! wrong with one makes its answer unknown, never no.
//!
//! | file | what it holds |
//! |---|---|
//! | `policy` | who may run |
//! | `source`, `directory`, `fetch`, `net`, `store` | where programs come from |
//! | `find` | which of those is taken |
//! | `program` | what was hashed is what runs |
//! | `sandbox`, `run` | the cage, and watching over it |
//! | `protocol`, `order` | what is said, and in which order |
//! | `externals` | asking them |
//! | `malfunction` | everything that can go wrong, each with its code |
//!
//! In order: [`find`] the programs (network), [`Found::describe`] them (each says what it needs),
//! collect [`Externals::wanted`], then hand [`Externals`] to `check`.

mod directory;
mod externals;
mod fetch;
mod find;
mod malfunction;
mod net;
mod object;
mod order;
pub mod policy;
mod program;
pub mod protocol;
mod run;
pub mod sandbox;
mod source;
mod store;
mod trust;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::{Digest, Platform};
use portolan_registry::client::Client;
use portolan_registry::images::Place;
use tokio::time::Instant;

use self::find::{Finder, Provided};
use self::policy::{Policy, Refusal};
use self::protocol::{Description, Returned};
use crate::artifact::PluginLayer;
use crate::document::{Plugin, Spec};
use crate::evaluate::Answer;
use crate::json::Spanned;
use crate::plugins::builtin;

pub use directory::{DEFAULT_DIRECTORY, DirectoryError};
pub use externals::Externals;
pub use fetch::{Fetch, FetchError, Https};
pub use malfunction::Malfunction;
pub use net::{Network, ParseNetworkError};
pub use program::{MAX_PROGRAM, Program, ProgramError};
pub use run::{Finished, MAX_STDERR, MAX_STDOUT, Runner};
pub(crate) use source::lint as lint_source;
pub use source::{Source, SourceError};
pub use trust::Distrust;

/// Questions to external plugins in one check. A spec may have thousands of plugins; each of these
/// is two processes.
pub const MAX_QUESTIONS: usize = 100;
/// Of all programs of one check, which are kept in memory: what was hashed is what runs.
pub const MAX_PROGRAMS: u64 = 4 * MAX_PROGRAM;
/// For finding all plugins of one check, and again for asking them about one host.
const BUDGET: Duration = Duration::from_secs(120);

/// Where plugins may come from and how they run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// None where there is no policy file: then nothing runs.
    pub policy: Option<Policy>,
    /// Where the policy is, or would be.
    pub policy_path: PathBuf,
    /// Where people install plugins, and what was fetched is kept.
    pub directory: PathBuf,
    /// Fetch nothing.
    pub offline: bool,
    /// What programs run on here.
    pub platform: Platform,
    /// How they are run.
    pub runner: Runner,
}

/// Where a spec comes from.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// Of its artifact, as `registry/name`; none for files and layouts.
    pub repository: Option<String>,
    /// The artifact's manifest.
    pub artifact: Option<Digest>,
    /// The plugins that came with it.
    pub plugins: Vec<PluginLayer>,
    /// Where their layers are.
    pub place: Option<Place>,
}

/// What came of looking for a plugin.
type Looked = Result<Provided, Malfunction>;

/// One question to an external plugin.
#[derive(Debug)]
struct Instance {
    namespace: String,
    name: String,
    data: Option<Spanned>,
    provided: Arc<Looked>,
    description: Result<Description, Malfunction>,
    outcome: Option<(Answer, Returned)>,
}

/// The programs of a spec's plugins, or why there are none.
#[derive(Debug)]
pub struct Found {
    instances: Vec<Instance>,
    /// Whether there were more questions than are asked.
    left_out: bool,
    runner: Runner,
}

/// Looks for the program of every plugin of `spec` that is not built in, and of those built in ones
/// that have a source and that the policy lets a program take the place of.
///
/// `client` asks registries for `oci://` sources: a spec decides which, so give it no logins.
pub async fn find(
    spec: &Spec,
    origin: &Origin,
    settings: &Settings,
    fetch: &dyn Fetch,
    client: &Client,
) -> Found {
    let mut search = Search {
        finder: settings
            .policy
            .as_ref()
            .map(|policy| Finder::new(settings, policy, origin, fetch, client)),
        settings,
        until: Instant::now() + BUDGET,
        left: MAX_PROGRAMS,
        known: Vec::new(),
    };
    let mut found =
        Found { instances: Vec::new(), left_out: false, runner: settings.runner.clone() };
    for (_, namespace) in spec.namespaces() {
        for plugin in &namespace.plugins {
            if !search.looks_for(plugin) {
                continue;
            }
            if found.instances.len() == MAX_QUESTIONS {
                found.left_out = true;
                return found;
            }
            let provided = search.provided(plugin).await;
            let steps_back = |why: &Malfunction| builtin::is(&plugin.name) && why.is_refusal();
            if provided.as_ref().as_ref().is_err_and(steps_back) {
                continue;
            }
            found.instances.push(Instance {
                namespace: namespace.name.clone(),
                name: plugin.name.clone(),
                data: plugin.data.clone(),
                provided,
                description: Ok(Description::default()),
                outcome: None,
            });
        }
    }
    found
}

/// Looking for the programs of one spec.
struct Search<'a> {
    /// None where nothing may run.
    finder: Option<Finder<'a>>,
    settings: &'a Settings,
    until: Instant,
    /// Bytes that programs may still have.
    left: u64,
    /// The same plugin in several namespaces is looked for once.
    known: Vec<(&'a Plugin, Arc<Looked>)>,
}

impl<'a> Search<'a> {
    fn looks_for(&self, plugin: &Plugin) -> bool {
        let policy = self.settings.policy.as_ref();
        let overrides = || policy.is_some_and(|policy| policy.may_override(&plugin.name));
        !builtin::is(&plugin.name) || (plugin.source.is_some() && overrides())
    }

    async fn provided(&mut self, plugin: &'a Plugin) -> Arc<Looked> {
        if let Some((_, before)) = self.known.iter().find(|(other, _)| is_same(other, plugin)) {
            return before.clone();
        }
        let looked = Arc::new(self.look(plugin).await);
        self.known.push((plugin, looked.clone()));
        looked
    }

    async fn look(&mut self, plugin: &Plugin) -> Looked {
        let Some(finder) = &self.finder else {
            let path = self.settings.policy_path.clone();
            return Err(Malfunction::Off(Refusal::NoPolicy { path }));
        };
        let found = tokio::time::timeout_at(self.until, finder.find(plugin)).await;
        let found = found.unwrap_or(Err(Malfunction::Budget { after: BUDGET }))?;
        self.left = self
            .left
            .checked_sub(found.program.size())
            .ok_or(Malfunction::TooLarge { limit: MAX_PROGRAMS })?;
        Ok(found)
    }
}

/// Whether two plugins are provided alike, whatever they are asked.
fn is_same(one: &Plugin, other: &Plugin) -> bool {
    let digest = |plugin: &Plugin| plugin.digest.as_ref().map(Spanned::to_json);
    one.name == other.name && one.source == other.source && digest(one) == digest(other)
}
