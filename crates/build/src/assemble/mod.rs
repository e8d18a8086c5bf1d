//! The embedded assembler: images from Containerfiles that run nothing. No daemon, no privilege,
//! no network beyond registries, and the same bytes on every machine.

pub(crate) mod base;
mod config;
mod copying;
mod error;
mod gzip;
mod ignore;
pub(crate) mod layer;
pub(crate) mod tree;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use portolan_core::manifest::Document;
use portolan_core::{Descriptor, Digest, Manifest, Platform, Reference, Target, media_type};
use portolan_registry::client::Client;
use portolan_registry::durable;
use portolan_registry::layout::Layout;

pub use copying::CopyingError;
pub use error::AssembleImageError;
pub use layer::LayerError;
pub use tree::TreeError;

use self::config::Config;
use self::copying::Into;
use self::ignore::Ignore;
use self::layer::{Entry, Layer};
use self::tree::{Context, Disk, Tree};
use crate::blocking::blocking;
use crate::containerfile::{self, Base, Change, Copying, From, Instruction, Stage, Stages};

/// Names that a Containerfile may have, the first one that is there counts.
pub const FILE_NAMES: [&str; 2] = ["Containerfile", "Dockerfile"];
/// Names that an ignore file may have.
const IGNORE_NAMES: [&str; 2] = [".containerignore", ".dockerignore"];

/// What is assembled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The directory that is built.
    pub dir: PathBuf,
    /// The Containerfile; none for the usual names in that directory.
    pub file: Option<PathBuf>,
    /// The stage that becomes the image; none for the last.
    pub target: Option<String>,
    /// Values for `ARG`s.
    pub args: BTreeMap<String, String>,
    /// When everything in the image says it was made: seconds since 1970.
    pub epoch: u32,
}

/// Assembles images of one recipe for many platforms.
#[derive(Debug)]
pub struct Assembler {
    recipe: Recipe,
    instructions: Vec<Instruction>,
    escape: char,
    context: Arc<Context>,
    staging: Layout,
    client: Client,
    /// Layers that were made already: platforms mostly share what comes from the directory.
    made: Mutex<HashMap<Digest, Slot<Layer>>>,
    /// What tags were when they were first asked for.
    pins: Mutex<HashMap<Reference, Slot<Digest>>>,
}

/// Something that is made once, however many wait for it.
type Slot<T> = Arc<tokio::sync::OnceCell<T>>;

/// An image in the staging layout.
#[derive(Debug, Clone)]
pub struct Assembled {
    /// Its manifest.
    pub manifest: Descriptor,
    /// What it says it runs on.
    pub platform: Platform,
    /// Configuration and layers, as they are stored.
    pub size: u64,
}

/// A stage that is done, or an image that one stands on.
struct Finished {
    layers: Vec<Layer>,
    config: Config,
    /// What it is for: that of what it stands on.
    platform: Platform,
    disk: tokio::sync::OnceCell<Arc<Disk>>,
}

impl Assembler {
    /// Reads the Containerfile and the ignore file. Images are put together in `staging`.
    pub fn new(
        recipe: Recipe,
        staging: Layout,
        client: Client,
    ) -> Result<Self, AssembleImageError> {
        let (file, bytes) = read_containerfile(&recipe)?;
        let (instructions, escape) = containerfile::parse(&bytes)
            .map_err(|source| AssembleImageError::Containerfile { file: file.clone(), source })?;
        let context = Context::new(&recipe.dir, ignore_file(&recipe.dir)?)
            .map_err(|error| AssembleImageError::Context(Box::new(error.into())))?;
        let context = Arc::new(context);
        let (made, pins) = (Mutex::default(), Mutex::default());
        Ok(Self { recipe, instructions, escape, context, staging, client, made, pins })
    }

    /// The image for one platform.
    pub async fn assemble(&self, platform: &Platform) -> Result<Assembled, AssembleImageError> {
        let at = |source| AssembleImageError::Containerfile { file: self.file(), source };
        let target = self.recipe.target.as_deref();
        let Stages { stages } = containerfile::evaluate(
            &self.instructions,
            self.escape,
            platform,
            &self.recipe.args,
            target,
        )
        .map_err(at)?;
        let mut done: Vec<Finished> = Vec::new();
        for stage in &stages {
            let finished = self.stage(stage, &done).await?;
            done.push(finished);
        }
        let image = done.pop().expect("there is a FROM");
        self.store(image)
    }

