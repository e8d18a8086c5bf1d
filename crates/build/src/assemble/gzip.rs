//! Gzip by as many threads as there are processors, the same bytes on every machine.
//!
//! What is packed is cut into blocks of one size. Each is packed for itself, with the end of the block before it as what it may refer
//! to, and ends on a byte: side by side they are one stream of deflate, and one member of gzip that every reader knows. Where a
//! block ends and what it refers to depends on nothing but the bytes, so neither does what comes out.
//!
//! For that every block has a packer of its own and room for all that can come of it. zlib-rs 0.6.8 hashes one byte behind a dictionary, which in
//! a packer that is used again (`reset` leaves the window as it was) is one of the block before, of whichever thread that was; and where its
//! output is full it forgets the match it was at.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// How much is packed at a time: a block's last five bytes are lost, and a processor is busy for some milliseconds.
const BLOCK: usize = 1 << 20;
/// How far back deflate can refer.
const WINDOW: usize = 32 << 10;
/// A fifth faster than 6, and a quarter of a percent larger.
const LEVEL: u32 = 5;
/// More threads than this wait for the disk. With each go about 4 MiB: a block that is packed, what comes of it, and one that waits.
const MOST_THREADS: usize = 8;
/// Deflate, no name, no time, no hint how well it was packed, an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// Packs what is written to it.
#[derive(Debug)]
pub(super) struct Gzip<W> {
    out: W,
    block: Vec<u8>,
    /// The end of the block before.
    before: Vec<u8>,
    crc: Crc,
    /// How many may pack at a time.
    threads: usize,
    packers: Option<Packers>,
}

impl<W: Write> Gzip<W> {
    pub(super) fn new(out: W) -> io::Result<Self> {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_threads(out, processors.min(MOST_THREADS))
    }

    fn with_threads(mut out: W, threads: usize) -> io::Result<Self> {
        out.write_all(&HEADER)?;
        let (block, before) = (Vec::with_capacity(BLOCK), Vec::new());
        Ok(Self { out, block, before, crc: Crc::new(), threads, packers: None })
    }

    /// Packs what is left, and gives back what it was written to.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let last = self.cut(true);
        match self.packers.take() {
            // What fits into one block is not worth a thread.
            None => self.out.write_all(&pack(&last)?)?,
            Some(mut packers) => {
                packers.give(last)?;
                while let Some(packed) = packers.next()? {
                    self.out.write_all(&packed)?;
                }
            }
        }
        self.out.write_all(&self.crc.sum().to_le_bytes())?;
        self.out.write_all(&self.crc.amount().to_le_bytes())?;
        Ok(self.out)
    }

    /// Ends a block.
    fn cut(&mut self, last: bool) -> Block {
        let bytes = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK));
        self.crc.update(&bytes);
        let end = bytes[bytes.len().saturating_sub(WINDOW)..].to_vec();
        let before = std::mem::replace(&mut self.before, end);
        Block { bytes, before, last }
    }

    /// Hands a full block to who has time. There is always more after it.
    fn hand_over(&mut self) -> io::Result<()> {
        let block = self.cut(false);
        let packers = self.packers.get_or_insert_with(|| Packers::start(self.threads));
        packers.give(block)?;
        while packers.are_full() {
            if let Some(packed) = packers.next()? {
                self.out.write_all(&packed)?;
            }
        }
        Ok(())
    }
}

impl<W: Write> Write for Gzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Only when more comes is it known that a full block is not the last.
        if self.block.len() == BLOCK && !bytes.is_empty() {
            self.hand_over()?;
        }
        let taken = bytes.len().min(BLOCK - self.block.len());
        self.block.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    /// What is in a block stays there: where blocks end must not depend on who asks.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Block {
    bytes: Vec<u8>,
    before: Vec<u8>,
    last: bool,
}

type Packed = io::Result<Vec<u8>>;
type Work = (Block, SyncSender<Packed>);

/// Threads that pack, and what they are at, in order.
#[derive(Debug)]
struct Packers {
    work: Option<Sender<Work>>,
    awaited: VecDeque<Receiver<Packed>>,
    threads: Vec<JoinHandle<()>>,
}

impl Packers {
    /// So many, or as many as the machine allows: where pods may have few processes, those that could be started do it all.
    fn start(count: usize) -> Self {
        let (work, queue) = channel::<Work>();
        let queue = Arc::new(Mutex::new(queue));
        let threads = (0..count).map_while(|_| {
            let queue = Arc::clone(&queue);
            thread::Builder::new().spawn(move || work_off(&queue)).ok()
        });
        Self { work: Some(work), awaited: VecDeque::new(), threads: threads.collect() }
    }

