//! What an image needs of the machine that it runs in, checked before each start.
//!
//! The artifact that says so is looked up where the image is, and remembered for a while: starts
//! must not wait for a registry that was asked just before, nor fail with one that went away. A host
//! is looked at each time, since modules come and go; a guest is what the configuration says.

mod plugins;
mod subject;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use portolan_compat::artifact::{self, FindError, Image, Subject, Which};
use portolan_compat::external::{Origin, Runner};
use portolan_compat::report::Compatibility;
use portolan_compat::requirements::{Question, Requirements};
use portolan_core::{Digest, Platform};
use portolan_registry::client::{Client, ClientError, CredentialStore, Settings};
use portolan_registry::images::Place;

use self::plugins::{Plugins, Ready};
use self::subject::Machine;
use super::gate::{Candidate, Gate, Refusal};
use crate::config::{CompatibilityMode, Config};
use crate::image::ResolvedImage;
use crate::reason::Reason;

/// An artifact may be attached to an image that runs already; so long it may go unseen.
const FRESH: Duration = Duration::from_secs(300);
/// Images whose needs are remembered; a host starts fewer in five minutes.
const MAX_REMEMBERED: usize = 1024;
/// Of all specs that are remembered, as they were attached. What is read of them takes more.
const MAX_REMEMBERED_BYTES: usize = 16 << 20;
/// Reasons in one message.
const MAX_REASONS: usize = 3;

/// A machine of this agent, or its host, meets what the image's compatibility artifact asks for.
pub struct CompatibilityGate {
    mode: CompatibilityMode,
    machine: Arc<Machine>,
    plugins: Plugins,
    client: Client,
    remembered: Mutex<HashMap<String, Remembered>>,
}

#[derive(Clone)]
struct Remembered {
    asked: Instant,
    needs: Option<Arc<Needs>>,
}

/// What an image needs.
struct Needs {
    artifact: Digest,
    requirements: Requirements,
    /// Where it comes from, for plugins that came with it.
    origin: Origin,
    /// Of the spec.
    bytes: usize,
}

