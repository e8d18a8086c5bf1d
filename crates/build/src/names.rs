//! What images, tasks and objects are called, within the limits of registries and clusters.

use portolan_core::{Digest, Platform, Reference, RegistryReference, Tag};

/// The longest tag that registries take.
const MAX_TAG: usize = 128;
/// The longest value of a label, and so the longest name of what is named in labels.
pub const MAX_LABEL: usize = 63;
/// What the source artifact of an image is tagged with, behind the image's own tag.
pub const SOURCE_SUFFIX: &str = "-src";

/// Why nothing can be pushed to a reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// It does not parse.
    #[error("the output image is not a reference")]
    Reference(#[from] portolan_core::reference::ParseReferenceError),
    /// It names content, which is not known before it is built.
    #[error("the output image {0} names a digest, which nothing can be pushed to; name a tag")]
    Digest(String),
}

/// Where an image of many platforms and all that belongs to it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    index: Reference,
    tag: Tag,
    /// Where source artifacts go instead of the image's repository.
    sources: Option<RegistryReference>,
}

impl Outputs {
    /// Reads an output image; without a tag `latest` is meant.
    pub fn parse(image: &str) -> Result<Self, OutputError> {
        Self::new(image.parse()?)
    }

    /// The same of a reference that was read already.
    pub fn new(reference: Reference) -> Result<Self, OutputError> {
        if reference.digest().is_some() {
            return Err(OutputError::Digest(reference.to_string()));
        }
        let tag = reference.tag().cloned().unwrap_or_else(Tag::latest);
        Ok(Self { index: with_tag(&reference, tag.clone()), tag, sources: None })
    }

    /// The same, with source artifacts in a repository of their own, which has others' readers than the image.
    #[must_use]
    pub fn with_sources(self, repository: Option<&RegistryReference>) -> Self {
        Self { sources: repository.cloned(), ..self }
    }

    /// The index.
    pub fn index(&self) -> &Reference {
        &self.index
    }

    /// The tag of the index.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// The source artifact.
    pub fn source(&self) -> Reference {
        if let (Some(sources), Reference::Registry(image)) = (&self.sources, &self.index) {
            // Images of many repositories have the same tags.
            let image = format!("{}/{}", image.registry, image.repository);
            let tag = suffixed(&self.tag, &format!("-{}{SOURCE_SUFFIX}", short_hash(&image, 12)));
            return with_tag(&Reference::Registry(sources.clone()), tag);
        }
        with_tag(&self.index, suffixed(&self.tag, SOURCE_SUFFIX))
    }

    /// The image of one platform.
    pub fn platform(&self, platform: &Platform) -> Reference {
        with_tag(&self.index, suffixed(&self.tag, &format!("-{}", platform_suffix(platform))))
    }
}

/// A name for an image that no other run uses: what is there was put there by this one. 48 bits keep a
/// million runs of one tag apart.
pub(crate) fn of_run(image: &Reference, run: &str) -> Reference {
    let tag = image.tag().cloned().unwrap_or_else(Tag::latest);
    with_tag(image, suffixed(&tag, &format!("-run-{}", short_hash(run, 12))))
}

fn with_tag(reference: &Reference, tag: Tag) -> Reference {
    match reference.clone() {
        Reference::Registry(registry) => {
            Reference::Registry(RegistryReference { tag: Some(tag), ..registry })
        }
        Reference::Layout(mut layout) => {
            layout.tag = Some(tag);
            Reference::Layout(layout)
        }
    }
}

/// `linux-arm64` or `linux-arm-v7`. Longer than any that there is, it is cut and kept apart by digits of
/// its digest, so that it leaves room for a tag.
pub fn platform_suffix(platform: &Platform) -> String {
    let mut suffix = format!("{}-{}", platform.os, platform.architecture);
    if let Some(variant) = &platform.variant {
        suffix.push('-');
        suffix.push_str(variant);
    }
    match suffix.len() > MAX_LABEL {
        false => suffix,
        true => unique_name(&suffix, &suffix),
    }
}

