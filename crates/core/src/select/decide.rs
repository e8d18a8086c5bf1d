//! The two decisions over a set of candidates.

use std::cmp::Reverse;

use super::candidates::{Candidates, Entry, State};
use super::report::{Considered, NoMatch, Outcome, Selection};
use crate::manifest::{Descriptor, media_type};
use crate::platform::{Fit, HostPlatform, PartialPlatform, Platform, containerd, windows};

/// What BuildKit writes on the entries that hold an image's attestations.
const ATTESTATION: (&str, &str) = ("vnd.docker.reference.type", "attestation-manifest");

/// The one manifest that `host` runs.
///
/// Native before 32-bit, then the best level, then the entry that makes use of more of the
/// host's features, on Windows the newest build, and between equals the one listed first.
/// Attestations and artifacts are never chosen, nor is anything that `host` does not satisfy.
pub fn select(candidates: &Candidates, host: &HostPlatform) -> Result<Selection, Box<NoMatch>> {
    let judged: Vec<_> = candidates.entries.iter().map(|entry| judge(entry, host)).collect();
    let best = judged
        .iter()
        .enumerate()
        .filter_map(|(position, judgement)| Some((judgement.as_ref().ok()?, Reverse(position))))
        .max()
        .map(|(fit, Reverse(position))| (*fit, position));
    let Some((best_fit, winner)) = best else {
        let considered = consider(candidates, judged, |_, _| Outcome::Chosen);
        return Err(Box::new(NoMatch { host: host.clone(), considered }));
    };
    let chosen = candidates.entries[winner].descriptor.clone();
    let by = candidates.entries[winner].platform().cloned();
    let considered = consider(candidates, judged, |position, fit| match by {
        _ if position == winner => Outcome::Chosen,
        Some(ref by) if fit < best_fit => Outcome::Outranked { by: by.clone() },
        _ => Outcome::ListedLater { after: chosen.digest },
    });
    Ok(Selection { host: host.clone(), platform: by, chosen, considered })
}

/// Every entry that some runtime on `host` might run, in the order of the index: any variant of
/// its architecture, the 32-bit architecture beside it, whatever containerd falls back to, and
/// what could not be looked into. A superset of what [`select`] chooses.
///
/// Artifacts and attestations count if they claim a fitting platform: runtimes do not look at
/// `artifactType`, so the word must not hide an entry from verification. An entry that names half a
/// platform counts by that half, and by its config besides: containerd takes the empty half for its
/// own and never reads the config there. An entry whose media type nobody knows counts like any
/// other: CRI-O chooses by platform alone, and takes one without a platform where nothing else fits.
/// A nested index that was not opened is returned itself, because anything may be in it.
pub fn may_run<'a>(candidates: &'a Candidates, host: &HostPlatform) -> Vec<&'a Descriptor> {
    let wanted = PartialPlatform::from(&host.platform);
    may_run_on(candidates, &wanted).into_iter().map(|(descriptor, _)| descriptor).collect()
}

/// [`may_run`] for machines of which only a part is known: whatever is not said may be anything.
/// With each entry comes what it runs on, as far as that is known.
pub fn may_run_on<'a>(
    candidates: &'a Candidates,
    wanted: &PartialPlatform,
) -> Vec<(&'a Descriptor, Option<&'a Platform>)> {
    let might = |entry: &&Entry| match &entry.state {
        State::For(platform) => {
            let listed = entry.descriptor.platform.as_ref();
            runs_somewhere(wanted, platform)
                || listed.is_some_and(|half| runs_as_listed(wanted, half))
        }
        State::ForNone | State::PlatformOpen => true,
        State::IndexOpen | State::TooDeep | State::TooMany => true,
        State::NotAnImage => {
            let listed = entry.descriptor.platform.as_ref();
            listed.is_none_or(|platform| runs_as_listed(wanted, platform))
        }
        State::Cycle | State::Repeated => false,
    };
    let found = candidates.entries.iter().filter(might);
    found.map(|entry| (&entry.descriptor, entry.platform())).collect()
}

