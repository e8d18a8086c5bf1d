//! A layer's packing is a stranger's: any bytes in any cuts end in an answer, the same in all cuts,
//! and never in more output than the limits allow.
#![no_main]

use std::convert::Infallible;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use portolan_rootdisk::codec::Decoder;
use portolan_rootdisk::limits::{Budget, Limits};

/// Small, so that a bomb is met within one input.
const MOST: u64 = 1 << 20;

fn unpack(bytes: &[u8], cut: usize) -> (Vec<u8>, Result<u64, ()>) {
    let limits = Limits { max_layer_bytes: MOST, ..Limits::default() };
    let media_type = "application/vnd.oci.image.layer.v1.tar+gzip";
    let budget = Arc::new(Budget::new(limits));
    let mut decoder = Decoder::new(media_type, budget).expect("a known type");
    let mut unpacked = Vec::new();
    let mut out = |bytes: &[u8]| {
        unpacked.extend_from_slice(bytes);
        Ok::<(), Infallible>(())
    };
    let mut whole = || {
        for piece in bytes.chunks(cut) {
            decoder.push(piece, &mut out).map_err(drop)?;
        }
        decoder.finish(&mut out).map_err(drop)
    };
    let result = whole().map(|finished| finished.ignored);
    assert!(unpacked.len() as u64 <= MOST);
    (unpacked, result)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let (whole, result) = unpack(bytes, bytes.len().max(1));
    let (pieces, again) = unpack(bytes, usize::from(cut) + 1);
    assert_eq!(result, again, "cuts change nothing");
    if result.is_ok() {
        assert_eq!(whole, pieces, "cuts change nothing");
    }
});