    fn file(&self) -> PathBuf {
        containerfile(&self.recipe).unwrap_or_else(|_| self.recipe.dir.clone())
    }

    async fn stage(
        &self,
        stage: &Stage,
        done: &[Finished],
    ) -> Result<Finished, AssembleImageError> {
        let created = created(self.recipe.epoch);
        let base = match &stage.base {
            Base::Scratch => None,
            Base::Image { reference, platform } => Some(self.image(reference, platform).await?),
            Base::Stage(at) => Some(done[*at].again()),
        };
        let (mut layers, mut config) = match &base {
            None => (Vec::new(), Config::scratch(created)),
            Some(base) => (base.layers.clone(), Config::on(base.config.value().clone(), created)),
        };
        let at = |source| AssembleImageError::Containerfile { file: self.file(), source };
        let mut into = Into::default();
        for (text, change) in stage.changes(&config.inherited()).map_err(at)? {
            let made = match &change {
                Change::Copy(copying) => {
                    into.base = self.target(base.as_ref()).await?;
                    let from = self.from(copying, done).await?;
                    Some(self.copy(copying, from, &mut into).await?)
                }
                Change::Workdir(dir) => {
                    into.base = self.target(base.as_ref()).await?;
                    self.workdir(dir, &mut into).await?
                }
                _ => None,
            };
            config.apply(&change);
            config.tell(&text, made.as_ref());
            layers.extend(made);
        }
        let platform = base.map_or_else(|| stage.platform().clone(), |base| base.platform);
        Ok(Finished { layers, config, platform, disk: tokio::sync::OnceCell::new() })
    }

    /// What is below what a stage adds.
    async fn target(
        &self,
        base: Option<&Finished>,
    ) -> Result<Option<Arc<Disk>>, AssembleImageError> {
        match base {
            Some(base) if !base.layers.is_empty() => Ok(Some(self.disk(base).await?)),
            _ => Ok(None),
        }
    }

    async fn from(
        &self,
        copying: &Copying,
        done: &[Finished],
    ) -> Result<Option<Tree>, AssembleImageError> {
        Ok(match &copying.from {
            From::Context => Some(Tree::Context(Arc::clone(&self.context))),
            From::Stage(at) if done[*at].layers.is_empty() => None,
            From::Stage(at) => Some(Tree::Disk(self.disk(&done[*at]).await?)),
            From::Image { reference, platform } => {
                let image = self.image(reference, platform).await?;
                Some(Tree::Disk(self.disk(&image).await?))
            }
        })
    }

    async fn copy(
        &self,
        copying: &Copying,
        from: Option<Tree>,
        into: &mut Into,
    ) -> Result<Layer, AssembleImageError> {
        let failed = |source| AssembleImageError::Copy {
            file: self.file(),
            line: copying.at.line,
            source: Box::new(source),
        };
        if from.is_none() && !copying.paths.is_empty() {
            let path = copying.paths[0].clone();
            return Err(failed(tree::TreeError::NotFound(path).into()));
        }
        let entries = copying::entries(copying, from.as_ref(), into).map_err(failed)?;
        self.layer(entries).await
    }

    /// A working directory that is not there yet is made.
    async fn workdir(
        &self,
        dir: &str,
        into: &mut Into,
    ) -> Result<Option<Layer>, AssembleImageError> {
        let mut entries = Vec::new();
        let path = dir.trim_matches('/');
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends.filter(|end| *end > 0) {
            into.directory(&path[..end], &mut entries)
                .map_err(|source| AssembleImageError::Context(Box::new(source)))?;
        }
        match entries.is_empty() {
            true => Ok(None),
            false => self.layer(entries).await.map(Some),
        }
    }

    /// A layer of these entries; the same entries are packed once.
    async fn layer(&self, mut entries: Vec<Entry>) -> Result<Layer, AssembleImageError> {
        entries.iter_mut().for_each(|entry| entry.mtime = u64::from(self.recipe.epoch));
        let slot = {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(made.entry(identity(&entries)).or_default())
        };
        let layout = self.staging.clone();
        let made = slot.get_or_try_init(|| async move {
            let written = blocking(move |halt| layer::write(&entries, &layout, halt)).await;
            let written = written.map_err(|_| AssembleImageError::Panicked)?;
            written.map_err(|source| AssembleImageError::Layer(Box::new(source)))
        });
        made.await.cloned()
    }

