//! `local.feature` and `local.label`: what an administrator wrote into files for NFD.
//!
//! A line is `key` or `key=value`. Of comments, `# +expiry-time=TIME` counts from there on, and
//! `# +no-feature` and `# +no-label` for the next line.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::Feature;
use super::feature::OTHERS;
use super::machine::{Attributes, Machine, Outcome, no};
use crate::root::NotRead;

const DIR: &str = "/etc/kubernetes/node-feature-discovery/features.d";

/// NFD's own bound.
const LIMIT: u64 = 64 << 10;

/// For all files together, in bytes: far more than anybody writes by hand.
const ALL_LIMIT: usize = 4 << 20;

pub(crate) fn features(machine: &Machine<'_>) -> Outcome {
    collect(machine, Kind::Feature)
}

pub(crate) fn labels(machine: &Machine<'_>) -> Outcome {
    collect(machine, Kind::Label)
}

/// What a line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Feature,
    Label,
}

fn collect(machine: &Machine<'_>, kind: Kind) -> Outcome {
    machine.files_are_the_hosts().map_err(|why| format!("{DIR} is not the host's: {why}"))?;
    let Some((dir, names)) = machine.listing("/etc", DIR)? else {
        return Ok(Feature::attributes(no(DIR), BTreeMap::new()));
    };
    let mut found = Attributes::default();
    let (mut left, mut unread) = (ALL_LIMIT, None);
    for name in names.iter().filter(|name| !name.starts_with('.')) {
        let path = dir.inside(name);
        match dir.text_within(name, LIMIT) {
            Ok(text) if text.len() > left => {
                unread = Some(format!("the files in {DIR} are longer than {ALL_LIMIT} bytes"));
                break;
            }
            Ok(text) => {
                left -= text.len();
                take(machine, kind, &path, &text, &mut found);
            }
            Err(NotRead::Missing) => {}
            Err(why) => {
                let why = why.about(&path);
                machine.warn(format!("left out: {why}"));
                // A directory is nobody's file; any other could have said something.
                unread = unread.or_else(|| dir.dir(name).is_err().then_some(why));
            }
        }
    }
    let mut feature = found.feature(DIR);
    if let Some(why) = unread {
        feature.only = feature.attributes.as_ref().map(|known| known.keys().cloned().collect());
        feature.unknown.insert(OTHERS.to_owned(), why);
    }
    Ok(feature)
}

/// What one file says.
fn take(machine: &Machine<'_>, kind: Kind, path: &str, text: &str, found: &mut Attributes) {
    let (lines, complaints) = parse(text, SystemTime::now());
    for complaint in complaints {
        machine.warn(format!("{path}: {complaint}"));
    }
    for (key, value) in lines.into_iter().filter_map(|line| line.of(kind)) {
        match value {
            Some(value) => found.set(&key, value, path),
            None => found.remove(&key),
        }
    }
}

/// A line that counts.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    key: String,
    value: String,
    feature: bool,
    label: bool,
}

impl Line {
    /// What it says of a feature or a label: a value, or that an earlier one is taken back.
    fn of(self, kind: Kind) -> Option<(String, Option<String>)> {
        let counts = match kind {
            Kind::Feature => self.feature,
            Kind::Label => self.label,
        };
        Some((self.key, counts.then_some(self.value)))
    }
}

fn parse(text: &str, now: SystemTime) -> (Vec<Line>, Vec<String>) {
    let mut lines = Vec::new();
    let mut complaints = Vec::new();
    let mut expired = false;
    let (mut feature, mut label) = (true, true);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with('#') {
            let Some(directive) = line.strip_prefix("# +") else { continue };
            match directive.split_once('=').unwrap_or((directive, "")) {
                ("no-feature", _) => feature = false,
                ("no-label", _) => label = false,
                ("expiry-time", time) => match time.trim().parse::<jiff::Timestamp>() {
                    Ok(time) => expired = SystemTime::from(time) < now,
                    Err(_) => complaints.push(format!("{:?} is no time", cut(time))),
                },
                (other, _) => complaints.push(format!("no directive is called {:?}", cut(other))),
            }
            continue;
        }
        if expired {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        lines.push(Line { key: key.to_owned(), value: value.to_owned(), feature, label });
        (feature, label) = (true, true);
    }
    (lines, complaints)
}

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, kind: Kind) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        let (lines, _) = parse(text, SystemTime::now());
        for (key, value) in lines.into_iter().filter_map(|line| line.of(kind)) {
            match value {
                Some(value) => drop(values.insert(key, value)),
                None => drop(values.remove(&key)),
            }
        }
        values
    }

    #[test]
    fn directives() {
        let text = "# a comment\nplain\nkey=value=more\n# +no-feature\nlabel-only=1\n\
                    # +no-label\nfeature-only\nboth\n# +expiry-time=2001-01-01T00:00:00Z\n\
                    gone=1\nalso-gone\n# +expiry-time=9000-01-01T00:00:00+02:00\nthere=1\n\
                    # +no-feature\nplain\n";
        let features = shown(text, Kind::Feature);
        let names: Vec<_> = features.keys().map(String::as_str).collect();
        assert_eq!(names, ["both", "feature-only", "key", "there"]);
        assert_eq!(features["key"], "value=more");
        assert_eq!(features["both"], "true");
        let labels = shown(text, Kind::Label);
        let names: Vec<_> = labels.keys().map(String::as_str).collect();
        assert_eq!(names, ["both", "key", "label-only", "plain", "there"]);
    }

    #[test]
    fn a_directive_that_is_none_is_told_and_changes_nothing() {
        let (lines, complaints) =
            parse("# +expiry-time=tomorrow\n# +expire\n#+no-label\na\n", SystemTime::now());
        assert_eq!(lines.len(), 1);
        assert!(lines[0].label && lines[0].feature);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
    }
}
