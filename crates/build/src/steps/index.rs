//! `index-assemble`: the images of all platforms become one index, or nothing is published.

use std::collections::BTreeMap;

use portolan_core::{Descriptor, Digest, Platform, Reference, Target, media_type};
use portolan_registry::client::Client;
use portolan_registry::images::{self, Place};

use super::{StepError, child};

const REASON: &str = "ImageIndexAssemblyFailed";
const SOURCES: &str = "SourceMismatch";
/// So many platforms.
pub const MAX_PLATFORMS: usize = 256;

/// `PLATFORM=DIGEST`, as Tekton passes results on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Which.
    pub platform: Platform,
    /// What its task said.
    pub digest: Digest,
}

impl std::str::FromStr for Said {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (platform, digest) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is not PLATFORM=DIGEST"))?;
        let platform =
            platform.parse().map_err(|error| format!("{platform:?} is no platform: {error}"))?;
        if digest.trim().is_empty() {
            return Err(format!("{text:?} has no digest: the task of that platform told none"));
        }
        let digest =
            digest.trim().parse().map_err(|error| format!("{digest:?} is no digest: {error}"))?;
        Ok(Self { platform, digest })
    }
}

/// What is put together.
#[derive(Debug, Clone)]
pub struct Assembly {
    /// Where the index goes; the images are in the same repository.
    pub image: Reference,
    /// The image of each platform, in the order of the index.
    pub platforms: Vec<Said>,
    /// The source that each platform was built from, where each pulled it by itself.
    pub sources: Vec<Said>,
    /// Annotations of the index.
    pub annotations: BTreeMap<String, String>,
}

/// Checks every image and publishes the index; done already, nothing is written.
pub async fn assemble(request: &Assembly, client: &Client) -> Result<Descriptor, StepError> {
    sources_agree(&request.sources)?;
    if request.platforms.is_empty() || request.platforms.len() > MAX_PLATFORMS {
        let what = format!("an index has 1 to {MAX_PLATFORMS} platforms");
        return Err(StepError::bad(REASON, what));
    }
    let Some(Target::Tag(tag)) = images::target(&request.image) else {
        let what = format!("{} names no tag that an index could get", request.image);
        return Err(StepError::bad(REASON, what));
    };
    let place = Place::open(&request.image, client).map_err(|source| {
        StepError::image(REASON, format!("cannot open {}", request.image), source)
    })?;
    let mut found = Vec::with_capacity(request.platforms.len());
    for Said { platform, digest } in &request.platforms {
        let fetched = place.manifest(&Target::Digest(*digest)).await.map_err(|source| {
            StepError::image(
                REASON,
                format!("cannot read {digest}, the image for {platform}"),
                source,
            )
        })?;
        let child = child::find(&place, fetched, platform, REASON).await?;
        found.push((child.descriptor(), child.platform));
    }
    let bytes = document(found, request.annotations.clone()).map_err(|source| {
        let class = Some(portolan_registry::ErrorClass::BadInput);
        StepError::of(REASON, class, "the images make no index", source)
    })?;
    let index = Descriptor::of(media_type::OCI_INDEX, &bytes);
    if there_already(&place, &Target::Tag(tag.clone()), &index.digest).await {
        return Ok(index);
    }
    place.push_manifest(media_type::OCI_INDEX, bytes.into(), Some(&tag)).await.map_err(|source| {
        StepError::image(REASON, format!("cannot push the index to {}", request.image), source)
    })
}

/// The bytes of an index: what the local engine publishes, and what a cluster does.
pub(crate) fn document(
    images: Vec<(Descriptor, Platform)>,
    annotations: BTreeMap<String, String>,
) -> Result<Vec<u8>, portolan_core::assemble::AssembleError> {
    portolan_core::assemble::assemble(images, annotations).map(|index| index.to_vec())
}

/// Whether a tag is that content already: registries with tags that cannot be moved then take the
/// same run twice. What cannot be found out is not there.
pub(crate) async fn there_already(place: &Place, target: &Target, digest: &Digest) -> bool {
    place.resolve(Some(target)).await.is_ok_and(|there| there.digest == *digest)
}

fn sources_agree(sources: &[Said]) -> Result<(), StepError> {
    let Some(first) = sources.first() else { return Ok(()) };
    match sources.iter().find(|other| other.digest != first.digest) {
        None => Ok(()),
        Some(other) => Err(StepError::no(
            SOURCES,
            format!(
                "{} was built from {} and {} from {}: the source's tag moved in between; name it by digest, or run again",
                first.platform, first.digest, other.platform, other.digest
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tasks_said_is_read_and_gaps_are_told() {
        let digest = Digest::sha256(b"x");
        let said: Said = format!("linux/arm/v7={digest}\n").parse().unwrap();
        assert_eq!((said.platform.to_string().as_str(), said.digest), ("linux/arm/v7", digest));
        for (text, told) in [
            ("linux/amd64=", "told none"),
            ("linux/amd64", "not PLATFORM=DIGEST"),
            ("linux/amd64=sha256:12", "no digest"),
            ("=sha256:12", "no platform"),
        ] {
            let error = text.parse::<Said>().unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn sources_that_differ_are_named_with_their_platforms() {
        let said = |platform: &str, text: &str| Said {
            platform: platform.parse().unwrap(),
            digest: Digest::sha256(text.as_bytes()),
        };
        let same = [said("linux/amd64", "a"), said("linux/arm64", "a")];
        assert!(sources_agree(&same).is_ok() && sources_agree(&[]).is_ok());
        let error =
            sources_agree(&[said("linux/amd64", "a"), said("linux/arm64", "b")]).unwrap_err();
        assert_eq!(error.reason, "SourceMismatch");
        assert!(error.to_string().contains("linux/arm64 from"), "{error}");
    }
}
