//! What the name of an entry means: a place in the tree, or a note that something is gone.

use crate::layer::EntryPath;
use crate::limits::{Exceeded, Limits};

/// What takes something away.
const WHITEOUT: &[u8] = b".wh.";
/// AUFS's own files, of which one has a meaning to others.
const META: &[u8] = b".wh..wh.";
/// Takes away all that lower layers have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NameProblem {
    /// It has a zero byte, which no file system can store.
    Zero,
    /// A whiteout of nothing, of `.` or of `..`.
    Whiteout,
    /// Longer or deeper than allowed.
    Limit(Exceeded),
}

/// A name, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name {
    /// An entry of this path.
    Entry(EntryPath),
    /// Nothing of lower layers is left at this path.
    Whiteout(EntryPath),
    /// Nothing of lower layers is left in this directory.
    Opaque(EntryPath),
    /// AUFS's bookkeeping: not for us.
    Ignored,
}

/// The path as [`EntryPath`] wants it.
pub(super) fn path(raw: &[u8], limits: &Limits) -> Result<EntryPath, NameProblem> {
    if raw.contains(&0) {
        return Err(NameProblem::Zero);
    }
    let mut clean = Vec::with_capacity(raw.len());
    let mut depth = 0u32;
    for component in raw.split(|byte| *byte == b'/') {
        if component.is_empty() || component == b"." {
            continue;
        }
        if component.len() > limits.max_component_bytes {
            let limit = limits.max_component_bytes as u64;
            let setting = "max_component_bytes";
            return Err(NameProblem::Limit(Exceeded { what: "one name", limit, setting }));
        }
        if !clean.is_empty() {
            clean.push(b'/');
        }
        clean.extend_from_slice(component);
        depth += 1;
    }
    if clean.len() > limits.max_path_bytes {
        let limit = limits.max_path_bytes as u64;
        return Err(NameProblem::Limit(Exceeded {
            what: "one path",
            limit,
            setting: "max_path_bytes",
        }));
    }
    if depth > limits.max_depth {
        let limit = u64::from(limits.max_depth);
        let what = "the depth of a path";
        return Err(NameProblem::Limit(Exceeded { what, limit, setting: "max_depth" }));
    }
    Ok(EntryPath(clean.into()))
}

/// Path and meaning of an entry's name.
pub(super) fn read(raw: &[u8], limits: &Limits) -> Result<Name, NameProblem> {
    let EntryPath(path) = path(raw, limits)?;
    // One search tells nearly every name that it has nothing to do with whiteouts.
    let (parent, last) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&path[..0], &path[..]),
    };
    if parent.split(|byte| *byte == b'/').any(|component| component.starts_with(META)) {
        return Ok(Name::Ignored);
    }
    let Some(gone) = last.strip_prefix(WHITEOUT) else { return Ok(Name::Entry(EntryPath(path))) };
    if last == OPAQUE {
        return Ok(Name::Opaque(EntryPath(parent.into())));
    }
    if last.starts_with(META) {
        return Ok(Name::Ignored);
    }
    if matches!(gone, b"" | b"." | b"..") {
        return Err(NameProblem::Whiteout);
    }
    let mut gone_path = path[..path.len() - last.len()].to_vec();
    gone_path.extend_from_slice(gone);
    Ok(Name::Whiteout(EntryPath(gone_path.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &[u8]) -> EntryPath {
        EntryPath(path.into())
    }

    #[test]
    fn names_lose_what_says_nothing() {
        for (raw, clean) in [
            (&b"a"[..], &b"a"[..]),
            (b"./a/./b/", b"a/b"),
            (b"///a//b", b"a/b"),
            (b"", b""),
            (b"./", b""),
            (b"/", b""),
            (b"../a/..", b"../a/.."),
            (b"..a/b..", b"..a/b.."),
            (b"a\n\xff/b", b"a\n\xff/b"),
        ] {
            assert_eq!(path(raw, &Limits::default()), Ok(at(clean)), "{raw:?}");
        }
    }

    #[test]
    fn names_that_nothing_can_store_are_refused() {
        let limits = Limits { max_depth: 3, ..Limits::default() };
        let setting = |raw: &[u8]| match path(raw, &limits) {
            Err(NameProblem::Limit(exceeded)) => exceeded.setting,
            other => panic!("{other:?}"),
        };
        assert_eq!(path(b"a\0b", &limits), Err(NameProblem::Zero));
        assert!(path(&[b'a'; 255], &limits).is_ok());
        assert_eq!(setting(&[b'a'; 256]), "max_component_bytes");
        assert_eq!(setting(b"a/b/c/d"), "max_depth");
        let long = [&[b'a'; 255][..]; 17].join(&b'/');
        let deep = Limits::default();
        assert!(matches!(
            path(&long, &deep),
            Err(NameProblem::Limit(Exceeded { setting: "max_path_bytes", .. }))
        ));
    }

    #[test]
    fn whiteouts_are_told_by_their_names() {
        let read = |raw: &[u8]| read(raw, &Limits::default());
        for (raw, name) in [
            (&b"a/.wh.b"[..], Name::Whiteout(at(b"a/b"))),
            (b".wh.b", Name::Whiteout(at(b"b"))),
            (b"a/.wh.b/", Name::Whiteout(at(b"a/b"))),
            (b"a/.wh..b", Name::Whiteout(at(b"a/.b"))),
            (b"a/.wh..wh..opq", Name::Opaque(at(b"a"))),
            (b".wh..wh..opq", Name::Opaque(at(b""))),
            (b".wh..wh.aufs", Name::Ignored),
            (b"a/.wh..wh.orph/", Name::Ignored),
            (b".wh..wh.plnk/12.34", Name::Ignored),
            (b"a/.wh", Name::Entry(at(b"a/.wh"))),
            (b"a/x.wh.b", Name::Entry(at(b"a/x.wh.b"))),
            (b".wh.a/b", Name::Entry(at(b".wh.a/b"))),
        ] {
            assert_eq!(read(raw), Ok(name), "{}", raw.escape_ascii());
        }
        for raw in [&b".wh."[..], b"a/.wh.", b"a/.wh..", b"a/.wh..."] {
            assert_eq!(read(raw), Err(NameProblem::Whiteout), "{}", raw.escape_ascii());
        }
    }
}