    /// Writes configuration and manifest.
    fn store(&self, image: Finished) -> Result<Assembled, AssembleImageError> {
        let Finished { layers, config, platform, .. } = image;
        let keep = |source| AssembleImageError::Layer(Box::new(layer::LayerError::Keep(source)));
        let bytes = config.finish(&platform);
        self.staging.put_blob(&bytes).map_err(keep)?;
        let config = Descriptor::of(media_type::OCI_CONFIG, &bytes);
        let blobs: Vec<Descriptor> = layers.into_iter().map(|layer| layer.blob).collect();
        let size = blobs.iter().map(|blob| blob.size).sum::<u64>() + config.size;
        let manifest = Manifest::new(config, blobs);
        let stored = self
            .staging
            .put_manifest(media_type::OCI_MANIFEST, &manifest.to_vec(), None)
            .map_err(keep)?;
        Ok(Assembled { manifest: stored, platform, size })
    }
}

/// What an image in a layout really says it runs on.
pub(crate) fn platform_of(
    staging: &Layout,
    manifest: &Descriptor,
) -> Result<Option<Platform>, AssembleImageError> {
    let keep = |source| AssembleImageError::Layer(Box::new(layer::LayerError::Keep(source)));
    let (_, bytes) = staging.manifest(&Target::Digest(manifest.digest)).map_err(keep)?;
    let Ok(Document::Manifest(read)) = Document::parse(&bytes, None) else { return Ok(None) };
    let (file, size) = staging.open_blob(&read.config.digest).map_err(keep)?;
    let mut config = Vec::new();
    let limit = size.min(portolan_core::manifest::MAX_MANIFEST_BYTES as u64);
    let read = std::io::Read::read_to_end(&mut std::io::Read::take(file, limit), &mut config);
    read.map_err(|source| AssembleImageError::File { path: staging.dir().to_owned(), source })?;
    Ok(portolan_core::manifest::config_platform(&config).ok().flatten())
}

/// The Containerfile of a recipe: where it is, and what it says.
pub(crate) fn read_containerfile(
    recipe: &Recipe,
) -> Result<(PathBuf, Vec<u8>), AssembleImageError> {
    let file = containerfile(recipe)?;
    let bytes = read(&file, containerfile::MAX_BYTES as u64)?;
    Ok((file, bytes))
}

impl Finished {
    /// The same for a stage that stands on it; its disk is shared where there is one.
    fn again(&self) -> Self {
        let disk = tokio::sync::OnceCell::new_with(self.disk.get().cloned());
        Self {
            layers: self.layers.clone(),
            config: self.config.clone(),
            platform: self.platform.clone(),
            disk,
        }
    }
}

/// What tells a layer from others of one run.
fn identity(entries: &[Entry]) -> Digest {
    let mut text = String::new();
    for entry in entries {
        let content = match &entry.what {
            layer::EntryKind::File { size, content } => format!("{size} {}", content.identity()),
            other => format!("{other:?}"),
        };
        let Entry { path, mode, uid, gid, mtime, xattrs, .. } = entry;
        text.push_str(&format!("{path:?} {mode} {uid} {gid} {mtime} {xattrs:?} {content}\n"));
    }
    Digest::sha256(text.as_bytes())
}

fn containerfile(recipe: &Recipe) -> Result<PathBuf, AssembleImageError> {
    if let Some(file) = &recipe.file {
        return Ok(file.clone());
    }
    let all = FILE_NAMES.map(|name| recipe.dir.join(name));
    all.into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| AssembleImageError::NoContainerfile { dir: recipe.dir.clone() })
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, AssembleImageError> {
    let read = durable::read_bounded(path, limit)
        .map_err(|source| AssembleImageError::Unreadable { path: path.to_owned(), source })?;
    read.ok_or_else(|| AssembleImageError::Missing { path: path.to_owned() })
}

fn ignore_file(dir: &Path) -> Result<Ignore, AssembleImageError> {
    for path in IGNORE_NAMES.map(|name| dir.join(name)) {
        if !path.exists() {
            continue;
        }
        let bytes = read(&path, ignore::MAX_BYTES)?;
        let bad = |what: String| AssembleImageError::Ignore { path: path.clone(), what };
        let text = String::from_utf8(bytes).map_err(|_| bad("it is not UTF-8".to_owned()))?;
        return Ignore::parse(&text).map_err(bad);
    }
    Ok(Ignore::default())
}

/// A time as configurations write it.
fn created(epoch: u32) -> String {
    jiff::Timestamp::from_second(i64::from(epoch))
        .map_or_else(|_| "1970-01-01T00:00:00Z".to_owned(), |time| time.to_string())
}
