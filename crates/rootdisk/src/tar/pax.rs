//! PAX records: `length key=value` lines that say what a header cannot.

use std::collections::BTreeMap;

use super::number;
use super::sparse::{self, Piece};
use crate::limits::{Exceeded, Limits};
use crate::tree::Time;

/// Why records cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PaxProblem {
    /// What is wrong with them.
    Bad(&'static str),
    /// More than allowed.
    Limit(Exceeded),
}

/// Whom records are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The next entry.
    Next,
    /// All entries from here on.
    Rest,
}

/// What the records of one entry say, those for all entries included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Box<[u8]>>,
    pub(super) link: Option<Box<[u8]>>,
    pub(super) size: Option<u64>,
    pub(super) mtime: Option<Time>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    /// By name; the last value of a name counts.
    pub(super) xattrs: BTreeMap<Box<[u8]>, Box<[u8]>>,
    pub(super) sparse: Sparse,
}

/// GNU's records about holes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sparse {
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) name: Option<Box<[u8]>>,
    pub(super) real_size: Option<u64>,
    /// The map of versions 0.0 and 0.1; that of 1.0 is in the data.
    pub(super) map: Option<Vec<Piece>>,
    /// An offset of version 0.0 whose length has not come yet.
    offset: Option<u64>,
}

impl Pax {
    /// Reads records over what is already known. Later ones win; an empty value takes an earlier
    /// one back.
    pub(super) fn read(
        &mut self,
        mut records: &[u8],
        scope: Scope,
        limits: &Limits,
    ) -> Result<(), PaxProblem> {
        while !records.is_empty() {
            let (key, value) = record(&mut records).map_err(PaxProblem::Bad)?;
            self.set(key, value, scope).map_err(PaxProblem::Bad)?;
        }
        if self.sparse.offset.is_some() {
            return Err(PaxProblem::Bad("a sparse offset has no length"));
        }
        let bytes: usize = self.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > limits.max_xattr_bytes {
            let limit = limits.max_xattr_bytes as u64;
            let what = "the extended attributes of one file";
            return Err(PaxProblem::Limit(Exceeded { what, limit, setting: "max_xattr_bytes" }));
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8], scope: Scope) -> Result<(), &'static str> {
        let about_one =
            matches!(key, b"path" | b"linkpath" | b"size") || key.starts_with(b"GNU.sparse.");
        if scope == Scope::Rest && about_one {
            return Err("records for all entries set what only one entry can have");
        }
        match key {
            b"path" => self.path = text(value)?,
            b"linkpath" => self.link = text(value)?,
            b"size" => self.size = whole(value)?,
            b"uid" => self.uid = whole(value)?,
            b"gid" => self.gid = whole(value)?,
            b"mtime" if value.is_empty() => self.mtime = None,
            b"mtime" => self.mtime = Some(number::time(value).ok_or("mtime is no time")?),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattr(name.into(), value.into())?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    self.xattr(percent_decoded(name)?, base64_decoded(value)?)?;
                } else if let Some(name) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.set(name, value)?;
                }
                // POSIX: a key that one does not know is ignored (comment, atime, vendors' own).
            }
        }
        Ok(())
    }

    fn xattr(&mut self, name: Box<[u8]>, value: Box<[u8]>) -> Result<(), &'static str> {
        if name.is_empty() || name.contains(&0) || name.len() > 255 {
            return Err("an extended attribute's name cannot be stored");
        }
        self.xattrs.insert(name, value);
        Ok(())
    }
}

impl Sparse {
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match key {
            b"major" => self.major = whole(value)?,
            b"minor" => self.minor = whole(value)?,
            b"name" => self.name = text(value)?,
            b"size" | b"realsize" => self.real_size = whole(value)?,
            b"map" => self.map = Some(sparse::listed_pieces(value)?),
            b"offset" => {
                self.offset = Some(number::decimal(value).ok_or("a sparse offset is no number")?);
            }
            b"numbytes" => {
                let length = number::decimal(value).ok_or("a sparse length is no number")?;
                let offset = self.offset.take().ok_or("a sparse length has no offset")?;
                self.map.get_or_insert_default().push(Piece { offset, length });
            }
            // How many pieces there are shows by counting them.
            _ => {}
        }
        Ok(())
    }
}

/// Cuts off the first record: its key and its value.
fn record<'a>(records: &mut &'a [u8]) -> Result<(&'a [u8], &'a [u8]), &'static str> {
    const BAD: &str = "a record is not `length key=value`";
    // The length counts itself, the blank and the final newline.
    let blank = records.iter().take(20).position(|byte| *byte == b' ').ok_or(BAD)?;
    let length = number::decimal(&records[..blank]).and_then(|n| usize::try_from(n).ok());
    let length = length.filter(|n| *n > blank + 1 && *n <= records.len()).ok_or(BAD)?;
    let (record, rest) = records.split_at(length);
    let pair = record[blank + 1..].strip_suffix(b"\n").ok_or(BAD)?;
    let equals = pair.iter().position(|byte| *byte == b'=').ok_or(BAD)?;
    if equals == 0 {
        return Err(BAD);
    }
    *records = rest;
    Ok((&pair[..equals], &pair[equals + 1..]))
}

fn text(value: &[u8]) -> Result<Option<Box<[u8]>>, &'static str> {
    if value.contains(&0) {
        return Err("a name has a zero byte");
    }
    Ok((!value.is_empty()).then(|| value.into()))
}

fn whole(value: &[u8]) -> Result<Option<u64>, &'static str> {
    if value.is_empty() {
        return Ok(None);
    }
    number::decimal(value).map(Some).ok_or("a number cannot be read")
}

