//! Plugins that are not built in, as far as the administrator's policy allows them.
//!
//! Their programs are in memory while they may be asked: what was hashed is what runs. Those of the
//! last few images are kept, so that a start need not wait for a registry that was asked just before.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use portolan_compat::check::{Options, asks_external};
use portolan_compat::external::policy::load;
use portolan_compat::external::{Externals, Https, Origin, Runner, Settings, find};
use portolan_compat::plugins::{External, Manner, NoExternal};
use portolan_compat::requirements::Requirements;
use portolan_core::{Digest, Platform};
use portolan_host::facts::Wanted;
use portolan_registry::client::Client;

use super::FRESH;
use crate::config::CompatibilityConfig;

/// Images whose plugins are kept.
const MAX_KEPT: usize = 8;

/// Where plugins come from, and those of the last images.
pub(super) struct Plugins {
    policy: PathBuf,
    directory: PathBuf,
    platform: Platform,
    /// Without any login: a spec decides who is asked.
    client: Client,
    pub(super) runner: Runner,
    kept: Mutex<Vec<Ready>>,
}

/// The plugins of one artifact, ready to be asked.
pub(super) struct Ready {
    artifact: Digest,
    found: Instant,
    some: Option<Externals>,
    none: NoExternal,
}

impl Plugins {
    pub(super) fn new(config: &CompatibilityConfig, platform: Platform, client: Client) -> Self {
        Self {
            policy: config.plugin_policy.clone(),
            directory: config.plugin_dir.clone(),
            platform,
            client,
            runner: Runner::default(),
            kept: Mutex::default(),
        }
    }

    /// The plugins that these requirements ask for. The policy is read each time they are looked
    /// for, so a change of it counts after five minutes.
    pub(super) async fn ready(
        &self,
        artifact: Digest,
        requirements: &Requirements,
        origin: &Origin,
    ) -> Result<Ready, String> {
        let ready = |some| Ready { artifact, found: Instant::now(), some, none: NoExternal };
        let Requirements::Spec(spec) = requirements else { return Ok(ready(None)) };
        if !asks_external(spec, &Options::default()).map_err(|error| error.to_string())? {
            return Ok(ready(None));
        }
        if let Some(kept) = self.take(&artifact) {
            return Ok(kept);
        }
        let policy = load(&self.policy).map_err(|error| portolan_core::causes::chain(&error))?;
        let fetch = Https::new(&policy.clone().unwrap_or_default());
        let settings = Settings {
            policy,
            policy_path: self.policy.clone(),
            directory: self.directory.clone(),
            offline: false,
            platform: self.platform.clone(),
            runner: self.runner.clone(),
        };
        let found = find(spec, origin, &settings, &fetch, &self.client).await;
        // It starts programs and waits for them.
        let described = tokio::task::spawn_blocking(move || found.describe(Manner::default()));
        Ok(ready(Some(described.await.map_err(|error| error.to_string())?)))
    }

    fn take(&self, artifact: &Digest) -> Option<Ready> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| one.found.elapsed() < FRESH);
        let at = kept.iter().position(|one| one.artifact == *artifact)?;
        Some(kept.remove(at))
    }

    /// Keeps what was asked, for the next start of the same image.
    pub(super) fn keep(&self, ready: Ready) {
        if ready.some.is_none() {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| one.artifact != ready.artifact);
        kept.insert(0, ready);
        kept.truncate(MAX_KEPT);
    }
}

impl Ready {
    /// The facts that they want to see.
    pub(super) fn wanted(&self) -> Wanted {
        self.some.as_ref().map(Externals::wanted).unwrap_or_default()
    }

    /// Ready to be asked about a machine whose own files are at `root`.
    pub(super) fn about(&mut self, root: Option<&str>) -> &mut dyn External {
        match &mut self.some {
            Some(externals) => {
                externals.about(root);
                externals
            }
            None => &mut self.none,
        }
    }
}
