//! Files with holes, in the four ways that GNU tar wrote them. What is stored is a list of pieces;
//! all else is zeros.

use super::number;

/// A stored piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Where it is in the file.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) length: u64,
}

/// Adds the pieces of an old GNU map: pairs of twelve-byte numbers up to one that is not set.
pub(super) fn old_pieces(map: &[u8], pieces: &mut Vec<Piece>) -> Result<(), &'static str> {
    const BAD: &str = "its map has a number that cannot be read";
    for pair in map.chunks_exact(24).take_while(|pair| pair[0] != 0) {
        let read = |field| number::field(field).and_then(|n| u64::try_from(n).ok()).ok_or(BAD);
        pieces.push(Piece { offset: read(&pair[..12])?, length: read(&pair[12..])? });
    }
    Ok(())
}

/// The pieces of a PAX 0.1 map: `offset,length,offset,length`.
pub(super) fn listed_pieces(map: &[u8]) -> Result<Vec<Piece>, &'static str> {
    const BAD: &str = "its map is no list of pairs of numbers";
    if map.is_empty() {
        return Ok(Vec::new());
    }
    let mut numbers = map.split(|byte| *byte == b',').map(number::decimal);
    let mut pieces = Vec::new();
    while let Some(offset) = numbers.next() {
        let (Some(offset), Some(Some(length))) = (offset, numbers.next()) else { return Err(BAD) };
        pieces.push(Piece { offset, length });
    }
    Ok(pieces)
}

/// The map of PAX 1.0, which stands before the data: a count and as many pairs, each number on a
/// line of its own, padded to a block. Fed block by block.
#[derive(Debug, Default)]
pub(super) struct MapReader {
    /// Digits of a number that a block cut.
    digits: Vec<u8>,
    count: Option<u64>,
    offset: Option<u64>,
    pieces: Vec<Piece>,
}

impl MapReader {
    /// The pieces, once the map is complete. The rest of the block is padding.
    pub(super) fn push(&mut self, block: &[u8]) -> Result<Option<Vec<Piece>>, &'static str> {
        for byte in block {
            if *byte != b'\n' {
                // A u64 has at most twenty digits.
                if self.digits.len() >= 20 {
                    return Err("its map has a number that is too long");
                }
                self.digits.push(*byte);
                continue;
            }
            let number =
                number::decimal(&self.digits).ok_or("its map has a line that is no number")?;
            self.digits.clear();
            match (self.count, self.offset.take()) {
                (None, _) => self.count = Some(number),
                (Some(_), None) => self.offset = Some(number),
                (Some(_), Some(offset)) => self.pieces.push(Piece { offset, length: number }),
            }
            if self.count == Some(self.pieces.len() as u64) {
                return Ok(Some(std::mem::take(&mut self.pieces)));
            }
        }
        Ok(None)
    }
}

/// Whether the pieces are in order, inside the file and as long as what is stored.
pub(super) fn check(pieces: &[Piece], real_size: u64, stored: u64) -> Result<(), &'static str> {
    let mut end = 0u64;
    let mut sum = 0u64;
    for piece in pieces {
        if piece.offset < end {
            return Err("the pieces of its map overlap or are out of order");
        }
        end = piece.offset.checked_add(piece.length).ok_or("its map leaves the file")?;
        sum = sum.checked_add(piece.length).ok_or("its map leaves the file")?;
    }
    if end > real_size {
        return Err("its map leaves the file");
    }
    if sum != stored {
        return Err("its map and its data differ in size");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, length: u64) -> Piece {
        Piece { offset, length }
    }

    #[test]
    fn lists_of_pairs() {
        assert_eq!(listed_pieces(b"").unwrap(), []);
        assert_eq!(listed_pieces(b"0,5,10,0").unwrap(), [piece(0, 5), piece(10, 0)]);
        for bad in [&b"0"[..], b"0,5,", b"0,x", b",", b"0,-5"] {
            assert!(listed_pieces(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_map_before_the_data_may_be_cut_anywhere() {
        let map = b"2\n0\n512\n1048576\n10\n\0\0\0\0";
        for cut in 0..map.len() {
            let mut reader = MapReader::default();
            let first = reader.push(&map[..cut]).unwrap();
            let pieces = match first {
                Some(pieces) => pieces,
                None => reader.push(&map[cut..]).unwrap().unwrap(),
            };
            assert_eq!(pieces, [piece(0, 512), piece(1_048_576, 10)]);
        }
        assert_eq!(MapReader::default().push(b"0\n").unwrap(), Some(vec![]));
        assert!(MapReader::default().push(b"-1\n").is_err());
        assert!(MapReader::default().push(&[b'1'; 30]).is_err());
        assert!(MapReader::default().push(&[0; 30]).is_err());
    }

    #[test]
    fn maps_that_do_not_fit_are_refused() {
        assert_eq!(check(&[piece(0, 5), piece(5, 5), piece(20, 0)], 20, 10), Ok(()));
        assert!(check(&[piece(5, 5), piece(0, 5)], 20, 10).is_err());
        assert!(check(&[piece(0, 5), piece(4, 5)], 20, 10).is_err());
        assert!(check(&[piece(0, 5)], 4, 5).is_err());
        assert!(check(&[piece(0, 5)], 10, 6).is_err());
        assert!(check(&[piece(u64::MAX, 5)], u64::MAX, 5).is_err());
    }
}
