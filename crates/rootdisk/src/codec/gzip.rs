//! gzip framing (RFC 1952) round flate2's raw inflate, which is zlib-rs: the fastest that streams.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::{CodecError, Output, Stopped};

/// How every member begins: the two magic bytes and the only method there is, deflate.
pub(super) const MAGIC: &[u8] = b"\x1f\x8b\x08";

/// The longest file name or comment. They say nothing to us; nobody writes more.
const MAX_TEXT: usize = 64 << 10;

const FHCRC: u8 = 1 << 1;
const FEXTRA: u8 = 1 << 2;
const FNAME: u8 = 1 << 3;
const FCOMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0xe0;

/// Where in a member the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a member's magic.
    Start,
    /// The ten bytes of its fixed header.
    Fixed,
    ExtraLength,
    Extra(u16),
    Name(usize),
    Comment(usize),
    HeaderCrc,
    Body,
    /// CRC and length of the content.
    Trailer,
    /// Something else, after at least one member.
    Ignored,
}

#[derive(Debug)]
pub(super) struct Gzip {
    state: State,
    /// The fixed-size field being collected.
    field: [u8; 10],
    have: usize,
    flags: u8,
    members: u64,
    inflate: Decompress,
    /// Of the header while that is read, then of the content.
    crc: Crc,
    /// Bytes of this member's content, modulo 2^32 as the trailer has them.
    length: u32,
    ignored: u64,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self {
            state: State::Start,
            field: [0; 10],
            have: 0,
            flags: 0,
            members: 0,
            inflate: Decompress::new(false),
            crc: Crc::new(),
            length: 0,
            ignored: 0,
        }
    }

    /// Bytes after the last member, which were not looked at.
    pub(super) fn ignored(&self) -> u64 {
        self.ignored
    }

    pub(super) fn push<E>(
        &mut self,
        mut input: &[u8],
        output: &mut Output<'_, E>,
    ) -> Result<(), Stopped<E>> {
        while !input.is_empty() {
            match self.state {
                State::Body => self.inflate(&mut input, output)?,
                State::Ignored => {
                    self.ignored += input.len() as u64;
                    return Ok(());
                }
                _ => self.header(&mut input)?,
            }
        }
        Ok(())
    }

    /// The stream has ended: was it whole?
    pub(super) fn finish(&mut self) -> Result<(), CodecError> {
        match self.state {
            State::Ignored => Ok(()),
            State::Start if self.members > 0 && self.have == 0 => Ok(()),
            State::Start if self.members > 0 && !MAGIC.starts_with(&self.field[..self.have]) => {
                self.ignored = self.have as u64;
                Ok(())
            }
            _ => Err(CodecError::Truncated { packing: "gzip" }),
        }
    }

    /// One step through a header or trailer.
    fn header(&mut self, input: &mut &[u8]) -> Result<(), CodecError> {
        match self.state {
            State::Start => {
                if let Some(seen) = self.collect(input, MAGIC.len()) {
                    if seen.starts_with(MAGIC) {
                        self.crc.reset();
                        self.crc.update(MAGIC);
                        self.state = State::Fixed;
                    } else if self.members > 0 && !seen.starts_with(&MAGIC[..2]) {
                        self.ignored = MAGIC.len() as u64;
                        self.state = State::Ignored;
                    } else {
                        return Err(corrupt("a member does not begin as gzip does"));
                    }
                }
            }
            State::Fixed => {
                if let Some(fixed) = self.collect(input, 7) {
                    self.crc.update(&fixed[..7]);
                    self.flags = fixed[0];
                    if self.flags & RESERVED != 0 {
                        return Err(corrupt("a header has flags that gzip does not define"));
                    }
                    self.next_field(0);
                }
            }
            State::ExtraLength => {
                if let Some(length) = self.collect(input, 2) {
                    self.crc.update(&length[..2]);
                    self.state = State::Extra(u16::from_le_bytes([length[0], length[1]]));
                }
            }
            State::Extra(left) => {
                let take = input.len().min(usize::from(left));
                self.crc.update(&input[..take]);
                *input = &input[take..];
                let left = left - u16::try_from(take).expect("at most a u16 was taken");
                self.state = State::Extra(left);
                if left == 0 {
                    self.next_field(1);
                }
            }
            State::Name(seen) => {
                self.text(input, seen, State::Name, 2)?;
            }
            State::Comment(seen) => {
                self.text(input, seen, State::Comment, 3)?;
            }
            State::HeaderCrc => {
                if let Some(crc) = self.collect(input, 2) {
                    let [low, high, ..] = self.crc.sum().to_le_bytes();
                    if crc[..2] != [low, high] {
                        return Err(corrupt("a header's checksum is wrong"));
                    }
                    self.next_field(4);
                }
            }
            State::Trailer => {
                if let Some(trailer) = self.collect(input, 8) {
                    self.check_trailer(&trailer)?;
                }
            }
            State::Body | State::Ignored => unreachable!("push handles these"),
        }
        Ok(())
    }

    /// The next field of the header that its flags announce, when `done` of the four are behind
    /// us.
    fn next_field(&mut self, done: usize) {
        let fields = [
            (FEXTRA, State::ExtraLength),
            (FNAME, State::Name(0)),
            (FCOMMENT, State::Comment(0)),
            (FHCRC, State::HeaderCrc),
        ];
        let announced = fields[done..].iter().find(|(flag, _)| self.flags & flag != 0);
        self.state = announced.map_or(State::Body, |(_, state)| *state);
        if self.state == State::Body {
            self.crc.reset();
            self.length = 0;
        }
    }

    /// Skips text up to its zero byte, within bounds.
    fn text(
        &mut self,
        input: &mut &[u8],
        seen: usize,
        again: fn(usize) -> State,
        done: usize,
    ) -> Result<(), CodecError> {
        let end = input.iter().position(|byte| *byte == 0);
        let take = end.map_or(input.len(), |end| end + 1);
        if seen + take > MAX_TEXT {
            return Err(corrupt("a header has a name or comment of more than 64 KiB"));
        }
        self.crc.update(&input[..take]);
        *input = &input[take..];
        self.state = again(seen + take);
        if end.is_some() {
            self.next_field(done);
        }
        Ok(())
    }

    fn inflate<E>(
        &mut self,
        input: &mut &[u8],
        output: &mut Output<'_, E>,
    ) -> Result<(), Stopped<E>> {
        let (in_before, out_before) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self
            .inflate
            .decompress(input, output.space(), FlushDecompress::None)
            .map_err(|source| CodecError::Deflate { source })?;
        let taken = delta(in_before, self.inflate.total_in());
        let given = delta(out_before, self.inflate.total_out());
        *input = &input[taken..];
        let content = output.wrote(given);
        self.crc.update(content);
        // ISIZE is modulo 2^32 by definition.
        #[allow(clippy::cast_possible_truncation, reason = "given is at most the buffer's size")]
        let given_mod = given as u32;
        self.length = self.length.wrapping_add(given_mod);
        match status {
            Status::StreamEnd => {
                self.state = State::Trailer;
                Ok(())
            }
            _ if taken == 0 && given == 0 => {
                Err(corrupt("the compressed data lead nowhere").into())
            }
            _ => output.flush_if_full(),
        }
    }

    fn check_trailer(&mut self, trailer: &[u8]) -> Result<(), CodecError> {
        let word = |at: usize| {
            u32::from_le_bytes(trailer[at..at + 4].try_into().expect("four bytes of eight"))
        };
        if word(0) != self.crc.sum() {
            return Err(corrupt("the checksum of the content is wrong"));
        }
        if word(4) != self.length {
            return Err(corrupt("the length of the content is wrong"));
        }
        self.members += 1;
        self.inflate.reset(false);
        self.state = State::Start;
        Ok(())
    }

    /// A field of `want` bytes, once all of them are there.
    fn collect(&mut self, input: &mut &[u8], want: usize) -> Option<[u8; 10]> {
        let take = input.len().min(want - self.have);
        self.field[self.have..self.have + take].copy_from_slice(&input[..take]);
        *input = &input[take..];
        self.have += take;
        (self.have == want).then(|| {
            self.have = 0;
            self.field
        })
    }
}

fn delta(before: u64, after: u64) -> usize {
    usize::try_from(after - before).expect("no more than the buffer")
}

fn corrupt(what: &'static str) -> CodecError {
    CodecError::Corrupt { packing: "gzip", what }
}
