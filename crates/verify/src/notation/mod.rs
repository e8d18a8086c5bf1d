//! Signatures of the Notary Project: JWS and COSE envelopes, chains of certificates, trust
//! policies and stores, countersignatures of timestamping authorities, revocation lists.
//!
//! Nothing in the registry of crates does this, so it is ours (`docs/decisions/0009-notation-by-hand.md`);
//! what is understood and what is not is in `docs/notation.md`.

mod asn1;
mod certificate;
mod chain;
mod cose;
mod document;
mod envelope;
mod headers;
mod json;
mod judge;
mod jws;
mod name;
mod policy;
mod refuse;
mod revocation;
mod signature;
mod stores;
mod timestamp;

pub use asn1::DerFault;
pub use certificate::{Certificate, CertificateError};
pub use document::{MAX_DOCUMENT_BYTES, ParsePolicyError, StatementError, TrustPolicies};
pub use envelope::{COSE, JWS, MAX_ENVELOPE_BYTES, SIGNATURE_ARTIFACT};
pub use judge::{AuthorityError, NotationAuthority};
pub use name::{PatternError, SubjectPattern};
pub use policy::{
    Action, Check, Identities, Level, Override, PolicyError, PolicyParts, StoreKind, StoreName,
    TrustPolicy, VerifyTimestamp,
};
pub use revocation::CrlError;
pub use stores::{MAX_CRL_BYTES, StoreError, TrustStores};
