//! Tars for tests, written by hand so that they can also be wrong on purpose.
//!
//! ```ignore
//! let layer = Tarball::new()
//!     .add(Item::directory("etc").mode(0o700))
//!     .add(Item::file("etc/motd", b"hi").owner(1, 2).xattr("user.x", b"y"))
//!     .add(Item::whiteout("etc/issue"))
//!     .finish();
//! ```
#![allow(dead_code, reason = "each test binary uses its own part")]

/// How an entry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// ustar, with PAX records for what does not fit.
    Pax,
    /// GNU: long names in entries before it, large numbers in binary.
    Gnu,
    /// Before POSIX: no magic. What does not fit panics.
    V7,
}

/// How holes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holes {
    /// Type `S`, the map in the header and in blocks after it.
    OldGnu,
    /// PAX 0.0: a pair of records for each piece.
    Pax00,
    /// PAX 0.1: one record with the map.
    Pax01,
    /// PAX 1.0: the map before the data.
    Pax10,
}

/// A file that is not all there.
#[derive(Debug, Clone)]
pub(crate) struct Sparse {
    pub(crate) holes: Holes,
    /// Offset and length of what is there.
    pub(crate) pieces: Vec<(u64, u64)>,
    /// With holes.
    pub(crate) real_size: u64,
}

