//! Versions as kernels and authors write them: one to three numbers.

use std::fmt;

/// `5.15` is `5.15.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version([u64; 3]);

impl Version {
    /// One to three numbers with dots and nothing else: what an author may write.
    pub fn exact(text: &str) -> Option<Self> {
        match Self::split(text)? {
            (version, "") => Some(version),
            _ => None,
        }
    }

    /// The numbers at the beginning; what follows is left out. Hosts add names of builds,
    /// distributions and candidates: `5.15.0-91-generic` is 5.15.0, and `6.1.0-rc3` 6.1.0.
    pub fn leading(text: &str) -> Option<Self> {
        Self::split(text.strip_prefix('v').unwrap_or(text)).map(|(version, _)| version)
    }

    /// Its three numbers.
    pub(crate) fn numbers(self) -> [u64; 3] {
        self.0
    }

    /// The version and what follows it.
    fn split(text: &str) -> Option<(Self, &str)> {
        let mut parts = [0; 3];
        let mut rest = text;
        for (n, part) in parts.iter_mut().enumerate() {
            let from = match n {
                0 => rest,
                // A point that no number follows belongs to the rest: `5.10.el8`.
                _ => match rest.strip_prefix('.') {
                    Some(next) if next.starts_with(|c: char| c.is_ascii_digit()) => next,
                    _ => break,
                },
            };
            let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
            *part = from[..end].parse().ok()?;
            rest = &from[end..];
        }
        Some((Self(parts), rest))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leading(text: &str) -> Option<String> {
        Version::leading(text).map(|version| version.to_string())
    }

    #[test]
    fn what_follows_the_numbers_is_left_out() {
        for (text, expected) in [
            ("5.15.0-91-generic", Some("5.15.0")),
            ("6.18.44-fc-v490", Some("6.18.44")),
            ("6.1.0-rc3", Some("6.1.0")),
            ("5.14.0+", Some("5.14.0")),
            ("3.10.0-1160.el7.x86_64", Some("3.10.0")),
            ("5.10.el8", Some("5.10.0")),
            ("6", Some("6.0.0")),
            ("4.19.90.1", Some("4.19.90")),
            ("v1.2", Some("1.2.0")),
            ("", None),
            ("str", None),
            ("-11", None),
            (".5", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(leading(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn authors_write_numbers_and_points_alone() {
        for good in ["5", "5.10", "5.10.0", "05.1"] {
            assert!(Version::exact(good).is_some(), "{good}");
        }
        for bad in ["", "5.", "5.10.0.1", "5.10-rc1", "v5", "a", "5 ", "+5", "5..1"] {
            assert!(Version::exact(bad).is_none(), "{bad}");
        }
        assert!(Version::exact("5.9") < Version::exact("5.10"));
        assert_eq!(Version::exact("5"), Version::exact("5.0.0"));
    }
}
