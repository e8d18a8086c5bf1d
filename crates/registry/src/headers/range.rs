//! `Range` and `Content-Range`, both in the form of RFC 9110 (downloads) and in the form of the
//! distribution specification (uploads, no unit).

use super::MAX_HEADER;

/// What a `Range: bytes=…` request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// `first-last`, or `first-` to the end.
    From {
        /// The first byte.
        first: u64,
        /// The last byte, itself included.
        last: Option<u64>,
    },
    /// `-n`: the last n bytes.
    Last(u64),
}

impl ByteRange {
    /// The first and last byte within content of `size` bytes; none when nothing of it is there
    /// (a server answers 416).
    pub fn within(self, size: u64) -> Option<(u64, u64)> {
        let end = size.checked_sub(1)?;
        match self {
            Self::From { first, last } => {
                (first <= end).then(|| (first, last.unwrap_or(end).min(end)))
            }
            Self::Last(0) => None,
            Self::Last(n) => Some((size.saturating_sub(n), end)),
        }
    }
}

/// Reads a request's `Range`. None for another unit, for several ranges and for nonsense: a server
/// may then answer with the whole, and does.
pub fn parse_range(value: &str) -> Option<ByteRange> {
    let (unit, range) = bounded(value)?.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    match range.trim().split_once('-')? {
        ("", n) => Some(ByteRange::Last(number(n)?)),
        (first, "") => Some(ByteRange::From { first: number(first)?, last: None }),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(ByteRange::From { first, last: Some(last) })
        }
    }
}

/// What an answer's `Content-Range` says it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// The first byte.
    pub first: u64,
    /// The last byte, itself included.
    pub last: u64,
    /// The size of the whole, if the server knows it.
    pub size: Option<u64>,
}

/// Reads `bytes first-last/size` of a 206 answer.
pub fn parse_content_range(value: &str) -> Option<ContentRange> {
    let (unit, range) = bounded(value)?.trim().split_once(' ')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (range, size) = range.trim().split_once('/')?;
    let (first, last) = parse_pair(range)?;
    let size = if size == "*" { None } else { Some(number(size)?) };
    size.is_none_or(|size| last < size).then_some(ContentRange { first, last, size })
}

/// Reads `first-last`, which the distribution specification uses for the `Content-Range` of a
/// chunk and the `Range` of an upload's state. Some registries write `bytes=` before it.
pub fn parse_upload_range(value: &str) -> Option<(u64, u64)> {
    let value = bounded(value)?.trim();
    parse_pair(value.strip_prefix("bytes=").unwrap_or(value))
}

fn parse_pair(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    // No content has a byte of that number, and everybody counts up to `last + 1`.
    (first <= last && last < u64::MAX).then_some((first, last))
}

fn bounded(value: &str) -> Option<&str> {
    (value.len() <= MAX_HEADER).then_some(value)
}

/// Digits alone: `u64::from_str` would also take a sign.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let from = |first, last| Some(ByteRange::From { first, last });
        for (value, expected) in [
            ("bytes=0-9", from(0, Some(9))),
            ("Bytes=5-", from(5, None)),
            ("bytes=-3", Some(ByteRange::Last(3))),
            ("bytes= 1-2 ", from(1, Some(2))),
            ("bytes=9-0", None),
            ("bytes=0-1,3-4", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("bytes=a-b", None),
            ("items=0-1", None),
            ("0-1", None),
            ("bytes=0-99999999999999999999", None),
        ] {
            assert_eq!(parse_range(value), expected, "{value:?}");
        }
    }

    #[test]
    fn within() {
        let from = |first, last| ByteRange::From { first, last };
        for (range, size, expected) in [
            (from(0, None), 10, Some((0, 9))),
            (from(0, Some(99)), 10, Some((0, 9))),
            (from(9, Some(9)), 10, Some((9, 9))),
            (from(10, None), 10, None),
            (from(0, None), 0, None),
            (ByteRange::Last(3), 10, Some((7, 9))),
            (ByteRange::Last(30), 10, Some((0, 9))),
            (ByteRange::Last(0), 10, None),
            (ByteRange::Last(1), 0, None),
        ] {
            assert_eq!(range.within(size), expected, "{range:?} of {size}");
        }
    }

    #[test]
    fn content_ranges() {
        for (value, expected) in [
            ("bytes 0-9/10", Some((0, 9, Some(10)))),
            ("bytes 5-9/*", Some((5, 9, None))),
            ("BYTES 5-9/*", Some((5, 9, None))),
            ("bytes 5-10/10", None),
            ("bytes 9-5/10", None),
            ("bytes */10", None),
            ("5-9/10", None),
            ("bytes 5-9", None),
            ("", None),
        ] {
            let found = parse_content_range(value).map(|r| (r.first, r.last, r.size));
            assert_eq!(found, expected, "{value:?}");
        }
    }

    #[test]
    fn upload_ranges() {
        for (value, expected) in [
            ("0-0", Some((0, 0))),
            ("0-99", Some((0, 99))),
            ("bytes=0-99", Some((0, 99))),
            (" 3-4 ", Some((3, 4))),
            ("4-3", None),
            ("0-", None),
            ("-1", None),
            ("0--1", None),
            ("0-18446744073709551614", Some((0, u64::MAX - 1))),
            ("0-18446744073709551615", None),
            ("", None),
        ] {
            assert_eq!(parse_upload_range(value), expected, "{value:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_stays_inside(value in "(bytes)?[ =]?[0-9*/,-]{0,40}", size: u64) {
            if let Some(range) = parse_range(&value)
                && let Some((first, last)) = range.within(size)
            {
                proptest::prop_assert!(first <= last && last < size);
            }
            let _ = parse_content_range(&value);
            let _ = parse_upload_range(&value);
        }
    }
}