/// An entry to be.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) path: Vec<u8>,
    /// The type byte.
    pub(crate) kind: u8,
    pub(crate) mode: u64,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) mtime: (i64, u32),
    pub(crate) link: Vec<u8>,
    pub(crate) device: (u32, u32),
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) data: Vec<u8>,
    /// What the header says instead of the length of `data`.
    pub(crate) size: Option<u64>,
    pub(crate) dialect: Dialect,
    /// If set, `data` is the sum of its pieces.
    pub(crate) sparse: Option<Sparse>,
    /// More PAX records, before all others.
    pub(crate) records: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Item {
    pub(crate) fn new(path: impl AsRef<[u8]>, kind: u8) -> Self {
        Self {
            path: path.as_ref().to_vec(),
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: (0, 0),
            link: Vec::new(),
            device: (0, 0),
            xattrs: Vec::new(),
            data: Vec::new(),
            size: None,
            dialect: Dialect::Pax,
            sparse: None,
            records: Vec::new(),
        }
    }

    pub(crate) fn directory(path: impl AsRef<[u8]>) -> Self {
        Self::new([path.as_ref(), b"/"].concat(), b'5').mode(0o755)
    }

    pub(crate) fn file(path: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Self {
        Self { data: data.as_ref().to_vec(), ..Self::new(path, b'0') }
    }

    /// `data` holds the pieces only, one after the other.
    pub(crate) fn sparse(
        path: impl AsRef<[u8]>,
        holes: Holes,
        pieces: &[(u64, u64)],
        data: impl AsRef<[u8]>,
        real_size: u64,
    ) -> Self {
        let sparse = Some(Sparse { holes, pieces: pieces.to_vec(), real_size });
        Self { sparse, ..Self::file(path, data) }
    }

    pub(crate) fn symlink(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        Self { link: target.as_ref().to_vec(), ..Self::new(path, b'2').mode(0o777) }
    }

    pub(crate) fn hardlink(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        Self { link: target.as_ref().to_vec(), ..Self::new(path, b'1') }
    }

    pub(crate) fn char_device(path: impl AsRef<[u8]>, major: u32, minor: u32) -> Self {
        Self { device: (major, minor), ..Self::new(path, b'3') }
    }

    pub(crate) fn block_device(path: impl AsRef<[u8]>, major: u32, minor: u32) -> Self {
        Self { device: (major, minor), ..Self::new(path, b'4') }
    }

    pub(crate) fn fifo(path: impl AsRef<[u8]>) -> Self {
        Self::new(path, b'6')
    }

    /// `path` is what it takes away.
    pub(crate) fn whiteout(path: impl AsRef<[u8]>) -> Self {
        let path = path.as_ref();
        let name = path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
        Self::new([&path[..name], b".wh.", &path[name..]].concat(), b'0')
    }

    /// `path` is the directory; empty for the root.
    pub(crate) fn opaque(path: impl AsRef<[u8]>) -> Self {
        let path = path.as_ref();
        let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
        Self::new([path, slash, b".wh..wh..opq"].concat(), b'0')
    }

    pub(crate) fn mode(mut self, mode: u64) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn owner(mut self, uid: u64, gid: u64) -> Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    pub(crate) fn mtime(mut self, seconds: i64, nanoseconds: u32) -> Self {
        self.mtime = (seconds, nanoseconds);
        self
    }

    pub(crate) fn xattr(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.xattrs.push((name.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn record(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.records.push((key.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    /// Makes the header say another size than the data have.
    pub(crate) fn announce(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    pub(crate) fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }
}

/// A tar to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tarball {
    bytes: Vec<u8>,
}

impl Tarball {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A tar of these, with its end marker.
    pub(crate) fn of(items: impl IntoIterator<Item = Item>) -> Vec<u8> {
        items.into_iter().fold(Self::new(), Self::add).finish()
    }

    /// With the two zero blocks that end it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&[0; 1024]);
        self.bytes
    }

    /// Without them.
    pub(crate) fn unfinished(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// PAX records for all entries that follow.
    pub(crate) fn global(self, records: &[(&str, &[u8])]) -> Self {
        let text: Vec<u8> =
            records.iter().flat_map(|(key, value)| record(key.as_bytes(), value)).collect();
        self.meta(b'g', &text)
    }

    pub(crate) fn add(self, item: Item) -> Self {
        match item.dialect {
            Dialect::Pax => self.add_pax(item),
            Dialect::Gnu => self.add_gnu(item),
            Dialect::V7 => self.add_v7(item),
        }
    }

    fn add_pax(self, mut item: Item) -> Self {
        let mut records: Vec<(Vec<u8>, Vec<u8>)> = std::mem::take(&mut item.records);
        let mut say = |key: &[u8], value: Vec<u8>| records.push((key.to_vec(), value));
        item.say_holes(&mut say);
        let mut header = item.header();
        if item.path.len() > 100 {
            say(b"path", item.path.clone());
        }
        if item.link.len() > 100 {
            say(b"linkpath", item.link.clone());
        }
        let number = |value: u64, most: u64| if value <= most { Some(value) } else { None };
        for (key, at, value) in [(&b"uid"[..], 108, item.uid), (b"gid", 116, item.gid)] {
            match number(value, 0o7_777_777) {
                Some(value) => octal(&mut header[at..at + 8], value),
                None => say(key, value.to_string().into_bytes()),
            }
        }
        match (u64::try_from(item.mtime.0), item.mtime.1) {
            (Ok(seconds), 0) if seconds <= 0o77_777_777_777 => {
                octal(&mut header[136..148], seconds);
            }
            _ => say(b"mtime", decimal_time(item.mtime)),
        }
        let size = item.size.unwrap_or(item.data.len() as u64);
        match number(size, 0o77_777_777_777) {
            Some(size) => octal(&mut header[124..136], size),
            None => say(b"size", size.to_string().into_bytes()),
        }
        for (name, value) in &item.xattrs {
            say(&[b"SCHILY.xattr.", &name[..]].concat(), value.clone());
        }
        header[257..265].copy_from_slice(b"ustar\x0000");
        let text: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        let this = if text.is_empty() { self } else { self.meta(b'x', &text) };
        this.block(header).padded(&item.data)
    }

    fn add_gnu(self, item: Item) -> Self {
        assert!(item.xattrs.is_empty() && item.records.is_empty(), "GNU has no records");
        let mut this = self;
        if item.link.len() > 100 {
            this = this.meta(b'K', &[&item.link[..], b"\0"].concat());
        }
        if item.path.len() > 100 {
            this = this.meta(b'L', &[&item.path[..], b"\0"].concat());
        }
        let mut header = item.header();
        header[257..265].copy_from_slice(b"ustar  \0");
        for (range, value) in [
            (108..116, i128::from(item.uid)),
            (116..124, i128::from(item.gid)),
            (124..136, i128::from(item.size.unwrap_or(item.data.len() as u64))),
            (136..148, i128::from(item.mtime.0)),
        ] {
            octal_or_binary(&mut header[range], value);
        }
        let Some(Sparse { holes, pieces, real_size }) = &item.sparse else {
            return this.block(header).padded(&item.data);
        };
        assert_eq!(*holes, Holes::OldGnu);
        header[156] = b'S';
        octal_or_binary(&mut header[483..495], i128::from(*real_size));
        let write = |map: &mut [u8], pieces: &[(u64, u64)]| {
            for (slot, (offset, length)) in map.chunks_exact_mut(24).zip(pieces) {
                octal_or_binary(&mut slot[..12], i128::from(*offset));
                octal_or_binary(&mut slot[12..], i128::from(*length));
            }
        };
        let (first, rest) = pieces.split_at(pieces.len().min(4));
        write(&mut header[386..482], first);
        header[482] = u8::from(!rest.is_empty());
        this = this.block(header);
        let mut blocks = rest.chunks(21).peekable();
        while let Some(pieces) = blocks.next() {
            let mut block = [0; 512];
            write(&mut block[..504], pieces);
            block[504] = u8::from(blocks.peek().is_some());
            this = this.raw(&block);
        }
        this.padded(&item.data)
    }

    fn add_v7(self, item: Item) -> Self {
        assert!(item.path.len() <= 100 && item.link.len() <= 100, "v7 has no long names");
        let mut header = item.header();
        octal(&mut header[108..116], item.uid);
        octal(&mut header[116..124], item.gid);
        octal(&mut header[124..136], item.size.unwrap_or(item.data.len() as u64));
        octal(&mut header[136..148], u64::try_from(item.mtime.0).expect("after 1970"));
        self.block(header).padded(&item.data)
    }

    /// An entry that says something about the next.
    fn meta(self, kind: u8, text: &[u8]) -> Self {
        let mut header = Item::new("meta", kind).header();
        octal(&mut header[124..136], text.len() as u64);
        header[257..265].copy_from_slice(b"ustar\x0000");
        self.block(header).padded(text)
    }

    fn block(self, mut header: [u8; 512]) -> Self {
        checksum(&mut header);
        self.raw(&header)
    }

    fn padded(self, data: &[u8]) -> Self {
        let padding = vec![0; data.len().wrapping_neg() % 512];
        self.raw(data).raw(&padding)
    }
}

impl Item {
    /// What all dialects have in common, names cut.
    fn header(&self) -> [u8; 512] {
        let mut header = [0; 512];
        let name = &self.path[..self.path.len().min(100)];
        let link = &self.link[..self.link.len().min(100)];
        header[..name.len()].copy_from_slice(name);
        header[157..157 + link.len()].copy_from_slice(link);
        header[156] = self.kind;
        octal(&mut header[100..108], self.mode);
        octal(&mut header[329..337], self.device.0.into());
        octal(&mut header[337..345], self.device.1.into());
        header
    }

    /// Turns holes into records and, for 1.0, into a map before the data.
    fn say_holes(&mut self, say: &mut dyn FnMut(&[u8], Vec<u8>)) {
        let Some(Sparse { holes, pieces, real_size }) = self.sparse.take() else { return };
        let text = |number: u64| number.to_string().into_bytes();
        match holes {
            Holes::OldGnu => panic!("PAX has no old GNU maps"),
            Holes::Pax00 => {
                say(b"GNU.sparse.size", text(real_size));
                say(b"GNU.sparse.numblocks", text(pieces.len() as u64));
                for (offset, length) in pieces {
                    say(b"GNU.sparse.offset", text(offset));
                    say(b"GNU.sparse.numbytes", text(length));
                }
            }
            Holes::Pax01 => {
                say(b"GNU.sparse.size", text(real_size));
                say(b"GNU.sparse.numblocks", text(pieces.len() as u64));
                say(b"GNU.sparse.name", self.path.clone());
                let map: Vec<String> = pieces.iter().map(|(o, l)| format!("{o},{l}")).collect();
                say(b"GNU.sparse.map", map.join(",").into_bytes());
                self.path = b"GNUSparseFile.1/x".to_vec();
            }
            Holes::Pax10 => {
                say(b"GNU.sparse.major", text(1));
                say(b"GNU.sparse.minor", text(0));
                say(b"GNU.sparse.name", self.path.clone());
                say(b"GNU.sparse.realsize", text(real_size));
                self.path = b"GNUSparseFile.1/x".to_vec();
                let mut map = format!("{}\n", pieces.len());
                for (offset, length) in pieces {
                    map.push_str(&format!("{offset}\n{length}\n"));
                }
                let mut map = map.into_bytes();
                map.resize(map.len().next_multiple_of(512), 0);
                map.extend_from_slice(&self.data);
                self.data = map;
            }
        }
    }
}

/// `length key=value\n`, the length counting itself.
pub(crate) fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let digits = (1..).find(|digits| (rest + digits).to_string().len() == *digits);
    let length = (rest + digits.expect("some number of digits fits")).to_string();
    [length.as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

/// Sets the checksum of a header that was made or changed.
pub(crate) fn checksum(header: &mut [u8; 512]) {
    header[148..156].fill(b' ');
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    octal(&mut header[148..155], sum);
}

fn octal(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    let text = format!("{value:0digits$o}");
    assert_eq!(text.len(), digits, "{value} does not fit");
    field[..digits].copy_from_slice(text.as_bytes());
    field[digits] = 0;
}

fn octal_or_binary(field: &mut [u8], value: i128) {
    if value >= 0 && value < 1i128 << (3 * (field.len() - 1)) {
        octal(field, u64::try_from(value).expect("not negative"));
    } else {
        let bytes = value.to_be_bytes();
        let count = field.len();
        field.copy_from_slice(&bytes[16 - count..]);
        field[0] |= 0x80;
    }
}

/// As PAX writes it, exactly.
fn decimal_time((seconds, nanoseconds): (i64, u32)) -> Vec<u8> {
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let sign = if total < 0 { "-" } else { "" };
    let total = total.unsigned_abs();
    format!("{sign}{}.{:09}", total / 1_000_000_000, total % 1_000_000_000).into_bytes()
}
