//! What would be random in another file system, and is not here.

use portolan_core::{Algorithm, Digest, Hasher};

use crate::meta::ROOTDISK_FORMAT_VERSION;

/// Said first, so that this hash is never used for anything else.
const DOMAIN: &[u8] = b"portolan root disk identity\n";

/// The UUID and the hash seed of the disk of an image: of its digest and the format version.
pub(super) fn of(resolved_digest: &Digest) -> ([u8; 16], [u8; 16]) {
    let hash = hash("uuid and hash seed", resolved_digest);
    let (uuid, seed) = hash.as_bytes().split_at(16);
    let mut uuid: [u8; 16] = uuid.try_into().expect("half of 32 bytes");
    // RFC 9562, version 8: made of something that only its maker knows the meaning of.
    uuid[6] = (uuid[6] & 0x0f) | 0x80;
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
    (uuid, seed.try_into().expect("half of 32 bytes"))
}

/// What the hash tree of the disk is salted with.
pub(super) fn salt(resolved_digest: &Digest) -> Vec<u8> {
    hash("verity salt", resolved_digest).as_bytes().to_vec()
}

fn hash(purpose: &str, resolved_digest: &Digest) -> Digest {
    let mut hasher = Hasher::new(Algorithm::Sha256);
    hasher.update(DOMAIN);
    let text = format!("{purpose}\n{ROOTDISK_FORMAT_VERSION}\n{resolved_digest}\n");
    hasher.update(text.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_from_the_digest_and_is_a_valid_uuid() {
        let (uuid, seed) = of(&Digest::sha256(b"one"));
        assert_eq!((uuid, seed), of(&Digest::sha256(b"one")));
        let (other_uuid, other_seed) = of(&Digest::sha256(b"two"));
        assert_ne!(uuid, other_uuid);
        assert_ne!(seed, other_seed);
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (8, 2));
    }
}
