//! Ranges of versions in the notation of intervals: `[5.0.0,5.15.0)`, `(,5.15)`, `[5.10]`, and
//! several of them joined by commas.

use std::fmt;

use crate::text::short;
use crate::version::Version;

/// One or more intervals; a version in any of them is in the range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range(Vec<Interval>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Interval {
    lower: Option<Bound>,
    upper: Option<Bound>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound {
    version: Version,
    /// Whether the version itself belongs to the interval.
    inclusive: bool,
}

/// Why a text is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Not the notation of intervals.
    #[error("{text:?} is no range; write [5.0,5.15) for \"from 5.0, before 5.15\"")]
    Notation {
        /// As written.
        text: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// A bound that is no version.
    #[error("{version:?} is no version such as 5, 5.10 or 5.10.0")]
    Version {
        /// As written.
        version: String,
    },
    /// The bounds are the wrong way round.
    #[error("{lower} is above {upper}, so no version is in this range; swap them")]
    Backwards {
        /// The first.
        lower: Version,
        /// The second.
        upper: Version,
    },
    /// One version, and it is excluded.
    #[error("no version is in {text:?}; for exactly one write [{version}]")]
    Empty {
        /// As written.
        text: String,
        /// The only one it could be.
        version: Version,
    },
}

impl Range {
    /// Reads one or more intervals.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let notation = |near| RangeError::Notation { text: short(text), near };
        let mut rest = text.trim();
        if let Some(version) = Version::exact(rest) {
            return Err(notation(Some(format!("[{version}]"))));
        }
        let mut intervals = Vec::new();
        loop {
            let lower_inclusive = match rest.chars().next() {
                Some('[') => true,
                Some('(') => false,
                _ => return Err(notation(None)),
            };
            let end = rest.find([']', ')']).ok_or_else(|| notation(None))?;
            let upper_inclusive = rest[end..].starts_with(']');
            let inner = &rest[1..end];
            intervals.push(interval(&rest[..=end], inner, lower_inclusive, upper_inclusive)?);
            rest = rest[end + 1..].trim_start();
            match rest.strip_prefix(',') {
                Some(next) => rest = next.trim_start(),
                None if rest.is_empty() => return Ok(Self(intervals)),
                None => return Err(notation(None)),
            }
        }
    }

    /// The bounds of each interval, lower and upper.
    pub(crate) fn bounds(&self) -> impl Iterator<Item = [Option<(Version, bool)>; 2]> {
        let bound = |bound: &Option<Bound>| bound.as_ref().map(|one| (one.version, one.inclusive));
        self.0.iter().map(move |interval| [bound(&interval.lower), bound(&interval.upper)])
    }

    /// Whether the version is in one of the intervals.
    pub fn contains(&self, version: Version) -> bool {
        self.0.iter().any(|interval| {
            let above = |bound: &Bound| {
                version > bound.version || (bound.inclusive && version == bound.version)
            };
            let below = |bound: &Bound| {
                version < bound.version || (bound.inclusive && version == bound.version)
            };
            interval.lower.as_ref().is_none_or(above) && interval.upper.as_ref().is_none_or(below)
        })
    }
}

