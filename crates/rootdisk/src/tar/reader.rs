//! The machine that cuts a stream into headers, records, maps and data.

use std::sync::Arc;

use super::entry::{self, Before, Body};
use super::header::{BLOCK, Header};
use super::pax::{Pax, PaxProblem, Scope};
use super::sparse::{self, MapReader, Piece};
use super::{Head, HeadKind, Sink, Stopped, Summary, TarError};
use crate::layer::EntryPath;
use crate::limits::{Budget, Exceeded};

/// What keeping an entry costs beside its names: the structures of the index.
const ENTRY_COST: usize = 128;
/// What keeping an extended attribute costs beside its bytes.
const XATTR_COST: usize = 32;

/// A block of zeros: half an end.
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// What the next bytes are.
#[derive(Debug)]
enum State {
    /// A header, or the end.
    Header,
    /// Text of a long name or PAX records, so many bytes more.
    Meta { kind: u8, left: u64, padding: u64 },
    /// Blocks of an old GNU map.
    OldMap { pieces: Vec<Piece>, stored: u64 },
    /// Blocks of a PAX 1.0 map; `left` counts map and pieces.
    Map { reader: MapReader, read: u64, left: u64 },
    /// A file.
    Data(Data),
    /// Bytes that mean nothing.
    Skip { left: u64, padding: u64 },
    /// Padding up to a block, which a last entry may lack.
    Padding { left: u64 },
    /// After the end marker.
    Ended,
}

/// A file being handed over.
#[derive(Debug)]
struct Data {
    /// The piece that is coming; a file without holes is one piece.
    piece: Piece,
    /// Those after it, last first.
    rest: Vec<Piece>,
    padding: u64,
}

/// A tar, read as it comes. See the [module](super) for what is accepted.
#[derive(Debug)]
pub struct Reader<S> {
    sink: S,
    budget: Arc<Budget>,
    state: State,
    /// A header or map block of which only a part has come.
    block: [u8; BLOCK],
    have: usize,
    /// The text of [`State::Meta`].
    text: Vec<u8>,
    before: Before,
    /// PAX records for all entries.
    global: Pax,
    /// The sparse file being read, and its size with holes.
    sparse: Option<(EntryPath, u64)>,
    /// What the last header announced as data where there should be none.
    announced: u64,
    zero_blocks: u8,
    /// Where the header of the current entry is.
    at: u64,
    summary: Summary,
}

impl<S: Sink> Reader<S> {
    /// Hands entries to `sink`, counting them against `budget`.
    pub fn new(budget: Arc<Budget>, sink: S) -> Self {
        Self {
            sink,
            budget,
            state: State::Header,
            block: ZEROS,
            have: 0,
            text: Vec::new(),
            before: Before::default(),
            global: Pax::default(),
            sparse: None,
            announced: 0,
            zero_blocks: 0,
            at: 0,
            summary: Summary { entries: 0, bytes: 0, trailing: 0 },
        }
    }

    /// Who takes the entries.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// Who takes the entries.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// The next bytes of the tar, cut anywhere. After an error the reader is of no more use.
    ///
    /// # Errors
    /// The tar is bad or asks for too much, or the sink said no.
    pub fn push(&mut self, mut input: &[u8]) -> Result<(), Stopped<S::Error>> {
        while !input.is_empty() {
            let before = input.len();
            self.step(&mut input)?;
            self.summary.bytes += (before - input.len()) as u64;
        }
        Ok(())
    }

