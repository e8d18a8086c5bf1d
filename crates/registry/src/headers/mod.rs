//! HTTP headers that the distribution protocol gives a meaning, read by pure functions.
//!
//! A header is written by a stranger: each parser looks at no more than [`MAX_HEADER`] bytes,
//! returns nothing or an error on nonsense, and never panics.

mod challenge;
mod link;
mod location;
mod range;
mod retry_after;

pub use challenge::{Challenge, ParseChallengeError, parse_challenges};
pub use link::{Link, next_link, parse_links};
pub use location::{LocationError, resolve_location, same_origin};
pub use range::{ByteRange, ContentRange, parse_content_range, parse_range, parse_upload_range};
pub use retry_after::parse_retry_after;

/// The longest header value any parser here looks at, in bytes. Servers commonly refuse header
/// blocks above 8 KiB, and presigned URLs in `Location` come close to half of that.
pub const MAX_HEADER: usize = 8 * 1024;

/// Whether an `OCI-Filters-Applied` value (a comma-separated list) names `filter`.
pub fn filter_applied(value: &str, filter: &str) -> bool {
    value.len() <= MAX_HEADER && value.split(',').any(|name| name.trim() == filter)
}

/// The media type of a `Content-Type` value without its parameters, lower case: registries must
/// not send parameters and clients are told to ignore them.
pub fn media_type(value: &str) -> String {
    let end = value.find(';').unwrap_or(value.len());
    value.get(..end.min(MAX_HEADER)).unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether an `ETag` may be used for `If-Range`, which allows strong ones only: quoted, and not
/// marked weak by `W/`.
pub fn is_strong_etag(value: &str) -> bool {
    value.len() >= 2
        && value.len() <= MAX_HEADER
        && value.starts_with('"')
        && value.ends_with('"')
        && !value[1..value.len() - 1].contains('"')
}

/// A character of an RFC 9110 token.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reads a quoted string whose opening quote is the first byte of `text`; returns its content,
/// unescaped, and what follows the closing quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            // +2: the opening quote was stripped, and the closing one is one byte long.
            '"' => return text.get(at + 2..).map(|rest| (out, rest)),
            '\\' => out.push(chars.next()?.1),
            c => out.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters() {
        for (value, expected) in [
            ("artifactType", true),
            ("annotations, artifactType", true),
            ("annotations,artifactType ", true),
            ("artifacttype", false),
            ("", false),
            ("artifactTypes", false),
        ] {
            assert_eq!(filter_applied(value, "artifactType"), expected, "{value:?}");
        }
        assert!(!filter_applied(
            &format!("artifactType,{}", "x".repeat(MAX_HEADER)),
            "artifactType"
        ));
    }

    #[test]
    fn media_types_lose_their_parameters() {
        assert_eq!(media_type("Application/JSON; charset=utf-8"), "application/json");
        assert_eq!(media_type(" text/plain "), "text/plain");
        assert_eq!(media_type(""), "");
    }

    #[test]
    fn strong_etags() {
        for (value, expected) in [
            ("\"a\"", true),
            ("\"\"", true),
            ("W/\"a\"", false),
            ("a", false),
            ("\"", false),
            ("\"a\"b\"", false),
        ] {
            assert_eq!(is_strong_etag(value), expected, "{value:?}");
        }
    }

    #[test]
    fn quoted_strings() {
        assert_eq!(quoted(r#""a\"b" rest"#), Some(("a\"b".to_owned(), " rest")));
        assert_eq!(quoted(r#""ü""#), Some(("ü".to_owned(), "")));
        assert_eq!(quoted(r#""open"#), None);
        assert_eq!(quoted(r#""open\"#), None);
        assert_eq!(quoted("none"), None);
    }
}
