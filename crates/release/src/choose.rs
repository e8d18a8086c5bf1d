//! Which of the recorded images a host runs. Pure.

use portolan_api::condition::{self, Status};
use portolan_api::release::{READY, Release, ReleaseStatus, ResolvedImage};
use portolan_core::digest::ParseDigestError;
use portolan_core::platform::{HostPlatform, ParsePlatformError};
use portolan_core::select::{Candidates, NoMatch, select};
use portolan_core::{Descriptor, Digest, Index, Platform, media_type};

use crate::reason;

/// The image that a host runs, by its digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// `registry/repository`.
    pub repository: String,
    /// The index, where there is one.
    pub index_digest: Option<Digest>,
    /// The one manifest that runs.
    pub resolved_digest: Digest,
    /// What it runs on.
    pub platform: Platform,
}

/// Why nothing is run of a Release.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// Nobody has looked at it.
    #[error("the Release {name} has no status: no controller has looked at it yet")]
    NoStatus {
        /// Which.
        name: String,
    },
    /// What is recorded is about another spec.
    #[error(
        "the Release {name} was changed, and its status is of before; ask again when its controller has looked at it"
    )]
    Stale {
        /// Which.
        name: String,
    },
    /// It may not be run.
    #[error("the Release {name} is not Ready: {reason}: {message}")]
    NotReady {
        /// Which.
        name: String,
        /// In one word.
        reason: String,
        /// In a sentence.
        message: String,
        /// Whether that is an answer, and not a wait for one.
        is_answer: bool,
    },
    /// Nothing of it runs there.
    #[error("nothing of the Release {name} runs there")]
    NoMatch {
        /// Which.
        name: String,
        /// Why each image lost.
        #[source]
        source: Box<NoMatch>,
    },
    /// What is recorded is no record.
    #[error("the status of the Release {name} has no {field}")]
    Incomplete {
        /// Which.
        name: String,
        /// What is missing.
        field: &'static str,
    },
    /// What is recorded is no digest.
    #[error("the status of the Release {name} has {text:?} for a digest")]
    Digest {
        /// Which.
        name: String,
        /// As it is recorded.
        text: String,
        /// Why.
        #[source]
        source: ParseDigestError,
    },
    /// What is recorded is no platform.
    #[error("the status of the Release {name} has {text:?} for a platform")]
    Platform {
        /// Which.
        name: String,
        /// As it is recorded.
        text: String,
        /// Why.
        #[source]
        source: ParsePlatformError,
    },
}

impl ChooseError {
    /// Whether nothing is there to judge by: no policy speaks of the image.
    pub fn is_no_policy(&self) -> bool {
        matches!(self, Self::NotReady { reason, .. } if reason == reason::NO_POLICY)
    }
}

/// The image of a Release that is Ready which `host` runs, by the rules that choose from an index.
pub fn choose(release: &Release, host: &HostPlatform) -> Result<Chosen, ChooseError> {
    let name = || release.metadata.name.clone().unwrap_or_default();
    let status = release.status.as_ref().ok_or_else(|| ChooseError::NoStatus { name: name() })?;
    ready(status, release.metadata.generation, name)?;
    let missing = |field| move || ChooseError::Incomplete { name: name(), field };
    let repository = status.repository.clone().ok_or_else(missing("repository"))?;
    let digest = |text: &str| -> Result<Digest, ChooseError> {
        text.parse().map_err(|source| ChooseError::Digest {
            name: name(),
            text: text.to_owned(),
            source,
        })
    };
    let entry = |image: &ResolvedImage| -> Result<Descriptor, ChooseError> {
        let text = image.platform.clone();
        let platform: Platform = text.parse().map_err(|source| ChooseError::Platform {
            name: name(),
            text: text.clone(),
            source,
        })?;
        let size = u64::try_from(image.size).unwrap_or_default();
        let own = Descriptor::new(media_type::OCI_MANIFEST, digest(&image.digest)?, size);
        Ok(Descriptor { platform: Some(platform), ..own })
    };
    let entries = status.resolved.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    let index_digest = status.index_digest.as_deref().map(digest).transpose()?;
    let index = Index::new(entries);
    let candidates = Candidates::new(Digest::sha256(b""), &index);
    let selection = select(&candidates, host)
        .map_err(|source| ChooseError::NoMatch { name: name(), source })?;
    let platform = selection.platform.ok_or_else(missing("platform"))?;
    Ok(Chosen { repository, index_digest, resolved_digest: selection.chosen.digest, platform })
}