    /// The tar has ended.
    ///
    /// # Errors
    /// In the middle of something.
    pub fn finish(self) -> Result<(S, Summary), TarError> {
        let whole = match self.state {
            State::Header => self.have == 0 && self.before.is_empty(),
            State::Padding { .. } => self.before.is_empty(),
            State::Ended => true,
            _ => false,
        };
        if !whole {
            return Err(TarError::Truncated { at: self.summary.bytes });
        }
        Ok((self.sink, self.summary))
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<(), Stopped<S::Error>> {
        match &mut self.state {
            State::Header => {
                let at = self.summary.bytes - self.have as u64;
                if let Some(block) = self.whole_block(input) {
                    self.at = at;
                    self.header(&block)?;
                }
            }
            State::OldMap { .. } | State::Map { .. } => {
                if let Some(block) = self.whole_block(input) {
                    self.map_block(&block)?;
                }
            }
            State::Meta { kind, left, padding } => {
                let text = take(input, left);
                self.text.extend_from_slice(text);
                if *left == 0 {
                    let (kind, padding) = (*kind, *padding);
                    self.state = padded(padding);
                    self.meta(kind)?;
                }
            }
            State::Data(_) => self.data(input)?,
            State::Skip { left, padding } => {
                take(input, left);
                if *left == 0 {
                    self.state = padded(*padding);
                }
            }
            State::Padding { left } => {
                take(input, left);
                if *left == 0 {
                    self.state = State::Header;
                }
            }
            State::Ended => {
                self.summary.trailing += input.len() as u64;
                *input = &[];
            }
        }
        Ok(())
    }

    /// A block, once all of it is there.
    fn whole_block(&mut self, input: &mut &[u8]) -> Option<[u8; BLOCK]> {
        let want = BLOCK - self.have;
        let bytes = &input[..input.len().min(want)];
        self.block[self.have..self.have + bytes.len()].copy_from_slice(bytes);
        *input = &input[bytes.len()..];
        self.have += bytes.len();
        (self.have == BLOCK).then(|| {
            self.have = 0;
            self.block
        })
    }

    fn header(&mut self, block: &[u8; BLOCK]) -> Result<(), Stopped<S::Error>> {
        let at = self.at;
        if *block == ZEROS {
            self.zero_blocks += 1;
            if self.zero_blocks == 2 {
                self.state = State::Ended;
            }
            return Ok(());
        }
        if self.zero_blocks > 0 {
            return Err(TarError::HalfAnEnd { at }.into());
        }
        let announced = std::mem::take(&mut self.announced);
        let Some(header) = Header::new(block) else {
            // This block was the first of the data that should not be there.
            let left = announced.checked_next_multiple_of(BLOCK as u64).unwrap_or(announced);
            if left == 0 {
                return Err(TarError::NotAHeader { at }.into());
            }
            let left = left.saturating_sub(BLOCK as u64);
            self.state = if left == 0 { State::Header } else { State::Skip { left, padding: 0 } };
            return Ok(());
        };
        match header.kind() {
            kind @ (b'x' | b'g' | b'L' | b'K') => {
                let size = header.size().ok_or(TarError::Number { at, field: "size" })?;
                self.bound_header(size)?;
                self.count_unless_of_use(kind)?;
                self.text.clear();
                self.state = State::Meta { kind, left: size, padding: padding(size) };
                if size == 0 {
                    self.state = State::Header;
                    self.meta(kind)?;
                }
                Ok(())
            }
            _ => {
                let mut before = std::mem::take(&mut self.before);
                let pax = before.pax.take().unwrap_or_else(|| self.global.clone());
                let entry = entry::read(header, before, pax, at, self.budget.limits())?;
                self.begin(entry)
            }
        }
    }

    /// An entry has at most one of these; others cost time for nothing, and are counted as if they
    /// were entries.
    fn count_unless_of_use(&self, kind: u8) -> Result<(), TarError> {
        let first = match kind {
            b'x' => self.before.pax.is_none(),
            b'L' => self.before.name.is_none(),
            b'K' => self.before.link.is_none(),
            _ => false,
        };
        if first { Ok(()) } else { self.count() }
    }

    fn count(&self) -> Result<(), TarError> {
        self.budget.take_entry().map_err(|source| TarError::Limit { at: self.at, source })
    }

    /// A long name or PAX records are complete.
    fn meta(&mut self, kind: u8) -> Result<(), TarError> {
        let at = self.at;
        let limits = self.budget.limits();
        let bad = |problem| match problem {
            PaxProblem::Bad(what) => TarError::Pax { at, what },
            PaxProblem::Limit(source) => TarError::Limit { at, source },
        };
        match kind {
            b'x' => {
                let mut pax = self.global.clone();
                pax.read(&self.text, Scope::Next, limits).map_err(bad)?;
                self.before.pax = Some(pax);
            }
            b'g' => self.global.read(&self.text, Scope::Rest, limits).map_err(bad)?,
            _ => {
                // GNU ends the text with a zero byte.
                let end = self.text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                let text = self.text[..end].to_vec();
                let slot = if kind == b'L' { &mut self.before.name } else { &mut self.before.link };
                *slot = Some(text);
            }
        }
        Ok(())
    }

    fn begin(&mut self, entry: entry::Entry) -> Result<(), Stopped<S::Error>> {
        let at = self.at;
        self.count()?;
        let Some(head) = entry.head else {
            match entry.body {
                Body::None { announced } => self.announce(announced),
                Body::Skipped { bytes } => self.skip(bytes),
                _ => unreachable!("an entry that is skipped has no data"),
            }
            return Ok(());
        };
        self.summary.entries += 1;
        self.budget.take_index(cost(&head)).map_err(|source| TarError::Limit { at, source })?;
        if let (HeadKind::File { size }, false) =
            (&head.kind, matches!(entry.body, Body::Whole { .. }))
        {
            self.sparse = Some((head.path.clone(), *size));
        }
        self.sink.begin(head).map_err(Stopped::Sink)?;
        match entry.body {
            Body::None { announced } => {
                self.announce(announced);
                self.sink.end().map_err(Stopped::Sink)
            }
            Body::Skipped { bytes } => {
                self.skip(bytes);
                self.sink.end().map_err(Stopped::Sink)
            }
            Body::Whole { bytes: 0 } => self.sink.end().map_err(Stopped::Sink),
            Body::Whole { bytes } => {
                let piece = Piece { offset: 0, length: bytes };
                let padding = padding(bytes);
                self.state = State::Data(Data { piece, rest: Vec::new(), padding });
                Ok(())
            }
            Body::Pieces { pieces, bytes } => self.begin_pieces(pieces, bytes),
            Body::OldMap { pieces, bytes } => {
                self.state = State::OldMap { pieces, stored: bytes };
                Ok(())
            }
            Body::MapThenPieces { bytes } => {
                let reader = MapReader::default();
                self.state = State::Map { reader, read: 0, left: bytes };
                Ok(())
            }
        }
    }

    fn announce(&mut self, bytes: u64) {
        self.announced = bytes;
        self.state = State::Header;
    }

    fn skip(&mut self, bytes: u64) {
        self.state = match bytes {
            0 => State::Header,
            left => State::Skip { left, padding: padding(bytes) },
        };
    }

    /// A block of a sparse file's map.
    fn map_block(&mut self, block: &[u8; BLOCK]) -> Result<(), Stopped<S::Error>> {
        match std::mem::replace(&mut self.state, State::Header) {
            State::OldMap { mut pieces, stored } => {
                sparse::old_pieces(&block[..504], &mut pieces).map_err(|w| self.bad_map(w))?;
                self.bound_header(pieces.len() as u64 * size_of::<Piece>() as u64)?;
                if block[504] != 0 {
                    self.state = State::OldMap { pieces, stored };
                    return Ok(());
                }
                self.begin_pieces(pieces, stored)
            }
            State::Map { mut reader, read, left } => {
                let read = read + BLOCK as u64;
                self.bound_header(read)?;
                let Some(left) = left.checked_sub(BLOCK as u64) else {
                    return Err(self.bad_map("its map is longer than its data").into());
                };
                match reader.push(block).map_err(|what| self.bad_map(what))? {
                    Some(pieces) => self.begin_pieces(pieces, left),
                    None => {
                        self.state = State::Map { reader, read, left };
                        Ok(())
                    }
                }
            }
            _ => unreachable!("only maps come in blocks"),
        }
    }

    /// The map of a sparse file is complete; `stored` bytes of data follow.
    fn begin_pieces(
        &mut self,
        mut pieces: Vec<Piece>,
        stored: u64,
    ) -> Result<(), Stopped<S::Error>> {
        let real_size = self.sparse.as_ref().map_or(0, |(_, size)| *size);
        sparse::check(&pieces, real_size, stored).map_err(|what| self.bad_map(what))?;
        pieces.retain(|piece| piece.length > 0);
        pieces.reverse();
        let Some(piece) = pieces.pop() else {
            self.state = State::Header;
            return self.sink.end().map_err(Stopped::Sink);
        };
        self.state = State::Data(Data { piece, rest: pieces, padding: padding(stored) });
        Ok(())
    }

    fn data(&mut self, input: &mut &[u8]) -> Result<(), Stopped<S::Error>> {
        let State::Data(data) = &mut self.state else { unreachable!("the caller looked") };
        let offset = data.piece.offset;
        let bytes = take(input, &mut data.piece.length);
        data.piece.offset += bytes.len() as u64;
        self.sink.data(offset, bytes).map_err(Stopped::Sink)?;
        if data.piece.length == 0 {
            match data.rest.pop() {
                Some(piece) => data.piece = piece,
                None => {
                    self.state = padded(data.padding);
                    self.sink.end().map_err(Stopped::Sink)?;
                }
            }
        }
        Ok(())
    }

    fn bound_header(&self, bytes: u64) -> Result<(), TarError> {
        let limit = self.budget.limits().max_header_bytes;
        if bytes > limit {
            let what = "a PAX header, long name or sparse map";
            let source = Exceeded { what, limit, setting: "max_header_bytes" };
            return Err(TarError::Limit { at: self.at, source });
        }
        Ok(())
    }

    fn bad_map(&self, what: &'static str) -> TarError {
        let path =
            self.sparse.as_ref().map_or_else(|| EntryPath([].into()), |(path, _)| path.clone());
        TarError::Sparse { path, what }
    }
}

/// Cuts off what belongs to something of which `left` bytes are missing.
fn take<'a>(input: &mut &'a [u8], left: &mut u64) -> &'a [u8] {
    let (taken, rest) =
        input.split_at(usize::try_from(*left).unwrap_or(usize::MAX).min(input.len()));
    *input = rest;
    *left -= taken.len() as u64;
    taken
}

/// Bytes from the end of so many to the next block.
fn padding(bytes: u64) -> u64 {
    bytes.wrapping_neg() % BLOCK as u64
}

fn padded(padding: u64) -> State {
    if padding == 0 { State::Header } else { State::Padding { left: padding } }
}

/// What the index keeps of an entry.
fn cost(head: &Head) -> usize {
    let link = match &head.kind {
        HeadKind::Symlink(target) => target.len(),
        HeadKind::Hardlink(target) => target.0.len(),
        _ => 0,
    };
    let xattrs = head.attributes.xattrs.iter();
    let xattrs = xattrs.map(|x| x.name.len() + x.value.len() + XATTR_COST).sum::<usize>();
    ENTRY_COST + head.path.0.len() + link + xattrs
}
