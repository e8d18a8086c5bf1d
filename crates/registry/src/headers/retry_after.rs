//! `Retry-After`: when a busy server wants to be asked again.

use std::time::{Duration, SystemTime};

/// Reads seconds or an HTTP date. A date that has passed means "now". The caller caps the wait:
/// a server may ask for a year.
pub fn parse_retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if value.len() > 64 || value.is_empty() {
        return None;
    }
    if value.bytes().all(|b| b.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (value, expected) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(
                parse_retry_after(value, now),
                expected.map(Duration::from_secs),
                "{value:?}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(value in ".{0,80}") {
            let _ = parse_retry_after(&value, SystemTime::UNIX_EPOCH);
        }
    }
}
