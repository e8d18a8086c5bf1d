//! The hash of a name in an indexed directory: half-MD4 over unsigned bytes.

/// The whole hash; names are ordered by it, and the index keeps `major`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameHash {
    /// Even: the lowest bit says in an index that the leaf before ends with the same hash.
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// The largest major hash is the kernel's mark for the end of a directory and stands for none.
const END_OF_DIRECTORY: u32 = 0xffff_fffe;

/// The seed as the superblock has it.
pub(super) fn seed_words(seed: &[u8; 16]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(seed.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    }
    if words == [0; 4] {
        // What the kernel takes when the superblock has no seed.
        return [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    }
    words
}

/// Hashes a name.
pub(super) fn of_name(seed: [u32; 4], name: &[u8]) -> NameHash {
    let mut state = seed;
    let mut rest = name;
    while !rest.is_empty() {
        transform(&mut state, &words(rest));
        rest = &rest[rest.len().min(32)..];
    }
    let major = state[1] & !1;
    NameHash {
        major: if major == END_OF_DIRECTORY { END_OF_DIRECTORY - 2 } else { major },
        minor: state[2],
    }
}

/// The first 32 bytes as eight big-endian words; what is missing is filled with the length.
fn words(text: &[u8]) -> [u32; 8] {
    let length = u32::from(u8::try_from(text.len()).expect("a name has at most 255 bytes"));
    let pad = length * 0x0101_0101;
    let mut words = [pad; 8];
    for (word, bytes) in words.iter_mut().zip(text.chunks(4)) {
        for &byte in bytes {
            *word = (*word << 8).wrapping_add(u32::from(byte));
        }
    }
    words
}

fn transform(state: &mut [u32; 4], words: &[u32; 8]) {
    fn choose(x: u32, y: u32, z: u32) -> u32 {
        z ^ (x & (y ^ z))
    }
    fn majority(x: u32, y: u32, z: u32) -> u32 {
        (x & y).wrapping_add((x ^ y) & z)
    }
    fn parity(x: u32, y: u32, z: u32) -> u32 {
        x ^ y ^ z
    }
    type Mix = fn(u32, u32, u32) -> u32;
    let rounds: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (choose, 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (majority, 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (parity, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, order, shifts) in rounds {
        for (step, word) in order.into_iter().enumerate() {
            let sum = a
                .wrapping_add(mix(b, c, d))
                .wrapping_add(words[word])
                .wrapping_add(constant)
                .rotate_left(shifts[step % 4]);
            (a, b, c, d) = (d, sum, b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `debugfs -R "dx_hash -h half_md4 -s SEED NAME"` says it.
    #[test]
    fn hashes_are_those_of_e2fsprogs() {
        let seed: Vec<u8> = (0..16).map(|n| n * 0x11).collect();
        let seed = seed_words(&seed.try_into().unwrap());
        for (name, major, minor) in [
            (&b"hello"[..], 0x344c_a36e, 0x2ef1_6de2),
            (b"a", 0x9375_2ee6, 0x578c_30ba),
            (&[b'x'; 70], 0x95d0_dec8, 0x3d53_cb65),
        ] {
            assert_eq!(of_name(seed, name), NameHash { major, minor });
        }
    }

    #[test]
    fn no_seed_is_the_usual_seed_and_bytes_are_unsigned() {
        let hash = of_name(seed_words(&[0; 16]), b"hello");
        assert_eq!(hash.major & 1, 0);
        let signed_as_debugfs_has_it = 0x4eff_ee6a;
        let name = "h\u{e9}".as_bytes();
        assert_ne!(of_name(seed_words(&[0; 16]), name).major, signed_as_debugfs_has_it);
    }
}
