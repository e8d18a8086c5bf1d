//! From a reference to the one manifest that a host runs.

use portolan_core::manifest::{MAX_MANIFEST_BYTES, config_platform};
use portolan_core::platform::HostPlatform;
use portolan_core::select::{Candidates, Question, Selection, select};
use portolan_core::{Descriptor, Document, Manifest, Platform, Target, media_type};

use super::{Place, ResolveError, check_entry};
use crate::client::Fetched;

/// What a reference was, and what of it a host runs.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The index or manifest that the reference named at the moment it was resolved. From here
    /// on only digests are used.
    pub top: Descriptor,
    /// What the host runs, and why every other entry lost. When the reference named a single
    /// manifest that is the only entry, judged by what its config says it runs on.
    pub selection: Selection,
}

impl Resolved {
    /// The manifest to run.
    pub fn chosen(&self) -> &Descriptor {
        &self.selection.chosen
    }
}

/// Resolves `target` (none: the only image of a layout) to the one manifest that `host` runs.
///
/// A tag is asked for once. Nested indexes are opened and configs of entries without a platform
/// are read, to the bounds of [`portolan_core::select`].
pub async fn resolve_platform(
    place: &Place,
    target: Option<&Target>,
    host: &HostPlatform,
) -> Result<Resolved, ResolveError> {
    let top = place.fetch(target).await.map_err(ResolveError::Read)?;
    let candidates = candidates(place, &top).await?;
    let selection = select(&candidates, host)
        .map_err(|refusal| ResolveError::NoMatch { digest: top.descriptor.digest, refusal })?;
    Ok(Resolved { top: top.descriptor, selection })
}

/// Everything that could be chosen from in `top`, with all that had to be read for it: nested
/// indexes, and configs of manifests that no index gives a platform.
pub async fn candidates(place: &Place, top: &Fetched) -> Result<Candidates, ResolveError> {
    let digest = top.descriptor.digest;
    let index = match &top.document {
        Document::Index(index) => index,
        Document::Manifest(manifest) => {
            let platform = manifest_platform(place, manifest).await?;
            return Ok(Candidates::single(top.descriptor.clone(), platform));
        }
    };
    let mut candidates = Candidates::new(digest, index);
    while let Some(question) = candidates.question() {
        let (Question::Index(entry) | Question::Platform(entry)) = &question;
        let target = Target::Digest(entry.digest);
        let fetched = place.manifest(&target).await.map_err(ResolveError::Read)?;
        // What is asked follows from the type listed, so what is there is of the kind that was asked for.
        check_entry(entry, &fetched)?;
        match &fetched.document {
            Document::Index(index) => candidates.answer_index(&entry.digest, index),
            Document::Manifest(manifest) => {
                let platform = manifest_platform(place, manifest).await?;
                candidates.answer_platform(&entry.digest, platform);
            }
        }
    }
    Ok(candidates)
}

/// What the manifest's config says it runs on. The config of an artifact is not one of an image
/// and says nothing.
async fn manifest_platform(
    place: &Place,
    manifest: &Manifest,
) -> Result<Option<Platform>, ResolveError> {
    let config = &manifest.config;
    if !media_type::is_image_config(&config.media_type) {
        return Ok(None);
    }
    let limit = MAX_MANIFEST_BYTES as u64;
    let bytes = place.read_blob(config, limit).await.map_err(ResolveError::Read)?;
    config_platform(&bytes).map_err(|source| ResolveError::Config { digest: config.digest, source })
}

#[cfg(test)]
mod tests {
    use portolan_core::Index;

    use super::*;
    use crate::layout::Layout;

    /// A layout to fill and to choose from.
    struct Yard {
        _dir: tempfile::TempDir,
        layout: Layout,
    }

    impl Yard {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::create(dir.path()).unwrap();
            Self { _dir: dir, layout }
        }

        /// An image whose config names this platform; the entry names none.
        fn image(&self, platform: &str) -> Descriptor {
            let Platform { os, architecture, variant, .. } = platform.parse().unwrap();
            let config =
                serde_json::json!({"os": os, "architecture": architecture, "variant": variant});
            self.artifact(media_type::OCI_CONFIG, &config.to_string())
        }

