//! Who wrote what, from the API server's own log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek as _, SeekFrom};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::plane::{MEASURED, Plane};

/// Requests that write, by what they write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Writes(BTreeMap<String, usize>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    user: User,
    #[serde(default)]
    object_ref: Object,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
}

/// How far the log is, so that only what comes after it is counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mark(u64);

impl Mark {
    pub(super) fn now(plane: &Plane) -> Result<Self> {
        Ok(Self(std::fs::metadata(plane.audit_log())?.len()))
    }

    /// What whoever is measured wrote since then. Its own lease is not counted: it says that it lives.
    pub(super) fn writes(self, plane: &Plane) -> Result<Writes> {
        let mut log = File::open(plane.audit_log()).context("open the log of the API server")?;
        log.seek(SeekFrom::Start(self.0))?;
        read(BufReader::new(log))
    }
}

fn read(mut log: impl std::io::BufRead) -> Result<Writes> {
    let mut all = Writes::default();
    let mut line = String::new();
    while log.read_line(&mut line)? > 0 {
        // The last line may be on its way.
        if line.ends_with('\n') {
            let entry: Entry =
                serde_json::from_str(&line).with_context(|| format!("a line of the log {line}"))?;
            let Object { resource, subresource } = entry.object_ref;
            if entry.user.username == MEASURED && resource != "leases" {
                let what = if subresource.is_empty() {
                    resource
                } else {
                    format!("{resource}/{subresource}")
                };
                *all.0.entry(what).or_default() += 1;
            }
        }
        line.clear();
    }
    Ok(all)
}

impl Writes {
    pub(super) fn total(&self) -> usize {
        self.0.values().sum()
    }

    pub(super) fn of(&self, what: &str) -> usize {
        self.0.get(what).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Writes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let each: Vec<_> = self.0.iter().map(|(what, count)| format!("{count} {what}")).collect();
        write!(f, "{} writes ({})", self.total(), each.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_measured_one_wrote_is_counted_and_not_its_lease() {
        let line = |user: &str, object: &str| {
            format!("{{\"user\":{{\"username\":\"{user}\"}},\"verb\":\"patch\"{object}}}\n")
        };
        let object = |resource: &str| format!(",\"objectRef\":{{\"resource\":\"{resource}\"}}");
        let status = ",\"objectRef\":{\"resource\":\"shims\",\"subresource\":\"status\"}";
        let log = [
            line(MEASURED, &object("nodes")),
            line(MEASURED, &object("nodes")),
            line("bench", &object("nodes")),
            line(MEASURED, &object("leases")),
            line(MEASURED, status),
            "{\"user\":{\"userna".to_owned(),
        ];
        let found = read(log.concat().as_bytes()).unwrap();
        assert_eq!(found.to_string(), "3 writes (2 nodes, 1 shims/status)");
        assert_eq!((found.of("nodes"), found.of("jobs")), (2, 0));
    }
}
