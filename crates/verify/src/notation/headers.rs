//! The signed headers of an envelope, the same for JWS and COSE once they are read.

use jiff::Timestamp;

use super::refuse::{malformed, quoted, unsupported};
use super::signature::EnvelopeAlgorithm;
use crate::authority::Refusal;

pub(super) const SIGNING_SCHEME: &str = "io.cncf.notary.signingScheme";
pub(super) const SIGNING_TIME: &str = "io.cncf.notary.signingTime";
pub(super) const AUTHENTIC_SIGNING_TIME: &str = "io.cncf.notary.authenticSigningTime";
pub(super) const EXPIRY: &str = "io.cncf.notary.expiry";
pub(super) const TIMESTAMP_SIGNATURE: &str = "io.cncf.notary.timestampSignature";
const VERIFICATION_PLUGIN: &str = "io.cncf.notary.verificationPlugin";
const VERIFICATION_PLUGIN_MIN_VERSION: &str = "io.cncf.notary.verificationPluginMinVersion";
const PAYLOAD_TYPE: &str = "application/vnd.cncf.notary.payload.v1+json";

/// What is signed beside the payload, as it was written.
#[derive(Debug, Default)]
pub(super) struct RawHeaders {
    pub(super) algorithm: Option<EnvelopeAlgorithm>,
    pub(super) content_type: Option<String>,
    pub(super) critical: Vec<String>,
    pub(super) scheme: Option<String>,
    pub(super) signing_time: Option<Timestamp>,
    pub(super) authentic_signing_time: Option<Timestamp>,
    pub(super) expiry: Option<Timestamp>,
    /// The names of all the others.
    pub(super) others: Vec<String>,
}

/// Who vouches for the time of signing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// `notary.x509`: nobody but the signer, unless there is a countersignature.
    X509 {
        /// What the signer says.
        signing_time: Timestamp,
    },
    /// `notary.x509.signingAuthority`: the authority that signs for others.
    SigningAuthority {
        /// What the authority says.
        authentic_signing_time: Timestamp,
    },
}

/// Headers that keep the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) algorithm: EnvelopeAlgorithm,
    pub(super) scheme: Scheme,
    /// When the signer wants it to stop counting.
    pub(super) expiry: Option<Timestamp>,
}

impl RawHeaders {
    /// Holds them against the rules.
    pub(super) fn check(self) -> Result<Headers, Refusal> {
        self.check_critical()?;
        self.check_plugins()?;
        match self.content_type.as_deref() {
            Some(PAYLOAD_TYPE) => {}
            Some(other) => {
                return Err(unsupported(format!("the payload is of type {}", quoted(other))));
            }
            None => return Err(malformed("the envelope does not say what its payload is")),
        }
        let algorithm = self.algorithm.ok_or_else(|| malformed("the envelope has no algorithm"))?;
        let scheme = self.check_scheme()?;
        let signed = match scheme {
            Scheme::X509 { signing_time } => signing_time,
            Scheme::SigningAuthority { authentic_signing_time } => authentic_signing_time,
        };
        if let Some(expiry) = self.expiry
            && expiry <= signed
        {
            return Err(malformed(format!("it expires at {expiry}, not after it is signed")));
        }
        Ok(Headers { algorithm, scheme, expiry: self.expiry })
    }

    fn check_scheme(&self) -> Result<Scheme, Refusal> {
        let scheme = self.scheme.as_deref().ok_or_else(|| malformed("no signing scheme"))?;
        match (scheme, self.signing_time, self.authentic_signing_time) {
            ("notary.x509", Some(signing_time), None) => Ok(Scheme::X509 { signing_time }),
            ("notary.x509.signingAuthority", None, Some(authentic_signing_time)) => {
                Ok(Scheme::SigningAuthority { authentic_signing_time })
            }
            ("notary.x509" | "notary.x509.signingAuthority", _, _) => Err(malformed(format!(
                "the scheme {scheme} needs its own time of signing and no other"
            ))),
            _ => Err(unsupported(format!("the signing scheme is {}", quoted(scheme)))),
        }
    }

    /// What has to be understood is understood; what has to be marked so is marked.
    fn check_critical(&self) -> Result<(), Refusal> {
        let present = [
            (SIGNING_SCHEME, self.scheme.is_some()),
            (AUTHENTIC_SIGNING_TIME, self.authentic_signing_time.is_some()),
            (EXPIRY, self.expiry.is_some()),
        ];
        for (name, is_there) in present {
            if is_there && !self.critical.iter().any(|critical| critical == name) {
                return Err(malformed(format!("the header {name} is not marked as critical")));
            }
        }
        for (at, name) in self.critical.iter().enumerate() {
            if self.critical[..at].contains(name) {
                return Err(malformed(format!("{} is marked as critical twice", quoted(name))));
            }
            let is_there = match name.as_str() {
                SIGNING_TIME => self.signing_time.is_some(),
                known => match present.iter().find(|(name, _)| *name == known) {
                    Some((_, is_there)) => *is_there,
                    None => {
                        return Err(unsupported(format!(
                            "the critical header {} is not known",
                            quoted(name)
                        )));
                    }
                },
            };
            if !is_there {
                return Err(malformed(format!("the critical header {name} is missing")));
            }
        }
        Ok(())
    }

    fn check_plugins(&self) -> Result<(), Refusal> {
        let wanted = [VERIFICATION_PLUGIN, VERIFICATION_PLUGIN_MIN_VERSION];
        match self.others.iter().find(|other| wanted.contains(&other.as_str())) {
            None => Ok(()),
            Some(name) => Err(unsupported(format!(
                "the signer wants a plugin to verify it ({name}); none is run"
            ))),
        }
    }
}

/// RFC 3339 with seconds; `jiff` alone would take other spellings, too.
pub(super) fn time(text: &str, what: &str) -> Result<Timestamp, Refusal> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"-:.+TZ".contains(&byte));
    let parsed = text.parse::<Timestamp>().ok().filter(|_| plain && text.len() >= 20);
    parsed.ok_or_else(|| malformed(format!("{what} is {}, no time of RFC 3339", quoted(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        for good in ["2026-11-17T12:00:00Z", "2026-11-17T13:00:00+01:00", "2026-11-17T12:00:00.0Z"]
        {
            assert_eq!(time(good, "x").unwrap().as_second(), 1_794_916_800, "{good}");
        }
        for bad in [
            "",
            "2026-11-17",
            "2026-11-17T12:00:00",
            "2026-11-17 12:00:00Z",
            "20261117T120000Z",
            "2026-11-17T12:00:00Z[UTC]",
            "2026-13-17T12:00:00Z",
            "now",
        ] {
            assert!(time(bad, "x").is_err(), "{bad}");
        }
    }
}
