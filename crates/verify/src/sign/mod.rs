//! Signing images: "I signed this digest", attached where cosign looks for it.
//!
//! What is there already is looked at first: a key that signed a subject does not sign it again, so
//! that signing twice leaves what signing once leaves.

mod bundle;
mod error;
mod simple;
mod subjects;

pub use error::SignError;
pub use subjects::{MAX_SUBJECTS, subjects};

use portolan_core::{Descriptor, Digest};
use portolan_registry::ErrorClass;
use portolan_registry::images::{ImageError, Place};
use serde::Serialize;

use crate::authority::{Authority as _, Claim, Judgement};
use crate::evidence::{Carrier, Content, Evidence};
use crate::key::PrivateKey;
use crate::sigstore::{KeyAuthority, LogPolicy};
use crate::subject::{Kind, Subject};

/// In which form a signature is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A Sigstore bundle that refers to the subject, as cosign 3 keeps it.
    Bundle,
    /// A layer under a tag made of the subject's digest, as cosign 2 keeps it.
    Simple,
}

/// A signature that is there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Signature {
    /// What is signed.
    pub subject: Digest,
    /// The manifest that holds the signature.
    pub artifact: Digest,
    /// In which form.
    pub form: Form,
    /// Whether it was there before.
    pub existing: bool,
}

/// Signs the manifest or index `subject` of `place`, unless `key` signed it before in that form.
pub async fn sign(
    place: &Place,
    subject: &Descriptor,
    key: &PrivateKey,
    form: Form,
) -> Result<Signature, SignError> {
    let signed = match form {
        Form::Bundle => bundle::sign(place, subject, key).await,
        Form::Simple => simple::sign(place, subject, key).await,
    };
    let (artifact, existing) = signed?;
    Ok(Signature { subject: subject.digest, artifact, form, existing })
}

/// What others attached, none where it is gone or damaged: it is no signature of ours then, and
/// must not keep us from signing. That it cannot be reached is trouble.
fn readable<T>(read: Result<T, ImageError>) -> Result<Option<T>, ImageError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => match error.class() {
            ErrorClass::NotFound | ErrorClass::BadInput => Ok(None),
            ErrorClass::Denied | ErrorClass::Transport | ErrorClass::Local => Err(error),
        },
    }
}

/// Whether `content` is a signature of `key` for `subject` that counts.
fn counts(key: &PrivateKey, subject: &Descriptor, artifact: Digest, content: Content) -> bool {
    let authority = KeyAuthority::new(vec![key.public().clone()], LogPolicy::Ignore);
    let subject = Subject { descriptor: subject.clone(), kind: Kind::Manifest, platform: None };
    let evidence = Evidence { artifact, carrier: Carrier::Referrer, content };
    // No key expires, so the time does not matter.
    match authority.judge(&subject, &evidence, jiff::Timestamp::UNIX_EPOCH) {
        Some(Judgement::Accepted(accepted)) => accepted.claim == Claim::Signature,
        _ => false,
    }
}
