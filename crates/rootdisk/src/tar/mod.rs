//! Bytes of a tar pushed in, entries out.
//!
//! The reader keeps one header at a time; file data pass through as slices of what was pushed,
//! never copied. It reads v7, ustar, PAX and GNU tars, also mixed in one archive.
//!
//! # Where the formats leave a choice
//!
//! The tools that make and unpack images are nearly all written in Go, so where tars differ the
//! answer is that of Go's `archive/tar` and of umoci: a layer must be to us what it was to whoever
//! tested it.
//!
//! | case | here |
//! |---|---|
//! | end of the archive | two zero blocks; what follows is ignored. No end marker, or half of one, is fine where an entry could begin |
//! | one zero block, then something else | an error |
//! | cut in a header or in data | an error; a last entry without its padding is fine |
//! | names | leading slashes, `./`, doubled and trailing slashes mean nothing; `..` stays for the merge; an empty name is the root |
//! | zero byte in a name, name over 255 bytes, path over 4,095 | an error |
//! | GNU long name and PAX path together | the GNU name wins |
//! | several PAX headers before an entry | the last one counts alone |
//! | PAX records for all entries (`g`) | obeyed as POSIX says, except that a path, link or size for all entries is an error (Go ignores the whole header) |
//! | unknown PAX keys, user and group names, access and change times | ignored |
//! | `SCHILY.xattr.*`, `LIBARCHIVE.xattr.*` | extended attributes; of equal names the last counts |
//! | regular file whose name ends in a slash | a directory if the type is zero (v7), else a file |
//! | type `7` (contiguous) | a regular file |
//! | links, directories, devices, FIFOs that announce a size | have no data, as in Go; but where what follows is no header, the announced bytes are skipped, as PAX allows for links |
//! | mode | the low twelve bits; that of a symbolic link is 0777, as Linux has it |
//! | uid, gid | 0 to 4,294,967,295, else an error |
//! | devices | major to 12 bits, minor to 20, as Linux has them, else an error |
//! | other types (volume labels, multi-volume parts, dump directories, vendors' own) | an error that names the type: umoci and containerd refuse them, too |
//! | `.wh.NAME` | a whiteout, whatever its type says; of nothing, of `.` or of `..` an error |
//! | `.wh..wh..opq` | an opaque whiteout of its directory |
//! | other `.wh..wh.*`, and all below such a directory | AUFS's bookkeeping: skipped |
//! | sparse files | all of GNU's forms; pieces out of order, outside the file or not adding up to the data are an error |

mod entry;
mod header;
mod name;
mod number;
mod pax;
mod reader;
mod sparse;

pub use reader::Reader;

use crate::layer::EntryPath;
use crate::limits::Exceeded;
use crate::tree::{Attributes, Device};

/// What an entry says before its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Where. For whiteouts what they take away, for opaque ones the directory.
    pub path: EntryPath,
    /// Whether it was written with a leading slash, which means nothing to a layer.
    pub absolute: bool,
    /// What.
    pub kind: HeadKind,
    /// Meaningless for hard links and whiteouts.
    pub attributes: Attributes,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadKind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Bytes, holes included.
        size: u64,
    },
    /// A symbolic link and what it says, neither empty nor too long.
    Symlink(Box<[u8]>),
    /// Another name of what is at this path.
    Hardlink(EntryPath),
    /// A character device.
    CharDevice(Device),
    /// A block device.
    BlockDevice(Device),
    /// A named pipe.
    Fifo,
    /// Takes away what lower layers have at the path.
    Whiteout,
    /// Takes away all that lower layers have below the path.
    Opaque,
}

/// Who takes the entries.
pub trait Sink {
    /// Why it cannot.
    type Error;

    /// An entry begins.
    ///
    /// # Errors
    /// As the sink likes; the reader stops.
    fn begin(&mut self, head: Head) -> Result<(), Self::Error>;

    /// Bytes of the file that began last, at this place in it. Offsets only grow, slices are
    /// never empty; what is never handed over is zeros.
    ///
    /// # Errors
    /// As the sink likes; the reader stops.
    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// The entry that began last is complete.
    ///
    /// # Errors
    /// As the sink likes; the reader stops.
    fn end(&mut self) -> Result<(), Self::Error>;
}

/// Why a tar cannot be read. `at` is where, in the unpacked layer, the entry's header is.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// It ends in the middle of something.
    #[error("the layer's tar is cut off after {at} bytes; build the image again")]
    Truncated {
        /// How long it was.
        at: u64,
    },
    /// Bytes that are no header where one must be.
    #[error(
        "the layer is no tar, or a damaged one: there is no header at byte {at}; build the image again"
    )]
    NotAHeader {
        /// Where.
        at: u64,
    },
    /// One zero block, which is half of an end.
    #[error("the layer's tar goes on at byte {at} after half an end marker; build the image again")]
    HalfAnEnd {
        /// Where.
        at: u64,
    },
    /// A number that cannot be read or stored.
    #[error("the tar header at byte {at} has a {field} that cannot be read or stored")]
    Number {
        /// Where.
        at: u64,
        /// Which.
        field: &'static str,
    },
    /// PAX records that cannot be read.
    #[error("the PAX header at byte {at} is bad: {what}")]
    Pax {
        /// Where.
        at: u64,
        /// How.
        what: &'static str,
    },
    /// A name that no file system can store.
    #[error("the entry at byte {at} has a name or target with a zero byte in it")]
    ZeroInName {
        /// Where.
        at: u64,
    },
    /// A whiteout of nothing, of `.` or of `..`.
    #[error("the entry at byte {at} is a whiteout that names no file")]
    BadWhiteout {
        /// Where.
        at: u64,
    },
    /// A symbolic link that says nothing.
    #[error("the symbolic link {path} has no target")]
    NoTarget {
        /// The link.
        path: EntryPath,
    },
    /// A map of holes that is wrong.
    #[error("the sparse file {path} cannot be read: {what}")]
    Sparse {
        /// The file.
        path: EntryPath,
        /// How.
        what: &'static str,
    },
    /// A type that no image has.
    #[error("the entry {path} is of type '{}', which no root disk can hold", kind.escape_ascii())]
    UnknownType {
        /// The entry.
        path: EntryPath,
        /// As the header has it.
        kind: u8,
    },
    /// More than one image may ask for.
    #[error("the entry at byte {at} of the layer asks for too much")]
    Limit {
        /// Where.
        at: u64,
        /// Which limit.
        #[source]
        source: Exceeded,
    },
}

/// Why pushing stopped: the tar, or the one that takes the entries.
#[derive(Debug, thiserror::Error)]
pub enum Stopped<E> {
    /// The tar is bad.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// What the sink returned.
    #[error("{0}")]
    Sink(E),
}

/// What an archive was, known at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Entries, whiteouts included.
    pub entries: u64,
    /// Bytes, what comes after the end marker included.
    pub bytes: u64,
    /// Bytes after the end marker.
    pub trailing: u64,
}
