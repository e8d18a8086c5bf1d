//! Where from, and whether that is allowed.

use portolan_core::Digest;
use url::Url;

use super::FetchError;
use crate::resolve::{self, Artifact, Complaint, Policy, Refusal};

/// A location that may be fetched.
#[derive(Debug, Clone)]
pub struct Location {
    pub(super) url: Url,
    pub(super) digest: Option<Digest>,
    pub(super) warnings: Vec<String>,
}

impl Location {
    /// Reads and judges a location.
    ///
    /// # Errors
    /// [`FetchError::NotAllowed`], [`FetchError::DigestRequired`].
    pub fn new(text: &str, digest: Option<Digest>, policy: Policy) -> Result<Self, FetchError> {
        let refused = |why| FetchError::NotAllowed { location: resolve::shown(text), why };
        let url = Url::parse(text).map_err(|_| refused("it is no URL"))?;
        // Judged as the controller does.
        let artifact =
            Artifact { location: text.to_owned(), sha256: digest.as_ref().map(Digest::hex) };
        let admitted = resolve::admit(&artifact, &policy).map_err(|refusal| match refusal {
            Refusal::Complaint(Complaint::NoDigest { .. }) => {
                FetchError::DigestRequired { location: resolve::shown(text) }
            }
            Refusal::Complaint(Complaint::PlainHttp { .. }) => {
                refused("it is plain http, and policy asks for https")
            }
            Refusal::Complaint(Complaint::Login { .. }) => refused(
                "it carries a user name or password, which everyone who may read the Shim would see",
            ),
            _ => refused("only http and https are fetched, and from a host"),
        })?;
        let warnings = admitted.warnings.iter().map(ToString::to_string).collect();
        Ok(Self { url, digest, warnings })
    }

    /// As it may be shown: signed addresses keep their secrets in the query.
    pub(super) fn shown(&self) -> String {
        resolve::shown(self.url.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Reason;
    use crate::resolve::Requirement;

    fn policy(require_digest: Requirement, require_https: Requirement) -> Policy {
        Policy { require_digest, require_https }
    }

    #[test]
    fn other_schemes_and_logins_are_refused() {
        for bad in ["file:///etc/passwd", "ftp://x/y", "gopher://x", "x", "", "https://u:p@x/y"] {
            let error = Location::new(bad, None, Policy::default()).unwrap_err();
            assert_eq!(error.reason(), Reason::LocationNotAllowed, "{bad}");
            assert!(!error.to_string().contains("u:p"), "{error}");
        }
        let fine =
            Location::new("https://x/a%2Fb?token=secret#f", None, Policy::default()).unwrap();
        assert_eq!(fine.shown(), "https://x/a%2Fb");
    }

    #[test]
    fn policy_is_off_a_warning_or_a_refusal() {
        use Requirement::{Enforce, Off, Warn};
        let digest = Digest::sha256(b"x");
        let warned =
            |text, digest, policy| Location::new(text, digest, policy).map(|l| l.warnings.len());
        assert_eq!(warned("http://x/y", None, policy(Warn, Warn)).unwrap(), 2);
        assert_eq!(warned("http://x/y", Some(digest), policy(Enforce, Off)).unwrap(), 0);
        assert_eq!(warned("https://x/y", Some(digest), policy(Enforce, Enforce)).unwrap(), 0);
        let error = Location::new("http://x/y", Some(digest), policy(Off, Enforce)).unwrap_err();
        assert_eq!(error.reason(), Reason::LocationNotAllowed);
        let error = Location::new("https://x/y", None, policy(Enforce, Off)).unwrap_err();
        assert_eq!(error.reason(), Reason::DigestRequired);
    }
}
