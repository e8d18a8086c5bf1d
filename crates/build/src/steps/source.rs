//! `source-push`, `source-pull` and `source-prune`: source on its way to every platform.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use portolan_core::{Digest, LayoutReference, Reference, Target};
use portolan_registry::client::Client;
use portolan_registry::copy::{CopyOptions, copy};
use portolan_registry::images::{self, Place};
use portolan_registry::layout::Layout;
use portolan_registry::progress::Silent;

use super::StepError;
use super::index::there_already;
use crate::source::{self, PackError, Unpacked};
use crate::workshop::Workshop;

const PUSH: &str = "SourcePushFailed";
const PULL: &str = "SourcePullFailed";

/// What was pushed.
#[derive(Debug)]
pub struct PushedSource {
    /// Its digest.
    pub digest: Digest,
    /// When it was last changed.
    pub newest: i64,
    /// Sockets that are not part of it.
    pub skipped: Vec<PathBuf>,
}

/// A directory of its own to work in, gone with the value.
pub(crate) fn workshop(temp: &Path, reason: &'static str) -> Result<Workshop, StepError> {
    Workshop::new(temp).map_err(|source| {
        let what = format!("cannot make a directory in {}", temp.display());
        StepError::local(reason, what, source)
    })
}

/// Packs `dir` and stores it; the same again writes nothing.
pub async fn push(
    dir: &Path,
    image: &Reference,
    client: &Client,
    temp: &Path,
) -> Result<PushedSource, StepError> {
    let work = workshop(temp, PUSH)?;
    let (from, staged) = (dir.to_owned(), work.path().to_owned());
    let packed = tokio::task::spawn_blocking(move || {
        let layout = Layout::create_passing(&staged).map_err(PackError::Keep)?;
        source::pack(&from, &layout)
    });
    let packed = packed.await.expect("packing does not panic").map_err(|source| {
        let class = Some(source.class());
        StepError::of(PUSH, class, format!("cannot pack {}", dir.display()), source)
    })?;
    let digest = packed.manifest.digest;
    let done = PushedSource { digest, newest: packed.newest, skipped: packed.skipped };
    let place = Place::create(image, client)
        .map_err(|source| StepError::image(PUSH, format!("cannot open {image}"), source))?;
    if let Some(target) = images::target(image)
        && there_already(&place, &target, &digest).await
    {
        return Ok(done);
    }
    let from = LayoutReference { dir: work.path().to_owned(), tag: None, digest: Some(digest) };
    let options = CopyOptions::default();
    copy(&Reference::Layout(from), image, client, &options, Arc::new(Silent)).await.map_err(
        |source| StepError::copy(PUSH, format!("cannot push the source to {image}"), source),
    )?;
    Ok(done)
}

/// Gets an artifact into `target`, which must be empty.
pub async fn pull(
    image: &Reference,
    target: &Path,
    client: &Client,
    temp: &Path,
) -> Result<Unpacked, StepError> {
    let work = workshop(temp, PULL)?;
    source::unpack(image, client, work.path(), target).await.map_err(|source| {
        StepError::of(PULL, Some(source.class()), format!("cannot get the source {image}"), source)
    })
}

/// Deletes an artifact. That it cannot be deleted is to be told, and fails nothing: what was built
/// from it is built.
pub async fn prune(image: &Reference, client: &Client) -> Result<Digest, StepError> {
    let reason = "SourcePruneFailed";
    let failed =
        |source| StepError::image(reason, format!("{image} cannot be deleted and stays"), source);
    let place = Place::open(image, client).map_err(failed)?;
    let digest = match images::target(image) {
        Some(Target::Digest(digest)) => digest,
        target => place.resolve(target.as_ref()).await.map_err(failed)?.digest,
    };
    place.delete_manifest(&digest).await.map_err(failed)?;
    Ok(digest)
}