/// Ready, for the spec that is there now: one that follows a tag may be changed, and stays Ready with its image of before
/// until its controller has looked. Where no generation is told, as in a file, there is nothing to compare.
fn ready(
    status: &ReleaseStatus,
    generation: Option<i64>,
    name: impl Fn() -> String,
) -> Result<(), ChooseError> {
    let Some(ready) = condition::find(&status.conditions, READY) else {
        return Err(ChooseError::NoStatus { name: name() });
    };
    let about = [status.observed_generation, ready.observed_generation];
    if generation.is_some() && about.iter().any(|seen| seen.is_some() && *seen != generation) {
        return Err(ChooseError::Stale { name: name() });
    }
    match ready.status {
        Status::True => Ok(()),
        other => Err(ChooseError::NotReady {
            name: name(),
            reason: ready.reason.clone(),
            message: ready.message.clone(),
            is_answer: other == Status::False,
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn digest(of: &str) -> String {
        Digest::sha256(of.as_bytes()).to_string()
    }

    fn release(ready: &str, reason: &str) -> Release {
        let image =
            |platform: &str| json!({"platform": platform, "digest": digest(platform), "size": 1});
        serde_json::from_value(json!({
            "apiVersion": "portolan.dev/v1alpha1", "kind": "Release", "metadata": {"name": "app"},
            "spec": {"image": "r.example/app:1"},
            "status": {
                "conditions": [{"type": "Ready", "status": ready, "reason": reason, "message": "m"}],
                "repository": "r.example/app", "digest": digest("i"), "indexDigest": digest("i"),
                "resolved": [image("linux/amd64"), image("linux/amd64/v3"), image("linux/arm64")],
            },
        }))
        .unwrap()
    }

    fn host(platform: &str) -> HostPlatform {
        HostPlatform::named(&platform.parse().unwrap())
    }

    #[test]
    fn a_host_runs_what_would_be_chosen_from_the_index() {
        for (on, expected) in [
            ("linux/amd64", "linux/amd64"),
            ("linux/amd64/v4", "linux/amd64/v3"),
            ("linux/arm64", "linux/arm64"),
        ] {
            let chosen = choose(&release("True", "Ready"), &host(on)).unwrap();
            assert_eq!(chosen.resolved_digest.to_string(), digest(expected), "{on}");
            assert_eq!(chosen.index_digest.unwrap().to_string(), digest("i"));
            assert_eq!(chosen.repository, "r.example/app");
        }
        let error = choose(&release("True", "Ready"), &host("linux/s390x")).unwrap_err();
        assert!(matches!(error, ChooseError::NoMatch { .. }), "{error}");
    }

    #[test]
    fn nothing_runs_of_a_release_whose_status_is_of_before_it_was_changed() {
        let about = |generation: Option<i64>, seen: Option<i64>, by: Option<i64>| {
            let mut one = release("True", "Ready");
            one.metadata.generation = generation;
            let status = one.status.as_mut().unwrap();
            status.observed_generation = seen;
            status.conditions[0].observed_generation = by;
            choose(&one, &host("linux/amd64")).map(drop)
        };
        for (generation, seen, by) in
            [(Some(2), Some(2), Some(2)), (Some(2), None, None), (None, Some(2), Some(2))]
        {
            about(generation, seen, by).unwrap();
        }
        for (seen, by) in [(Some(1), Some(1)), (Some(2), Some(1)), (Some(1), None)] {
            let error = about(Some(2), seen, by).unwrap_err();
            assert!(matches!(&error, ChooseError::Stale { .. }), "{error}");
            assert!(error.to_string().contains("app was changed"), "{error}");
        }
    }

    #[test]
    fn nothing_runs_of_a_release_that_is_not_ready_or_not_whole() {
        for (ready, is_answer) in [("False", true), ("Unknown", false)] {
            let error = choose(&release(ready, "NoPolicy"), &host("linux/amd64")).unwrap_err();
            assert!(error.is_no_policy(), "{error}");
            assert!(matches!(error, ChooseError::NotReady { is_answer: a, .. } if a == is_answer));
        }
        let mut bare = release("True", "Ready");
        bare.status = None;
        assert!(matches!(choose(&bare, &host("linux/amd64")), Err(ChooseError::NoStatus { .. })));
        let damage: [fn(&mut ReleaseStatus); 3] = [
            |status| status.repository = None,
            |status| status.resolved[0].digest = "sha256:0".to_owned(),
            |status| status.resolved[0].platform = "linux/*".to_owned(),
        ];
        for damage in damage {
            let mut broken = release("True", "Ready");
            damage(broken.status.as_mut().unwrap());
            choose(&broken, &host("linux/arm64")).expect_err("what is damaged is not used");
        }
    }
}
