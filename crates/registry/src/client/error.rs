//! What went wrong between us and a registry, told with the step and the place.

use std::fmt;

use portolan_core::{Host, Repository};

pub use super::failure::Failure;
use super::step::Step;
use crate::ErrorClass;

/// A call to a registry that did not succeed.
///
/// Its text is `STEP at HOST/REPOSITORY: what happened; what to try`; causes below it are in `source()`.
#[derive(Debug)]
pub struct ClientError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    step: Step,
    host: Host,
    repository: Option<Repository>,
    failure: Failure,
}

impl ClientError {
    pub(super) fn new(
        step: Step,
        host: &Host,
        repository: Option<&Repository>,
        failure: Failure,
    ) -> Self {
        Self(Box::new(Inner { step, host: host.clone(), repository: repository.cloned(), failure }))
    }

    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        self.0.failure.class()
    }

    /// What was being done.
    pub fn step(&self) -> &Step {
        &self.0.step
    }

    /// The registry that was asked (a mirror, if it was one).
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// The repository, where there is one.
    pub fn repository(&self) -> Option<&Repository> {
        self.0.repository.as_ref()
    }

    /// What happened, to be matched on.
    pub fn failure(&self) -> &Failure {
        &self.0.failure
    }

    /// The HTTP status, if the registry answered with an error status.
    pub fn status(&self) -> Option<u16> {
        match self.0.failure {
            Failure::Status { status, .. } | Failure::UnexpectedStatus { status } => Some(status),
            _ => None,
        }
    }

    /// The registry says that it is not there.
    pub fn is_not_found(&self) -> bool {
        self.class() == ErrorClass::NotFound
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.0.step, self.0.host.as_str())?;
        if let Some(repository) = &self.0.repository {
            write!(f, "/{}", repository.as_str())?;
        }
        write!(f, ": {}", self.0.failure)?;
        match (&self.0.step, &self.0.failure) {
            (Step::ListReferrers(_), failure) if failure.may_mean_no_referrers() => f.write_str(
                "; if it has no referrers API, set `referrers = \"tag\"` for this host in registries.toml",
            ),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0.failure)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portolan_core::Digest;

    use super::*;

    #[test]
    fn texts() {
        let host: Host = "r.example".parse().unwrap();
        let repository: Repository = "a/b".parse().unwrap();
        let (one, two) = (Digest::sha256(b"1"), Digest::sha256(b"2"));
        let seconds = Duration::from_secs;
        for (failure, class, expected) in [
            (Failure::digest(one, two), ErrorClass::BadInput, format!("digest {two}, not {one}")),
            (
                Failure::Size { expected: 5, actual: 7, more: true },
                ErrorClass::BadInput,
                "7 bytes or more, its descriptor says 5".into(),
            ),
            (
                Failure::Stalled { limit: seconds(30), moved: 9, attempts: 2 },
                ErrorClass::Transport,
                "no byte moved for 30 s, after 9 bytes (tried 2 times)".into(),
            ),
            (
                Failure::Deadline { limit: seconds(60), attempts: 1 },
                ErrorClass::Transport,
                "within 60 s; the deadline is `request_timeout`".into(),
            ),
            (
                Failure::InsecureRedirect { from: "x".into(), to: "y".into() },
                ErrorClass::Transport,
                "x redirects to plain http at y; refused".into(),
            ),
            (Failure::TooLarge { limit: 4 }, ErrorClass::BadInput, "larger than 4 bytes".into()),
            (
                Failure::Source(std::io::Error::other("disk")),
                ErrorClass::Local,
                "the content to upload cannot be read".into(),
            ),
        ] {
            let error = ClientError::new(Step::ReadBlob(one), &host, Some(&repository), failure);
            let text = error.to_string();
            assert_eq!(error.class(), class, "{text}");
            let begin = format!("downloading blob {one} at r.example/a/b: ");
            assert!(text.starts_with(&begin) && text.contains(&expected), "{text}");
        }
    }

    #[test]
    fn a_source_s_own_class_counts() {
        let host: Host = "r.example".parse().unwrap();
        let inner = ClientError::new(Step::ListTags, &host, None, Failure::TooLarge { limit: 1 });
        let outer = Failure::Source(std::io::Error::other(inner));
        assert_eq!(outer.class(), ErrorClass::BadInput);
    }
}
