//! Whatever a COSE envelope is, it is judged; accepted is only what the recorded signers signed.
#![no_main]

mod notation;

use libfuzzer_sys::fuzz_target;
use portolan_verify::notation::COSE;

const RECORDED: [&[u8]; 2] = [
    include_bytes!("../../fixtures/notation/P-256.cose"),
    include_bytes!("../../fixtures/notation/timestamped.cose"),
];
/// Of a signature on P-256, which is the last thing in an envelope.
const SIGNATURE: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    if notation::accepts(COSE, bytes) {
        let ends = |recorded: &&[u8]| bytes.ends_with(&recorded[recorded.len() - SIGNATURE..]);
        assert!(RECORDED.iter().any(ends), "it was never signed");
    }
});
