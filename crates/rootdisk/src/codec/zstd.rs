//! zstd frames (RFC 8878): libzstd decodes, we look at each frame's header first, because it says
//! how much memory the author of the frame wants.

use std::fmt;
use std::sync::Arc;

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};
use zstd::zstd_safe::DParameter;

use super::{CodecError, Output, Stopped};
use crate::limits::{Budget, COMMON_WINDOW, Exceeded, LargeWindow};

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The longest frame header.
const MAX_HEADER: usize = 18;

/// Whether the bytes begin a frame with content or one to skip.
pub(super) fn is_frame(head: &[u8]) -> bool {
    head.starts_with(&MAGIC) || is_skippable(head)
}

fn is_skippable(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// What the beginning of a frame says.
#[derive(Debug, PartialEq, Eq)]
enum Header {
    /// More bytes are needed: this many in all.
    Short(usize),
    /// Not a frame.
    Foreign,
    /// To be skipped.
    Skippable,
    /// Content that needs a window of this size.
    Frame { window: u64, dictionary: bool },
}

fn header(head: &[u8]) -> Header {
    if head.len() < 4 {
        return Header::Short(4);
    }
    if is_skippable(head) {
        return Header::Skippable;
    }
    if !head.starts_with(&MAGIC) {
        return Header::Foreign;
    }
    let Some(descriptor) = head.get(4) else { return Header::Short(5) };
    let single_segment = descriptor & 0x20 != 0;
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_bytes = match (descriptor >> 6, single_segment) {
        (0, false) => 0,
        (0, true) => 1,
        (1, _) => 2,
        (2, _) => 4,
        _ => 8,
    };
    let dictionary_at = if single_segment { 5 } else { 6 };
    let end = dictionary_at + dictionary_bytes + size_bytes;
    if head.len() < end {
        return Header::Short(end);
    }
    let number = |at: usize, bytes: usize| {
        head[at..at + bytes].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let window = if single_segment {
        let size = number(dictionary_at + dictionary_bytes, size_bytes);
        if size_bytes == 2 { size + 256 } else { size }
    } else {
        let base = 1u64 << (10 + (head[5] >> 3));
        base + base / 8 * u64::from(head[5] & 7)
    };
    Header::Frame { window, dictionary: number(dictionary_at, dictionary_bytes) != 0 }
}

/// Where in the stream the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the header of a frame.
    Start,
    /// In a frame.
    Frame,
    /// After the last one.
    Ignored,
}

pub(super) struct Zstd {
    state: State,
    head: [u8; MAX_HEADER],
    have: usize,
    frames: u64,
    decoder: Decoder<'static>,
    budget: Arc<Budget>,
    window: Option<LargeWindow>,
    ignored: u64,
}

impl fmt::Debug for Zstd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd")
            .field("state", &self.state)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

impl Zstd {
    pub(super) fn new(budget: Arc<Budget>) -> Result<Self, CodecError> {
        let mut decoder = Decoder::new().map_err(|source| CodecError::Zstd { source })?;
        let log = budget.limits().max_zstd_window_bytes.max(COMMON_WINDOW).ilog2();
        decoder
            .set_parameter(DParameter::WindowLogMax(log.clamp(10, 31)))
            .map_err(|source| CodecError::Zstd { source })?;
        Ok(Self {
            state: State::Start,
            head: [0; MAX_HEADER],
            have: 0,
            frames: 0,
            decoder,
            budget,
            window: None,
            ignored: 0,
        })
    }

    /// Bytes after the last frame, which were not looked at.
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
                State::Start => self.start(&mut input, output)?,
                State::Frame => self.decode(&mut input, output)?,
                State::Ignored => {
                    self.ignored += input.len() as u64;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The stream has ended: was it whole?
    pub(super) fn finish(&mut self) -> Result<(), CodecError> {
        match self.state {
            State::Ignored => Ok(()),
            State::Start if self.frames > 0 && self.have == 0 => Ok(()),
            State::Start if self.frames > 0 && !could_be_frame(&self.head[..self.have]) => {
                self.ignored = self.have as u64;
                Ok(())
            }
            _ => Err(CodecError::Truncated { packing: "zstd" }),
        }
    }

    /// Collects a frame's header and lets the decoder have it if we agree.
    fn start<E>(
        &mut self,
        input: &mut &[u8],
        output: &mut Output<'_, E>,
    ) -> Result<(), Stopped<E>> {
        let want = match header(&self.head[..self.have]) {
            Header::Short(want) => want,
            _ => unreachable!("a whole header is acted on at once"),
        };
        let take = input.len().min(want - self.have);
        self.head[self.have..self.have + take].copy_from_slice(&input[..take]);
        self.have += take;
        *input = &input[take..];
        match header(&self.head[..self.have]) {
            Header::Short(_) => return Ok(()),
            Header::Foreign if self.frames > 0 => {
                self.ignored = self.have as u64;
                self.state = State::Ignored;
                return Ok(());
            }
            Header::Foreign => return Err(corrupt("a frame does not begin as zstd does").into()),
            Header::Skippable => {}
            Header::Frame { dictionary: true, .. } => {
                return Err(corrupt("a frame needs a dictionary, which layers do not have").into());
            }
            Header::Frame { window, .. } => self.admit(window)?,
        }
        let head = self.head;
        let mut head = &head[..self.have];
        self.have = 0;
        self.state = State::Frame;
        while !head.is_empty() && self.state == State::Frame {
            self.decode(&mut head, output)?;
        }
        Ok(())
    }

    /// Whether a window of this size may be had; large ones wait for their turn.
    fn admit(&mut self, window: u64) -> Result<(), CodecError> {
        let limit = self.budget.limits().max_zstd_window_bytes.max(COMMON_WINDOW);
        if window > limit {
            let setting = "max_zstd_window_bytes";
            return Err(Exceeded { what: "a zstd window", limit, setting }.into());
        }
        if window > COMMON_WINDOW && self.window.is_none() {
            self.window = Some(self.budget.large_window().ok_or(CodecError::Cancelled)?);
        }
        Ok(())
    }

    fn decode<E>(
        &mut self,
        input: &mut &[u8],
        output: &mut Output<'_, E>,
    ) -> Result<(), Stopped<E>> {
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(output.space());
        let remaining =
            self.decoder.run(&mut from, &mut to).map_err(|source| CodecError::Zstd { source })?;
        let (taken, given) = (from.pos(), to.pos());
        *input = &input[taken..];
        output.wrote(given);
        if remaining == 0 {
            self.frames += 1;
            self.state = State::Start;
        } else if taken == 0 && given == 0 {
            return Err(corrupt("the compressed data lead nowhere").into());
        }
        output.flush_if_full()
    }

    /// What the decoder still holds back although it has seen all input so far.
    pub(super) fn drain<E>(&mut self, output: &mut Output<'_, E>) -> Result<(), Stopped<E>> {
        while self.state == State::Frame {
            let mut to = OutBuffer::around(output.space());
            let remaining = self
                .decoder
                .run(&mut InBuffer::around(&[]), &mut to)
                .map_err(|source| CodecError::Zstd { source })?;
            let given = to.pos();
            output.wrote(given);
            if remaining == 0 {
                self.frames += 1;
                self.state = State::Start;
            }
            output.flush_if_full()?;
            if given == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Whether the bytes may be the beginning of a frame.
fn could_be_frame(head: &[u8]) -> bool {
    if head.len() >= MAGIC.len() {
        return is_frame(head);
    }
    let skippable = [head.first().map_or(0, |b| b & 0xf0 | 0x0f), 0x2a, 0x4d, 0x18];
    MAGIC.starts_with(head) || (skippable[0] == 0x5f && head[1..] == skippable[1..head.len()])
}

fn corrupt(what: &'static str) -> CodecError {
    CodecError::Corrupt { packing: "zstd", what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_how_much_memory_it_wants() {
        let frame = |window| Header::Frame { window, dictionary: false };
        for (head, expected) in [
            (&b""[..], Header::Short(4)),
            (b"\x28\xb5\x2f", Header::Short(4)),
            (b"\x28\xb5\x2f\xfd", Header::Short(5)),
            (b"\x28\xb5\x2f\xfd\x00", Header::Short(6)),
            (b"\x28\xb5\x2f\xfd\x00\x00", frame(1 << 10)),
            (b"\x28\xb5\x2f\xfd\x00\x88", frame(128 << 20)),
            (b"\x28\xb5\x2f\xfd\x00\x0f", frame((2 << 10) + 7 * 256)),
            (b"\x28\xb5\x2f\xfd\x20", Header::Short(6)),
            (b"\x28\xb5\x2f\xfd\x20\x07", frame(7)),
            (b"\x28\xb5\x2f\xfd\x60\x07\x01", frame(256 + 0x107)),
            (b"\x28\xb5\x2f\xfd\xa0\0\0\0\x10", frame(256 << 20)),
            (b"\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\0\0\x80", frame(1 << 63)),
            (b"\x28\xb5\x2f\xfd\x01\x00\x09", Header::Frame { window: 1 << 10, dictionary: true }),
            (b"\x53\x2a\x4d\x18", Header::Skippable),
            (b"tar!", Header::Foreign),
        ] {
            assert_eq!(header(head), expected, "{head:?}");
        }
    }

    #[test]
    fn a_cut_magic_is_a_cut_and_other_bytes_are_not() {
        for head in [&b"\x28"[..], b"\x28\xb5\x2f", b"\x50\x2a", b"\x5f", b"\x28\xb5\x2f\xfd\x00"] {
            assert!(could_be_frame(head), "{head:?}");
        }
        for head in [&b"\0"[..], b"\x28\x28", b"\x50\x2b", b"ab"] {
            assert!(!could_be_frame(head), "{head:?}");
        }
    }
}
