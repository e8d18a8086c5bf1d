//! From an image to a pinned root disk: look up, else fetch, verify and build, once for all who
//! want the same.
//!
//! The order is always: pin; documents, verified; gates; disk. The pin comes first, so that
//! nothing that is found can be evicted before it is used; a disk that is cached passes every gate
//! that a new one passes.

mod build;
mod compatibility;
mod documents;
mod ensure;
mod error;
mod gate;
mod layers;
mod pin;
mod progress;
mod report;
mod verification;
mod verify;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_core::manifest::ImageConfig;
use portolan_core::{Digest, HostPlatform};
use portolan_registry::client::{Client, ClientError, CredentialStore, Settings, SettingsError};
use portolan_registry::images::Place;
use portolan_rootdisk::meta::{Metadata, ROOTDISK_FORMAT_VERSION};
use portolan_verify::policy::LoadPolicyError;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::api::Progress;
use crate::config::Config;
use crate::evict::{Marks, Urgency, bytes_to_free};
use crate::flight::Flights;
use crate::id::InstanceId;
use crate::image::ResolvedImage;
use crate::metrics::Metrics;
use crate::paths::Paths;
use crate::pins::DiskId;
use crate::pressure::{self, Pressure};
use crate::store::{self, Disk, Store};

pub use compatibility::CompatibilityGate;
pub use ensure::Purpose;
pub use error::{AcquireError, PrepareError};
pub use gate::{Candidate, Gate, PlatformGate, Refusal};
pub use verification::VerificationGate;
pub use verify::VerifyError;

use documents::Documents;
use ensure::log_outcome;
use layers::Downloads;
use pin::PinGuard;
use progress::Meters;

/// Manifests and configs fetched at a time: small as a rule, but a stranger's may be 4 MiB each.
const MAX_FETCHES: usize = 16;

