//! The image of a WorkloadSpec, checked: one manifest by its digest, for one platform.

use portolan_core::digest::{Algorithm, Digest};
use portolan_core::platform::Platform;
use portolan_core::reference::{Host, RegistryReference, Repository};

use crate::spec::{ImageSpec, SpecError};

/// An image that may be fetched. There is no tag in it: nothing below can ask for one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResolvedImage {
    /// Where it is.
    pub registry: Host,
    /// The path below the host.
    pub repository: Repository,
    /// The one manifest that runs. Always sha256.
    pub resolved_digest: Digest,
    /// The index it was resolved from. Always sha256.
    pub index_digest: Option<Digest>,
    /// What the spec says it is for, normalised. Always linux.
    pub platform: Platform,
}

impl ResolvedImage {
    /// Checks what a spec says of its image.
    pub fn from_spec(spec: &ImageSpec) -> Result<Self, SpecError> {
        let resolved = spec.resolved_digest.as_deref().unwrap_or_default();
        if resolved.is_empty() {
            return Err(SpecError::ResolvedDigestMissing);
        }
        let resolved_digest = digest("image.resolved_digest", resolved)?;
        let index_digest = spec
            .index_digest
            .as_deref()
            .map(|text| digest("image.index_digest", text))
            .transpose()?;
        let reference = repository(&spec.repository)?;
        Ok(Self {
            registry: reference.registry,
            repository: reference.repository,
            resolved_digest,
            index_digest,
            platform: platform(spec)?,
        })
    }

    /// `registry/repository@digest`.
    pub fn reference(&self) -> RegistryReference {
        RegistryReference {
            registry: self.registry.clone(),
            repository: self.repository.clone(),
            tag: None,
            digest: Some(self.resolved_digest),
        }
    }
}

/// Root disks lie below `rootdisks/sha256/`, and the definitions name sha256 alone.
fn digest(field: &'static str, text: &str) -> Result<Digest, SpecError> {
    let digest: Digest = text.parse().map_err(|source| SpecError::Digest { field, source })?;
    match digest.algorithm() {
        Algorithm::Sha256 => Ok(digest),
        other => Err(SpecError::Algorithm { field, algorithm: other.as_str() }),
    }
}

fn repository(text: &str) -> Result<RegistryReference, SpecError> {
    let reference: RegistryReference = text.parse().map_err(SpecError::Repository)?;
    if let Some(tag) = reference.tag {
        return Err(SpecError::Tag(tag.to_string()));
    }
    if reference.digest.is_some() {
        return Err(SpecError::DigestInRepository);
    }
    Ok(reference)
}

fn platform(spec: &ImageSpec) -> Result<Platform, SpecError> {
    let mut parts = vec![spec.os.as_str(), spec.arch.as_str()];
    parts.extend(spec.variant.as_deref());
    // The parts are joined and read as one text, so that core alone says what a platform is; a
    // slash would move the border between two of them, and an empty one would be left out.
    if parts.iter().any(|part| part.is_empty() || part.contains('/')) {
        return Err(SpecError::PlatformPart);
    }
    let platform: Platform = parts.join("/").parse().map_err(SpecError::Platform)?;
    let platform = platform.normalised();
    if platform.os != "linux" {
        return Err(SpecError::Os(platform.os));
    }
    Ok(platform)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;

    const HEX: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn spec() -> ImageSpec {
        ImageSpec {
            repository: "registry.example:5000/team/app".to_owned(),
            index_digest: None,
            resolved_digest: Some(format!("sha256:{HEX}")),
            os: "linux".to_owned(),
            arch: "amd64".to_owned(),
            variant: None,
        }
    }

    fn refused(change: impl FnOnce(&mut ImageSpec)) -> (Reason, String) {
        let mut spec = spec();
        change(&mut spec);
        let error = ResolvedImage::from_spec(&spec).unwrap_err();
        (error.reason(), error.to_string())
    }

    #[test]
    fn an_image_is_a_place_a_digest_and_a_platform() {
        let image = ResolvedImage::from_spec(&spec()).unwrap();
        assert_eq!(
            image.reference().to_string(),
            format!("registry.example:5000/team/app@sha256:{HEX}")
        );
        assert_eq!(image.platform, Platform::new("linux", "amd64"));
        assert_eq!(image.index_digest, None);
        let other = ImageSpec {
            arch: "aarch64".to_owned(),
            index_digest: Some(format!("sha256:{HEX}")),
            ..spec()
        };
        let image = ResolvedImage::from_spec(&other).unwrap();
        assert_eq!(image.platform.architecture, "arm64");
        assert_eq!(image.index_digest, Some(image.resolved_digest));
    }

    #[test]
    fn an_absent_resolved_digest_has_a_reason_of_its_own() {
        for absent in [None, Some(String::new())] {
            let (reason, text) = refused(|s| s.resolved_digest = absent);
            assert_eq!(reason, Reason::ResolvedDigestMissing);
            assert!(text.contains("control plane"), "{text}");
        }
        // Even where a tag or an index digest would have told which image is meant.
        let (reason, _) = refused(|s| {
            s.repository.push_str(":latest");
            s.index_digest = s.resolved_digest.take();
        });
        assert_eq!(reason, Reason::ResolvedDigestMissing);
    }

    #[test]
    fn a_tag_or_a_digest_in_the_repository_is_refused() {
        let (reason, text) = refused(|s| s.repository.push_str(":v1"));
        assert_eq!(reason, Reason::InvalidSpec);
        assert!(text.contains("v1"), "{text}");
        let (reason, text) = refused(|s| s.repository.push_str(&format!("@sha256:{HEX}")));
        assert_eq!(reason, Reason::InvalidSpec);
        assert!(text.contains("resolved_digest"), "{text}");
        assert_eq!(refused(|s| s.repository = "oci:some/dir".to_owned()).0, Reason::InvalidSpec);
        assert_eq!(refused(|s| s.repository = "../../etc".to_owned()).0, Reason::InvalidSpec);
        assert_eq!(refused(|s| s.repository.clear()).0, Reason::InvalidSpec);
    }

    #[test]
    fn digests_are_sha256_and_exact() {
        for bad in ["latest", "sha256:", "sha256:12", &format!("SHA256:{HEX}"), HEX] {
            let (reason, text) = refused(|s| s.resolved_digest = Some(bad.to_owned()));
            assert_eq!(reason, Reason::InvalidSpec, "{bad}");
            assert!(text.contains("image.resolved_digest"), "{text}");
        }
        let sha512 = format!("sha512:{HEX}{HEX}");
        let (_, text) = refused(|s| s.resolved_digest = Some(sha512.clone()));
        assert!(text.contains("sha512"), "{text}");
        let (_, text) = refused(|s| s.index_digest = Some(sha512));
        assert!(text.contains("image.index_digest"), "{text}");
    }

    #[test]
    fn the_platform_is_complete_and_linux() {
        assert_eq!(refused(|s| s.os = "windows".to_owned()).0, Reason::PlatformMismatch);
        for change in [
            (|s: &mut ImageSpec| s.os.clear()) as fn(&mut ImageSpec),
            |s| s.arch.clear(),
            |s| s.variant = Some(String::new()),
            |s| s.os = "linux/amd64".to_owned(),
            |s| s.arch = "amd64/v3".to_owned(),
            |s| s.arch = "*".to_owned(),
        ] {
            assert_eq!(refused(change).0, Reason::InvalidSpec);
        }
    }
}
