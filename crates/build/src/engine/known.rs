//! A run that would come to what an earlier one came to, recognised by what it is made of.
//!
//! The engine gives the same bytes for the same input, so a run need not be made again while what the
//! last one stored is still there. That holds where nothing is run and nothing is taken from other
//! images: their tags may have moved. What stands on others is put together again each time.

use std::path::Path;

use portolan_api::build::{BuildRunStatus, PlatformState};
use portolan_core::{Digest, Document, Platform, Reference, Target};
use portolan_registry::client::Client;
use portolan_registry::images::{self, Place};
use portolan_registry::layout::Layout;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{Backend, EngineError, Request};
use crate::assemble::{AssembleImageError, read_containerfile};
use crate::blocking::blocking;
use crate::containerfile::{self, Kind};
use crate::names::Outputs;
use crate::steps::index::there_already;
use crate::workshop::Workshop;

/// Changes whenever the same input gives other bytes: what an older program stored is built again.
const RULES: &str = "2";

/// A run that succeeded, and what it was made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    /// Everything that decides what comes of it.
    pub made_of: Digest,
    /// What came of it.
    pub status: BuildRunStatus,
}

/// What decides what comes of a request, and how its source stood when that was found out.
#[derive(Debug, Clone)]
pub struct MadeOf {
    digest: Digest,
    seen: Digest,
}

impl MadeOf {
    /// As one digest. Where it goes is no part of it.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Whether nobody touched the source since, as closely as its file system tells times. A run
    /// reads the directory more than once: what came of it while somebody saved a file is of neither state, and under
    /// this digest nobody may find it again.
    pub async fn still_holds(&self, request: &Request) -> bool {
        let request = request.clone();
        let seen = blocking(move |_| seen(&request)).await;
        seen.is_ok_and(|seen| seen.is_ok_and(|seen| seen == Some(self.seen)))
    }
}

/// What decides what comes of a request. None where that is not known before it is
/// built: programs are run, other images are in it, platforms differ in what is put together, or the source is not a
/// directory that is stored.
pub async fn made_of(request: &Request, temp: &Path) -> Result<Option<MadeOf>, EngineError> {
    let (request, temp) = (request.clone(), temp.to_owned());
    let found = blocking(move |halt| found_out(&request, &temp, halt)).await;
    found.map_err(|_| AssembleImageError::Panicked)?
}

fn found_out(
    request: &Request,
    temp: &Path,
    halt: &CancellationToken,
) -> Result<Option<MadeOf>, EngineError> {
    let Some(root) = request.origin.stored().filter(|_| request.own.is_empty()) else {
        return Ok(None);
    };
    // Before anything is read: what is changed from here on is seen.
    let Some(seen) = seen(request)? else { return Ok(None) };
    let (_, bytes) = read_containerfile(&request.recipe)?;
    if request.backend == Backend::Buildah || !stands_alone(&bytes) {
        return Ok(None);
    }
    let staged = Workshop::new(temp)
        .map_err(|source| EngineError::Staging { path: temp.to_owned(), source })?;
    let layout = Layout::create_passing(staged.path())?;
    let packed = request.origin.pack(root, &layout, halt).map_err(EngineError::Pack)?;
    let Request { recipe, platforms, labels, annotations, timestamp, .. } = request;
    let text = format!(
        "{RULES}\n{}\n{}\n{:?} {:?} {}\n{platforms:?}\n{labels:?}\n{annotations:?}\n{timestamp:?}\n{}",
        packed.manifest.digest,
        Digest::sha256(&bytes),
        recipe.target,
        recipe.args,
        recipe.epoch,
        env!("CARGO_PKG_VERSION"),
    );
    Ok(Some(MadeOf { digest: Digest::sha256(text.as_bytes()), seen }))
}

/// How the files stand that a run reads: the source's, and the Containerfile, which may be elsewhere.
fn seen(request: &Request) -> Result<Option<Digest>, EngineError> {
    let Some(root) = request.origin.stored() else { return Ok(None) };
    let source = request.origin.seen(root).map_err(EngineError::Pack)?;
    let (file, bytes) = read_containerfile(&request.recipe)?;
    let text = format!("{source}\n{}\n{}", file.display(), Digest::sha256(&bytes));
    Ok(Some(Digest::sha256(text.as_bytes())))
}