    fn give(&mut self, block: Block) -> io::Result<()> {
        let (done, awaited) = sync_channel(1);
        self.awaited.push_back(awaited);
        if self.threads.is_empty() {
            return done.send(pack(&block)).map_err(|_| gone());
        }
        let given = self.work.as_ref().map(|work| work.send((block, done)));
        given.and_then(Result::ok).ok_or_else(gone)
    }

    /// Whether everybody has one block to do and one to go on with.
    fn are_full(&self) -> bool {
        self.awaited.len() > 2 * self.threads.len()
    }

    /// The first block that was not fetched yet.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let first = self.awaited.pop_front();
        first.map(|packed| packed.recv().map_err(|_| gone())?).transpose()
    }
}

impl Drop for Packers {
    fn drop(&mut self) {
        // Nothing more comes; whoever is at a block ends it.
        self.work = None;
        self.awaited.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("a thread that packs is gone")
}

fn work_off(queue: &Mutex<Receiver<Work>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((block, done)) = next else { return };
        // Nobody waits for it any more where writing failed.
        let _ = done.send(pack(&block));
    }
}

/// One block, by a packer that nobody used before.
fn pack(block: &Block) -> Packed {
    pack_with(&mut new_packer(), block)
}

fn new_packer() -> Compress {
    Compress::new(Compression::new(LEVEL), false)
}

fn pack_with(packer: &mut Compress, block: &Block) -> Packed {
    if !block.before.is_empty() {
        packer.set_dictionary(&block.before)?;
    }
    let flush = if block.last { FlushCompress::Finish } else { FlushCompress::Sync };
    let mut packed = Vec::with_capacity(most_of(block.bytes.len()));
    let status = packer.compress_vec(&block.bytes, &mut packed, flush)?;
    let all_read = packer.total_in() == block.bytes.len() as u64;
    // With room to spare nothing is held back.
    let over =
        if block.last { status == Status::StreamEnd } else { packed.len() < packed.capacity() };
    if !(all_read && over) {
        return Err(io::Error::other("a block became larger than packing can make it"));
    }
    // Several of these wait until it is their turn to be written.
    packed.shrink_to_fit();
    Ok(packed)
}