fn interval(
    text: &str,
    inner: &str,
    lower_inclusive: bool,
    upper_inclusive: bool,
) -> Result<Interval, RangeError> {
    let bound = |text: &str, inclusive| match text.trim() {
        "" => Ok(None),
        version => match Version::exact(version) {
            Some(version) => Ok(Some(Bound { version, inclusive })),
            None => Err(RangeError::Version { version: short(version) }),
        },
    };
    let Some((lower, upper)) = inner.split_once(',') else {
        // One version: `[5.10]`.
        let lower = bound(inner, lower_inclusive)?;
        return match lower {
            Some(Bound { version, .. }) if !(lower_inclusive && upper_inclusive) => {
                Err(RangeError::Empty { text: short(text), version })
            }
            Some(_) => Ok(Interval { upper: lower.clone(), lower }),
            None => Err(RangeError::Notation { text: short(text), near: None }),
        };
    };
    let interval =
        Interval { lower: bound(lower, lower_inclusive)?, upper: bound(upper, upper_inclusive)? };
    match (&interval.lower, &interval.upper) {
        (Some(lower), Some(upper)) if lower.version > upper.version => {
            Err(RangeError::Backwards { lower: lower.version, upper: upper.version })
        }
        (Some(lower), Some(upper))
            if lower.version == upper.version && !(lower.inclusive && upper.inclusive) =>
        {
            Err(RangeError::Empty { text: short(text), version: lower.version })
        }
        _ => Ok(interval),
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Interval { lower, upper }) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            match lower {
                Some(Bound { version, inclusive: true }) => write!(f, "[{version},")?,
                Some(Bound { version, inclusive: false }) => write!(f, "({version},")?,
                None => f.write_str("(,")?,
            }
            match upper {
                Some(Bound { version, inclusive: true }) => write!(f, "{version}]")?,
                Some(Bound { version, inclusive: false }) => write!(f, "{version})")?,
                None => f.write_str(")")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contains(range: &str, version: &str) -> bool {
        Range::parse(range).unwrap().contains(Version::leading(version).unwrap())
    }

    #[test]
    fn intervals_and_their_ends() {
        for (range, inside, outside) in [
            (
                "[5.0.0,5.15.0)",
                &["5.0.0", "5.0", "5.14.99", "5.10"][..],
                &["4.19", "5.15.0", "6.1"][..],
            ),
            ("(5.0,5.15]", &["5.0.1", "5.15"], &["5.0.0", "5.15.1"]),
            ("(,5.15)", &["0.1", "5.14"], &["5.15"]),
            ("[5.15,)", &["5.15", "99"], &["5.14.999"]),
            ("(,)", &["0", "9"], &[]),
            ("[5.10]", &["5.10", "5.10.0"], &["5.10.1", "5.9"]),
            ("[5.10,5.10]", &["5.10"], &["5.10.1"]),
            (
                "[4.19, 4.20), [5.4,5.5] ,[6]",
                &["4.19.300", "5.4", "5.5", "6"],
                &["4.20", "5.5.1", "6.0.1"],
            ),
            // Numbers, not letters.
            ("[5.9,5.10]", &["5.9", "5.10"], &["5.11", "5.1"]),
        ] {
            for version in inside {
                assert!(contains(range, version), "{version} in {range}");
            }
            for version in outside {
                assert!(!contains(range, version), "{version} not in {range}");
            }
        }
    }

    #[test]
    fn what_is_no_range_says_why() {
        for (range, says) in [
            ("", "is no range"),
            ("5.10", "is no range"),
            ("[5.10", "is no range"),
            ("[5.0,5.1),", "is no range"),
            ("[5.0,5.1)[6]", "is no range"),
            ("[]", "is no range"),
            ("[5.15,5.0)", "swap them"),
            ("[5.0,5.0)", "no version is in"),
            ("(5.0)", "no version is in"),
            ("(5.0,5.0.0]", "no version is in"),
            ("[a,5)", "is no version"),
            ("[5.0-rc1,)", "is no version"),
            ("[5.0.0.1,)", "is no version"),
            ("[1,2,3]", "is no version"),
            (">=5.0", "is no range"),
        ] {
            let error = Range::parse(range).unwrap_err().to_string();
            assert!(error.contains(says), "{range}: {error}");
        }
        let RangeError::Notation { near, .. } = Range::parse("5.10").unwrap_err() else {
            panic!("a notation")
        };
        assert_eq!(near.as_deref(), Some("[5.10.0]"));
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_the_same(text in "[\\[(](|[0-9]{1,2}(\\.[0-9]){0,2})(,|)(|[0-9]{1,2}(\\.[0-9]){0,2})[\\])]") {
            if let Ok(range) = Range::parse(&text) {
                prop_assert_eq!(Range::parse(&range.to_string()).unwrap(), range);
            }
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = Range::parse(&text);
        }
    }
}
