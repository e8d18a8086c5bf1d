//! The local engine: source, platforms and index on this machine, and the same status document
//! that a cluster would show.

mod backend;
mod buildah;
mod error;
mod known;
mod origin;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use portolan_api::build::{
    BuildRunStatus, Executor, ExecutorKind, Failure, OciArtifactResult, OutputStatus,
    PlatformState, PlatformStatus, SourceStatus,
};
use portolan_api::condition::{Condition, Status};
use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::reason::outcome;
use portolan_core::{Descriptor, LayoutReference, Platform, Reference, causes, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::client::Client;
use portolan_registry::copy::{CopyError, CopyOptions, copy};
use portolan_registry::layout::Layout;
use portolan_registry::progress::Progress;

use crate::assemble::{Assembled, Recipe};
use crate::names::Outputs;
use crate::plan::Timestamp;
use crate::source::{self, Packed};
use crate::steps::image::{self, Changes};
use crate::steps::{index, same_platform};
use crate::workshop::Workshop;

use backend::Builder;
pub use backend::{Backend, NoBackend};
pub use error::EngineError;
use error::PlatformError;
pub use known::{Known, MadeOf, made_of};
pub use origin::Origin;

/// What is built here.
#[derive(Debug, Clone)]
pub struct Request {
    /// What is put together.
    pub recipe: Recipe,
    /// For which platforms, each once and in its usual spelling.
    pub platforms: Vec<Platform>,
    /// What is different for some of them.
    pub own: Vec<Own>,
    /// Where it goes.
    pub outputs: Outputs,
    /// Labels of every image.
    pub labels: BTreeMap<String, String>,
    /// Annotations of every image and of the index.
    pub annotations: BTreeMap<String, String>,
    /// When every image says it was made; files in it keep the time of the recipe.
    pub timestamp: Timestamp,
    /// So many platforms at a time.
    pub jobs: NonZeroUsize,
    /// Where the source comes from.
    pub origin: Origin,
    /// What is known of the source before it is looked at, such as the commit.
    pub known: SourceStatus,
    /// Who puts the images together.
    pub backend: Backend,
}

/// What is different for one platform.
#[derive(Debug, Clone)]
pub struct Own {
    /// Which.
    pub platform: Platform,
    /// The ImagePlatform that says so.
    pub image_platform: Option<String>,
    /// What is put together for it.
    pub recipe: Recipe,
}

impl Request {
    fn own(&self, platform: &Platform) -> Option<&Own> {
        self.own.iter().find(|own| own.platform == *platform)
    }

    /// What is put together, each recipe once, and for each platform which of them.
    fn recipes(&self) -> (Vec<Recipe>, Vec<usize>) {
        let mut recipes: Vec<Recipe> = Vec::new();
        let which = self.platforms.iter().map(|platform| {
            let recipe = self.own(platform).map_or(&self.recipe, |own| &own.recipe);
            recipes.iter().position(|known| known == recipe).unwrap_or_else(|| {
                recipes.push(recipe.clone());
                recipes.len() - 1
            })
        });
        let which = which.collect();
        (recipes, which)
    }
}

/// What happens while it is built.
pub trait Watch: Send + Sync {
    /// The source is stored.
    fn source(&self, _image: &Reference, _digest: &str) {}
    /// A platform begins.
    fn began(&self, _platform: &Platform) {}
    /// A platform is in the registry.
    fn stored(&self, _platform: &Platform, _image: &Reference, _digest: &str) {}
    /// A platform failed.
    fn failed(&self, _platform: &Platform, _why: &str) {}
    /// Something that is not in the source artifact.
    fn skipped(&self, _name: &Path) {}
}

/// A run that came to its end, well or not.
#[derive(Debug)]
pub struct Outcome {
    /// As a cluster would show it.
    pub status: BuildRunStatus,
    /// Whether everything is there.
    pub succeeded: bool,
    /// Of the first platform that failed: what kind of trouble; none for the answer "no".
    pub class: Option<ErrorClass>,
}

/// What a run works with.
struct Run<'a> {
    request: &'a Request,
    changes: Changes,
    staging: Layout,
    client: &'a Client,
    progress: &'a Arc<dyn Progress>,
    watch: &'a dyn Watch,
}

