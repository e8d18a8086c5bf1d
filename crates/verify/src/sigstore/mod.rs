//! Who signs as Sigstore does: with a key that one keeps, or with an identity and a key for ten
//! minutes.
//!
//! Both forms are read: the layers of cosign 2 and the bundles of cosign 3. Whatever the form, what
//! was signed must name the subject by digest; nothing counts for the place where it was found.

mod convert;
mod dsse;
mod key_authority;
mod keyless;
mod proven;
mod refusal;
mod root;
mod signed;

pub use dsse::{COSIGN_SIGN, Envelope, IN_TOTO, Statement, pae};
pub use key_authority::KeyAuthority;
pub use keyless::{KeylessAuthority, KeylessOptions, Match, MatchError, pattern};
pub use root::{LogPolicy, TrustedRoot, TrustedRootError, UnlogableKey};

/// The media type of a bundle, and how a referrers list calls its manifest.
pub const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// A bundle or an envelope holds at most this much: attestations carry whole lists of parts.
pub const MAX_BUNDLE_BYTES: usize = 32 * 1024 * 1024;

/// What a bundle of a managed key says of the key: the hash of its DER in base64.
pub(crate) fn sign_hint(key: &crate::key::PublicKey) -> String {
    use base64::Engine as _;
    let digest = portolan_core::Digest::sha256(key.as_der());
    base64::engine::general_purpose::STANDARD.encode(digest.as_bytes())
}