impl std::fmt::Debug for CompatibilityGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompatibilityGate").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl CompatibilityGate {
    /// A gate as configured; none where nobody is to look. `platform` is what programs run on
    /// here; registries that a spec names for plugins are asked by `settings`, without any login.
    pub fn new(
        config: &Config,
        platform: &Platform,
        client: &Client,
        settings: &Settings,
    ) -> Result<Option<Self>, ClientError> {
        if config.compatibility.mode == CompatibilityMode::Off {
            return Ok(None);
        }
        let stranger = Client::new(settings.clone(), CredentialStore::anonymous())?;
        Ok(Some(Self {
            mode: config.compatibility.mode,
            machine: Arc::new(Machine::of(config)),
            plugins: Plugins::new(&config.compatibility, platform.clone(), stranger),
            client: client.clone(),
            remembered: Mutex::default(),
        }))
    }

    /// The same with plugins started otherwise: by another helper than this very program, or where
    /// the kernel lacks a part of their sandbox.
    #[must_use]
    pub fn with_runner(mut self, runner: Runner) -> Self {
        self.plugins.runner = runner;
        self
    }

    /// Why the image should not run here; none where it may.
    async fn objection(&self, image: &ResolvedImage) -> Option<String> {
        let digest = image.resolved_digest;
        let needs = match self.needs(image).await {
            Ok(Some(needs)) => needs,
            Ok(None) => return None,
            Err(why) => return Some(format!("what {digest} needs could not be found out: {why}")),
        };
        let artifact = needs.artifact;
        match self.judge(needs).await {
            Ok(None) => None,
            Ok(Some(why)) => Some(format!("{digest} ({artifact}): {why}")),
            Err(why) => Some(format!("{} could not be held to {artifact}: {why}", self.machine)),
        }
    }

    /// Why the machine does not meet the requirements; none where it does.
    async fn judge(&self, needs: Arc<Needs>) -> Result<Option<String>, String> {
        let mut ready =
            self.plugins.ready(needs.artifact, &needs.requirements, &needs.origin).await?;
        let machine = Arc::clone(&self.machine);
        let judged = tokio::task::spawn_blocking(move || {
            let judged = judge(&needs.requirements, &machine, &mut ready);
            (judged, ready)
        });
        let (judged, ready) = judged.await.map_err(|error| error.to_string())?;
        self.plugins.keep(ready);
        judged
    }

    async fn needs(&self, image: &ResolvedImage) -> Result<Option<Arc<Needs>>, String> {
        let key = image.reference().to_string();
        let known = self.remembered().get(&key).cloned();
        if let Some(known) = &known
            && known.asked.elapsed() < FRESH
        {
            return Ok(known.needs.clone());
        }
        match (self.find(image).await, known) {
            (Ok(needs), _) => {
                let mut remembered = self.remembered();
                if remembered.len() >= MAX_REMEMBERED {
                    remembered.retain(|_, one| one.asked.elapsed() < FRESH);
                }
                let bytes = |one: &Option<Arc<Needs>>| one.as_ref().map_or(0, |needs| needs.bytes);
                let all = remembered.values().map(|one| bytes(&one.needs)).sum::<usize>();
                let fits = all + bytes(&needs) <= MAX_REMEMBERED_BYTES;
                if remembered.len() < MAX_REMEMBERED && fits {
                    let asked = Instant::now();
                    remembered.insert(key, Remembered { asked, needs: needs.clone() });
                }
                Ok(needs)
            }
            (Err(why), Some(known)) => {
                tracing::warn!(image = key, why, "the image's needs are those of the last look");
                Ok(known.needs)
            }
            (Err(why), None) => Err(why),
        }
    }

    async fn find(&self, image: &ResolvedImage) -> Result<Option<Arc<Needs>>, String> {
        let place = Place::Remote(self.client.repository(&image.registry, &image.repository));
        let manifest = image.resolved_digest;
        let of = Image { top: image.index_digest.unwrap_or(manifest), manifest };
        let found = match artifact::find(&place, &of, Subject::Auto, &Which::Best).await {
            Ok(found) => found,
            Err(FindError::NoArtifact { .. }) => return Ok(None),
            Err(error) => return Err(portolan_core::causes::chain(&error)),
        };
        let read = Requirements::read(found.contents.kind, &found.spec);
        let read = read.map_err(|error| portolan_core::causes::chain(&error))?;
        let origin = Origin {
            repository: Some(found.place.to_string()),
            artifact: Some(found.digest),
            plugins: found.contents.plugins,
            place: Some(found.place),
        };
        let (artifact, requirements) = (found.digest, read.requirements);
        Ok(Some(Arc::new(Needs { artifact, requirements, origin, bytes: found.spec.len() })))
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<String, Remembered>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the machine does not meet the requirements; none where it does. It reads files, and waits
/// for plugins.
fn judge(
    requirements: &Requirements,
    machine: &Machine,
    plugins: &mut Ready,
) -> Result<Option<String>, String> {
    let question = Question::default();
    let wanted = requirements.needs(&question).map_err(|error| error.to_string())?;
    let facts = machine.facts(&wanted.and(plugins.wanted()))?;
    let report = requirements.check(&facts, &question, plugins.about(machine.plugins_root()));
    let report = report.map_err(|error| error.to_string())?;
    let said = match report.verdict {
        Compatibility::Compatible => return Ok(None),
        Compatibility::Incompatible => format!("{machine} does not meet what the image needs"),
        Compatibility::Unknown => {
            format!("it is not known whether {machine} meets what the image needs")
        }
    };
    let why: Vec<String> = report.why().take(MAX_REASONS).collect();
    Ok(Some(format!("{said}: {}", why.join("; "))))
}

impl Gate for CompatibilityGate {
    fn check<'a>(&'a self, candidate: Candidate<'a>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some(message) = self.objection(candidate.image).await else { return Ok(()) };
            if self.mode == CompatibilityMode::Enforce {
                return Err(Refusal { reason: Reason::HostIncompatible, message });
            }
            tracing::warn!(image = %candidate.image.reference(), message, "started all the same");
            Ok(())
        })
    }
}
