//! Whether an artifact may be downloaded at all.

use std::fmt;
use std::str::FromStr;

use url::Url;

use super::{Artifact, Refusal};

/// How much something is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Requirement {
    /// Not at all.
    Off,
    /// It is told.
    #[default]
    Warn,
    /// Nothing is done without it.
    Enforce,
}

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "warn" => Ok(Self::Warn),
            "enforce" => Ok(Self::Enforce),
            _ => Err(format!("{text:?} is none of off, warn and enforce")),
        }
    }
}

/// What an operator asks of every artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// A digest.
    pub require_digest: Requirement,
    /// TLS.
    pub require_https: Requirement,
}

/// What is wrong with an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complaint {
    /// No digest is given.
    NoDigest {
        /// Of which.
        location: String,
    },
    /// What is given is no digest.
    NotADigest {
        /// Of which.
        location: String,
        /// What is given.
        found: String,
    },
    /// Anybody between the server and the node may change it.
    PlainHttp {
        /// Which.
        location: String,
    },
    /// Neither http nor https.
    NotAUrl {
        /// What it is.
        location: String,
    },
    /// Everyone who may read the Shim sees a login in it.
    Login {
        /// Where.
        location: String,
    },
}

impl Complaint {
    /// One word, for statuses and scripts.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoDigest { .. } => "DigestRequired",
            Self::NotADigest { .. } => "DigestNotValid",
            Self::PlainHttp { .. } => "HttpsRequired",
            Self::NotAUrl { .. } | Self::Login { .. } => "LocationNotAllowed",
        }
    }
}

/// A location as everyone may see it, which is who reads Events and the status of a Shim: signed addresses keep their secrets in the
/// query.
pub(crate) fn shown(location: &str) -> String {
    let text = match Url::parse(location) {
        Ok(mut url) => {
            url.set_query(None);
            url.set_fragment(None);
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.into()
        }
        // What is no URL may have been meant as one.
        Err(_) => {
            let path = location.split(['?', '#']).next().unwrap_or_default();
            path.rsplit('@').next().unwrap_or_default().to_owned()
        }
    };
    text.chars().take(200).collect()
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NoDigest { location }
        | Self::NotADigest { location, .. }
        | Self::PlainHttp { location }
        | Self::NotAUrl { location }
        | Self::Login { location }) = self;
        let location = shown(location);
        match self {
            Self::NoDigest { .. } => write!(
                f,
                "{location} has no sha256, so whatever is there is installed; portolan shim pin adds it"
            ),
            Self::NotADigest { found, .. } => write!(
                f,
                "the sha256 {found:?} of {location} is not 64 hexadecimal digits, so no download can match it"
            ),
            Self::PlainHttp { .. } => {
                write!(f, "{location} is plain http: anybody on the way can change it; use https")
            }
            Self::NotAUrl { .. } => {
                write!(f, "{location:?} is no http or https URL")
            }
            Self::Login { .. } => write!(
                f,
                "{location} carries a user name or password, which everyone who may read the Shim would see"
            ),
        }
    }
}

/// An artifact that may be downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Its URL.
    pub location: String,
    /// Its digest: 64 lower-case digits.
    pub sha256: Option<String>,
    /// What deserves a look.
    pub warnings: Vec<Complaint>,
}

/// Whether an artifact may be downloaded.
///
/// # Errors
///
/// It could never be installed, or the policy forbids it.
pub fn admit(artifact: &Artifact, policy: &Policy) -> Result<Admitted, Refusal> {
    let Artifact { location, sha256 } = artifact;
    let refuse = |complaint: Complaint| Err(Refusal::Complaint(complaint));
    let url = Url::parse(location).ok().filter(|url| url.has_host());
    let tls = match url.as_ref().map(Url::scheme) {
        Some("https") => true,
        Some("http") => false,
        _ => return refuse(Complaint::NotAUrl { location: location.clone() }),
    };
    if url.is_some_and(|url| !url.username().is_empty() || url.password().is_some()) {
        return refuse(Complaint::Login { location: location.clone() });
    }
    let sha256 = match sha256.as_deref().map(digest) {
        None => None,
        Some(Some(digest)) => Some(digest),
        Some(None) => {
            let found = sha256.clone().unwrap_or_default();
            return refuse(Complaint::NotADigest { location: location.clone(), found });
        }
    };
    let asked = [
        (tls, policy.require_https, Complaint::PlainHttp { location: location.clone() }),
        (
            sha256.is_some(),
            policy.require_digest,
            Complaint::NoDigest { location: location.clone() },
        ),
    ];
    let mut warnings = Vec::new();
    for (given, requirement, complaint) in asked {
        match requirement {
            _ if given => {}
            Requirement::Off => {}
            Requirement::Warn => warnings.push(complaint),
            Requirement::Enforce => return refuse(complaint),
        }
    }
    Ok(Admitted { location: location.clone(), sha256, warnings })
}

/// 64 digits in lower case, with or without the algorithm before them.
pub(crate) fn digest(text: &str) -> Option<String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    let fits = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    fits.then(|| digits.to_ascii_lowercase())
}
