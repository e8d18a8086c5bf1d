//! The one image for a platform, by what its configuration really says.

use portolan_core::manifest::{Document, MAX_MANIFEST_BYTES, config_platform};
use portolan_core::{Descriptor, Manifest, Platform, Target, media_type};
use portolan_registry::client::Fetched;
use portolan_registry::images::{self, Place};

use super::StepError;

/// The reason that a BuildRun is told.
pub(crate) const MISMATCH: &str = "PlatformMismatch";

/// Something else came out than was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found} came out where {wanted} was asked for")]
pub struct PlatformMismatch {
    /// What was asked for.
    pub wanted: String,
    /// What is there.
    pub found: String,
}

/// Whether an image says that it is for the platform asked for. Only exactly that counts: an image
/// for a newer level would not run everywhere where the platform's name says it does.
pub fn same_platform(wanted: &Platform, found: Option<&Platform>) -> Result<(), PlatformMismatch> {
    let Some(found) = found else {
        return Err(PlatformMismatch {
            wanted: wanted.to_string(),
            found: "no platform".to_owned(),
        });
    };
    let (asked, said) = (wanted.normalised(), found.normalised());
    let key = |p: &Platform| (p.os.clone(), p.architecture.clone(), p.variant.clone());
    match key(&asked) == key(&said) {
        true => Ok(()),
        false => Err(PlatformMismatch { wanted: asked.to_string(), found: said.to_string() }),
    }
}

/// An image, and what it is for.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    /// Itself, as it was read.
    pub(crate) fetched: Fetched,
    /// What its configuration says; what was asked for where that says nothing.
    pub(crate) platform: Platform,
}

impl Child {
    /// What an index says of it, and nothing that another index said.
    pub(crate) fn descriptor(&self) -> Descriptor {
        let Descriptor { media_type, digest, size, .. } = &self.fetched.descriptor;
        Descriptor::new(media_type, *digest, *size)
    }
}

/// Finds the image for `wanted` in what a strategy made: the image itself, or the only one of an
/// index that is for it. Attestations, which are for no platform, are passed over.
pub(crate) async fn find(
    place: &Place,
    top: Fetched,
    wanted: &Platform,
    reason: &'static str,
) -> Result<Child, StepError> {
    let name = top.descriptor.digest;
    let mismatch = |source: PlatformMismatch| {
        StepError::of(MISMATCH, None, format!("{name} is not the image that was asked for"), source)
    };
    let fetched = match &top.document {
        Document::Manifest(_) => top,
        Document::Index(_) => {
            let candidates = images::candidates(place, &top).await.map_err(|source| {
                StepError::resolve(reason, format!("cannot look into the index {name}"), source)
            })?;
            let mut seen = Vec::new();
            let mut fitting = Vec::new();
            for (image, platform) in candidates.manifests() {
                match platform {
                    Some(platform) if platform.is_unknown() => {}
                    Some(platform) => {
                        seen.push(platform.to_string());
                        if same_platform(wanted, Some(platform)).is_ok() {
                            fitting.push(image.digest);
                        }
                    }
                    None => seen.push("no platform".to_owned()),
                }
            }
            let [one] = fitting[..] else {
                let found = match (fitting.len(), seen.is_empty()) {
                    (0, true) => "an index without an image".to_owned(),
                    (0, false) => format!("an index of {}", seen.join(", ")),
                    (many, _) => format!("an index with {many} images for it"),
                };
                return Err(mismatch(PlatformMismatch { wanted: wanted.to_string(), found }));
            };
            place
                .manifest(&Target::Digest(one))
                .await
                .map_err(|source| StepError::image(reason, format!("cannot read {one}"), source))?
        }
    };
    let Document::Manifest(manifest) = &fetched.document else {
        let what = format!("{} in the index {name} is an index itself", fetched.descriptor.digest);
        return Err(StepError::no(MISMATCH, what));
    };
    let said = platform_of(place, manifest, reason).await?;
    let platform = match said {
        // An artifact whose configuration is no image's says nothing, and is taken as asked for.
        None if !media_type::is_image_config(&manifest.config.media_type) => wanted.clone(),
        said => {
            same_platform(wanted, said.as_ref()).map_err(mismatch)?;
            said.expect("it is the same as one")
        }
    };
    Ok(Child { fetched, platform })
}

/// What an image's configuration says it is for.
async fn platform_of(
    place: &Place,
    manifest: &Manifest,
    reason: &'static str,
) -> Result<Option<Platform>, StepError> {
    if !media_type::is_image_config(&manifest.config.media_type) {
        return Ok(None);
    }
    let digest = manifest.config.digest;
    let config = place.read_blob(&manifest.config, MAX_MANIFEST_BYTES as u64).await;
    let config = config.map_err(|source| {
        StepError::image(reason, format!("cannot read the configuration {digest}"), source)
    })?;
    config_platform(&config).map_err(|source| {
        let what = format!("the configuration {digest} cannot be read");
        StepError::of(reason, Some(portolan_registry::ErrorClass::BadInput), what, source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_the_same_by_their_usual_spelling_and_never_by_half() {
        let same = |wanted: &str, found: &str| {
            let found: Platform = found.parse().unwrap();
            same_platform(&wanted.parse().unwrap(), Some(&found)).is_ok()
        };
        assert!(same("linux/arm64", "linux/aarch64/v8") && same("linux/ppcle64", "linux/ppc64le"));
        assert!(!same("linux/amd64", "linux/amd64/v3") && !same("linux/amd64", "linux/arm64"));
        let none = same_platform(&"linux/amd64".parse().unwrap(), None).unwrap_err();
        assert_eq!(none.to_string(), "no platform came out where linux/amd64 was asked for");
    }
}
