//! Sizes as people write them.

use anyhow::{Context as _, bail};

const UNITS: [(&str, u32); 8] = [
    ("KiB", 10),
    ("MiB", 20),
    ("GiB", 30),
    ("TiB", 40),
    ("K", 10),
    ("M", 20),
    ("G", 30),
    ("T", 40),
];

/// `512MiB`, `20G`, `1073741824`: units are powers of 1024, with or without `iB`.
pub(super) fn parse(text: &str) -> anyhow::Result<u64> {
    let unit = UNITS.iter().find_map(|(name, shift)| Some((text.strip_suffix(name)?, *shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        bail!("a size is a whole number with KiB, MiB, GiB or TiB, such as 512MiB");
    }
    let number: u64 = digits.parse().context("the size is too large")?;
    number.checked_mul(1 << shift).context("the size is too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_whole() {
        for (text, expected) in
            [("0", 0), ("4096", 4096), ("512MiB", 512 << 20), ("20G", 20 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
        for text in ["", "MiB", "-1", "1.5GiB", "10MB", "99999999999999999999", "99999999TiB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
