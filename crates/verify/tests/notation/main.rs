//! Signatures of the Notary Project, made here rule by rule and recorded from the real tools.

mod certificates;
mod envelopes;
mod mint;
mod policies;
mod real;
mod revocation;
mod robust;
mod timestamps;
mod token;