/// A root disk that is there and pinned.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// What it is cached under.
    pub key: String,
    /// The manifest it was built from.
    pub resolved_digest: Digest,
    /// The rules it was built by; may be older than this agent's.
    pub format_version: String,
    /// The file, to be attached read-only.
    pub disk: PathBuf,
    /// What is kept beside it.
    pub metadata: Metadata,
    /// How the image is started.
    pub config: ImageConfig,
    /// Whether it was there already.
    pub cached: bool,
}

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The root cannot be used.
    #[error(transparent)]
    Store(#[from] store::OpenError),
    /// `registries.toml` cannot be used.
    #[error("the settings of registries cannot be used")]
    Settings(#[source] SettingsError),
    /// No client for registries.
    #[error("no connection to any registry can be made")]
    Client(#[source] ClientError),
    /// `verification.policy` cannot be used.
    #[error("images cannot be verified")]
    Policy(#[source] LoadPolicyError),
}

/// The cache and everything that fills it. Cheap to clone.
#[derive(Clone)]
pub struct Artifacts(Arc<Inner>);

struct Inner {
    store: Arc<Store>,
    config: Config,
    marks: Marks,
    client: Client,
    metrics: Arc<Metrics>,
    host: HostPlatform,
    gates: Vec<Arc<dyn Gate>>,
    /// By manifest.
    documents: Flights<Digest, Result<Arc<Documents>, Arc<PrepareError>>>,
    /// By root disk.
    disks: Flights<DiskId, Result<Disk, Arc<PrepareError>>>,
    builds: Semaphore,
    /// Manifests and configs at a time.
    fetches: Semaphore,
    downloads: Arc<Downloads>,
    meters: Meters,
}

impl fmt::Debug for Artifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Artifacts")
            .field("root", &self.0.store.paths().root())
            .finish_non_exhaustive()
    }
}

impl Artifacts {
    /// Opens the cache: locks the root against other agents, sweeps what a crash left, reads or
    /// rebuilds the database of pins.
    ///
    /// No disk is evicted before [`reconcile_pins`](Self::reconcile_pins) was called.
    pub fn open(
        config: &Config,
        metrics: Arc<Metrics>,
        host: HostPlatform,
    ) -> Result<Self, OpenError> {
        let gate = PlatformGate::new(host.clone());
        Self::open_with(config, metrics, host, vec![Arc::new(gate)])
    }

    /// The same with gates of the caller's choice before those that the configuration asks for.
    pub fn open_with(
        config: &Config,
        metrics: Arc<Metrics>,
        host: HostPlatform,
        mut gates: Vec<Arc<dyn Gate>>,
    ) -> Result<Self, OpenError> {
        let settings = match &config.registries {
            Some(path) => Settings::from_file(path),
            None => Settings::load(),
        };
        let settings = settings.map_err(OpenError::Settings)?;
        let credentials = match &config.credentials {
            Some(path) => {
                let helpers = std::env::var_os("PATH").unwrap_or_default();
                CredentialStore::from_files(None, vec![path.clone()], helpers)
            }
            None => CredentialStore::from_environment(),
        };
        let client = Client::new(settings.clone(), credentials).map_err(OpenError::Client)?;
        // Before anything else is believed that is attached to an image.
        if let Some(gate) = VerificationGate::new(config, &client).map_err(OpenError::Policy)? {
            gates.push(Arc::new(gate));
        }
        let gate = CompatibilityGate::new(config, &host.platform, &client, &settings);
        if let Some(gate) = gate.map_err(OpenError::Client)? {
            gates.push(Arc::new(gate));
        }
        let store = Arc::new(Store::open(&config.root)?);
        let artifacts = Self(Arc::new(Inner {
            store,
            marks: Marks::from(&config.cache),
            builds: Semaphore::new(config.pull.concurrency.get()),
            config: config.clone(),
            client,
            metrics,
            host,
            gates,
            documents: Flights::default(),
            disks: Flights::default(),
            fetches: Semaphore::new(MAX_FETCHES),
            downloads: Arc::default(),
            meters: Meters::default(),
        }));
        artifacts.update_metrics();
        Ok(artifacts)
    }

    /// Where everything is.
    pub fn paths(&self) -> &Paths {
        self.0.store.paths()
    }

    /// Gives an instance its root disk, pinned until [`release`](Self::release).
    ///
    /// An instance that already pins a disk of this manifest keeps that very disk, also one of an
    /// older format version: its scratch disk lies over it. One that pins another manifest's disk
    /// keeps that until this one is there. When it fails, the instance pins what it pinned before.
    ///
    /// Dropping the future is the same as cancelling it.
    pub async fn acquire(
        &self,
        instance: &InstanceId,
        image: &ResolvedImage,
        cancel: &CancellationToken,
    ) -> Result<Artifact, AcquireError> {
        let pinned = async {
            let pin = PinGuard::take(&self.0.store, instance, image.resolved_digest);
            // Should the disk of an older version be gone, this one is built and given out.
            let current = DiskId::new(image.resolved_digest, ROOTDISK_FORMAT_VERSION);
            let _current = pin::Hold::new(&self.0.store, &current);
            let (id, artifact) = self.ensure(pin.disk(), image, Purpose::Start).await?;
            if !pin.confirm(&id) {
                return Err(AcquireError::Cancelled);
            }
            self.0.metrics.pinned_rootdisks(self.pinned_count());
            Ok(artifact)
        };
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(AcquireError::Cancelled),
            outcome = pinned => outcome,
        };
        log_outcome(Some(instance), image, &outcome);
        outcome
    }

    /// Brings a root disk into the cache without pinning it; what may be done for it depends on `purpose`.
    pub async fn prefetch(
        &self,
        image: &ResolvedImage,
        purpose: Purpose,
        cancel: &CancellationToken,
    ) -> Result<Artifact, AcquireError> {
        let fetched = async {
            let id = DiskId::new(image.resolved_digest, ROOTDISK_FORMAT_VERSION);
            let _hold = pin::Hold::new(&self.0.store, &id);
            Ok(self.ensure(&id, image, purpose).await?.1)
        };
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(AcquireError::Cancelled),
            outcome = fetched => outcome,
        };
        log_outcome(None, image, &outcome);
        outcome
    }

    /// Takes an instance's pin away. What it pinned may be evicted from now on.
    pub fn release(&self, instance: &InstanceId) {
        let before = self.0.store.state().pin(instance, None);
        if let Some(disk) = before {
            self.0.store.pins_changed();
            // One that was found damaged while this instance ran from it.
            self.0.store.drop_disowned(&disk);
            tracing::info!(instance_id = %instance, resolved_digest = %disk.resolved_digest, "root disk released");
        }
        self.0.metrics.pinned_rootdisks(self.pinned_count());
    }

    /// Makes the pins those of the instances that there are: manifest and format version of each.
    /// To be called once at the start; before it no disk is evicted.
    pub fn reconcile_pins(&self, live: &[(InstanceId, Digest, String)]) {
        let live =
            live.iter().map(|(id, digest, version)| (id.clone(), DiskId::new(*digest, version)));
        self.0.store.reconcile(live);
        self.update_metrics();
    }

    /// What an instance pins: manifest and format version.
    pub fn pin_of(&self, instance: &InstanceId) -> Option<DiskId> {
        self.0.store.state().pins().of(instance).cloned()
    }

    /// Whether a manifest's disk is in the cache, in the format that is built.
    pub fn has(&self, digest: &Digest) -> bool {
        self.0.store.state().disk(&DiskId::new(*digest, ROOTDISK_FORMAT_VERSION)).is_some()
    }

    /// How far the build of a manifest's disk is; none while nobody builds it.
    pub fn progress(&self, digest: &Digest) -> Option<Progress> {
        self.0.meters.of(&DiskId::new(*digest, ROOTDISK_FORMAT_VERSION))
    }

    /// Whether there is room. Looked at anew each time, so that it recovers by itself.
    pub fn pressure(&self) -> Pressure {
        let store = &self.0.store;
        let (evictable, shortfall) = {
            let state = store.state();
            (state.evictable_bytes(), state.shortfall(Instant::now()))
        };
        pressure::assess(&store.usage(), &self.0.marks, evictable, shortfall)
    }

    /// Looks at the marks from time to time and evicts, until cancelled. The agent runs it as a
    /// task.
    pub async fn maintain(&self, cancel: &CancellationToken) {
        let mut ticks = tokio::time::interval(self.0.config.cache.check_interval.0);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let this = self.clone();
            // A panic there is told by its own message; the next round is made all the same.
            let _ = tokio::task::spawn_blocking(move || this.tidy()).await;
        }
    }

    /// Evicts down to the targets if a high-water mark is passed.
    pub fn tidy(&self) {
        let store = &self.0.store;
        let bytes = bytes_to_free(&store.usage(), &self.0.marks, 0);
        if bytes > 0 {
            let spare_since = store.young_since(self.0.config.cache.min_age.0);
            let removed = store.evict(bytes, Urgency::Tidy { spare_since }, false);
            self.count_removed(&removed);
        }
        self.update_metrics();
    }

    /// Brings the database of pins up to date; false when it could not be written. An agent that
    /// ends in order calls it, though a crash loses nothing that cannot be rebuilt.
    pub fn flush(&self) -> bool {
        self.0.store.flush()
    }

    fn pinned_count(&self) -> u64 {
        self.0.store.state().pins().pinned().len() as u64
    }
}

impl Inner {
    fn place(&self, image: &ResolvedImage) -> Place {
        Place::Remote(self.client.repository(&image.registry, &image.repository))
    }

    fn pull_timeout(&self) -> Duration {
        self.config.pull.timeout.0
    }
}
