//! The 512 bytes that begin an entry.

use super::number;

/// Bytes of a block: of headers, and what data are padded to.
pub(super) const BLOCK: usize = 512;

/// Which dialect a header is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Before POSIX: no magic, no prefix.
    V7,
    /// POSIX, also with PAX records before it.
    Ustar,
    /// Schilling's tar: POSIX with a shorter prefix.
    Star,
    /// GNU: no prefix, other fields in its place.
    Gnu,
}

/// One header, its checksum verified.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header<'a>(&'a [u8; BLOCK]);

impl<'a> Header<'a> {
    /// `None` when the checksum is wrong: then this is no header.
    pub(super) fn new(block: &'a [u8; BLOCK]) -> Option<Self> {
        const FIELD: std::ops::Range<usize> = 148..156;
        let expected = number::field(&block[FIELD])?;
        let blanks = 8 * i64::from(b' ');
        let unsigned = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        let sum = i64::from(unsigned(block) - unsigned(&block[FIELD])) + blanks;
        if sum == expected {
            return Some(Self(block));
        }
        // Some old tars added up signed characters.
        let signed =
            |bytes: &[u8]| bytes.iter().map(|byte| i64::from(byte.cast_signed())).sum::<i64>();
        let sum = signed(block) - signed(&block[FIELD]) + blanks;
        (sum == expected).then_some(Self(block))
    }

    pub(super) fn dialect(&self) -> Dialect {
        match (&self.0[257..265], &self.0[508..512]) {
            (b"ustar  \0", _) => Dialect::Gnu,
            ([b'u', b's', b't', b'a', b'r', 0, ..], b"tar\0") => Dialect::Star,
            ([b'u', b's', b't', b'a', b'r', ..], _) => Dialect::Ustar,
            _ => Dialect::V7,
        }
    }

    pub(super) fn kind(&self) -> u8 {
        self.0[156]
    }

    /// The path, prefix included.
    pub(super) fn name(&self) -> Vec<u8> {
        let name = text(&self.0[..100]);
        let prefix = match self.dialect() {
            Dialect::Ustar => text(&self.0[345..500]),
            Dialect::Star => text(&self.0[345..476]),
            Dialect::V7 | Dialect::Gnu => &[],
        };
        if prefix.is_empty() {
            return name.to_vec();
        }
        [prefix, b"/", name].concat()
    }

    pub(super) fn link(&self) -> &'a [u8] {
        text(&self.0[157..257])
    }

    pub(super) fn mode(&self) -> Option<i64> {
        number::field(&self.0[100..108])
    }

    pub(super) fn uid(&self) -> Option<i64> {
        number::field(&self.0[108..116])
    }

    pub(super) fn gid(&self) -> Option<i64> {
        number::field(&self.0[116..124])
    }

    pub(super) fn size(&self) -> Option<u64> {
        number::field(&self.0[124..136]).and_then(|size| u64::try_from(size).ok())
    }

    pub(super) fn mtime(&self) -> Option<i64> {
        number::field(&self.0[136..148])
    }

    pub(super) fn major(&self) -> Option<i64> {
        number::field(&self.0[329..337])
    }

    pub(super) fn minor(&self) -> Option<i64> {
        number::field(&self.0[337..345])
    }

    /// The old GNU sparse map: up to four pieces, and whether blocks with more follow.
    pub(super) fn sparse_map(&self) -> (&'a [u8], bool) {
        (&self.0[386..482], self.0[482] != 0)
    }

    /// The size with holes of an old GNU sparse file.
    pub(super) fn real_size(&self) -> Option<u64> {
        number::field(&self.0[483..495]).and_then(|size| u64::try_from(size).ok())
    }
}

/// Up to the first zero byte.
fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|byte| *byte == 0).unwrap_or(field.len())]
}