/// More than can come of so many bytes: deflate stores what does not pack, with five more for every few thousand.
fn most_of(bytes: usize) -> usize {
    bytes + bytes / 8 + 1024
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Noise with something to find in it, the same every time.
    fn bytes(count: usize) -> Vec<u8> {
        let words = numbers(0x9e37_79b9_7f4a_7c15).map(|n| [n.to_le_bytes(), *b"usr/lib/"]);
        words.flatten().flatten().take(count).collect()
    }

    fn packed(bytes: &[u8], piece: usize) -> Vec<u8> {
        packed_by(MOST_THREADS, bytes, piece)
    }

    fn packed_by(threads: usize, bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut gzip = Gzip::with_threads(Vec::new(), threads).unwrap();
        for piece in bytes.chunks(piece) {
            gzip.write_all(piece).unwrap();
        }
        gzip.finish().unwrap()
    }

    /// Numbers without a pattern, the same for the same seed.
    fn numbers(mut seed: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_with(move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        })
    }

    /// So many of 32 letters and digits without a pattern.
    fn noise(count: usize, seed: u64) -> Vec<u8> {
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXY0123456";
        let letter = |number: u64| letters[usize::from(number.to_le_bytes()[0]) % letters.len()];
        numbers(seed).map(letter).take(count).collect()
    }

    /// Words as people and programs write them.
    fn text(count: usize) -> Vec<u8> {
        let words = "the of and to in is that for it as was with be by on not at are this have from or \
            which one all there would their been has when who will no more if out so said what its about than into \
            only other time new some could these two first then any like now over such even most made after also";
        let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
        let mut text = Vec::with_capacity(count + 16);
        for number in numbers(7) {
            let [low, high, line, ..] = number.to_le_bytes();
            let word = usize::from(u16::from_le_bytes([low, high])) % words.len();
            text.extend_from_slice(words[word].as_bytes());
            text.push(if line < 16 { b'\n' } else { b' ' });
            if text.len() >= count {
                break;
            }
        }
        text.truncate(count);
        text
    }

    fn alone(bytes: Vec<u8>) -> Block {
        Block { bytes, before: Vec::new(), last: false }
    }

    #[test]
    fn what_is_packed_is_one_member_that_unpacks_to_the_same() {
        for count in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 20 * BLOCK + 17] {
            let bytes = bytes(count);
            let packed = packed(&bytes, 100_000);
            let mut unpacked = Vec::new();
            // One that reads a single member, and then sees the end.
            let mut reader = flate2::bufread::GzDecoder::new(packed.as_slice());
            reader.read_to_end(&mut unpacked).unwrap();
            assert!(unpacked == bytes, "{count} bytes");
            assert!(reader.into_inner().is_empty(), "{count} bytes: something follows");
        }
    }

    #[test]
    fn it_does_not_matter_in_which_pieces_it_comes() {
        let bytes = bytes(3 * BLOCK + 5);
        let one = packed(&bytes, usize::MAX);
        for piece in [1000, 65_536, BLOCK] {
            assert!(packed(&bytes, piece) == one, "pieces of {piece}");
        }
    }

    /// A block of which three bytes more or less come, by what is behind its dictionary.
    fn touchy() -> Block {
        let word = b"abcZ0123456789abcdefghijklmnopqrstuvwxyz";
        let mut before = noise(WINDOW, 1);
        before[16_100..16_100 + word.len()].copy_from_slice(word);
        before[WINDOW - 3..].copy_from_slice(b"abc");
        let bytes = [b"Q".to_vec(), noise(500, 2), word.to_vec(), noise(500, 3)].concat();
        Block { bytes, before, last: false }
    }

    #[test]
    fn a_block_packs_to_the_same_whatever_its_thread_packed_before() {
        let other = || alone(vec![b'Z'; 2 * WINDOW]);
        let mut used = new_packer();
        pack_with(&mut used, &other()).unwrap();
        used.reset();
        let stained = pack_with(&mut used, &touchy()).unwrap();
        let first = pack(&touchy()).unwrap();
        assert_ne!(stained.len(), first.len(), "packers may be used again: this shows no fault");
        let mut packers = Packers::start(1);
        for block in [other(), touchy(), touchy()] {
            packers.give(block).unwrap();
        }
        packers.next().unwrap().unwrap();
        for _ in 0..2 {
            assert!(packers.next().unwrap().unwrap() == first, "another block was in the window");
        }
    }

    #[test]
    fn the_same_text_packs_to_the_same_by_any_number_of_threads() {
        let text = text(20 * BLOCK + 17);
        let one = packed_by(1, &text, 100_000);
        assert!(one.len() < text.len() / 2, "text packs well");
        // None at all is where no thread could be started.
        for threads in [0, 2, MOST_THREADS, MOST_THREADS] {
            assert!(packed_by(threads, &text, 100_000) == one, "{threads} threads");
        }
    }

    /// What several blocks come to on every machine. A change of it is a change for everybody who compares digests: say so in the changelog.
    const BLOCKS: &str = "sha256:6d1d236b81adf3f7ad2120cc74d3e7d02f1201987a1d470225e7c1eaaf27a0f2";

    #[test]
    fn several_blocks_have_the_same_digest_on_every_machine() {
        let mixed = [text(BLOCK + 500), noise(BLOCK, 5), bytes(BLOCK)].concat();
        let packed = packed(&mixed, 65_536);
        assert_eq!(portolan_core::Digest::sha256(&packed).to_string(), BLOCKS);
    }

    #[test]
    fn a_block_that_hardly_packs_or_not_at_all_has_room_at_once() {
        let random = numbers(9).flat_map(u64::to_le_bytes).take(BLOCK).collect();
        let hardly = bytes(BLOCK);
        for (bytes, what) in [(random, "not at all"), (hardly, "hardly"), (Vec::new(), "none")] {
            for last in [false, true] {
                let block = Block { last, ..alone(bytes.clone()) };
                let packed = pack(&block).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(packed.len() <= bytes.len() + 1024, "{what}: {}", packed.len());
            }
        }
    }

    #[test]
    fn a_block_finds_what_the_block_before_it_had() {
        let mut bytes = bytes(WINDOW / 2);
        let noise = bytes.clone();
        bytes = [vec![0; BLOCK - noise.len()], noise.clone(), noise.clone()].concat();
        assert!(packed(&bytes, BLOCK).len() < noise.len() * 3 / 4, "the same noise, packed once");
    }

    #[test]
    fn an_error_of_who_takes_it_is_told_and_ends_all() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut gzip = Gzip::new(Full(3 * BLOCK)).unwrap();
        let error = gzip.write_all(&bytes(60 * BLOCK)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
