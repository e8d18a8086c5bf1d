//! Values of the configuration that are more than a number or a text. Each is checked while it is
//! read, so that the parser's error names the line.

use serde::{Deserialize, Serialize};

/// A number of bytes: as such, or a text such as `"512MiB"` or `"20GiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "u64")]
pub struct Size(pub u64);

/// A share of a file system: 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Percent(u8);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

/// A number with its unit behind it.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let unit = text[end..].trim();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

impl TryFrom<NumberOrText> for Size {
    type Error = &'static str;

    fn try_from(value: NumberOrText) -> Result<Self, Self::Error> {
        const WRONG: &str =
            "a size is a number of bytes, or a text such as \"512MiB\", \"20GiB\" or \"1TiB\"";
        let units = [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
        let bytes = match value {
            NumberOrText::Number(bytes) => Some(bytes),
            NumberOrText::Text(text) => with_unit(&text, &units)
                .or_else(|| with_unit(&text, &[("TiB", 1 << 40), ("PiB", 1 << 50)])),
        };
        bytes.map(Self).ok_or(WRONG)
    }
}

impl From<Size> for u64 {
    fn from(size: Size) -> Self {
        size.0
    }
}

impl Percent {
    /// Of this number.
    ///
    /// # Panics
    /// When it is not 1 to 100.
    pub const fn new(percent: u8) -> Self {
        assert!(percent >= 1 && percent <= 100, "a percentage is 1 to 100");
        Self(percent)
    }

    /// So much of `bytes`.
    pub fn of(self, bytes: u64) -> u64 {
        u64::try_from(u128::from(bytes) * u128::from(self.0) / 100).unwrap_or(u64::MAX)
    }
}

impl TryFrom<u64> for Percent {
    type Error = &'static str;

    fn try_from(percent: u64) -> Result<Self, Self::Error> {
        let fits = u8::try_from(percent).ok().filter(|percent| (1..=100).contains(percent));
        fits.map(Self).ok_or("a percentage is 1 to 100")
    }
}

impl From<Percent> for u64 {
    fn from(percent: Percent) -> Self {
        percent.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct One<T> {
        x: T,
    }

    fn read<T: for<'a> Deserialize<'a>>(value: &str) -> Option<T> {
        toml::from_str::<One<T>>(&format!("x = {value}")).ok().map(|one| one.x)
    }

    #[test]
    fn sizes_and_shares_are_read_or_refused() {
        let bytes = |text| read::<Size>(text).map(|size| size.0);
        assert_eq!(bytes("7"), Some(7));
        assert_eq!(bytes("\"512MiB\""), Some(512 << 20));
        assert_eq!(bytes("\"2TiB\""), Some(2 << 40));
        for bad in ["\"1GB\"", "\"x\"", "-3", "\"99999999PiB\""] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
        assert_eq!(read::<Percent>("85").unwrap().of(200), 170);
        assert_eq!(Percent::new(100).of(u64::MAX), u64::MAX);
        for bad in ["0", "101", "-1", "300"] {
            assert!(read::<Percent>(bad).is_none(), "{bad}");
        }
    }
}
