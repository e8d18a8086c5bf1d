//! Where from, and whether that is allowed.

use portolan_core::Digest;
use url::Url;

use super::FetchError;
use crate::node::request::Enforcement;

/// What policy says of locations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// Of a location without a digest.
    pub digest: Enforcement,
    /// Of plain http.
    pub https: Enforcement,
}

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
    pub fn new(text: &str, digest: Option<Digest>, rules: Rules) -> Result<Self, FetchError> {
        let refused =
            |why| FetchError::NotAllowed { location: text.chars().take(200).collect(), why };
        let url = Url::parse(text).map_err(|_| refused("it is no URL"))?;
        let mut warnings = Vec::new();
        match (url.scheme(), rules.https) {
            ("https", _) | ("http", Enforcement::Off) => {}
            ("http", Enforcement::Warn) => {
                warnings.push(format!(
                    "{} is plain http: anyone on the way can change it",
                    shown(&url)
                ));
            }
            ("http", Enforcement::Enforce) => {
                return Err(refused("it is plain http, and policy asks for https"));
            }
            _ => return Err(refused("only http and https are fetched")),
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(refused("it names no host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            let bare = FetchError::NotAllowed {
                location: shown(&url),
                why: "it carries a user name or password, which everyone who may read the Shim would see",
            };
            return Err(bare);
        }
        match (digest.is_some(), rules.digest) {
            (false, Enforcement::Enforce) => {
                return Err(FetchError::DigestRequired { location: shown(&url) });
            }
            (false, Enforcement::Warn) => {
                warnings.push(format!(
                    "no sha256 is given for {}: whatever is there is installed",
                    shown(&url)
                ));
            }
            _ => {}
        }
        Ok(Self { url, digest, warnings })
    }

    /// As it may be shown: signed addresses keep their secrets in the query.
    pub(super) fn shown(&self) -> String {
        shown(&self.url)
    }
}

fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Reason;

    fn rules(digest: Enforcement, https: Enforcement) -> Rules {
        Rules { digest, https }
    }

    #[test]
    fn other_schemes_and_logins_are_refused() {
        for bad in ["file:///etc/passwd", "ftp://x/y", "gopher://x", "x", "", "https://u:p@x/y"] {
            let error = Location::new(bad, None, Rules::default()).unwrap_err();
            assert_eq!(error.reason(), Reason::LocationNotAllowed, "{bad}");
            assert!(!error.to_string().contains("u:p"), "{error}");
        }
        let fine = Location::new("https://x/a%2Fb?token=secret#f", None, Rules::default()).unwrap();
        assert_eq!(fine.shown(), "https://x/a%2Fb");
    }

    #[test]
    fn policy_is_off_a_warning_or_a_refusal() {
        use Enforcement::{Enforce, Off, Warn};
        let digest = Digest::sha256(b"x");
        let warned =
            |text, digest, rules| Location::new(text, digest, rules).map(|l| l.warnings.len());
        assert_eq!(warned("http://x/y", None, rules(Warn, Warn)).unwrap(), 2);
        assert_eq!(warned("http://x/y", Some(digest), rules(Enforce, Off)).unwrap(), 0);
        assert_eq!(warned("https://x/y", Some(digest), rules(Enforce, Enforce)).unwrap(), 0);
        let error = Location::new("http://x/y", Some(digest), rules(Off, Enforce)).unwrap_err();
        assert_eq!(error.reason(), Reason::LocationNotAllowed);
        let error = Location::new("https://x/y", None, rules(Enforce, Off)).unwrap_err();
        assert_eq!(error.reason(), Reason::DigestRequired);
    }
}
