//! A spec, read: what cannot be meant is told before anybody is asked.

use portolan_api::release::ReleaseSpec;
use portolan_core::platform::{ParsePlatformError, PartialPlatform};
use portolan_core::reference::ParseReferenceError;
use portolan_core::{Platform, Reference, RegistryReference, Target};
use portolan_verify::subjects::Wanted;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The image.
    pub reference: RegistryReference,
    /// For what; all that the image has where there is nothing.
    pub platforms: Vec<Platform>,
}

/// Why a spec cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No image.
    #[error("spec.image does not name an image")]
    Image(#[source] ParseReferenceError),
    /// A directory of somebody's machine.
    #[error("spec.image names a directory; push it to a registry, so that others can have it")]
    Layout,
    /// No platform.
    #[error("spec.platforms names no platform with {text:?}")]
    Platform {
        /// As it was written.
        text: String,
        /// Why.
        #[source]
        source: ParsePlatformError,
    },
}

impl Request {
    /// Reads a spec.
    pub fn of(spec: &ReleaseSpec) -> Result<Self, RequestError> {
        let reference = match spec.image.parse::<Reference>().map_err(RequestError::Image)? {
            Reference::Registry(reference) => reference,
            Reference::Layout(_) => return Err(RequestError::Layout),
        };
        let platform = |text: &String| {
            let platform: Result<Platform, _> = text.parse();
            platform.map_err(|source| RequestError::Platform { text: text.clone(), source })
        };
        let platforms = spec.platforms.iter().map(platform).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { reference, platforms })
    }

    /// What the registry is asked for: the digest that was recorded, else what the image names.
    pub fn target(&self, pinned: Option<portolan_core::Digest>) -> Target {
        pinned.map_or_else(|| self.reference.target(), Target::Digest)
    }

    /// `registry/repository`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.reference.registry, self.reference.repository)
    }

    /// The machines that have to be covered.
    pub(crate) fn wanted(&self) -> Wanted {
        let platforms = self.platforms.iter().map(PartialPlatform::from);
        Wanted::of(platforms).unwrap_or_else(Wanted::all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_told_before_anybody_is_asked() {
        let spec = |image: &str, platforms: &[&str]| ReleaseSpec {
            platforms: platforms.iter().map(|one| (*one).to_owned()).collect(),
            ..ReleaseSpec::new(image)
        };
        for (spec, word) in [
            (spec("", &[]), "spec.image"),
            (spec("r.example/APP", &[]), "spec.image"),
            (spec("oci:/some/where", &[]), "a registry"),
            (spec("r.example/app", &["linux/*"]), "spec.platforms"),
            (spec("r.example/app", &[""]), "spec.platforms"),
        ] {
            let error = Request::of(&spec).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
        let request = Request::of(&spec("r.example/app:1", &["linux/arm64"])).unwrap();
        assert_eq!(request.repository(), "r.example/app");
        assert_eq!(request.target(None), Target::Tag("1".parse().unwrap()));
        let pinned = portolan_core::Digest::sha256(b"x");
        assert_eq!(request.target(Some(pinned)), Target::Digest(pinned));
    }
}
