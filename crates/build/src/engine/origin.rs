//! Where the source of a run comes from, and where it is built from.

use std::path::{Path, PathBuf};

use portolan_api::build::{OciArtifactResult, SourceStatus};
use portolan_core::{Digest, LayoutReference, Reference};
use portolan_registry::client::Client;
use portolan_registry::layout::Layout;
use tokio_util::sync::CancellationToken;

use super::{EngineError, inside, time};
use crate::assemble::{AssembleImageError, Recipe};
use crate::blocking::blocking;
use crate::source::{self, Ignored, PackError, Packed};

/// Where the source of a run comes from.
#[derive(Debug, Clone)]
pub enum Origin {
    /// A directory that the recipe's is in, or is.
    Directory(PathBuf),
    /// The same, and all of it is stored beside the image.
    StoredDirectory(PathBuf),
    /// Somebody's own directory, as they would send it to a cluster: what its `.shpignore` names stays behind.
    Sent {
        /// The directory.
        root: PathBuf,
        /// Whether it is stored beside the image.
        stored: bool,
    },
    /// An artifact; the recipe's directory and Containerfile are below it.
    Artifact(Box<Reference>),
}

impl Origin {
    /// The directory that is stored beside the image.
    pub(super) fn stored(&self) -> Option<&Path> {
        match self {
            Self::StoredDirectory(root) | Self::Sent { root, stored: true } => Some(root),
            Self::Directory(_) | Self::Sent { stored: false, .. } | Self::Artifact(_) => None,
        }
    }

    /// Packs what counts of a directory, unless it is halted before.
    pub(super) fn pack(
        &self,
        root: &Path,
        layout: &Layout,
        halt: &CancellationToken,
    ) -> Result<Packed, PackError> {
        source::pack_until(root, self.ignored(root)?, layout, halt)
    }

    /// How what counts of a directory stands, without a look into its files.
    pub(super) fn seen(&self, root: &Path) -> Result<Digest, PackError> {
        source::seen(root, self.ignored(root)?)
    }

    fn ignored(&self, root: &Path) -> Result<Ignored, PackError> {
        match self {
            Self::Sent { .. } => Ignored::read(root),
            _ => Ok(Ignored::default()),
        }
    }

    /// When the newest file of a directory was changed that is not stored, in seconds since 1970.
    pub(super) fn newest(&self) -> Result<Option<i64>, PackError> {
        match self {
            Self::Directory(root) => source::newest(root).map(Some),
            Self::Sent { root, stored: false } => source::newest_upload(root).map(Some),
            _ => Ok(None),
        }
    }

    /// The recipes where their source really is. An artifact is unpacked in `work` first, and so is what is left of a
    /// directory of which something stays behind: no builder sees what a pod would not.
    pub(super) async fn recipes(
        &self,
        recipes: Vec<Recipe>,
        (staging, work): (&Layout, &Path),
        client: &Client,
        status: &mut SourceStatus,
    ) -> Result<Vec<Recipe>, EngineError> {
        let dir = work.join("source");
        match self {
            Self::Artifact(artifact) => {
                let got = source::unpack(artifact, client, work, &dir).await;
                let got = got.map_err(EngineError::Unpack)?;
                status.oci_artifact = Some(OciArtifactResult { digest: got.digest.to_string() });
                status.timestamp = time(got.newest);
                let there = |recipe: Recipe| {
                    Ok(Recipe {
                        file: recipe.file.as_ref().map(|file| inside(&dir, file)).transpose()?,
                        dir: inside(&dir, &recipe.dir)?,
                        ..recipe
                    })
                };
                recipes.into_iter().map(there).collect()
            }
            Self::Sent { root, .. } if root.join(source::IGNORE_FILE).exists() => {
                let (origin, from, to) = (self.clone(), root.clone(), staging.clone());
                let packed = blocking(move |halt| origin.pack(&from, &to, halt)).await;
                let packed = packed.map_err(|_| AssembleImageError::Panicked)?;
                let digest = Some(packed.map_err(EngineError::Pack)?.manifest.digest);
                let packed = LayoutReference { dir: staging.dir().to_owned(), tag: None, digest };
                let unpacked = source::unpack(&Reference::Layout(packed), client, work, &dir).await;
                unpacked.map_err(EngineError::Unpack)?;
                let moved = |path: &Path| moved(path, root, &dir);
                let there = |recipe: Recipe| Recipe {
                    file: recipe.file.as_deref().map(moved),
                    dir: moved(&recipe.dir),
                    ..recipe
                };
                Ok(recipes.into_iter().map(there).collect())
            }
            _ => Ok(recipes),
        }
    }
}

/// What is below `from`, below `to`; elsewhere it stays.
fn moved(path: &Path, from: &Path, to: &Path) -> PathBuf {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match whole(path).strip_prefix(whole(from)) {
        Ok(below) => to.join(below),
        Err(_) => path.to_owned(),
    }
}
