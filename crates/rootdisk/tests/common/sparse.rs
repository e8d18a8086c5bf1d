//! Disks as the pieces in them that are not zero: a file system of 400 KiB is a seed of 18 KiB.
//!
//! Four bytes of size, then pieces: four bytes of place, four of length, the bytes; all numbers
//! little endian. A piece that does not fit is left out, so any bytes are a disk.

/// No disk is larger, whatever its size says.
const MAX: usize = 1 << 20;

/// The disk that `pieces` stand for.
pub(crate) fn unpack(pieces: &[u8]) -> Vec<u8> {
    let Some((size, mut rest)) = number(pieces) else { return Vec::new() };
    let mut disk = vec![0; size.min(MAX)];
    while let Some((place, after)) = number(rest) {
        let Some((length, after)) = number(after) else { break };
        let (bytes, after) = after.split_at(length.min(after.len()));
        if let Some(room) = place.checked_add(bytes.len()).and_then(|end| disk.get_mut(place..end))
        {
            room.copy_from_slice(bytes);
        }
        rest = after;
    }
    disk
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number) as usize, rest))
}
