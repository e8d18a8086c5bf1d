//! A layer's packing undone: gzip, zstd or none, by content, within bounds.
//!
//! Bytes are pushed in as they come and leave through a callback, from one buffer that is small
//! enough to stay in the processor's cache while it is hashed and cut into entries.
//!
//! # Where the specification is silent
//!
//! | case | here | why |
//! |---|---|---|
//! | media type and content disagree | the content decides, [`Decoder::mismatch`] tells | containerd and Docker look at the content alone; the diff_id is of the unpacked bytes anyway |
//! | media type unknown (also encrypted layers) | refused | guessing could run something else than was meant |
//! | xz, bzip2 | refused by name | no image type has them |
//! | no bytes at all | an empty layer, whatever its type | containerd and Docker do so, old images have them |
//! | gzip members or zstd frames one after the other | one stream | both formats say so; eStargz and pigz write them |
//! | bytes after the last member or frame that begin neither | ignored, [`Finished::ignored`] counts them | gzip does so, Go's reader refuses; what would be lost is caught by the diff_id |
//! | a member or frame that begins and does not end | an error | |
//! | zstd window | up to 8 MiB always, up to 128 MiB a few at a time | [`Limits::max_zstd_memory_bytes`](crate::limits::Limits::max_zstd_memory_bytes) |
//! | a checksum or length that is wrong | an error | |

mod gzip;
mod media;
mod zstd;

use std::fmt;
use std::sync::Arc;

pub use media::{Mismatch, Packing};

use crate::limits::{Budget, Exceeded};

/// Bytes of the output buffer: it fits beside the window into the second cache level.
const BUFFER: usize = 256 << 10;

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The descriptor's type is none that a root disk can be made of.
    #[error(
        "layers of type {media_type:?} cannot be read; known are tar, tar+gzip and tar+zstd of OCI and Docker"
    )]
    UnknownType {
        /// As it was written, cut.
        media_type: String,
    },
    /// A packing that no image type has.
    #[error("the layer is packed with {packing}; push the image again with gzip or zstd")]
    UnsupportedPacking {
        /// Its name.
        packing: &'static str,
    },
    /// The bytes end in the middle.
    #[error(
        "the layer's {packing} stream is cut off; it was so when it was pushed, build the image again"
    )]
    Truncated {
        /// gzip or zstd.
        packing: &'static str,
    },
    /// The framing or a checksum is wrong.
    #[error(
        "the layer's {packing} stream is corrupt: {what}; it was so when it was pushed, build the image again"
    )]
    Corrupt {
        /// gzip or zstd.
        packing: &'static str,
        /// Which part.
        what: &'static str,
    },
    /// The compressed data are wrong.
    #[error(
        "the layer's gzip stream is corrupt; it was so when it was pushed, build the image again"
    )]
    Deflate {
        /// What inflate says.
        #[source]
        source: flate2::DecompressError,
    },
    /// The compressed data are wrong.
    #[error(
        "the layer's zstd stream is corrupt; it was so when it was pushed, build the image again"
    )]
    Zstd {
        /// What libzstd says.
        #[source]
        source: std::io::Error,
    },
    /// More than one image may ask for.
    #[error("the layer is too large")]
    Limit(#[from] Exceeded),
    /// Nobody wants it any more.
    #[error("cancelled")]
    Cancelled,
}

/// Why pushing stopped: our side, or the one that takes the bytes.
#[derive(Debug, thiserror::Error)]
pub enum Stopped<E> {
    /// The stream is bad.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// What the callback returned.
    #[error("{0}")]
    Sink(E),
}

/// What a layer was, known at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Bytes that came in.
    pub packed: u64,
    /// Bytes that went out.
    pub unpacked: u64,
    /// Bytes after the last member or frame, not looked at.
    pub ignored: u64,
    /// How it was packed.
    pub packing: Packing,
}

/// One layer's stream.
pub struct Decoder {
    declared: Packing,
    inner: Inner,
    buffer: Box<[u8]>,
    meter: Meter,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("declared", &self.declared)
            .field("inner", &self.inner)
            .field("meter", &self.meter)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Inner {
    /// Too few bytes to tell.
    Unknown(Vec<u8>),
    Plain,
    // Boxed: their windows make them far larger than the rest.
    Gzip(Box<gzip::Gzip>),
    Zstd(Box<zstd::Zstd>),
}

impl Decoder {
    /// For a layer whose descriptor has this type.
    ///
    /// # Errors
    /// [`CodecError::UnknownType`].
    pub fn new(media_type: &str, budget: Arc<Budget>) -> Result<Self, CodecError> {
        Ok(Self {
            declared: media::declared(media_type)?,
            inner: Inner::Unknown(Vec::new()),
            buffer: Box::default(),
            meter: Meter { budget, packed: 0, unpacked: 0 },
        })
    }