/// Whether some machine that `wanted` speaks of might run `image`. The machine that is best for
/// the image is the one that has what the image says wherever nothing is known.
fn runs_somewhere(wanted: &PartialPlatform, image: &Platform) -> bool {
    if wanted.is_any() && image.is_unknown() {
        return false;
    }
    let machine = wanted.filled_from(&image.normalised());
    let fits = shares_architecture(&machine, image)
        || containerd::fallbacks(&machine).iter().any(|one| containerd::matches(one, image));
    fits && (machine.os != "windows"
        || windows::may_fit(machine.os_version.as_deref(), image.os_version.as_deref()))
}

/// The same for half a platform in an index, whose empty half may be anything.
fn runs_as_listed(wanted: &PartialPlatform, half: &Platform) -> bool {
    let machine = wanted.filled_from(&Platform::new("linux", "amd64"));
    let mut image = half.clone();
    if image.os.is_empty() {
        (image.os, image.os_version) = (machine.os, None);
    }
    if image.architecture.is_empty() {
        (image.architecture, image.variant) = (machine.architecture, None);
    }
    runs_somewhere(wanted, &image)
}

/// Under our names or under containerd's, which differ for `arm/v9`.
fn shares_architecture(host: &Platform, image: &Platform) -> bool {
    let host = host.normalised();
    let narrow = match host.architecture.as_str() {
        "amd64" => "386",
        "arm64" => "arm",
        _ => "",
    };
    [image.normalised(), containerd::normalise(image)].into_iter().any(|image| {
        image.os == host.os
            && (image.architecture == host.architecture || image.architecture == narrow)
    })
}

/// How well one entry fits, or why it has no chance.
fn judge(entry: &Entry, host: &HostPlatform) -> Result<Fit, Outcome> {
    let descriptor = &entry.descriptor;
    let platform = match &entry.state {
        State::For(platform) => platform,
        State::ForNone if is_artifact(descriptor) => return Err(artifact(descriptor)),
        State::ForNone => return Err(Outcome::NoPlatform),
        State::PlatformOpen => return Err(Outcome::PlatformNotKnown),
        State::IndexOpen => return Err(Outcome::IndexNotOpened),
        State::Cycle => return Err(Outcome::Cycle),
        State::TooDeep => return Err(Outcome::TooDeep),
        State::TooMany => return Err(Outcome::TooMany),
        State::Repeated => return Err(Outcome::Repeated),
        State::NotAnImage => {
            return Err(Outcome::NotAnImage { media_type: descriptor.media_type.clone() });
        }
    };
    let (key, value) = ATTESTATION;
    if platform.is_unknown() || descriptor.annotations.get(key).is_some_and(|v| v == value) {
        return Err(Outcome::Attestation);
    }
    if is_artifact(descriptor) {
        return Err(artifact(descriptor));
    }
    host.check(platform).map_err(Outcome::Mismatch)
}

/// An image may carry an `artifactType` too: the media type of its config.
fn is_artifact(descriptor: &Descriptor) -> bool {
    descriptor.artifact_type.as_deref().is_some_and(|t| !media_type::is_image_config(t))
}

fn artifact(descriptor: &Descriptor) -> Outcome {
    Outcome::Artifact { artifact_type: descriptor.artifact_type.clone().unwrap_or_default() }
}

/// The report: why each entry lost, or how the fitting ones compare.
fn consider(
    candidates: &Candidates,
    judged: Vec<Result<Fit, Outcome>>,
    fitting: impl Fn(usize, Fit) -> Outcome,
) -> Vec<Considered> {
    let entries = candidates.entries.iter().zip(judged).enumerate();
    entries
        .map(|(position, (entry, judgement))| Considered {
            digest: entry.descriptor.digest,
            platform: entry.platform().cloned(),
            outcome: match judgement {
                Ok(fit) => fitting(position, fit),
                Err(outcome) => outcome,
            },
        })
        .collect()
}
