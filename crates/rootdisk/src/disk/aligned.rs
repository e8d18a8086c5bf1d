//! Memory that a disk takes as it is.

use crate::checksum::CHUNK;
use crate::tree::BLOCK;

/// A chunk of memory that begins at a multiple of a block, as writing past the page cache needs.
pub(crate) struct Aligned {
    /// One block more than is used.
    memory: Box<[u8]>,
    start: usize,
}

impl Aligned {
    /// Zeros.
    pub(crate) fn new() -> Self {
        let memory = vec![0; CHUNK + BLOCK].into_boxed_slice();
        let start = memory.as_ptr().align_offset(BLOCK);
        assert!(start < BLOCK, "a byte's address can be aligned to anything");
        Self { memory, start }
    }

    pub(crate) fn as_ref(&self) -> &[u8] {
        &self.memory[self.start..self.start + CHUNK]
    }

    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_block_wherever_it_is_moved_to() {
        let moved: Vec<Aligned> = (0..5).map(|_| Aligned::new()).collect();
        for buffer in moved {
            assert_eq!(buffer.as_ref().as_ptr().align_offset(BLOCK), 0);
            assert_eq!(buffer.as_ref().len(), CHUNK);
        }
    }
}
