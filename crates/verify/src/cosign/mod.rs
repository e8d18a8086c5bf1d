//! Signatures as cosign 2 keeps them: a small document that names an image by digest ("simple
//! signing"), as a layer whose annotations hold the signature over the document's bytes.

mod layer;
mod payload;

pub use layer::{Entry, Layer, LayerError};
pub use payload::{MAX_PAYLOAD_BYTES, Payload, PayloadError};

/// The media type of the document.
pub const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// How a referrers list calls a manifest of such layers.
pub const SIGNATURE_ARTIFACT: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";
/// The signature over the layer's bytes, in base64.
pub const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// The certificate of the key that signed, in PEM.
pub const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
/// What leads from that certificate to a trusted one, in PEM.
pub const CHAIN: &str = "dev.sigstore.cosign/chain";
/// The log's promise that the signature is in it, in JSON.
pub const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";
/// What a timestamping authority says, in JSON.
pub const TIMESTAMP: &str = "dev.sigstore.cosign/rfc3161timestamp";

/// The tag under which cosign 2 looks for what is attached to `subject`; `suffix` is `sig` for
/// signatures and `att` for attestations.
pub fn tag(subject: &portolan_core::Digest, suffix: &str) -> portolan_core::Tag {
    let tag = format!("{}-{}.{suffix}", subject.algorithm().as_str(), subject.hex());
    // A sha512 in hex does not fit in a tag; the referrers tag is cut the same way.
    let tag = if tag.len() > 128 { format!("{}.{suffix}", subject.referrers_tag()) } else { tag };
    tag.parse().expect("an algorithm, hex and a short suffix are a tag")
}
