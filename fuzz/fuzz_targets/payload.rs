//! Whatever document was signed, it is judged: not signed by a trusted key it counts for nothing, and
//! signed by one only for the image that it names.
#![no_main]

mod sigstore;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libfuzzer_sys::fuzz_target;
use portolan_verify::authority::Judgement;
use portolan_verify::cosign::{Payload, SIGNATURE};
use portolan_verify::evidence::Content;
use portolan_verify::key::PrivateKey;
use portolan_verify::sigstore::{KeyAuthority, LogPolicy};

static SIGNER: LazyLock<PrivateKey> = LazyLock::new(|| PrivateKey::generate().expect("a key"));

fuzz_target!(|bytes: &[u8]| {
    let content = |signature: &[u8]| Content::SimpleSigning {
        payload: bytes.to_vec().into(),
        annotations: BTreeMap::from([(SIGNATURE.to_owned(), STANDARD.encode(signature))]),
    };
    sigstore::is_refused(&content(b"nobody's"));
    let named = Payload::parse(bytes).and_then(|payload| payload.digest());
    if let Ok(digest) = named {
        let again = Payload::parse(&Payload::parse(bytes).expect("it was read").to_vec());
        assert_eq!(again.and_then(|payload| payload.digest()), Ok(digest));
    }
    let image = sigstore::image();
    let trusted = KeyAuthority::new(vec![SIGNER.public().clone()], LogPolicy::Ignore);
    let signature = SIGNER.sign(bytes).expect("a signature");
    let judged = sigstore::judge(&trusted, &image, content(&signature));
    let names = named == Ok(image.descriptor.digest);
    assert_eq!(matches!(judged, Judgement::Accepted(_)), names, "{judged:?}");
});
