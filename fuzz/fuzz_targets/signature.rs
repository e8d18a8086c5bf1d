//! Whatever is found beside an image, but for documents and bundles, is judged without panicking, and
//! nothing that was not signed by the trusted key counts. The first byte chooses the form.
#![no_main]

mod sigstore;

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use portolan_verify::cosign::{CERTIFICATE, LOG_ENTRY, SIGNATURE};
use portolan_verify::evidence::Content;
use portolan_verify::key::{Password, PrivateKey, PublicKey};
use portolan_verify::sigstore::TrustedRoot;

fuzz_target!(|bytes: &[u8]| {
    let Some((&form, rest)) = bytes.split_first() else { return };
    let text = || String::from_utf8_lossy(rest).into_owned();
    let payload = br#"{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":"sha256:6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d"},"type":"cosign container image signature"},"optional":null}"#;
    let signed = |name: &str| {
        let mut annotations = BTreeMap::from([(name.to_owned(), text())]);
        annotations.entry(SIGNATURE.to_owned()).or_insert_with(|| "AAAA".to_owned());
        Content::SimpleSigning { payload: payload.to_vec().into(), annotations }
    };
    let content = match form % 6 {
        0 => Content::Attestation { envelope: rest.to_vec().into(), annotations: BTreeMap::new() },
        1 => signed(SIGNATURE),
        2 => signed(CERTIFICATE),
        3 => signed(LOG_ENTRY),
        4 => {
            let _ = PublicKey::from_pem(rest);
            let _ = PublicKey::from_der(rest);
            // An empty password and cheap parameters: the parser is tried, not the machine.
            let _ = PrivateKey::is_encrypted(rest);
            let cheap = !rest.windows(4).any(|word| word.iter().all(u8::is_ascii_digit));
            if cheap {
                let _ = PrivateKey::from_pem(rest, Some(&Password::new(Vec::new())));
            }
            return;
        }
        _ => {
            let _ = TrustedRoot::from_json(rest);
            return;
        }
    };
    sigstore::is_refused(&content);
});
