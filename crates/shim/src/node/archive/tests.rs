use std::io::{Cursor, Write as _};

use super::*;
use crate::report::Reason;

const NAME: &str = "containerd-shim-x";

#[derive(Default)]
struct Kept(Vec<u8>);

impl Take for Kept {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

fn read_with(bytes: &[u8], bounds: &Bounds) -> Result<Vec<u8>, ArchiveError> {
    let mut kept = Kept::default();
    read(&mut Cursor::new(bytes), NAME, bounds, &mut kept)?;
    Ok(kept.0)
}

fn read_it(bytes: &[u8]) -> Result<Vec<u8>, ArchiveError> {
    read_with(bytes, &Bounds::default())
}

fn program() -> Vec<u8> {
    [b"\x7fELF".as_slice(), &[7; 5000]].concat()
}

enum Item<'a> {
    File(&'a str, u32, &'a [u8]),
    Kind(&'a str, tar::EntryType, &'a str),
    Dir(&'a str),
}

fn tarball(items: &[Item<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for item in items {
        let mut header = tar::Header::new_gnu();
        let (path, data): (&str, &[u8]) = match item {
            Item::File(path, mode, data) => {
                header.set_mode(*mode);
                (path, data)
            }
            Item::Kind(path, kind, link) => {
                header.set_entry_type(*kind);
                header.set_mode(0o644);
                if !link.is_empty() {
                    header.set_link_name(link).unwrap();
                }
                (path, &[])
            }
            Item::Dir(path) => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o2755);
                (path, &[])
            }
        };
        // Names that the library would not write are what this is about.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zipped(items: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut writer = ::zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (path, mode, data) in items {
        let options = ::zip::write::SimpleFileOptions::default().unix_permissions(*mode);
        writer.start_file(*path, options).unwrap();
        writer.write_all(data).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Packed by the program xz, where it is there: the library here only reads.
fn xz(bytes: &[u8]) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    std::fs::write(&path, bytes).unwrap();
    let done = std::process::Command::new("xz").arg("-k").arg(&path).status().ok()?;
    done.success().then(|| std::fs::read(dir.path().join("x.xz")).unwrap())
}

#[test]
fn every_packing_gives_the_same_program() {
    let program = program();
    let tar = tarball(&[
        Item::Dir("d/"),
        Item::File("README", 0o644, b"hello"),
        Item::File(NAME, 0o755, &program),
    ]);
    assert_eq!(read_it(&tar).unwrap(), program);
    assert_eq!(read_it(&gzip(&tar)).unwrap(), program);
    assert_eq!(read_it(&zstd::encode_all(&tar[..], 3).unwrap()).unwrap(), program);
    let zip = zipped(&[("README", 0o644, b"hello"), (NAME, 0o755, &program)]);
    assert_eq!(read_it(&zip).unwrap(), program);
    assert_eq!(read_it(&program).unwrap(), program, "the program itself");
    assert_eq!(read_it(&gzip(&program)).unwrap(), program, "packed alone");
    match xz(&tar) {
        Some(xz) => assert_eq!(read_it(&xz).unwrap(), program),
        None => eprintln!("SKIPPED: there is no xz here to pack with"),
    }
}

#[test]
fn a_program_in_a_directory_is_found_by_its_name() {
    let program = program();
    let inner = format!("./release/bin/{NAME}");
    let tar = tarball(&[Item::File(&inner, 0o755, &program)]);
    assert_eq!(read_it(&tar).unwrap(), program);
    assert_eq!(
        read_it(&zipped(&[(inner.trim_start_matches("./"), 0o755, &program)])).unwrap(),
        program
    );
}

#[test]
fn two_of_the_name_are_none() {
    let inner = format!("other/{NAME}");
    for bytes in [
        tarball(&[Item::File(NAME, 0o755, b"a"), Item::File(NAME, 0o755, b"b")]),
        tarball(&[Item::File(NAME, 0o755, b"a"), Item::File(&inner, 0o755, b"b")]),
        zipped(&[(NAME, 0o755, b"a"), (&inner, 0o755, b"b")]),
    ] {
        let error = read_it(&bytes).unwrap_err();
        assert!(matches!(error, ArchiveError::Twice { .. }), "{error}");
    }
}

#[test]
fn another_name_is_told_with_what_there_is() {
    let error = read_it(&tarball(&[Item::File("containerd-shim-y", 0o755, b"x")])).unwrap_err();
    assert_eq!(error.reason(), Reason::BinaryNotFound);
    assert!(error.to_string().contains("it has containerd-shim-y"), "{error}");
    assert!(read_it(&tarball(&[])).unwrap_err().to_string().contains("nor any other"));
    assert!(matches!(read_it(&[0; 512]), Err(ArchiveError::NotFound { .. })), "zeros hold nothing");
}

#[test]
fn links_devices_and_names_that_lead_out_are_refused() {
    use tar::EntryType as Type;
    let cases = [
        Item::Kind(NAME, Type::Symlink, "/etc/shadow"),
        Item::Kind("other", Type::Symlink, "x"),
        Item::Kind("hard", Type::Link, NAME),
        Item::Kind("dev", Type::Char, ""),
        Item::Kind("blk", Type::Block, ""),
        Item::Kind("pipe", Type::Fifo, ""),
        Item::File("../../evil", 0o644, b"x"),
        Item::File("a/../../evil", 0o644, b"x"),
        Item::File("/etc/evil", 0o644, b"x"),
        Item::File("sudo", 0o4755, b"x"),
        Item::File("sgid", 0o2755, b"x"),
    ];
    for bad in cases {
        let told = match &bad {
            Item::File(path, ..) | Item::Kind(path, ..) | Item::Dir(path) => (*path).to_owned(),
        };
        let is_wanted = told == NAME;
        let items = if is_wanted { vec![bad] } else { vec![Item::File(NAME, 0o755, b"x"), bad] };
        let error = read_it(&gzip(&tarball(&items))).unwrap_err();
        assert_eq!(error.reason(), Reason::ArchiveRefused, "{told}: {error}");
    }
    for (path, mode) in
        [("../evil", 0o644), ("/evil", 0o644), ("link", 0o120_777), ("suid", 0o104_755)]
    {
        let mut writer = ::zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = ::zip::write::SimpleFileOptions::default();
        writer.start_file(NAME, options).unwrap();
        if path == "link" {
            writer.add_symlink(path, "/etc/shadow", options).unwrap();
        } else {
            writer.start_file(path, options.unix_permissions(mode)).unwrap();
        }
        let mut bytes = writer.finish().unwrap().into_inner();
        if path == "suid" {
            // The library keeps permissions alone, so the list is changed: others keep all of the mode.
            let [plain, full] = [0o100_755_u32, 0o104_755].map(|mode| (mode << 16).to_le_bytes());
            let at = bytes.windows(4).rposition(|four| four == plain).unwrap();
            bytes[at..at + 4].copy_from_slice(&full);
        }
        let error = read_it(&bytes).unwrap_err();
        assert_eq!(error.reason(), Reason::ArchiveRefused, "{path}: {error}");
    }
}

#[test]
fn what_is_no_archive_is_told_as_what_it_is() {
    for (bytes, expected) in [
        (&b""[..], "empty"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\n  <HTML><body>404", "web page"),
        (b"BZh91AY&SY", "bzip2"),
        (b"Not Found", "cut off"),
        (&[b'x'; 2000], "neither a program nor an archive"),
        (b"PK\x03\x04rubbish", "zip"),
        (b"\xfd7zXZ\0rubbish that is no xz at all", "xz"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\x03short", "gzip"),
    ] {
        let error = read_it(bytes).unwrap_err();
        assert_eq!(error.reason(), Reason::ArchiveRefused, "{error}");
        assert!(error.to_string().contains(expected) || expected == "gzip", "{error} / {expected}");
    }
    let whole = gzip(&tarball(&[Item::File(NAME, 0o755, &program())]));
    assert!(read_it(&whole[..whole.len() / 2]).is_err(), "cut off");
}

#[test]
fn bombs_are_stopped_by_ratio_and_by_size() {
    let zeros = vec![0; 80 << 20];
    let tar = tarball(&[Item::File("zeros", 0o644, &zeros), Item::File(NAME, 0o755, b"x")]);
    assert!(matches!(read_it(&gzip(&tar)), Err(ArchiveError::Bomb { .. })));
    assert!(matches!(
        read_it(&zstd::encode_all(&tar[..], 1).unwrap()),
        Err(ArchiveError::Bomb { .. })
    ));
    assert!(matches!(read_it(&zipped(&[(NAME, 0o755, &zeros)])), Err(ArchiveError::Bomb { .. })));
    if let Some(xz) = xz(&tar) {
        assert!(matches!(read_it(&xz), Err(ArchiveError::Bomb { .. })));
    }
    let small = Bounds { unpacked: 1 << 20, ..Bounds::default() };
    assert!(matches!(read_with(&tar, &small), Err(ArchiveError::TooLarge { .. })));
    let few = Bounds { entries: 1, ..Bounds::default() };
    let three =
        [Item::File("a", 0o644, b""), Item::File("b", 0o644, b""), Item::File(NAME, 0o755, b"x")];
    assert!(matches!(read_with(&tarball(&three), &few), Err(ArchiveError::Entries { limit: 1 })));
}
