//! `kernel.version`.

use std::collections::BTreeMap;

use super::super::Feature;
use super::super::machine::{Machine, Outcome};

pub(crate) fn collect(machine: &Machine<'_>) -> Outcome {
    let release = machine.kernel.release()?;
    Ok(Feature::attributes(release.source.to_string(), parse(&release.value)))
}

/// `full` as a label may hold it, and the leading numbers. What follows them is not looked at:
/// `5.15.0-rc1` is 5.15.0.
fn parse(release: &str) -> BTreeMap<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let full: String = release.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    let full = full.trim_matches(['-', '_', '.']).to_owned();
    let mut version = BTreeMap::new();
    let mut rest = full.as_str();
    for name in ["major", "minor", "revision"] {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        if name == "major" && number.is_empty() {
            break;
        }
        version.insert(name.to_owned(), number.to_owned());
        rest = match after.strip_prefix('.') {
            Some(after) if !number.is_empty() => after,
            _ => "",
        };
    }
    version.insert("full".to_owned(), full);
    version
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_all_sorts() {
        for (release, full, major, minor, revision) in [
            ("6.2.3", "6.2.3", "6", "2", "3"),
            ("6.0.0-beta", "6.0.0-beta", "6", "0", "0"),
            ("6.8", "6.8", "6", "8", ""),
            ("6.0.10-100+123.x86_64~", "6.0.10-100_123.x86_64", "6", "0", "10"),
            ("5.15.0-91-generic", "5.15.0-91-generic", "5", "15", "0"),
            ("5.14.0+", "5.14.0", "5", "14", "0"),
            ("6.18.44-fc-v490", "6.18.44-fc-v490", "6", "18", "44"),
            ("6.1.0-rc3", "6.1.0-rc3", "6", "1", "0"),
            ("6-x", "6-x", "6", "", ""),
        ] {
            let version = parse(release);
            let expected =
                [("full", full), ("major", major), ("minor", minor), ("revision", revision)];
            for (name, value) in expected {
                assert_eq!(version[name], value, "{name} of {release}");
            }
        }
        assert_eq!(parse("odd").len(), 1);
        assert_eq!(parse("")["full"], "");
    }
}