    /// The next bytes of the blob, cut anywhere. All that they unpack to goes to `out` before
    /// this returns. After an error the stream is over.
    ///
    /// A zstd layer with a large window may wait here until another such layer of the image has
    /// ended: layers that are pushed at the same time need a thread each.
    ///
    /// # Errors
    /// The stream is bad or too large, or `out` said no.
    pub fn push<E>(
        &mut self,
        input: &[u8],
        out: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), Stopped<E>> {
        self.meter.packed += input.len() as u64;
        let Inner::Unknown(head) = &mut self.inner else { return self.unpack(input, out) };
        let take = input.len().min(media::SNIFF - head.len());
        head.extend_from_slice(&input[..take]);
        if head.len() < media::SNIFF {
            return Ok(());
        }
        let head = std::mem::take(head);
        self.decide(&head)?;
        self.unpack(&head, out)?;
        self.unpack(&input[take..], out)
    }

    /// The blob has ended.
    ///
    /// # Errors
    /// It ended in the middle, or `out` said no.
    pub fn finish<E>(
        &mut self,
        out: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Finished, Stopped<E>> {
        if let Inner::Unknown(head) = &mut self.inner {
            let head = std::mem::take(head);
            self.decide(&head)?;
            self.unpack(&head, out)?;
        }
        let ignored = match &mut self.inner {
            Inner::Unknown(_) | Inner::Plain => 0,
            Inner::Gzip(gzip) => {
                gzip.finish()?;
                gzip.ignored()
            }
            Inner::Zstd(zstd) => {
                zstd.finish()?;
                zstd.ignored()
            }
        };
        Ok(Finished {
            packed: self.meter.packed,
            unpacked: self.meter.unpacked,
            ignored,
            packing: self.packing().unwrap_or(Packing::Plain),
        })
    }

    /// Where type and content disagree; worth a warning. Known after the first ten bytes.
    pub fn mismatch(&self) -> Option<Mismatch> {
        let found = self.packing().filter(|found| *found != self.declared)?;
        // An empty layer is nothing in particular.
        (self.meter.packed > 0).then_some(Mismatch { declared: self.declared, found })
    }

    /// Bytes that went out so far.
    pub fn unpacked(&self) -> u64 {
        self.meter.unpacked
    }

    fn packing(&self) -> Option<Packing> {
        match &self.inner {
            Inner::Unknown(_) => None,
            Inner::Plain => Some(Packing::Plain),
            Inner::Gzip(_) => Some(Packing::Gzip),
            Inner::Zstd(_) => Some(Packing::Zstd),
        }
    }

    fn decide(&mut self, head: &[u8]) -> Result<(), CodecError> {
        self.inner = match media::sniff(head)? {
            Packing::Plain => Inner::Plain,
            Packing::Gzip => Inner::Gzip(Box::new(gzip::Gzip::new())),
            Packing::Zstd => {
                Inner::Zstd(Box::new(zstd::Zstd::new(Arc::clone(&self.meter.budget))?))
            }
        };
        if !matches!(self.inner, Inner::Plain) {
            self.buffer = vec![0; BUFFER].into();
        }
        Ok(())
    }

    fn unpack<E>(
        &mut self,
        input: &[u8],
        out: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), Stopped<E>> {
        let mut output =
            Output { buffer: &mut self.buffer, filled: 0, meter: &mut self.meter, out };
        match &mut self.inner {
            Inner::Unknown(_) => unreachable!("decided before anything is unpacked"),
            Inner::Plain => {
                // The bytes are what they are: no copy.
                output.meter.count(input.len())?;
                return (output.out)(input).map_err(Stopped::Sink);
            }
            Inner::Gzip(gzip) => gzip.push(input, &mut output)?,
            Inner::Zstd(zstd) => {
                zstd.push(input, &mut output)?;
                zstd.drain(&mut output)?;
            }
        }
        output.flush()
    }
}

/// The buffer between a decoder and whoever takes its output.
struct Output<'a, E> {
    buffer: &'a mut [u8],
    filled: usize,
    meter: &'a mut Meter,
    out: &'a mut dyn FnMut(&[u8]) -> Result<(), E>,
}

impl<E> Output<'_, E> {
    /// Room to write to; never empty.
    fn space(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// So many bytes were written there: these.
    fn wrote(&mut self, bytes: usize) -> &[u8] {
        self.filled += bytes;
        &self.buffer[self.filled - bytes..self.filled]
    }

    fn flush_if_full(&mut self) -> Result<(), Stopped<E>> {
        if self.filled == self.buffer.len() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Stopped<E>> {
        if self.filled > 0 {
            self.meter.count(self.filled)?;
            (self.out)(&self.buffer[..self.filled]).map_err(Stopped::Sink)?;
            self.filled = 0;
        }
        Ok(())
    }
}

/// What went in and out, held against the limits.
#[derive(Debug)]
struct Meter {
    budget: Arc<Budget>,
    packed: u64,
    unpacked: u64,
}

impl Meter {
    fn count(&mut self, bytes: usize) -> Result<(), CodecError> {
        let limits = self.budget.limits();
        self.unpacked += bytes as u64;
        if self.unpacked > limits.max_layer_bytes {
            let limit = limits.max_layer_bytes;
            let what = "one layer, unpacked,";
            return Err(Exceeded { what, limit, setting: "max_layer_bytes" }.into());
        }
        let what = "the ratio of unpacked to packed bytes";
        limits.check_ratio(what, self.unpacked, self.packed)?;
        Ok(self.budget.take_bytes(bytes as u64)?)
    }
}
