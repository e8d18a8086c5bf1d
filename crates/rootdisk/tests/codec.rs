//! Packed layers: whole, cut, damaged, called by the wrong name, and too large.

mod support;

use std::convert::Infallible;
use std::error::Error as _;
use std::sync::Arc;

use portolan_rootdisk::codec::{CodecError, Decoder, Finished, Mismatch, Packing, Stopped};
use portolan_rootdisk::limits::{Budget, Limits};
use proptest::prelude::*;
use support::pack::{gzip, zstd};

const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

/// Everything at once, in pieces of at most `cut` bytes.
fn unpack_with(
    media_type: &str,
    limits: Limits,
    input: &[u8],
    cut: usize,
) -> Result<(Vec<u8>, Finished, Option<Mismatch>), CodecError> {
    let mut decoder = Decoder::new(media_type, Arc::new(Budget::new(limits)))?;
    let mut unpacked = Vec::new();
    let mut out = |bytes: &[u8]| {
        unpacked.extend_from_slice(bytes);
        Ok::<(), Infallible>(())
    };
    let ours = |stopped| match stopped {
        Stopped::Codec(error) => error,
        Stopped::Sink(never) => match never {},
    };
    for piece in input.chunks(cut) {
        decoder.push(piece, &mut out).map_err(ours)?;
    }
    let finished = decoder.finish(&mut out).map_err(ours)?;
    Ok((unpacked, finished, decoder.mismatch()))
}

fn unpack(input: &[u8]) -> Result<Vec<u8>, CodecError> {
    unpack_with(GZIP, Limits::default(), input, usize::MAX).map(|(bytes, ..)| bytes)
}

/// Bytes that pack, but not to nothing.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * i / 7 % 251).to_le_bytes()[0]).collect()
}

#[test]
fn all_packings_give_the_same_bytes_in_any_cuts() {
    let tar = text(600_000);
    for (media_type, packed) in [(TAR, tar.clone()), (GZIP, gzip(&tar)), (ZSTD, zstd(&tar))] {
        for cut in [1, 7, 4096, usize::MAX] {
            let (unpacked, finished, mismatch) =
                unpack_with(media_type, Limits::default(), &packed, cut).unwrap();
            assert!(unpacked == tar, "{media_type} cut at {cut}");
            assert_eq!((finished.packed, finished.unpacked), (packed.len() as u64, 600_000));
            assert_eq!((finished.ignored, mismatch), (0, None));
        }
    }
}

#[test]
fn content_decides_when_the_type_lies() {
    let tar = text(1000);
    for (media_type, packed, declared, found) in [
        (TAR, gzip(&tar), Packing::Plain, Packing::Gzip),
        (GZIP, tar.clone(), Packing::Gzip, Packing::Plain),
        (GZIP, zstd(&tar), Packing::Gzip, Packing::Zstd),
        (ZSTD, gzip(&tar), Packing::Zstd, Packing::Gzip),
    ] {
        let (unpacked, finished, mismatch) =
            unpack_with(media_type, Limits::default(), &packed, 3).unwrap();
        assert_eq!(unpacked, tar);
        assert_eq!(finished.packing, found);
        assert_eq!(mismatch, Some(Mismatch { declared, found }));
    }
}

#[test]
fn an_unknown_type_is_refused_before_a_byte_is_read() {
    let budget = Arc::new(Budget::new(Limits::default()));
    let error =
        Decoder::new("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", budget).unwrap_err();
    assert!(error.to_string().contains("tar+gzip+encrypted"), "{error}");
}

#[test]
fn nothing_is_an_empty_layer() {
    for media_type in [TAR, GZIP, ZSTD] {
        let (unpacked, finished, mismatch) =
            unpack_with(media_type, Limits::default(), b"", 1).unwrap();
        assert!(unpacked.is_empty() && finished.unpacked == 0 && mismatch.is_none());
    }
    assert_eq!(unpack(&gzip(b"")).unwrap(), b"");
    assert_eq!(unpack(&zstd(b"")).unwrap(), b"");
    assert_eq!(unpack(b"tiny").unwrap(), b"tiny");
}

