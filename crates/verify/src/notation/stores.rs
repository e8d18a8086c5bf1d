//! Certificates that are trusted, and lists of those that were taken back.

use std::collections::BTreeMap;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};

use super::asn1::{DerFault, elements};
use super::certificate::{Certificate, CertificateError};
use super::policy::{StoreKind, StoreName};
use super::revocation::{Crl, CrlError};

/// One file of certificates.
const MAX_STORE_BYTES: usize = 4 * 1024 * 1024;
/// One file of revocation lists; those of large authorities have some megabytes.
pub const MAX_CRL_BYTES: usize = 64 * 1024 * 1024;

/// Named stores, as a trust policy refers to them, and revocation lists for all of them.
#[derive(Debug, Clone, Default)]
pub struct TrustStores {
    stores: BTreeMap<StoreName, Vec<Certificate>>,
    crls: Vec<Crl>,
}

/// What is wrong with what was to be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// More than any real one.
    #[error("{0} bytes are too many for one file")]
    TooLarge(usize),
    /// Neither PEM nor DER.
    #[error("neither PEM nor DER")]
    Neither(#[source] DerFault),
    /// PEM that cannot be read.
    #[error("the PEM cannot be read: {0}")]
    Pem(String),
    /// Nothing in it.
    #[error("there is nothing of the kind in it")]
    Empty,
    /// A certificate that cannot be read.
    #[error("certificate {at} cannot be taken")]
    Certificate {
        /// Which, from 1.
        at: usize,
        /// Why.
        #[source]
        source: CertificateError,
    },
    /// A certificate that cannot be a root of trust.
    #[error("the certificate of {0} is neither an authority's nor self-signed")]
    NoRoot(String),
    /// For timestamps only roots are trusted.
    #[error("the certificate of {0} is not the root of a timestamping authority")]
    NoTsaRoot(String),
    /// A list that cannot be used.
    #[error("revocation list {at} cannot be taken")]
    Crl {
        /// Which, from 1.
        at: usize,
        /// Why.
        #[source]
        source: CrlError,
    },
}

impl TrustStores {
    /// No store at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the certificates of a file, PEM or DER, to a store.
    pub fn add_certificates(&mut self, store: StoreName, bytes: &[u8]) -> Result<(), StoreError> {
        let ders = split(bytes, MAX_STORE_BYTES, |bytes| {
            CertificateDer::pem_slice_iter(bytes).map(|der| der.map(|der| der.to_vec())).collect()
        })?;
        let mut read = Vec::new();
        for (at, der) in ders.iter().enumerate() {
            let certificate = Certificate::read(der)
                .map_err(|source| StoreError::Certificate { at: at + 1, source })?;
            check(&certificate, store.kind())?;
            read.push(certificate);
        }
        self.stores.entry(store).or_default().extend(read);
        Ok(())
    }

    /// Adds the revocation lists of a file, PEM or DER. Whether they are genuine is seen when the
    /// certificate of their issuer is.
    pub fn add_crls(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let ders = split(bytes, MAX_CRL_BYTES, |bytes| {
            CertificateRevocationListDer::pem_slice_iter(bytes)
                .map(|der| der.map(|der| der.to_vec()))
                .collect()
        })?;
        let mut read = Vec::new();
        for (at, der) in ders.iter().enumerate() {
            read.push(Crl::read(der).map_err(|source| StoreError::Crl { at: at + 1, source })?);
        }
        self.crls.extend(read);
        Ok(())
    }

    /// The certificates of a store; none when there is no such store.
    pub(super) fn get(&self, store: &StoreName) -> Option<&[Certificate]> {
        self.stores.get(store).map(Vec::as_slice)
    }

    pub(super) fn crls(&self) -> &[Crl] {
        &self.crls
    }
}

fn check(certificate: &Certificate, kind: StoreKind) -> Result<(), StoreError> {
    let self_signed = certificate.is_self_signed().is_ok();
    match kind {
        StoreKind::Tsa if !(self_signed && certificate.is_ca()) => {
            Err(StoreError::NoTsaRoot(certificate.subject()))
        }
        StoreKind::Ca | StoreKind::SigningAuthority if !(self_signed || certificate.is_ca()) => {
            Err(StoreError::NoRoot(certificate.subject()))
        }
        _ => Ok(()),
    }
}

type Pem = Result<Vec<Vec<u8>>, rustls_pki_types::pem::Error>;

/// The parts of a file: those that `pem` finds when it looks like text, else its DER elements.
fn split(bytes: &[u8], most: usize, pem: fn(&[u8]) -> Pem) -> Result<Vec<Vec<u8>>, StoreError> {
    if bytes.len() > most {
        return Err(StoreError::TooLarge(bytes.len()));
    }
    let armour = b"-----BEGIN";
    let parts = if bytes.windows(armour.len()).any(|window| window == armour) {
        pem(bytes).map_err(|error| StoreError::Pem(error.to_string()))?
    } else {
        let found = elements(bytes).map_err(StoreError::Neither)?;
        found.into_iter().map(<[u8]>::to_vec).collect()
    };
    if parts.is_empty() {
        return Err(StoreError::Empty);
    }
    Ok(parts)
}