/// Whether a Containerfile takes files from its directory alone. What cannot be read does not: who
/// builds it tells why.
fn stands_alone(bytes: &[u8]) -> bool {
    if containerfile::outline(bytes).runs {
        return false;
    }
    let Ok((instructions, _)) = containerfile::parse(bytes) else { return false };
    let mut stages: Vec<&str> = Vec::new();
    let mut count = 0_usize;
    for instruction in &instructions {
        let (from, name) = match &instruction.kind {
            Kind::From { image, name, .. } => {
                count += 1;
                (Some(image.as_str()), name.as_deref())
            }
            Kind::Copy(copy) => (copy.from.as_deref(), None),
            _ => (None, None),
        };
        let is_stage = |from: &str| {
            stages.iter().any(|stage| stage.eq_ignore_ascii_case(from))
                || from.parse::<usize>().is_ok_and(|number| number < count)
        };
        if from.is_some_and(|from| from != "scratch" && !is_stage(from)) {
            return false;
        }
        stages.extend(name);
    }
    true
}

impl Known {
    /// A run to remember; none that failed.
    pub fn of(made_of: Digest, status: &BuildRunStatus) -> Option<Self> {
        let output = status.output.as_ref()?;
        let all = output.platforms.iter().all(|row| row.state == PlatformState::Succeeded);
        (all && output.digest.is_some()).then(|| Self { made_of, status: status.clone() })
    }

    /// Whether source, images and index are at `outputs`, with all that belongs to them.
    /// What cannot be found out is not.
    pub async fn stands(&self, outputs: &Outputs, client: &Client) -> bool {
        let Some(output) = &self.status.output else { return false };
        let Ok(place) = Place::open(outputs.index(), client) else { return false };
        let source = self.status.source.as_ref().and_then(|source| source.oci_artifact.as_ref());
        let source = source.map(|source| (outputs.source(), source.digest.clone()));
        let index = output.digest.clone().map(|digest| (outputs.index().clone(), digest));
        let mut named: Vec<(Reference, String)> = source.into_iter().chain(index).collect();
        for row in &output.platforms {
            let Some(digest) = &row.digest else { return false };
            let mut platform = Platform::new(&row.os, &row.arch);
            platform.variant.clone_from(&row.variant);
            named.push((outputs.platform(&platform), digest.clone()));
        }
        for (reference, digest) in named {
            let (Some(target), Ok(digest)) = (images::target(&reference), digest.parse()) else {
                return false;
            };
            if !there_already(&place, &target, &digest).await || !whole(&place, digest).await {
                return false;
            }
        }
        true
    }
}

/// Whether nothing is missing of an image.
async fn whole(place: &Place, digest: Digest) -> bool {
    let Ok(fetched) = place.manifest(&Target::Digest(digest)).await else { return false };
    let Document::Manifest(manifest) = &fetched.document else { return true };
    for blob in manifest.layers.iter().chain([&manifest.config]) {
        if !place.has_blob(blob).await.is_ok_and(|there| there) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_nothing_from_elsewhere_is_recognised() {
        for (text, alone) in [
            ("FROM scratch\nCOPY a /a\n", true),
            ("FROM scratch AS one\nCOPY a /a\nFROM scratch\nCOPY --from=one /a /b\n", true),
            ("FROM scratch\nFROM scratch\nCOPY --from=0 /a /b\n", true),
            ("FROM scratch\nCOPY --from=7 /a /b\n", false),
            ("FROM base.example/a:1\n", false),
            ("ARG BASE=scratch\nFROM $BASE\n", false),
            ("FROM scratch\nCOPY --from=tools.example/t:1 /a /b\n", false),
            ("FROM scratch\nRUN make\n", false),
            ("COPY\n", false),
        ] {
            assert_eq!(stands_alone(text.as_bytes()), alone, "{text}");
        }
    }
}
