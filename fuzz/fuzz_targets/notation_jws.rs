//! Whatever a JWS envelope is, it is judged; accepted is only what the recorded signers signed.
#![no_main]

mod notation;

use libfuzzer_sys::fuzz_target;
use portolan_verify::notation::JWS;

const RECORDED: [&str; 2] = [
    include_str!("../../fixtures/notation/P-256.jws"),
    include_str!("../../fixtures/notation/timestamped.jws"),
];

fuzz_target!(|bytes: &[u8]| {
    if notation::accepts(JWS, bytes) {
        let read = |text: &[u8]| -> serde_json::Value {
            serde_json::from_slice(text).expect("what is accepted is JSON")
        };
        let accepted = read(bytes);
        let same = RECORDED.iter().map(|text| read(text.as_bytes())).any(|recorded| {
            ["payload", "protected", "signature"].iter().all(|name| accepted[name] == recorded[name])
        });
        assert!(same, "it was never signed");
    }
});
