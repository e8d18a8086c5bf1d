//! What an image must pass before anything is built from it, and each time it is started: a disk
//! that is cached skips no gate that a new one would have to pass.

use std::fmt;

use futures_util::future::BoxFuture;
use portolan_core::manifest::ImageConfig;
use portolan_core::{HostPlatform, Manifest};

use crate::image::ResolvedImage;
use crate::reason::Reason;

/// An image whose documents are here and verified. No layer was touched for it yet.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// What was asked for.
    pub image: &'a ResolvedImage,
    /// The manifest with the resolved digest.
    pub manifest: &'a Manifest,
    /// Its config.
    pub config: &'a ImageConfig,
}

/// An image that may not start here. A refusal, not a breakdown; a gate that breaks down refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Which kind of refusal.
    pub reason: Reason,
    /// For people: what does not fit, and what would.
    pub message: String,
}

/// One thing that an image must pass.
pub trait Gate: Send + Sync + fmt::Debug {
    /// Lets the image pass or says why not. It may wait for a network, and is cancelled by being
    /// dropped.
    fn check<'a>(&'a self, candidate: Candidate<'a>) -> BoxFuture<'a, Result<(), Refusal>>;
}

/// The image is for the platform that the spec names and that the host has.
#[derive(Debug, Clone)]
pub struct PlatformGate {
    host: HostPlatform,
}

impl PlatformGate {
    /// For images that run on `host`.
    pub fn new(host: HostPlatform) -> Self {
        Self { host }
    }

    fn decide(&self, candidate: &Candidate<'_>) -> Result<(), String> {
        let digest = candidate.image.resolved_digest;
        let Some(platform) = &candidate.config.platform else {
            return Err(format!("the config of {digest} names no platform"));
        };
        let wanted = candidate.image.platform.normalised();
        let found = platform.normalised();
        // A spec without a variant takes any that the host runs; one with a variant takes what
        // runs on that.
        let fits = match wanted.variant {
            None => wanted.os == found.os && wanted.architecture == found.architecture,
            Some(_) => wanted.satisfies(&found),
        };
        if !fits {
            return Err(format!(
                "{digest} is for {found}, the spec says {wanted}; resolve the image again for that platform"
            ));
        }
        match self.host.check(platform) {
            Ok(_) => Ok(()),
            Err(mismatch) => Err(format!("{digest} does not run on this host: {mismatch}")),
        }
    }
}

impl Gate for PlatformGate {
    fn check<'a>(&'a self, candidate: Candidate<'a>) -> BoxFuture<'a, Result<(), Refusal>> {
        let decided = self.decide(&candidate);
        Box::pin(std::future::ready(
            decided.map_err(|message| Refusal { reason: Reason::PlatformMismatch, message }),
        ))
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::{Descriptor, Digest, Platform, media_type};

    use super::*;

    fn check(host: &str, spec: &str, image: Option<&str>) -> Result<(), String> {
        let platform = |text: &str| text.parse::<Platform>().unwrap();
        let resolved = ResolvedImage {
            registry: "r.example".parse().unwrap(),
            repository: "a".parse().unwrap(),
            resolved_digest: Digest::sha256(b"m"),
            index_digest: None,
            platform: platform(spec),
        };
        let manifest = Manifest::new(Descriptor::of(media_type::OCI_CONFIG, b"{}"), vec![]);
        let mut config = ImageConfig::parse(b"{}").unwrap();
        config.platform = image.map(platform);
        let gate = PlatformGate::new(HostPlatform::named(&platform(host)));
        gate.decide(&Candidate { image: &resolved, manifest: &manifest, config: &config })
    }

    #[test]
    fn an_image_must_fit_the_spec_and_the_host() {
        for (host, spec, image) in [
            ("linux/amd64/v3", "linux/amd64", "linux/amd64"),
            ("linux/amd64/v3", "linux/amd64", "linux/amd64/v2"),
            ("linux/amd64/v3", "linux/amd64/v3", "linux/amd64"),
            ("linux/arm64", "linux/arm64", "linux/arm64/v8"),
        ] {
            assert_eq!(check(host, spec, Some(image)), Ok(()), "{host} {spec} {image}");
        }
        for (host, spec, image, word) in [
            ("linux/amd64", "linux/amd64", Some("linux/arm64"), "the spec says"),
            ("linux/arm64", "linux/amd64", Some("linux/amd64"), "this host"),
            ("linux/amd64/v2", "linux/amd64", Some("linux/amd64/v3"), "this host"),
            ("linux/amd64/v3", "linux/amd64/v2", Some("linux/amd64/v3"), "the spec says"),
            ("linux/amd64", "linux/amd64", None, "no platform"),
        ] {
            let text = check(host, spec, image).unwrap_err();
            assert!(text.contains(word), "{text}");
        }
    }
}
