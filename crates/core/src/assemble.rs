//! Several platform images become one index, the same bytes every time.

use std::collections::BTreeMap;

use crate::digest::Digest;
use crate::manifest::{Descriptor, Index, media_type};
use crate::platform::Platform;

/// Why these images make no index.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// Nothing was given.
    #[error("an index needs at least one image")]
    Empty,
    /// Two images are for the same platform, so no host could tell which one to run.
    #[error("{first} and {second} are both for {platform}; leave one out")]
    SamePlatform {
        /// The platform both claim.
        platform: Box<Platform>,
        /// The image named first.
        first: Digest,
        /// The image named later.
        second: Digest,
    },
    /// Something other than an image manifest.
    #[error(
        "{digest} is {media_type}, not an image manifest; name the images of an index one by one"
    )]
    NotAnImage {
        /// What was named.
        digest: Digest,
        /// What it is.
        media_type: String,
    },
}

/// Puts the images into an index in the order given, since order breaks ties between entries.
///
/// Nothing else goes in but what is passed here: no clock, no tool name, no random, so the same
/// images give the same digest on every machine.
pub fn assemble(
    images: Vec<(Descriptor, Platform)>,
    annotations: BTreeMap<String, String>,
) -> Result<Index, AssembleError> {
    if images.is_empty() {
        return Err(AssembleError::Empty);
    }
    let mut seen: BTreeMap<Platform, Digest> = BTreeMap::new();
    let mut manifests = Vec::with_capacity(images.len());
    for (image, platform) in images {
        if !media_type::is_manifest(&image.media_type) {
            let Descriptor { digest, media_type, .. } = image;
            return Err(AssembleError::NotAnImage { digest, media_type });
        }
        let platform = platform.normalised();
        if let Some(first) = seen.get(&platform) {
            let (first, second) = (*first, image.digest);
            return Err(AssembleError::SamePlatform {
                platform: Box::new(platform),
                first,
                second,
            });
        }
        seen.insert(platform.clone(), image.digest);
        manifests.push(Descriptor { platform: Some(platform), ..image });
    }
    Ok(Index { annotations, ..Index::new(manifests) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(content: &str, platform: &str) -> (Descriptor, Platform) {
        let descriptor = Descriptor::of(media_type::OCI_MANIFEST, content.as_bytes());
        (descriptor, platform.parse().unwrap())
    }

    #[test]
    fn the_same_images_give_the_same_bytes_in_the_order_given() {
        let make = |order: [&str; 2]| {
            let images = order.iter().map(|p| image(p, p)).collect();
            let annotations = BTreeMap::from([("b".into(), "2".into()), ("a".into(), "1".into())]);
            serde_json::to_vec(&assemble(images, annotations).unwrap()).unwrap()
        };
        assert_eq!(make(["linux/amd64", "linux/arm64"]), make(["linux/amd64", "linux/arm64"]));
        assert_ne!(make(["linux/amd64", "linux/arm64"]), make(["linux/arm64", "linux/amd64"]));
    }

    #[test]
    fn platforms_are_written_normalised() {
        let index = assemble(vec![image("a", "Linux/x86_64")], BTreeMap::new()).unwrap();
        assert_eq!(index.manifests[0].platform.as_ref().unwrap().to_string(), "linux/amd64");
    }

    #[test]
    fn two_images_for_one_platform_are_refused_however_it_is_spelt() {
        let images = vec![image("a", "linux/arm64"), image("b", "linux/aarch64/v8")];
        let message = assemble(images, BTreeMap::new()).unwrap_err().to_string();
        assert!(message.contains("both for linux/arm64"), "{message}");
    }

    #[test]
    fn levels_of_one_architecture_are_different_platforms() {
        let images = vec![image("a", "linux/amd64"), image("b", "linux/amd64/v3")];
        assert_eq!(assemble(images, BTreeMap::new()).unwrap().manifests.len(), 2);
    }

    #[test]
    fn an_index_inside_an_index_is_refused() {
        let mut images = vec![image("a", "linux/arm64")];
        images[0].0.media_type = media_type::OCI_INDEX.to_owned();
        assert!(matches!(assemble(images, BTreeMap::new()), Err(AssembleError::NotAnImage { .. })));
        assert_eq!(assemble(Vec::new(), BTreeMap::new()), Err(AssembleError::Empty));
    }
}
