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

    /// The same, on a thread of its own.
    pub(super) async fn packed(&self, root: &Path, layout: &Layout) -> Result<Packed, EngineError> {
        let (origin, root, layout) = (self.clone(), root.to_owned(), layout.clone());
        let packed = blocking(move |halt| origin.pack(&root, &layout, halt)).await;
        packed.map_err(|_| AssembleImageError::Panicked)?.map_err(EngineError::Pack)
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
    /// directory of which something stays behind: no builder sees what a pod would not. What was packed for that is what
    /// is stored, too: the directory may be another by then.
    pub(super) async fn recipes(
        &self,
        recipes: Vec<Recipe>,
        (staging, work): (&Layout, &Path),
        client: &Client,
        status: &mut SourceStatus,
    ) -> Result<(Vec<Recipe>, Option<Packed>), EngineError> {
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
                Ok((recipes.into_iter().map(there).collect::<Result<_, EngineError>>()?, None))
            }
            Self::Sent { root, .. } if root.join(source::IGNORE_FILE).exists() => {
                let packed = self.packed(root, staging).await?;
                let digest = Some(packed.manifest.digest);
                let from = LayoutReference { dir: staging.dir().to_owned(), tag: None, digest };
                let unpacked = source::unpack(&Reference::Layout(from), client, work, &dir).await;
                unpacked.map_err(EngineError::Unpack)?;
                let moved = |path: &Path| moved(path, root, &dir);
                let there = |recipe: Recipe| Recipe {
                    file: recipe.file.as_deref().map(moved),
                    dir: moved(&recipe.dir),
                    ..recipe
                };
                Ok((recipes.into_iter().map(there).collect(), Some(packed)))
            }
            _ => Ok((recipes, None)),
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

#[cfg(test)]
mod tests {
    use portolan_registry::client::{CredentialStore, Settings};

    use super::*;

    #[tokio::test]
    async fn what_is_stored_is_what_is_built_though_a_file_is_saved_in_between() {
        let (root, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, text) in [(source::IGNORE_FILE, "secret\n"), ("a", "before"), ("secret", "")] {
            std::fs::write(root.path().join(name), text).unwrap();
        }
        let staging = Layout::create(&work.path().join("staging")).unwrap();
        let client = Client::new(Settings::default(), CredentialStore::anonymous()).unwrap();
        let dir = root.path().to_owned();
        let origin = Origin::Sent { root: dir.clone(), stored: true };
        let recipe = Recipe { dir, file: None, target: None, args: Default::default(), epoch: 0 };
        let mut status = SourceStatus::default();
        let places = (&staging, work.path());
        let made = origin.recipes(vec![recipe], places, &client, &mut status).await.unwrap();
        let (recipes, packed) = made;
        std::fs::write(root.path().join("a"), "after").unwrap();
        let digest = Some(packed.expect("it is stored as it was packed").manifest.digest);
        let stored = LayoutReference { dir: staging.dir().to_owned(), tag: None, digest };
        let there = work.path().join("there");
        source::unpack(&Reference::Layout(stored), &client, work.path(), &there).await.unwrap();
        for built in [&recipes[0].dir, &there] {
            assert_eq!(std::fs::read_to_string(built.join("a")).unwrap(), "before");
            assert!(!built.join("secret").exists());
        }
    }
}
