//! `assemble`: the embedded assembler as a strategy. What it leaves is what the local engine would
//! push, byte for byte.

use std::path::Path;

use portolan_core::{Platform, Reference, Tag};
use portolan_registry::client::{Client, CredentialStore, Settings};
use portolan_registry::layout::Layout;

use super::StepError;
use super::access::{Access, allow_insecure, client};
use super::source::workshop;
use crate::assemble::{AssembleImageError, Assembled, Assembler, Recipe};

const REASON: &str = "AssemblyFailed";

/// Puts the image of one platform together in `output`, a directory that becomes an OCI layout with
/// the tag `latest`.
pub async fn assemble(
    recipe: Recipe,
    platform: &Platform,
    output: &Path,
    temp: &Path,
    client: &Client,
) -> Result<Assembled, StepError> {
    let dir = recipe.dir.clone();
    let failed = move |source: AssembleImageError| {
        let reason = match &source {
            AssembleImageError::NoContainerfile { .. } => "DockerfileNotFound",
            AssembleImageError::Missing { .. } => "DockerfileNotFound",
            _ => REASON,
        };
        let what = format!("{} cannot be put together", dir.display());
        StepError::of(reason, source.class(), what, source)
    };
    if !recipe.dir.is_dir() {
        let what = format!("there is no directory {}", recipe.dir.display());
        return Err(StepError::new("ContextDirNotFound", 4, what));
    }
    // What is put together in between is not for the strategy's output.
    let work = workshop(temp, REASON)?;
    let keep = |source| StepError::local(REASON, "the image cannot be kept", source);
    let staging = Layout::create_passing(work.path()).map_err(keep)?;
    let assembler = Assembler::new(recipe, staging.clone(), client.clone()).map_err(&failed)?;
    let built = assembler.assemble(platform).await.map_err(&failed)?;
    let there = Layout::create(output).map_err(keep)?;
    super::image::take_over(&staging, &built.manifest.digest, &there, Some(&Tag::latest()))?;
    Ok(built)
}

/// A client for base images: whoever may be reached insecurely is named.
pub async fn base_client(
    insecure: &[portolan_core::Host],
    secret: Option<(&Reference, &Path)>,
    mut settings: Settings,
) -> Result<Client, StepError> {
    for host in insecure {
        allow_insecure(host, &mut settings).await?;
    }
    match secret {
        Some((image, path)) => {
            let access = Access { secret: Some(path.to_owned()), insecure: false };
            client(image, &access, settings).await
        }
        None => Client::new(settings, CredentialStore::from_environment()).map_err(|source| {
            let class = Some(source.class());
            StepError::of("RegistryNotUsable", class, "cannot open registries", source)
        }),
    }
}