#[test]
fn members_and_frames_follow_each_other() {
    let (a, b) = (text(70_000), text(10));
    let both = [&a[..], &b].concat();
    let skippable = b"\x5a\x2a\x4d\x18\x05\0\0\0abcde";
    for packed in [
        [gzip(&a), gzip(b""), gzip(&b)].concat(),
        [zstd(&a), zstd(b""), zstd(&b)].concat(),
        [skippable.to_vec(), zstd(&a), skippable.to_vec(), zstd(&b), skippable.to_vec()].concat(),
    ] {
        for cut in [1, 5, usize::MAX] {
            let (unpacked, finished, _) =
                unpack_with(GZIP, Limits::default(), &packed, cut).unwrap();
            assert!(unpacked == both);
            assert_eq!(finished.ignored, 0);
        }
    }
}

#[test]
fn what_follows_the_last_member_is_ignored_and_counted() {
    let tar = text(5000);
    for packed in [gzip(&tar), zstd(&tar)] {
        for garbage in [&b"\0"[..], &[0; 512], b"ab", b"\x1e\x8b\x08garbage", b"tar and more"] {
            for cut in [1, usize::MAX] {
                let input = [&packed[..], garbage].concat();
                let (unpacked, finished, _) =
                    unpack_with(GZIP, Limits::default(), &input, cut).unwrap();
                assert!(unpacked == tar);
                assert_eq!(finished.ignored, garbage.len() as u64, "{garbage:?}");
            }
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let tar = text(3000);
    for packed in [gzip(&tar), zstd(&tar)] {
        // Fewer bytes than a magic are taken for a plain tar, which then says it is none.
        for length in 4..packed.len() {
            let result = unpack(&packed[..length]);
            assert!(matches!(result, Err(CodecError::Truncated { .. })), "{length}: {result:?}");
            let twice = [&packed[..], &packed[..length]].concat();
            assert!(unpack(&twice).is_err(), "second, {length}");
        }
    }
}

#[test]
fn wrong_checksums_and_lengths_are_errors() {
    let packed = gzip(&text(3000));
    let what = |input: &[u8]| match unpack(input) {
        Err(CodecError::Corrupt { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    let mut crc = packed.clone();
    *crc.iter_mut().nth_back(7).unwrap() ^= 1;
    assert_eq!(what(&crc), "the checksum of the content is wrong");
    let mut length = packed;
    *length.last_mut().unwrap() ^= 1;
    assert_eq!(what(&length), "the length of the content is wrong");
    let mut crc = zstd(&text(3000));
    *crc.last_mut().unwrap() ^= 1;
    assert!(matches!(unpack(&crc), Err(CodecError::Zstd { .. })));
}

/// A gzip header with these flags and fields, before the body of `packed`.
fn with_header(packed: &[u8], flags: u8, fields: &[u8]) -> Vec<u8> {
    let mut head = packed[..10].to_vec();
    head[3] = flags;
    head.extend_from_slice(fields);
    if flags & 2 != 0 {
        let mut crc = flate2::Crc::new();
        crc.update(&head);
        head.extend_from_slice(&crc.sum().to_le_bytes()[..2]);
    }
    [&head[..], &packed[10..]].concat()
}

#[test]
fn optional_fields_of_gzip_headers() {
    let tar = text(100);
    let packed = gzip(&tar);
    let all = with_header(&packed, 0b1_1111, b"\x03\0abcname\0comment\0");
    for input in [
        with_header(&packed, 0b0_0001, b""),
        with_header(&packed, 0b0_0010, b""),
        with_header(&packed, 0b0_0100, b"\0\0"),
        with_header(&packed, 0b0_1000, b"\0"),
        with_header(&packed, 0b1_0000, b"comment\0"),
        all.clone(),
    ] {
        for cut in [1, usize::MAX] {
            let (unpacked, ..) = unpack_with(GZIP, Limits::default(), &input, cut).unwrap();
            assert_eq!(unpacked, tar);
        }
    }
    let mut wrong = all;
    wrong[15] ^= 1;
    assert!(matches!(
        unpack(&wrong),
        Err(CodecError::Corrupt { what: "a header's checksum is wrong", .. })
    ));
    assert!(unpack(&with_header(&packed, 0x20, b"")).is_err());
    let name = [&[b'n'; 70_000][..], b"\0"].concat();
    let error = unpack(&with_header(&packed, 0b0_1000, &name)).unwrap_err();
    assert!(error.to_string().contains("64 KiB"), "{error}");
}

#[test]
fn bombs_are_refused_and_the_limit_named() {
    let zeros = vec![0; 3 << 20];
    let setting = |limits: Limits, input: &[u8]| {
        let error = unpack_with(GZIP, limits, input, usize::MAX).unwrap_err();
        let CodecError::Limit(exceeded) = error else { panic!("{error:?}") };
        exceeded.setting
    };
    let default = Limits::default;
    for packed in [gzip(&zeros), zstd(&zeros), zeros.clone()] {
        let limits = Limits { max_layer_bytes: 1 << 20, ..default() };
        assert_eq!(setting(limits, &packed), "max_layer_bytes");
        let limits = Limits { max_total_bytes: 1 << 20, ..default() };
        assert_eq!(setting(limits, &packed), "max_total_bytes");
    }
    for packed in [gzip(&zeros), zstd(&zeros)] {
        let limits = |max_ratio| Limits { max_ratio, ratio_floor_bytes: 1 << 20, ..default() };
        assert_eq!(setting(limits(100), &packed), "max_ratio");
        assert!(unpack_with(GZIP, limits(0), &packed, usize::MAX).is_ok());
    }
}

#[test]
fn zstd_windows_are_bounded() {
    // A frame header that asks for 2 GiB, and one for 256 MiB by its content's size.
    for head in [&b"\x28\xb5\x2f\xfd\x00\xa8"[..], b"\x28\xb5\x2f\xfd\xa0\0\0\0\x10"] {
        let error = unpack(&[head, &[0; 16]].concat()).unwrap_err();
        assert!(matches!(error, CodecError::Limit(_)), "{error:?}");
        assert!(error.source().unwrap().to_string().contains("max_zstd_window_bytes"));
    }
    let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    std::io::Write::write_all(&mut encoder, &text(100_000)).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(unpack(&packed).unwrap() == text(100_000), "128 MiB are allowed");
    let dictionary = b"\x28\xb5\x2f\xfd\x01\x00\x09\0\0\0\0\0";
    assert!(unpack(dictionary).unwrap_err().to_string().contains("dictionary"));
}

#[test]
fn the_sink_can_stop() {
    let budget = Arc::new(Budget::new(Limits::default()));
    let mut decoder = Decoder::new(GZIP, budget).unwrap();
    let result = decoder.push(&gzip(&text(1_000_000)), &mut |_| Err("full"));
    assert!(matches!(result, Err(Stopped::Sink("full"))));
}

proptest! {
    #[test]
    fn damage_is_found_or_changes_nothing(
        length in 0usize..5000,
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
        zstd_instead in any::<bool>(),
        cut in 1usize..3000,
    ) {
        let tar = text(length);
        let mut packed = if zstd_instead { zstd(&tar) } else { gzip(&tar) };
        let at = at.index(packed.len());
        packed[at] ^= 1 << bit;
        if let Ok((unpacked, finished, _)) = unpack_with(GZIP, Limits::default(), &packed, cut) {
            // A magic that is gone makes it a plain tar; else only fields that say nothing about
            // the content can have changed.
            prop_assert!(unpacked == tar || finished.packing == Packing::Plain);
        }
    }
}
