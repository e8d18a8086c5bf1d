//! Tars of every dialect, whole, cut and wrong.

mod support;

use std::sync::Arc;

use portolan_rootdisk::layer::EntryPath;
use portolan_rootdisk::limits::{Budget, Limits};
use portolan_rootdisk::tar::{Head, HeadKind, Reader, Sink, Stopped, Summary, TarError};
use portolan_rootdisk::tree::{Attributes, Device, Time, Xattr};
use proptest::prelude::*;
use support::tarball::{Dialect, Holes, Item, Tarball, checksum};

/// Data with their offsets.
type Placed = Vec<(u64, Vec<u8>)>;

/// Keeps everything; data with their offsets, neighbours joined.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct Kept {
    entries: Vec<(Head, Placed)>,
    open: bool,
}

impl Sink for Kept {
    type Error = std::convert::Infallible;

    fn begin(&mut self, head: Head) -> Result<(), Self::Error> {
        assert!(!self.open);
        self.open = true;
        self.entries.push((head, Vec::new()));
        Ok(())
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Self::Error> {
        assert!(self.open && !bytes.is_empty());
        let pieces = &mut self.entries.last_mut().expect("data belong to an entry").1;
        match pieces.last_mut() {
            Some((start, piece)) if *start + piece.len() as u64 == offset => piece.extend(bytes),
            last => {
                assert!(last.is_none_or(|(start, piece)| *start + (piece.len() as u64) < offset));
                pieces.push((offset, bytes.to_vec()));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Self::Error> {
        assert!(std::mem::take(&mut self.open));
        Ok(())
    }
}

fn read_with(
    limits: Limits,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> Result<(Kept, Summary), TarError> {
    let mut reader = Reader::new(Arc::new(Budget::new(limits)), Kept::default());
    for piece in pieces {
        match reader.push(piece) {
            Ok(()) => {}
            Err(Stopped::Tar(error)) => return Err(error),
            Err(Stopped::Sink(never)) => match never {},
        }
    }
    reader.finish()
}

fn read(tar: &[u8]) -> Result<(Kept, Summary), TarError> {
    read_with(Limits::default(), &mut std::iter::once(tar))
}

fn heads(tar: &[u8]) -> Vec<Head> {
    read(tar).expect("a good tar").0.entries.into_iter().map(|(head, _)| head).collect()
}

fn path(bytes: impl AsRef<[u8]>) -> EntryPath {
    EntryPath(bytes.as_ref().into())
}

fn head(at: impl AsRef<[u8]>, kind: HeadKind, mode: u16) -> Head {
    let attributes = Attributes { mode, ..Attributes::default() };
    Head { path: path(at), absolute: false, kind, attributes }
}

#[test]
fn every_kind_of_entry() {
    let tar = Tarball::of([
        Item::directory("."),
        Item::directory("d").mode(0o1777),
        Item::file("d/f", b"hello").mode(0o4755),
        Item::new("d/seven", b'7'),
        Item::symlink("s", "/etc/../x").mode(0o644),
        Item::hardlink("h", "./d/f"),
        Item::char_device("c", 4095, 1_048_575),
        Item::block_device("b", 8, 1),
        Item::fifo("p"),
        Item::whiteout("d/gone"),
        Item::opaque("d"),
        Item::file(".wh..wh.aufs", b"skipped with its data"),
        Item::file("/last", b""),
    ]);
    let (kept, summary) = read(&tar).unwrap();
    assert_eq!(summary.entries, 12);
    assert_eq!(kept.entries[2].1, [(0, b"hello".to_vec())]);
    let device = |major, minor| Device { major, minor };
    let expected = [
        head("", HeadKind::Directory, 0o755),
        head("d", HeadKind::Directory, 0o1777),
        head("d/f", HeadKind::File { size: 5 }, 0o4755),
        head("d/seven", HeadKind::File { size: 0 }, 0o644),
        head("s", HeadKind::Symlink((*b"/etc/../x").into()), 0o777),
        head("h", HeadKind::Hardlink(path("d/f")), 0o644),
        head("c", HeadKind::CharDevice(device(4095, 1_048_575)), 0o644),
        head("b", HeadKind::BlockDevice(device(8, 1)), 0o644),
        head("p", HeadKind::Fifo, 0o644),
        head("d/gone", HeadKind::Whiteout, 0),
        head("d", HeadKind::Opaque, 0),
        Head { absolute: true, ..head("last", HeadKind::File { size: 0 }, 0o644) },
    ];
    assert_eq!(heads(&tar), expected);
}

#[test]
fn pax_and_gnu_say_what_a_header_cannot() {
    let long = ["x"; 200].join("/");
    let item =
        || Item::file(&long, b"data").owner(4_294_967_295, 3_000_000).mtime(-5, 0).mode(0o600);
    let attributes = Attributes {
        mode: 0o600,
        uid: 4_294_967_295,
        gid: 3_000_000,
        mtime: Time { seconds: -5, nanoseconds: 0 },
        xattrs: Box::default(),
    };
    let kind = HeadKind::File { size: 4 };
    let expected = Head { path: path(&long), absolute: false, kind, attributes };
    for dialect in [Dialect::Pax, Dialect::Gnu] {
        let link = Item::symlink("l", vec![b'y'; 3000]).dialect(dialect);
        let hard = Item::hardlink("h", &long).dialect(dialect);
        let heads = heads(&Tarball::of([item().dialect(dialect), link, hard]));
        assert_eq!(heads[0], expected, "{dialect:?}");
        assert_eq!(heads[1], head("l", HeadKind::Symlink(vec![b'y'; 3000].into()), 0o777));
        assert_eq!(heads[2], head("h", HeadKind::Hardlink(path(&long)), 0o644));
    }
}

#[test]
fn times_and_attributes_of_pax() {
    let tar = Tarball::of([Item::file("f", b"")
        .mtime(-2, 750_000_000)
        .xattr("user.b", b"\0\n")
        .xattr("security.capability", b"\x01\0\0\x02")
        .xattr("user.b", b"last")]);
    let attributes = heads(&tar).remove(0).attributes;
    assert_eq!(attributes.mtime, Time { seconds: -2, nanoseconds: 750_000_000 });
    let xattr = |name: &[u8], value: &[u8]| Xattr { name: name.into(), value: value.into() };
    let expected = [xattr(b"security.capability", b"\x01\0\0\x02"), xattr(b"user.b", b"last")];
    assert_eq!(attributes.xattrs.as_ref(), expected);
    let late = Tarball::of([Item::file("f", b"").mtime(17_179_869_184, 1)]);
    assert_eq!(heads(&late)[0].attributes.mtime, Time { seconds: 17_179_869_184, nanoseconds: 1 });
}

#[test]
fn records_for_all_entries_yield_to_those_of_one() {
    let tar = Tarball::new()
        .global(&[("uid", b"7"), ("mtime", b"9"), ("comment", b"0123abcd")])
        .add(Item::file("a", b""))
        .add(Item::file("b", b"").record("uid", "8"))
        .add(Item::file("c", b"").record("uid", "").owner(3, 0))
        .finish();
    let owners: Vec<(u32, i64)> = heads(&tar)
        .iter()
        .map(|head| (head.attributes.uid, head.attributes.mtime.seconds))
        .collect();
    assert_eq!(owners, [(7, 9), (8, 9), (3, 9)]);
    let bad = Tarball::new().global(&[("path", b"x")]).add(Item::file("a", b"")).finish();
    assert!(matches!(read(&bad), Err(TarError::Pax { at: 0, .. })));
}

#[test]
fn holes_in_all_of_gnus_forms() {
    let pieces: Vec<(u64, u64)> = (0..60).map(|i| (i * 10_000, 700)).collect();
    let data: Vec<u8> = (0..60u8).flat_map(|i| [i + 1; 700]).collect();
    let expected: Vec<(u64, Vec<u8>)> =
        (0..60u8).map(|i| (u64::from(i) * 10_000, vec![i + 1; 700])).collect();
    let huge = 5 << 40;
    for holes in [Holes::OldGnu, Holes::Pax00, Holes::Pax01, Holes::Pax10] {
        let dialect = if holes == Holes::OldGnu { Dialect::Gnu } else { Dialect::Pax };
        let with_end = |pieces: &[(u64, u64)]| [pieces, &[(huge, 0)]].concat();
        let tar = Tarball::of([
            Item::sparse("many", holes, &with_end(&pieces), &data, huge).dialect(dialect),
            Item::sparse("only-hole", holes, &with_end(&[]), b"", huge).dialect(dialect),
            Item::file("after", b"x"),
        ]);
        let (kept, _) = read(&tar).unwrap_or_else(|e| panic!("{holes:?}: {e}"));
        assert_eq!(kept.entries.len(), 3, "{holes:?}");
        assert_eq!(kept.entries[0].0, head("many", HeadKind::File { size: huge }, 0o644));
        assert_eq!(kept.entries[0].1, expected, "{holes:?}");
        assert_eq!(kept.entries[1].0, head("only-hole", HeadKind::File { size: huge }, 0o644));
        assert_eq!(kept.entries[1].1, []);
        assert_eq!(kept.entries[2].1, [(0, b"x".to_vec())]);
    }
}

#[test]
fn wrong_maps_of_holes_are_refused() {
    for holes in [Holes::OldGnu, Holes::Pax00, Holes::Pax01, Holes::Pax10] {
        let dialect = if holes == Holes::OldGnu { Dialect::Gnu } else { Dialect::Pax };
        for (pieces, size) in [
            (&[(10, 5), (0, 5)][..], 100),
            (&[(0, 6), (5, 4)], 100),
            (&[(0, 9)], 100),
            (&[(0, 11)], 100),
            (&[(0, 5), (96, 5)], 100),
            (&[(u64::MAX - 1, 10)], 100),
        ] {
            let item = Item::sparse("s", holes, pieces, b"0123456789", size).dialect(dialect);
            let result = read(&Tarball::of([item]));
            assert!(
                matches!(&result, Err(TarError::Sparse { .. })),
                "{holes:?} {pieces:?}: {result:?}"
            );
        }
    }
    let unknown = Item::file("s", b"").record("GNU.sparse.major", "2");
    assert!(matches!(read(&Tarball::of([unknown])), Err(TarError::Sparse { .. })));
}

#[test]
fn the_oldest_tars() {
    let directory = Item::directory("d");
    let tar = Tarball::of([
        Item { kind: 0, ..directory }.dialect(Dialect::V7),
        Item { kind: 0, ..Item::file("d/f", b"1") }.dialect(Dialect::V7),
        Item::file("d/g/", b"2"),
    ]);
    let expected = [
        head("d", HeadKind::Directory, 0o755),
        head("d/f", HeadKind::File { size: 1 }, 0o644),
        head("d/g", HeadKind::File { size: 1 }, 0o644),
    ];
    assert_eq!(heads(&tar), expected);
}

#[test]
fn prefixes_and_signed_checksums() {
    let mut tar = Tarball::of([Item::file("name\u{fc}", b"")]);
    let header: &mut [u8; 512] = (&mut tar[..512]).try_into().unwrap();
    header[345..348].copy_from_slice(b"a/b");
    checksum(header);
    assert_eq!(heads(&tar)[0].path, path("a/b/name\u{fc}"));
    // Old tars added up signed characters: each byte above 127 counts 256 less.
    let header: &mut [u8; 512] = (&mut tar[..512]).try_into().unwrap();
    let high = u64::from(u8::try_from(header.iter().filter(|b| **b > 127).count()).unwrap());
    header[148..156].fill(b' ');
    let sum: u64 = header.iter().map(|b| u64::from(*b)).sum::<u64>() - 256 * high;
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    assert_eq!(heads(&tar)[0].path, path("a/b/name\u{fc}"));
}

#[test]
fn links_that_announce_a_size_have_no_data_unless_some_follow() {
    let without = Tarball::new()
        .add(Item::file("f", b"x"))
        .add(Item::hardlink("h", "f").announce(1000))
        .add(Item::file("after", b"y"))
        .finish();
    let data = Item { data: vec![b'z'; 1000], ..Item::hardlink("h", "f") };
    let with = Tarball::of([Item::file("f", b"x"), data, Item::file("after", b"y")]);
    let with_little = Item { data: vec![b'z'; 10], ..Item::hardlink("h", "f") };
    let with_little = Tarball::of([Item::file("f", b"x"), with_little, Item::file("after", b"y")]);
    for tar in [without, with, with_little] {
        let paths: Vec<EntryPath> = heads(&tar).into_iter().map(|head| head.path).collect();
        assert_eq!(paths, [path("f"), path("h"), path("after")]);
    }
}

#[test]
fn sizes_of_pax_count_when_advancing() {
    let tar = Tarball::of([
        Item::file("f", vec![1; 700]).announce(0).record("size", "700"),
        Item::file("after", b"y"),
    ]);
    let (kept, _) = read(&tar).unwrap();
    assert_eq!(kept.entries[0].1, [(0, vec![1; 700])]);
    assert_eq!(kept.entries[1].0.path, path("after"));
}

#[test]
fn ends_of_archives() {
    let whole = Tarball::new().add(Item::file("f", b"abc"));
    let end = whole.clone().unfinished().len();
    let whole = whole.raw(&[0; 1024]).raw(b"anything at all").unfinished();
    assert_eq!(read(&whole).unwrap().1.trailing, 15);
    for good in [end, end + 512, end + 1024, 512 + 3, 512 + 100, 0] {
        assert!(read(&whole[..good]).is_ok(), "{good}");
    }
    for bad in [1, 511, 512, 514, end + 1, end + 513] {
        assert!(
            matches!(read(&whole[..bad]), Err(TarError::Truncated { at }) if at == bad as u64),
            "{bad}"
        );
    }
    let mut half = whole;
    half[end + 600] = 1;
    assert!(matches!(read(&half), Err(TarError::HalfAnEnd { at }) if at == end as u64 + 512));
    let cut_meta = Tarball::new().global(&[]).add(Item::file("f", b"").xattr("user.x", b"1"));
    let cut_meta = cut_meta.unfinished();
    assert!(read(&cut_meta).is_ok());
    assert!(matches!(read(&cut_meta[..cut_meta.len() - 512]), Err(TarError::Truncated { .. })));
}

#[test]
fn what_no_disk_can_hold_is_refused() {
    let cases: [(&str, Item); 12] = [
        ("no root disk can hold", Item::new("v", b'V')),
        ("no root disk can hold", Item::new("d", b'D')),
        ("no root disk can hold", Item::new("m", b'M')),
        ("no root disk can hold", Item::new("?", 0xff)),
        ("has no target", Item::symlink("s", "")),
        ("names no file", Item::file("a/.wh...", b"")),
        ("device number", Item::char_device("c", 4096, 0)),
        ("device number", Item::block_device("c", 0, 1 << 20)),
        ("uid", Item::file("f", b"").owner(1 << 32, 0)),
        ("gid", Item::file("f", b"").owner(0, 1 << 32).dialect(Dialect::Gnu)),
        ("zero byte", Item::file([&[b'a'; 101][..], b"\0b"].concat(), b"").dialect(Dialect::Gnu)),
        ("bad: a name has a zero byte", Item::file("f", b"").record("path", b"a\0b")),
    ];
    for (says, item) in cases {
        let error = read(&Tarball::of([item.clone()])).expect_err(says);
        assert!(error.to_string().contains(says), "{error} for {item:?}");
    }
    assert!(matches!(read(&[b'x'; 512]), Err(TarError::NotAHeader { at: 0 })));
}

#[test]
fn numbers_that_cannot_be_read_are_refused() {
    let good = Tarball::of([Item::file("f", b"")]);
    for (range, field) in [
        (100..108, "mode"),
        (108..116, "uid"),
        (116..124, "gid"),
        (124..136, "size"),
        (136..148, "mtime"),
    ] {
        let mut bad = good.clone();
        let header: &mut [u8; 512] = (&mut bad[..512]).try_into().unwrap();
        header[range.start] = b'9';
        checksum(header);
        let result = read(&bad);
        assert!(
            matches!(&result, Err(TarError::Number { field: name, at: 0 }) if *name == field),
            "{field}: {result:?}"
        );
    }
    let negative = Item::file("f", b"").dialect(Dialect::Gnu);
    let mut tar = Tarball::of([negative]);
    let header: &mut [u8; 512] = (&mut tar[..512]).try_into().unwrap();
    header[124..136].fill(0xff);
    checksum(header);
    assert!(matches!(read(&tar), Err(TarError::Number { field: "size", .. })));
}

#[test]
fn greed_is_refused_and_the_limit_named() {
    let setting = |limits: Limits, items: &[Item]| {
        let tar = Tarball::of(items.to_vec());
        match read_with(limits, &mut std::iter::once(&tar[..])) {
            Err(TarError::Limit { source, .. }) => source.setting,
            other => panic!("{other:?}"),
        }
    };
    let default = Limits::default;
    let file = || Item::file("f", b"");
    let two = [file(), file()];
    assert_eq!(setting(Limits { max_entries: 1, ..default() }, &two), "max_entries");
    assert_eq!(setting(Limits { max_index_bytes: 200, ..default() }, &two), "max_index_bytes");
    let pax = file().record("comment", vec![b'x'; 2 << 20]);
    assert_eq!(setting(default(), &[pax]), "max_header_bytes");
    let long = Item::file(vec![b'x'; 2 << 20], b"").dialect(Dialect::Gnu);
    assert_eq!(setting(default(), &[long]), "max_header_bytes");
    assert_eq!(setting(default(), &[file().xattr("user.x", [b'x'; 5000])]), "max_xattr_bytes");
    assert_eq!(setting(default(), &[Item::file([b'x'; 256], b"")]), "max_component_bytes");
    assert_eq!(setting(default(), &[Item::symlink("s", [b'x'; 4096])]), "max_path_bytes");
    let deep = ["d"; 1025].join("/");
    assert_eq!(setting(default(), &[Item::file(deep, b"")]), "max_depth");
    for holes in [Holes::Pax10, Holes::OldGnu] {
        let dialect = if holes == Holes::OldGnu { Dialect::Gnu } else { Dialect::Pax };
        let pieces: Vec<(u64, u64)> = (0..100_000).map(|i| (i + (1 << 29), 0)).collect();
        let map = Item::sparse("s", holes, &pieces, b"", 1 << 30).dialect(dialect);
        assert_eq!(setting(default(), &[map]), "max_header_bytes", "{holes:?}");
    }
    let huge = Item::sparse("s", Holes::Pax10, &[], b"", 1 << 62);
    assert_eq!(setting(default(), &[huge]), "max_file_bytes");
}

#[test]
fn headers_of_no_use_count_as_entries() {
    let records = Tarball::new().add(Item::file("f", "").record("comment", "x")).unfinished();
    // A header and a block of records, before the file's own header.
    let records = &records[..1024];
    let global = Tarball::new().global(&[("comment", b"x")]).unfinished();
    let skipped = Tarball::of([Item::file(".wh..wh.plnk/1", "")]);
    let skipped = &skipped[..512];
    let read = |bytes: &[u8], times: usize| {
        let tar = bytes.repeat(times);
        let tar = Tarball::new().raw(&tar).add(Item::file("f", "")).finish();
        let limits = Limits { max_entries: 10, ..Limits::default() };
        match read_with(limits, &mut std::iter::once(&tar[..])) {
            Ok(_) => None,
            Err(TarError::Limit { source, .. }) => Some(source.setting),
            Err(other) => panic!("{other:?}"),
        }
    };
    // The first records of an entry are its own, and the entry itself counts.
    for (bytes, most) in [(records, 10), (&global, 9), (skipped, 9)] {
        assert_eq!(read(bytes, most), None);
        assert_eq!(read(bytes, most + 1), Some("max_entries"));
    }
}

fn any_item() -> impl Strategy<Value = Item> {
    let name = prop_oneof![
        proptest::collection::vec(1u8..=255, 1..40),
        proptest::collection::vec(b'a'..=b'c', 90..250),
        "([a-c.]{1,3}/){0,60}[a-c]{1,3}".prop_map(String::into_bytes),
    ];
    let data = proptest::collection::vec(any::<u8>(), 0..1500);
    let dialect = prop_oneof![Just(Dialect::Pax), Just(Dialect::Gnu)];
    let xattrs = proptest::collection::vec(("user\\.[a-z]{1,9}", data.clone()), 0..3);
    (name, 0..7u8, data, dialect, xattrs, any::<(u32, u32, i64, u32, u16)>()).prop_map(
        |(name, kind, data, dialect, xattrs, (uid, gid, seconds, nanoseconds, mode))| {
            let mut item = match kind {
                0 | 1 => Item::file(&name, data),
                2 => Item::directory(&name),
                3 => Item::symlink("link", &name),
                4 => Item::hardlink("hard", &name),
                5 => Item::char_device("device", uid >> 20, gid >> 12),
                _ => Item::fifo("fifo"),
            };
            // What one file's attributes may hold, and what PAX's decimal seconds can say.
            let room = xattrs.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>() <= 4000;
            if dialect == Dialect::Pax && room {
                item = xattrs.into_iter().fold(item, |item, (name, value)| item.xattr(name, value));
            }
            let nanoseconds = if dialect == Dialect::Pax { nanoseconds % 1_000_000_000 } else { 0 };
            item.dialect(dialect)
                .owner(uid.into(), gid.into())
                .mode(u64::from(mode) & 0o7777)
                .mtime(seconds / 4, nanoseconds)
        },
    )
}

/// What a reader must make of an item, said again in other words.
fn expected(item: &Item) -> (Head, Placed) {
    let clean = |raw: &[u8]| {
        let parts = raw.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."));
        path(parts.collect::<Vec<_>>().join(&b'/'))
    };
    let device = Device { major: item.device.0, minor: item.device.1 };
    let kind = match item.kind {
        b'0' => HeadKind::File { size: item.data.len() as u64 },
        b'1' => HeadKind::Hardlink(clean(&item.link)),
        b'2' => HeadKind::Symlink(item.link.clone().into()),
        b'3' => HeadKind::CharDevice(device),
        b'5' => HeadKind::Directory,
        _ => HeadKind::Fifo,
    };
    let mode =
        if item.kind == b'2' { 0o777 } else { u16::try_from(item.mode).expect("twelve bits") };
    let mut xattrs: Vec<Xattr> = Vec::new();
    for (name, value) in &item.xattrs {
        xattrs.retain(|x| x.name[..] != name[..]);
        xattrs.push(Xattr { name: name.clone().into(), value: value.clone().into() });
    }
    xattrs.sort();
    let attributes = Attributes {
        mode,
        uid: u32::try_from(item.uid).expect("32 bits"),
        gid: u32::try_from(item.gid).expect("32 bits"),
        mtime: Time { seconds: item.mtime.0, nanoseconds: item.mtime.1 },
        xattrs: xattrs.into(),
    };
    let data = if item.data.is_empty() { vec![] } else { vec![(0, item.data.clone())] };
    let absolute = item.path.starts_with(b"/");
    (Head { path: clean(&item.path), absolute, kind, attributes }, data)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_written_is_read(items in proptest::collection::vec(any_item(), 0..6)) {
        let whiteout = |item: &Item| item.path.windows(4).any(|w| w == b".wh.");
        prop_assume!(!items.iter().any(whiteout));
        let (kept, _) = read(&Tarball::of(items.clone())).unwrap();
        let expected: Vec<_> = items.iter().map(expected).collect();
        prop_assert_eq!(kept.entries, expected);
    }

    #[test]
    fn cuts_change_nothing(
        items in proptest::collection::vec(any_item(), 0..5),
        holes in proptest::sample::select(vec![Holes::OldGnu, Holes::Pax00, Holes::Pax01, Holes::Pax10]),
        sizes in proptest::collection::vec(1usize..1200, 1..40),
    ) {
        let dialect = if holes == Holes::OldGnu { Dialect::Gnu } else { Dialect::Pax };
        let pieces: Vec<(u64, u64)> = (0..40).map(|i| (i * 100, 30)).collect();
        let sparse = Item::sparse("sparse", holes, &pieces, [7; 1200], 5000).dialect(dialect);
        let tar = Tarball::of(items.into_iter().chain([sparse]));
        let mut rest = &tar[..];
        let mut sizes = sizes.iter().cycle();
        let mut cut = std::iter::from_fn(|| {
            if rest.is_empty() {
                return None;
            }
            let (piece, after) = rest.split_at(rest.len().min(*sizes.next()?));
            rest = after;
            Some(piece)
        });
        let in_pieces = read_with(Limits::default(), &mut cut);
        match (read(&tar), in_pieces) {
            (Ok(whole), Ok(pieces)) => prop_assert_eq!(whole, pieces),
            (whole, pieces) => prop_assert_eq!(format!("{whole:?}"), format!("{pieces:?}")),
        }
    }

    #[test]
    fn damaged_tars_never_panic(
        items in proptest::collection::vec(any_item(), 1..5),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..10),
        repair in any::<bool>(),
    ) {
        let mut tar = Tarball::of(items);
        for (at, byte) in damage {
            let at = at.index(tar.len());
            tar[at] = byte;
            if repair {
                let block = at / 512 * 512;
                checksum((&mut tar[block..block + 512]).try_into().unwrap());
            }
        }
        let _ = read(&tar);
    }
}