/// Builds for every platform, and publishes the index only when all of them are there.
///
/// Images are put together in a directory of their own in `temp`. `now` tells the time for the status document; nothing of it goes into an image.
pub async fn run(
    request: &Request,
    temp: &Path,
    client: &Client,
    progress: &Arc<dyn Progress>,
    watch: &dyn Watch,
    now: impl Fn() -> Time,
) -> Result<Outcome, EngineError> {
    let began = now();
    // Gone when this returns, however it returns.
    let staged = Workshop::new(temp)
        .map_err(|source| EngineError::Staging { path: temp.to_owned(), source })?;
    let staging = Layout::create_passing(staged.path())?;
    let mut run = Run { request, changes: Changes::default(), staging, client, progress, watch };
    let mut source = request.known.clone();
    let places = (&run.staging, staged.path());
    let (recipes, which) = request.recipes();
    let (recipes, packed) = request.origin.recipes(recipes, places, client, &mut source).await?;
    let builder = |recipe| {
        let (staging, client) = (run.staging.clone(), client.clone());
        Builder::new(request.backend, recipe, staging, client, staged.path())
    };
    let builders = recipes.into_iter().map(builder).collect::<Result<Vec<_>, _>>()?;
    if let Some(root) = request.origin.stored() {
        run.store(root, packed, &mut source).await?;
    }
    run.changes = run.changes(&source)?;
    let built: Vec<Result<Assembled, PlatformError>> =
        stream::iter(request.platforms.iter().zip(which))
            .map(|(platform, which)| run.platform(&builders[which], platform))
            .buffered(request.jobs.get())
            .collect()
            .await;
    let failed: Vec<(&Platform, &PlatformError)> = request
        .platforms
        .iter()
        .zip(&built)
        .filter_map(|(platform, built)| Some((platform, built.as_ref().err()?)))
        .collect();
    let digest = match failed.is_empty() {
        true => Some(run.index(built.iter().flatten()).await?.digest.to_string()),
        false => None,
    };
    let rows =
        request.platforms.iter().zip(&built).map(|(platform, built)| run.row(platform, built));
    let output = OutputStatus { digest, platforms: rows.collect(), ..OutputStatus::default() };
    let status = BuildRunStatus {
        conditions: vec![condition(&failed, now())],
        start_time: Some(began),
        completion_time: Some(now()),
        executor: Some(executor()),
        source: (source != SourceStatus::default()).then_some(source),
        output: Some(output),
        ..BuildRunStatus::default()
    };
    let class = failed.first().and_then(|(_, error)| error.class());
    Ok(Outcome { status, succeeded: failed.is_empty(), class })
}

/// The status of a run that was given up because its time was over. What its platforms had come to by then nobody knows.
pub fn out_of_time(began: Time, ended: Time, message: String) -> BuildRunStatus {
    let condition = Condition {
        kind: "Succeeded".to_owned(),
        status: Status::False,
        reason: outcome::TIMEOUT.to_owned(),
        message,
        last_transition_time: Some(ended.clone()),
        observed_generation: None,
    };
    BuildRunStatus {
        conditions: vec![condition],
        start_time: Some(began),
        completion_time: Some(ended),
        executor: Some(executor()),
        ..BuildRunStatus::default()
    }
}

fn executor() -> Executor {
    Executor { name: "portolan".to_owned(), kind: ExecutorKind::Local }
}

/// Where a name in a source really is: one that leads out through a link is refused, and one that is
/// not there is left to whoever reads it.
pub fn inside(source: &Path, path: &Path) -> Result<PathBuf, EngineError> {
    match source::beneath::resolve(source, path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(source.join(path)),
        found => found.map_err(|source| EngineError::Outside(path.to_owned(), source)),
    }
}

/// What a run came to, in a sentence that names every platform that failed.
fn condition(failed: &[(&Platform, &PlatformError)], at: Time) -> Condition {
    let (status, reason, message) = match failed.is_empty() {
        true => {
            let message = "All platforms and the index are in the registry.";
            (Status::True, "Succeeded", message.to_owned())
        }
        false => {
            let told = failed
                .iter()
                .map(|(platform, error)| format!("{platform}: {}", causes::chain(*error)));
            let told = told.collect::<Vec<_>>().join("; ");
            (Status::False, "Failed", format!("no index was published; failed: {told}"))
        }
    };
    Condition {
        kind: "Succeeded".to_owned(),
        status,
        reason: reason.to_owned(),
        message,
        last_transition_time: Some(at),
        observed_generation: None,
    }
}

