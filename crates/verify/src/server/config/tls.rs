//! Where the verifier's certificate comes from, and who may ask.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Generate;

/// Files of TLS, or how to do without.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate, followed by those that vouch for it.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// Let in only clients with a certificate that one of these vouches for.
    pub client_ca: Option<PathBuf>,
    /// `[tls.generate]`, instead of certificate and key.
    pub generate: Option<Generate>,
}

/// Where certificate and key come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certificate<'a> {
    /// From files.
    Files {
        /// The certificate.
        certificate: &'a Path,
        /// Its key.
        key: &'a Path,
    },
    /// The verifier makes them.
    Generated(&'a Generate),
}

impl TlsConfig {
    /// The one of both that is set; none where that is not one.
    pub fn certificate(&self) -> Option<Certificate<'_>> {
        match (&self.certificate, &self.key, &self.generate) {
            (Some(certificate), Some(key), None) => Some(Certificate::Files { certificate, key }),
            (None, None, Some(generate)) => Some(Certificate::Generated(generate)),
            _ => None,
        }
    }
}
