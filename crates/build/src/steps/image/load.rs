//! What a strategy left in the output directory: an OCI layout, or one tarball.

use std::path::{Path, PathBuf};

use portolan_core::manifest::Document;
use portolan_core::{Descriptor, Index, Target, media_type};
use portolan_registry::client::Fetched;
use portolan_registry::images::Place;
use portolan_registry::layout::{Layout, LayoutError};

use super::{REASON, archive};
use crate::steps::StepError;

/// Indexes of one entry that are unwrapped at most.
const MAX_WRAPPINGS: usize = 8;

/// Reads the directory; `work` is worked in.
pub(crate) async fn directory(dir: &Path, work: &Path) -> Result<(Place, Fetched), StepError> {
    let layout = match dir.join("index.json").is_file() {
        true => open(dir)?,
        false => archive::load(&tarball(dir)?, work).await?,
    };
    let place = Place::Layout(layout.clone());
    let mut top = match layout.resolve(None) {
        Ok(descriptor) => read(&place, &descriptor).await?,
        Err(LayoutError::Ambiguous { .. }) => several(&layout)?,
        Err(source) => return Err(unreadable(dir, source)),
    };
    for _ in 0..MAX_WRAPPINGS {
        let Document::Index(index) = &top.document else { break };
        let [only] = &index.manifests[..] else { break };
        top = read(&place, &only.clone()).await?;
    }
    Ok((place, top))
}

fn open(dir: &Path) -> Result<Layout, StepError> {
    Layout::open(dir).map_err(|source| unreadable(dir, source))
}

fn unreadable(dir: &Path, source: LayoutError) -> StepError {
    let class = Some(source.class());
    StepError::of(REASON, class, format!("{} holds no image", dir.display()), source)
}

async fn read(place: &Place, descriptor: &Descriptor) -> Result<Fetched, StepError> {
    let target = Target::Digest(descriptor.digest);
    place.manifest(&target).await.map_err(|source| {
        StepError::image(REASON, format!("cannot read {}", descriptor.digest), source)
    })
}

/// Several images side by side are as good as an index of them.
fn several(layout: &Layout) -> Result<Fetched, StepError> {
    let keep = |source| unreadable(layout.dir(), source);
    let all = layout.manifests().map_err(keep)?.into_iter();
    let images = all.filter(|entry| {
        media_type::is_manifest(&entry.media_type) || media_type::is_index(&entry.media_type)
    });
    // What a layout says beside them is its own: names of tags, mostly.
    let plain = images.map(|entry| Descriptor {
        platform: entry.platform,
        ..Descriptor::new(&entry.media_type, entry.digest, entry.size)
    });
    let index = Index::new(plain.collect());
    let bytes = index.to_vec();
    let descriptor = Descriptor::of(media_type::OCI_INDEX, &bytes);
    Ok(Fetched { descriptor, bytes: bytes.into(), document: Document::Index(index) })
}

/// The only file of the directory.
fn tarball(dir: &Path) -> Result<PathBuf, StepError> {
    let nothing = |why: &str| {
        let what = format!(
            "the strategy left {why} in {}; it must hold an OCI layout or one tarball",
            dir.display()
        );
        StepError::bad(REASON, what)
    };
    let entries = std::fs::read_dir(dir).map_err(|source| {
        StepError::local(REASON, format!("cannot read {}", dir.display()), source)
    })?;
    let mut found = None;
    for entry in entries.flatten() {
        let regular = entry.file_type().is_ok_and(|kind| kind.is_file());
        match (regular, &found) {
            (false, _) => {}
            (true, None) => found = Some(entry.path()),
            (true, Some(_)) => return Err(nothing("several files")),
        }
    }
    found.ok_or_else(|| nothing("nothing"))
}