impl Run<'_> {
    /// Something of the staging layout to its place.
    async fn push(&self, what: &Descriptor, to: &Reference) -> Result<(), Box<CopyError>> {
        let dir = self.staging.dir().to_owned();
        let from = LayoutReference { dir, tag: None, digest: Some(what.digest) };
        let options = CopyOptions::default();
        let progress = Arc::clone(self.progress);
        let copied = copy(&Reference::Layout(from), to, self.client, &options, progress).await;
        copied.map(drop).map_err(Box::new)
    }

    /// Stores the whole source beside the image, as phase one of a cluster does.
    async fn store(
        &self,
        root: &Path,
        packed: Option<Packed>,
        source: &mut SourceStatus,
    ) -> Result<(), EngineError> {
        let packed = match packed {
            Some(packed) => packed,
            None => self.request.origin.packed(root, &self.staging).await?,
        };
        packed.skipped.iter().for_each(|name| self.watch.skipped(name));
        let image = self.request.outputs.source();
        let pushed = self.push(&packed.manifest, &image).await;
        pushed.map_err(|source| EngineError::Push { image: image.to_string(), source })?;
        let digest = packed.manifest.digest.to_string();
        self.watch.source(&image, &digest);
        source.oci_artifact = Some(OciArtifactResult { digest });
        source.timestamp = source.timestamp.take().or_else(|| time(packed.newest));
        Ok(())
    }

    /// What is put into every image once it is built: in a cluster no strategy does that, so none does here.
    fn changes(&self, source: &SourceStatus) -> Result<Changes, EngineError> {
        let timestamp = match (self.request.timestamp, &source.timestamp) {
            (Timestamp::Untouched, _) => None,
            (Timestamp::At(seconds), _) => Some(seconds),
            (Timestamp::Source, Some(time)) => Some(time.0.as_second()),
            (Timestamp::Source, None) => self.request.origin.newest().map_err(EngineError::Pack)?,
        };
        let (labels, annotations) = (self.request.labels.clone(), self.request.annotations.clone());
        Ok(Changes { annotations, labels, timestamp })
    }

    async fn platform(
        &self,
        builder: &Builder,
        platform: &Platform,
    ) -> Result<Assembled, PlatformError> {
        self.watch.began(platform);
        let image = self.request.outputs.platform(platform);
        let built = self.build(builder, platform, &image).await;
        match &built {
            Ok(built) => {
                self.watch.stored(platform, &image, &built.manifest.digest.to_string());
            }
            Err(error) => self.watch.failed(platform, &causes::chain(error)),
        }
        built
    }

    async fn build(
        &self,
        builder: &Builder,
        platform: &Platform,
        image: &Reference,
    ) -> Result<Assembled, PlatformError> {
        let built = builder.build(platform).await?;
        // What the image itself says counts, not what was asked for.
        let found = builder.platform_of(&self.staging, &built.manifest)?;
        same_platform(platform, found.as_ref())?;
        let changed = image::change(&self.staging, &built.manifest.digest, &self.changes).await;
        let (manifest, size) = changed.map_err(PlatformError::Change)?;
        let built = Assembled { manifest, size: size.unwrap_or(built.size), ..built };
        let pushed = self.push(&built.manifest, image).await;
        pushed.map_err(|source| PlatformError::Push { image: image.to_string(), source })?;
        Ok(built)
    }

    fn row(&self, platform: &Platform, built: &Result<Assembled, PlatformError>) -> PlatformStatus {
        let mut row = PlatformStatus {
            os: platform.os.clone(),
            arch: platform.architecture.clone(),
            variant: platform.variant.clone(),
            image_platform: self.request.own(platform).and_then(|own| own.image_platform.clone()),
            image: self.request.outputs.platform(platform).to_string(),
            digest: None,
            size: None,
            vulnerabilities: Vec::new(),
            state: PlatformState::Failed,
            task_run: None,
            failure: None,
        };
        match built {
            Ok(built) => {
                row.state = PlatformState::Succeeded;
                row.digest = Some(built.manifest.digest.to_string());
                row.size = i64::try_from(built.size).ok();
            }
            Err(error) => {
                row.failure = Some(Failure {
                    reason: Some(error.reason().to_owned()),
                    message: Some(causes::chain(error)),
                    location: None,
                });
            }
        }
        row
    }

    /// Puts the index together and publishes it under the tag.
    async fn index(
        &self,
        built: impl Iterator<Item = &Assembled>,
    ) -> Result<Descriptor, EngineError> {
        let images = built.map(|built| (built.manifest.clone(), built.platform.clone())).collect();
        let annotations = self.request.annotations.clone();
        let bytes = index::document(images, annotations).map_err(EngineError::Index)?;
        let stored = self.staging.put_manifest(media_type::OCI_INDEX, &bytes, None)?;
        let image = self.request.outputs.index();
        let pushed = self.push(&stored, image).await;
        pushed.map_err(|source| EngineError::Push { image: image.to_string(), source })?;
        Ok(stored)
    }
}

fn time(seconds: i64) -> Option<Time> {
    portolan_api::k8s_openapi::jiff::Timestamp::from_second(seconds).ok().map(Time)
}