        fn artifact(&self, config_type: &str, config: &str) -> Descriptor {
            self.layout.put_blob(config.as_bytes()).unwrap();
            let config = Descriptor::of(config_type, config.as_bytes());
            let bytes = Manifest::new(config, Vec::new()).to_vec();
            self.layout.put_blob(&bytes).unwrap();
            Descriptor::of(media_type::OCI_MANIFEST, &bytes)
        }

        fn index(&self, entries: &[Descriptor]) -> Descriptor {
            let bytes = Index::new(entries.to_vec()).to_vec();
            self.layout.put_blob(&bytes).unwrap();
            Descriptor::of(media_type::OCI_INDEX, &bytes)
        }

        async fn resolve(&self, top: &Descriptor, host: &str) -> Result<Resolved, ResolveError> {
            let place = Place::Layout(self.layout.clone());
            let host = HostPlatform::named(&host.parse().unwrap());
            resolve_platform(&place, Some(&Target::Digest(top.digest)), &host).await
        }
    }

    fn said(platform: &str, entry: Descriptor) -> Descriptor {
        Descriptor { platform: Some(platform.parse().unwrap()), ..entry }
    }

    #[tokio::test]
    async fn nested_indexes_are_opened_and_configs_read() {
        let yard = Yard::new();
        let (amd, arm) = (yard.image("linux/amd64"), yard.image("linux/arm64"));
        let riscv = yard.image("linux/riscv64");
        let inner = yard.index(&[said("linux/arm64", arm.clone()), riscv.clone()]);
        let top = yard.index(&[said("linux/amd64", amd.clone()), inner]);
        for (host, expected) in
            [("linux/amd64", &amd), ("linux/arm64", &arm), ("linux/riscv64", &riscv)]
        {
            let resolved = yard.resolve(&top, host).await.unwrap();
            assert_eq!(resolved.chosen().digest, expected.digest, "{host}");
            assert_eq!(resolved.top.digest, top.digest);
            assert_eq!(resolved.selection.considered.len(), 3);
        }
    }

    #[tokio::test]
    async fn an_answer_of_no_lists_what_there_is() {
        let yard = Yard::new();
        let top = yard
            .index(&[said("linux/amd64", yard.image("linux/amd64")), yard.image("linux/arm64")]);
        let refusal = yard.resolve(&top, "linux/s390x").await.unwrap_err();
        assert_eq!(refusal.class(), None);
        let text = std::error::Error::source(&refusal).unwrap().to_string();
        for part in ["linux/s390x", "linux/amd64", "linux/arm64"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[tokio::test]
    async fn a_single_manifest_is_held_to_its_config() {
        let yard = Yard::new();
        let arm = yard.image("linux/arm64");
        let resolved = yard.resolve(&arm, "linux/arm64").await.unwrap();
        assert_eq!(resolved.chosen().digest, arm.digest);
        assert!(matches!(
            yard.resolve(&arm, "linux/amd64").await,
            Err(ResolveError::NoMatch { .. })
        ));
    }

    #[tokio::test]
    async fn an_artifact_has_no_platform_and_its_config_is_not_taken_for_one() {
        let yard = Yard::new();
        let text = r#"{"os":"linux","architecture":"amd64"}"#;
        let artifact = yard.artifact("application/vnd.example.thing+json", text);
        let refusal = yard.resolve(&artifact, "linux/amd64").await.unwrap_err();
        assert!(matches!(refusal, ResolveError::NoMatch { .. }), "{refusal}");
    }

    #[tokio::test]
    async fn a_config_that_is_not_json_is_trouble_and_not_a_no() {
        let yard = Yard::new();
        let broken = yard.artifact(media_type::OCI_CONFIG, "not json");
        let trouble = yard.resolve(&yard.index(&[broken]), "linux/amd64").await.unwrap_err();
        assert_eq!(trouble.class(), Some(crate::ErrorClass::BadInput));
        assert!(trouble.to_string().contains("config"), "{trouble}");
    }

    #[tokio::test]
    async fn an_index_that_lies_about_its_entry_is_not_followed() {
        let yard = Yard::new();
        let inner = yard.index(&[]);
        let lie = Descriptor { media_type: media_type::OCI_MANIFEST.to_owned(), ..inner };
        let trouble = yard.resolve(&yard.index(&[lie]), "linux/amd64").await.unwrap_err();
        assert_eq!(trouble.class(), Some(crate::ErrorClass::BadInput));
    }
}