/// libarchive writes names of attributes as in URLs.
fn percent_decoded(name: &[u8]) -> Result<Box<[u8]>, &'static str> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<&u8>| {
            byte.and_then(|byte| char::from(*byte).to_digit(16))
                .and_then(|digit| u8::try_from(digit).ok())
                .ok_or("an extended attribute's name has a broken escape")
        };
        decoded.push(if *byte == b'%' {
            digit(bytes.next())? << 4 | digit(bytes.next())?
        } else {
            *byte
        });
    }
    Ok(decoded.into())
}

/// libarchive writes values of attributes in base 64, without padding.
fn base64_decoded(value: &[u8]) -> Result<Box<[u8]>, &'static str> {
    const BAD: &str = "an extended attribute's value is not base 64";
    let end = value.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let mut decoded = Vec::with_capacity(end * 3 / 4);
    let mut bits = 0u32;
    for (at, byte) in value[..end].iter().enumerate() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(BAD),
        };
        bits = bits << 6 | u32::from(six);
        // Every character but the first of four completes a byte.
        if let shift @ (4 | 2 | 0) = 6 - 2 * (at % 4) {
            decoded.push((bits >> shift).to_le_bytes()[0]);
        }
    }
    if end % 4 == 1 { Err(BAD) } else { Ok(decoded.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(records: &[u8]) -> Result<Pax, PaxProblem> {
        let mut pax = Pax::default();
        pax.read(records, Scope::Next, &Limits::default())?;
        Ok(pax)
    }

    /// A record with its length, as writers compute it.
    fn line(key: &str, value: &[u8]) -> Vec<u8> {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + rest.to_string().len();
        if length.to_string().len() + rest != length {
            length += 1;
        }
        [length.to_string().as_bytes(), b" ", key.as_bytes(), b"=", value, b"\n"].concat()
    }

    #[test]
    fn records_are_read_with_any_bytes_in_values() {
        let records = [
            line("path", b"a\n/\xff=b"),
            line("mtime", b"-1.5"),
            line("uid", b"4294967295"),
            line("comment", b""),
            line("SCHILY.xattr.user.x", b"1\0\n2"),
            line("SCHILY.xattr.user.empty", b""),
            line("LIBARCHIVE.xattr.user.a%3Db", b"aGVsbG8"),
        ]
        .concat();
        let pax = read(&records).unwrap();
        assert_eq!(pax.path.as_deref(), Some(&b"a\n/\xff=b"[..]));
        assert_eq!(pax.mtime, Some(Time { seconds: -2, nanoseconds: 500_000_000 }));
        assert_eq!(pax.uid, Some(4_294_967_295));
        let xattrs: Vec<(&[u8], &[u8])> =
            pax.xattrs.iter().map(|(n, v)| (n.as_ref(), v.as_ref())).collect();
        assert_eq!(
            xattrs,
            [(&b"user.a=b"[..], &b"hello"[..]), (b"user.empty", b""), (b"user.x", b"1\0\n2")]
        );
    }

    #[test]
    fn the_last_record_wins_and_an_empty_one_takes_back() {
        let records = [
            line("path", b"a"),
            line("path", b"b"),
            line("size", b"5"),
            line("size", b""),
            line("SCHILY.xattr.user.x", b"1"),
            line("SCHILY.xattr.user.x", b"2"),
        ]
        .concat();
        let pax = read(&records).unwrap();
        assert_eq!(pax.path.as_deref(), Some(&b"b"[..]));
        assert_eq!(pax.size, None);
        assert_eq!(pax.xattrs.len(), 1);
        assert_eq!(pax.xattrs[&b"user.x"[..]].as_ref(), b"2");
    }

    #[test]
    fn broken_records_are_refused() {
        for bad in [
            &b"x"[..],
            b"4 a=\n",
            b"6 a=b\n7",
            b"99 a=b\n",
            b"6 a=b ",
            b"5 =b\n",
            b"-6 a=b\n",
            b"0 a=b\n",
            b"99999999999999999999 a=b\n",
            &line("path", b"a\0b"),
            &line("size", b"-1"),
            &line("size", b"1.5"),
            &line("mtime", b"now"),
            &line("SCHILY.xattr.", b"x"),
            &line("LIBARCHIVE.xattr.user.x", b"a"),
            &line("LIBARCHIVE.xattr.user.x", b"a*bc"),
            &line("LIBARCHIVE.xattr.user.%4", b"aGVsbG8"),
            &line("GNU.sparse.offset", b"5"),
            &line("GNU.sparse.numbytes", b"5"),
        ] {
            assert!(matches!(read(bad), Err(PaxProblem::Bad(_))), "{}", bad.escape_ascii());
        }
        assert!(read(b"6 a=b\n").is_ok());
    }

    #[test]
    fn attributes_of_one_file_are_bounded() {
        let records = line("SCHILY.xattr.user.x", &[b'x'; 5000]);
        assert!(matches!(
            read(&records),
            Err(PaxProblem::Limit(Exceeded { setting: "max_xattr_bytes", .. }))
        ));
    }

    #[test]
    fn records_for_all_entries_cannot_name_them() {
        for key in ["path", "linkpath", "size", "GNU.sparse.name"] {
            let bad = Pax::default().read(&line(key, b"1"), Scope::Rest, &Limits::default());
            assert!(matches!(bad, Err(PaxProblem::Bad(_))), "{key}");
        }
    }

    #[test]
    fn base_64_of_every_length() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("YQ", b"a"),
            ("YQ==", b"a"),
            ("YWI", b"ab"),
            ("YWJj", b"abc"),
            ("/+8A", b"\xff\xef\0"),
        ] {
            assert_eq!(base64_decoded(text.as_bytes()).unwrap().as_ref(), bytes, "{text}");
        }
    }
}
