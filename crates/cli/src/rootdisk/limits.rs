//! `--limit NAME=N`: what a stranger's image may ask for.

use anyhow::Context as _;
use portolan_rootdisk::limits::Limits;
use serde_json::{Map, Value};

use super::size;

/// `max_ratio=5000`, `max_file_bytes=2TiB`.
pub(super) fn parse(text: &str) -> anyhow::Result<(String, u64)> {
    let (name, number) = text.split_once('=').context("a limit is written NAME=N")?;
    Ok((name.to_owned(), size::parse(number)?))
}

/// The usual limits with these changed. An unknown name is answered with those that there are.
pub(super) fn set(changed: impl Iterator<Item = (String, u64)>) -> anyhow::Result<Limits> {
    let changed: Map<String, Value> = changed.map(|(name, n)| (name, n.into())).collect();
    serde_json::from_value(Value::Object(changed)).context("--limit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_the_names_that_errors_tell() {
        let changed = ["max_ratio=0", "max_file_bytes=2TiB", "max_depth=7"].map(parse);
        let limits = set(changed.into_iter().map(Result::unwrap)).unwrap();
        let expected =
            Limits { max_ratio: 0, max_file_bytes: 2 << 40, max_depth: 7, ..Limits::default() };
        assert_eq!(limits, expected);
        assert!(parse("max_ratio").is_err() && parse("max_ratio=x").is_err());
        let unknown = set([("max_ration".to_owned(), 1)].into_iter()).unwrap_err();
        assert!(format!("{unknown:#}").contains("`max_ratio`"), "{unknown:#}");
        assert!(set([("max_depth".to_owned(), u64::MAX)].into_iter()).is_err());
    }
}
