//! Numbers as tars write them.

use crate::tree::Time;

/// A numeric field of a header: octal digits between blanks and zero bytes, nothing for 0, or
/// GNU's binary form, marked by the first bit. `None` when it is neither or does not fit.
pub(super) fn field(bytes: &[u8]) -> Option<i64> {
    match bytes.first() {
        Some(first) if first & 0x80 != 0 => binary(bytes),
        _ => octal(bytes),
    }
}

fn octal(bytes: &[u8]) -> Option<i64> {
    let blank = |byte: &u8| matches!(byte, b' ' | 0);
    let start = bytes.iter().position(|byte| !blank(byte)).unwrap_or(bytes.len());
    let rest = &bytes[start..];
    // What follows a zero byte is no part of the field.
    let rest = &rest[..rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len())];
    let end = rest.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    rest[..end].iter().try_fold(0i64, |sum, byte| match byte {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(i64::from(byte - b'0')),
        _ => None,
    })
}

/// Two's complement, big end first; the first bit only marks it and the second is the sign.
fn binary(bytes: &[u8]) -> Option<i64> {
    let negative = bytes[0] & 0x40 != 0;
    let flip = if negative { 0xff } else { 0 };
    let mut sum = 0i64;
    for (at, byte) in bytes.iter().enumerate() {
        let byte = (byte ^ flip) & if at == 0 { 0x7f } else { 0xff };
        sum = sum.checked_mul(256)?.checked_add(i64::from(byte))?;
    }
    Some(if negative { !sum } else { sum })
}

/// A whole number of a PAX record.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A time of a PAX record: seconds with or without a fraction, which may be before 1970. What is
/// finer than a nanosecond is cut off.
pub(super) fn time(text: &[u8]) -> Option<Time> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = match text.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &[][..]),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = i64::try_from(decimal(whole)?).ok()?;
    let digits = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    let nanoseconds = digits.fold(0u32, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    Some(match (negative, nanoseconds) {
        (false, _) => Time { seconds, nanoseconds },
        (true, 0) => Time { seconds: -seconds, nanoseconds },
        // Seconds are rounded down: -1.25 is -2 and three quarters.
        (true, _) => Time { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_headers() {
        for (bytes, number) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"000644 \0", Some(0o644)),
            (b"   644  ", Some(0o644)),
            (b"644\0junk", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"77777777777\0", Some(0o77_777_777_777)),
            (b"777777777777", Some(0o777_777_777_777)),
            (b"0000689\0", None),
            (b"6 44\0\0\0\0", None),
            (b"-000001\0", None),
            (b"\x80\0\0\0\0\0\0\x01", Some(1)),
            (b"\x80\0\0\0\0\0\x01\0\0\0\0\0", Some(1 << 40)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", Some(i64::MAX)),
            (b"\xff\xff\xff\xff\x80\0\0\0\0\0\0\0", Some(i64::MIN)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\x81\0\0\0\0\0\0\0\0\0\0\0", None),
            (b"\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
        ] {
            assert_eq!(field(bytes), number, "{bytes:?}");
        }
    }

    #[test]
    fn times_of_records() {
        let at = |seconds, nanoseconds| Some(Time { seconds, nanoseconds });
        for (text, expected) in [
            ("0", at(0, 0)),
            ("1700000000", at(1_700_000_000, 0)),
            ("1.5", at(1, 500_000_000)),
            ("1.", at(1, 0)),
            ("1.123456789987", at(1, 123_456_789)),
            ("-1", at(-1, 0)),
            ("-1.25", at(-2, 750_000_000)),
            ("-0.5", at(-1, 500_000_000)),
            ("-0.0000000001", at(0, 0)),
            ("4294967296.000000001", at(4_294_967_296, 1)),
            ("", None),
            (".5", None),
            ("1e3", None),
            ("--1", None),
            ("1.-5", None),
            ("+1", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(time(text.as_bytes()), expected, "{text}");
        }
    }
}