/// The tag with the suffix. One that would be too long is cut, and eight digits of its digest
/// keep it apart from others that begin alike.
fn suffixed(tag: &Tag, suffix: &str) -> Tag {
    let tag = tag.as_str();
    let whole = format!("{tag}{suffix}");
    let text = match whole.len() > MAX_TAG {
        false => whole,
        true => {
            let room = MAX_TAG - suffix.len() - 9;
            format!("{}-{}{suffix}", &tag[..room.min(tag.len())], short_hash(tag, 8))
        }
    };
    text.parse().expect("a tag and letters, digits, dots and dashes make a tag")
}

/// The first `digits` hex digits of a text's digest.
pub(crate) fn short_hash(text: &str, digits: usize) -> String {
    let mut hex = Digest::sha256(text.as_bytes()).hex();
    hex.truncate(digits);
    hex
}

/// `prefix` cut so that it fits with a dash and eight digits of the digest of `unique`.
pub(crate) fn unique_name(prefix: &str, unique: &str) -> String {
    const DIGITS: usize = 8;
    let room = MAX_LABEL - DIGITS - 1;
    let cut: String = prefix.chars().take(room).collect();
    format!("{}-{}", cut.trim_end_matches(['-', '.']), short_hash(unique, DIGITS))
}

/// What the pipeline calls the task that builds a platform.
pub fn build_task(platform: &Platform) -> String {
    // Variants such as v8.1 have a dot, which names of tasks may not have.
    let name = format!("build-{}", platform_suffix(platform)).replace('.', "-");
    match name.len() > MAX_LABEL {
        false => name,
        true => unique_name(&name, &name),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outputs(image: &str) -> Outputs {
        Outputs::parse(image).unwrap_or_else(|error| panic!("{image}: {error}"))
    }

    #[test]
    fn tags_get_a_suffix_and_a_missing_tag_is_latest() {
        let arm = Platform::new("linux", "arm").with_variant("v7");
        let named = outputs("127.0.0.1:5000/team/app:1.2");
        assert_eq!(named.index().to_string(), "127.0.0.1:5000/team/app:1.2");
        assert_eq!(named.source().to_string(), "127.0.0.1:5000/team/app:1.2-src");
        assert_eq!(named.platform(&arm).to_string(), "127.0.0.1:5000/team/app:1.2-linux-arm-v7");
        let nameless = outputs("127.0.0.1:5000/app");
        assert_eq!(nameless.index().to_string(), "127.0.0.1:5000/app:latest");
        assert_eq!(nameless.source().to_string(), "127.0.0.1:5000/app:latest-src");
    }

    #[test]
    fn a_digest_is_nothing_to_push_to() {
        let digest = Digest::sha256(b"");
        for image in [format!("h.example/app@{digest}"), format!("h.example/app:1@{digest}")] {
            let error = Outputs::parse(&image).expect_err("a digest");
            assert!(error.to_string().contains("name a tag"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn names_stay_within_limits_and_apart(
            tags in proptest::collection::btree_set("[a-z0-9]{100}[a-z0-9.-]{0,27}[a-z0-9]", 2),
            os in "[a-z0-9]{1,64}", arch in "[a-z0-9]{1,64}"
        ) {
            let platform = Platform::new(&os, &arch);
            let all: Vec<String> = tags
                .iter()
                .map(|tag| outputs(&format!("h.example/app:{tag}")).platform(&platform).to_string())
                .collect();
            prop_assert_ne!(&all[0], &all[1]);
            for image in &all {
                let tag = image.rsplit_once(':').expect("a tag").1;
                prop_assert!(tag.len() <= MAX_TAG, "{}", tag);
                prop_assert!(tag.ends_with(&platform_suffix(&platform)));
            }
            prop_assert!(build_task(&Platform::new(&os, &arch)).len() <= MAX_LABEL);
            prop_assert!(unique_name(&os.repeat(3), &arch).len() <= MAX_LABEL);
        }
    }
}
