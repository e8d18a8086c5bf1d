//! Hash trees, judged by veritysetup and by doing it the slow way.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod ext4_support;

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use ext4_support::{FileSink, MemorySink, run, text, tool};
use portolan_rootdisk::tree::BLOCK;
use portolan_rootdisk::verity::{Params, Salted, VerityError, Writer, size_with_tree};

fn params(data_blocks: u32) -> Params {
    Params { data_blocks, uuid: *b"an id, any sixte", salt: b"salt of the disk".repeat(2) }
}

/// Block `n` of a disk that is half holes.
fn block(n: u32) -> Option<[u8; BLOCK]> {
    (n / 200).is_multiple_of(2).then(|| [u8::try_from(n % 251).unwrap(); BLOCK])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn veritysetup_accepts_the_tree_and_sees_one_changed_byte() {
    let Some(veritysetup) = tool("veritysetup") else { return };
    for blocks in [1, 2, 127, 128, 129, 1000, 128 * 128, 128 * 128 + 1] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut sink = FileSink(file.try_clone().unwrap());
        let mut writer = Writer::new(params(blocks), &mut sink).unwrap();
        for n in 0..blocks {
            match block(n) {
                Some(bytes) => {
                    file.write_all_at(&bytes, u64::from(n) * BLOCK as u64).unwrap();
                    writer.push(&bytes).unwrap();
                }
                None => writer.push_zeros(1).unwrap(),
            }
        }
        let verity = writer.finish().unwrap();
        file.set_len(verity.size_bytes).unwrap();
        assert_eq!(verity.size_bytes, size_with_tree(blocks));
        let verify = || {
            run(Command::new(&veritysetup)
                .args(["verify", "--hash-offset", &verity.hash_offset.to_string()])
                .args([&path, &path])
                .arg(hex(&verity.root_hash)))
        };
        let said = verify();
        assert!(said.status.success(), "{blocks} blocks: {}", text(&said));
        file.write_all_at(b"?", 77).unwrap();
        assert!(!verify().status.success(), "{blocks} blocks, one byte changed");
    }
}

#[test]
fn holes_and_zeros_and_hashes_are_all_the_same() {
    let blocks = 128 * 128 * 3 + 77;
    let salted = Salted::new(&params(blocks).salt);
    let mut outcomes = Vec::new();
    for way in 0..3 {
        let mut sink = MemorySink::default();
        let mut writer = Writer::new(params(blocks), &mut sink).unwrap();
        for piece in (0..blocks).collect::<Vec<_>>().chunk_by(|a, b| a / 20_000 == b / 20_000) {
            let data = piece[0] == 20_000;
            match (data, way) {
                (false, 0) => writer.push_zeros(piece.len() as u64).unwrap(),
                (false, 1) => piece.iter().for_each(|_| writer.push(&[0; BLOCK]).unwrap()),
                (false, _) => {
                    writer.push_hashes(&vec![salted.hash(&[0; BLOCK]); piece.len()]).unwrap();
                }
                (true, _) => piece.iter().for_each(|_| writer.push(&[5; BLOCK]).unwrap()),
            }
        }
        outcomes.push((writer.finish().unwrap(), sink.0));
    }
    assert!(outcomes[0] == outcomes[1] && outcomes[1] == outcomes[2]);
}

#[test]
fn too_much_and_too_little_data_are_seen() {
    let mut sink = MemorySink::default();
    let mut writer = Writer::new(params(10), &mut sink).unwrap();
    writer.push_zeros(9).unwrap();
    let error = writer.push(&[0; 2 * BLOCK]).unwrap_err();
    assert!(matches!(error, VerityError::Blocks { announced: 10, pushed: 11 }), "{error}");
    let mut sink = MemorySink::default();
    let mut writer = Writer::new(params(10), &mut sink).unwrap();
    writer.push_zeros(9).unwrap();
    let error = writer.finish().unwrap_err();
    assert!(matches!(error, VerityError::Blocks { announced: 10, pushed: 9 }), "{error}");
}

#[test]
fn parameters_that_make_no_tree_are_refused() {
    let refused = |params| Writer::new(params, &mut MemorySink::default()).map(|_| ()).unwrap_err();
    assert!(matches!(refused(params(0)), VerityError::Empty));
    let salt = vec![0; 257];
    assert!(matches!(refused(Params { salt, ..params(1) }), VerityError::Salt { length: 257 }));
    assert!(matches!(refused(params(u32::MAX)), VerityError::TooLarge { .. }));
}
