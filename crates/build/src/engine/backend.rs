//! Who puts images together: the embedded assembler, or buildah for what runs programs.

use std::path::{Path, PathBuf};

use portolan_core::{Descriptor, Platform};
use portolan_registry::ErrorClass;
use portolan_registry::client::Client;
use portolan_registry::layout::Layout;

use super::buildah::{Buildah, BuildahError};
use crate::assemble::{AssembleImageError, Assembled, Assembler, Recipe};
use crate::containerfile;

/// Who puts images together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The embedded assembler: no program is run.
    Assembler,
    /// The program buildah, which runs what `RUN` says.
    Buildah,
    /// The assembler where it can, and buildah where something must be run.
    #[default]
    Auto,
}

/// A strategy of a cluster that has no counterpart on one machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the strategy {name:?} cannot be carried out here: {why}; use a cluster, or one of buildah, portolan"
)]
pub struct NoBackend {
    /// Which.
    pub name: String,
    /// Why not.
    pub why: &'static str,
}

impl Backend {
    /// What stands for a strategy on one machine, by the strategy's name.
    pub fn of_strategy(name: &str) -> Result<Self, NoBackend> {
        let refuse = |why| Err(NoBackend { name: name.to_owned(), why });
        match name {
            "portolan" => Ok(Self::Assembler),
            "buildah" | "buildah-strategy-managed-push" | "buildah-shipwright-managed-push" => {
                Ok(Self::Buildah)
            }
            "kaniko" | "buildkit" => {
                refuse("it builds Containerfiles with a program that needs a container of its own")
            }
            "ko" => refuse("it builds Go modules, not Containerfiles"),
            "buildpacks" | "buildpacks-v3" => refuse("it runs a builder's image"),
            "source-to-image" => refuse("it runs a builder's image"),
            _ => refuse("nobody here knows what its steps do"),
        }
    }
}

/// A back end at work on one recipe.
#[derive(Debug)]
pub(super) enum Builder {
    Assembler(Box<Assembler>),
    Buildah(Box<Buildah>),
}

/// Why a platform's image was not built.
#[derive(Debug, thiserror::Error)]
pub(super) enum BuildError {
    #[error(transparent)]
    Assemble(#[from] AssembleImageError),
    #[error(transparent)]
    Buildah(#[from] BuildahError),
}

impl BuildError {
    pub(super) fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Assemble(source) => source.class(),
            Self::Buildah(source) => source.class(),
        }
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Assemble(_) => "AssemblyFailed",
            Self::Buildah(_) => "BuildahFailed",
        }
    }
}

impl Builder {
    /// Chooses, and reads what there is to read before platforms begin.
    pub(super) fn new(
        backend: Backend,
        recipe: Recipe,
        staging: Layout,
        client: Client,
        work: &Path,
    ) -> Result<Self, AssembleImageError> {
        let outline = containerfile::outline(&crate::assemble::read_containerfile(&recipe)?.1);
        let buildah = match backend {
            Backend::Assembler => false,
            Backend::Buildah => true,
            Backend::Auto => outline.runs,
        };
        match buildah {
            false => Ok(Self::Assembler(Box::new(Assembler::new(recipe, staging, client)?))),
            true => {
                let (file, _) = crate::assemble::read_containerfile(&recipe)?;
                let work: PathBuf = work.join("buildah");
                Ok(Self::Buildah(Box::new(Buildah::new(recipe, file, outline, staging, work))))
            }
        }
    }

    pub(super) async fn build(&self, platform: &Platform) -> Result<Assembled, BuildError> {
        match self {
            Self::Assembler(assembler) => Ok(assembler.assemble(platform).await?),
            Self::Buildah(buildah) => Ok(buildah.build(platform).await?),
        }
    }

    /// What a stored image really says it runs on.
    pub(super) fn platform_of(
        &self,
        staging: &Layout,
        manifest: &Descriptor,
    ) -> Result<Option<Platform>, BuildError> {
        Ok(crate::assemble::platform_of(staging, manifest)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_map_to_back_ends_or_are_refused_with_the_reason() {
        assert_eq!(Backend::of_strategy("portolan"), Ok(Backend::Assembler));
        assert_eq!(Backend::of_strategy("buildah"), Ok(Backend::Buildah));
        for name in ["ko", "kaniko", "buildkit", "buildpacks", "source-to-image", "ours"] {
            let told = Backend::of_strategy(name).unwrap_err().to_string();
            assert!(told.contains(name) && told.contains("buildah, portolan"), "{told}");
        }
    }
}
